"""`pgdyno list`: the records that are there, and how far each has come."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pgdyno.conduct.progress import Stage, read_progress
from pgdyno.errors import SpecError, with_program
from pgdyno.record.store import find_records
from pgdyno.record.types import TrialStatus
from pgdyno.run.host.program import program_name


class RecordLine(msgspec.Struct, frozen=True, kw_only=True):
    """A record in a list; `problem` says why the rest is not known."""

    path: str
    started_at: str | None = None
    question: str | None = None
    server: str | None = None
    trials_finished_count: int | None = None
    trials_planned_count: int | None = None
    """The most that may run, where a study ends when it knows."""
    stage: Stage | None = None
    has_failed: bool = False
    problem: str | None = None

    @property
    def status(self) -> str:
        """`12/72 being measured`; of one that has ended with fewer trials than planned, only those it has."""
        has_ended = self.stage is Stage.ENDED
        is_early = has_ended and self.trials_finished_count != self.trials_planned_count
        trials = f"{self.trials_finished_count}" + ("" if is_early else f"/{self.trials_planned_count}")
        words = ("failed" if self.has_failed else "", "" if self.stage is None or has_ended else self.stage.value)
        return " ".join(filter(None, (trials, *words)))


class RecordList(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a folder."""

    folder: str
    records: tuple[RecordLine, ...]

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """As a table."""
        if not self.records:
            return Text(with_program(f"no records in {self.folder}; `pgdyno bench --quick` makes one", program_name()))
        table = Table(box=None, pad_edge=False)
        table.add_column("record", no_wrap=True)
        for heading in ("trials", "PostgreSQL", "question"):
            table.add_column(heading, overflow="fold")
        for line in self.records:
            cells = (line.status, line.server, line.question) if line.problem is None else ("", "", line.problem)
            table.add_row(line.path, *(Text(cell or "") for cell in cells))
        return table


def view_records(folder: Path) -> RecordList:
    """The records directly below a folder; a damaged one is listed with what is wrong."""
    lines = []
    for store in find_records(folder):
        try:
            record, progress = store.read_record(), read_progress(store)
            lines.append(
                RecordLine(
                    path=str(store.path),
                    started_at=record.started_at,
                    question=record.study.question,
                    server=record.server.version,
                    trials_finished_count=progress.finished_count,
                    trials_planned_count=progress.planned_count,
                    stage=progress.stage,
                    has_failed=any(trial.status is TrialStatus.FAILED for trial in store.read_trials()),
                )
            )
        except SpecError as error:
            lines.append(RecordLine(path=str(store.path), problem=error.reason))
    return RecordList(folder=str(folder), records=tuple(lines))

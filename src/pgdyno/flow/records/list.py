"""`pgdyno list`: the records of a folder, and how far each has come."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.progress import Stage, read_progress
from pgdyno.errors import SpecError, describe_failure, with_program
from pgdyno.record.store import describe_path, find_records, no_records_in
from pgdyno.record.types import TrialStatus
from pgdyno.report.forms.plain import Heading, render_line, render_rows
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
        """Return `12/72 being measured`; `12` alone for a record that has ended with fewer trials than planned."""
        has_ended = self.stage is Stage.ENDED
        is_early = has_ended and self.trials_finished_count != self.trials_planned_count
        trials = f"{self.trials_finished_count}" + ("" if is_early else f"/{self.trials_planned_count}")
        words = ("failed" if self.has_failed else "", "" if self.stage is None or has_ended else self.stage.value)
        return " ".join(filter(None, (trials, *words)))

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the record's row of the table."""
        if self.problem is not None:
            return self.path, "", "", self.problem
        return self.path, self.status, self.server or "", self.question or ""


class RecordList(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a folder."""

    folder: str
    records: tuple[RecordLine, ...]

    def to_json(self) -> bytes:
        """Return the list as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return the list as a table."""
        if not self.records:
            none = no_records_in([Path(self.folder)])
            return render_line(with_program(f"{none.reason}; {none.hint}", program_name()))
        headings = (Heading("record", is_whole=True), Heading("trials"), Heading("PostgreSQL"), Heading("question"))
        return render_rows(headings, [line.cells for line in self.records])


def view_records(folder: Path) -> RecordList:
    """List the records directly below a folder; one that cannot be read with the reason."""
    lines = []
    for store in find_records(folder):
        try:
            record, progress = store.read_record(), read_progress(store)
            lines.append(
                RecordLine(
                    path=describe_path(store.path),
                    started_at=record.started_at,
                    question=record.study.question,
                    server=record.server.version,
                    trials_finished_count=progress.finished_count,
                    trials_planned_count=progress.planned_count,
                    stage=progress.stage,
                    has_failed=any(trial.status is TrialStatus.FAILED for trial in store.read_trials()),
                )
            )
        except (SpecError, OSError) as error:
            lines.append(RecordLine(path=describe_path(store.path), problem=describe_failure(error)))
    return RecordList(folder=describe_path(folder), records=tuple(lines))

"""`pgdyno list`, `plan` and `clean`: looking at what is there and what would be, and clearing up."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pgdyno.errors import SpecError, with_program
from pgdyno.flow.progress import Stage, read_progress
from pgdyno.flow.study import Place, machine_of
from pgdyno.flow.ui import Ui
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.plan import Plan, Step, StepKind, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.record.store import find_records
from pgdyno.record.types import TrialStatus
from pgdyno.run.home import open_home
from pgdyno.run.host import read_host_facts
from pgdyno.run.installation import read_named_facts
from pgdyno.run.process import find_server_user
from pgdyno.run.program import program_name
from pgdyno.run.template import remove_template
from pgdyno.spec.study import Study
from pgdyno.units import format_bytes


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


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A plan to look at."""

    plan: Plan
    scaling: Plan | None = None
    """Of the sweep over clients that follows."""

    @property
    def predicted_s(self) -> float:
        """Of all together."""
        return sum(plan.predicted_s for plan in (self.plan, self.scaling) if plan is not None)

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode({"predicted_s": self.predicted_s, "plan": self.plan, "scaling": self.scaling})

    def to_terminal(self) -> RenderableType:
        """As a table of steps with predicted seconds."""
        caption = f"{self.predicted_s / 60:.1f} minutes in all"
        table = Table(box=None, pad_edge=False, caption=caption, caption_justify="left")
        table.add_column("step")
        table.add_column("seconds", justify="right")
        table.add_column("what")
        for plan in filter(None, (self.plan, self.scaling)):
            for step in plan.steps:
                table.add_row(step.kind.value, f"{step.predicted_s:.0f}", _describe_step(plan, step))
        for choice in self.plan.choices:
            table.add_row("chosen", "", f"{choice.name} = {choice.value}: {choice.reason}")
        return table


def _describe_step(plan: Plan, step: Step) -> str:
    if step.trial is None:
        return f"scale {plan.scale}" if step.kind is StepKind.LOAD else ""
    workload = plan.find_load(step.trial)
    return f"{step.trial.number}: {workload.name}, {workload.clients} clients, round {step.trial.round}"


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What `clean` removed."""

    home: str
    removed: tuple[str, ...]
    freed_bytes: int

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """In a line."""
        if not self.removed:
            return Text(f"nothing to remove in {self.home}")
        return Text(
            f"removed {len(self.removed)} loaded clusters from {self.home}: {format_bytes(self.freed_bytes)} freed"
        )


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


def view_plan(study: Study, *, place: Place) -> PlanView:
    """What a study would do here."""
    there = next(folder for folder in (place.home, *place.home.parents) if os.access(folder, os.R_OK | os.X_OK))
    major = read_named_facts(reference_server(study)).major
    machine = machine_of(read_host_facts(there), version_major=major)
    plan = plan_study(study, machine)
    return PlanView(plan=plan, scaling=plan_scaling(study, plan, machine))


def clean_home(place: Place, *, ui: Ui) -> Cleaned:
    """Remove every loaded cluster of a home, after asking."""
    with open_home(place.home, find_server_user(place.run_as)) as home:
        templates = sorted(home.templates.iterdir())
        size = sum(path.stat().st_size for folder in templates for path in folder.rglob("*") if path.is_file())
        names = tuple(folder.name for folder in templates)
        question = f"remove {', '.join(names)} ({format_bytes(size)})?"
        if templates and not ui.confirm(question, default=False):
            raise SpecError("nothing was removed", detail=question, hint="say yes, or add --yes")
        if not templates:
            return Cleaned(home=str(home.root), removed=(), freed_bytes=0)
        for folder in templates:
            remove_template(folder)
        return Cleaned(home=str(home.root), removed=names, freed_bytes=size)

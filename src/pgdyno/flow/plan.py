"""`pgdyno plan`: the steps that a study would take on this machine, with the predicted time."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.disk.demand import find_limits
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.conduct.known_cards import find_cards
from pgdyno.conduct.workspace import Workspace, read_machine
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.plan import Plan, Step, StepKind, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.plan.types import Choice
from pgdyno.report.forms.plain import Heading, render_rows
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.tunables import read_tunables
from pgdyno.run.postgres.installation import read_named_facts
from pgdyno.spec.study import Study
from pgdyno.units import format_bytes

# A file system has some per cent less room than its disk.
_SAME_DISK_RATIO = 0.8


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, ready to be shown."""

    plan: Plan
    scaling: Plan | None = None
    """The sweep over clients that follows; None where none follows."""

    @property
    def predicted_s(self) -> float:
        """Return how long all steps take."""
        return sum(plan.predicted_s for plan in (self.plan, self.scaling) if plan is not None)

    def to_json(self) -> bytes:
        """Return the plan as JSON."""
        return msgspec.json.encode({"predicted_s": self.predicted_s, "plan": self.plan, "scaling": self.scaling})

    def to_terminal(self) -> RenderableType:
        """Return a table of the steps with their predicted seconds."""
        plans = tuple(filter(None, (self.plan, self.scaling)))
        steps = [
            (step.kind.value, f"{step.predicted_s:.0f}", _describe_step(plan, step))
            for plan in plans
            for step in plan.steps
        ]
        choices = [("chosen", "", f"{one.name} = {one.value}: {one.reason}") for one in self.plan.choices]
        return render_rows(
            (Heading("step"), Heading("seconds", is_number=True), Heading("what")),
            [*steps, *choices],
            caption=f"{self.predicted_s / 60:.1f} minutes in all",
        )


def _describe_step(plan: Plan, step: Step) -> str:
    if step.trial is None:
        return plan.data_words if step.kind is StepKind.LOAD else ""
    workload = plan.find_load(step.trial)
    when = "only observed" if step.trial.is_observed else f"round {step.trial.round}"
    return f"{step.trial.number}: {workload.name}, {workload.clients} clients, {when}"


def view_plan(study: Study, *, place: Workspace) -> PlanView:
    """Plan a study for this machine."""
    major = read_named_facts(reference_server(study)).major
    machine = read_machine(study, place.home, version_major=major)
    written = _find_write_rate(study, place.home)
    declared_bytes = _find_declared_room(study, place.home)
    room = machine.disk_free_bytes if declared_bytes is None else declared_bytes
    machine = msgspec.structs.replace(machine, write_bytes_per_s=written, disk_free_bytes=room)
    plan = plan_study(study, machine)
    if declared_bytes is not None:
        room_words = "as the study declares; the disk of this home is smaller"
        choice = Choice(name="room for data", value=format_bytes(declared_bytes), reason=room_words)
        plan = msgspec.structs.replace(plan, choices=(*plan.choices, choice))
    return PlanView(plan=plan, scaling=plan_scaling(study, plan, machine))


def _find_declared_room(study: Study, home: Path) -> int | None:
    """Return the bytes that a declared disk has room for; None if the home's disk may be the declared one."""
    disk = None if study.host is None else study.host.disk
    if disk is None:
        return None
    capacity = compute_ceilings(disk).capacity_bytes
    room = disk.free_bytes or (None if capacity is None else capacity.value)
    here = read_disk_facts(find_existing_folder(home)).size_bytes
    return int(room) if room is not None and here < _SAME_DISK_RATIO * room else None


def _find_write_rate(study: Study, home: Path) -> float | None:
    """Find what the disk writes, by the study's declaration or the home's disk card; None if neither says."""
    host = study.host
    if host is not None and host.disk is not None:
        written = compute_ceilings(host.disk, limits_of(host)).write_bytes_per_s
        if written is not None:
            return written.value
    card = find_cards(home, read_tunables(find_existing_folder(home))).data
    return None if card is None else find_limits(card[0]).write_bytes_per_s

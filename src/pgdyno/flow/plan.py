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
from pgdyno.report.forms.plain import Heading, render_rows
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.host.tunables import read_tunables
from pgdyno.run.postgres.installation import read_named_facts
from pgdyno.spec.study import Study


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
    place = place.of_study(study)
    major = read_named_facts(reference_server(study)).major
    machine = read_machine(study, place.home, version_major=major)
    written = _find_write_rate(study, place.home)
    machine = msgspec.structs.replace(machine, write_bytes_per_s=written)
    plan = plan_study(study, machine)
    return PlanView(plan=plan, scaling=plan_scaling(study, plan, machine))


def _find_write_rate(study: Study, home: Path) -> float | None:
    """Find what the disk writes, by the study's declaration or the home's disk card; None if neither says."""
    host = study.host
    if host is not None and host.disk is not None:
        written = compute_ceilings(host.disk, limits_of(host)).write_bytes_per_s
        if written is not None:
            return written.value
    card = find_cards(home, read_tunables(find_existing_folder(home))).data
    return None if card is None else find_limits(card[0]).write_bytes_per_s

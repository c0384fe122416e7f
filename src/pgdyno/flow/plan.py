"""`pgdyno plan`: the steps that a study would take on this machine, with the predicted time."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.workspace import Workspace, machine_of
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.plan import Plan, Step, StepKind, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.report.forms.plain import Heading, render_rows
from pgdyno.run.cluster.home import find_existing_folder
from pgdyno.run.host.facts import read_host_facts
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
    major = read_named_facts(reference_server(study)).major
    machine = machine_of(read_host_facts(find_existing_folder(place.home)), version_major=major)
    plan = plan_study(study, machine)
    return PlanView(plan=plan, scaling=plan_scaling(study, plan, machine))

"""`pgdyno plan`: what a study would do here, step by step, with the predicted time."""

from __future__ import annotations

import os

import msgspec
from rich.console import RenderableType
from rich.table import Table

from pgdyno.conduct.workspace import Workspace, machine_of
from pgdyno.plan.experiment import reference_server
from pgdyno.plan.plan import Plan, Step, StepKind, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.run.cluster.installation import read_named_facts
from pgdyno.run.host.facts import read_host_facts
from pgdyno.spec.study import Study


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


def view_plan(study: Study, *, place: Workspace) -> PlanView:
    """What a study would do here."""
    there = next(folder for folder in (place.home, *place.home.parents) if os.access(folder, os.R_OK | os.X_OK))
    major = read_named_facts(reference_server(study)).major
    machine = machine_of(read_host_facts(there), version_major=major)
    plan = plan_study(study, machine)
    return PlanView(plan=plan, scaling=plan_scaling(study, plan, machine))

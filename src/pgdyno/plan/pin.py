"""Writes into a study what a plan chose where it had left something open, so that it repeats the same elsewhere.

The study as it was asked stays in the record's own file; this is the one to run again. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pgdyno.plan.plan import Plan, PlannedWorkload
from pgdyno.spec.read import format_study
from pgdyno.spec.study import Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.variant import ExperimentSpec


def format_pinned(study: Study, plan: Plan, *, scripts: Mapping[str, str]) -> str:
    """The study as TOML with nothing left open; what was chosen stands above it, with the reasons.

    Args:
        study: What was asked for.
        plan: What became of it.
        scripts: For each script file, by its name in the plan, where it lies from the TOML file's folder.
    """
    head = ["# The study as it was run."]
    if plan.choices:
        head = [
            "# The study as it was run. What had been left open was chosen for the machine, and is written in:",
            *(f"# {choice.name} = {choice.value}: {choice.reason}" for choice in plan.choices),
        ]
    return "\n".join([*head, "", format_study(pin_study(study, plan, scripts=scripts))])


def pin_study(study: Study, plan: Plan, *, scripts: Mapping[str, str]) -> Study:
    """The study with the plan's scale, clients, threads, design and budget; see `format_pinned`."""
    workloads = tuple(_pin_workload(asked, plan.find_workload(asked.name), scripts=scripts) for asked in study.workload)
    return msgspec.structs.replace(
        study,
        data=msgspec.structs.replace(study.data, scale=plan.scale),
        workload=workloads,
        experiment=_pin_experiment(study.experiment, plan),
        trials=_pin_trials(study.trials, plan),
    )


def _pin_workload(asked: WorkloadSpec, planned: PlannedWorkload, *, scripts: Mapping[str, str]) -> WorkloadSpec:
    places = tuple(f"{scripts.get(name, name)}@{weight}" for name, weight in planned.scripts) if asked.scripts else ()
    return msgspec.structs.replace(asked, scripts=places, clients=planned.clients, threads=planned.threads)


def _pin_trials(asked: TrialsSpec, plan: Plan) -> TrialsSpec:
    duration_s = plan.trials[0].duration_s
    if plan.search is None or duration_s == asked.duration_s:
        return asked
    return msgspec.structs.replace(asked, duration=f"{duration_s:.0f}s")


def _pin_experiment(asked: ExperimentSpec, plan: Plan) -> ExperimentSpec:
    if plan.search is not None and plan.search.budget_s is not None:
        return msgspec.structs.replace(asked, minutes=plan.search.budget_s / 60.0)
    experiment = plan.experiment
    if experiment is None:
        return asked
    minutes = asked.minutes if experiment.budget_s is None else experiment.budget_s / 60.0
    return msgspec.structs.replace(asked, design=experiment.design, minutes=minutes)

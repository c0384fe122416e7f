"""Write the choices of a plan into its study, so that the study can be repeated identically elsewhere.

The record also keeps the study as requested. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pgdyno.plan.plan import Plan, PlannedWorkload
from pgdyno.plan.standbys import with_synchronous_names
from pgdyno.spec.read import format_study
from pgdyno.spec.study import DataSpec, Study, TrialsSpec, WorkloadSpec
from pgdyno.spec.table import make_printable
from pgdyno.spec.unused import without_unused
from pgdyno.spec.variant import ExperimentSpec, VariantSpec


def format_pinned(study: Study, plan: Plan, *, scripts: Mapping[str, str]) -> str:
    """Format the complete study as TOML, with comments at the top that list the choices and their reasons.

    Args:
        study: The study as requested.
        plan: Its plan.
        scripts: Path of each script file relative to the TOML file's folder, by its name in the plan; of the SQL file that
            makes the data, too.
    """
    head = ["# The study as it was run."]
    if plan.choices:
        head = [
            "# The study as it was run. These values were chosen for the machine and filled in:",
            # Values of settings may have several lines.
            *("# " + make_printable(f"{each.name} = {each.value}: {each.reason}") for each in plan.choices),
        ]
    return "\n".join([*head, "", format_study(pin_study(study, plan, scripts=scripts))])


def pin_study(study: Study, plan: Plan, *, scripts: Mapping[str, str]) -> Study:
    """Return the study with the plan's scale, clients, threads, design and budget; see `format_pinned`."""
    workloads = tuple(_pin_workload(asked, plan.find_workload(asked.name), scripts=scripts) for asked in study.workload)
    return msgspec.structs.replace(
        with_synchronous_names(study, study.variant),
        data=_pin_data(study.data, plan, scripts=scripts),
        workload=workloads,
        poolers={
            name: asked
            if (planned := plan.find_pooler(name)) is None
            else msgspec.structs.replace(asked, size=planned.size)
            for name, asked in study.poolers.items()
        },
        variant=tuple(_pin_variant(asked, scripts=scripts) for asked in study.variant),
        experiment=_pin_experiment(without_unused(study), plan),
        trials=_pin_trials(study.trials, plan),
    )


def place_scripts(weighted: Iterable[tuple[str, int]], places: Mapping[str, str]) -> tuple[str, ...]:
    """Return scripts with their weights as a study has them.

    Args:
        weighted: Names, as in a plan, and weights.
        places: Paths of script files by name; other names are kept.
    """
    return tuple(f"{places.get(name, name)}@{weight}" for name, weight in weighted)


def _pin_data(asked: DataSpec, plan: Plan, *, scripts: Mapping[str, str]) -> DataSpec:
    if asked.init is not None:
        return msgspec.structs.replace(asked, init=scripts.get(asked.init, asked.init))
    if asked.database is not None:
        return asked
    return msgspec.structs.replace(asked, scale=plan.scale)


def _pin_workload(asked: WorkloadSpec, planned: PlannedWorkload, *, scripts: Mapping[str, str]) -> WorkloadSpec:
    if planned.is_loading:
        return asked
    if asked.parts:
        return msgspec.structs.replace(
            asked,
            parts=tuple(
                msgspec.structs.replace(
                    part,
                    scripts=place_scripts(chosen.scripts, scripts),
                    threads=chosen.threads,
                )
                for part, chosen in zip(asked.parts, planned.parts, strict=True)
            ),
        )
    places = place_scripts(planned.scripts, scripts) if asked.scripts else ()
    return msgspec.structs.replace(asked, scripts=places, clients=planned.clients, threads=planned.threads)


def _pin_variant(asked: VariantSpec, *, scripts: Mapping[str, str]) -> VariantSpec:
    places = place_scripts(asked.weighted_scripts, scripts)
    return msgspec.structs.replace(asked, name=asked.title, scripts=places) if places else asked


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

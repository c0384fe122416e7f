"""The sweep over clients that follows a comparison, as a study of its own: under which settings, over which loads.

Pure. Whether anything won, and what, is told from what the comparison saw; here it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pgdyno.plan.loads import allowed_clients
from pgdyno.plan.plan import Plan, plan_study
from pgdyno.plan.types import Machine, PlannedWorkload
from pgdyno.spec.scaling import ScalingSpec
from pgdyno.spec.study import Study
from pgdyno.spec.variant import ExperimentSpec, SweepSpec, VariantSpec

# Of pgbench's own workloads, those that write the most: where flushes, locks and checkpoints show with more clients.
_SCALED_FIRST = ("tpcb-like", "simple-update")
# The fewest that the Universal Scalability Law is fitted to: see analyse/sweep/usl.py.
_LOADS = 6
# Wide enough to pass the knee of a small machine, and to show the other side of the load that was compared.
_LEAST_MOST_CLIENTS = 32
_BEYOND = 2


def choose_scaled(plan: Plan) -> str | None:
    """The workload whose clients are varied: the one that writes most; None where each has a rate."""
    names = [workload.name for workload in plan.workloads if workload.rate_tps is None]
    return next((name for name in _SCALED_FIRST if name in names), next(iter(names), None))


def choose_loads(study: Study, workload: PlannedWorkload) -> tuple[int, ...]:
    """Numbers of clients from 1 on, in equal ratios, past the load of the comparison; as far as connections allow.

    Args:
        study: With its variants: each may win.
        workload: Whose clients are varied, as it is compared.
    """
    servers = [study.server.settings, *({**study.server.settings, **each.settings} for each in study.variant)]
    most = min(max(_LEAST_MOST_CLIENTS, _BEYOND * workload.clients), *map(allowed_clients, servers))
    steps = _LOADS - 1
    return tuple(sorted({round(most ** (step / steps)) for step in range(_LOADS)}))


def make_scaling_study(
    study: Study, plan: Plan, *, scripts: Mapping[str, str], variant: VariantSpec | None = None
) -> Study:
    """The sweep as a study that says all of itself: it can be run again without the one that it followed.

    Args:
        study: That it follows, with a table `scaling`.
        plan: Of that study.
        scripts: Where copies of its script files lie, by their names in the plan.
        variant: Whose settings won; None: the server as the study has it.
    """
    asked, workload = study.scaling or ScalingSpec(), study.find_scaled()
    assert workload is not None  # noqa: S101 - the study was checked
    places = tuple(f"{scripts.get(name, name)}@{weight}" for name, weight in workload.weighted_scripts)
    base = (
        () if variant is None else (msgspec.structs.replace(variant, name=variant.title, clients=None, threads=None),)
    )
    own = study.experiment
    return Study(
        server=study.server,
        data=msgspec.structs.replace(study.data, scale=plan.scale),
        workload=(msgspec.structs.replace(workload, scripts=places, clients=None),),
        trials=study.trials,
        variant=base,
        sweep=(SweepSpec(name="clients", levels=asked.clients),),
        experiment=ExperimentSpec(minutes=asked.minutes, detect=own.detect, confidence=own.confidence),
        host=study.host,
    )


def plan_scaling(study: Study, plan: Plan, machine: Machine) -> Plan | None:
    """What the sweep that follows a study will take, whatever wins; None where none follows.

    Raises:
        SpecError: Its clients do not fit the server's settings, or its minutes are too few.
    """
    if study.scaling is None:
        return None
    variant = study.variant[0] if study.variant else None
    return plan_sweep(make_scaling_study(study, plan, scripts={}, variant=variant), plan, machine)


def plan_sweep(sweep: Study, followed: Plan, machine: Machine) -> Plan:
    """The plan of a sweep that `make_scaling_study` gave: the data of the study that it follows lie loaded by then.

    Raises:
        SpecError: As for `plan_scaling`.
    """
    scales = machine.loaded_scales | {followed.scale}
    return plan_study(sweep, msgspec.structs.replace(machine, loaded_scales=scales, disk_card_s=0.0))

"""Make the study of the client sweep that follows a comparison: its settings and its loads.

Pure. The winner of the comparison, if any, is an argument here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.loads import allowed_clients
from pgdyno.plan.pin import place_scripts
from pgdyno.plan.plan import Plan, plan_study
from pgdyno.plan.types import Machine, PlannedWorkload
from pgdyno.spec.pooler import PoolMode, find_sharing
from pgdyno.spec.scaling import ScalingSpec
from pgdyno.spec.study import ServerKind, Study, TrialsSpec
from pgdyno.spec.variant import ExperimentSpec, SweepSpec, VariantSpec

# Pgbench's workloads that write the most, in which flushes, locks and checkpoints show with more clients.
_PREFERRED = ("tpcb-like", "simple-update")
# The fewest loads that the Universal Scalability Law is fitted to: see analyse/sweep/usl.py.
_LOADS = 6
# Enough clients to pass the knee of a small machine, and to go beyond the load that was compared.
_MIN_TOP_CLIENTS = 32
_TOP_RATIO = 2
SPARE_CONNECTIONS = 10
"""Connections of a given server that samplers and checks take beside a load's."""


def choose_swept_workload(plan: Plan) -> str | None:
    """Choose the workload for the sweep: the one that writes most; None if every workload has a fixed rate."""
    names = [workload.name for workload in plan.workloads if workload.rate_tps is None]
    return next((name for name in _PREFERRED if name in names), next(iter(names), None))


def choose_client_counts(study: Study, workload: PlannedWorkload, machine: Machine | None = None) -> tuple[int, ...]:
    """Choose the numbers of clients in equal ratios, from 1 to beyond the comparison's load, as connections allow.

    Args:
        study: The study with its variants, each of which may win.
        workload: The workload for the sweep, as compared.
        machine: What is known of a given server; None for pgdyno's own.
    """
    own = study.server
    servers = [
        own,
        *(msgspec.structs.replace(own, settings={**own.settings, **each.settings}) for each in study.variant),
    ]
    wanted = max(_MIN_TOP_CLIENTS, _TOP_RATIO * workload.clients)
    holds_connections = not find_sharing(study.poolers).issuperset(workload.endpoints)
    if machine is not None and machine.free_connections is not None and holds_connections:
        wanted = min(wanted, machine.free_connections - SPARE_CONNECTIONS)
    if machine is not None and machine.has_pooled_sessions:
        # A client that gets no session waits for one, until the pooler ends it.
        wanted = min(wanted, workload.clients)
    # In session mode each client of a pooler needs a server connection of its own.
    poolers = (study.poolers.get(name) for name in workload.endpoints)
    sizes = [one.size for one in poolers if one is not None and one.mode is PoolMode.SESSION and one.size is not None]
    most = min(wanted, *sizes, *map(allowed_clients, servers))
    steps = _LOADS - 1
    return tuple(sorted({round(most ** (step / steps)) for step in range(_LOADS)}))


def with_scaling(study: Study, planned: Plan, machine: Machine | None = None) -> Study:
    """Add a sweep over clients of the workload that writes most; add none where it would have fewer than two loads.

    Args:
        study: Without a sweep.
        planned: Its plan.
        machine: What is known of a given server; None for pgdyno's own.
    """
    name = choose_swept_workload(planned)
    clients = () if name is None else choose_client_counts(study, planned.find_workload(name), machine)
    if len(clients) < 2:
        return study
    return msgspec.structs.replace(study, scaling=ScalingSpec(workload=name, clients=clients))


def make_client_sweep(
    study: Study, plan: Plan, *, scripts: Mapping[str, str], variant: VariantSpec | None = None
) -> Study:
    """Make the sweep as a complete study, which can be run again without the comparison.

    Args:
        study: The comparison's study, with a table `scaling`.
        plan: Plan of the comparison.
        scripts: Paths of the copies of its script files, by their names in the plan.
        variant: The winning variant; None for the server as the study specifies it.
    """
    asked, workload = study.scaling or ScalingSpec(), study.find_swept_workload()
    assert workload is not None  # noqa: S101 - the study was checked
    places = place_scripts(workload.weighted_scripts, scripts)
    base: tuple[VariantSpec, ...] = ()
    if variant is not None:
        own_places = place_scripts(variant.weighted_scripts, scripts)
        # A number of clients may be less than a number of load hosts.
        free = {"clients": None, "threads": None, "load_hosts": None}
        base = (msgspec.structs.replace(variant, name=variant.title, scripts=own_places, **free),)
    own = study.experiment
    trials = study.trials if study.server.kind is not ServerKind.GIVEN else _shorten(study.trials)
    return msgspec.structs.replace(
        study,
        question="",
        # Data of the user's own have no scale.
        data=study.data if study.data.is_own else msgspec.structs.replace(study.data, scale=plan.scale),
        workload=(msgspec.structs.replace(workload, scripts=places, clients=None),),
        trials=trials,
        variant=base,
        sweep=(SweepSpec(name="clients", levels=asked.clients),),
        scaling=None,
        experiment=ExperimentSpec(
            minutes=asked.minutes, detect=own.detect, confidence=own.confidence, design=asked.design
        ),
    )


def plan_scaling(study: Study, plan: Plan, machine: Machine) -> Plan | None:
    """Plan the sweep that follows a study, under the variant with which it takes longest, since any may win; None if none follows.

    Raises:
        SpecError: Its clients do not fit the settings of a variant, or its minutes are too few.
    """
    if study.scaling is None:
        return None
    variants = study.variant or (None,)
    return max((_plan_under(study, plan, machine, variant) for variant in variants), key=lambda one: one.predicted_s)


def _plan_under(study: Study, plan: Plan, machine: Machine, variant: VariantSpec | None) -> Plan:
    try:
        return plan_sweep(make_client_sweep(study, plan, scripts={}, variant=variant), plan, machine)
    except SpecError as error:
        if variant is not None:
            error.fact = f"scaling with clients, if {variant.title} wins: {error.fact}"
        raise


def plan_sweep(sweep: Study, followed: Plan, machine: Machine) -> Plan:
    """Plan a sweep from `make_client_sweep`, for which the comparison's data are already loaded.

    Raises:
        SpecError: As for `plan_scaling`.
    """
    scales = machine.loaded_scales | {followed.scale, *(variant.scale for variant in sweep.variant if variant.scale)}
    # `make_client_sweep` gives the winner as the only variant, by its title.
    base = sweep.variant[0].title if sweep.variant else ""
    major = machine.other_majors.get(base, machine.version_major)
    there = msgspec.structs.replace(machine, version_major=major, loaded_scales=scales, disk_card_s=0.0)
    return plan_study(sweep, there)


def _shorten(trials: TrialsSpec) -> TrialsSpec:
    """Return half as long trials: each number of clients has several, and the sweep is not to take longer than the rest."""
    duration_s, warm_up_s = max(1, int(trials.duration_s / 2)), int(trials.warm_up_s / 2)
    return msgspec.structs.replace(trials, duration=f"{duration_s}s", warm_up=f"{warm_up_s}s")

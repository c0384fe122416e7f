"""Read the knee of a load from a record's sweep over clients or over pool sizes: with so many sessions at once it has 90 % of its highest TPS.

This is a module of its own because it imports numpy, which takes long and which settings are derived without.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.sweep.statuses import LoadStatus
from pgdyno.analyse.sweep.workload import analyse_workload_sweep
from pgdyno.plan.experiment import Variant
from pgdyno.plan.types import PlannedWorkload
from pgdyno.record.types import StudyRecord
from pgdyno.spec.pooler import PRIMARY, PoolMode
from pgdyno.tune.types import MeasuredKnee
from pgdyno.units import format_cpus


def read_knee(record: StudyRecord, sweeps: Mapping[str, ClientSweep], *, name: str) -> MeasuredKnee | str:
    """Read the knee from the sweep over clients of a record, the largest of several workloads; or say why there is none.

    Args:
        record: The study that swept.
        sweeps: How TPS follows the number of clients, by workload.
        name: Name of the record.
    """
    direct = {
        workload: sweep for workload, sweep in sweeps.items() if record.plan.find_workload(workload).endpoint == PRIMARY
    }
    if not direct:
        return f"{name} has no sweep over clients" + (" that connect to the server itself" if sweeps else "")
    found = _find_largest(direct)
    if isinstance(found, str):
        return f"{name} found no knee ({found})"
    workload, knee = found
    points = direct[workload].points
    how = f"{_place(record, workload, name)}, {points[0].clients} to {points[-1].clients} clients"
    return msgspec.structs.replace(knee, cpu_count=record.usable_cpu_count, how=how)


def read_pool_knee(record: StudyRecord, analysis: StudyAnalysis, *, name: str) -> MeasuredKnee | str | None:
    """Read the knee from a record's sweep over the size of a pool in transaction mode, or say why it found none; None without a sweep.

    A pool larger than the number of clients has no more connections at work than there are clients, and counts as one of that size.
    """
    experiment, plan = record.plan.experiment, record.plan
    if experiment is None or len({_leave_out_endpoint(variant) for variant in experiment.variants}) > 1:
        return None
    sizes = {
        pool.name: pool.size for pool in plan.poolers if pool.size is not None and pool.mode is PoolMode.TRANSACTION
    }
    swept: dict[str, ClientSweep] = {}
    for load in plan.workloads:
        # However large the pool is, a schedule's TPS stay the same.
        if load.is_scheduled:
            continue
        level_of = functools.partial(_count_at_work, sizes, load)
        sweep = analyse_workload_sweep(analysis.list_trials(load.name), experiment, level_of=level_of)
        if sweep is not None:
            swept[load.name] = sweep
    if not swept:
        return None
    found = _find_largest(swept)
    if isinstance(found, str):
        return f"{name} swept pool sizes and found no knee ({found})"
    workload, knee = found
    points, clients = swept[workload].points, plan.find_workload(workload).clients
    how = f"{_place(record, workload, name)}, pools of {points[0].clients} to {points[-1].clients} connections for {clients} clients"
    return msgspec.structs.replace(knee, cpu_count=record.usable_cpu_count, how=how, is_of_pool=True)


def _count_at_work(sizes: Mapping[str, int], load: PlannedWorkload, variant: Variant) -> int | None:
    """Return how many connections of a pool may be at work for a load under a variant; None without such a pool."""
    size = sizes.get(variant.endpoint or load.endpoint)
    return None if size is None else min(size, load.clients)


def _leave_out_endpoint(variant: Variant) -> bytes:
    """Return what a variant is but for its endpoint, to be compared with others."""
    return msgspec.json.encode(msgspec.structs.replace(variant, name="", endpoint=None, levels={}))


def _place(record: StudyRecord, workload: str, name: str) -> str:
    cpus = record.usable_cpu_count
    return f"{workload} in {name} ({'a machine that was not seen' if cpus is None else format_cpus(cpus)})"


def _find_largest(sweeps: Mapping[str, ClientSweep]) -> tuple[str, MeasuredKnee] | str:
    """Return the workload with the largest knee, and that knee; or why no workload has one."""
    known = {workload: found for workload, sweep in sweeps.items() if (found := _find_knee(sweep)) is not None}
    if not known:
        return ", ".join(dict.fromkeys(sweep.knee.reason or "it is not settled" for sweep in sweeps.values()))
    workload, (clients, low, high) = max(known.items(), key=lambda one: one[1][0])
    is_beyond = sweeps[workload].knee.value is None
    return workload, MeasuredKnee(clients=clients, low=low, high=high, cpu_count=None, how="", is_beyond=is_beyond)


def _find_knee(sweep: ClientSweep) -> tuple[float, float | None, float | None] | None:
    """Return the knee with the ends of its interval; the largest load if TPS still grow there; None if neither is known."""
    knee, last = sweep.knee, sweep.points[-1]
    if knee.value is not None:
        return knee.value, knee.low, knee.high
    is_growing = len(sweep.points) > 1 and set(last.possible) <= {LoadStatus.LINEAR, LoadStatus.UNDER_USED}
    return (last.clients, last.clients, None) if is_growing else None

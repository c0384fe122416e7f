"""Project the highest TPS with more CPUs, memory, a faster disk, or more clients: ranges that were not measured.

The low end of each range is the measured TPS: more of a resource may not help, because the next limit may be just
above. The high end is the lowest of the changed bounds. So the range widens with the size of the change; no projection
goes beyond a factor of two, and the law does not reach beyond twice the largest number of clients.

A load is not projected if something without a bound limits it, or if there is only one trial.

Sources: Lazowska et al. 1984, Quantitative System Performance, 5.3, for upper bounds on the effect of changes to a
system; `models.predict_reads` for memory; `usl` for clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pgdyno.analyse.capacity.bounds import CARD_KEYS, HARDLY_USED
from pgdyno.analyse.capacity.types import Bound, BoundKind, BoundState, Capacity, Projection
from pgdyno.analyse.disk.demand import DiskLimits
from pgdyno.analyse.models.reads import PageClass, find_buffers, predict_reads
from pgdyno.analyse.prediction import list_account_pages
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.types import StudyRecord
from pgdyno.units import PAGE_BYTES

_TIMES = 2.0
# Twice the hardware times the intervals of a few trials; a wider range only shows that there are too few trials.
_WIDEST_RANGE = 5.0
_CPUS, _MEMORY, _DISK = "twice the CPUs", "twice the memory", "a disk twice as quick"
_READING = frozenset({BoundKind.READS, BoundKind.READ_BYTES})


def project_capacity(
    bounds: Sequence[Bound],
    state: BoundState,
    workload: WorkloadAnalysis,
    record: StudyRecord,
    *,
    absent: Mapping[str, str],
    sweep: ClientSweep | None,
) -> tuple[Projection, ...]:
    """Project the load to twice the CPUs, memory and disk, and to more clients if a sweep over them still grew.

    Args:
        bounds: Bounds of the load.
        state: State of the load relative to its bounds.
        workload: The load at one number of clients.
        record: Record of the study that it ran in.
        absent: Why a bound is absent, by its kind.
        sweep: Sweep over clients with the same load; None without one.
    """
    clients = _project_clients(sweep)
    of_clients = () if clients is None else (clients,)
    if record.host is None:
        # Twice of what nobody saw is not known either.
        return of_clients
    low_tps = workload.tps.low
    disk = {kind: _TIMES for kind in BoundKind if kind.is_of_disk}
    through = ", through the same instance" if any(one.kind.is_of_instance for one in bounds) else ""
    memory, how = _reads_with_memory(bounds, absent, workload, record)
    made = (
        _range(_CPUS, bounds, {BoundKind.CPU: _TIMES}, state, low_tps, how="CPU time of a transaction as now"),
        _absent(_MEMORY, how) if memory is None else _range(_MEMORY, bounds, memory, state, low_tps, how=how),
        _range(_DISK, bounds, disk, state, low_tps, how=f"twice as many flushes, I/Os and bytes a second{through}"),
    )
    return (*made, *of_clients)


def project_disk(capacity: Capacity, limits: DiskLimits, name: str) -> Projection:
    """Project the same load to another disk that has a card.

    Args:
        capacity: The capacity with the present disk.
        limits: Limits of the other disk; figures that its card lacks are not taken from the present disk. With a disk of
            its own, pg_wal stays there. No instance limits a local disk, nor one whose instance is not known.
        name: Name of the other disk in the projection.
    """
    # A burst of the other disk ends, too.
    lasting = () if limits.lasting is None else limits.lasting.entries
    entries = {entry.key: entry.estimate for entry in (*limits.entries, *lasting)}
    times: dict[BoundKind, float] = {}
    for bound in capacity.bounds:
        if limits.wal is not None and bound.kind in {BoundKind.FLUSHES, BoundKind.WAL}:
            continue
        if bound.kind.is_of_instance:
            lets = getattr(limits.instance, "iops" if bound.kind is BoundKind.INSTANCE_IOPS else "bytes_per_s", None)
            times[bound.kind] = lets / bound.limit.value if lets and bound.limit.value else math.inf
            continue
        other = entries.get(CARD_KEYS[bound.kind]) if bound.kind in CARD_KEYS else None
        if bound.kind.is_of_disk and (other is None or other.value is None or not bound.limit.value):
            return _absent(name, f"the other disk's card says nothing of {bound.kind.value}")
        if other is not None and bound.limit.value:
            times[bound.kind] = (other.high or other.value or 0.0) / bound.limit.value
    how = "what a transaction takes of the disk as now, and the other disk's card"
    return _range(name, capacity.bounds, times, capacity.standing, capacity.tps.low, how=how)


def _range(
    change: str,
    bounds: Sequence[Bound],
    times: Mapping[BoundKind, float],
    state: BoundState,
    low_tps: float | None,
    *,
    how: str,
) -> Projection:
    """Return the range from the measured TPS to the lowest of the bounds, some of them multiplied by `times`."""
    is_of_load = all(one.kind is BoundKind.LOAD_GENERATOR for one in bounds)
    if state in {BoundState.HELD, BoundState.UNKNOWN} or is_of_load:
        return _absent(change, "what holds the load has no bound: what more hardware brings is not known")
    if low_tps is None:
        return _absent(change, "one trial has no interval to begin from")
    if times and not any(one.kind in times for one in bounds):
        return _absent(change, "no bound of what it changes is known")
    highs = {one.kind: _multiply(one.tps.high, times.get(one.kind, 1.0)) for one in bounds if one.is_firm}
    binds = min(highs, key=lambda kind: highs[kind] or 0.0, default=None)
    high_tps = None if binds is None else highs[binds]
    if high_tps is None:
        return _absent(change, "a bound has no interval, or there is none")
    # What idle CPUs may still allow does not depend on the number of trials.
    idle_ratio = next((one.idle_ratio for one in bounds if one.kind is binds), 0.0)
    if high_tps > _WIDEST_RANGE * (1.0 + idle_ratio) * low_tps:
        return _absent(change, "trials are too few for a range that says something")
    unknown = (
        "" if any(one.kind.is_of_disk for one in bounds) else "; the disk, of which nothing is known, may bind before"
    )
    return Projection(
        change=change, low_tps=low_tps, high_tps=max(low_tps, high_tps), binds=binds, how=f"{how}{unknown}"
    )


def _multiply(high: float | None, factor: float) -> float | None:
    return None if high is None else high * factor


def _absent(change: str, reason: str) -> Projection:
    return Projection(change=change, low_tps=None, high_tps=None, binds=None, how="", reason=reason)


def _project_clients(sweep: ClientSweep | None) -> Projection | None:
    """Project to more clients as far as the law allows, if the curve still climbs at the largest load; otherwise None."""
    if sweep is None or sweep.usl is None or sweep.points_alone_reason is not None:
        return None
    usl, last = sweep.usl, sweep.points[-1]
    if usl.peak.value is not None and usl.peak.value <= last.clients:
        return None
    change = f"up to {usl.horizon_clients:,} clients"
    if last.tps.low is None:
        return _absent(change, "one trial has no interval to begin from")
    how = "the Universal Scalability Law through the loads that were tried"
    high_tps = max(last.tps.low, usl.most_tps.high or last.tps.low)
    return Projection(change=change, low_tps=last.tps.low, high_tps=high_tps, binds=None, how=how)


def _reads_with_memory(
    bounds: Sequence[Bound], absent: Mapping[str, str], workload: WorkloadAnalysis, record: StudyRecord
) -> tuple[dict[BoundKind, float] | None, str]:
    """Compute by what factor twice the memory raises the bounds of reading; None with a reason if it is unknown.

    The present reads give the present size of all caches; Che's approximation gives the reads with twice that size.
    """
    if absent.get(BoundKind.READ_BYTES.value) == HARDLY_USED:
        return {}, "hardly anything is read from the device: the data are cached already"
    read = next((bound.demand.value for bound in bounds if bound.kind is BoundKind.READ_BYTES), None)
    if read is None:
        return None, "what transactions read from the device is not known"
    classes = None if record.dataset is None else list_account_pages(record.dataset, workload.load)
    if classes is None:
        return None, "the pages that these transactions touch are not known"
    pages, most = read / PAGE_BYTES, sum(one.accesses_per_transaction for one in classes)
    # With a page in the caches, a transaction already reads less than all pages that it needs.
    if pages >= _reads(classes, 1.0):
        return None, f"a transaction reads {pages:.3g} pages and needs {most:g}: read-ahead, or something else reads"
    then = _reads(classes, _TIMES * find_buffers(classes, reads_per_transaction=pages))
    how = f"{pages:.2g} pages read in a transaction, then {then:.2g} by Che's approximation"
    return dict.fromkeys(_READING, math.inf if then == 0.0 else pages / then), how


def _reads(classes: Sequence[PageClass], buffers: float) -> float:
    return predict_reads(classes, buffers_count=buffers).reads_per_transaction

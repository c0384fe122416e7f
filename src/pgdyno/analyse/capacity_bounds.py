"""The TPS that each resource alone allows, from what a transaction takes of it and what there is of it.

Operational laws only: what was used over what was done is the demand of a transaction, and nothing is used beyond what
there is. That holds whatever the load, the order of service or the noise, as long as a transaction goes on taking what
it took; a load that changes its nature on the way (more contention, another hit ratio) moves the bound with it.

What others use of the CPUs meanwhile is not there. A disk does less of each kind when it does all at once: its bounds
are optimistic, each by itself.

Sources: Denning & Buzen 1978, "The operational analysis of queueing network models", doi:10.1145/356733.356735, for the
utilization law; Lazowska, Zahorjan, Graham & Sevcik 1984, Quantitative System Performance, 5.2, for asymptotic bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pgdyno.analyse.capacity import Bound, BoundKind
from pgdyno.analyse.disk_entries import EntryKey
from pgdyno.analyse.disk_join import DiskLimits, DiskUse, UseKind
from pgdyno.analyse.estimate import Estimate, divide_estimates, estimate_geometric_mean, exactly
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.record.types import HostFacts, TrialStatus

NO_CARD = "the disk has no card: what it can do is not known"
HARDLY_USED = "it is hardly used"
_NOT_SEEN = "the disk was not observed"
# Where others used more of the CPUs than this, a bound says so.
_OTHERS_RATIO = 0.1
_KINDS = {
    UseKind.WAL: (BoundKind.WAL, EntryKey.SEQUENTIAL_WRITE),
    UseKind.READS: (BoundKind.READS, EntryKey.RANDOM_READ),
    UseKind.READ_BYTES: (BoundKind.READ_BYTES, EntryKey.SEQUENTIAL_READ),
    UseKind.WRITES: (BoundKind.WRITES, EntryKey.RANDOM_WRITE),
    UseKind.WRITTEN_BYTES: (BoundKind.WRITTEN_BYTES, EntryKey.SEQUENTIAL_WRITE),
    UseKind.INSTANCE_IOPS: (BoundKind.INSTANCE_IOPS, None),
    UseKind.INSTANCE_BYTES: (BoundKind.INSTANCE_BYTES, None),
}
_DEMAND_UNITS = {"1/s": "count", "bytes/s": "bytes", "s/s": "s"}


class _Trial(NamedTuple):
    """A finished trial, and the transactions of a second over all of its load."""

    seen: TrialAnalysis
    rate_tps: float


def find_bounds(
    workload: WorkloadAnalysis, host: HostFacts, limits: DiskLimits | None
) -> tuple[tuple[Bound, ...], dict[str, str]]:
    """The bounds of a load, the lowest first, and why others are not there, by the kind's name.

    Args:
        workload: At one number of clients, over its trials.
        host: The machine it ran on.
        limits: Of the data's disk; None without a card.
    """
    trials = [_Trial(trial, rate) for trial in workload.trials if (rate := _rate_tps(trial)) is not None]
    if not trials:
        return (), {kind.value: "no trial is finished" for kind in BoundKind}
    clients, threads = workload.load.clients, workload.load.threads
    found = [
        _bound_cpus(trials, host),
        _bound_generator(trials, threads),
        _bound_flushes(trials, clients, limits),
        *(_bound_device(trials, use_kind, limits) for use_kind in _KINDS),
    ]
    bounds = [bound for _, bound in found if isinstance(bound, Bound)]
    absent = {kind.value: reason for kind, reason in found if isinstance(reason, str)}
    return tuple(sorted(bounds, key=lambda bound: bound.tps.value or 0.0)), absent


_Found = tuple[BoundKind, Bound | str]
"""A bound, or why there is none."""


def _rate_tps(trial: TrialAnalysis) -> float | None:
    start_s, end_s = trial.record.load_start_monotonic_s, trial.record.load_end_monotonic_s
    if trial.record.status is not TrialStatus.FINISHED or start_s is None or end_s is None or end_s <= start_s:
        return None
    return trial.transactions_count / (end_s - start_s) if trial.transactions_count else None


def _bound_cpus(trials: Sequence[_Trial], host: HostFacts) -> _Found:
    """Of the CPUs that the study may use; what it cannot have of them is charged to its transactions in proportion."""
    usable = host.usable_cpu_count
    taken, most_others = [], 0.0
    for trial, rate_tps in trials:
        busy, seen_count = trial.shares.get("cpu_busy_ratio"), trial.cpus_seen_count
        if busy is None or not seen_count:
            continue
        # Rounding of the kernel's ticks can make it a little less than nothing.
        others = max(0.0, trial.shares.get("cpu_others_ratio") or 0.0)
        own_count = max(0.0, busy - others) * seen_count
        # Others on CPUs that the study may not use take nothing from it.
        is_narrowed = usable < seen_count
        lost = 0.0 if is_narrowed else min(others + (trial.shares.get("cpu_steal_ratio") or 0.0), 0.99)
        most_others = max(most_others, 0.0 if is_narrowed else others)
        taken.append((own_count / (1.0 - lost), rate_tps))
    less = f", of which others used up to {most_others * 100:.0f} %" if most_others > _OTHERS_RATIO else ""
    limit = exactly(usable, unit="s/s")
    return _bound(BoundKind.CPU, taken, limit, how=f"{usable:g} CPUs{less}", unseen="nobody watched the CPUs")


def _bound_generator(trials: Sequence[_Trial], threads: int) -> _Found:
    """Of pgbench's threads, as its busiest one stands: clients are dealt out evenly."""
    ratios = [(trial.shares.get("load_generator_thread_ratio"), rate_tps) for trial, rate_tps in trials]
    taken = [(ratio * threads, rate_tps) for ratio, rate_tps in ratios if ratio is not None]
    how = f"pgbench with {threads} threads" if threads > 1 else "pgbench with one thread"
    limit = exactly(float(threads), unit="s/s")
    return _bound(BoundKind.LOAD_GENERATOR, taken, limit, how=how, unseen="nobody watched pgbench")


def _bound_flushes(trials: Sequence[_Trial], clients: int, limits: DiskLimits | None) -> _Found:
    """One client waits for a flush in each transaction, more share them in two halves. Source: `models.ceiling_tps`."""
    uses = _list_uses(trials, UseKind.FLUSHES)
    if not uses:
        return BoundKind.FLUSHES, NO_CARD if limits is None else "no commit waits for a flush of its own"
    each = 1.0 if clients == 1 else 2.0 / clients
    limit = _limit(uses[0][0], EntryKey.FLUSHES, limits, per=each)
    demand = exactly(each, unit="count")
    tps = divide_estimates(limit, demand, unit="tps")
    reached = estimate_geometric_mean([use.used for use, _ in uses], unit="tps")
    bound = Bound(
        kind=BoundKind.FLUSHES,
        tps=tps,
        demand=demand,
        limit=limit,
        used=divide_estimates(reached, tps, unit="ratio"),
        how=uses[0][0].how,
    )
    return BoundKind.FLUSHES, bound


def _bound_device(trials: Sequence[_Trial], use_kind: UseKind, limits: DiskLimits | None) -> _Found:
    kind, key = _KINDS[use_kind]
    uses = _list_uses(trials, use_kind)
    if uses:
        taken = [(use.used, rate_tps) for use, rate_tps in uses]
        return _bound(kind, taken, _limit(uses[0][0], key, limits), how=uses[0][0].how, unseen=_NOT_SEEN)
    if key is None:
        return kind, "no instance is declared that limits its volumes"
    if limits is None:
        return kind, NO_CARD
    return kind, _NOT_SEEN if _is_measured(key, limits) else "the disk's card does not have it"


def _is_measured(key: EntryKey, limits: DiskLimits) -> bool:
    return any(entry.key is key for entry in limits.entries)


def _list_uses(trials: Sequence[_Trial], kind: UseKind) -> list[tuple[DiskUse, float]]:
    found = [(None if trial.disk is None else trial.disk.find(kind), rate_tps) for trial, rate_tps in trials]
    return [(use, rate_tps) for use, rate_tps in found if use is not None]


def _limit(use: DiskUse, key: EntryKey | None, limits: DiskLimits | None, *, per: float = 1.0) -> Estimate:
    """What lasts of a limit: as declared, or as measured with its interval. The use's own figure is `per` transaction."""
    unit = use.unit if use.unit in _DEMAND_UNITS else "1/s"
    if use.lasts is not None:
        return exactly(use.lasts * per, unit=unit)
    entry = next((entry for entry in (() if limits is None else limits.entries) if entry.key is key), None)
    if entry is None:
        return exactly(use.limit * per, unit=unit)
    reason = entry.estimate.reason if entry.estimate.low is not None else "the disk's card has that from one run"
    return msgspec.structs.replace(entry.estimate, reason=reason)


def _bound(kind: BoundKind, taken: Sequence[tuple[float, float]], limit: Estimate, *, how: str, unseen: str) -> _Found:
    """From what each trial took in a second, and its transactions in a second."""
    if not taken:
        return kind, unseen
    if not all(amount for amount, _ in taken):
        return kind, HARDLY_USED
    demands = [amount / rate_tps for amount, rate_tps in taken]
    demand = estimate_geometric_mean(demands, unit=_DEMAND_UNITS[limit.unit])
    amount = estimate_geometric_mean([amount for amount, _ in taken], unit=limit.unit)
    bound = Bound(
        kind=kind,
        tps=divide_estimates(limit, demand, unit="tps"),
        demand=demand,
        limit=limit,
        used=divide_estimates(amount, limit, unit="ratio"),
        how=how,
    )
    return kind, bound

"""Estimate the TPS that each resource alone allows: its capacity over the demand of a transaction.

These are operational laws only: what was used over what was done is the demand of a transaction, and no more can be
used than the capacity. They hold for any load, order of service or noise, as long as a transaction's demand stays the
same; if a load changes its nature on the way (more contention, another hit ratio), the bound moves. One such change is
part of the bound of the CPUs: half-idle CPUs take more time for the same work.

A bound is the most that could be reached, so the whole capacity of a resource counts. Other programs yield CPUs to a
load that asks for more; only stolen CPU time is gone. A disk does less of each kind of work if it does all kinds at
once, so each of its bounds is optimistic.

Sources: Denning & Buzen 1978, "The operational analysis of queueing network models", doi:10.1145/356733.356735, for the
utilization law; Lazowska, Zahorjan, Graham & Sevcik 1984, Quantitative System Performance, 5.2, for asymptotic bounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.capacity.types import Bound, BoundKind
from pgdyno.analyse.capacity.usage import (
    COUNTED_IN_ROUNDS,
    FinishedTrial,
    Usage,
    choose_uses,
    count_cpus_in_rounds,
    count_in_rounds,
    estimate_uses,
    watch_cpus,
)
from pgdyno.analyse.disk.commits import delays_flushes
from pgdyno.analyse.disk.demand import DiskLimits, DiskUse, UseKind
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.analyse.estimate import Estimate, divide_estimates, exact_estimate, scale_estimate
from pgdyno.analyse.types import OTHERS_RATIO, WorkloadAnalysis
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.types import UNSEEN_MACHINE, TrialStatus
from pgdyno.units import format_cpus

NO_CARD = "the disk has no card"
NO_WAL_CARD = "the disk of pg_wal has no card"
HARDLY_USED = "it is hardly used"
_NOT_SEEN = "the disk was not observed"
_DEVICE = {
    UseKind.WAL: (BoundKind.WAL, DiskFigureKey.SEQUENTIAL_WRITE),
    UseKind.READS: (BoundKind.READS, DiskFigureKey.RANDOM_READ),
    UseKind.READ_BYTES: (BoundKind.READ_BYTES, DiskFigureKey.SEQUENTIAL_READ),
    UseKind.WRITES: (BoundKind.WRITES, DiskFigureKey.RANDOM_WRITE),
    UseKind.WRITTEN_BYTES: (BoundKind.WRITTEN_BYTES, DiskFigureKey.SEQUENTIAL_WRITE),
    UseKind.INSTANCE_IOPS: (BoundKind.INSTANCE_IOPS, None),
    UseKind.INSTANCE_BYTES: (BoundKind.INSTANCE_BYTES, None),
}
CARD_KEYS = {BoundKind.FLUSHES: DiskFigureKey.FLUSHES} | {
    kind: key for kind, key in _DEVICE.values() if key is not None
}
"""The figure of a disk card that each bound rests on."""
_DEMAND_UNITS = {"1/s": "count", "bytes/s": "bytes", "s/s": "s"}


def find_bounds(
    workload: WorkloadAnalysis, cpu_count: float | None, limits: DiskLimits | None
) -> tuple[tuple[Bound, ...], dict[str, str]]:
    """Find the bounds of a load, the lowest first, and the reasons why others are absent, by the kind's name.

    Args:
        workload: The load at one number of clients, over its trials.
        cpu_count: CPUs that the server may use; None if nobody saw its machine.
        limits: Limits of the disk that holds the data; None without a card.
    """
    # TPS of the steady part, with means over the whole load: the ends of a load make bounds slightly too high.
    trials = [
        FinishedTrial(trial, trial.tps)
        for trial in workload.trials
        if trial.record.status is TrialStatus.FINISHED and trial.tps
    ]
    if not trials:
        return (), {kind.value: "no trial is finished" for kind in BoundKind if not kind.is_of_instance}
    found = [
        _bound_cpus(trials, cpu_count),
        _bound_generator(trials, workload.load.threads),
        _bound_flushes(trials, workload.load, limits),
        *(_bound_device(trials, use_kind, limits) for use_kind in _DEVICE),
    ]
    bounds = [bound for _, bound in found if isinstance(bound, Bound)]
    # An instance without limits has no missing bound.
    absent = {kind.value: reason for kind, reason in found if isinstance(reason, str) and not kind.is_of_instance}
    return tuple(sorted(bounds, key=lambda bound: bound.tps.value or 0.0)), absent


_Found = tuple[BoundKind, Bound | str]
"""A bound, or the reason why there is none."""


def _bound_cpus(trials: Sequence[FinishedTrial], usable: float | None) -> _Found:
    """Bound the load by the CPUs that the study may use, minus stolen time."""
    if usable is None:
        return BoundKind.CPU, UNSEEN_MACHINE
    watched = [seen for trial in trials if (seen := watch_cpus(trial, usable)) is not None]
    is_narrowed = any(usable < seen.cpus for seen in watched)
    is_shared = any(seen.others_ratio is None for seen in watched)
    most_others = max((seen.others_ratio or 0.0 for seen in watched), default=0.0)
    beside, how = 0.0 if most_others <= OTHERS_RATIO else most_others, format_cpus(usable)
    if is_narrowed:
        how = f"{how} of the machine's"
    elif is_shared:
        how = f"{how}, including an unknown share for other programs"
    elif beside:
        how = f"{how}, of which others used up to {beside * 100:.0f} %"
    if any("cpu_standbys_ratio" in trial.shares for trial, _ in trials):
        how = f"{how}; standbys' use is counted with the server's"
    # Of a round nobody knows what others used.
    rounds = [] if is_narrowed or beside else count_cpus_in_rounds(trials, watched)
    taken, which = choose_uses(watched, rounds)
    limit, unseen = exact_estimate(usable, unit="s/s"), "the CPUs were not sampled"
    kind, bound = _bound_by_usage(
        BoundKind.CPU, [one.usage for one in taken], limit, how=f"{how}{which}", unseen=unseen
    )
    if isinstance(bound, Bound):
        idle_ratio = statistics.fmean(one.idle_ratio for one in taken)
        bound = msgspec.structs.replace(
            bound,
            tps=_allow_for_idle_cpus(bound.tps, idle_ratio),
            others_ratio=None if is_narrowed or is_shared else beside,
            idle_ratio=idle_ratio,
        )
    return kind, bound


def _allow_for_idle_cpus(tps: Estimate, idle_ratio: float) -> Estimate:
    """Raise the upper end of the CPU bound by the idle share of the CPUs, because full CPUs work more efficiently.

    A CPU that falls idle and is woken for each transaction spends time on that, its caches are cold, and flushes are
    not shared. Source: benchmarks/capacity.py on six sweeps, docs/how-we-know.md: at 36 % of the CPUs a transaction
    took 1.6 times the CPU time that it took when they were full, at 60 % 1.4 times, at 80 % 1.1 times.
    """
    return tps if tps.high is None else msgspec.structs.replace(tps, high=tps.high * (1.0 + idle_ratio))


def _bound_generator(trials: Sequence[FinishedTrial], threads: int) -> _Found:
    """Bound the load by pgbench's threads, from its busiest one, because clients are distributed evenly."""
    ratios = [(trial.seen.shares.get("load_generator_thread_ratio"), trial) for trial in trials]
    taken = [trial.use(ratio * threads) for ratio, trial in ratios if ratio is not None]
    how = f"pgbench with {threads} threads" if threads > 1 else "pgbench with one thread"
    limit = exact_estimate(float(threads), unit="s/s")
    return _bound_by_usage(BoundKind.LOAD_GENERATOR, taken, limit, how=how, unseen="pgbench was not sampled")


def _bound_flushes(trials: Sequence[FinishedTrial], load: PlannedWorkload, limits: DiskLimits | None) -> _Found:
    """Bound the load by flushes: one writing client waits for one per commit, more share them. Source: `models.ceiling_tps`."""
    uses = _list_uses(trials, UseKind.FLUSHES)
    if not uses:
        is_delayed = any(delays_flushes(trial.seen.record, load) for trial in trials)
        unknown = (
            "commit_delay lets flushes wait for commits"
            if is_delayed
            else "no commit is known to wait for a flush of its own"
        )
        return BoundKind.FLUSHES, _find_missing_card(limits) or unknown
    each = 1.0 if load.writing_clients == 1 else 2.0 / load.writing_clients
    limit = _limit(uses[0][0], CARD_KEYS[BoundKind.FLUSHES], limits and limits.of_wal, per=each)
    writing_ratio = statistics.fmean(use.used / trial.rate_tps for use, trial in uses)
    demand = exact_estimate(each * writing_ratio, unit="count")
    tps = divide_estimates(limit, demand, unit="tps")
    rounds = [trial.use(trial.rate_tps) for trial in trials if trial.is_of_round]
    taken, which = choose_uses([trial.use(trial.rate_tps) for _, trial in uses], rounds)
    reached = estimate_uses([one.amount for one in taken], taken, unit="tps")
    bound = Bound(
        kind=BoundKind.FLUSHES,
        tps=tps,
        demand=demand,
        limit=limit,
        used=divide_estimates(reached, tps, unit="ratio"),
        how=f"{uses[0][0].how}{which}",
    )
    return BoundKind.FLUSHES, bound


def _bound_device(trials: Sequence[FinishedTrial], use_kind: UseKind, limits: DiskLimits | None) -> _Found:
    kind, key = _DEVICE[use_kind]
    uses = _list_uses(trials, use_kind)
    if use_kind is UseKind.WAL and limits is not None:
        if not uses and (missing := _find_missing_card(limits)) is not None:
            return kind, missing
        limits = limits.of_wal
    if uses:
        counted = COUNTED_IN_ROUNDS.get(use_kind)
        rounds = [] if counted is None else count_in_rounds(trials, counted)
        taken, which = choose_uses([trial.use(use.used) for use, trial in uses], rounds)
        limit, how = _limit(uses[0][0], key, limits), f"{uses[0][0].how}{which}"
        return _bound_by_usage(kind, taken, limit, how=how, unseen=_NOT_SEEN)
    if limits is None:
        return kind, NO_CARD
    is_measured = any(entry.key is key for entry in limits.entries)
    return kind, _NOT_SEEN if is_measured else "the disk's card does not have it"


def _find_missing_card(limits: DiskLimits | None) -> str | None:
    """Return why nothing is known of the disk of pg_wal; None if it has a card."""
    if limits is None:
        return NO_CARD
    return None if limits.wal is None or limits.wal.entries else NO_WAL_CARD


def _list_uses(trials: Sequence[FinishedTrial], kind: UseKind) -> list[tuple[DiskUse, FinishedTrial]]:
    found = [(None if trial.seen.disk is None else trial.seen.disk.find(kind), trial) for trial in trials]
    return [(use, trial) for use, trial in found if use is not None]


def _limit(use: DiskUse, key: DiskFigureKey | None, limits: DiskLimits | None, *, per: float = 1.0) -> Estimate:
    """Return the sustained part of a limit: declared, or measured with its interval. The use's own figure is `per` transaction."""
    unit = use.unit if use.unit in _DEMAND_UNITS else "1/s"
    if use.lasts is not None:
        return exact_estimate(use.lasts * per, unit=unit)
    entry = next((entry for entry in (() if limits is None else limits.entries) if entry.key is key), None)
    if entry is None:
        return exact_estimate(use.limit * per, unit=unit)
    reason = entry.estimate.reason if entry.estimate.low is not None else "the disk's card has that from one run"
    return msgspec.structs.replace(entry.estimate, reason=reason)


def _bound_by_usage(kind: BoundKind, taken: Sequence[Usage], limit: Estimate, *, how: str, unseen: str) -> _Found:
    """Bound the load by what each trial used; what was not left to a trial is charged to its transactions in proportion."""
    if not taken:
        return kind, unseen
    if not all(one.amount for one in taken):
        return kind, HARDLY_USED
    unit = _DEMAND_UNITS[limit.unit]
    charged = estimate_uses([one.amount / one.left_ratio / one.rate_tps for one in taken], taken, unit=unit)
    amount = estimate_uses([one.amount / one.left_ratio for one in taken], taken, unit=limit.unit)
    left = estimate_uses([one.left_ratio for one in taken], taken, unit="ratio")
    bound = Bound(
        kind=kind,
        # The limit has trials of its own.
        tps=msgspec.structs.replace(divide_estimates(limit, charged, unit="tps"), n=charged.n),
        demand=estimate_uses([one.amount / one.rate_tps for one in taken], taken, unit=unit),
        limit=scale_estimate(limit, left.value or 1.0),
        used=divide_estimates(amount, limit, unit="ratio"),
        how=how,
    )
    return kind, bound

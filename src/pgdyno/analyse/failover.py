"""Measure how long the service was away in a failover, where that time went, and which confirmed transactions were lost.

The prober's writes give the time: from the last that was confirmed before the primary ended to the first that was confirmed
afterwards. pgbench's own log gives it once more, with the start of another pgbench in it. The standby's log divides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.episodes.halts import find_halts
from pgdyno.analyse.estimate import Estimate, estimate_mean_of_trials, estimate_over_trials, keep_above_0
from pgdyno.record.failover import FailoverRecord, Probes
from pgdyno.record.serverlog import AnyLogEvent
from pgdyno.record.trial_data import FailoverData, TrialData
from pgdyno.units import sum_if_known

# Source: StartupProcess and postmaster of PostgreSQL 15 to 18: xlogrecovery.c CheckForStandbyTrigger and
# postmaster.c process_pm_child_exit; with "read-only" before "connections" the server is still a standby.
_REQUESTED = "received promote request"
_REPLAYED = "redo done at"
_READY = "database system is ready to accept connections"


class FailoverFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one failover showed. Times are seconds; None where an instant was not seen."""

    standby: str
    """The standby that took over."""
    outage_s: float | None
    """From the prober's last confirmed write before the primary ended to its first one afterwards; None if a halt met it, too."""
    load_outage_s: float | None
    """From the last transaction of the load before to the first one afterwards."""
    noticed_s: float | None
    """From the end of the primary to the prober's first error."""
    ending_s: float
    """From the instant at which the primary was killed, or told to stop, until it was gone."""
    replay_s: float | None
    """From the request to promote until all WAL was replayed."""
    promotion_s: float | None
    """From the request to promote until the server took writes, by its log."""
    first_write_s: float | None
    """From then on until the prober's first confirmed write."""
    unreplayed_bytes: int
    """WAL that the standby had flushed and not replayed when it was asked."""
    confirmed_probes: int
    lost_probes: int
    """Of the prober's confirmed writes, how many the new primary does not have."""
    lost_transactions: int | None
    """The least number of the load's confirmed transactions that the new primary does not have; None if they leave no rows to count.

    Transactions that were committed and not yet confirmed may hide as many more as there are clients.
    """
    after_tps: float | None
    """TPS of the load on the new primary, as pgbench printed it."""


class FailoverSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The failovers of several trials together."""

    standbys: tuple[str, ...]
    seconds: dict[str, Estimate]
    """Means over trials by name, such as `outage_s`, with Student's interval; of times without service, means of logarithms."""
    longest_s: float | None
    """The longest time without service."""
    failovers: int
    confirmed_probes: int
    lost_probes: int
    lost_transactions: int | None
    """Of the failovers in which they were counted; None if they were counted in none."""
    counted_failovers: int
    """In how many of them lost transactions were counted."""
    losing_failovers: int
    """How many of them lost a confirmed write or transaction."""


PARTS = ("noticed_s", "ending_s", "replay_s", "promotion_s", "first_write_s")
"""Where the time without service goes; they may overlap."""
RESOLUTIONS_S = {"replay_s": 0.002, "promotion_s": 0.002, "first_write_s": 0.001}
"""Steps of the parts that the server's log bounds, at both ends or at one: it has milliseconds."""
OUTAGE_METRICS = ("outage_s", "load_outage_s", "promotion_s")
"""Seconds of a failover that are compared: without service by the prober and by the load, and of the promotion."""


def measure_failover(data: TrialData) -> FailoverFigures | None:
    """Measure the failover of a trial; None if it had none."""
    if data.failover is None:
        return None
    seen, steps = data.failover, data.failover.steps
    last_s, first_s, error_s = _find_outage(seen.probes, steps.told_s)
    # The prober ends when it is halted; of a whole machine that stood still, only the samples tell.
    is_halted = last_s is not None and first_s is not None and _meets_halt(data, last_s, first_s)
    log = _find_instants(seen.log, steps)
    requested_s, replayed_s, ready_s = (log.get(text) for text in (_REQUESTED, _REPLAYED, _READY))
    return FailoverFigures(
        standby=steps.standby,
        outage_s=None if is_halted else _between(last_s, first_s),
        load_outage_s=None if is_halted else _find_load_outage_s(data, seen),
        noticed_s=_between(steps.told_s, error_s),
        ending_s=steps.gone_s - steps.told_s,
        replay_s=_between(requested_s, replayed_s),
        promotion_s=_between(requested_s, ready_s),
        first_write_s=_between(ready_s, first_s),
        unreplayed_bytes=steps.unreplayed_bytes,
        confirmed_probes=int(seen.probes.is_acknowledged.sum()),
        lost_probes=_count_lost_probes(seen.probes, steps.missing_probes),
        lost_transactions=_count_lost_transactions(data, seen),
        after_tps=seen.after.tps,
    )


def summarise_failovers(of_rounds: Sequence[tuple[FailoverFigures, int]]) -> FailoverSummary:
    """Summarise failovers of one kind: the trial is the unit of each estimate, or the round where it has several of them.

    Args:
        of_rounds: What each of them showed, with its round.
    """
    seen = [one for one, _ in of_rounds]
    seconds: dict[str, Estimate] = {}
    for name in (*OUTAGE_METRICS[:2], *PARTS):
        if not (seen_s := _list_seconds(of_rounds, name)):
            continue
        values, rounds = [value for value, _ in seen_s], [number for _, number in seen_s]
        if name in PARTS:
            # A part may take less than the log's millisecond: it has no logarithm.
            step_s = RESOLUTIONS_S.get(name, 0.0)
            mean = estimate_mean_of_trials(values, unit="s", rounds=rounds, resolution=step_s)
            seconds[name] = keep_above_0(mean)
        else:
            seconds[name] = estimate_over_trials(values, unit="s", rounds=rounds)
    counted = [one.lost_transactions for one in seen if one.lost_transactions is not None]
    return FailoverSummary(
        standbys=tuple(dict.fromkeys(one.standby for one in seen)),
        seconds=seconds,
        longest_s=max((one.outage_s for one in seen if one.outage_s is not None), default=None),
        failovers=len(seen),
        confirmed_probes=sum(one.confirmed_probes for one in seen),
        lost_probes=sum(one.lost_probes for one in seen),
        lost_transactions=sum(counted) if counted else None,
        counted_failovers=len(counted),
        losing_failovers=sum(bool(one.lost_probes or one.lost_transactions) for one in seen),
    )


def _list_seconds(of_rounds: Sequence[tuple[FailoverFigures, int]], name: str) -> list[tuple[float, int]]:
    return [
        (value, number)
        for one, number in of_rounds
        if (value := getattr(one, name)) is not None and (value > 0 or name in PARTS)
    ]


def list_metrics(figures: FailoverFigures | None) -> Mapping[str, float]:
    """Return the seconds of a failover that are compared, by metric."""
    if figures is None:
        return {}
    return {name: value for name in OUTAGE_METRICS if (value := getattr(figures, name)) is not None}


def _find_outage(probes: Probes, told_s: float) -> tuple[float | None, float | None, float | None]:
    """Return when the last write before the end was confirmed, the first one after it, and when the first one failed."""
    failed = np.flatnonzero((probes.is_acknowledged == 0) & (probes.ended_s >= told_s))
    if not len(failed):
        return None, None, None
    confirmed = np.flatnonzero(probes.is_acknowledged)
    before, after = confirmed[confirmed < failed[0]], confirmed[confirmed > failed[0]]
    return (
        float(probes.ended_s[before[-1]]) if len(before) else None,
        float(probes.ended_s[after[0]]) if len(after) else None,
        float(probes.ended_s[failed[0]]),
    )


def _meets_halt(data: TrialData, from_s: float, to_s: float) -> bool:
    return any(halt.from_s < to_s and halt.to_s > from_s for halt in find_halts(data))


def _find_load_outage_s(data: TrialData, seen: FailoverData) -> float | None:
    if data.transactions is None:
        return None
    last_us, first_us = data.transactions.last_stamp_us, seen.after_transactions.first_stamp_us
    if last_us is None or first_us is None:
        return None
    # Each pgbench counts from the time of day that it read when it began.
    last_s, first_s = last_us / 1e6 - data.record.clock_offset_s, first_us / 1e6 - seen.steps.clock_offset_s
    return _between(last_s, first_s)


def _find_instants(log: Sequence[AnyLogEvent], steps: FailoverRecord) -> dict[str, float]:
    """Return when each message of a promotion was logged first."""
    found: dict[str, float] = {}
    for event in log:
        for text in (_REQUESTED, _REPLAYED, _READY):
            if event.origin is not None and event.message.startswith(text) and event.origin.monotonic_s >= steps.told_s:
                found.setdefault(text, event.origin.monotonic_s)
    return found


def _between(from_s: float | None, to_s: float | None) -> float | None:
    return None if from_s is None or to_s is None else max(0.0, to_s - from_s)


def _count_lost_probes(probes: Probes, missing: Sequence[int]) -> int:
    confirmed = probes.number[probes.is_acknowledged == 1]
    return int(np.isin(confirmed, np.array(missing, dtype=float)).sum())


def _count_lost_transactions(data: TrialData, seen: FailoverData) -> int | None:
    before, after = seen.steps.history_before, seen.steps.history_after
    confirmed = sum_if_known([None if one is None else one.transaction_count for one in (data.pgbench, seen.after)])
    if before is None or after is None or confirmed is None:
        return None
    return max(0, confirmed - (after - before))

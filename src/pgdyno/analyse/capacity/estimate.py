"""Estimate the capacity of a machine for a load: from its bounds, a sweep over clients, and the time of its transactions.

Measurements take precedence over computed bounds: if a sweep shows the highest TPS, that is the ceiling, and the bounds
explain it. Without a sweep the ceiling is the lowest bound, which the load may never reach. If a sweep stops far below
all bounds, something without a bound limits the load (locks, latencies, the network), and the gain of more hardware is
unknown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pgdyno.analyse.capacity.bounds import NO_CARD, find_bounds
from pgdyno.analyse.capacity.clients import advise_clients
from pgdyno.analyse.capacity.projection import project_capacity
from pgdyno.analyse.capacity.types import Bound, BoundKind, BoundState, Capacity, NextLimit
from pgdyno.analyse.disk.demand import DiskLimits
from pgdyno.analyse.estimate import (
    Estimate,
    absent_estimate,
    divide_estimates,
    estimate_mean_of_trials,
    keep_above_0,
    map_estimate,
)
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.record.types import StudyRecord

# Our reasoning: from 85 % use on, most of the time that goes to a resource is queueing, and backends that come and go
# never use all of it.
_NEAR_RATIO = 0.85
# Our reasoning: if more clients add nothing, a resource in such use is a likelier limit than one that was not observed.
_NEAR_AT_PEAK_RATIO = 0.7
# From this use on, more clients can add nothing.
_FULL_RATIO = 0.95
# A share of nearly all of the time would gain nearly everything: no sampled interval is that certain.
_MAX_SHARE = 0.99
_RESOURCES = {
    BoundKind.CPU: Resource.CPU,
    BoundKind.LOAD_GENERATOR: Resource.LOAD_GENERATOR,
    BoundKind.FLUSHES: Resource.WAL_FLUSH,
    BoundKind.READS: Resource.DATA_READ,
    BoundKind.READ_BYTES: Resource.DATA_READ,
    BoundKind.WRITES: Resource.DATA_WRITE,
    BoundKind.WRITTEN_BYTES: Resource.DATA_WRITE,
}
# Resources that may limit a load and have no bound.
_UNBOUND = (
    *(Resource.LOCK, Resource.LIGHTWEIGHT_LOCK, Resource.WAL_LOCK, Resource.NETWORK, Resource.CLIENT),
    *(Resource.WAL_FLUSH, Resource.DATA_READ),
)


class CapacityLoad(NamedTuple):
    """A load whose capacity is estimated."""

    name: str
    workload: WorkloadAnalysis
    """The analysis that the bounds are computed from; of a sweep, that of the best load."""
    record: StudyRecord
    """The record that holds `workload`."""
    sweep: ClientSweep | None
    run: Estimate
    """TPS of the load in the study itself."""


def estimate_capacity(load: CapacityLoad, limits: DiskLimits | None) -> Capacity:
    """Estimate the capacity of a machine for one load.

    Args:
        load: The load, which the bounds are computed from.
        limits: Limits of the disk that holds the data; None without a card.
    """
    bounds, absent = find_bounds(load.workload, load.record.usable_cpu_count, limits)
    peak = _find_peak(load.sweep)
    state = _find_state(bounds, load.sweep)
    lowest = _lowest_tps(bounds)
    ceiling = lowest if peak.value is None else peak
    firm = next((bound for bound in bounds if bound.is_firm), None)
    following = _find_next(bounds, state, peak, load.workload, has_card=limits is not None)
    nearness = (
        divide_estimates(load.run, ceiling, unit="ratio") if peak.value is not None or firm is None else firm.used
    )
    is_full = firm is not None and (firm.used.value or 0.0) >= _FULL_RATIO
    return Capacity(
        workload=load.name,
        clients=load.workload.load.clients,
        tps=load.run,
        peak=peak,
        ceiling=ceiling,
        nearness=nearness,
        standing=state,
        bounds=bounds,
        candidates=_find_candidates(bounds),
        next=following if isinstance(following, NextLimit) else None,
        advice=advise_clients(load.workload, load.sweep, bounds=bounds, lowest=lowest, is_full=is_full),
        projections=project_capacity(bounds, state, load.workload, load.record, absent=absent, sweep=load.sweep),
        absent=absent if isinstance(following, NextLimit) else {**absent, "next": following},
    )


def _find_candidates(bounds: Sequence[Bound]) -> tuple[BoundKind, ...]:
    """Find the bounds that hold for any number of clients and may be the lowest of these, by their intervals."""
    firm = [bound for bound in bounds if bound.is_firm]
    least = min((math.inf if bound.tps.high is None else bound.tps.high for bound in firm), default=math.inf)
    return tuple(bound.kind for bound in firm if (bound.tps.low or 0.0) <= least)


def _find_peak(sweep: ClientSweep | None) -> Estimate:
    """Find the highest TPS of a sweep: from the law if its fit is good, otherwise from the best load."""
    if sweep is None or sweep.peak.value is None:
        reason = "no sweep over clients was made" if sweep is None else sweep.peak.reason
        return Estimate(value=None, low=None, high=None, n=0, unit="tps", reason=reason)
    if sweep.usl is not None and sweep.points_alone_reason is None:
        return sweep.usl.most_tps
    best = max(sweep.points, key=lambda point: point.to_best.value or 0.0).tps
    # The best of several similar loads is partly luck: the interval covers all loads that may be the best.
    alike = [point.tps for point in sweep.points if point.to_best.high is None or point.to_best.high >= 1.0]
    low = min((one.low for one in alike if one.low is not None), default=None)
    high = max((one.high for one in alike if one.high is not None), default=None)
    if sweep.peak.high is None:
        return msgspec.structs.replace(best, low=low, high=None, reason=sweep.peak.reason)
    return msgspec.structs.replace(best, low=low, high=high)


def _lowest_tps(bounds: Sequence[Bound]) -> Estimate:
    """Find the lowest of the bounds that hold for any number of clients, with an interval that covers all candidates."""
    firm = [bound for bound in bounds if bound.is_firm]
    if not firm:
        return absent_estimate("no bound is known that holds", unit="tps")
    kinds = _find_candidates(bounds)
    candidates = [bound.tps for bound in firm if bound.kind in kinds]
    lows = [one.low for one in candidates if one.low is not None]
    highs = [one.high for one in candidates if one.high is not None]
    if len(lows) < len(candidates) or len(highs) < len(candidates):
        reason = next((one.reason for one in candidates if one.low is None and one.reason), "a bound has no interval")
        return msgspec.structs.replace(firm[0].tps, low=None, high=None, reason=reason)
    return msgspec.structs.replace(firm[0].tps, low=min(lows), high=min(highs))


def _find_state(bounds: Sequence[Bound], sweep: ClientSweep | None) -> BoundState:
    binding = next((bound for bound in bounds if not bound.is_refuted), None)
    if binding is None:
        return BoundState.UNKNOWN
    used = binding.used.value or 0.0
    # CPUs that other programs use, too, are full before the load has used them up.
    is_alone = all(bound.others_ratio == 0.0 for bound in bounds)
    is_saturated = is_alone and sweep is not None and sweep.peak.high is not None
    if used >= (_NEAR_AT_PEAK_RATIO if is_saturated else _NEAR_RATIO):
        return BoundState.AT_BOUND
    return BoundState.HELD if is_saturated else BoundState.BELOW


def _find_next(
    bounds: Sequence[Bound], state: BoundState, peak: Estimate, workload: WorkloadAnalysis, *, has_card: bool
) -> NextLimit | str:
    """Find the next limit after the present one, or the reason why it is unknown."""
    left = [bound for bound in bounds if not bound.is_refuted]
    if state is BoundState.HELD:
        shares = {one: _share(workload, one).value or 0.0 for one in _UNBOUND}
        holder = max(shares, key=lambda one: shares[one])
        name = f"what holds it now, perhaps {holder.value}," if shares[holder] else "what holds it now"
        return _name_next(name, peak, left[0], _gain(_share(workload, holder)))
    if not has_card:
        return NO_CARD
    if state is BoundState.UNKNOWN or len(left) < 2:
        return "no second bound is known"
    first, then = left[:2]
    resource = _RESOURCES.get(first.kind)
    share = (
        absent_estimate("its part of a transaction's time is not known", unit="ratio")
        if resource is None
        else _share(workload, resource)
    )
    return _name_next(first.kind.noun, first.tps, then, _gain(share))


def _name_next(removed: str, now: Estimate, then: Bound, at_clients: Estimate) -> NextLimit:
    # Removing a limit cannot lose TPS.
    gain = map_estimate(divide_estimates(then.tps, now, unit="ratio"), lambda times: max(0.0, times - 1.0))
    return NextLimit(removed=removed, binds=then.kind, tps=then.tps, gain=gain, gain_at_clients=at_clients)


def _share(workload: WorkloadAnalysis, resource: Resource) -> Estimate:
    """Estimate the share of a transaction's time that goes to a resource, over trials; for one trial with its sampling interval."""
    found = [
        (share, trial.record.planned.round)
        for trial in workload.trials
        if trial.time is not None and (share := trial.time.find(resource))
    ]
    if not found:
        return absent_estimate("where transactions' time goes was not sampled", unit="ratio")
    if len(found) > 1:
        rounds = [number for _, number in found]
        return keep_above_0(estimate_mean_of_trials([share.ratio for share, _ in found], unit="ratio", rounds=rounds))
    only, _ = found[0]
    return Estimate(value=only.ratio, low=only.low_ratio, high=only.high_ratio, n=1, unit="ratio")


def _gain(share: Estimate) -> Estimate:
    """Estimate the gain of the same clients without that share of the time: N clients reach N / R, by Little's law.

    Source: Little 1961, "A proof for the queuing formula L = lambda W", doi:10.1287/opre.9.3.383.
    """
    return map_estimate(share, lambda ratio: max(0.0, 1.0 / (1.0 - min(ratio, _MAX_SHARE)) - 1.0))

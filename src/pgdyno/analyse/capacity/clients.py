"""How many sessions at work are best: from a sweep over clients, or as a hint from the load at one number of them.

The hint needs no model of queues. With fewer sessions than the ceiling times what a transaction takes with nobody in its
way the ceiling cannot be reached. As many as there were are enough where the load was at its ceiling; elsewhere twice as
many as would do if transactions took no longer than they did.

It gives no number where a sweep still grows at its largest load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgdyno.analyse.capacity.types import Bound, BoundKind, ClientAdvice
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.types import WorkloadAnalysis

# A session more for a hundredth of one would be a hint too fine.
_SLACK = 0.99


def advise_clients(
    workload: WorkloadAnalysis, sweep: ClientSweep | None, *, bounds: Sequence[Bound], lowest: Estimate, is_full: bool
) -> ClientAdvice:
    """The smallest number of sessions at work that gives what can be had.

    Args:
        workload: The load at one number of clients.
        sweep: Over clients, of the same load; None without one.
        bounds: Of the load.
        lowest: The least of those that hold with any number of clients.
        is_full: Whether that was reached.

    Source: Lazowska et al. 1984, Quantitative System Performance, 5.2.1: the saturation point N* = (D + Z) / D_max.
    """
    if sweep is not None:
        return _read_sweep(sweep)
    if lowest.value is None:
        return _unknown("no bound is known that holds, and one number of clients was tried")
    idle_s = _least_time_s(bounds)
    latency = workload.latency_ms.get("mean")
    if latency is None or latency.value is None:
        return _unknown("nobody knows how long transactions took")
    least = lowest.value * idle_s
    flushes = next((bound.limit.value for bound in bounds if bound.kind is BoundKind.FLUSHES), None)
    if flushes and lowest.value > flushes:
        # More sessions than one share flushes in two halves that take turns.
        least = max(least, 2.0 * lowest.value / flushes)
    # Where queues are short still, transactions get slower on the way up: by less than twice, unless queues explode.
    enough = 2.0 * lowest.value * (1.0 + _find_idle_ratio(bounds)) * latency.value / 1e3
    low = max(1, math.ceil(_SLACK * least))
    return ClientAdvice(
        clients=None,
        low=low,
        high=max(low, workload.load.clients if is_full else math.ceil(_SLACK * enough)),
        is_hint=True,
        how="the ceiling times what a transaction takes, with nobody in its way and with a queue",
        reason="a sweep over clients would tell more",
    )


def _read_sweep(sweep: ClientSweep) -> ClientAdvice:
    """The knee: from there on more clients buy less than what counts."""
    knee, largest = sweep.knee, sweep.points[-1].clients
    if knee.value is None:
        is_growing = len(sweep.points) > 1 and sweep.peak.value is None
        return ClientAdvice(
            clients=None,
            low=largest if is_growing else None,
            high=None,
            is_hint=False,
            how="sweep over clients",
            reason=knee.reason,
        )
    return ClientAdvice(
        clients=math.ceil(knee.value),
        low=None if knee.low is None else max(1, math.floor(knee.low)),
        high=None if knee.high is None else math.ceil(knee.high),
        is_hint=False,
        how="knee of the sweep over clients",
        reason=knee.reason,
    )


def _least_time_s(bounds: Sequence[Bound]) -> float:
    """Of a transaction with nobody in its way: its CPU time, and a flush where it waits for one."""
    cpu_s = next((bound.demand.value for bound in bounds if bound.kind is BoundKind.CPU), None)
    flushes = next((bound.limit.value for bound in bounds if bound.kind is BoundKind.FLUSHES), None)
    return (cpu_s or 0.0) + (1.0 / flushes if flushes else 0.0)


def _find_idle_ratio(bounds: Sequence[Bound]) -> float:
    """Of the CPUs where they are the lowest: a transaction takes less of them when they are full."""
    return next((bound.idle_ratio for bound in bounds if bound.is_firm), 0.0)


def _unknown(reason: str) -> ClientAdvice:
    return ClientAdvice(clients=None, low=None, high=None, is_hint=True, how="", reason=reason)

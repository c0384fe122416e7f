"""Advise the number of active sessions: from a sweep over clients, or as a hint from the load at one number of clients.

The hint needs no queueing model. With fewer sessions than the ceiling times the service time of a transaction, the
ceiling cannot be reached. If the load was at its ceiling, its number of clients is enough; otherwise twice the number
that would be enough if transactions took no longer than observed.

There is no number if TPS still grows at the largest load of a sweep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgdyno.analyse.capacity.types import Bound, BoundKind, ClientAdvice
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.models.commits import ceiling_tps
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.plan.endpoints import POOL_PER_KNEE
from pgdyno.units import count_things

# Slack so that the hint does not round up for a hundredth of a session.
_SLACK = 0.99


def advise_clients(
    workload: WorkloadAnalysis, sweep: ClientSweep | None, *, bounds: Sequence[Bound], lowest: Estimate, is_full: bool
) -> ClientAdvice:
    """Advise the smallest number of active sessions that reaches the highest TPS, or comes near it where a sweep tells.

    Args:
        workload: The load at one number of clients.
        sweep: Sweep over clients with the same load; None without one.
        bounds: Bounds of the load.
        lowest: The lowest bound that holds for any number of clients.
        is_full: Whether the load reached that bound.

    Source: Lazowska et al. 1984, Quantitative System Performance, 5.2.1: the saturation point N* = (D + Z) / D_max.
    """
    if sweep is not None:
        return _read_sweep(sweep)
    if lowest.value is None:
        return _unknown("no bound is known that holds, and one number of clients was tried")
    flushes_tps = _find_flushes_tps(workload, bounds)
    idle_s = _least_time_s(bounds, flushes_tps)
    latency = workload.latency_ms.get("mean")
    if latency is None or latency.value is None:
        return _unknown("the latency of transactions is not known")
    least = lowest.value * idle_s
    if flushes_tps and lowest.value > flushes_tps:
        # Two or more sessions share flushes in two halves that take turns.
        least = max(least, 2.0 * lowest.value / flushes_tps)
    # Where queues are still short, transactions get slower on the way up: by less than twice, unless queues explode.
    enough = 2.0 * lowest.value * (1.0 + _find_idle_ratio(bounds)) * latency.value / 1e3
    low = max(1, math.ceil(_SLACK * least))
    return ClientAdvice(
        clients=None,
        low=low,
        high=max(low, workload.load.clients if is_full else math.ceil(_SLACK * enough)),
        is_hint=True,
        how="the ceiling times how long a transaction takes: at least without a queue, at most with one",
        reason="a sweep over clients would tell more",
    )


def describe_pool(clients: int) -> str:
    """Describe how many connections a pool needs for a knee at so many clients: `6 to 8 connections`."""
    least, most = (math.ceil(ratio * clients) for ratio in POOL_PER_KNEE)
    return f"{least:,} to {count_things(most, 'connection')}" if least < most else count_things(most, "connection")


def _read_sweep(sweep: ClientSweep) -> ClientAdvice:
    """Read the advice from the knee: the fewest clients that were tried and come near the highest TPS."""
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


def _find_flushes_tps(workload: WorkloadAnalysis, bounds: Sequence[Bound]) -> float | None:
    """Return the TPS that flushes would allow if each commit had one of its own; None if no commit waits for one."""
    tps = next((bound.tps.value for bound in bounds if bound.kind is BoundKind.FLUSHES), None)
    return None if tps is None else tps / ceiling_tps(workload.load.writing_clients, flush_s=1.0)


def _least_time_s(bounds: Sequence[Bound], flushes_tps: float | None) -> float:
    """Compute the mean time of a transaction without queueing: its CPU time, and its flush if it waits for one."""
    cpu_s = next((bound.demand.value for bound in bounds if bound.kind is BoundKind.CPU), None)
    return (cpu_s or 0.0) + (1.0 / flushes_tps if flushes_tps else 0.0)


def _find_idle_ratio(bounds: Sequence[Bound]) -> float:
    """Return the idle ratio of the CPUs if they are the lowest bound: a transaction takes less CPU time when they are full."""
    return next((bound.idle_ratio for bound in bounds if bound.is_firm), 0.0)


def _unknown(reason: str) -> ClientAdvice:
    return ClientAdvice(clients=None, low=None, high=None, is_hint=True, how="", reason=reason)

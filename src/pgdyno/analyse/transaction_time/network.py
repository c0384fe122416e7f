"""Estimate how much of a transaction's time its way to a server of the user's and back takes.

The share is that of the transaction's exchanges, each as long as the quickest of the empty statements that one more client
sent beside the load. The quickest waited for no CPU: with a delay planted between pgbench and a busy server, it came nearest
(benchmarks/network.py). On a network of uneven delays it is too short. The median is too long where CPUs are busy, at either
end. What lies between the two cannot be told apart.

The share includes what both ends do for an empty statement. Between processes of one machine there is nothing else, except
waits for a CPU where the machine is busy. Where a round trip is about as quick as between these, the network's part of it
cannot be told.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.estimate import Estimate, estimate_over_trials, map_estimate
from pgdyno.analyse.transaction_time.exchanges import UncountableError, count_exchanges
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.samples.pings import PING
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import why_missing

FAR_S = 0.0002
"""A round trip that takes longer does not end on the machine where it began. There it takes 0.05 to 0.1 ms, of which the
programs at both ends take nearly all."""
FAR_ON_THIS_MACHINE_S = 0.001
"""A busy machine answers itself late, too. By a socket or the loopback interface, only a longer round trip leads elsewhere, as
through a tunnel."""


class NetworkTime(msgspec.Struct, frozen=True, kw_only=True):
    """The network's part of a trial's mean transaction."""

    ratio: float | None
    """The share of a transaction's time, with the quickest ping; None with a reason."""
    exchanges_count: float | None
    """Of a mean transaction; None if they cannot be counted."""
    ping_ms: float | None
    """The quickest empty statement beside the load."""
    median_ping_ms: float | None
    pings_count: int
    is_local: bool
    """Whether client and server are on one machine."""
    absent: str | None = None
    """Why there is no share."""

    @property
    def is_far(self) -> bool:
        """True if a network takes time, and not only the programs at both ends."""
        return not self.is_local and self.ping_ms is not None and self.ping_ms >= FAR_S * 1000.0

    @property
    def ms(self) -> float | None:
        """Milliseconds of a transaction."""
        if self.ratio is None or self.exchanges_count is None or self.ping_ms is None:
            return None
        return self.exchanges_count * self.ping_ms


class NetworkEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The network's part of a workload's transactions, over its trials."""

    is_far: bool
    """True if a network takes time in each trial, and not only the programs at both ends; else the share is the most that it may
    be."""
    is_local: bool
    """Whether client and server are on one machine, so that there is no network: the exchanges wait for a CPU."""
    ratio: Estimate
    """The share of a transaction's time, with the quickest ping."""
    median_ratio: Estimate
    """The share with the median ping in place of the quickest: uneven delays, and waits for a CPU, are in it."""
    ping_ms: Estimate
    """The quickest ping."""
    exchanges_count: float | None


def measure_network(
    data: TrialData,
    workload: PlannedWorkload,
    *,
    latency_ms: float | None,
    is_local: bool,
    earlier_ms: float | None = None,
) -> NetworkTime | None:
    """Measure the network's part of one trial's transactions; None if the server is on the load's machine and answers at once.

    Args:
        data: The trial's data.
        workload: The trial's load.
        latency_ms: The mean latency, without the wait for a scheduled start.
        is_local: Whether the server is reached by a socket file or the loopback interface.
        earlier_ms: The median of empty statements before the trials, where none ran beside the load.
    """
    exchanges, absent = _count(workload, data)
    pings_ms = _list_within_load(data)
    ping_ms = min(pings_ms, default=earlier_ms)
    # A tunnel may begin on this machine.
    is_local = is_local and (ping_ms is None or ping_ms < FAR_ON_THIS_MACHINE_S * 1000.0)
    if is_local and (ping_ms is None or ping_ms < FAR_S * 1000.0):
        return None
    if ping_ms is None:
        absent = why_missing(data.gaps, PING) or "no ping ran beside the load"
    elif latency_ms is None:
        absent = "the mean latency is not known"
    elif latency_ms <= 0.0:
        absent = "pgbench printed no more latency than lag behind the schedule"
    ratio = None
    if absent is None and exchanges is not None and ping_ms is not None and latency_ms:
        ratio = min(1.0, exchanges * ping_ms / latency_ms)
    return NetworkTime(
        ratio=ratio,
        exchanges_count=exchanges,
        ping_ms=ping_ms,
        median_ping_ms=float(np.median(pings_ms)) if pings_ms else None,
        pings_count=len(pings_ms),
        is_local=is_local,
        absent=absent,
    )


def estimate_network(trials: Sequence[NetworkTime | None], *, rounds: Sequence[int] = ()) -> NetworkEstimate | None:
    """Estimate the network's part over trials; None if there is no network.

    Args:
        trials: What each trial showed of it.
        rounds: As for `estimate_over_trials`.
    """
    known = [trial for trial in trials if trial is not None]
    rounds = [number for number, trial in zip(rounds, trials, strict=True) if trial is not None] if rounds else ()
    if not known:
        return None
    missing = next((trial.absent for trial in known if trial.absent is not None), "no number")
    estimate = functools.partial(estimate_over_trials, missing=missing, rounds=rounds)
    counts = [trial.exchanges_count for trial in known if trial.exchanges_count is not None]
    medians = [
        None
        if trial.ratio is None or not trial.ping_ms or trial.median_ping_ms is None
        else min(1.0, trial.ratio * trial.median_ping_ms / trial.ping_ms)
        for trial in known
    ]
    return NetworkEstimate(
        is_far=all(trial.is_far for trial in known if trial.ratio is not None),
        is_local=all(trial.is_local for trial in known),
        ratio=_within_one(estimate([trial.ratio for trial in known], unit="ratio")),
        median_ratio=_within_one(estimate(medians, unit="ratio")),
        ping_ms=estimate([trial.ping_ms for trial in known], unit="ms"),
        exchanges_count=sum(counts) / len(counts) if counts else None,
    )


def _count(workload: PlannedWorkload, data: TrialData) -> tuple[float | None, str | None]:
    try:
        return count_exchanges(workload, data.warm_up, data.pgbench), None
    except UncountableError as exc:
        return None, str(exc)


def _list_within_load(data: TrialData) -> list[float]:
    start_s, end_s = data.record.load_start_monotonic_s, data.record.load_end_monotonic_s
    if data.pings is None or start_s is None or end_s is None:
        return []
    inside = (data.pings.began_s >= start_s) & (data.pings.began_s <= end_s)
    kept: list[float] = (data.pings.round_trip_s[inside] * 1000.0).tolist()
    return kept


def _within_one(estimate: Estimate) -> Estimate:
    return map_estimate(estimate, lambda value: min(1.0, value))

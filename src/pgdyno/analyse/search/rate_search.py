"""A search for the largest rate that holds a latency limit, from the trials of one workload: what is known, what is next.

A trial holds when no larger share of its transactions missed the limit than the percentile allows. What follows from
that is `limit.py`'s. Shares of misses are shown and never decide: their size at one rate differs between trials by
orders of magnitude, so no mean of them would mean anything to whoever has to promise a latency.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.analyse.search.latency_limit import LimitAnswer, LimitSearch, Probe, RateVerdict, follow
from pgdyno.analyse.search.misses import Misses, count_misses
from pgdyno.plan.search import CAPACITY_ROUNDS, Search, choose_duration_s, list_rates
from pgdyno.record.trial_data import TrialData


class RateTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial at a rate."""

    number: int
    misses: Misses
    is_held: bool
    length_s: float
    """With restoring and warming up."""


class RateLevel(msgspec.Struct, frozen=True, kw_only=True):
    """All trials at one rate."""

    rate_tps: float
    verdict: RateVerdict
    held_count: int
    share: Estimate
    """Of transactions that missed the limit: geometric mean over trials."""
    latency_ms: Estimate
    """Which the percentile held: geometric mean over the trials in which it is known."""
    trials: tuple[RateTrial, ...]


class RateSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The search on one workload as it stands."""

    workload: str
    capacity: Estimate
    """TPS of the closed-loop trials."""
    lowest_tps: float | None
    """The lowest and the highest rate that may be tried; None until the capacity is known."""
    highest_tps: float | None
    answer: LimitAnswer | None
    levels: tuple[RateLevel, ...]
    """The rates that were tried, rising."""
    uncounted: tuple[int, ...]
    """Numbers of trials at a rate whose misses are not known."""
    trial_s: float | None
    """What one takes, with restoring and warming up; None before the first."""

    @property
    def is_settled(self) -> bool:
        """Whether no trial is wanted any more."""
        return self.answer is not None and self.answer.is_settled

    @property
    def more_s(self) -> float | None:
        """How much longer it would take; None when that is not known or too much."""
        if self.answer is None or self.answer.trials_needed is None or self.trial_s is None:
            return None
        return self.answer.trials_needed * self.trial_s


class NextTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What to try next: a rate, or the closed loop; and for how long."""

    rate_tps: float | None
    duration_s: float


class WorkloadSearch:
    """Takes the trials of one workload in the order of running.

    Args:
        workload: Its name.
        search: What is searched for.
        planned_s: Length of a trial as planned.
    """

    def __init__(self, workload: str, search: Search, *, planned_s: float) -> None:
        self._workload = workload
        self._search = search
        self._planned_s = planned_s
        self._capacities: list[float | None] = []
        self._trials: list[RateTrial] = []
        self._uncounted: list[int] = []

    def take(self, data: TrialData, *, tps: float | None) -> None:
        """Take a finished trial.

        Args:
            data: What it left.
            tps: Of a closed-loop trial.
        """
        planned = data.record.planned
        if planned.rate_tps is None:
            self.take_capacity(tps)
            return
        misses = count_misses(data, limit_ms=self._search.limit_ms, percentile=self._search.percentile)
        if misses is None:
            self._uncounted.append(planned.number)
            return
        self.take_misses(
            misses, number=planned.number, length_s=data.record.restore_s + planned.warm_up_s + planned.duration_s
        )

    def take_capacity(self, tps: float | None) -> None:
        """Take the TPS of a closed-loop trial; None where it has none."""
        self._capacities.append(tps)

    def take_misses(self, misses: Misses, *, number: int, length_s: float) -> None:
        """Take what a trial at a rate came to."""
        is_held = misses.share_ratio <= self._search.allowed_ratio
        self._trials.append(RateTrial(number=number, misses=misses, is_held=is_held, length_s=length_s))

    def next_trial(self) -> NextTrial | None:
        """What to try next; None when all is settled, or nothing ends even in a closed loop."""
        if len(self._capacities) < CAPACITY_ROUNDS:
            return NextTrial(rate_tps=None, duration_s=self._planned_s)
        limit = self._follow()
        rate_tps = None if limit is None else limit.next_rate()
        return None if rate_tps is None else NextTrial(rate_tps=rate_tps, duration_s=self._duration_s())

    def stand(self) -> RateSearch:
        """How it stands."""
        limit = self._follow()
        answer = None if limit is None else limit.answer()
        rates = self._rates() if limit is not None else ()
        tried = sorted({trial.misses.rate_tps for trial in self._trials})
        lengths = [trial.length_s for trial in self._trials]
        return RateSearch(
            workload=self._workload,
            capacity=self._capacity(),
            lowest_tps=rates[0] if rates else None,
            highest_tps=rates[-1] if rates else None,
            answer=answer,
            levels=() if answer is None else tuple(self._level(rate, answer.judge(rate)) for rate in tried),
            uncounted=tuple(self._uncounted),
            trial_s=float(np.median(lengths)) if lengths else None,
        )

    def _capacity(self) -> Estimate:
        return estimate_geometric_mean([tps for tps in self._capacities if tps], unit="tps")

    def _duration_s(self) -> float:
        capacity_tps = self._capacity().value
        assert capacity_tps is not None  # noqa: S101 - there are rates, so there is a capacity
        return choose_duration_s(self._search, capacity_tps, planned_s=self._planned_s)

    def _rates(self) -> tuple[float, ...]:
        capacity_tps = self._capacity().value
        if capacity_tps is None:
            return ()
        rates = list_rates(self._search, capacity_tps, duration_s=self._duration_s())
        # What was tried stays, should a closed-loop trial be read otherwise than it was then.
        return tuple(sorted({*rates, *(trial.misses.rate_tps for trial in self._trials)}))

    def _follow(self) -> LimitSearch | None:
        rates = self._rates()
        if not rates or len(self._capacities) < CAPACITY_ROUNDS:
            return None
        probes = (Probe(trial.misses.rate_tps, trial.is_held) for trial in self._trials)
        return follow(rates, probes, alpha=self._search.alpha, resolution_ratio=self._search.resolution_ratio)

    def _level(self, rate_tps: float, verdict: RateVerdict) -> RateLevel:
        trials = tuple(trial for trial in self._trials if trial.misses.rate_tps == rate_tps)
        latencies = [trial.misses.latency_ms for trial in trials]
        known: Sequence[float] = [latency for latency in latencies if latency]
        latency = estimate_geometric_mean(known, unit="ms")
        if len(known) < len(trials):
            reason = f"{len(trials) - len(known)} of {len(trials)} trials: more transactions never began than it allows"
            latency = msgspec.structs.replace(latency, reason=reason)
        return RateLevel(
            rate_tps=rate_tps,
            verdict=verdict,
            held_count=sum(trial.is_held for trial in trials),
            share=estimate_geometric_mean([trial.misses.positive_share_ratio for trial in trials], unit="ratio"),
            latency_ms=latency,
            trials=trials,
        )

"""Search for the highest rate that keeps a latency limit, from the trials of one workload: what is known, and what to try next.

A trial holds the limit if the share of its transactions that missed it is at most what the percentile allows.
`latency_limit.py` draws the conclusions. Shares of misses are shown but decide nothing: at one rate they differ between
trials by orders of magnitude, so their mean would not help to promise a latency.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.analyse.search.latency_limit import LimitAnswer, LimitSearch, Probe, RateVerdict
from pgdyno.analyse.search.misses import Misses, count_misses
from pgdyno.plan.search import CAPACITY_ROUNDS, Search, choose_duration_s, list_rates
from pgdyno.record.trial_data import TrialData


class RateTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial at a scheduled rate."""

    number: int
    misses: Misses
    is_held: bool
    length_s: float
    """Duration with restore and warm-up."""


class RateLevel(msgspec.Struct, frozen=True, kw_only=True):
    """All trials at one rate."""

    rate_tps: float
    verdict: RateVerdict
    held_count: int
    share: Estimate
    """Share of transactions that missed the limit: geometric mean over trials, in which half a transaction stands for none.

    It is 0 without an interval if none missed in any trial.
    """
    latency_ms: Estimate
    """Latency at the percentile: geometric mean over the trials in which it is known."""
    trials: tuple[RateTrial, ...]


class RateSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of the search on one workload."""

    workload: str
    capacity: Estimate
    """TPS of the closed-loop trials."""
    lowest_tps: float | None
    """The lowest and the highest rate that the search may try; None until the capacity is known."""
    highest_tps: float | None
    answer: LimitAnswer | None
    levels: tuple[RateLevel, ...]
    """The rates that were tried, in increasing order."""
    uncounted: tuple[int, ...]
    """Numbers of the trials at a rate whose misses are unknown."""
    trial_s: float | None
    """Duration of a trial with all its work; None before the first."""

    @property
    def is_settled(self) -> bool:
        """True if the search needs no more trials."""
        return self.answer is not None and self.answer.is_settled

    @property
    def more_s(self) -> float | None:
        """Estimated remaining time of the search; None if it is unknown or unaffordable."""
        if self.answer is None or self.answer.trials_needed is None or self.trial_s is None:
            return None
        return self.answer.trials_needed * self.trial_s


class NextTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The next trial: its rate, or None for the closed loop, and its duration."""

    rate_tps: float | None
    duration_s: float


class WorkloadSearch:
    """A search on one workload, which takes its trials in the order of running.

    Args:
        workload: Name of the workload.
        search: The search's limit, percentile and resolution.
        planned_s: Planned length of a trial.
    """

    def __init__(self, workload: str, search: Search, *, planned_s: float) -> None:
        self._workload = workload
        self._search = search
        self._planned_s = planned_s
        self._capacities: list[float | None] = []
        self._trials: list[RateTrial] = []
        self._uncounted: list[int] = []
        self._limit: LimitSearch | None = None
        self._limit_rates: tuple[float, ...] = ()
        self._limit_trials = 0

    def add(self, data: TrialData, *, tps: float | None) -> None:
        """Add a finished trial.

        Args:
            data: The data that the trial left.
            tps: TPS of a closed-loop trial.
        """
        planned = data.record.planned
        if planned.rate_tps is None:
            self.add_capacity(tps)
            return
        misses = count_misses(data, limit_ms=self._search.limit_ms, percentile=self._search.percentile)
        if misses is None:
            self._uncounted.append(planned.number)
            return
        # Older records have no more than this of it.
        known_s = data.record.restore_s + planned.warm_up_s + planned.duration_s
        self.add_misses(misses, number=planned.number, length_s=data.record.work_s or known_s)

    def add_capacity(self, tps: float | None) -> None:
        """Add the TPS of a closed-loop trial; None if it has none."""
        self._capacities.append(tps)

    def add_misses(self, misses: Misses, *, number: int, length_s: float) -> None:
        """Add the misses of a trial at a rate."""
        is_held = misses.share_ratio <= self._search.allowed_ratio
        self._trials.append(RateTrial(number=number, misses=misses, is_held=is_held, length_s=length_s))

    def next_trial(self) -> NextTrial | None:
        """Choose the next trial; None if the search is settled, or if no transaction ends even in a closed loop."""
        if len(self._capacities) < CAPACITY_ROUNDS:
            return NextTrial(rate_tps=None, duration_s=self._planned_s)
        limit = self._replay()
        rate_tps = None if limit is None else limit.next_rate()
        return None if rate_tps is None else NextTrial(rate_tps=rate_tps, duration_s=self._duration_s())

    def state(self) -> RateSearch:
        """Return the current state of the search."""
        limit = self._replay()
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
        # Rates that were tried stay, even if the capacity is now estimated differently.
        return tuple(sorted({*rates, *(trial.misses.rate_tps for trial in self._trials)}))

    def _replay(self) -> LimitSearch | None:
        rates = self._rates()
        if not rates or len(self._capacities) < CAPACITY_ROUNDS:
            return None
        if self._limit is None or self._limit_rates != rates:
            self._limit = LimitSearch(rates, alpha=self._search.alpha, resolution_ratio=self._search.resolution_ratio)
            self._limit_rates, self._limit_trials = rates, 0
        for trial in self._trials[self._limit_trials :]:
            self._limit.add(Probe(trial.misses.rate_tps, trial.is_held))
        self._limit_trials = len(self._trials)
        return self._limit

    def _level(self, rate_tps: float, verdict: RateVerdict) -> RateLevel:
        trials = tuple(trial for trial in self._trials if trial.misses.rate_tps == rate_tps)
        latencies = [trial.misses.latency_ms for trial in trials]
        known: Sequence[float] = [latency for latency in latencies if latency]
        latency = estimate_geometric_mean(known, unit="ms")
        if len(known) < len(trials):
            reasons = Counter(trial.misses.latency_reason for trial in trials if not trial.misses.latency_ms)
            reason = "; ".join(f"{count} of {len(trials)} trials: {why}" for why, count in reasons.items())
            latency = msgspec.structs.replace(latency, reason=reason)
        return RateLevel(
            rate_tps=rate_tps,
            verdict=verdict,
            held_count=sum(trial.is_held for trial in trials),
            share=_estimate_share(trials),
            latency_ms=latency,
            trials=trials,
        )


def _estimate_share(trials: Sequence[RateTrial]) -> Estimate:
    if not any(trial.misses.missed_count for trial in trials):
        reason = "no transaction missed the limit"
        return Estimate(value=0.0, low=None, high=None, n=len(trials), unit="ratio", reason=reason)
    return estimate_geometric_mean([trial.misses.positive_share_ratio for trial in trials], unit="ratio")

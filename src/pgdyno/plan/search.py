"""Plan a search for the largest rate that holds a latency limit: its trials, its length, and the rates to try.

Pure. The first rounds are closed-loop trials, which measure the server's capacity. The rates of the later trials are
chosen between trials from the results so far. Every trial begins with the restored state: a continuous load with a
changing rate would save the time to restore, but a rate that fails would leave a queue, dirty pages and a larger table
to the next one, and dependent trials are not independent evidence.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.order import OrderedTrial, Times, order_plain, round_up_budget, suggest_minutes
from pgdyno.spec.study import Study
from pgdyno.units import describe_minutes

CAPACITY_ROUNDS = 3
"""Closed-loop trials of each workload: the fewest with a useful interval."""
LEAST_MISSES = 10
"""Transactions that may miss the limit in a trial at the lowest rate; a share of fewer is mostly chance.

Source: as for `MIN_BEYOND_COUNT` of record/transactions/histogram.py.
"""
# Rates above the measured capacity can hold only within its noise.
_TOP_RATIO = 1.2
_BOTTOM_RATIO = 0.02
# Trials are long enough for the percentile down to at least this share of the capacity.
_REACH_RATIO = 0.25
# By simulation, a resolution of 10 % takes 23 trials on a quiet machine, and 36 if trials differ by 3 %.
_DEFAULT_ROUNDS = 40
_MOST_ROUNDS = 400
_DIGITS = 3


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A search for the largest rate that holds a latency limit, with its resolution and error rate."""

    limit_ms: float
    percentile: float
    resolution_ratio: float
    alpha: float
    """Error rate for each workload's answer; all answers together keep the requested confidence."""
    budget_s: float | None
    """Time budget; None until a plan has chosen it."""

    @property
    def allowed_ratio(self) -> float:
        """Share of transactions that may miss the limit."""
        return round((100.0 - self.percentile) / 100.0, 9)

    @property
    def aim(self) -> str:
        """Text such as `the largest rate that holds p99 < 20 ms`."""
        return f"the largest rate that holds {self.limit}"

    @property
    def limit(self) -> str:
        """Text such as `p99 < 20 ms`."""
        return f"p{self.percentile:g} < {self.limit_ms:g} ms"


def plan_search(study: Study) -> Search | None:
    """Plan the search that a study requests; return None for any other study."""
    asked = study.search
    if asked is None:
        return None
    minutes = study.experiment.minutes
    return Search(
        limit_ms=asked.limit_ms,
        percentile=asked.percentile,
        resolution_ratio=asked.resolution_ratio,
        alpha=study.experiment.alpha / len(study.workload),
        budget_s=None if minutes is None else minutes * 60.0,
    )


def least_duration_s(search: Search) -> float:
    """Return the least length of a trial: a queue that grows by the resolution reaches the limit in half of it."""
    return math.ceil(2.0 * search.limit_ms / 1000.0 / search.resolution_ratio)


def choose_duration_s(search: Search, capacity_tps: float, *, planned_s: float) -> float:
    """Choose the length of trials at a rate: as planned, or what the percentile needs at a quarter of the capacity."""
    return max(planned_s, math.ceil(LEAST_MISSES / (search.allowed_ratio * capacity_tps * _REACH_RATIO)))


def list_rates(search: Search, capacity_tps: float, *, duration_s: float) -> tuple[float, ...]:
    """List the rates to try, ascending: two steps make the resolution, and no trial is too short for the percentile."""
    top = _TOP_RATIO * capacity_tps
    bottom = max(_BOTTOM_RATIO * capacity_tps, LEAST_MISSES / (search.allowed_ratio * duration_s))
    step = math.log1p(search.resolution_ratio) / 2.0
    count = max(2, math.floor(math.log(top / bottom) / step) + 1)
    return tuple(sorted({_round(top * math.exp(-step * number)) for number in range(count)}))


def count_least_rounds(search: Search) -> int:
    """Return the fewest rounds that can give an answer: every bet on both sides wins and doubles the stake."""
    return CAPACITY_ROUNDS + 2 * math.ceil(math.log2(2.0 / search.alpha))


def choose_budget(workloads_count: int, times: Times) -> tuple[float, str]:
    """Choose the default time budget of a search in seconds, and give the reason."""
    rounds = CAPACITY_ROUNDS + _DEFAULT_ROUNDS
    budget_s = times.fixed_s + rounds * workloads_count * (times.overhead_s + times.duration_s)
    return round_up_budget(budget_s), f"up to {_DEFAULT_ROUNDS} trials at scheduled rates; fewer when they decide"


def order_search(workloads: Sequence[str], search: Search, times: Times, draw: random.Random) -> Iterator[OrderedTrial]:
    """Order the trials that the time budget allows, the closed-loop ones first.

    Raises:
        SpecError: The budget is too small for any answer.
    """
    round_s, least = (times.overhead_s + times.duration_s) * len(workloads), count_least_rounds(search)
    rounds = min(_MOST_ROUNDS, int(((search.budget_s or 0.0) - times.fixed_s) / round_s + 1e-6))
    if rounds < least:
        needed_s = times.fixed_s + least * round_s
        raise SpecError(
            f"{describe_minutes((search.budget_s or 0.0) / 60)} too few for an answer",
            detail=f"it takes {least * len(workloads)} trials of {times.duration_s:.0f} s, plus loading and restoring",
            hint=f"{suggest_minutes(needed_s / 60.0 + 0.05)}shorter trials, or fewer workloads",
        )
    return order_plain(workloads, rounds, times, draw)


def _round(rate_tps: float) -> float:
    return float(f"{rate_tps:.{_DIGITS}g}")

"""A search for the largest rate that holds a latency limit: its trials, its length, and the rates it may try.

Pure. The first rounds are closed-loop trials, which show what the server can do at all; the rates of the others are
chosen between trials, by what was seen. Every trial begins with the restored state: a load that goes on while its rate
changes would save the restoring, but a rate that fails leaves a queue, dirty pages and a larger table to the next one,
and trials that know of each other are no independent evidence.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.order import Times, Turn, order_plain
from pgdyno.spec.study import Study

CAPACITY_ROUNDS = 3
"""Closed-loop trials of each workload: the fewest whose interval says something."""
LEAST_MISSES = 10
"""Transactions that may miss the limit in a trial at the lowest rate: of fewer the share is chance.

Source: as `record.histogram.MIN_BEYOND_COUNT`.
"""
# Above the capacity nothing can hold but what the capacity's own noise lets hold.
_TOP_RATIO = 1.2
_BOTTOM_RATIO = 0.02
# So far down, at the least, a trial is long enough for the percentile.
_REACH_RATIO = 0.25
# By simulation a quiet machine settles a resolution of 10 % in 23 trials, one whose trials differ by 3 % in 36.
_DEFAULT_ROUNDS = 40
_MOST_ROUNDS = 400
_DIGITS = 3


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched for, how closely, and how sure the answer must be."""

    limit_ms: float
    percentile: float
    resolution_ratio: float
    alpha: float
    """Of each workload's answer: all of them together keep the confidence that was asked for."""
    budget_s: float | None
    """The longest it may take; None until a plan has chosen it."""

    @property
    def allowed_ratio(self) -> float:
        """The share of transactions that may miss the limit."""
        return round((100.0 - self.percentile) / 100.0, 9)

    @property
    def aim(self) -> str:
        """In words, such as `the largest rate that holds p99 < 20 ms`."""
        return f"the largest rate that holds {self.limit}"

    @property
    def limit(self) -> str:
        """In words, such as `p99 < 20 ms`."""
        return f"p{self.percentile:g} < {self.limit_ms:g} ms"


def plan_search(study: Study) -> Search | None:
    """The search that a study asks for; None for every other study."""
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
    """A trial's least length, so that a queue that grows by the resolution reaches the limit in half of it."""
    return math.ceil(2.0 * search.limit_ms / 1000.0 / search.resolution_ratio)


def choose_duration_s(search: Search, capacity_tps: float, *, planned_s: float) -> float:
    """The length of trials at a rate: as planned, or as long as the percentile takes at a quarter of the capacity."""
    return max(planned_s, math.ceil(LEAST_MISSES / (search.allowed_ratio * capacity_tps * _REACH_RATIO)))


def list_rates(search: Search, capacity_tps: float, *, duration_s: float) -> tuple[float, ...]:
    """The rates that may be tried, rising: two steps are the resolution, and no trial is too short for the percentile."""
    top = _TOP_RATIO * capacity_tps
    bottom = max(_BOTTOM_RATIO * capacity_tps, LEAST_MISSES / (search.allowed_ratio * duration_s))
    step = math.log1p(search.resolution_ratio) / 2.0
    count = max(2, math.floor(math.log(top / bottom) / step) + 1)
    return tuple(sorted({_round(top * math.exp(-step * number)) for number in range(count)}))


def count_least_rounds(search: Search) -> int:
    """The fewest rounds that can answer: every bet won, and the stake doubled by each, on both sides."""
    return CAPACITY_ROUNDS + 2 * math.ceil(math.log2(2.0 / search.alpha))


def choose_budget(workloads_count: int, times: Times) -> tuple[float, str]:
    """Seconds that a search may take when nobody says, and why."""
    rounds = CAPACITY_ROUNDS + _DEFAULT_ROUNDS
    budget_s = times.fixed_s + rounds * workloads_count * (times.overhead_s + times.duration_s)
    # To a quarter of a minute, of which a study file can keep any number exactly.
    return math.ceil(budget_s / 15.0) * 15.0, f"up to {_DEFAULT_ROUNDS} trials at rates; fewer when they decide"


def order_search(workloads: Sequence[str], search: Search, times: Times, draw: random.Random) -> Iterator[Turn]:
    """The trials that the budget has time for, the closed-loop ones first.

    Raises:
        SpecError: The budget is too small for any answer.
    """
    round_s, least = (times.overhead_s + times.duration_s) * len(workloads), count_least_rounds(search)
    rounds = min(_MOST_ROUNDS, int(((search.budget_s or 0.0) - times.fixed_s) / round_s + 1e-6))
    if rounds < least:
        needed_s = times.fixed_s + least * round_s
        raise SpecError(
            f"{(search.budget_s or 0.0) / 60:g} minutes are too few for an answer",
            detail=f"it takes {least * len(workloads)} trials of {times.duration_s:.0f} s, beside loading and restoring",
            hint=f"--minutes {math.ceil(needed_s / 60.0 + 0.05)}, shorter trials, or fewer workloads",
        )
    return order_plain(workloads, rounds, times, draw)


def _round(rate_tps: float) -> float:
    return float(f"{rate_tps:.{_DIGITS}g}")

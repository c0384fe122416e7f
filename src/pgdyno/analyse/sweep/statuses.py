"""Give each load of a sweep its status, by tests in a fixed order that rest on the loads' own differences inside rounds.

A status is a place against the best load, which is itself known only from the trials. Six questions are asked, each with an
error rate of its own; each is a walk along the loads that ends at the first test that fails, so that no rate is divided
among loads:

- *Climb.* From the smallest load up: one of the larger loads is shown to exceed it by more than delta. Where that holds for all
  loads up to one, the best load is larger than these.
- *Fall.* From the largest load down: one of the smaller ones is shown to exceed it by more than delta; *collapse* likewise, by more
  than 10 %.
- *Peak.* From the best load of the trials to either side, as far as the best may be: no other load is shown to exceed it by more
  than delta. Where only one load is left between climb and fall, it is the best without a test.
- *Contended.* From the first load that falls: no other load is shown to exceed it by more than 10 %.
- *Linear.* From one client up: each client is shown to bring 80 % of what a single one does.

What none of them shows stays open.

Sources: Maurer, Hothorn & Lehmacher 1995, for tests in a fixed order, as for `knee`; Hsu & Berger 1999, "Stepwise confidence intervals
without multiplicity adjustment for dose-response and toxicity studies", Journal of the American Statistical Association 94,
doi:10.1080/01621459.1999.10474141.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterable

import msgspec
import numpy as np

from pgdyno.analyse.sweep.client_trials import SweepTrials
from pgdyno.analyse.sweep.pairs import LoadPairs

# Our reasoning: 80 % of a single client's TPS times the number of clients is still what a DBA calls linear.
LINEAR_RATIO = 0.8
# Our reasoning: twice the coefficient of variation of pgbench on cloud machines, 4.7 %, is more than noise.
# Source of the 4.7 %: Freischuetz et al. 2025, "TUNA: Tuning Unstable and Noisy Cloud Applications", EuroSys.
COLLAPSE_RATIO = 0.9
# Source: `benchmarks/statuses.py`, with a look after each of up to twelve rounds. Walks that loads at the limits can all lead astray are few, and tests
# that several loads share seldom use all of their rate: with these shares of the rate, all walks together keep the whole. That a load is near
# the best, linear or no collapse rests on a single pair most of the time, and uses all of its rate.
_EXCEEDED, _NEAR = 1 / 3, 1 / 10
# A test that rests on a single pair uses all of its rate at each look: where only two loads are left to compare, 5 of 100 sweeps had a wrong status
# after looks at 5 to 12 rounds, and 8 after 30. With half of the rate 3 and 5 do.
_LEAST_SHARES = 2


class LoadStatus(enum.Enum):
    """The status of a load on the curve; each excludes the others."""

    UNDER_USED = "under-used"
    """Below the peak: a larger load has more TPS by more than delta, or TPS still climbs at the largest load. Also used
    if linear growth is likely but not shown."""
    LINEAR = "linear"
    """Under-used, and every client still brings at least 80 % of what a single client does."""
    PEAK = "peak"
    """Within delta of the best load."""
    CONTENDED = "contended"
    """Past the peak: a smaller load has more TPS by more than delta, but the loss is at most 10 %."""
    COLLAPSE = "collapse"
    """Past the peak, with a loss of more than 10 % of the best TPS."""

    @property
    def word(self) -> str:
        """Its name in sentences and tables."""
        return self.value.replace("-", "")


CLIMBING = frozenset({LoadStatus.UNDER_USED, LoadStatus.LINEAR})
"""The statuses of loads with fewer clients than the peak."""
PAST_PEAK = frozenset({LoadStatus.CONTENDED, LoadStatus.COLLAPSE})
"""The statuses of loads with more clients than the peak."""


class _Walks(msgspec.Struct, frozen=True, kw_only=True):
    """How far each of the walks came."""

    first: int
    """The first load that may be the best."""
    last: int
    """The last load that may be the best."""
    linear: int
    """The number of loads that are linear, from the smallest up."""
    collapsed: int
    """The first load that collapses, or the number of loads; 0 where delta leaves no room for contention."""
    mild: int
    """The first load past the peak that may collapse, or the number of loads."""
    peaks: frozenset[int]
    """The loads that are shown to be near the best."""

    def list_statuses(self, load: int, largest: int) -> set[LoadStatus]:
        """List the statuses that a load may have, `largest` being the number of the largest load."""
        climbing = LoadStatus.LINEAR if load < self.linear else LoadStatus.UNDER_USED
        if self.first > self.last:
            # One of the two walks has erred.
            return set(LoadStatus)
        if load < self.first or self.first == largest:
            return {climbing}
        fallen = {LoadStatus.COLLAPSE} if load >= self.collapsed else set(PAST_PEAK)
        if load > self.last:
            return {LoadStatus.CONTENDED} if load < self.mild else fallen
        if load in self.peaks or self.first == self.last:
            return {LoadStatus.PEAK}
        # The largest load is no peak while TPS still climbs to it.
        may_climb = load < self.last or load == largest
        return {LoadStatus.PEAK} | ({climbing} if may_climb else set()) | (fallen if load > self.first else set())


def list_possible_statuses(sweep: SweepTrials, pairs: LoadPairs, best: int) -> list[tuple[LoadStatus, ...]]:
    """Return all statuses that each load may have.

    Args:
        sweep: The trials, of which only the loads, delta and the confidence level are used.
        pairs: The differences of the loads.
        best: The index of the load with the highest TPS.
    """
    if pairs.last == 0:
        return [tuple(LoadStatus)]
    walks = _walk(sweep, pairs, best)
    found = (walks.list_statuses(load, pairs.last) for load in range(pairs.last + 1))
    return [tuple(status for status in LoadStatus if status in statuses) for statuses in found]


def _walk(sweep: SweepTrials, pairs: LoadPairs, best: int) -> _Walks:
    alpha, near = (share * (1.0 - sweep.confidence) for share in (_EXCEEDED, _NEAR))
    delta = -math.log1p(-sweep.delta_ratio)
    collapse = -math.log(COLLAPSE_RATIO)
    count, largest = pairs.last + 1, pairs.last
    first = pairs.count_exceeded(delta, alpha, least_shares=_LEAST_SHARES)
    last = largest - pairs.count_exceeded_from_last(delta, alpha, least_shares=_LEAST_SHARES)

    def is_peak(load: int) -> bool:
        is_flat = load < largest or pairs.find_most(load - 1, load, near) <= delta
        return is_flat and pairs.is_near_best(load, delta, near)

    start = min(max(best, first), last)
    mild = last + 1 + _count(pairs.is_near_best(load, collapse, near) for load in range(last + 1, count))
    return _Walks(
        first=first,
        last=last,
        linear=_count_linear(sweep, pairs, near),
        collapsed=count - pairs.count_exceeded_from_last(collapse, alpha, least_shares=_LEAST_SHARES)
        if delta < collapse
        else 0,
        mild=mild if delta < collapse else 0,
        peaks=frozenset(
            load
            for walk in (range(start, first - 1, -1), range(start + 1, last + 1))
            for load in itertools.takewhile(is_peak, walk)
        ),
    )


def _count_linear(sweep: SweepTrials, pairs: LoadPairs, alpha: float) -> int:
    if sweep.loads[0] != 1:
        return 0
    least = (pairs.find_least(0, load, alpha) for load in range(1, pairs.last + 1))
    return 1 + _count(
        low - math.log(n) >= math.log(LINEAR_RATIO) for low, n in zip(least, np.asarray(sweep.loads)[1:], strict=True)
    )


def _count(shown: Iterable[bool]) -> int:
    """Count the tests of a walk until one fails."""
    return sum(1 for _ in itertools.takewhile(bool, shown))

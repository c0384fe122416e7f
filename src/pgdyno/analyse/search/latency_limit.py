"""The largest rate at which a latency limit is held, from trials that either held it or not: a median threshold.

Every trial has a threshold of its own: the rate up to which it would have held the limit. Thresholds differ from trial
to trial, far more than a trial's own misses tell, so a trial gives one bit: at its rate, the limit was held or it was
not. What is sought is the rate that half of the trials hold, R*. Faster is never easier, so the share that holds falls
with the rate, and if R* lies below a rate r, any trial at r or above holds with a probability of at most 1/2. A bet on
"holds" at even odds then loses in the mean, whatever the noise's shape or size: the product of all such bets,

    E_r = prod over trials at rates >= r of (1 + lambda_i) if it held, (1 - lambda_i) if not,

exceeds 1/alpha at any time at all with a probability of at most alpha (Ville). Betting on "fails" at rates up to r tests
the other side. What neither side has rejected at alpha/2 each, at any look, is an interval that holds R* at all looks
together. The stakes may be chosen by anything that was seen before, and so may the next rate.

Both come from a model: thresholds are normal in the logarithm of the rate around ln R*, and a few trials hold or fail
for no reason. A wrong model makes the search longer, never its answer falser: guarantees come from the bets alone.

They rest on trials that do not know of each other. Where R* itself moves while the search runs, "holds" is said of the
best of these times and "fails" of the worst.

Sources: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B 86,
doi:10.1093/jrsssb/qkad009; Kelly 1956, "A new interpretation of information rate", doi:10.1002/j.1538-7305.1956.tb03809.x
(the stake 2 p - 1); Dixon & Mood 1948, doi:10.1080/01621459.1948.10483254, for the median threshold by sequential trials.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Of trials that hold or fail for no reason of the rate, such as a neighbour's burst.
_LAPSE = 0.02
# Spread of the thresholds' logarithms: from a quiet machine to one on which nothing is found.
_SPREADS = np.geomspace(0.008, 0.4, 9)
_MEDIANS = 160
# How far R* may lie beyond the rates that are tried, in logarithms.
_BEYOND = 0.3
# The chance from which on a trial says something. A side of which nothing is shown yet is asked farther out, unless the
# machine is quiet: by simulation this gives an answer after 40 trials where thresholds spread by 17 %, in nine searches
# of ten instead of two, and costs a quiet machine nothing.
_WORTH, _FIRST_WORTH = 0.75, 0.88
# Of the resolution: an interval of medians this narrow is located.
_LOCATED = 1.5
# How near to R* the rates that enclose it may lie, as a share of the resolution: two steps of rates are one.
_NEAR = 0.35
_LEAST_NEED = 0.3
_MOST_TRIALS = 1000


class RateVerdict(enum.Enum):
    """What may be said of a rate."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Probe(NamedTuple):
    """A trial at a rate: whether it held the limit."""

    rate_tps: float
    is_held: bool


class LimitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where R* lies. The interval is at 1 - alpha for all looks together."""

    holds_tps: float | None
    """The largest rate that surely holds; None where no rate does yet."""
    fails_tps: float | None
    """The smallest rate that surely fails; None where none does yet."""
    estimate_tps: float | None
    """The model's median of R*, within the interval; None where R* lies beyond all rates, or nothing was tried."""
    spread_ratio: float
    """By how much the thresholds of two trials differ, as a standard deviation: the model's."""
    alpha: float
    n: int
    """Trials at rates."""
    is_settled: bool
    trials_needed: int | None
    """How many more would settle it if trials vary as they did: 0 when settled, None when no affordable number would."""

    def judge(self, rate_tps: float) -> RateVerdict:
        """What may be said of a rate."""
        if self.holds_tps is not None and rate_tps <= self.holds_tps:
            return RateVerdict.HOLDS
        if self.fails_tps is not None and rate_tps >= self.fails_tps:
            return RateVerdict.FAILS
        return RateVerdict.UNDECIDED


class LimitSearch:
    """Takes trials, chooses the next rate, and says where R* lies.

    Args:
        rates_tps: All that may be tried, rising.
        alpha: One minus the interval's confidence.
        resolution_ratio: How close the rates that hold and fail are to be; two steps of `rates_tps` at the least.
    """

    def __init__(self, rates_tps: Sequence[float], *, alpha: float, resolution_ratio: float) -> None:
        self._rates = tuple(rates_tps)
        self._logs = np.log(np.asarray(rates_tps, dtype=np.float64))
        self._alpha = alpha
        self._width = math.log1p(resolution_ratio)
        self._needed = math.log(2.0 / alpha)
        self._medians = np.linspace(self._logs[0] - _BEYOND, self._logs[-1] + _BEYOND, _MEDIANS)
        # A rate near the capacity is likelier than one far below: the prior is even in the rate, not in its logarithm.
        self._log_weights = np.repeat(self._medians[:, None], len(_SPREADS), axis=1)
        self._holds = chance_to_hold(self._medians, self._logs)
        count = len(self._rates)
        self._above, self._below = np.zeros(count), np.zeros(count)
        self._is_above, self._is_below = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self._count = 0
        self._weights = self._weigh()
        self._chances = self._foresee()

    def take(self, probe: Probe) -> None:
        """Take a trial at one of the rates.

        Raises:
            ValueError: It is none of them.
        """
        at = self._rates.index(probe.rate_tps)
        chance = float(self._chances[at])
        sign = 1.0 if probe.is_held else -1.0
        # Rates up to this one are shown to hold by it, rates from this one on to fail.
        self._above[: at + 1] += math.log1p(sign * max(0.0, 2.0 * chance - 1.0))
        self._below[at:] += math.log1p(-sign * max(0.0, 1.0 - 2.0 * chance))
        self._is_above |= self._above >= self._needed
        self._is_below |= self._below >= self._needed
        likelihood = self._holds[:, :, at]
        self._log_weights += np.log(likelihood if probe.is_held else 1.0 - likelihood)
        self._count += 1
        self._weights = self._weigh()
        self._chances = self._foresee()

    def next_rate(self) -> float | None:
        """The rate to try next; None when all is settled."""
        if self._is_settled():
            return None
        first, middle, last = self._quartiles()
        if last - first > _LOCATED * self._width:
            return self._rates[int(np.abs(self._logs - middle).argmin())]
        sides = self._worthwhile()
        return self._rates[max(sides, key=lambda side: side.speed).at] if sides else None

    def answer(self) -> LimitAnswer:
        """Where R* lies by now."""
        low, high = self._last_above(), self._first_below()
        _, middle, _ = self._quartiles()
        beyond = middle < self._logs[0] or middle > self._logs[-1]
        estimate = None
        if self._count and not beyond and low + 1 < len(self._rates) and high > 0:
            ends = self._rates[max(low, 0)], self._rates[min(high, len(self._rates) - 1)]
            estimate = min(max(math.exp(middle), ends[0]), ends[1])
        is_settled = self._is_settled()
        return LimitAnswer(
            holds_tps=self._rates[low] if low >= 0 else None,
            fails_tps=self._rates[high] if high < len(self._rates) else None,
            estimate_tps=estimate,
            spread_ratio=math.expm1(self._spread()),
            alpha=self._alpha,
            n=self._count,
            is_settled=is_settled,
            trials_needed=0 if is_settled else self._count_needed(),
        )

    def _is_settled(self) -> bool:
        low, high = self._last_above(), self._first_below()
        if low == len(self._rates) - 1 or high == 0:
            return True
        is_between = low >= 0 and high < len(self._rates)
        # Rates are rounded to be read: what is two of their steps apart is close enough.
        return is_between and (high - low <= 2 or float(self._logs[high] - self._logs[low]) <= self._width)

    def _last_above(self) -> int:
        """The last rate up to which all are shown to hold; -1 where not even the first is."""
        return (len(self._rates) if self._is_above.all() else int(self._is_above.argmin())) - 1

    def _first_below(self) -> int:
        """The first rate from which on all are shown to fail; their number where not even the last is."""
        return len(self._rates) - (len(self._rates) if self._is_below.all() else int(self._is_below[::-1].argmin()))

    def _weigh(self) -> Floats:
        """Of each median and spread, by all that was seen."""
        weights = np.exp(self._log_weights - self._log_weights.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def _foresee(self) -> Floats:
        """The chance of the next trial to hold, at every rate."""
        return np.asarray(np.tensordot(self._weights, self._holds, axes=2), dtype=np.float64)

    def _quartiles(self) -> tuple[float, float, float]:
        share = np.cumsum(self._weights.sum(axis=1))
        first, middle, last = self._medians[
            np.minimum(np.searchsorted(share, (0.25, 0.5, 0.75)), _MEDIANS - 1)
        ].tolist()
        return first, middle, last

    def _spread(self) -> float:
        """The median of the spread of thresholds."""
        return float(_SPREADS[np.searchsorted(np.cumsum(self._weights.sum(axis=0)), 0.5)])

    def _worthwhile(self) -> list[_Side]:
        """Of either side the rate nearest to R* at which a trial says something."""
        chances, (_, middle, _) = self._chances, self._quartiles()
        low, high = self._last_above(), self._first_below()
        below = [k for k in range(low + 1, high) if self._logs[k] <= middle]
        above = [k for k in range(high - 1, low, -1) if self._logs[k] >= middle]
        sides = []
        if below:
            at = self._pick(below, chances, middle, is_shown=low >= 0)
            begin = float(self._logs[low]) if low >= 0 else float(self._logs[0]) - 1.0
            left = max(self._needed - float(self._above[at]), _LEAST_NEED)
            sides.append(_Side(at, float(self._logs[at]) - begin, _growth(float(chances[at])), left))
        if above:
            at = self._pick(above, 1.0 - chances, middle, is_shown=high < len(self._rates))
            end = float(self._logs[high]) if high < len(self._rates) else float(self._logs[-1]) + 1.0
            left = max(self._needed - float(self._below[at]), _LEAST_NEED)
            sides.append(_Side(at, end - float(self._logs[at]), _growth(float(chances[at])), left))
        return sides

    def _pick(self, towards: list[int], chances: Floats, middle: float, *, is_shown: bool) -> int:
        """The last of these rates that is far enough from R* to be told from it; else the one that says most."""
        worth = _WORTH if is_shown or self._spread() < self._width / 2.0 else _FIRST_WORTH
        fit = [k for k in towards if chances[k] >= worth and abs(self._logs[k] - middle) >= _NEAR * self._width]
        return fit[-1] if fit else max(towards, key=lambda k: float(chances[k]))

    def _count_needed(self) -> int | None:
        """Trials until the rates a little below and above R* are shown, if the model is right about both."""
        _, middle, _ = self._quartiles()
        below = max(0, int(np.searchsorted(self._logs, middle - _NEAR * self._width, side="right")) - 1)
        above = min(len(self._rates) - 1, int(np.searchsorted(self._logs, middle + _NEAR * self._width)))
        sides = ((below, self._above, self._last_above() >= below), (above, self._below, self._first_below() <= above))
        counts = [
            max(self._needed - float(evidence[at]), _LEAST_NEED) / _growth(float(self._chances[at]))
            for at, evidence, is_shown in sides
            if not is_shown
        ]
        return max(1, math.ceil(sum(counts))) if sum(counts) <= _MOST_TRIALS else None


class _Side(NamedTuple):
    """The next trial on one side: its rate, how far it would bring the interval's end, at which pace, how far it is."""

    at: int
    gain: float
    growth: float
    left: float

    @property
    def speed(self) -> float:
        """By how much each trial narrows the interval."""
        return self.gain * self.growth / self.left


def follow(
    rates_tps: Sequence[float], probes: Iterable[Probe], *, alpha: float, resolution_ratio: float
) -> LimitSearch:
    """A search after these trials, in the order of running."""
    search = LimitSearch(rates_tps, alpha=alpha, resolution_ratio=resolution_ratio)
    for probe in probes:
        search.take(probe)
    return search


def chance_to_hold(medians: Floats, logs: Floats) -> Floats:
    """Of a trial to hold the limit, by R*, spread and rate (all as logarithms but the spread): shape (medians, 9, rates)."""
    from scipy.special import ndtr  # noqa: PLC0415 - only where there is something to search

    steps = (medians[:, None, None] - logs[None, None, :]) / _SPREADS[None, :, None]
    return np.asarray(_LAPSE / 2 + (1.0 - _LAPSE) * ndtr(steps), dtype=np.float64)


def _growth(chance: float) -> float:
    """Of a log e-value for each trial with this chance: ln 2 less the entropy."""
    rest = 1.0 - chance
    return max(1e-9, math.log(2.0) + chance * math.log(chance) + rest * math.log(rest))

"""Estimate the highest rate at which a latency limit is kept, from trials that either kept it or not: a median threshold.

Every trial has a threshold of its own: the highest rate at which it would have kept the limit. Thresholds differ
between trials, far more than the misses of one trial show, so a trial gives one bit: at its rate, the limit was kept or
not. The goal is R*, the rate that half of the trials keep. A higher rate is never easier, so the share that keeps the
limit falls with the rate, and if R* lies below a rate r, any trial at r or above keeps it with a probability of at most
1/2. A bet on "holds" at even odds then loses on average, whatever the shape or size of the noise: the product of all
such bets,

    E_r = prod over trials at rates >= r of (1 + lambda_i) if it held, (1 - lambda_i) if not,

exceeds 1/alpha at any time with a probability of at most alpha (Ville). Betting on "fails" at rates up to r tests the
other side. The rates that neither side has rejected at alpha/2 at any look form an interval that holds R* at all looks
together. Each stake may depend on everything observed before, and so may the next rate.

Stakes and rates come from a model: the logarithms of thresholds are normally distributed around ln R*, and a few trials
hold or fail for unrelated reasons. A wrong model makes the search longer but not less reliable: the guarantee comes
from the bets alone.

The guarantee assumes that trials are independent. If R* itself moves during the search, "holds" applies to its best
time and "fails" to its worst.

Sources: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B 86,
doi:10.1093/jrsssb/qkad009; Kelly 1956, "A new interpretation of information rate",
doi:10.1002/j.1538-7305.1956.tb03809.x (the stake 2 p - 1); Dixon & Mood 1948, doi:10.1080/01621459.1948.10483254, for
the median threshold by sequential trials.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Share of trials that hold or fail for reasons other than the rate, such as a neighbour's burst.
_LAPSE = 0.02
# Spread of the thresholds' logarithms: from a quiet machine to one so noisy that no limit is found.
_SPREADS = np.geomspace(0.008, 0.4, 9)
_MEDIANS = 160
# How far R* may lie beyond the rates of the search, in logarithms.
_BEYOND = 0.3
# The probability from which on a trial is informative. On a side where nothing is shown yet, the rate is chosen farther
# out, unless the machine is quiet. By simulation this gives an answer after 40 trials if thresholds spread by 17 %, in
# nine searches of ten instead of two, and costs nothing on a quiet machine.
_WORTH, _FIRST_WORTH = 0.75, 0.88
# As a multiple of the resolution: an interval of medians this narrow counts as located.
_LOCATED = 1.5
# How near to R* the rates that enclose it may lie, as a share of the resolution: two steps of rates make one
# resolution.
_NEAR = 0.35
_MIN_NEED = 0.3
_MAX_TRIALS = 1000


class RateVerdict(enum.Enum):
    """The verdict on a rate."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"


class Probe(NamedTuple):
    """A trial at a rate, and whether it kept the limit."""

    rate_tps: float
    is_held: bool


class LimitAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The interval and estimate of R*. The interval is at 1 - alpha for all looks together."""

    holds_tps: float | None
    """The highest rate that certainly holds; None if none does yet."""
    fails_tps: float | None
    """The lowest rate that certainly fails; None if none does yet."""
    estimate_tps: float | None
    """The model's median of R*, within the interval; None if R* lies beyond all rates, or no rate was tried."""
    spread_ratio: float
    """The model's standard deviation between the thresholds of trials, as a ratio."""
    alpha: float
    n: int
    """Number of trials at rates."""
    is_settled: bool
    trials_needed: int | None
    """Trials still needed if they vary as before: 0 if settled, None if no affordable number is enough."""

    def judge(self, rate_tps: float) -> RateVerdict:
        """Return the verdict on a rate."""
        if self.holds_tps is not None and rate_tps <= self.holds_tps:
            return RateVerdict.HOLDS
        if self.fails_tps is not None and rate_tps >= self.fails_tps:
            return RateVerdict.FAILS
        return RateVerdict.UNDECIDED


class LimitSearch:
    """A search that takes trials, chooses the next rate, and estimates R*.

    Args:
        rates_tps: All rates that may be tried, in increasing order.
        alpha: One minus the confidence level of the interval.
        resolution_ratio: The wanted distance between the rates that hold and fail; at least two steps of `rates_tps`.
    """

    def __init__(self, rates_tps: Sequence[float], *, alpha: float, resolution_ratio: float) -> None:
        self._rates = tuple(rates_tps)
        self._logs = np.log(np.asarray(rates_tps, dtype=np.float64))
        self._alpha = alpha
        self._width = math.log1p(resolution_ratio)
        self._needed = math.log(2.0 / alpha)
        self._medians = np.linspace(self._logs[0] - _BEYOND, self._logs[-1] + _BEYOND, _MEDIANS)
        # A rate near the capacity is more likely than one far below: the prior is uniform in the rate, not in its
        # logarithm.
        self._log_weights = np.repeat(self._medians[:, None], len(_SPREADS), axis=1)
        self._holds = probability_to_hold(self._medians, self._logs)
        count = len(self._rates)
        self._above, self._below = np.zeros(count), np.zeros(count)
        self._is_above, self._is_below = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self._count = 0
        self._weights = self._normalise_weights()
        self._chances = self._predict()

    def add(self, probe: Probe) -> None:
        """Add a trial at one of the rates.

        Raises:
            ValueError: The trial's rate is none of them.
        """
        at = self._rates.index(probe.rate_tps)
        chance = float(self._chances[at])
        sign = 1.0 if probe.is_held else -1.0
        # A trial is evidence that all rates up to its own hold, or that all rates from its own on fail.
        self._above[: at + 1] += math.log1p(sign * max(0.0, 2.0 * chance - 1.0))
        self._below[at:] += math.log1p(-sign * max(0.0, 1.0 - 2.0 * chance))
        self._is_above |= self._above >= self._needed
        self._is_below |= self._below >= self._needed
        likelihood = self._holds[:, :, at]
        self._log_weights += np.log(likelihood if probe.is_held else 1.0 - likelihood)
        self._count += 1
        self._weights = self._normalise_weights()
        self._chances = self._predict()

    def next_rate(self) -> float | None:
        """Choose the next rate; None if the search is settled."""
        if self._is_settled():
            return None
        first, middle, last = self._quartiles()
        if last - first > _LOCATED * self._width:
            return self._rates[int(np.abs(self._logs - middle).argmin())]
        sides = self._candidate_sides()
        return self._rates[max(sides, key=lambda side: side.speed).at] if sides else None

    def answer(self) -> LimitAnswer:
        """Return the current answer on R*."""
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
        # Rates are rounded for readability: two steps apart is close enough.
        return is_between and (high - low <= 2 or float(self._logs[high] - self._logs[low]) <= self._width)

    def _last_above(self) -> int:
        """Return the index of the last rate up to which all are shown to hold; -1 if not even the first is."""
        return (len(self._rates) if self._is_above.all() else int(self._is_above.argmin())) - 1

    def _first_below(self) -> int:
        """Return the index of the first rate from which on all are shown to fail; the number of rates if not even the last is."""
        return len(self._rates) - (len(self._rates) if self._is_below.all() else int(self._is_below[::-1].argmin()))

    def _normalise_weights(self) -> Floats:
        """Compute the posterior weight of each median and spread."""
        weights = np.exp(self._log_weights - self._log_weights.max())
        return np.asarray(weights / weights.sum(), dtype=np.float64)

    def _predict(self) -> Floats:
        """Predict the probability that the next trial holds, at every rate."""
        return np.asarray(self._weights.ravel() @ self._holds.reshape(-1, len(self._rates)), dtype=np.float64)

    def _quartiles(self) -> tuple[float, float, float]:
        share = np.cumsum(self._weights.sum(axis=1))
        first, middle, last = self._medians[
            np.minimum(np.searchsorted(share, (0.25, 0.5, 0.75)), _MEDIANS - 1)
        ].tolist()
        return first, middle, last

    def _spread(self) -> float:
        """Return the posterior median of the thresholds' spread."""
        return float(_SPREADS[np.searchsorted(np.cumsum(self._weights.sum(axis=0)), 0.5)])

    def _candidate_sides(self) -> list[_Side]:
        """Return for either side the rate nearest to R* at which a trial is informative."""
        chances, (_, middle, _) = self._chances, self._quartiles()
        low, high = self._last_above(), self._first_below()
        below = [k for k in range(low + 1, high) if self._logs[k] <= middle]
        above = [k for k in range(high - 1, low, -1) if self._logs[k] >= middle]
        sides = []
        if below:
            at = self._pick_rate(below, chances, middle, is_shown=low >= 0)
            begin = float(self._logs[low]) if low >= 0 else float(self._logs[0]) - 1.0
            left = max(self._needed - float(self._above[at]), _MIN_NEED)
            sides.append(_Side(at, float(self._logs[at]) - begin, _growth(float(chances[at])), left))
        if above:
            at = self._pick_rate(above, 1.0 - chances, middle, is_shown=high < len(self._rates))
            end = float(self._logs[high]) if high < len(self._rates) else float(self._logs[-1]) + 1.0
            left = max(self._needed - float(self._below[at]), _MIN_NEED)
            sides.append(_Side(at, end - float(self._logs[at]), _growth(float(chances[at])), left))
        return sides

    def _pick_rate(self, towards: list[int], chances: Floats, middle: float, *, is_shown: bool) -> int:
        """Pick the last of these rates that is far enough from R* to be told from it; otherwise the most informative one."""
        worth = _WORTH if is_shown or self._spread() < self._width / 2.0 else _FIRST_WORTH
        fit = [k for k in towards if chances[k] >= worth and abs(self._logs[k] - middle) >= _NEAR * self._width]
        return fit[-1] if fit else max(towards, key=lambda k: float(chances[k]))

    def _count_needed(self) -> int | None:
        """Count the trials until the rates slightly below and above R* are shown, if the model is right about both."""
        _, middle, _ = self._quartiles()
        below = max(0, int(np.searchsorted(self._logs, middle - _NEAR * self._width, side="right")) - 1)
        above = min(len(self._rates) - 1, int(np.searchsorted(self._logs, middle + _NEAR * self._width)))
        sides = ((below, self._above, self._last_above() >= below), (above, self._below, self._first_below() <= above))
        counts = [
            max(self._needed - float(evidence[at]), _MIN_NEED) / _growth(float(self._chances[at]))
            for at, evidence, is_shown in sides
            if not is_shown
        ]
        return max(1, math.ceil(sum(counts))) if sum(counts) <= _MAX_TRIALS else None


class _Side(NamedTuple):
    """A candidate for the next trial: its rate, the gain of the interval, the evidence per trial, and the evidence missing."""

    at: int
    gain: float
    growth: float
    left: float

    @property
    def speed(self) -> float:
        """How much each trial narrows the interval."""
        return self.gain * self.growth / self.left


def probability_to_hold(medians: Floats, logs: Floats) -> Floats:
    """Compute the probability to hold by R*, spread and rate (R* and rate as logarithms): shape (medians, 9, rates).

    It is the probability that a trial keeps the limit.
    """
    from scipy.special import ndtr  # noqa: PLC0415 - only where there is something to search

    steps = (medians[:, None, None] - logs[None, None, :]) / _SPREADS[None, :, None]
    return np.asarray(_LAPSE / 2 + (1.0 - _LAPSE) * ndtr(steps), dtype=np.float64)


def _growth(chance: float) -> float:
    """Compute the expected growth of a log e-value per trial at this probability: ln 2 minus the entropy."""
    rest = 1.0 - chance
    return max(1e-9, math.log(2.0) + chance * math.log(chance) + rest * math.log(rest))

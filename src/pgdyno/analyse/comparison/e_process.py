"""Evidence from pairs that may be looked at after every pair: the Student-t mixture e-process and what follows from it.

A t-test looked at after every pair calls a fifth of identical variants different. The e-process here is a bet against "the
mean log ratio is `null`" that is fair when this is true, whatever the noise's size: it exceeds 1/alpha at any time at
all with a probability of at most alpha. All values of `null` it has not yet lost a bet against make an interval that
holds the truth at all times together (a confidence sequence), so one may stop whenever one has seen enough.

With n pairs, their t statistic against `null`, nu = n - 1, and s = 1 + n g:

    E_n = s^(-1/2) [(1 + t^2 / nu) / (1 + t^2 / (s nu))]^(n/2)

This is the ratio of two marginal likelihoods, with the mean in units of the noise spread as N(0, g) against 0, and the
right-Haar prior 1/sigma in both. g = 3: effects of about 1.7 standard deviations of a pair are sought first, which few
pairs can show; ADR 13 has what that gives and costs.

It rests on the pairs' being independent and roughly normal; `benchmarks/verdicts.py --simulate` says what happens when
they are not. It refuses values that are not finite, and never calls anything faster: that is `verdict.py`.

Sources: Pérez-Ortiz, Lardy, de Heide & Grünwald 2024, "E-statistics, group invariance and anytime-valid testing",
Annals of Statistics 52, doi:10.1214/24-AOS2394; Wang & Ramdas, "Anytime-valid t-tests and confidence sequences for
Gaussian means with unknown variance", arXiv:2310.03722.
"""

from __future__ import annotations

import bisect
import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgdyno.plan.experiment import EFFECT_VARIANCE, least_pairs

MOST_PAIRS = 100_000
"""Beyond this no experiment is worth foretelling."""
_LARGEST = float(np.finfo(np.float64).max)

Floats = NDArray[np.float64]


class IntervalKind(enum.Enum):
    """What stands between `low` and `high`."""

    BOUNDED = "bounded"
    """The intersection of the intervals of all looks so far."""
    UNBOUNDED = "unbounded"
    """Too few pairs: every value is still possible."""
    DRIFTED = "drifted"
    """Intervals of earlier and later looks exclude each other: the effect changed meanwhile, or pairs depend on each
    other. The ends are those of the last look, moved out as far as it takes to touch the intervals of all looks."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """An interval of log ratios. `low` and `high` are None where unbounded; `reason` says why it is not plain."""

    kind: IntervalKind
    low: float | None
    high: float | None
    reason: str | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the pairs of one question say so far.

    Tuples have one member for each look, the first after one pair.
    """

    n: int
    mean: float | None
    """Of the log ratios; None without pairs."""
    sd: float | None
    """Of the log ratios (ddof = 1); None with fewer than two pairs."""
    alpha: float
    log10_e_values: tuple[float, ...]
    """Against a log ratio of 0."""
    intervals: tuple[Interval, ...]
    """At 1 - alpha, for all looks together."""

    @property
    def interval(self) -> Interval:
        """After the last pair."""
        return self.intervals[-1] if self.intervals else _no_interval(0, self.alpha)

    @property
    def strongest_log10_e(self) -> float:
        """The largest e-value so far: its reciprocal is a p-value that holds at any time. 0 without evidence."""
        return max((0.0, *self.log10_e_values))


class ConfidenceSequence(NamedTuple):
    """Intervals after every look, along the last axis; infinite where unbounded, and never low > high."""

    low: Floats
    high: Floats
    is_drifted: NDArray[np.bool_]
    """Where the intersection of the looks is empty."""


def gather_evidence(log_ratios: Sequence[float], *, alpha: float) -> Evidence:
    """The evidence of one question's pairs.

    Args:
        log_ratios: One for each pair, in the order they were measured.
        alpha: One minus the intervals' confidence, in (0, 1).

    Raises:
        ValueError: A log ratio is not finite, or alpha not inside (0, 1).
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    sequence = confidence_sequence(values, alpha)
    n, (_, means, squares) = len(values), _moments(values)
    return Evidence(
        n=n,
        mean=float(means[-1]) if n else None,
        sd=math.sqrt(float(squares[-1]) / (n - 1)) if n > 1 else None,
        alpha=alpha,
        log10_e_values=tuple((log_e_values(values) / math.log(10)).tolist()),
        intervals=tuple(_intervals(sequence, alpha)),
    )


def log_e_values(log_ratios: Floats, null: float = 0.0) -> Floats:
    """Natural logarithm of E_n against the mean `null`, after every pair.

    Without spread (all pairs alike) E_n is the formula's limit: s^((n-1)/2), or s^(-1/2) if they are all `null`.

    Args:
        log_ratios: Pairs along the last axis, any number of sequences.
        null: The mean that is bet against.

    Returns:
        Of the same shape; 0 after one pair, which says nothing.

    Raises:
        ValueError: A log ratio is not finite.
    """
    n, means, squares = _moments(log_ratios)
    between = n * np.square(means - null)
    s = 1.0 + n * EFFECT_VARIANCE
    inner = between / s + squares
    ratio = np.divide(between + squares, inner, out=np.ones_like(inner), where=inner > 0)
    log_e = n / 2 * np.log(ratio) - np.log(s) / 2
    log_e[..., :1] = 0.0
    return log_e


def critical_t2(n: ArrayLike, alpha: ArrayLike) -> Floats:
    """The t^2 from which on E_n >= 1/alpha; infinite where so few pairs cannot show it, however far apart.

    E_n >= 1/alpha is (1 + x) / (1 + x/s) >= c with x = t^2/nu and c = (sqrt(s)/alpha)^(2/n). The left side grows from 1
    to s, so there is a solution if c < s, and it is x = (c - 1) / (1 - c/s).

    Args:
        n: Pairs, 1 or more.
        alpha: In (0, 1); n and alpha are broadcast.

    Raises:
        ValueError: alpha is not inside (0, 1).
    """
    count, level = np.asarray(n, dtype=np.float64), np.asarray(alpha, dtype=np.float64)
    if not ((level > 0) & (level < 1)).all():
        raise ValueError("alpha must lie inside (0, 1)")
    s = 1.0 + count * EFFECT_VARIANCE
    log_c = 2.0 / count * (np.log(s) / 2 - np.log(level))
    left = -np.expm1(log_c - np.log(s))
    critical = np.full(left.shape, np.inf)
    np.divide((count - 1) * np.expm1(log_c), left, out=critical, where=left > 0)
    return critical


def half_width(n: int, alpha: float) -> float:
    """Of the interval of n pairs, in standard deviations of a pair; infinite for too few."""
    return math.sqrt(float(critical_t2(n, alpha)) / n)


def look_intervals(log_ratios: Floats, alpha: ArrayLike) -> tuple[Floats, Floats]:
    """The interval of each look by itself: all means with E_n < 1/alpha. For charts; verdicts rest on all looks.

    Args:
        log_ratios: Pairs along the last axis.
        alpha: In (0, 1); broadcast against log_ratios.

    Raises:
        ValueError: A log ratio is not finite, or alpha not inside (0, 1).
    """
    n, means, squares = _moments(log_ratios)
    # Of a t^2 per degree of freedom, which is what critical_t2 over nu is; after one pair it is infinite by any path.
    critical = critical_t2(n, alpha) / np.maximum(n - 1, 1)
    half = np.full(np.broadcast_shapes(critical.shape, squares.shape), np.inf)
    np.multiply(critical, squares / n, out=half, where=np.isfinite(critical))
    half = np.sqrt(half)
    return means - half, means + half


def confidence_sequence(log_ratios: Floats, alpha: ArrayLike) -> ConfidenceSequence:
    """Intervals that hold the mean at all looks together with a probability of at least 1 - alpha.

    The intersection of the looks so far. Should it be empty, the shortest interval that holds the look's own and touches
    all earlier ones: the same guarantee covers it, and it leaves out 0 only if no look disagrees with another about the
    sign.

    Args:
        log_ratios: Pairs along the last axis.
        alpha: In (0, 1); broadcast against log_ratios.

    Raises:
        ValueError: A log ratio is not finite, or alpha not inside (0, 1).
    """
    own_low, own_high = look_intervals(log_ratios, alpha)
    low, high = np.maximum.accumulate(own_low, axis=-1), np.minimum.accumulate(own_high, axis=-1)
    is_drifted = low > high
    return ConfidenceSequence(
        low=np.where(is_drifted, np.minimum(own_low, high), low),
        high=np.where(is_drifted, np.maximum(own_high, low), high),
        is_drifted=is_drifted,
    )


def count_pairs_until(width: float, *, sd: float, alpha: float, after: int = 0) -> int | None:
    """How many more pairs until the interval reaches no farther than `width` to either side, if `sd` stays as it is.

    The null is rejected when `width` is the mean's distance from it; the variants are equivalent when `width` is the mean's
    distance from the nearer of the bounds.

    Args:
        width: Positive, in log ratios.
        sd: Standard deviation of a pair.
        alpha: One minus the interval's confidence.
        after: Pairs there are already.

    Returns:
        None when MOST_PAIRS in all would not do.
    """
    in_sd = width / sd if sd > 0 else math.inf
    counts = range(after + 1, MOST_PAIRS + 1)
    # Widths only shrink with more pairs of one spread.
    index = bisect.bisect_left(counts, -min(in_sd, _LARGEST), key=lambda n: -half_width(n, alpha))
    return index + 1 if width > 0 and index < len(counts) else None


def smallest_shown_effect(n: int, sd: float, *, alpha: float, power: float = 0.8) -> float | None:
    """The log ratio that n pairs would have shown with probability `power`; None if they can show nothing.

    Against the threshold of this test, not that of a t-test with n planned in advance: to be allowed to look after every
    pair costs something, and `smallest_detectable_effect` would promise what this test does not keep. That an earlier
    look may have shown it is left out, which makes the true probability a little larger.

    Source: t has a noncentral t distribution; Chow, Shao & Wang 2008, Sample Size Calculations in Clinical Research, 3.1.
    """
    from scipy.special import nctdtrinc  # noqa: PLC0415 - only where there is something to estimate

    if n < least_pairs(alpha):
        return None
    return float(nctdtrinc(n - 1, 1 - power, math.sqrt(float(critical_t2(n, alpha))))) / math.sqrt(n) * sd


def _moments(log_ratios: Floats) -> tuple[Floats, Floats, Floats]:
    """After every pair: n, the mean, and the sum of squares around it."""
    if not np.isfinite(log_ratios).all():
        raise ValueError("evidence rests on finite log ratios only; a pair without one is a gap to be named")
    # Around the first pair, so that pairs without spread have exactly none. Squares by Welford's recurrence, which
    # never cancels: Welford 1962, Technometrics 4, doi:10.1080/00401706.1962.10490022.
    first = log_ratios[..., :1]
    around = log_ratios - first
    n = np.arange(1.0, log_ratios.shape[-1] + 1)
    means = np.cumsum(around, axis=-1) / n
    steps = np.zeros_like(around)
    steps[..., 1:] = (n[1:] - 1) / n[1:] * np.square(around[..., 1:] - means[..., :-1])
    return n, means + first, np.cumsum(steps, axis=-1)


def _intervals(sequence: ConfidenceSequence, alpha: float) -> list[Interval]:
    looks = zip(sequence.low.tolist(), sequence.high.tolist(), sequence.is_drifted.tolist(), strict=True)
    return [
        _interval(low, high, is_drifted=is_drifted) if math.isfinite(low) else _no_interval(n, alpha)
        for n, (low, high, is_drifted) in enumerate(looks, start=1)
    ]


def _interval(low: float, high: float, *, is_drifted: bool) -> Interval:
    if is_drifted:
        reason = "the effect changed meanwhile: earlier and later intervals exclude each other"
        return Interval(kind=IntervalKind.DRIFTED, low=low, high=high, reason=reason)
    return Interval(kind=IntervalKind.BOUNDED, low=low, high=high)


def _no_interval(n: int, alpha: float) -> Interval:
    reason = f"{n} of the {least_pairs(alpha)} pairs that an interval takes at the least"
    return Interval(kind=IntervalKind.UNBOUNDED, low=None, high=None, reason=reason)

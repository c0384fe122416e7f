"""Compute evidence that may be inspected after every pair: the Student-t mixture e-process and its confidence sequence.

A t-test repeated after every pair calls a fifth of identical variants different. The e-process is a bet against "the
mean log ratio is `null`" that is fair if the null is true, whatever the size of the noise: the probability that it ever
exceeds 1/alpha is at most alpha. All values of `null` against which the bet has not yet won 1/alpha form an interval,
and all these intervals together hold the truth with probability 1 - alpha (a confidence sequence). So an experiment may
stop at any time.

With n pairs, their t statistic against `null`, nu = n - 1, and s = 1 + n g:

    E_n = s^(-1/2) [(1 + t^2 / nu) / (1 + t^2 / (s nu))]^(n/2)

This is the ratio of two marginal likelihoods: the mean in units of the noise is distributed as N(0, g) in one and is 0
in the other; both have the right-Haar prior 1/sigma. g = 3 puts the weight on effects of about 1.7 standard deviations
of a pair, which few pairs can show; ADR 13 says what that gains and costs.

It assumes that the pairs are independent and roughly normal; `benchmarks/verdicts.py --simulate` shows what happens if
they are not. It rejects values that are not finite, and leaves verdicts to `verdict.py`. From the final look on, intervals
are the intersection with that of the t-test (`final_look.py`), which was made once. No interval is narrower than rounding
allows (`rounding.py`). Where a pair is not what it would have been (`repeats.py`), evidence is the least, and an interval
the widest, that its possible values leave.

Sources: Pérez-Ortiz, Lardy, de Heide & Grünwald 2024, "E-statistics, group invariance and anytime-valid testing",
Annals of Statistics 52, doi:10.1214/24-AOS2394; Wang & Ramdas, "Anytime-valid t-tests and confidence sequences for
Gaussian means with unknown variance", arXiv:2310.03722.
"""

from __future__ import annotations

import bisect
import enum
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgdyno.analyse.comparison.final_look import POWER, is_after_look, t_interval
from pgdyno.plan.experiment import EFFECT_VARIANCE, least_pairs

MAX_PAIRS = 100_000
"""Upper limit of the number of pairs that is ever predicted."""
_LARGEST = float(np.finfo(np.float64).max)

Floats = NDArray[np.float64]


class IntervalKind(enum.Enum):
    """Kinds of confidence intervals."""

    BOUNDED = "bounded"
    """The intersection of the intervals of all looks so far."""
    UNBOUNDED = "unbounded"
    """Too few pairs: every value is still possible."""
    DRIFTED = "drifted"
    """Intervals of earlier and later looks exclude each other: the effect changed meanwhile, or the pairs depend on
    each other. The ends are those of the last look, widened until the interval touches those of all looks."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval of log ratios. `low` and `high` are None if it is unbounded; `reason` says why it is not bounded."""

    kind: IntervalKind
    low: float | None
    high: float | None
    reason: str | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence from the pairs of one question so far.

    Tuples have one element for each look; the first look is after one pair.
    """

    n: int
    mean: float | None
    """Mean of the log ratios; None without pairs."""
    sd: float | None
    """Standard deviation of the log ratios (ddof = 1), with extremes the largest; None with fewer than two pairs."""
    alpha: float
    """One minus the confidence level of each procedure: of the e-process, and of the t-test at the final look."""
    log10_e_values: tuple[float, ...]
    """Logarithms of the e-values against a log ratio of 0."""
    intervals: tuple[Interval, ...]
    """Confidence intervals, valid for all looks together."""
    resolution: float
    """The most by which rounding can have changed a log ratio; no interval reaches less far to either side."""

    @property
    def interval(self) -> Interval:
        """The confidence interval after the last pair."""
        return self.intervals[-1] if self.intervals else _no_interval(0, self.alpha)

    @property
    def strongest_log10_e(self) -> float:
        """The largest e-value so far, as log10; 0 without evidence. Its reciprocal is an anytime-valid p-value."""
        return max((0.0, *self.log10_e_values))


class ConfidenceSequence(NamedTuple):
    """Confidence intervals after every look, along the last axis; infinite where unbounded, and never low > high."""

    low: Floats
    high: Floats
    is_drifted: NDArray[np.bool_]
    """Where the intersection of the looks is empty."""


def gather_evidence(
    log_ratios: Sequence[float],
    *,
    alpha: float,
    looked: int = 0,
    resolution: float = 0.0,
    extremes: Sequence[Sequence[float]] = (),
) -> Evidence:
    """Compute the evidence from one question's pairs.

    Args:
        log_ratios: One for each pair, in the order of measurement.
        alpha: One minus the confidence level of each procedure's intervals, in (0, 1).
        looked: Number of pairs that were there at the final look; 0 without a look.
        resolution: The most by which rounding can have changed a log ratio.
        extremes: What the log ratios may have been otherwise. Each e-value is then the least of the largest so far, each
            interval holds those of all, and the spread is the largest.

    Raises:
        ValueError: A log ratio is not finite, or alpha is not inside (0, 1).
    """
    values = np.array([log_ratios, *extremes], dtype=np.float64)
    low, high, is_drifted = confidence_sequence(values, alpha, looked, resolution)
    sequence = ConfidenceSequence(low.min(axis=0), high.max(axis=0), is_drifted[0])
    n, (_, means, squares), log_e = values.shape[-1], _moments(values), log_e_values(values)
    if extremes:
        log_e = np.maximum.accumulate(log_e, axis=-1)
    return Evidence(
        n=n,
        mean=float(means[0, -1]) if n else None,
        sd=math.sqrt(float(squares[:, -1].max()) / (n - 1)) if n > 1 else None,
        alpha=alpha,
        log10_e_values=tuple((log_e.min(axis=0) / math.log(10)).tolist()),
        intervals=tuple(_intervals(sequence, alpha)),
        resolution=resolution,
    )


def log_e_values(log_ratios: Floats, null: float = 0.0) -> Floats:
    """Compute the natural logarithm of E_n against the mean `null`, after every pair.

    Without spread (all pairs equal) E_n is the limit of the formula: s^((n-1)/2), or s^(-1/2) if all pairs equal
    `null`.

    Args:
        log_ratios: Pairs along the last axis, any number of sequences.
        null: The mean under the null hypothesis.

    Returns:
        An array of the same shape; 0 after one pair, which carries no evidence.

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
    """Compute the t^2 from which on E_n >= 1/alpha; infinite if n pairs cannot reach it, however large the effect.

    E_n >= 1/alpha is (1 + x) / (1 + x/s) >= c with x = t^2/nu and c = (sqrt(s)/alpha)^(2/n). The left side grows from 1
    to s, so there is a solution if c < s, and it is x = (c - 1) / (1 - c/s).

    Args:
        n: Number of pairs, 1 or more.
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


@functools.lru_cache(maxsize=4096)
def half_width(n: int, alpha: float) -> float:
    """Compute the half-width of the interval of n pairs, in standard deviations of a pair; infinite for too few pairs."""
    return math.sqrt(float(critical_t2(n, alpha)) / n)


def look_intervals(log_ratios: Floats, alpha: ArrayLike, resolution: float = 0.0) -> tuple[Floats, Floats]:
    """Compute the interval of each look by itself: all means with E_n < 1/alpha. For charts; verdicts use all looks.

    Args:
        log_ratios: Pairs along the last axis.
        alpha: In (0, 1); broadcast against log_ratios.
        resolution: The least half-width: the most by which rounding can have changed a log ratio.

    Raises:
        ValueError: A log ratio is not finite, or alpha is not inside (0, 1).
    """
    n, means, squares = _moments(log_ratios)
    # The critical t^2 per degree of freedom; after one pair it is infinite in any case.
    critical = critical_t2(n, alpha) / np.maximum(n - 1, 1)
    half = np.full(np.broadcast_shapes(critical.shape, squares.shape), np.inf)
    np.multiply(critical, squares / n, out=half, where=np.isfinite(critical))
    half = np.maximum(np.sqrt(half), resolution)
    return means - half, means + half


def confidence_sequence(
    log_ratios: Floats, alpha: ArrayLike, looked: ArrayLike = 0, resolution: float = 0.0
) -> ConfidenceSequence:
    """Compute intervals that hold the mean at all looks together with a probability of at least 1 - alpha.

    Each is the intersection of the looks so far. If the intersection is empty, it is the shortest interval that
    contains the look's own interval and touches all earlier ones: the same guarantee covers it, and it excludes 0 only
    if all looks agree about the sign.

    From the final look on, the interval of its t-test is one more to intersect with; the probability is then 1 - 2 alpha.

    Args:
        log_ratios: Pairs along the last axis.
        alpha: In (0, 1); broadcast against log_ratios, one for each sequence.
        looked: Number of pairs that were there at the final look, for each sequence; 0 without a look.
        resolution: As for `look_intervals`.

    Raises:
        ValueError: A log ratio is not finite, or alpha is not inside (0, 1).
    """
    own_low, own_high = look_intervals(log_ratios, alpha, resolution)
    low, high = np.maximum.accumulate(own_low, axis=-1), np.minimum.accumulate(own_high, axis=-1)
    if np.any(looked):
        tested_low, tested_high = _t_intervals_from(log_ratios, alpha, looked, resolution)
        low, high = np.maximum(low, tested_low), np.minimum(high, tested_high)
    is_drifted = low > high
    return ConfidenceSequence(
        low=np.where(is_drifted, np.minimum(own_low, high), low),
        high=np.where(is_drifted, np.maximum(own_high, low), high),
        is_drifted=is_drifted,
    )


def count_pairs_until(width: float, *, sd: float, alpha: float, after: int = 0) -> int | None:
    """Count the pairs still needed until the interval's half-width is at most `width`, if `sd` stays the same.

    For a difference, pass the distance of the mean from the null; for equivalence, its distance from the nearer of the
    two equivalence bounds.

    Args:
        width: Positive half-width, in log ratios.
        sd: Standard deviation of a pair.
        alpha: One minus the confidence level of the interval.
        after: Number of pairs measured already.

    Returns:
        None if even MAX_PAIRS pairs in all are too few.
    """
    in_sd = width / sd if sd > 0 else math.inf
    counts = range(after + 1, MAX_PAIRS + 1)
    # For a given spread, more pairs only make the interval narrower.
    index = bisect.bisect_left(counts, -min(in_sd, _LARGEST), key=lambda n: -half_width(n, alpha))
    return index + 1 if width > 0 and index < len(counts) else None


def smallest_shown_effect(n: int, sd: float, *, alpha: float) -> float | None:
    """Compute the log ratio that n pairs would have shown four times in five; None if n pairs can show nothing.

    The threshold is that of this sequential test, not of a t-test with n fixed in advance: looking after every pair
    costs power, so `smallest_tested_effect` would promise too much here. The chance that an earlier look already
    showed the effect is ignored, so the true probability is slightly larger.

    Source: t has a noncentral t distribution; Chow, Shao & Wang 2008, Sample Size Calculations in Clinical Research,
    3.1.
    """
    from scipy.special import nctdtrinc  # noqa: PLC0415 - only where there is something to estimate

    if n < least_pairs(alpha):
        return None
    return float(nctdtrinc(n - 1, 1 - POWER, math.sqrt(float(critical_t2(n, alpha))))) / math.sqrt(n) * sd


def _moments(log_ratios: Floats) -> tuple[Floats, Floats, Floats]:
    """Compute after every pair: n, the mean, and the sum of squares around it."""
    if not np.isfinite(log_ratios).all():
        raise ValueError("evidence rests on finite log ratios only; a pair without one is a gap to be named")
    # Values are taken relative to the first pair, so that equal pairs have a spread of exactly 0. The squares come from
    # Welford's recurrence, which avoids cancellation: Welford 1962, Technometrics 4,
    # doi:10.1080/00401706.1962.10490022.
    first = log_ratios[..., :1]
    around = log_ratios - first
    n = np.arange(1.0, log_ratios.shape[-1] + 1)
    means = np.cumsum(around, axis=-1) / n
    steps = np.zeros_like(around)
    steps[..., 1:] = (n[1:] - 1) / n[1:] * np.square(around[..., 1:] - means[..., :-1])
    return n, means + first, np.cumsum(steps, axis=-1)


def _t_intervals_from(
    log_ratios: Floats, alpha: ArrayLike, looked: ArrayLike, resolution: float
) -> tuple[Floats, Floats]:
    """Return the interval of the final look for every pair from the look on; infinite before."""
    level = np.asarray(alpha, dtype=np.float64)
    low, high = t_interval(log_ratios, looked, level[..., 0] if level.ndim else level, resolution)
    is_over = is_after_look(log_ratios, looked)
    return np.where(is_over, low[..., None], -np.inf), np.where(is_over, high[..., None], np.inf)


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
    reason = f"{n} of at least {least_pairs(alpha)} pairs"
    return Interval(kind=IntervalKind.UNBOUNDED, low=None, high=None, reason=reason)

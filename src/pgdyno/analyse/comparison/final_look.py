"""Test once, at the final look: Student's t-test of a variant's pairs and its interval.

A t-test may look once only, at a number of pairs that no log ratio has chosen; its interval is a third to a half narrower
than that of the e-process, which may look after every pair. `verdict.py` gives each of the two half of the error rate, and
`conduct/runner.py` makes the look (ADR 16).

Pairs without any spread say nothing about their noise: the test is left out, and so it is with too few pairs.

Source: Student 1908, "The probable error of a mean", doi:10.1093/biomet/6.1.1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pgdyno.plan.experiment import LEAST_TESTED_PAIRS

Floats = NDArray[np.float64]

POWER = 0.8
"""Probability with which an effect that is said to be detectable is shown."""
_SMALLEST = float(np.finfo(np.float64).tiny)


class FinalLook(msgspec.Struct, frozen=True, kw_only=True):
    """The t-test that has half of the error rate, made once at the planned end, or still to come."""

    is_made: bool
    """True if the test counts: the look was made, and the variant was not decided before it."""
    n: int | None
    """Number of pairs at the look, or planned for it; None if it is not known, or will not be made."""
    p_value: float | None
    """Two-sided p-value against "no difference"; None if the test is not made, or was left out without spread."""
    detectable_ratio: float | None
    """The smallest effect that the test shows four times in five; None if it is not known."""


class LookPlace(NamedTuple):
    """Number of a variant's pairs at the final look, and the number planned for a look to come; 0 where there is none."""

    looked: int = 0
    planned: int = 0


def is_after_look(log_ratios: Floats, looked: ArrayLike) -> NDArray[np.bool_]:
    """Return after which pairs the final look is over: from its own last pair on; after all, for a sequence without a look.

    Args:
        log_ratios: Pairs along the last axis, any number of sequences.
        looked: Number of pairs that were there at the final look, for each sequence; 0 without a look.
    """
    return np.arange(1, log_ratios.shape[-1] + 1) >= np.asarray(looked)[..., None]


def log_t_test(log_ratios: Floats, looked: ArrayLike) -> Floats:
    """Compute the logarithm of the two-sided p-value against a log ratio of 0; 0 where the test is left out.

    Args:
        log_ratios: Pairs along the last axis, any number of sequences.
        looked: Number of pairs that were there at the final look, for each sequence; 0 without a look.
    """
    from scipy.special import stdtr  # noqa: PLC0415 - only comparisons need it

    n, mean, error, is_tested = _summarise(log_ratios, looked)
    t = np.divide(np.abs(mean), error, out=np.zeros_like(mean), where=is_tested)
    return np.log(np.maximum(np.minimum(2.0 * stdtr(np.maximum(n - 1, 1), -t), 1.0), _SMALLEST))


def t_interval(
    log_ratios: Floats, looked: ArrayLike, alpha: ArrayLike, resolution: float = 0.0
) -> tuple[Floats, Floats]:
    """Compute the interval of the mean at 1 - alpha; infinite where the test is left out.

    Args:
        log_ratios: Pairs along the last axis.
        looked: Number of pairs that were there at the final look, for each sequence; 0 without a look.
        alpha: In (0, 1); broadcast against the sequences.
        resolution: The least half-width: the most by which rounding can have changed a log ratio.
    """
    from scipy.special import stdtrit  # noqa: PLC0415 - only comparisons need it

    n, mean, error, is_tested = _summarise(log_ratios, looked)
    quantile = -stdtrit(np.maximum(n - 1, 1), np.asarray(alpha) / 2)
    half = np.where(is_tested, np.maximum(quantile * error, resolution), np.inf)
    return mean - half, mean + half


def smallest_tested_effect(n: int, sd: float, *, alpha: float) -> float | None:
    """Compute the log ratio that a test of n pairs shows four times in five; None if n pairs are not tested.

    Source: as for `smallest_shown_effect` of `e_process.py`, with the t-test's own threshold.
    """
    from scipy.special import nctdtrinc, stdtrit  # noqa: PLC0415 - only where there is something to estimate

    if n < LEAST_TESTED_PAIRS:
        return None
    return float(nctdtrinc(n - 1, 1 - POWER, -stdtrit(n - 1, alpha / 2))) / math.sqrt(n) * sd


def describe_look(
    log_ratios: Floats, place: LookPlace, *, alpha: float, sd: float | None, resolution: float
) -> FinalLook:
    """Describe a variant's final look: what its test found, or will be able to find.

    Args:
        log_ratios: One for each pair so far, in the order of measurement; a row for all that they may have been.
        place: Where the look was made, or is planned.
        alpha: Level of the test.
        sd: Standard deviation of a pair; None with fewer than two.
        resolution: As for `t_interval`; no smaller effect is shown.
    """
    n = place.looked or place.planned
    detectable = None if sd is None else smallest_tested_effect(n, sd, alpha=alpha)
    log_p = float(log_t_test(log_ratios, place.looked).max()) if place.looked else 0.0
    return FinalLook(
        is_made=place.looked > 0,
        n=n or None,
        p_value=math.exp(log_p) if log_p < 0 else None,
        detectable_ratio=None if detectable is None else math.expm1(max(detectable, resolution)),
    )


def _summarise(log_ratios: Floats, looked: ArrayLike) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Return number, mean and standard error of the pairs at the final look, and whether they are tested."""
    n = np.broadcast_to(np.asarray(looked, dtype=np.float64), log_ratios.shape[:-1])
    is_counted = np.arange(log_ratios.shape[-1]) < n[..., None]
    # Relative to the first pair, equal pairs have a spread of exactly 0.
    first = log_ratios[..., :1]
    around = np.where(is_counted, log_ratios - first, 0.0)
    mean = around.sum(axis=-1) / np.maximum(n, 1)
    squares = np.where(is_counted, np.square(around - mean[..., None]), 0.0).sum(axis=-1)
    error = np.sqrt(squares / np.maximum(n - 1, 1) / np.maximum(n, 1))
    return n, mean + (first[..., 0] if first.shape[-1] else 0.0), error, (n >= LEAST_TESTED_PAIRS) & (error > 0)

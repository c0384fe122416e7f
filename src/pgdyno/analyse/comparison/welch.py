"""Estimate the ratio of two geometric means from independent sets of trials, with Welch's interval.

Use it for figures that were measured at different times: each side has a spread of its own. The interval reflects how
well each side repeated itself. Differences between the two times, such as a busier machine, are not part of it.

Source: Welch 1947, "The generalization of 'Student's' problem when several different population variances are
involved", Biometrika 34, doi:10.1093/biomet/34.1-2.28.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from pgdyno.analyse.estimate import CONFIDENCE, Estimate, t_quantile

# Trials that agree to the last digit come from an enforced limit: any difference between two such sets is real.
_MIN_ERROR = 1e-9
# Logarithms of ratios beyond this carry no information.
_MAX_LOG = 100.0


class LogDifference(NamedTuple):
    """The logarithm of a ratio, its standard error and its degrees of freedom."""

    value: float
    error: float
    degrees: float


def difference_of_logs(first: Estimate, other: Estimate) -> LogDifference:
    """Compute the logarithm of `other` over `first`, both with an interval.

    Raises:
        ValueError: One of them has no interval, or an interval that reaches 0.
    """
    (start, start_error), (end, end_error) = _logs(first), _logs(other)
    variance = start_error**2 + end_error**2
    spread = start_error**4 / (first.n - 1) + end_error**4 / (other.n - 1)
    return LogDifference(
        value=end - start,
        error=max(math.sqrt(variance), _MIN_ERROR),
        degrees=variance**2 / spread if spread else 1.0,
    )


def ratio_of(first: Estimate, other: Estimate) -> Estimate:
    """Estimate `other` over `first`; `n` is the smaller one. The ratio has no interval if one of the two has none."""
    n = min(first.n, other.n)
    plain = Estimate(value=None, low=None, high=None, n=n, unit="ratio")
    if first.value is None or other.value is None or first.value <= 0:
        return msgspec.structs.replace(plain, reason="one of the two has no figure")
    plain = msgspec.structs.replace(plain, value=other.value / first.value)
    if not (_has_logs(first) and _has_logs(other)):
        return msgspec.structs.replace(plain, reason="one of the two has no interval")
    found = difference_of_logs(first, other)
    half = t_quantile(found.degrees, (1 + CONFIDENCE) / 2) * found.error
    # Written so that NaN from an overflow above counts as too far, too.
    if not abs(found.value) + half <= _MAX_LOG:
        return msgspec.structs.replace(plain, reason="too few trials of one of the two")
    return msgspec.structs.replace(plain, low=math.exp(found.value - half), high=math.exp(found.value + half))


def _has_logs(estimate: Estimate) -> bool:
    return estimate.n > 1 and estimate.low is not None and estimate.high is not None and estimate.low > 0


def _logs(estimate: Estimate) -> tuple[float, float]:
    """Recover the logarithm and its standard error from an estimate's interval."""
    if estimate.value is None or estimate.low is None or estimate.high is None or estimate.low <= 0:
        raise ValueError("an estimate without an interval cannot be tested")
    quantile = t_quantile(estimate.n - 1, (1 + estimate.confidence) / 2)
    return math.log(estimate.value), math.log(estimate.high / estimate.low) / 2 / quantile

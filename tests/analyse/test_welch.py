"""Ratios of geometric means against SciPy, their coverage, and what has none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from pgdyno.analyse.comparison.welch import difference_of_logs, ratio_of
from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean, estimate_mean_of_trials

A, B = [100.0, 110.0, 95.0, 104.0], [210.0, 190.0, 205.0]


def of(values: list[float]) -> Estimate:
    return estimate_geometric_mean(values, unit="tps")


def test_interval_and_degrees_are_scipys() -> None:
    expected = scipy.stats.ttest_ind(np.log(B), np.log(A), equal_var=False)
    found = difference_of_logs(of(A), of(B))
    assert found.value / found.error == pytest.approx(expected.statistic)
    assert found.degrees == pytest.approx(expected.df)
    low, high = expected.confidence_interval(0.95)
    ratio = ratio_of(of(A), of(B))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert ratio.n == 3


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    draw = np.random.default_rng(7)
    covered = 0
    for _ in range(2000):
        first, other = draw.lognormal(0.0, 0.1, 4), draw.lognormal(math.log(1.3), 0.03, 6)
        ratio = ratio_of(of(first.tolist()), of(other.tolist()))
        covered += (ratio.low or 0) < 1.3 < (ratio.high or 0)
    assert 0.94 < covered / 2000 < 0.97


def test_what_has_no_interval_has_none_and_says_why() -> None:
    lone = ratio_of(of([100.0]), of(B))
    assert lone.value == pytest.approx(of(B).value / 100.0)  # type: ignore[operator]
    assert (lone.low, lone.high, lone.reason) == (None, None, "one of the two has no interval")
    none = Estimate(value=None, low=None, high=None, n=0, unit="tps", reason="no trials")
    assert (ratio_of(none, of(B)).value, ratio_of(none, of(B)).reason) == (None, "one of the two has no figure")
    zero = estimate_mean_of_trials([0.0, 0.0, 1.0], unit="tps")
    assert ratio_of(zero, of(B)).low is None
    assert ratio_of(estimate_mean_of_trials([0.0, 0.0], unit="tps"), of(B)).value is None
    with pytest.raises(ValueError, match="without an interval"):
        difference_of_logs(none, of(B))


def test_trials_that_agree_to_the_last_digit_leave_no_doubt_and_wild_ones_no_interval() -> None:
    exact = ratio_of(of([100.0, 100.0]), of([50.0, 50.0]))
    assert (exact.low, exact.high) == pytest.approx((0.5, 0.5))
    wild = ratio_of(of([1.0, 1e30]), of([1.0, 1e30]))
    assert (wild.low, wild.reason) == (None, "too few trials of one of the two")

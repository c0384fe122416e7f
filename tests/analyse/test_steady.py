from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.analyse.throughput import truncation_point
from tests.examples import TIMES


def slow_truncation_point(values: np.ndarray, batch: int) -> int:
    """MSER as the papers write it."""
    means = [np.mean(values[i : i + batch]) for i in range(0, len(values) // batch * batch, batch)]
    n = len(means)
    statistics = {}
    for d in range(n // 2 + 1):
        rest = means[d:]
        centre = sum(rest) / (n - d)
        statistics[d] = sum((x - centre) ** 2 for x in rest) / (n - d) ** 2
    return min(statistics, key=lambda d: statistics[d]) * batch


@pytest.mark.parametrize(("length", "batch"), [(50, 5), (63, 5), (300, 5), (30, 3), (12, 1)])
def test_truncation_is_that_of_the_papers(length: int, batch: int) -> None:
    random = np.random.default_rng(length)
    for _ in range(20):
        values = random.normal(100, 10, length)
        values[: length // 5] -= random.uniform(0, 60)
        assert truncation_point(values) == slow_truncation_point(values, batch)


def test_a_slow_beginning_is_left_out() -> None:
    random = np.random.default_rng(2)
    values = random.normal(1000, 20, 120)
    values[:30] *= np.linspace(0.3, 0.95, 30)
    assert 20 <= truncation_point(values) <= 35


def test_never_more_than_half_is_left_out() -> None:
    values = np.concatenate((np.full(90, 10.0), np.full(30, 1000.0))) + np.random.default_rng(1).normal(0, 1, 120)
    assert truncation_point(values) <= 60


def test_a_short_trial_is_kept_whole() -> None:
    assert truncation_point(np.array([5.0, 100.0, 100.0, 101.0, 99.0, 100.0])) == 0


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(-1000, 1000))
@settings(max_examples=20 * TIMES, deadline=None)
def test_scale_and_origin_do_not_matter(seed: int, factor: float, origin: float) -> None:
    values = np.random.default_rng(seed).normal(100, 10, 40)
    values[25:] -= 30
    assert truncation_point(origin + factor * values) == truncation_point(values)


def test_missing_values_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        truncation_point(np.array([1.0, np.nan]))

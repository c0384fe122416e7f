from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgdyno.analyse.steady import describe_shifts, find_steady_part, truncation_point


def correlated(random: np.random.Generator, *, count: int, length: int, phi: float) -> np.ndarray:
    """Stationary AR(1) noise of unit variance, shape (count, length)."""
    innovations = random.normal(size=(count, length + 200))
    noise = np.zeros_like(innovations)
    for t in range(1, noise.shape[1]):
        noise[:, t] = phi * noise[:, t - 1] + innovations[:, t]
    return noise[:, 200:] * np.sqrt(1 - phi**2)


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
    steady = find_steady_part(values)
    assert 20 <= steady.start <= 35
    assert steady.stop == 120
    assert steady.shifts == ()


def test_never_more_than_half_is_left_out() -> None:
    values = np.concatenate((np.full(90, 10.0), np.full(30, 1000.0))) + np.random.default_rng(1).normal(0, 1, 120)
    steady = find_steady_part(values)
    assert steady.start <= 60
    assert steady.shifts
    assert steady.shifts[-1].at == 90


def test_a_short_trial_is_kept_whole_and_not_judged() -> None:
    steady = find_steady_part(np.array([5.0, 100.0, 100.0, 101.0, 99.0, 100.0]))
    assert (steady.start, steady.stop, steady.shifts) == (0, 6, None)
    assert steady.reason == "6 seconds are too few to tell a level shift from noise"


def test_a_shift_is_reported_with_time_and_size() -> None:
    random = np.random.default_rng(4)
    values = random.normal(1000, 30, 180)
    values[120:] *= 0.8
    steady = find_steady_part(values)
    assert steady.shifts is not None
    (shift,) = steady.shifts
    assert abs(shift.at - 120) <= 1
    assert shift.size_ratio == pytest.approx(-0.2, abs=0.02)
    (event,) = describe_shifts(steady, np.arange(180) + 0.5)
    assert event.kind == "level shift"
    assert event.t_s == pytest.approx(120.5, abs=1)
    assert "TPS (-20" in event.text or "TPS (-19" in event.text


def test_two_shifts_are_both_reported() -> None:
    values = np.random.default_rng(6).normal(1000, 20, 240)
    values[80:160] *= 0.7
    steady = find_steady_part(values)
    assert steady.shifts is not None
    assert [shift.at for shift in steady.shifts] == pytest.approx([80, 160], abs=2)
    assert [shift.size_ratio for shift in steady.shifts] == pytest.approx([-0.3, 0.43], abs=0.03)


def test_one_slow_second_is_no_level() -> None:
    values = np.random.default_rng(9).normal(1000, 20, 120)
    values[[50, 90]] = 200
    assert find_steady_part(values).shifts == ()


@pytest.mark.parametrize("phi", [0.5, 0.7, 0.9])
def test_noise_is_rarely_taken_for_a_shift(phi: float) -> None:
    noise = correlated(np.random.default_rng(17), count=250, length=60, phi=phi)
    false_alarms = sum(bool(find_steady_part(1000 + 100 * row).shifts) for row in noise)
    assert false_alarms / 250 <= 0.05


@pytest.mark.parametrize(
    ("length", "phi", "least"), [(60, 0.0, 0.95), (60, 0.5, 0.8), (120, 0.5, 0.95), (120, 0.7, 0.85)]
)
def test_a_step_of_a_fifth_is_seen(length: int, phi: float, least: float) -> None:
    values = 1000 + 50 * correlated(np.random.default_rng(18), count=60, length=length, phi=phi)
    values[:, 2 * length // 3 :] *= 0.8
    assert sum(bool(find_steady_part(row).shifts) for row in values) / 60 >= least


def test_flat_and_exactly_stepped_series_need_no_noise() -> None:
    assert find_steady_part(np.full(60, 500.0)).shifts == ()
    steady = find_steady_part(np.repeat([500.0, 400.0], [40, 20]))
    assert steady.shifts is not None
    assert [(shift.at, shift.before, shift.after) for shift in steady.shifts] == [(40, 500.0, 400.0)]


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(-1000, 1000))
@settings(max_examples=20, deadline=None)
def test_scale_and_origin_do_not_matter(seed: int, factor: float, origin: float) -> None:
    values = np.random.default_rng(seed).normal(100, 10, 40)
    values[25:] -= 30
    plain, moved = find_steady_part(values), find_steady_part(origin + factor * values)
    assert moved.start == plain.start
    assert [s.at for s in moved.shifts or ()] == [s.at for s in plain.shifts or ()]


def test_missing_values_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        find_steady_part(np.array([1.0, np.nan]))

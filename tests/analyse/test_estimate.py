from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgdyno.analyse.estimate import (
    Estimate,
    divide_estimates,
    estimate_geometric_mean,
    estimate_geometric_means,
    estimate_mean_of_trials,
    estimate_over_trials,
    exact_estimate,
    is_too_wide,
    scale_estimate,
)

positive = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=20)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 40])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_mean_is_that_of_scipy(n: int, confidence: float) -> None:
    values = np.random.default_rng(n).normal(100, 10, n)
    found = estimate_mean_of_trials(values.tolist(), unit="tps", confidence=confidence)
    low, high = stats.t.interval(confidence, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert (found.n, found.unit, found.confidence, found.reason) == (n, "tps", confidence, None)


def test_geometric_mean_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).lognormal(3, 0.2, 12)
    found = estimate_geometric_mean(values.tolist(), unit="tps")
    test = stats.ttest_1samp(np.log(values), 0).confidence_interval(0.95)
    assert found.value == pytest.approx(stats.gmean(values))
    assert (found.low, found.high) == pytest.approx((math.exp(test.low), math.exp(test.high)))


@pytest.mark.parametrize("estimate", [estimate_mean_of_trials, estimate_geometric_mean])
def test_one_trial_has_no_interval_and_none_has_no_value(estimate: object) -> None:
    assert estimate([7.0], unit="ms") == Estimate(  # type: ignore[operator]
        value=pytest.approx(7.0), low=None, high=None, n=1, unit="ms", reason="one trial has no interval"
    )
    empty = estimate([], unit="ms")  # type: ignore[operator]
    assert (empty.value, empty.low, empty.high, empty.n, empty.reason) == (None, None, None, 0, "no trials")


def test_values_that_cannot_be_estimated_are_refused() -> None:
    for values in ([1.0, math.nan], [1.0, math.inf]):
        with pytest.raises(ValueError, match="finite"):
            estimate_mean_of_trials(values, unit="tps")
    with pytest.raises(ValueError, match="positive"):
        estimate_geometric_mean([1.0, 0.0], unit="tps")


@given(positive, st.floats(0.01, 100))
def test_geometric_mean_scales_with_its_values(values: list[float], factor: float) -> None:
    plain = estimate_geometric_mean(values, unit="tps")
    scaled = estimate_geometric_mean([factor * value for value in values], unit="tps")
    for name in ("value", "low", "high"):
        assert getattr(scaled, name) == pytest.approx(factor * getattr(plain, name), rel=1e-6)


@given(positive, st.randoms())
def test_order_of_trials_does_not_matter(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for estimate in (estimate_mean_of_trials, estimate_geometric_mean):
        first, second = estimate(values, unit="ms"), estimate(shuffled, unit="ms")
        assert first.value == pytest.approx(second.value)
        assert first.low == pytest.approx(second.low, rel=1e-6, abs=1e-6)


@given(positive)
def test_mean_shifts_with_its_values(values: list[float]) -> None:
    plain = estimate_mean_of_trials(values, unit="ms")
    moved = estimate_mean_of_trials([value + 5 for value in values], unit="ms")
    assert plain.low is not None
    assert moved.low == pytest.approx(plain.low + 5, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    random = np.random.default_rng(20)
    repeats = 4000
    normal = random.normal(50, 5, (repeats, n))
    lognormal = random.lognormal(math.log(50), 0.1, (repeats, n))
    covered = [0, 0]
    for index in range(repeats):
        for kind, found in enumerate(
            (
                estimate_mean_of_trials(normal[index].tolist(), unit="tps"),
                estimate_geometric_mean(lognormal[index].tolist(), unit="tps"),
            )
        ):
            assert found.low is not None
            assert found.high is not None
            covered[kind] += found.low <= 50 <= found.high
    # Three binomial standard errors around 95 %.
    for count in covered:
        assert 0.95 - 0.0104 <= count / repeats <= 0.95 + 0.0104


def test_a_ratio_adds_half_widths_of_logarithms_in_quadrature() -> None:
    part = Estimate(value=100.0, low=80.0, high=125.0, n=4, unit="a")
    whole = Estimate(value=10.0, low=5.0, high=20.0, n=3, unit="b")
    found = divide_estimates(part, whole, unit="c")
    half = math.hypot(math.log(1.25), math.log(2.0))
    assert (found.value, found.low, found.high) == pytest.approx((10.0, 10.0 * math.exp(-half), 10.0 * math.exp(half)))
    assert (found.n, found.unit, found.reason) == (4, "c", None)
    by_known = divide_estimates(part, exact_estimate(2.0, unit="b"), unit="c")
    halved = scale_estimate(part, 0.5, unit="c")
    assert (by_known.value, by_known.low, by_known.high) == pytest.approx((halved.value, halved.low, halved.high))
    assert divide_estimates(exact_estimate(1.0, unit="b"), part, unit="c").n == 4


def test_ratios_hold_the_truth_as_often_as_they_say() -> None:
    draw, repeats, covered = np.random.default_rng(11), 2000, 0
    for _ in range(repeats):
        part, whole = (
            estimate_geometric_mean((level * np.exp(sd * draw.standard_normal(n))).tolist(), unit="tps")
            for level, sd, n in ((50.0, 0.1, 4), (5.0, 0.3, 3))
        )
        found = divide_estimates(part, whole, unit="ratio")
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 10.0 <= found.high
    assert covered / repeats >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / repeats)


def test_a_ratio_without_an_interval_says_why() -> None:
    once = estimate_geometric_mean([100.0], unit="tps")
    many = estimate_geometric_mean([9.0, 11.0], unit="tps")
    for part, whole in ((once, many), (many, once)):
        found = divide_estimates(part, whole, unit="ratio")
        assert found.value is not None
        assert (found.low, found.high, found.reason) == (None, None, "one trial has no interval")
    none = estimate_geometric_mean([], unit="tps")
    assert divide_estimates(none, many, unit="ratio").reason == "no trials"
    below = Estimate(value=1.0, low=-1.0, high=3.0, n=3, unit="tps")
    assert divide_estimates(below, many, unit="ratio").reason == "an interval reaches to 0"
    assert divide_estimates(exact_estimate(0.0, unit="tps"), many, unit="ratio").reason == "it is not above 0"


def test_values_that_agree_to_their_resolution_still_have_a_spread() -> None:
    step = 0.01
    same = estimate_over_trials([5.0, 5.0, 5.0], unit="ms", resolution_ratio=step)
    half = stats.t.ppf(0.975, 2) * step / math.sqrt(12) / math.sqrt(3)
    assert (same.low, same.high) == pytest.approx((5.0 * math.exp(-half), 5.0 * math.exp(half)))
    apart = [4.0, 5.0, 6.0]
    assert estimate_over_trials(apart, unit="ms", resolution_ratio=step) == estimate_over_trials(apart, unit="ms")


def test_groups_whose_noise_is_alike_share_it() -> None:
    groups = [[90.0, 110.0, 100.0], [200.0, 210.0], [55.0]]
    found = estimate_geometric_means(groups)
    logs = [np.log(group) for group in groups]
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in logs)
    for group, values, one in zip(groups, logs, found, strict=True):
        half = stats.t.ppf(0.975, 3) * math.sqrt(squares / 3 / len(group))
        assert one.n == len(group)
        assert (one.value, one.low, one.high) == pytest.approx(
            [math.exp(values.mean() + shift) for shift in (0.0, -half, half)]
        )


def test_groups_of_one_trial_each_have_no_interval() -> None:
    for one in estimate_geometric_means([[100.0], [200.0]]):
        assert (one.low, one.high, one.reason) == (None, None, "one trial has no interval")


@pytest.mark.parametrize("noises", [(0.1, 0.1, 0.1, 0.1, 0.1, 0.1), (0.05, 0.06, 0.08, 0.1, 0.11, 0.12)])
def test_shared_noise_covers_the_truth_of_each_group_on_average(noises: tuple[float, ...]) -> None:
    """Also where it is not quite alike: who is noisier than the others misses more often, who is calmer less."""
    draw, hits = np.random.default_rng(11), []
    for _ in range(1500):
        groups = [np.exp(draw.normal(0, noise, 2)).tolist() for noise in noises]
        hits.append([(one.low or 0.0) <= 1.0 <= (one.high or 0.0) for one in estimate_geometric_means(groups)])
    shares = np.mean(hits, axis=0)
    assert 0.93 < shares.mean() < 0.97
    assert shares.min() > 0.85


def test_two_trials_of_one_round_count_as_one() -> None:
    """Rounds differ by 15 % and trials of one by 4 %, as on the machines of ADR 17: each interval of 95 % is one."""
    draw = np.random.default_rng(1)
    held = []
    for _ in range(2000):
        levels = np.repeat(draw.normal(0, 0.15, 8), 2)
        trials = np.exp(levels + draw.normal(0, 0.04, 16)).tolist()
        estimate = estimate_over_trials(trials, unit="tps", rounds=[number // 2 for number in range(16)])
        assert estimate.n == 8
        assert estimate.low is not None
        assert estimate.high is not None
        held.append(estimate.low <= 1.0 <= estimate.high)
    assert 0.93 <= sum(held) / len(held) <= 0.97
    apart = estimate_over_trials([1.0, None, 4.0, 2.0], unit="tps", rounds=[1, 1, 2, 2], missing="nothing")
    assert (apart.n, apart.value) == (2, pytest.approx(math.sqrt(math.sqrt(8.0))))
    assert apart.reason is not None
    assert apart.reason.startswith("1 of 4 trials: nothing")


def test_two_trials_of_one_round_count_as_one_in_an_arithmetic_mean_too() -> None:
    draw, held = np.random.default_rng(2), []
    for _ in range(2000):
        values = 50.0 + np.repeat(draw.normal(0, 5, 5), 2) + draw.normal(0, 1, 10)
        estimate = estimate_mean_of_trials(values.tolist(), unit="tps", rounds=[number // 2 for number in range(10)])
        assert estimate.n == 5
        assert estimate.low is not None
        assert estimate.high is not None
        held.append(estimate.low <= 50.0 <= estimate.high)
    assert 0.93 <= sum(held) / len(held) <= 0.97
    with_zero = estimate_over_trials([0.0, 2.0, None, 5.0], unit="ms", rounds=[1, 1, 2, 2])
    assert (with_zero.n, with_zero.value) == (2, 3.0)


@pytest.mark.parametrize(
    ("values", "ends", "is_wide"),
    [
        # Student's interval of the first two would begin far below 0.
        ((0.0, 1000.0, 1200.0), (0.0, pytest.approx(2329.5, abs=1.0)), True),
        ((0.0, 5.0), (0.0, pytest.approx(34.3, abs=0.1)), True),
        ((0.0, 0.0, 0.0), (0.0, 0.0), False),
        ((100.0, 101.0, 102.0), (pytest.approx(98.5, abs=0.1), pytest.approx(103.5, abs=0.1)), False),
    ],
)
def test_what_is_never_below_0_has_no_interval_that_is(
    values: tuple[float, ...], ends: tuple[float, float], is_wide: bool
) -> None:
    found = estimate_over_trials(values, unit="tps")
    assert (found.low, found.high) == ends
    assert is_too_wide(found) is is_wide


def test_a_difference_is_never_called_too_wide() -> None:
    assert not is_too_wide(estimate_mean_of_trials([-1.0, 1.0, 2.0], unit="tps"))

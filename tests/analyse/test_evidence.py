from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from pgdyno.analyse.comparison.e_process import (
    IntervalKind,
    confidence_sequence,
    count_pairs_until,
    critical_t2,
    gather_evidence,
    half_width,
    least_pairs,
    log_e_values,
    look_intervals,
    smallest_shown_effect,
)

# Of the effect that is bet on, in units of the noise: g of the formula.
VARIANCE = 3.0

# On a grid, so that the spread is none at all or well above the precision of floats.
log_ratios = st.lists(st.integers(-1000, 1000).map(lambda i: i / 1000), min_size=2, max_size=30)


def marginal_likelihood(values: np.ndarray, spread_of_effect: float | None) -> float:
    """Of normal values under the prior 1/sigma, the mean in units of sigma being N(0, spread^2), or 0 for None."""

    def density(effect: float, log_sigma: float) -> float:
        squares = sum((value / math.exp(log_sigma) - effect) ** 2 for value in values.tolist())
        return math.exp(-squares / 2 - len(values) * (log_sigma + math.log(2 * math.pi) / 2))

    centre = math.log(values.std())
    if spread_of_effect is None:
        return float(integrate.quad(lambda u: density(0.0, u), centre - 6, centre + 8, limit=200)[0])

    def with_prior(effect: float, log_sigma: float) -> float:
        return density(effect, log_sigma) * math.exp(-((effect / spread_of_effect) ** 2) / 2)

    double = integrate.dblquad(with_prior, centre - 6, centre + 8, -12, 12, epsabs=1e-9)[0]
    return float(double / (spread_of_effect * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("values", [[0.9, 1.6], [0.4, 1.1, -0.3, 0.8]])
def test_e_value_is_the_ratio_of_marginal_likelihoods(values: list[float]) -> None:
    array = np.array(values)
    expected = marginal_likelihood(array, math.sqrt(VARIANCE)) / marginal_likelihood(array, None)
    assert math.exp(log_e_values(array)[-1]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 12, 40])
def test_e_value_mixes_noncentral_t_over_effects(n: int) -> None:
    values = np.random.default_rng(n).normal(0.4, 1.0, n)
    t = float(stats.ttest_1samp(values, 0).statistic)
    mixture = integrate.quad(
        lambda effect: (
            stats.nct.pdf(t, n - 1, effect * math.sqrt(n)) * stats.norm.pdf(effect, scale=math.sqrt(VARIANCE))
        ),
        *(-12, 12),
        limit=200,
    )[0]
    assert math.exp(log_e_values(values)[-1]) == pytest.approx(mixture / stats.t.pdf(t, n - 1), rel=1e-6)


def test_many_sequences_at_once_are_each_by_itself_and_each_look_is_the_end_of_its_own() -> None:
    values = np.random.default_rng(3).normal(0.1, 1, (3, 4, 15))
    found = log_e_values(values)
    assert found.shape == values.shape
    for index in np.ndindex(3, 4):
        assert found[index] == pytest.approx(log_e_values(values[index]))
        for n in range(1, 16):
            assert found[index][n - 1] == pytest.approx(log_e_values(values[index][:n])[-1])


@given(log_ratios, st.floats(1e-3, 1e3))
def test_evidence_does_not_depend_on_the_unit(values: list[float], factor: float) -> None:
    array = np.array(values)
    assert log_e_values(array * factor) == pytest.approx(log_e_values(array), rel=1e-6, abs=1e-6)
    low, high = look_intervals(array, 0.05)
    scaled_low, scaled_high = look_intervals(array * factor, 0.05)
    assert scaled_low == pytest.approx(low * factor, rel=1e-6, abs=1e-9 * factor)
    assert scaled_high == pytest.approx(high * factor, rel=1e-6, abs=1e-9 * factor)


@given(log_ratios, st.integers(-1000, 1000).map(lambda i: i / 1000))
def test_evidence_moves_with_its_null(values: list[float], shift: float) -> None:
    array = np.array(values)
    assume(np.ptp(array) > 0)
    moved = log_e_values(array + shift, null=shift)
    # Looks before the first difference have no spread but that of rounding.
    first = int(np.argmax(array != array[0]))
    assert moved[first:] == pytest.approx(log_e_values(array)[first:], rel=1e-6, abs=1e-6)
    sequence, other = confidence_sequence(array, 0.05), confidence_sequence(array + shift, 0.05)
    assert other.low[-1] == pytest.approx(sequence.low[-1] + shift, abs=1e-9)
    assert other.high[-1] == pytest.approx(sequence.high[-1] + shift, abs=1e-9)


@given(log_ratios)
def test_evidence_does_not_know_up_from_down(values: list[float]) -> None:
    array = np.array(values)
    assert log_e_values(-array) == pytest.approx(log_e_values(array))
    one, other = confidence_sequence(array, 0.05), confidence_sequence(-array, 0.05)
    assert one.low == pytest.approx(-other.high)


@given(log_ratios, st.sampled_from([0.3, 0.05, 0.01]))
def test_an_interval_is_never_inside_out_and_only_shrinks_unless_it_drifts(values: list[float], alpha: float) -> None:
    low, high, is_drifted = confidence_sequence(np.array(values), alpha)
    assert (low <= high).all()
    steady = int(np.argmax(is_drifted)) if is_drifted.any() else len(values)
    assert (low[1:steady] >= low[: max(steady - 1, 0)]).all()
    assert (high[1:steady] <= high[: max(steady - 1, 0)]).all()
    own_low, own_high = look_intervals(np.array(values), alpha)
    for n in np.flatnonzero(is_drifted):
        assert low[n] <= own_low[n]
        assert own_high[n] <= high[n]
        assert (own_low[: n + 1] <= high[n]).all()
        assert (low[n] <= own_high[: n + 1]).all()


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.0125])
@pytest.mark.parametrize("n", [6, 9, 30, 200])
def test_interval_holds_the_means_that_have_not_lost(n: int, alpha: float) -> None:
    values = np.random.default_rng(n).normal(0.2, 0.5, n)
    low, high = (ends[-1] for ends in look_intervals(values, alpha))

    def excess(null: float) -> float:
        return float(log_e_values(values, null)[-1] + math.log(alpha))

    centre, reach = float(values.mean()), 100.0
    assert low == pytest.approx(optimize.brentq(excess, centre - reach, centre), rel=1e-9)
    assert high == pytest.approx(optimize.brentq(excess, centre, centre + reach), rel=1e-9)


@pytest.mark.parametrize(("alpha", "least"), [(0.5, 2), (0.05, 4), (0.0125, 5), (0.001, 6), (1e-6, 10)])
def test_few_pairs_show_nothing_however_far_apart(alpha: float, least: int) -> None:
    assert least_pairs(alpha) == least
    far_apart = np.full(least, 50.0) + np.random.default_rng(1).normal(0, 1e-6, least)
    assert log_e_values(far_apart)[-1] > -math.log(alpha) > log_e_values(far_apart)[-2]
    low, high = look_intervals(far_apart, alpha)
    assert np.isinf(low[: least - 1]).all()
    assert np.isinf(high[: least - 1]).all()
    assert np.isfinite([low[-1], high[-1]]).all()
    assert math.isinf(critical_t2(least - 1, alpha))


@pytest.mark.parametrize("alpha", [0.999, 0.5, 0.05, 1e-6])
def test_intervals_shrink_with_every_pair_of_the_same_spread(alpha: float) -> None:
    widths = [half_width(n, alpha) for n in [*range(least_pairs(alpha), 400), 1000, 10_000, 100_000]]
    assert all(after < before for before, after in itertools.pairwise(widths))


def test_pairs_without_spread() -> None:
    alike = np.full(6, 0.1)
    assert np.exp(log_e_values(alike)) == pytest.approx([(1 + VARIANCE * n) ** ((n - 1) / 2) for n in range(1, 7)])
    assert np.exp(log_e_values(alike, null=0.1))[1:] == pytest.approx([(1 + VARIANCE * n) ** -0.5 for n in range(2, 7)])
    evidence = gather_evidence([0.1] * 6, alpha=0.05)
    assert (evidence.sd, evidence.interval.low, evidence.interval.high) == (0.0, 0.1, 0.1)


def test_evidence_of_nothing_and_of_one_pair() -> None:
    nothing, one = gather_evidence([], alpha=0.05), gather_evidence([0.3], alpha=0.05)
    assert (nothing.n, nothing.mean, nothing.sd, nothing.log10_e_values, nothing.strongest_log10_e) == (
        *(0, None, None, ()),
        0.0,
    )
    assert (one.n, one.mean, one.sd, one.log10_e_values) == (1, 0.3, None, (0.0,))
    for evidence, seen in ((nothing, 0), (one, 1)):
        assert evidence.interval.kind is IntervalKind.UNBOUNDED
        assert (evidence.interval.low, evidence.interval.high) == (None, None)
        assert evidence.interval.reason == f"{seen} of at least 4 pairs"


def test_evidence_is_what_scipy_says_of_the_same_pairs() -> None:
    values = np.random.default_rng(4).normal(0.3, 0.2, 12)
    evidence = gather_evidence(values.tolist(), alpha=0.05)
    assert (evidence.mean, evidence.sd) == pytest.approx((values.mean(), values.std(ddof=1)))
    assert evidence.log10_e_values == pytest.approx(log_e_values(values) / math.log(10))
    assert evidence.strongest_log10_e == max(evidence.log10_e_values)
    assert [i.kind for i in evidence.intervals] == [IntervalKind.UNBOUNDED] * 3 + [IntervalKind.BOUNDED] * 9
    assert evidence.interval.low is not None
    # A planned t-test may be surer of itself than one that was looked at after every pair.
    assert evidence.interval.low < stats.ttest_1samp(values, 0).confidence_interval(0.95).low


def test_an_effect_that_changes_is_said_to() -> None:
    random = np.random.default_rng(5)
    values = [*random.normal(0.1, 0.01, 20), *random.normal(0.3, 0.01, 60)]
    interval = gather_evidence(values, alpha=0.05).interval
    assert interval.kind is IntervalKind.DRIFTED
    assert interval.reason is not None
    assert interval.low is not None
    assert interval.high is not None
    assert 0 < interval.low < 0.12 < interval.high - 0.1
    turned = gather_evidence([*values[:20], *(-value for value in values[20:])], alpha=0.05).interval
    assert turned.kind is IntervalKind.DRIFTED
    assert turned.low is not None
    assert turned.high is not None
    assert turned.low < 0 < turned.high


@pytest.mark.parametrize("values", [[1.0, math.nan], [math.inf, 1.0]])
def test_values_that_are_no_evidence_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        gather_evidence(values, alpha=0.05)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_impossible_levels_are_refused(alpha: float) -> None:
    for values in ([0.1, 0.2], []):
        with pytest.raises(ValueError, match="alpha"):
            gather_evidence(values, alpha=alpha)


def test_looking_after_every_pair_is_not_punished() -> None:
    pairs = np.random.default_rng(21).normal(0, 1, (4000, 300))
    is_false = (log_e_values(pairs) >= math.log(20)).any(axis=1)
    # Of the order of the nominal rate, or the test would be too blunt: 3.3 % is what it comes to.
    assert 0.02 < is_false.mean() < 0.05


def test_an_interval_holds_the_truth_when_one_stops_because_of_it() -> None:
    pairs = np.random.default_rng(22).normal(0.3, 1, (4000, 100))
    low, high, _ = confidence_sequence(pairs, 0.05)
    for stops in (low > 0, high - low < 1.2, (low > 0.2) | (high < 0.4)):
        at = np.where(stops.any(axis=1), stops.argmax(axis=1), 99)
        rows = np.arange(len(pairs))
        assert ((low[rows, at] <= 0.3) & (high[rows, at] >= 0.3)).mean() > 0.95
    ever_missed = ((low > 0.3) | (high < 0.3)).any(axis=1)
    assert 0.015 < ever_missed.mean() < 0.05


@pytest.mark.parametrize(("width", "sd", "after"), [(0.05, 0.1, 0), (0.05, 0.1, 12), (0.02, 0.08, 3), (5.0, 0.01, 0)])
def test_pairs_that_are_still_needed(width: float, sd: float, after: int) -> None:
    more = count_pairs_until(width, sd=sd, alpha=0.05, after=after)
    assert more is not None
    assert half_width(after + more, 0.05) * sd <= width
    assert more == 1 or half_width(after + more - 1, 0.05) * sd > width


def test_pairs_that_would_never_do() -> None:
    assert count_pairs_until(0.0, sd=0.1, alpha=0.05) is None
    assert count_pairs_until(-0.1, sd=0.1, alpha=0.05) is None
    assert count_pairs_until(0.001, sd=0.1, alpha=0.05) is None
    assert count_pairs_until(0.001, sd=0.0, alpha=0.05) == 4


@pytest.mark.parametrize("n", [6, 10, 30, 100])
def test_smallest_shown_effect_has_its_power(n: int) -> None:
    effect = smallest_shown_effect(n, 0.05, alpha=0.05)
    assert effect is not None
    pairs = np.random.default_rng(n).normal(effect, 0.05, (4000, n))
    shown = log_e_values(pairs) >= math.log(20)
    assert 0.78 < shown[:, -1].mean() < 0.82
    assert shown[:, -1].mean() <= shown.any(axis=1).mean() < 0.9


def test_too_few_pairs_would_have_shown_nothing() -> None:
    assert smallest_shown_effect(3, 0.01, alpha=0.05) is None
    assert smallest_shown_effect(4, 0.01, alpha=0.05) is not None
    assert smallest_shown_effect(4, 0.01, alpha=0.0125) is None

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pgdyno.analyse.comparison.answers import Comparison, compare
from pgdyno.analyse.comparison.e_process import IntervalKind, confidence_sequence, gather_evidence
from pgdyno.analyse.comparison.final_look import FinalLook, LookPlace, log_t_test, smallest_tested_effect, t_interval
from pgdyno.analyse.comparison.verdict import (
    FamilyState,
    RatioOutcome,
    Verdict,
    VerdictKind,
    compute_states,
    decide_family,
    judge_family,
)
from pgdyno.facts.metrics import Better
from tests.analyse.experiments import build_experiment, build_round
from tests.analyse.test_verdict import pairs, slow_holm

log_ratios = st.lists(st.integers(-1000, 1000).map(lambda n: n / 1000), min_size=4, max_size=15)


def decide(looked: int, planned: int = 0, **family: list[float]) -> dict[str, Verdict]:
    found = decide_family(
        family, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=0.03,
        places={name: LookPlace(looked=looked, planned=planned) for name in family},
    )  # fmt: skip
    return {verdict.variant: verdict for verdict in found}


def look_of(verdict: Verdict) -> FinalLook:
    assert isinstance(verdict.final_look, FinalLook)
    return verdict.final_look


# -- The test --------------------------------------------------------------------------------------------------------


@given(log_ratios)
def test_the_test_is_that_of_scipy(values: list[float]) -> None:
    assume(len(set(values)) > 1)
    array = np.array(values)
    expected = stats.ttest_1samp(array, 0.0)
    assert math.exp(log_t_test(array, len(values))) == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-300)
    low, high = t_interval(array, len(values), 0.02)
    ends = expected.confidence_interval(0.98)
    assert (float(low), float(high)) == (pytest.approx(ends.low, abs=1e-9), pytest.approx(ends.high, abs=1e-9))


@given(values=log_ratios, shift=st.floats(-3, 3), factor=st.sampled_from([0.01, 0.5, 7.0]))
def test_the_interval_moves_and_grows_with_its_pairs(values: list[float], shift: float, factor: float) -> None:
    assume(len(set(values)) > 1)
    array, n = np.array(values), len(values)
    low, high = t_interval(array, n, 0.05)
    moved = t_interval(factor * array + shift, n, 0.05)
    assert moved == (pytest.approx(factor * low + shift, abs=1e-9), pytest.approx(factor * high + shift, abs=1e-9))
    assert float(log_t_test(factor * array, n)) == pytest.approx(float(log_t_test(array, n)), rel=1e-6, abs=1e-9)
    assert t_interval(array[::-1], n, 0.05) == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


@given(values=log_ratios, later=st.lists(st.floats(-5, 5), max_size=5))
def test_pairs_after_the_look_do_not_matter(values: list[float], later: list[float]) -> None:
    n = len(values)
    one, other = np.array(values), np.array([*values, *later])
    assert float(log_t_test(other, n)) == pytest.approx(float(log_t_test(one, n)), rel=1e-9)
    for now, then in zip(t_interval(other, n, 0.05), t_interval(one, n, 0.05), strict=True):
        assert now == pytest.approx(then, rel=1e-9)


@pytest.mark.parametrize(("values", "looked"), [([0.5, 0.4, 0.6], 3), ([0.5] * 8, 8), ([0.5, 0.4, 0.6, 0.5], 0)])
def test_where_no_test_can_be_nothing_is_shown(values: list[float], looked: int) -> None:
    assert float(log_t_test(np.array(values), looked)) == 0.0
    assert tuple(map(float, t_interval(np.array(values), looked, 0.05))) == (-math.inf, math.inf)


def test_sequences_with_looks_of_their_own_are_those_one_by_one() -> None:
    family = np.random.default_rng(5).normal(0.02, 0.05, (3, 20))
    looked = np.array([0, 6, 20])
    together = compute_states(family, beta=0.025, size=3, looked=looked)
    for place, of in enumerate(family):
        alone = compute_states(of, beta=0.025, size=3, looked=int(looked[place]))
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one[place], other)


def test_smallest_tested_effect_has_its_power() -> None:
    effect = smallest_tested_effect(9, 0.05, alpha=0.025)
    assert effect is not None
    drawn = np.random.default_rng(8).normal(effect, 0.05, (20_000, 9))
    assert (log_t_test(drawn, 9) <= math.log(0.025)).mean() == pytest.approx(0.8, abs=0.02)
    assert smallest_tested_effect(3, 0.05, alpha=0.025) is None


# -- Verdicts --------------------------------------------------------------------------------------------------------


def test_the_final_look_decides_what_the_e_process_leaves_open() -> None:
    values = pairs(0.06, 0.05, 8)
    before, after = decide(0, planned=8, variant=values)["variant"], decide(8, variant=values)["variant"]
    assert (before.kind, after.kind) == (VerdictKind.INCONCLUSIVE, VerdictKind.FASTER)
    assert (look_of(before).is_made, look_of(before).n, look_of(before).p_value) == (False, 8, None)
    expected = stats.ttest_1samp(values, 0.0)
    assert (look_of(after).is_made, look_of(after).n) == (True, 8)
    assert look_of(after).p_value == pytest.approx(expected.pvalue)
    ends = expected.confidence_interval(0.975)
    assert (after.low_ratio, after.high_ratio) == (
        pytest.approx(math.expm1(ends.low)),
        pytest.approx(math.expm1(ends.high)),
    )
    # What is planned can be told before, and is what is found if the spread stays the same.
    assert after.detectable_ratio == look_of(before).detectable_ratio == look_of(after).detectable_ratio
    assert before.detectable_ratio is not None
    assert after.detectable_ratio is not None
    assert after.detectable_ratio < before.detectable_ratio
    assert (before.confidence, before.sequential_alpha, before.looked) == (0.95, pytest.approx(0.025), 0)
    assert (after.confidence, after.sequential_alpha, after.looked) == (0.95, pytest.approx(0.025), 8)


def test_without_a_place_the_rule_is_that_of_before() -> None:
    values = pairs(0.2, 0.05, 20)
    (old,) = decide_family({"variant": values}, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=0.03)
    new = decide(0, variant=values)["variant"]
    wide, narrow = (gather_evidence(values, alpha=alpha).interval for alpha in (0.025, 0.05))
    assert (old.sequential_alpha, old.looked) == (pytest.approx(0.05), 0)
    for verdict, interval in ((old, narrow), (new, wide)):
        assert interval.low is not None
        assert verdict.low_ratio == pytest.approx(math.expm1(interval.low))


def test_a_question_without_an_interval_says_which_pair_gives_the_first() -> None:
    (alone,) = decide_family({"variant": [0.1]}, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=0.03)
    assert alone.reason == "1 of at least 4 pairs"
    # The final look gives an interval where it comes before the first of the e-process.
    family = {name: [0.1] for name in ("a", "b")}
    assert decide(0, planned=4, **family)["a"].reason == "1 of 4 planned pairs"
    assert decide(0, planned=20, **family)["a"].reason == "1 of at least 5 pairs"
    assert decide(0, planned=4, variant=[0.1] * 20)["variant"].reason is None


@given(st.integers(0, 2**31), st.integers(4, 12), st.integers(0, 12))
def test_the_look_is_as_it_was_after_more_pairs(seed: int, looked: int, more: int) -> None:
    values = np.random.default_rng(seed).normal(0.02, 0.05, looked + more).tolist()
    then, later = decide(looked, variant=values[:looked])["variant"], decide(looked, variant=values)["variant"]
    assert look_of(later).p_value == pytest.approx(look_of(then).p_value)
    evidence = gather_evidence(values, alpha=0.025, looked=looked)
    low, high = (float(end) for end in t_interval(np.array(values), looked, 0.025))
    assert evidence.intervals[looked - 2] == gather_evidence(values[: looked - 1], alpha=0.025).interval
    if evidence.interval.kind is IntervalKind.BOUNDED:
        # Later intervals are within that of the look.
        assert evidence.interval.low is not None
        assert evidence.interval.high is not None
        assert low - 1e-9 <= evidence.interval.low <= evidence.interval.high <= high + 1e-9


def test_an_effect_that_turned_after_the_look_is_not_called_either_way() -> None:
    values = [*pairs(0.1, 0.02, 8), *pairs(-0.4, 0.02, 60)]
    turned = decide(8, variant=values)["variant"]
    assert turned.kind is VerdictKind.INCONCLUSIVE
    assert turned.reason is not None
    sequence = confidence_sequence(np.array(values), 0.025, 8)
    assert (sequence.low <= sequence.high).all()


@given(st.lists(st.tuples(st.floats(-0.2, 0.2), st.integers(0, 9)), min_size=1, max_size=5), st.integers(0, 1000))
def test_holm_takes_the_smaller_of_both_p_values(means: list[tuple[float, int]], seed: int) -> None:
    draw = np.random.default_rng(seed)
    family = {f"v{i}": draw.normal(mean, 0.05, n).tolist() for i, (mean, n) in enumerate(means)}
    found = decide_family(
        family, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=1e-9,
        places={name: LookPlace(looked=len(values)) for name, values in family.items()},
    )  # fmt: skip
    smaller = []
    for values in family.values():
        by_e = 10.0 ** -gather_evidence(values, alpha=0.5).strongest_log10_e
        smaller.append(min(by_e, stats.ttest_1samp(values, 0.0).pvalue if len(values) >= 4 else 1.0))
    # Half of the error rate for each of the two.
    assert [verdict.is_decided for verdict in found] == slow_holm(smaller, 0.025)


def test_families_keep_their_error_rate_at_before_and_after_the_final_look() -> None:
    random = np.random.default_rng(29)
    levels = random.normal(0, 0.05, (3000, 6, 30))
    family = levels[:, 2:] - levels[:, :2].mean(axis=1, keepdims=True)

    def ever(truth: list[float], outcomes: tuple[RatioOutcome, ...], looked: int) -> float:
        moved = compute_states(family + np.array(truth)[:, None], beta=0.025, size=4, looked=looked)
        found = judge_family(
            FamilyState(*(np.moveaxis(part, 1, 2) for part in moved)), beta=0.025, delta_ratio=0.03
        ).outcome
        return float(np.isin(found, outcomes).any(axis=(1, 2)).mean())

    # A standard error is 0.4 %.
    for looked in (6, 12, 30):
        assert 0.015 < ever([0.0] * 4, (RatioOutcome.HIGHER, RatioOutcome.LOWER), looked) < 0.05
        assert ever([math.log(1.031)] * 4, (RatioOutcome.EQUIVALENT,), looked) < 0.05


# -- Rounds ----------------------------------------------------------------------------------------------------------


def answer(rounds: int, looks: dict[str, int], *, left_out_from: int = 1000) -> Comparison:
    """Rounds of two trials each; from a round on, C is no longer part of them."""
    draw = np.random.default_rng(4)
    made = []
    for number in range(1, rounds + 1):
        values = {
            name: [{"tps": 1000 * math.exp(draw.normal(0, 0.02))} for _ in range(2 if name == "A" else 1)]
            for name in "ABC"
        }
        values["B"] = [{"tps": 1.05 * values["B"][0]["tps"]}]
        if number >= left_out_from:
            del values["C"]
        one = build_round(number, values)
        made.append(type(one)(trial=2 * number - 1, at_s=one.at_s, length_s=one.length_s, values=one.values))
    experiment = build_experiment("A", "B", "C")
    (found,) = compare(
        {"w": made}, experiment, primary={"w": "tps"}, metrics=("tps",), final_looks=looks, planned_rounds={"w": 9}
    )
    return found


def test_the_look_counts_the_rounds_up_to_its_last_trial() -> None:
    assert [look_of(q.verdict).n for q in answer(7, {}).questions] == [9, 9]
    assert not any(look_of(q.verdict).is_made for q in answer(7, {}).questions)
    # What C lacks of a round it never gets; the latest may be under way.
    assert [look_of(q.verdict).n for q in answer(7, {}, left_out_from=6).questions] == [9, 8]
    first, later = answer(7, {"w": 14}), answer(12, {"w": 14})
    assert [look_of(q.verdict).n for q in first.questions] == [7, 7]
    assert [q.verdict.n for q in later.questions] == [12, 12]
    for then, now in zip((*first.questions, *first.noise), (*later.questions, *later.noise), strict=True):
        assert (look_of(now.verdict).n, look_of(now.verdict).p_value) == (7, look_of(then.verdict).p_value)


def test_a_variant_that_was_decided_before_the_look_is_left_out_of_it() -> None:
    b, c = answer(9, {"w": 18}, left_out_from=6).questions
    assert (look_of(b.verdict).is_made, look_of(b.verdict).n) == (True, 9)
    assert (look_of(c.verdict).is_made, look_of(c.verdict).n, c.verdict.n) == (False, None, 5)
    # One that left only after the look is part of it.
    c = answer(9, {"w": 18}, left_out_from=1000).questions[1]
    later = answer(12, {"w": 18}, left_out_from=10).questions[1]
    assert look_of(later.verdict).p_value == look_of(c.verdict).p_value

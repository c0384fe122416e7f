from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.comparison.e_process import gather_evidence
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
from tests.rows import each_row

BOUND = math.log1p(0.03)


def pairs(mean: float, sd: float, n: int, seed: int = 1) -> list[float]:
    """Log ratios with exactly this mean and spread."""
    values = np.random.default_rng(seed).normal(0, 1, n)
    return (mean + sd * (values - values.mean()) / values.std(ddof=1)).tolist()


def decide(**log_ratios: list[float]) -> dict[str, Verdict]:
    found = decide_family(log_ratios, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=0.03)
    return {verdict.variant: verdict for verdict in found}


def slow_holm(p_values: list[float], alpha: float) -> list[bool]:
    """Holm 1979, as written: the smallest against alpha/m, and on until one fails."""
    rejected = [False] * len(p_values)
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[index] > alpha / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected


@given(st.lists(st.floats(-8, 0), min_size=1, max_size=7))
def test_holm_is_that_of_the_paper(log_p: list[float]) -> None:
    size = len(log_p)
    above = np.ones((size, size))
    family = FamilyState(np.array(log_p), above, above * 2)
    outcome, step = judge_family(family, beta=0.05, delta_ratio=0.03)
    rejected = slow_holm([math.exp(p) for p in log_p], 0.05)
    assert [o == RatioOutcome.HIGHER for o in outcome] == rejected
    assert sorted(step[outcome == RatioOutcome.HIGHER]) == list(range(sum(rejected)))
    assert not step[outcome == RatioOutcome.OPEN].any()


def test_holm_by_hand() -> None:
    # 0.05 over 4, 3, 2, 1: 0.0125, 0.0167, 0.025, 0.05. The third fails, and so the fourth, though it is below 0.05.
    p_values = np.array([0.04, 0.012, 0.03, 0.016])
    above = np.ones((4, 4))
    outcome, step = judge_family(FamilyState(np.log(p_values), above, above * 2), beta=0.05, delta_ratio=0.03)
    assert outcome.tolist() == [RatioOutcome.OPEN, RatioOutcome.HIGHER, RatioOutcome.OPEN, RatioOutcome.HIGHER]
    assert step.tolist() == [0, 0, 0, 1]


@each_row(
    [
        (0.001, 0.05, 0.09, RatioOutcome.HIGHER),
        (0.001, -0.09, -0.05, RatioOutcome.LOWER),
        (0.001, 0.001, 0.09, RatioOutcome.HIGHER),
        (0.001, 0.01, 0.02, RatioOutcome.EQUIVALENT),
        (0.001, -0.02, -0.01, RatioOutcome.EQUIVALENT),
        (0.001, -BOUND, BOUND, RatioOutcome.EQUIVALENT),
        (0.001, -0.01, 0.08, RatioOutcome.OPEN),
        (0.5, -0.02, 0.02, RatioOutcome.EQUIVALENT),
        (0.5, -0.05, 0.02, RatioOutcome.OPEN),
        (0.5, -0.02, 0.05, RatioOutcome.OPEN),
        (0.5, -math.inf, math.inf, RatioOutcome.OPEN),
        (0.06, 0.01, 0.05, RatioOutcome.OPEN),
    ]
)
def test_which_verdict_comes_first(p_value: float, low: float, high: float, outcome: RatioOutcome) -> None:
    family = FamilyState(np.log([p_value]), np.array([[low]]), np.array([[high]]))
    assert judge_family(family, beta=0.05, delta_ratio=0.03).outcome.tolist() == [outcome]


@pytest.mark.parametrize(
    ("better", "above", "below"),
    [
        (Better.HIGHER, VerdictKind.FASTER, VerdictKind.SLOWER),
        (Better.LOWER, VerdictKind.SLOWER, VerdictKind.FASTER),
        (Better.NONE, VerdictKind.MORE, VerdictKind.LESS),
    ],
)
def test_words_follow_the_metric(better: Better, above: VerdictKind, below: VerdictKind) -> None:
    family = {"up": pairs(0.2, 0.05, 20), "down": pairs(-0.2, 0.05, 20), "same": pairs(0.0, 0.02, 60)}
    found = decide_family(family, metric="m", better=better, alpha=0.05, delta_ratio=0.03)
    assert [(v.variant, v.kind, v.metric) for v in found] == [
        ("up", above, "m"),
        ("down", below, "m"),
        ("same", VerdictKind.EQUIVALENT, "m"),
    ]
    assert all(verdict.is_decided and verdict.pairs_needed == 0 for verdict in found)


def test_a_verdict_shows_what_it_rests_on() -> None:
    values = pairs(0.2, 0.05, 20)
    verdict = decide(variant=values)["variant"]
    evidence = gather_evidence(values, alpha=0.05)
    assert evidence.interval.low is not None
    assert evidence.interval.high is not None
    assert (verdict.n, verdict.confidence, verdict.delta_ratio, verdict.reason) == (20, 0.95, 0.03, None)
    assert verdict.effect_ratio == pytest.approx(math.exp(0.2) - 1)
    assert (verdict.low_ratio, verdict.high_ratio) == pytest.approx(
        (math.exp(evidence.interval.low) - 1, math.exp(evidence.interval.high) - 1)
    )
    assert verdict.log10_e_value == evidence.strongest_log10_e > math.log10(20)


def test_a_small_sure_difference_is_equivalent_and_its_interval_says_so() -> None:
    verdict = decide(variant=pairs(0.01, 0.005, 40))["variant"]
    assert verdict.kind is VerdictKind.EQUIVALENT
    assert verdict.log10_e_value > math.log10(20)
    assert verdict.low_ratio is not None
    assert 0 < verdict.low_ratio < 0.01


def test_equivalence_reads_the_same_from_either_side() -> None:
    # The interval of the second ends just below -2.91 %, which is 1/1.03 - 1, and is not equivalent to within 3 %.
    for mean, kind in ((BOUND - 0.0101, VerdictKind.EQUIVALENT), (BOUND - 0.0089, VerdictKind.INCONCLUSIVE)):
        sd = 0.01 / (gather_evidence(pairs(0, 1.0, 50), alpha=0.05).interval.high or 0)
        up, down = decide(variant=pairs(mean, sd, 50)), decide(variant=[-x for x in pairs(mean, sd, 50)])
        assert (up["variant"].kind is VerdictKind.EQUIVALENT) == (down["variant"].kind is VerdictKind.EQUIVALENT)
        assert (up["variant"].kind is VerdictKind.EQUIVALENT) == (kind is VerdictKind.EQUIVALENT)


def test_intervals_have_the_level_of_their_verdict() -> None:
    found = decide(
        clear=pairs(0.5, 0.05, 20),
        same=pairs(0.0, 0.02, 80),
        open=pairs(0.02, 0.2, 20),
        second=pairs(-0.3, 0.05, 20),
        never_ran=[],
    )
    assert {variant: (v.kind, round(v.confidence, 6)) for variant, v in found.items()} == {
        "clear": (VerdictKind.FASTER, 0.99),
        "same": (VerdictKind.EQUIVALENT, 0.99),
        "open": (VerdictKind.INCONCLUSIVE, 0.99),
        "second": (VerdictKind.SLOWER, 0.9875),
        "never_ran": (VerdictKind.INCONCLUSIVE, 0.99),
    }


def test_a_variant_that_gave_nothing_still_counts() -> None:
    # Enough for one comparison, not for one of two.
    values = next(
        values
        for n in range(5, 40)
        if math.log10(20)
        < gather_evidence(values := pairs(0.05, 0.05, n), alpha=0.05).strongest_log10_e
        < math.log10(40)
    )
    alone, beside = decide(variant=values)["variant"], decide(variant=values, failed=[])
    assert alone.kind is VerdictKind.FASTER
    assert beside["variant"].kind is VerdictKind.INCONCLUSIVE
    failed = beside["failed"]
    assert (failed.n, failed.effect_ratio, failed.low_ratio, failed.high_ratio) == (0, None, None, None)
    assert (failed.pairs_needed, failed.detectable_ratio) == (None, None)
    assert failed.reason == "0 of at least 4 pairs"


def test_an_open_question_says_what_it_would_take() -> None:
    for mean in (0.0, 0.01, 0.025, 0.06):
        verdict = decide(variant=pairs(mean, 0.08, 12))["variant"]
        assert verdict.kind is VerdictKind.INCONCLUSIVE
        assert verdict.pairs_needed is not None
        assert verdict.detectable_ratio is not None
        assert verdict.detectable_ratio > 0.06
        settled, short = (
            gather_evidence(pairs(mean, 0.08, 12 + more), alpha=0.05)
            for more in (verdict.pairs_needed, verdict.pairs_needed - 1)
        )
        # Of the last look alone, for which mean and spread are as they were.
        for evidence, is_settled in ((settled, True), (short, False)):
            reach = _last_reach(evidence.n, 0.08)
            assert (mean - reach >= 0 or mean + reach <= BOUND) is is_settled


def _last_reach(n: int, sd: float) -> float:
    """Half of the interval of n pairs with that spread, from the formula of E_n by bisection."""
    near, far = 0.0, 100.0
    for _ in range(200):
        x = (near + far) / 2
        t2, s, nu = n * (x / sd) ** 2, 1 + 3 * n, n - 1
        log_e = -math.log(s) / 2 + n / 2 * math.log((1 + t2 / nu) / (1 + t2 / (s * nu)))
        near, far = (x, far) if log_e < math.log(20) else (near, x)
    return far


def test_questions_that_cannot_be_foretold() -> None:
    one = decide(variant=[0.4])["variant"]
    assert (one.pairs_needed, one.detectable_ratio, one.low_ratio) == (None, None, None)
    assert one.effect_ratio == pytest.approx(math.exp(0.4) - 1)
    # Right on the bound of equivalence, and so close to nothing that 100,000 pairs would not tell.
    far = decide_family(
        {"variant": pairs(0.0, 0.5, 20)}, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=0.001
    )[0]
    assert (far.kind, far.pairs_needed) == (VerdictKind.INCONCLUSIVE, None)


def test_an_effect_that_turned_is_not_called_either_way() -> None:
    turned = decide(variant=[*pairs(0.1, 0.01, 20), *pairs(-0.3, 0.01, 60)])["variant"]
    assert (turned.kind, turned.pairs_needed) == (VerdictKind.INCONCLUSIVE, None)
    assert turned.reason is not None
    assert "changed" in turned.reason
    grown = decide(variant=[*pairs(0.1, 0.01, 20), *pairs(0.3, 0.01, 60)])["variant"]
    assert grown.kind is VerdictKind.FASTER
    assert grown.reason == turned.reason


@given(st.lists(st.lists(st.floats(-0.5, 0.5), max_size=12), min_size=1, max_size=4))
def test_every_verdict_agrees_with_its_interval(family: list[list[float]]) -> None:
    for verdict in decide(**{f"arm{i}": values for i, values in enumerate(family)}).values():
        if verdict.low_ratio is None:
            assert verdict.kind is VerdictKind.INCONCLUSIVE
            assert verdict.reason is not None
            continue
        assert verdict.high_ratio is not None
        assert verdict.effect_ratio is not None
        assert verdict.low_ratio <= verdict.effect_ratio <= verdict.high_ratio
        is_inside = verdict.low_ratio + 1e-12 >= 1 / 1.03 - 1 and verdict.high_ratio <= 0.03 + 1e-12
        assert is_inside == (verdict.kind is VerdictKind.EQUIVALENT)
        if verdict.kind is VerdictKind.FASTER:
            assert verdict.low_ratio > 0
        if verdict.kind is VerdictKind.SLOWER:
            assert verdict.high_ratio < 0


def test_verdicts_at_every_look_are_those_of_families_that_ended_there() -> None:
    random = np.random.default_rng(6)
    family = random.normal([[0.0], [0.05], [-0.08]], 0.05, (3, 25))
    looks = FamilyState(*(np.moveaxis(part, 0, 1) for part in compute_states(family, beta=0.05, size=3)))
    outcomes = judge_family(looks, beta=0.05, delta_ratio=0.03).outcome
    kinds = {
        RatioOutcome.LOWER: VerdictKind.SLOWER,
        RatioOutcome.HIGHER: VerdictKind.FASTER,
        RatioOutcome.EQUIVALENT: VerdictKind.EQUIVALENT,
        RatioOutcome.OPEN: VerdictKind.INCONCLUSIVE,
    }
    for n in range(1, 26):
        found = decide(**{f"arm{i}": family[i, :n].tolist() for i in range(3)})
        assert [v.kind for v in found.values()] == [kinds[RatioOutcome(o)] for o in outcomes[n - 1]]
    assert {RatioOutcome(o) for o in outcomes[-1]} >= {RatioOutcome.LOWER}


def test_families_keep_their_error_rate_whenever_one_stops() -> None:
    random = np.random.default_rng(23)
    # Four variants against the same reference, which is measured twice in each round.
    levels = random.normal(0, 0.05, (2000, 6, 60))
    family = levels[:, 2:] - levels[:, :2].mean(axis=1, keepdims=True)

    def ever(truth: list[float], outcomes: tuple[RatioOutcome, ...], variants: slice) -> float:
        moved = compute_states(family + np.array(truth)[:, None], beta=0.05, size=4)
        found = judge_family(
            FamilyState(*(np.moveaxis(part, 1, 2) for part in moved)), beta=0.05, delta_ratio=0.03
        ).outcome
        return float(np.isin(found[:, :, variants], outcomes).any(axis=(1, 2)).mean())

    assert 0.01 < ever([0.0] * 4, (RatioOutcome.HIGHER, RatioOutcome.LOWER), slice(None)) < 0.05
    # Variants that surely differ leave the last one a whole alpha, and no more.
    assert 0.01 < ever([0.3, 0.3, 0.3, 0.0], (RatioOutcome.HIGHER, RatioOutcome.LOWER), slice(3, 4)) < 0.05
    assert ever([0.03] * 4, (RatioOutcome.EQUIVALENT,), slice(None)) < 0.05


def test_nothing_planned_is_nothing_to_say() -> None:
    assert decide() == {}


@pytest.mark.parametrize("delta", [0.0, -0.1, math.nan])
def test_impossible_bounds_are_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        decide_family({"a": [0.1]}, metric="tps", better=Better.HIGHER, alpha=0.05, delta_ratio=delta)

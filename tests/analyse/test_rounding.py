"""Pairs of rounded values: intervals hold the truth although equal values hide what differs, and identical variants stay so."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.comparison.answers import INIT_METRICS, Question, compare
from pgdyno.analyse.comparison.e_process import confidence_sequence
from pgdyno.analyse.comparison.rounding import Rounding, find_pair_change
from pgdyno.analyse.comparison.rounds import rounds_of_slices, rounds_of_trials
from pgdyno.analyse.comparison.verdict import FamilyState, RatioOutcome, VerdictKind, compute_states, judge_family
from tests.analyse.experiments import build_experiment, build_rounds
from tests.analyse.test_rounds import build_block, build_trial

STEP_S = Rounding(step=0.01)


def ask(metric: str = "init_vacuum_s", **variants: list[float | tuple[float, ...]]) -> Question:
    """The question about seconds of loading, which pgbench prints to 10 ms, after the final look."""
    rounds = [
        msgspec.structs.replace(one, rounding={metric: STEP_S})
        for one in build_rounds(metric, **variants)  # type: ignore[arg-type]
    ]
    (comparison,) = compare(
        {"w": rounds}, build_experiment("A", "B"), primary={"w": metric}, metrics=(metric,), final_looks={"w": 1}
    )
    return comparison.questions[0]


def test_rounding_changes_no_pair_by_more_than_its_bound() -> None:
    random = np.random.default_rng(1)
    for _ in range(1000):
        sides = [random.uniform(0.02, 0.2, count).tolist() for count in (2, 1)]
        rounded = [[max(round(value, 2), 0.01) for value in side] for side in sides]
        base, other = (np.mean(np.log(now)) - np.mean(np.log(true)) for now, true in zip(rounded, sides, strict=True))
        assert abs(other - base) <= find_pair_change(STEP_S, *rounded) + 1e-12
    assert find_pair_change(None, [1.0], [2.0]) == 0.0
    # A bucket of a histogram grows with its values, as far as whole microseconds are smaller.
    bucket = Rounding(step=0.001, ratio=0.01)
    assert bucket.find_change(5.0) == bucket.find_change(0.2) == pytest.approx(0.005, rel=0.01)
    assert bucket.find_change(0.02) == pytest.approx(0.025, rel=0.02)


def test_figures_whose_values_are_rounded_alike_have_an_interval() -> None:
    """As wide as that of values which are spread evenly over a step of 10 ms; that of a metric without rounding has no width."""
    rounds = build_rounds("init_vacuum_s", A=[(0.25, 0.25)] * 4, B=[0.25] * 4)
    seen = {}
    for name, rounding in (("rounded", {"init_vacuum_s": STEP_S}), ("exact", {})):
        of = [msgspec.structs.replace(one, rounding=rounding) for one in rounds]
        (comparison,) = compare(
            {"w": of}, build_experiment("A", "B"), primary={"w": "init_vacuum_s"}, metrics=("init_vacuum_s",)
        )
        seen[name] = [one.estimates["init_vacuum_s"] for one in comparison.figures]
    half = 3.182 * 0.01 / 0.25 / math.sqrt(12) / math.sqrt(4)
    for estimate in seen["rounded"]:
        assert estimate.low == pytest.approx(0.25 * math.exp(-half), rel=1e-3)
        assert estimate.high == pytest.approx(0.25 * math.exp(half), rel=1e-3)
    assert all((one.low, one.high) == (0.25, 0.25) for one in seen["exact"])


def test_values_come_with_their_rounding() -> None:
    slices = rounds_of_slices(*build_block(1), trial=1, sampling_rate=1.0)[0].rounding
    assert slices["latency_p50_ms"] == Rounding(step=0.001)
    trials = [build_trial(n, variant) for n, variant in enumerate("ABA", start=1)]
    paired = rounds_of_trials(trials, cpu_count=2.0)[0].rounding
    assert paired["latency_p99_ms"] == Rounding(step=0.001, ratio=2.0**-7)
    assert [name for name in INIT_METRICS if name not in paired] == ["init_checkpoint_s"]
    live = [msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, slice_s=0.5)) for one in trials]
    assert rounds_of_trials(live, cpu_count=2.0)[0].rounding == slices


def test_what_rounding_can_do_is_no_difference_and_what_it_cannot_do_is() -> None:
    # 0.2549 and 0.2551 are printed so.
    close = ask(A=[(0.25, 0.25)] * 12, B=[0.26] * 12)
    assert close.verdict.kind is VerdictKind.INCONCLUSIVE
    assert close.verdict.low_ratio is not None
    assert close.verdict.low_ratio < 0.001
    # More pairs tell nothing, as long as they have no spread.
    assert close.verdict.pairs_needed is None
    assert close.verdict.detectable_ratio == pytest.approx(0.04, abs=0.001)
    far = ask(A=[(0.25, 0.25)] * 12, B=[0.28] * 12)
    assert far.verdict.kind is VerdictKind.SLOWER
    # Of 12 and 12.01 s it is known that they are equivalent, and of 0.25 and 0.25 s it is not.
    assert ask(A=[(12.0, 12.0)] * 6, B=[12.01] * 6).verdict.kind is VerdictKind.EQUIVALENT
    assert ask(A=[(0.25, 0.25)] * 6, B=[0.25] * 6).verdict.kind is VerdictKind.INCONCLUSIVE
    # The interval of a verdict that is drawn, or judged at another level, is as wide.
    for question in (close, far):
        interval, verdict = question.gather(question.verdict).interval, question.verdict
        assert interval.low is not None
        assert interval.high is not None
        ends = (math.expm1(interval.low), math.expm1(interval.high))
        assert ends == pytest.approx((verdict.low_ratio, verdict.high_ratio))


def draw_pairs(value: float, ratio: float, sd: float, *, count: int = 500, pairs: int = 12) -> np.ndarray:
    """Draw the log ratios of values in steps of 1, for each of `count` experiments."""
    random = np.random.default_rng(7)
    noise = np.exp(random.normal(0, sd / value, (3, count, pairs)))
    first, second, other = np.maximum(np.round(noise * np.array([value, value, value * ratio])[:, None, None]), 1.0)
    return np.log(other) - (np.log(first) + np.log(second)) / 2


# Where the values lie between two steps, how much they differ, and how large their noise is, in steps.
CASES = [
    (value, change, sd)
    for value in (25.45, 25.4, 25.05, 31.0, 99.6)
    for change in (0.0, 0.1, 0.5, 0.9, 1.0)
    for sd in (0.02, 0.1, 0.2, 0.35, 1.0)
]


def test_intervals_of_rounded_pairs_hold_the_truth_as_often_as_they_say() -> None:
    held, without = [], []
    for value, change, sd in CASES:
        ratio = (value + change) / value
        pairs = draw_pairs(value, ratio, sd)
        resolution = find_pair_change(Rounding(step=1.0), [value], [value * ratio])
        for of, least in ((held, resolution), (without, 0.0)):
            low, high, _ = confidence_sequence(pairs, 0.025, 12, least)
            of.append(float(((low <= math.log(ratio)) & (math.log(ratio) <= high)).all(axis=-1).mean()))
    assert min(held) >= 0.95
    # Rounding alone takes them off the truth.
    assert min(without) == 0.0


def test_rounding_tells_identical_variants_apart_no_more_often() -> None:
    rates = []
    for value, sd in {(value, sd) for value, _, sd in CASES}:
        of = compute_states(draw_pairs(value, 1.0, sd), beta=0.025, size=1, looked=12)
        # One variant, so that nothing else is in its family.
        family = FamilyState(of.log_p[..., None], of.low[..., None, :], of.high[..., None, :])
        outcome = judge_family(family, beta=0.025, delta_ratio=1e-4).outcome
        rates.append(float(np.isin(outcome, [RatioOutcome.LOWER, RatioOutcome.HIGHER]).any(axis=(1, 2)).mean()))
    assert max(rates) <= 0.05

"""A gate fails only on what is proven: conditions against verdicts that the comparison made."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.comparison.answers import COUNT_METRICS, SPEED_METRICS, Comparison, compare
from pgdyno.analyse.comparison.e_process import gather_evidence
from pgdyno.analyse.comparison.gate import GateResult, judge_gate
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.plan.experiment import Experiment
from pgdyno.spec.gate import Threshold, VerdictWord, parse_conditions
from tests.analyse.experiments import build_experiment, build_round
from tests.examples import TIMES

METRICS = (*SPEED_METRICS, *COUNT_METRICS)


def compare_drawn(
    experiment: Experiment,
    effects: dict[str, dict[str, float]],
    *,
    rounds: int = 20,
    noise: float = 0.02,
    seed: int = 1,
    primary: str = "tps",
    compared: Sequence[str] = METRICS,
) -> tuple[Comparison, ...]:
    """Rounds whose variants have these factors, by metric; the reference has none of its own."""
    draw = random.Random(seed)
    reference = experiment.reference.name
    metrics = sorted({metric for of in effects.values() for metric in of})

    def values(name: str) -> dict[str, float]:
        return {
            metric: 100 * effects.get(name, {}).get(metric, 1.0) * math.exp(draw.gauss(0, noise)) for metric in metrics
        }

    made = [
        build_round(
            n, {reference: [values(reference), values(reference)], **{name: [values(name)] for name in effects}}
        )
        for n in range(rounds)
    ]
    return compare({"tpcb-like": made}, experiment, primary={"tpcb-like": primary}, metrics=compared)


def judge(comparisons: Sequence[Comparison], experiment: Experiment, *texts: str) -> GateResult:
    return judge_gate(comparisons, experiment, parse_conditions(texts, metrics=METRICS))


def test_words_follow_the_verdicts() -> None:
    experiment = build_experiment("a", "b")
    slower = {"b": {"tps": 0.8, "latency_p95_ms": 1.3}}
    found = compare_drawn(experiment, slower)
    result = judge(found, experiment, "slower")
    (failure,) = result.failures
    assert result.is_failed
    assert (failure.workload, failure.verdict.variant, failure.verdict.metric) == ("tpcb-like", "b", "tps")
    assert failure.verdict == found[0].questions[0].verdict
    assert {one.verdict.metric for one in judge(found, experiment, "worse").failures} == {"tps", "latency_p95_ms"}
    assert not judge(found, experiment, "inconclusive").is_failed
    # A gain, and what is equivalent, fails nothing, though it is certain.
    for factor in (1.25, 0.995):
        gain = compare_drawn(experiment, {"b": {"tps": factor}}, rounds=60, noise=0.005)
        assert gain[0].questions[0].verdict.is_decided
        assert not judge(gain, experiment, "slower", "worse", "inconclusive").is_failed


def test_worse_is_also_a_latency_alone() -> None:
    experiment = build_experiment("a", "b")
    found = compare_drawn(experiment, {"b": {"tps": 1.0, "latency_p99_ms": 1.5, "wal_bytes": 2.0}})
    assert not judge(found, experiment, "slower").is_failed
    assert [one.verdict.metric for one in judge(found, experiment, "worse").failures] == ["latency_p99_ms"]


def test_what_is_undecided_fails_only_where_it_was_asked_for() -> None:
    experiment = build_experiment("a", "b")
    found = compare_drawn(experiment, {"b": {"tps": 0.97}}, rounds=4, noise=0.2)
    assert found[0].questions[0].verdict.kind is VerdictKind.INCONCLUSIVE
    passed = judge(found, experiment, "slower,worse", "tps<-1%")
    assert not passed.is_failed
    assert [one.verdict.variant for one in passed.undecided] == ["b"]
    asked = judge(found, experiment, "slower", "inconclusive")
    assert asked.is_failed
    assert not asked.undecided
    assert [one.condition for one in asked.failures] == [VerdictWord.INCONCLUSIVE]
    # Without a single pair there is no interval at all.
    nothing = compare({"tpcb-like": []}, experiment, primary={"tpcb-like": "tps"})
    assert not judge(nothing, experiment, "slower", "tps<-1%", "wal_bytes>1%").is_failed
    assert judge(nothing, experiment, "inconclusive").is_failed


def test_a_threshold_needs_the_whole_interval() -> None:
    experiment = build_experiment("a", "b")
    found = compare_drawn(experiment, {"b": {"tps": 0.8, "latency_p95_ms": 1.3}})
    verdict = found[0].questions[0].verdict
    assert verdict.high_ratio is not None
    assert judge(found, experiment, "tps<-10%").is_failed
    assert not judge(found, experiment, "tps<-20%").is_failed
    assert judge(found, experiment, "latency_p95_ms>20%").is_failed
    assert not judge(found, experiment, "latency_p95_ms>30%").is_failed
    for bound, is_failed in ((verdict.high_ratio, False), (math.nextafter(verdict.high_ratio, 0), True)):
        condition = Threshold(metric="tps", bound_ratio=bound, is_upper=False)
        assert judge_gate(found, experiment, [condition]).is_failed is is_failed


@given(
    seed=st.integers(0, 10_000),
    factors=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=4),
    noise=st.floats(0.001, 0.3),
    rounds=st.integers(0, 25),
    bound=st.floats(0, 0.5),
)
def test_no_condition_holds_whose_interval_touches_the_threshold(
    seed: int, factors: list[float], noise: float, rounds: int, bound: float
) -> None:
    experiment = build_experiment("a", *(f"b{n}" for n in range(len(factors))))
    effects = {f"b{n}": {"tps": factor, "latency_p95_ms": 1 / factor} for n, factor in enumerate(factors)}
    found = compare_drawn(experiment, effects, rounds=rounds, noise=noise, seed=seed, compared=SPEED_METRICS)
    below = Threshold(metric="tps", bound_ratio=-bound, is_upper=False)
    above = Threshold(metric="latency_p95_ms", bound_ratio=bound, is_upper=True)
    result = judge_gate(found, experiment, [below, above, VerdictWord.SLOWER])
    failed = {(one.condition, one.verdict.variant) for one in result.failures}
    for question in found[0].questions:
        verdict, name = question.verdict, question.variant
        # The interval at 1 - alpha/m, which is never narrower than that of the verdict.
        level = experiment.alpha / len(factors) / (2 if experiment.final_look else 1)
        looked = question.verdict.looked
        own = gather_evidence(question.log_ratios, alpha=level, looked=looked).interval if question.log_ratios else None
        low, high = (None, None) if own is None else (own.low, own.high)
        if question.metric == "tps":
            assert ((below, name) in failed) == (high is not None and math.expm1(high) < -bound)
            assert ((VerdictWord.SLOWER, name) in failed) == (verdict.kind is VerdictKind.SLOWER)
        if question.metric == "latency_p95_ms":
            assert ((above, name) in failed) == (low is not None and math.expm1(low) > bound)


def test_thresholds_on_many_variants_at_once_hold_the_rate_of_the_gate() -> None:
    """Four variants that lie on the threshold: any failure is false; Holm's narrower intervals would have too many."""
    experiment = build_experiment("a", *"bcde")
    effects = {name: {"tps": 0.8} for name in "bcde"}
    runs = 400 * TIMES
    failed = {"gate": 0, "narrow": 0}
    for seed in range(runs):
        found = compare_drawn(experiment, effects, rounds=12, noise=0.03, seed=seed, compared=("tps",))
        failed["gate"] += judge(found, experiment, "tps<-20%").is_failed
        failed["narrow"] += any((one.verdict.high_ratio or 0) < -0.2 for one in found[0].questions)
    assert failed["gate"] <= failed["narrow"]
    assert failed["gate"] / runs <= experiment.alpha


def test_the_rate_counts_every_metric_that_is_judged() -> None:
    experiment = build_experiment("a", "b", confidence="99%")
    found = compare_drawn(
        experiment, {"b": dict.fromkeys(("tps", "latency_p50_ms", "latency_p95_ms", "wal_bytes"), 1.0)}
    )
    for texts, metrics in (
        (["slower"], ["tps"]),
        (["slower", "tps<-3%"], ["tps"]),
        (["worse"], ["tps", "latency_p50_ms", "latency_p95_ms"]),
        (["slower", "wal_bytes>1%"], ["tps", "wal_bytes"]),
        (["inconclusive"], []),
    ):
        result = judge(found, experiment, *texts)
        assert list(result.metrics) == metrics
        assert result.false_ratio == pytest.approx(0.01 * len(metrics))
    many = build_experiment("a", "b", confidence="50%")
    assert judge(compare_drawn(many, {"b": dict.fromkeys(SPEED_METRICS, 1.0)}), many, "worse").false_ratio == 1.0


def test_a_variant_that_dropped_out_fails_every_gate() -> None:
    experiment = build_experiment("a", "b", "c")
    found = compare_drawn(experiment, {"b": {"tps": 1.0}})
    conditions = parse_conditions(["tps<-50%"], metrics=METRICS)
    assert not judge_gate(found, experiment, conditions).is_failed
    result = judge_gate(found, experiment, conditions, dropped={"c": "it crashed"})
    assert result.is_failed
    assert result.dropped == ("c",)
    # Without a condition there is no gate.
    assert not judge_gate(found, experiment, (), dropped={"c": "it crashed"}).is_failed


def test_a_reference_that_differs_from_itself_is_named() -> None:
    experiment = build_experiment("a", "b")
    found = compare_drawn(experiment, {"b": {"tps": 1.0}})
    assert not judge(found, experiment, "slower").loud
    noise = [
        msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, kind=VerdictKind.FASTER))
        for one in found[0].noise
    ]
    loud = [msgspec.structs.replace(found[0], noise=tuple(noise))]
    assert [one.verdict.variant for one in judge(loud, experiment, "slower").loud] == ["a"]
    assert not judge(loud, experiment, "latency_p95_ms>5%").loud
    assert [one.text for one in judge(loud, experiment, "latency_p95_ms>5%").unobserved] == ["latency_p95_ms>5%"]

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.comparison.answers import Comparison, Question, Round, compare, primary_metric
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.spec.study import Study, WorkloadSpec
from tests.analyse.experiments import build_experiment, build_round, build_rounds

AB = build_experiment("A", "B")
ABC = build_experiment("A", "B", "C")


def compare_one(
    rounds: list[Round], experiment: Experiment = AB, metrics: tuple[str, ...] = ("tps",), primary: str = "tps"
) -> Comparison:
    (comparison,) = compare({"w": rounds}, experiment, primary={"w": primary}, metrics=metrics)
    return comparison


def ask(comparison: Comparison, variant: str = "B", metric: str = "tps") -> Question:
    question = comparison.find(variant, metric)
    assert question is not None
    return question


def noisy(repeats: int, sd: float, *, factor: float = 1.0, seed: int = 1) -> list[Round]:
    values = 1000.0 * np.exp(np.random.default_rng(seed).normal(0, sd, (repeats, 3)))
    return build_rounds("tps", A=[(a, b) for a, b, _ in values.tolist()], B=[factor * c for *_, c in values.tolist()])


def test_a_pair_is_the_variant_over_the_geometric_mean_of_its_rounds_references() -> None:
    first, last = build_rounds("tps", A=[(100.0, 400.0), (10.0, 10.0)], B=[300.0, 5.0])
    comparison = compare_one([first, msgspec.structs.replace(last, trial=4)])
    question = ask(comparison)
    assert question.log_ratios == pytest.approx((math.log(1.5), math.log(0.5)))
    assert question.at_s == (10.0, 20.0)
    assert question.last_trial == 4
    assert (question.spent_s, comparison.round_s, comparison.rounds) == (18.0, 9.0, 2)
    (twins,) = comparison.noise
    assert [abs(each) for each in twins.log_ratios] == pytest.approx([math.log(4.0), 0.0])


@given(scale=st.floats(1e-6, 1e9), seed=st.integers(0, 99))
def test_units_and_levels_do_not_matter(scale: float, seed: int) -> None:
    rounds = noisy(12, 0.1, seed=seed)
    random = np.random.default_rng(seed)
    scaled = [
        msgspec.structs.replace(
            one,
            values={
                variant: tuple({"tps": value["tps"] * scale * level} for value in of)
                for variant, of in one.values.items()
            },
        )
        for one, level in zip(rounds, random.lognormal(size=12).tolist(), strict=True)
    ]
    assert ask(compare_one(scaled)).log_ratios == pytest.approx(ask(compare_one(rounds)).log_ratios, abs=1e-9)


def test_clear_answers() -> None:
    assert ask(compare_one(noisy(12, 0.02, factor=1.2))).verdict.kind is VerdictKind.FASTER
    assert ask(compare_one(noisy(12, 0.02, factor=0.8))).verdict.kind is VerdictKind.SLOWER
    assert ask(compare_one(noisy(60, 0.01))).verdict.kind is VerdictKind.EQUIVALENT
    assert ask(compare_one(noisy(12, 0.2))).verdict.kind is VerdictKind.INCONCLUSIVE


def test_more_latency_is_slower_and_more_wal_is_only_more() -> None:
    rounds = [
        build_round(
            n, {"A": [{"latency_p95_ms": 1.0, "wal_bytes": 9.0}] * 2, "B": [{"latency_p95_ms": b, "wal_bytes": w}]}
        )
        for n, (b, w) in enumerate(zip([1.9, 2.0, 2.1] * 4, [18.0, 18.1, 17.9] * 4, strict=True))
    ]
    comparison = compare_one(rounds, metrics=("latency_p95_ms", "wal_bytes"), primary="latency_p95_ms")
    assert ask(comparison, metric="latency_p95_ms").verdict.kind is VerdictKind.SLOWER
    assert ask(comparison, metric="wal_bytes").verdict.kind is VerdictKind.MORE


def test_a_round_with_its_reference_once_compares_nothing() -> None:
    rounds = build_rounds("tps", A=[(100.0, 100.0), (100.0,), (100.0, 100.0)], B=[110.0, 500.0, 120.0])
    comparison = compare_one(rounds)
    assert ask(comparison).log_ratios == pytest.approx((math.log(1.1), math.log(1.2)))
    assert comparison.rounds == 2
    figures = {one.variant: one.estimates["tps"] for one in comparison.figures}
    assert (figures["A"].n, figures["B"].n) == (2, 2)
    nothing = compare_one(build_rounds("tps", A=[(100.0,)], B=[500.0]))
    assert (ask(nothing).log_ratios, nothing.noise, nothing.round_s, nothing.rounds) == ((), (), None, 0)
    assert nothing.undecided == ("B",)


def test_a_variant_that_is_missing_from_a_round_is_missing_only_there() -> None:
    rounds = [
        build_round(1, {"A": [{"tps": 100.0}] * 2, "B": [{"tps": 110.0}], "C": [{"tps": 120.0}]}),
        build_round(2, {"A": [{"tps": 100.0}] * 2, "C": [{"tps": 130.0}]}),
        build_round(3, {"A": [{"tps": 100.0}] * 2}),
    ]
    comparison = compare_one(rounds, ABC)
    assert [len(ask(comparison, variant).log_ratios) for variant in "BC"] == [1, 2]
    assert len(comparison.noise[0].log_ratios) == 3
    assert comparison.undecided == ("B", "C")


def test_a_metric_that_one_slice_lacks_is_missing_only_from_that_pair() -> None:
    full = {"tps": 100.0, "latency_p99_ms": 5.0}
    rounds = [
        build_round(1, {"A": [full, full], "B": [full]}),
        build_round(2, {"A": [full, {"tps": 100.0}], "B": [full]}),
        build_round(3, {"A": [full, full], "B": [{"tps": 100.0}]}),
    ]
    comparison = compare_one(rounds, metrics=("tps", "latency_p99_ms", "wal_bytes"))
    assert [len(ask(comparison, metric=metric).log_ratios) for metric in ("tps", "latency_p99_ms")] == [3, 1]
    noise = {question.metric: len(question.log_ratios) for question in comparison.noise}
    assert noise == {"tps": 3, "latency_p99_ms": 2}
    assert comparison.find("B", "wal_bytes") is None
    assert comparison.find_noise("wal_bytes") is None


def test_the_primary_question_is_there_before_any_pair_and_stays_undecided() -> None:
    comparison = compare_one([], ABC, metrics=("tps", "latency_p95_ms"))
    assert [(q.variant, q.metric, q.verdict.n) for q in comparison.questions] == [("B", "tps", 0), ("C", "tps", 0)]
    assert comparison.undecided == ("B", "C")
    assert ask(comparison).verdict.reason


@pytest.mark.parametrize("workloads", [1, 3])
@pytest.mark.parametrize("others", [1, 4])
def test_the_family_is_every_planned_variant_on_every_workload(workloads: int, others: int) -> None:
    # Also of those that gave nothing: a variant that was refused must not make the rest look surer.
    experiment = build_experiment("A", *(f"B{number}" for number in range(others)))
    seen = [build_round(n, {"A": [{"tps": 100.0 + n}, {"tps": 101.0}], "B0": [{"tps": 103.0 - n}]}) for n in range(9)]
    names = [f"w{number}" for number in range(workloads)]
    found = compare(
        {name: seen if name == "w0" else [] for name in names}, experiment, primary=dict.fromkeys(names, "tps")
    )
    assert [one.workload for one in found] == names
    assert all(len(one.questions) >= others for one in found)
    verdict = ask(found[0], "B0").verdict
    assert 1 - verdict.confidence == pytest.approx(0.05 / (others * workloads))
    # Each of the two references was asked once on each workload.
    assert 1 - found[0].noise[0].verdict.confidence == pytest.approx(0.05 / workloads)


def test_names_that_read_alike_when_joined() -> None:
    experiment = build_experiment("A", "x on y", "x")
    rounds = {
        "z": [build_round(1, {"A": [{"tps": 1.0}] * 2, "x on y": [{"tps": 2.0}], "x": [{"tps": 3.0}]})],
        "y on z": [build_round(1, {"A": [{"tps": 1.0}] * 2, "x on y": [{"tps": 4.0}], "x": [{"tps": 5.0}]})],
    }
    found = compare(rounds, experiment, primary=dict.fromkeys(rounds, "tps"))
    ratios = [[round(math.exp(q.log_ratios[0])) for q in one.questions if q.metric == "tps"] for one in found]
    assert ratios == [[2, 3], [4, 5]]
    assert [q.verdict.variant for q in found[0].questions] == ["x on y", "x"]


def test_a_drift_within_rounds_is_no_difference_between_the_references() -> None:
    # The second reference always comes later and is always 5 % slower.
    random = np.random.default_rng(1).normal(0, 0.002, (40, 2))
    cells = [(1000.0 * math.exp(a), 950.0 * math.exp(b)) for a, b in random.tolist()]
    (twins,) = compare_one(build_rounds("tps", A=cells, B=[1000.0] * 40)).noise
    assert twins.verdict.kind not in {VerdictKind.FASTER, VerdictKind.SLOWER}
    assert [abs(each) for each in twins.log_ratios] == pytest.approx([0.051] * 40, abs=0.02)


def test_later_rounds_change_nothing_about_earlier_pairs() -> None:
    rounds = noisy(50, 0.1)
    whole = compare_one(rounds)
    for count in (1, 2, 17, 49):
        part = compare_one(rounds[:count])
        assert part.questions[0].log_ratios == whole.questions[0].log_ratios[:count]
        assert part.noise[0].log_ratios == whole.noise[0].log_ratios[:count]


def test_a_round_is_one_observation_of_the_reference_too() -> None:
    (a, b) = compare_one(build_rounds("tps", A=[(100.0, 400.0), (200.0, 200.0)], B=[300.0, 300.0])).figures
    assert (a.variant, a.estimates["tps"].n, b.estimates["tps"].n) == ("A", 2, 2)
    assert a.estimates["tps"].value == pytest.approx(200.0)
    assert a.estimates["tps"].unit == "tps"


def test_what_decides_an_open_loop_is_its_latency() -> None:
    study = Study(workload=(WorkloadSpec(name="tpcb-like"), WorkloadSpec(name="select-only", rate_tps=100.0)))
    machine = Machine(version_major=18, cpu_count=2, memory_bytes=24 << 30, disk_free_bytes=80_000_000_000)
    closed, opened = plan_study(study, machine).workloads
    assert (primary_metric(closed), primary_metric(opened)) == ("tps", "latency_p95_ms")


def test_each_workload_is_decided_by_its_own_metric() -> None:
    full = {"tps": 100.0, "latency_p95_ms": 5.0}
    better = {"tps": 100.0, "latency_p95_ms": 2.5}
    rounds = {
        name: [build_round(n, {"A": [full, full], "B": [better]}) for n in range(9)] for name in ("closed", "opened")
    }
    primary = {"closed": "tps", "opened": "latency_p95_ms"}
    closed, opened = compare(rounds, AB, primary=primary)
    assert ask(closed, metric="tps").verdict.kind is VerdictKind.EQUIVALENT
    assert ask(opened, metric="latency_p95_ms").verdict.kind is VerdictKind.FASTER
    assert closed.undecided == opened.undecided == ()


def test_variants_that_differ_by_nothing_are_seldom_called_different() -> None:
    false = {VerdictKind.FASTER, VerdictKind.SLOWER}
    found = [compare_one(noisy(25, 0.05, seed=seed)) for seed in range(200)]
    # 5 % of 200 and three standard deviations are 19; benchmarks/verdicts.py says it exactly.
    assert sum(ask(one).verdict.kind in false for one in found) <= 19
    assert sum(one.noise[0].verdict.kind in false for one in found) <= 19

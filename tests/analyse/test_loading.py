"""Loading as a load: which times are compared, and which direction is better."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.comparison.answers import INIT_METRICS, compare
from pgdyno.analyse.comparison.rounds import rounds_of_trials
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.record.pgbench.init import InitStep, InitSteps
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.variant import DesignKind
from tests.analyse.test_rounds import build_trial

STEPS = InitSteps(
    total_s=4.21,
    steps=(
        InitStep(name="drop tables", duration_s=0.01),
        InitStep(name="create tables", duration_s=0.02),
        InitStep(name="client-side generate", duration_s=3.0),
        InitStep(name="vacuum", duration_s=0.18),
        InitStep(name="primary keys", duration_s=1.0),
    ),
)


def load_in(number: int, variant: str, factor: float) -> TrialAnalysis:
    """A trial whose steps took so many times as long as those above."""
    times_s = {name: value * factor for name, value in (STEPS.metrics_s | {"init_checkpoint_s": 0.05}).items()}
    trial = build_trial(number, variant, round_number=(number + 2) // 3)
    return msgspec.structs.replace(trial, tps=None, pgbench_tps=None, percentiles=(), init_s=times_s)


def test_steps_are_named_and_tables_count_once() -> None:
    assert STEPS.metrics_s == pytest.approx(
        {
            "init_s": 4.21,
            "init_tables_s": 0.03,
            "init_generate_s": 3.0,
            "init_vacuum_s": 0.18,
            "init_primary_keys_s": 1.0,
        }
    )


def test_less_time_is_faster_and_steps_below_the_resolution_are_left_out() -> None:
    factors = {"A": 1.0, "B": 0.5}
    order = [variant for _ in range(8) for variant in "ABA"]
    # A few per cent of noise, different in each trial.
    trials = [load_in(n, v, factors[v] * (1 + 0.02 * (n * 7 % 5))) for n, v in enumerate(order, start=1)]
    rounds = rounds_of_trials(trials, cpu_count=2)
    assert set(rounds[0].values["A"][0]) >= {"init_s", "init_generate_s", "init_primary_keys_s"}
    assert "tps" not in rounds[0].values["A"][0]
    experiment = Experiment(
        variants=tuple(Variant(name=name, server=ServerSpec()) for name in "AB"),
        design=DesignKind.PAIRED,
        reason="",
        budget_s=None,
        alpha=0.05,
        detect_ratio=0.03,
    )
    (comparison,) = compare({"init": rounds}, experiment, primary={"init": INIT_METRICS[0]})
    kinds = {question.metric: question.verdict.kind for question in comparison.questions}
    assert {kinds[name] for name in ("init_s", "init_generate_s", "init_primary_keys_s", "init_checkpoint_s")} == {
        VerdictKind.FASTER
    }
    assert not {"init_tables_s", "init_vacuum_s", "tps"} & set(kinds)
    effect = comparison.questions[0].verdict.effect_ratio
    assert effect == pytest.approx(-0.5, abs=0.05)

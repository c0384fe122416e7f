"""Variants compared step by step: pairs within a round in the same seconds, and what is no pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from scipy import stats

from pgdyno.analyse.comparison.course import compare_courses
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.types import TrialStatus
from tests.report.build_comparison import build_paired

OLD, NEW = "old", "new"


def make_trial(
    number: int, round_number: int, variant: str, steps: Sequence[float], **changes: object
) -> TrialAnalysis:
    """A trial whose seconds have the TPS of their step."""
    (template, *_) = build_paired().analysis.workloads[0].trials
    tps = [value for value in steps for _ in range(5)]
    line = Series(
        metric="tps", label="TPS", unit="tps", t_s=tuple(second + 0.5 for second in range(len(tps))), values=tuple(tps)
    )
    planned = msgspec.structs.replace(template.record.planned, number=number, round=round_number, variants=(variant,))
    record = msgspec.structs.replace(template.record, planned=planned, **changes)
    return msgspec.structs.replace(template, record=record, charts={ChartKind.TPS: (line,)})


def make_rounds(*rounds: Mapping[str, Sequence[Sequence[float]]]) -> list[TrialAnalysis]:
    """The trials of some rounds: by variant, the steps of each of its trials."""
    each = [
        (number, variant, steps)
        for number, one in enumerate(rounds, start=1)
        for variant, of in one.items()
        for steps in of
    ]
    return [make_trial(number, *one) for number, one in enumerate(each, start=1)]


def test_each_step_has_the_mean_of_its_pairs_with_the_interval_of_a_t_test() -> None:
    """A variant that is faster only from the third step on, on a machine that drifts from round to round."""
    factors = [(1.0, 1.0, 1.5, 1.6), (1.1, 0.9, 1.4, 1.5), (0.9, 1.1, 1.6, 1.4)]
    trials = make_rounds(
        *(
            {OLD: [[900.0 * drift] * 4, [1600.0 * drift] * 4], NEW: [[1200.0 * drift * factor for factor in of]]}
            for drift, of in zip((1.0, 0.5, 2.0), factors, strict=True)
        )
    )
    steps = compare_courses(trials, reference=OLD)
    assert [(step.from_s, step.until_s) for step in steps] == [(0, 5), (5, 10), (10, 15), (15, 20)]
    for number, step in enumerate(steps):
        ratio, logs = step.ratios[NEW], [math.log(of[number]) for of in factors]
        low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx(
            (math.exp(sum(logs) / 3), math.exp(low), math.exp(high))
        )
        assert ratio.n == 3
        assert step.tps.value == pytest.approx(1200.0)


def test_a_step_in_which_nothing_ended_is_no_gap() -> None:
    still = [1000.0, 0.0, 1000.0, 1000.0]
    trials = make_rounds(*[{OLD: [[1000.0] * 4] * 2, NEW: [still]}] * 2)
    ratios = [step.ratios[NEW].value for step in compare_courses(trials, reference=OLD)]
    # Half a transaction in five seconds.
    assert ratios == pytest.approx([1.0, 0.1 / 1000.0, 1.0, 1.0])


def test_only_whole_rounds_of_measured_trials_are_compared() -> None:
    flat = [1000.0] * 4
    two = make_rounds(*[{OLD: [flat] * 2, NEW: [flat]}] * 2)
    others = [
        make_trial(7, 3, OLD, flat),
        make_trial(8, 3, NEW, [9.0] * 4),
        make_trial(9, 4, NEW, [9.0] * 4, status=TrialStatus.FAILED),
        make_trial(10, 1, NEW, [9.0] * 4, slice_s=0.5),
    ]
    assert compare_courses([*two, *others], reference=OLD) == compare_courses(two, reference=OLD)
    assert len(compare_courses(two, reference=OLD)) == 4


@pytest.mark.parametrize(("rounds", "steps"), [(1, 4), (2, 3), (0, 0)])
def test_one_pair_or_a_short_load_has_no_course(rounds: int, steps: int) -> None:
    flat = [1000.0] * steps
    trials = make_rounds(*[{OLD: [flat] * 2, NEW: [flat]}] * rounds)
    assert compare_courses(trials, reference=OLD) == ()

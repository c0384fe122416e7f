from __future__ import annotations

import pytest

from pgdyno.conduct.steps import describe_outcome, find_overrun_s
from pgdyno.plan.extra_rounds import Pace
from pgdyno.run.trial import TrialOutcome
from tests.report.build import build_report


@pytest.mark.parametrize(
    ("turns", "turn_s", "fits"),
    [
        # Seven turns of 24 s were announced, 168 s.
        (6, 24.0, True),
        (7, 24.0, False),
        # One more would end 29 s late, none ends 1 s late.
        (6, 28.2, False),
        # One more ends 10 s late, none 15 s early.
        (6, 25.4, True),
        # Quick ones may be more than were announced: one more ends 12 s late, none 8 s early.
        (8, 20.0, False),
        (7, 20.0, True),
        (1, 400.0, False),
    ],
)
def test_one_more_turn_is_nearer_to_what_was_announced_or_not(turns: int, turn_s: float, fits: bool) -> None:
    overrun_s = find_overrun_s(1000.0 + turns * turn_s, began_s=1000.0, allowed_s=168.0, next_s=turn_s)
    assert (overrun_s <= 0) is fits


def test_the_pace_of_rounds_is_theirs_once_one_has_run() -> None:
    pace = Pace()
    assert pace.find_ratio() == 1.0
    pace.add(10.0, 20.0, is_observed=True)
    assert pace.find_ratio() == pace.find_ratio(is_observed=True) == 2.0
    pace.add(10.0, 35.0, is_observed=False)
    pace.add(10.0, 45.0, is_observed=False)
    assert (pace.find_ratio(), pace.find_ratio(is_observed=True)) == (4.0, 2.0)


@pytest.mark.parametrize(("latency_ms", "shown"), [(1034.2, "1,030 ms"), (0.2234, "0.223 ms")])
def test_a_latency_in_a_trials_line(latency_ms: float, shown: str) -> None:
    record = build_report(names=("tpcb-like",)).analysis.workloads[0].trials[0].record
    outcome = TrialOutcome(record=record, error=None, tps=4.0, latency_ms=latency_ms)
    assert describe_outcome(outcome) == f"4 tps, mean latency {shown}"

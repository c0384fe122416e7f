"""What stands below a table of trials agrees with what stands in it."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.report.sections.trials import trials_table
from tests.report.build import build_report


@pytest.mark.parametrize(
    ("lacking", "remark"),
    [
        (0, "TPS and latencies cover the steady part; MSER-5 determines how much of the beginning is left out."),
        (
            1,
            "TPS and latencies cover the steady part, where it was determined; MSER-5 determines how much of the beginning is left out.",
        ),
        (3, ""),
    ],
)
def test_the_steady_part_is_told_of_trials_that_have_one(lacking: int, remark: str) -> None:
    workload = build_report(rounds=3).analysis.workloads[0]
    trials = tuple(
        msgspec.structs.replace(trial, steady_from_s=None if number < lacking else 1.0, pgbench_tps=None)
        for number, trial in enumerate(workload.trials)
    )
    table = trials_table(msgspec.structs.replace(workload, trials=trials))
    assert table.remark == remark
    assert any("no steady part was determined" in note for note in table.notes) == (lacking > 0)

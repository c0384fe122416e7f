"""What stands below a table of trials agrees with what stands in it."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.estimate import estimate_over_trials
from pgdyno.analyse.series import Event
from pgdyno.record.types import TableState
from pgdyno.report.document import Prose
from pgdyno.report.sections.head import build_cards
from pgdyno.report.sections.quoted import course_table, growth_table, quoted_table
from pgdyno.report.sections.trials import (
    counts_table,
    events_table,
    result_table,
    shares_table,
    statements_table,
    title_trial,
    trials_table,
)
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


@pytest.mark.parametrize(
    ("tps", "called"),
    [
        ((3.0, 1.0, 2.0), ["trial 1", "trial 2", "trial 3 (median)"]),
        ((3.0, 1.0), ["trial 1 (upper median)", "trial 2"]),
        ((4.0, 1.0, 2.0, 3.0), ["trial 1", "trial 2", "trial 3", "trial 4 (upper median)"]),
        ((4.0, None, 2.0, 3.0), ["trial 1", "trial 2", "trial 3", "trial 4 (median)"]),
        ((None, 2.0, None), ["trial 1", "trial 2", "trial 3"]),
        ((2.0,), ["trial 1"]),
    ],
)
def test_a_trial_is_called_the_median_of_several_that_were_measured(
    tps: tuple[float | None, ...], called: list[str]
) -> None:
    (workload,) = build_report(names=("tpcb-like",), rounds=len(tps)).analysis.workloads
    trials = tuple(msgspec.structs.replace(trial, tps=one) for trial, one in zip(workload.trials, tps, strict=True))
    workload = msgspec.structs.replace(workload, trials=trials)
    assert [title_trial(workload, trial) for trial in trials] == called


@pytest.mark.parametrize(
    ("tps", "title", "interval", "note", "remark"),
    [
        (
            (0.0, 3480.0, 3440.0),
            "Mean",
            "0 – 7,300: too wide",
            "a trial has 0, which has no geometric mean: this is the arithmetic one",
            "Geometric mean (arithmetic of the TPS of tpcb-like, where a trial has 0) over the trials, with its 95 % interval",
        ),
        (
            (3460.0, 3480.0, 3440.0),
            "Geometric mean",
            "[3,411 – 3,510]",
            None,
            "Geometric mean over the trials, with its 95 % interval",
        ),
    ],
)
def test_no_interval_of_tps_is_below_0_and_its_mean_is_called_what_it_is(
    tps: tuple[float, ...], title: str, interval: str, note: str | None, remark: str
) -> None:
    report = build_report(names=("tpcb-like",), rounds=3)
    (workload,) = report.analysis.workloads
    trials = tuple(msgspec.structs.replace(trial, tps=one) for trial, one in zip(workload.trials, tps, strict=True))
    workload = msgspec.structs.replace(workload, trials=trials, tps=estimate_over_trials(tps, unit="tps"))
    table = result_table(workload)
    cell = table.rows[0][2]
    assert (table.columns[1].title, cell.text, cell.note) == (title, interval, note)
    analysis = msgspec.structs.replace(report.analysis, workloads=(workload,))
    _, below = build_cards(msgspec.structs.replace(report, analysis=analysis))
    assert isinstance(below.blocks[0], Prose)
    assert below.blocks[0].words.startswith(remark)


def test_a_mean_latency_is_absent_for_the_reason_of_the_others() -> None:
    (workload,) = build_report(names=("tpcb-like",), rounds=2).analysis.workloads
    lost = tuple(
        msgspec.structs.replace(one, value_ms=None, reason="the log was lost") for one in workload.trials[0].percentiles
    )
    trial = msgspec.structs.replace(workload.trials[0], latency_mean_ms=None, percentiles=lost)
    table = trials_table(msgspec.structs.replace(workload, trials=(trial, *workload.trials[1:])))
    at = [column.title for column in table.columns].index("mean ms")
    assert table.rows[0][at].note == "the log was lost"


@pytest.mark.parametrize(
    ("failed", "sliced", "remark"),
    [
        (0, 0, "2 more trials are not shown: `pgdyno export` writes every second of each."),
        (1, 0, "1 more trial is not shown: `pgdyno export` writes every second of each."),
        (1, 1, ""),
        (0, 9, ""),
    ],
)
def test_only_trials_with_a_course_are_said_to_have_one_elsewhere(failed: int, sliced: int, remark: str) -> None:
    (workload,) = build_report(names=("tpcb-like",), rounds=10, duration_s=30).analysis.workloads
    trials = list(workload.trials)
    for number in range(failed):
        trials[number] = msgspec.structs.replace(trials[number], charts={})
    for number in range(failed, failed + sliced):
        record = msgspec.structs.replace(trials[number].record, slice_s=2.0)
        trials[number] = msgspec.structs.replace(trials[number], record=record)
    table = course_table(msgspec.structs.replace(workload, trials=tuple(trials)))
    assert table is not None
    assert table.remark == remark


def test_a_table_with_a_column_for_each_trial_has_eight_at_most() -> None:
    (workload,) = build_report(names=("tpcb-like",), rounds=12, duration_s=30).analysis.workloads
    (failing, *others) = workload.trials[-1].statements
    last = msgspec.structs.replace(
        workload.trials[-1], statements=(msgspec.structs.replace(failing, failures=3), *others)
    )
    trials = tuple(
        msgspec.structs.replace(one, quoted={"statements_per_s": 7.0}) for one in (*workload.trials[:-1], last)
    )
    # The trials from the ninth on are the middle ones by their TPS.
    trials = tuple(
        msgspec.structs.replace(one, tps=1000.0 + (number if number < 4 else -number if number < 8 else 0))
        for number, one in enumerate(trials)
    )
    workload = msgspec.structs.replace(workload, trials=trials)
    assert workload.representative is not None
    assert workload.representative in trials[8:]
    median = f"trial {workload.representative.record.planned.number} (upper median)"
    tables = [make(workload) for make in (shares_table, counts_table, statements_table, quoted_table, course_table)]
    for table in tables:
        assert table is not None
        assert sum(column.title.startswith("trial") for column in table.columns) == 8
        assert "4 more trials are not shown: `pgdyno export` writes" in table.remark
        assert [column.title.split(",")[0] for column in table.columns if "median" in column.title] == [median]
    statements = tables[2]
    assert statements is not None
    assert statements.rows[0][-1].text == "3"


def test_an_event_that_began_before_the_load_has_its_own_begin_and_length() -> None:
    (workload,) = build_report(names=("tpcb-like",), rounds=1).analysis.workloads
    events = (
        Event(kind="autovacuum", t_s=-8.0, until_s=2.0, text="vacuum"),
        Event(kind="checkpoint", t_s=0.0, until_s=None, text="checkpoint"),
        Event(kind="error", t_s=3.0, until_s=None, text="error"),
    )
    table = events_table(msgspec.structs.replace(workload.trials[0], events=events))
    assert table is not None
    assert [at.text for at, *_ in table.rows] == ["8 s before the load", "0 s", "3 s"]
    assert table.rows[0][1].text == "10 s"


def test_tables_that_grew_are_shown_with_those_that_did_not() -> None:
    (workload,) = build_report(names=("tpcb-like",), rounds=1).analysis.workloads
    before = (
        TableState(name="pgbench_accounts", bytes=2**30, live_rows=10**7, dead_rows=0),
        TableState(name="pgbench_history", bytes=0, live_rows=0, dead_rows=0),
    )
    after = (
        TableState(name="dropped_meanwhile_and_made_again", bytes=8192, live_rows=1, dead_rows=0),
        TableState(name="pgbench_history", bytes=30 * 2**20, live_rows=600_000, dead_rows=0),
        TableState(name="pgbench_accounts", bytes=2**30 + 2**20, live_rows=10**7, dead_rows=123_456),
    )
    trial = workload.trials[0]
    grown = msgspec.structs.replace(trial.record, tables_before=before, tables_after=after)
    table = growth_table(msgspec.structs.replace(trial, record=grown))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["pgbench_accounts", "1 GB", "1.00 GB", "1 MB", "123,456"],
        ["pgbench_history", "0 B", "30 MB", "30 MB", "0"],
    ]
    read = msgspec.structs.replace(trial.record, tables_before=before, tables_after=before)
    assert growth_table(msgspec.structs.replace(trial, record=read)) is None
    assert growth_table(trial) is None

"""The figures that DBAs quote, by a record whose files say the same in pgbench's own words."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import polars as pl
import pytest

from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.steps import mean_by_step
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.trial.quoted import measure_quoted
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.pgbench.output import StatementResult
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import TrialData, read_trial_data

RECORD = Path(__file__).parents[1] / "data" / "records" / "v1-pg18"


def read() -> tuple[TrialAnalysis, TrialData, str]:
    store = open_record(RECORD)
    trials = store.read_trials()
    data = [read_trial_data(store.trial_dir(one.planned.number), one) for one in trials]
    (workload,) = analyse_study(store.read_record(), data).workloads
    return workload.trials[0], data[0], (store.trial_dir(1) / "pgbench.stdout").read_text()


def claimed(text: str, label: str) -> float:
    found = re.search(rf"{label} = ([\d.]+)", text)
    assert found is not None, text
    return float(found[1])


def test_what_pgbench_says_is_quoted() -> None:
    trial, _, said = read()
    assert trial.quoted["latency_stddev_ms"] == claimed(said, "latency stddev")
    assert trial.quoted["initial_connection_ms"] == claimed(said, "initial connection time")
    # tpcb-like is seven statements, with BEGIN and END.
    assert trial.quoted["statements_per_s"] == pytest.approx(7 * (trial.tps or 0))
    assert trial.quoted["tps_with_connecting"] < claimed(said, "tps")
    assert trial.quoted["tps_with_connecting"] == pytest.approx(claimed(said, "tps"), rel=0.01)


def test_extremes_are_those_of_whole_seconds() -> None:
    trial, _, _ = read()
    seconds = [value for value in trial.charts[ChartKind.TPS][0].values if value is not None]
    assert (trial.quoted["lowest_second_tps"], trial.quoted["highest_second_tps"]) == (min(seconds), max(seconds))
    assert trial.quoted["lowest_second_tps"] < (trial.tps or 0) < trial.quoted["highest_second_tps"]


def test_the_machine_is_quoted_where_it_was_seen() -> None:
    trial, data, _ = read()
    shares = {name: value for name, value in trial.quoted.items() if name.endswith("_ratio")}
    assert set(shares) == {"cpu_user_ratio", "cpu_system_ratio", "cpu_iowait_ratio", "memory_used_ratio"}
    assert all(0 <= value <= 1 for value in shares.values())
    assert shares["cpu_user_ratio"] + shares["cpu_system_ratio"] < (trial.shares["cpu_busy_ratio"] or 0)
    blind = msgspec.structs.replace(data, os=None)
    left = measure_quoted(blind, tps=trial.tps, charts=trial.charts, device=None)
    seen = {*shares, "page_tables_bytes", "reads_per_write", "read_bytes_per_written"}
    assert left == {name: value for name, value in trial.quoted.items() if name not in seen}


def test_huge_pages_that_are_promised_are_taken() -> None:
    """By what /proc/meminfo said of a server with shared_buffers = 4GB, which had touched little of it."""
    trial, data, _ = read()
    assert data.os is not None
    assert {name for name in trial.quoted if "huge" in name} == set(), "the pool is empty"
    said = {"Total": 3000, "Free": 2944, "Rsvd": 2051}
    columns = {f"mem/HugePages_{name}": pl.lit(count) for name, count in said.items()}
    samples = msgspec.structs.replace(data.os, frame=data.os.frame.with_columns(**columns))
    quoted = measure_quoted(msgspec.structs.replace(data, os=samples), tps=trial.tps, charts={}, device=None)
    assert (quoted["huge_pages_count"], quoted["huge_pages_taken_count"]) == (3000, 2107)
    assert quoted["page_tables_bytes"] == trial.quoted["page_tables_bytes"] > 0


def test_without_a_warm_up_statements_are_not_counted() -> None:
    trial, data, _ = read()
    bare = msgspec.structs.replace(data, warm_up=None)
    assert "statements_per_s" not in measure_quoted(bare, tps=trial.tps, charts=trial.charts, device=None)


@pytest.mark.parametrize(
    ("commands", "each"),
    [
        (("\\set n random(1, 100)", "\\if :n > 99", "UPDATE", "UPDATE", "\\else", "SELECT", "\\endif"), None),
        (("\\if :n > 99", "\\set m 1", "\\endif", "SELECT :m", "COMMIT"), 2.0),
    ],
)
def test_statements_that_may_run_are_not_counted(commands: tuple[str, ...], each: float | None) -> None:
    trial, data, _ = read()
    assert data.warm_up is not None
    listed = tuple(
        StatementResult(text=text, latency_average_ms=0.1, failure_count=0, retry_count=None) for text in commands
    )
    branching = msgspec.structs.replace(data, warm_up=msgspec.structs.replace(data.warm_up, statements=listed))
    quoted = measure_quoted(branching, tps=100.0, charts=trial.charts, device=None)
    assert quoted.get("statements_per_s") == (None if each is None else 100.0 * each)


def test_sessions_by_wait_event_add_up_to_the_clients_at_most() -> None:
    trial, _, _ = read()
    waiting = {one.event: one.sessions for one in trial.waiting}
    assert list(waiting.values()) == sorted(waiting.values(), reverse=True)
    assert {"CPU", "IO: WalSync"} <= set(waiting)
    assert 0 < sum(waiting.values()) <= 4.0
    assert all(one.sessions <= one.most_sessions <= 4.0 for one in trial.waiting)
    assert any(one.sessions < one.most_sessions for one in trial.waiting)


def test_means_of_steps() -> None:
    line = Series(metric="tps", label="TPS", unit="1/s", t_s=tuple(n + 0.5 for n in range(13)), values=(*range(12), 99))
    # 0 to 4, 5 to 9; the third step is not whole.
    assert mean_by_step(line, 5) == [2.0, 7.0]
    gap = msgspec.structs.replace(line, values=(0, 1, None, 3, 4, *range(5, 13)))
    assert mean_by_step(gap, 5) == [None, 7.0]
    # A load that began within a second has four whole ones before 5 s.
    late = msgspec.structs.replace(line, t_s=tuple(n + 1.2 for n in range(13)))
    assert mean_by_step(late, 5) == [1.5, 6.0]
    assert mean_by_step(msgspec.structs.replace(late, values=(None, *range(1, 13))), 5) == [None, 6.0]
    assert mean_by_step(msgspec.structs.replace(line, t_s=(), values=()), 5) == []
    # One of 10 s that began within a second has nine whole ones, and its last step has four of them; one of 9 s has no second step.
    short = msgspec.structs.replace(line, values=tuple(range(9)), t_s=tuple(n + 0.7 for n in range(9)))
    assert mean_by_step(short, 5) == [2.0, 6.5]
    assert mean_by_step(msgspec.structs.replace(short, values=tuple(range(8)), t_s=short.t_s[:8]), 5) == [2.0]

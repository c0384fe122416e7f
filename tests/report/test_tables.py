"""Tables for other programs: CSV and Parquet read back as the report's values, to the last digit."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.series import ChartKind
from pgdyno.report.exports.tables import list_figures, list_tables
from pgdyno.report.input import ReportInput
from tests.report.build import build_report
from tests.report.build_comparison import build_client_sweep, build_crossed, build_paired, build_switchback
from tests.report.build_scaling import build_bench

REPORTS: dict[str, Callable[[], ReportInput]] = {
    "study": build_report,
    "hostile": lambda: build_paired(is_hard=True),
    "switchback": build_switchback,
    "with a sweep": build_bench,
}
Rows = list[dict[str, Any]]


def from_csv(table: pl.DataFrame) -> Rows:
    """What a reader that knows the types makes of the text."""
    rows: Rows = list(csv.DictReader(io.StringIO(table.write_csv())))
    kinds = {name: dtype.to_python() for name, dtype in table.schema.items()}
    return [{name: None if text == "" else kinds[name](text) for name, text in row.items()} for row in rows]


def from_parquet(table: pl.DataFrame) -> Rows:
    file = io.BytesIO()
    table.write_parquet(file)
    return pl.read_parquet(file.getvalue()).to_dicts()


@pytest.mark.parametrize("read", [from_csv, from_parquet])
@pytest.mark.parametrize("name", REPORTS)
def test_every_value_of_a_report_is_read_back(name: str, read: Callable[[pl.DataFrame], Rows]) -> None:
    analysis = REPORTS[name]().analysis
    tables = {title: read(table) for title, table in list_tables(analysis).items()}
    workloads = analysis.workloads
    trials = [(workload.name, trial) for workload in workloads for trial in workload.trials]
    assert [
        {key: value for key, value in row.items() if key not in {"variants", *missing(row, trial)}}
        for row, (_, trial) in zip(tables["trials"], trials, strict=True)
    ] == [
        {"workload": workload, "trial": trial.record.planned.number, **list_figures(trial)}
        for workload, trial in trials
    ]
    values = sorted(
        (workload, trial.record.planned.number, line.metric, line.label, t_s, -1.0 if value is None else value)
        for workload, trial in trials
        for kind, lines in trial.charts.items()
        if kind not in {ChartKind.TPS, ChartKind.LATENCY}
        for line in lines
        for t_s, value in zip(line.t_s, line.values, strict=True)
    )
    keys = ("workload", "trial", "metric", "label", "t_s")
    held = ((*(row[key] for key in keys), -1.0 if row["value"] is None else row["value"]) for row in tables["series"])
    assert sorted(held) == values
    seconds = {(row["workload"], row["trial"], row["t_s"]): row for row in tables["seconds"]}
    for workload, trial in trials:
        for line in (*trial.charts.get(ChartKind.TPS, ()), *trial.charts.get(ChartKind.LATENCY, ())):
            for t_s, value in zip(line.t_s, line.values, strict=True):
                assert seconds[workload, trial.record.planned.number, t_s][line.metric] == value


@pytest.mark.parametrize("read", [from_csv, from_parquet])
def test_a_curve_over_clients_is_read_back(read: Callable[[pl.DataFrame], Rows]) -> None:
    assert "curve" not in list_tables(build_paired().analysis)
    own, crossed = build_client_sweep().analysis, build_crossed().analysis
    rows = read(list_tables(own)["curve"])
    points = own.sweeps["tpcb-like"].points
    assert [(row["workload"], row["clients"], row["trials_count"]) for row in rows] == [
        ("tpcb-like", point.clients, point.tps.n) for point in points
    ]
    assert [(row["tps"], row["tps_low"], row["tps_high"]) for row in rows] == [
        (point.tps.value, point.tps.low, point.tps.high) for point in points
    ]
    assert [row["status"] for row in rows] == ["linear"] * 3 + ["underused", None, "peak", "collapse"]
    assert [row["reason"] for row in rows if row["status"] is None] == ["could be underused or peak"]
    assert {row["variants"] for row in read(list_tables(build_bench().analysis)["curve"])} == {"derived"}
    assert [row["variants"] for row in read(list_tables(crossed)["curve"])] == ["mode=simple"] * 4 + [
        "mode=prepared"
    ] * 4


def missing(row: dict[str, Any], trial: Any) -> Iterator[str]:
    """The figures that other trials have."""
    return (name for name, value in row.items() if value is None and name not in list_figures(trial))


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(numbers | st.none(), min_size=1))
def test_any_number_is_read_back(numbers: list[float | None]) -> None:
    table = pl.DataFrame({"workload": ["x"] * len(numbers), "value": pl.Series(numbers, dtype=pl.Float64)})
    for read in (from_csv, from_parquet):
        held = [row["value"] for row in read(table)]
        assert held == numbers
        assert [value and math.copysign(1, value) for value in held] == [
            value and math.copysign(1, value) for value in numbers
        ]

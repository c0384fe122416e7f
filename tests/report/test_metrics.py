"""Metrics for monitoring systems: their reference parser reads the report's values to the last digit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from pgdyno.report.exports.families import Family, Line, Point, list_families
from pgdyno.report.exports.openmetrics import render_openmetrics
from pgdyno.report.exports.otlp import render_otlp
from pgdyno.report.input import ReportInput
from tests.report.build import build_report
from tests.report.build_comparison import build_paired, build_switchback
from tests.report.build_scaling import build_bench
from tests.report.build_search import build_search

REPORTS: dict[str, Callable[[], ReportInput]] = {
    "study": build_report,
    "hostile": lambda: build_paired(is_hard=True),
    "switchback": build_switchback,
    "with a sweep": build_bench,
}
Values = dict[tuple[str, frozenset[tuple[str, str]], int], float]


def held(families: list[Family]) -> Values:
    return {
        (family.name, frozenset(line.labels.items()), round(one.at_s * 1000)): one.value
        for family in families
        for line in family.lines
        for one in line.points
    }


def parsed(text: str) -> Values:
    return {
        (sample.name, frozenset(sample.labels.items()), round(float(sample.timestamp) * 1000)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def received(bodies: list[bytes]) -> Values:
    return {
        (
            metric["name"],
            frozenset((one["key"], one["value"]["stringValue"]) for one in point["attributes"]),
            round(int(point["timeUnixNano"]) / 1e6),
        ): point["asDouble"]
        for body in bodies
        for resource in json.loads(body)["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
        for point in metric["gauge"]["dataPoints"]
    }


@pytest.mark.parametrize("name", REPORTS)
def test_every_value_of_a_report_is_read_back(name: str) -> None:
    report = REPORTS[name]()
    families = list_families(report)
    values = held(families)
    assert parsed("".join(render_openmetrics(families))) == values
    assert received(list(render_otlp(families, version="1"))) == values
    shown = [value for (metric, _, _), value in values.items() if metric == "pgdyno_tps"]
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            assert trial.tps is None or trial.tps in values.values()
            lines = [line for kind, lines in trial.charts.items() for line in lines if kind.value == "tps"]
            assert all(value is None or value in shown for line in lines for value in line.values)
    for comparison in report.analysis.comparisons:
        for question in comparison.questions:
            effects = {value for (metric, _, _), value in values.items() if metric == "pgdyno_effect_ratio"}
            assert question.verdict.effect_ratio is None or question.verdict.effect_ratio in effects
            kinds = {dict(labels)["verdict"] for metric, labels, _ in values if metric == "pgdyno_verdict"}
            assert question.verdict.kind.value in kinds


def test_the_trials_of_a_search_differ_in_their_rate() -> None:
    report = build_search("settled")
    tps = {dict(labels).get("rate_tps"): value for (metric, labels, _), value in held(list_families(report)).items() if metric == "pgdyno_trial_tps"}  # fmt: skip
    trials = [trial for workload in report.analysis.workloads for trial in workload.trials if trial.tps is not None]
    rates = {trial.record.planned.rate_tps for trial in trials}
    assert len(rates) > 1
    assert {None if rate is None else float(rate) for rate in tps} == rates


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c_1"]), texts, min_size=1), st.lists(numbers, min_size=1, max_size=5)
)
def test_any_label_and_any_number_is_read_back(labels: dict[str, str], numbers: list[float]) -> None:
    points = tuple(Point(1.0 + number, value) for number, value in enumerate(numbers))
    families = [Family("pgdyno_x", "a \\ back\nslash", (Line(labels, points),))]
    assert parsed("".join(render_openmetrics(families))) == held(families)
    assert received(list(render_otlp(families, version="1"))) == held(families)


def test_many_values_go_in_several_requests() -> None:
    points = tuple(Point(float(number), math.sqrt(number)) for number in range(25_000))
    families = [
        Family("pgdyno_x", "many", (Line({"trial": "1"}, points),)),
        Family("pgdyno_y", "few", (Line({}, points[:9]),)),
    ]
    bodies = list(render_otlp(families, version="1"))
    assert len(bodies) == 3
    assert received(bodies) == held(families)

"""Records side by side as drawn and as written: the chart is Vega-Lite, and nothing that is refused is drawn together."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.records.comparison import PairComparison, compare_records
from pgdyno.analyse.records.sides import Side
from pgdyno.report.charts.records import records_chart
from pgdyno.report.documents.report import render_json
from pgdyno.report.forms.html import print_html
from pgdyno.report.records import build_records
from pgdyno.report.sections.head import describe_bench, describe_study
from pgdyno.report.sections.machine import host_table
from pgdyno.report.sections.records.kept import describe_answers, parse_kept
from pgdyno.report.sections.records.pairs import (
    NamedRecord,
    describe_pair,
    describe_record,
    differences_table,
    figures_table,
)
from tests.analyse.test_records_gate import base, change_load, changed
from tests.report.build import build_report
from tests.report.build_comparison import build_switchback
from tests.report.vega import check_vega_lite


def pair(**load: object) -> PairComparison:
    (comparison,) = compare_records([[base()], [changed(study=change_load(**load))]])
    return comparison.pairs[0]


def test_the_chart_is_vega_lite_and_tells_its_values() -> None:
    chart = records_chart(pair(), ("A", "B"))
    check_vega_lite(chart)
    assert [dot["record"] for dot in chart.marks["dots"]] == ["A", "A", "B", "B"]
    assert chart.alt.startswith("TPS of the trials of A: 4,650, 2,280;")
    # Two trials that differ by half leave no interval of use.
    assert "spans" not in chart.marks
    assert records_chart(pair(clients=9), ("A", "B")) is None


def test_a_refused_pair_has_figures_and_no_column_of_ratios() -> None:
    free, refused = (figures_table(one, ("A", "B")) for one in (pair(), pair(clients=9)))
    assert [column.title for column in free.columns] == ["", "A", "B", "B by A"]
    assert [column.title for column in refused.columns] == ["", "A", "B"]
    assert {len(row) for row in refused.rows} == {3}
    # What is refused was said above the figures.
    assert differences_table(pair(clients=9), ("A", "B")) is None


def called(name: str | None, **host: object) -> Side:
    return changed(study=lambda record: record["host"].update(host_name=name, **host))


@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        (called("alpha"), called("beta"), "machines that look alike (alpha and beta), "),
        (called("alpha"), called("alpha"), "machines that look alike and are both called alpha, "),
        (called("alpha"), called(None), "machines that look alike, "),
        (called("alpha"), called("beta", cpu_count=64), "different machines (alpha and beta), "),
        (called("alpha"), called("alpha", cpu_count=64), "different machines, both called alpha, "),
        (called(None), called(None, cpu_count=64), "different machines, "),
    ],
)
def test_machines_are_called_by_their_names_which_prove_nothing(first: Side, other: Side, words: str) -> None:
    (one,) = compare_records([[first], [other]])[0].pairs
    assert f": {words}" in describe_pair(one, ("A", "B"))


def test_columns_bear_the_names_of_their_machines() -> None:
    (one,) = compare_records([[called("alpha")], [called("beta")]])[0].pairs
    table, others = figures_table(one, ("A", "B")), differences_table(one, ("A", "B"))
    assert others is not None
    for shown in (table, others):
        assert [column.title for column in shown.columns][1:3] == ["A (alpha)", "B (beta)"]
    assert [[cell.text for cell in row[:3]] for row in others.rows] == [["machine's name", "alpha", "beta"]]
    (half,) = compare_records([[called("alpha")], [called(None)]])[0].pairs
    assert [column.title for column in figures_table(half, ("A", "B")).columns] == ["", "A (alpha)", "B", "B by A"]
    assert differences_table(half, ("A", "B")) is None
    record = one.first.record
    assert " on alpha, 2 CPUs (" in describe_record(NamedRecord(path="a", record=record))


def test_a_report_names_its_machine() -> None:
    report = build_report()
    assert "Name" not in {row[0].text for row in host_table(report.record.host).rows}
    record = report.record
    named = msgspec.structs.replace(
        report, record=msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, host_name="alpha"))
    )
    assert {row[0].text: row[1].text for row in host_table(named.record.host).rows}["Name"] == "alpha"
    assert " on alpha, " in describe_study(named)
    assert "; alpha: " in describe_bench(named)


def test_one_line_says_where_the_load_came_from() -> None:
    report = build_report()
    host = report.record.host
    assert host is not None
    there = msgspec.structs.replace(report.record, load_host=msgspec.structs.replace(host, host_name="beta"))
    assert "; the load came from beta (2 CPUs, " in describe_bench(msgspec.structs.replace(report, record=there))
    assert "the load came from" not in describe_bench(report)


def test_the_page_loads_nothing_and_shows_what_records_say_as_text() -> None:
    record = msgspec.structs.replace(base().record, started_at="<script>alert(1)</script>")
    names = [NamedRecord(path="a", record=record), NamedRecord(path="b", record=record)]
    page = print_html(build_records(names, compare_records([[base()], [base()]])), vega_js="/* none */")
    assert "Recommended machine" not in page, "a section of nothing"
    assert "<script>alert" not in page
    assert "default-src &#39;none&#39;" in page
    assert "a difference, not a verdict." in page


def test_a_reference_that_is_not_durable_is_marked_as_well() -> None:
    kept = parse_kept(render_json(build_switchback()))
    experiment = kept.experiment
    assert experiment is not None
    assert not any("against" in answer for answer in describe_answers(kept))
    variants = tuple(msgspec.structs.replace(one, is_durable=one.name != "stock") for one in experiment.variants)
    unsafe = msgspec.structs.replace(kept, experiment=msgspec.structs.replace(experiment, variants=variants))
    assert all(", against stock (not durable)" in answer for answer in describe_answers(unsafe))

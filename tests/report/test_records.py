"""Records side by side as drawn and as written: the chart is Vega-Lite, and nothing that is refused is drawn together."""

from __future__ import annotations

import altair as alt
import msgspec

from pgdyno.analyse.records_comparison import PairComparison, compare_records
from pgdyno.report.chart import CSS_THEME, PICTURE_THEME, to_vega_lite
from pgdyno.report.records import NamedRecord, differences_table, figures_table
from pgdyno.report.records_chart import records_chart
from pgdyno.report.records_html import render_records_html
from tests.analyse.test_records_gate import base, change_load, changed


def pair(**load: object) -> PairComparison:
    (comparison,) = compare_records([[base()], [changed(study=change_load(**load))]])
    return comparison.pairs[0]


def test_the_chart_is_vega_lite_and_tells_its_values() -> None:
    chart = records_chart(pair(), ("A", "B"), theme=PICTURE_THEME)
    assert chart is not None
    alt.LayerChart.from_dict(to_vega_lite(chart, width=400))
    assert [dot["record"] for dot in chart.marks["dots"]] == ["A", "A", "B", "B"]
    assert chart.alt.startswith("TPS of the trials of A: 4,650, 2,280;")
    # Two trials that differ by half leave no interval of use.
    assert chart.marks["spans"] == []
    assert records_chart(pair(clients=9), ("A", "B"), theme=CSS_THEME) is None


def test_a_refused_pair_has_figures_and_no_column_of_ratios() -> None:
    free, refused = (figures_table(one, ("A", "B")) for one in (pair(), pair(clients=9)))
    assert [column.title for column in free.columns] == ["", "A", "B", "B by A"]
    assert [column.title for column in refused.columns] == ["", "A", "B"]
    assert {len(row) for row in refused.rows} == {3}
    # What is refused was said above the figures.
    assert differences_table(pair(clients=9), ("A", "B")) is None


def test_the_page_loads_nothing_and_shows_what_records_say_as_text() -> None:
    record = msgspec.structs.replace(base().record, started_at="<script>alert(1)</script>")
    names = [NamedRecord(path="a", record=record), NamedRecord(path="b", record=record)]
    page = render_records_html(names, compare_records([[base()], [base()]]), vega_js="/* none */")
    assert "<script>alert" not in page
    assert "default-src &#39;none&#39;" in page
    assert "a difference, not a verdict." in page

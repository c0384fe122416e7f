"""Draw the report's headline as a picture, SVG or PNG.

A bench's picture shows each workload's TPS over time above its figures; a comparison's, every variant's interval;
a sweep's, the curve over clients; a search's, every trial's share over the limit. The charts are those of the page, drawn here by vl-convert instead of the reader's browser.
"""

from __future__ import annotations

import textwrap
from typing import Any

import vl_convert

from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report.charts.chart import PICTURE_THEME, to_vega_lite
from pgdyno.report.charts.search import limit_chart
from pgdyno.report.charts.sweep import curve_chart
from pgdyno.report.charts.trial import trial_charts
from pgdyno.report.format import format_confidence, format_estimate
from pgdyno.report.input import ReportInput
from pgdyno.report.sections import head as content
from pgdyno.report.sections.comparison.answers import WorkloadAnswers, answer_study
from pgdyno.report.sections.search.answers import SearchAnswer, answer_searches

_WIDTH = 860
_LINE_LETTERS = 120  # the number of characters of the title that fit into the width


def render_svg(report: ReportInput) -> str:
    """Render the headline as SVG."""
    return vl_convert.vegalite_to_svg(make_picture(report))


def render_png(report: ReportInput, *, scale: float = 2.0) -> bytes:
    """Render the headline as PNG, with `scale` pixels for each pixel of the layout."""
    return vl_convert.vegalite_to_png(make_picture(report), scale=scale)


def make_picture(report: ReportInput) -> dict[str, Any]:
    """Return the picture as one Vega-Lite specification; workloads without a charted trial are left out."""
    compared = answer_study(report)
    rows = [row for answers in compared for row in _compare(answers)]
    rows += [row for answer in answer_searches(report) for row in _search(answer, report)]
    if not compared and report.record.plan.search is None:
        rows = [row for workload in report.analysis.workloads for row in _make_row(workload)]
    config = rows[0].pop("config") if rows else {}
    for row in rows[1:]:
        row.pop("config")
    return {
        "title": {
            "text": content.title_report(report),
            "subtitle": textwrap.wrap(content.describe_study(report).partition(": ")[2], _LINE_LETTERS),
            "anchor": "start",
            "fontSize": 18,
            "offset": 16,
        },
        "vconcat": rows,
        "spacing": 26,
        "config": config,
    }


def _compare(answers: WorkloadAnswers) -> list[dict[str, Any]]:
    if answers.sweep is not None:
        chart, subtitle = curve_chart(answers.sweep, theme=PICTURE_THEME), " ".join(answers.curve)
        return [to_vega_lite(chart, width=_WIDTH, title=answers.workload, subtitle=subtitle)]
    shown = answers.draw_intervals(theme=PICTURE_THEME)
    if shown is None:
        return []
    subtitle = f"{shown.title}. {shown.caption}"
    return [to_vega_lite(shown, width=_WIDTH, title=answers.workload, subtitle=subtitle)]


def _search(answer: SearchAnswer, report: ReportInput) -> list[dict[str, Any]]:
    asked = report.record.plan.search
    chart = None if asked is None else limit_chart(answer.search, asked, theme=PICTURE_THEME)
    subtitle = textwrap.wrap(" ".join((answer.claim, *answer.sentences)), _LINE_LETTERS)
    return [] if chart is None else [to_vega_lite(chart, width=_WIDTH, title=answer.workload, subtitle=subtitle)]


def _make_row(workload: WorkloadAnalysis) -> list[dict[str, Any]]:
    trial = workload.representative
    charts = () if trial is None else trial_charts(trial, theme=PICTURE_THEME)
    tps, p99 = format_estimate(workload.tps), format_estimate(workload.latency_ms["p99"])
    doubt = (
        f"{tps.interval} {format_confidence(workload.tps)}, {tps.n}" if tps.interval.startswith("[") else tps.interval
    )
    subtitle = f"{tps.value} tps {doubt}; p99 {p99.value}{' ms' if p99.interval else ''}"
    return [
        {**to_vega_lite(chart, width=_WIDTH, title=workload.name, subtitle=subtitle), "height": 110}
        for chart in charts
        if chart.kind == ChartKind.TPS.value
    ]

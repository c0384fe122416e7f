"""The report's headline as a picture: each workload's TPS over time above its figures, as SVG or PNG.

The charts are those of the page, drawn here by vl-convert instead of the reader's browser.
"""

from __future__ import annotations

import textwrap
from typing import Any

import vl_convert

from pgdyno.analyse.types import ChartKind, WorkloadAnalysis
from pgdyno.report import content
from pgdyno.report.charts import PICTURE_THEME, to_vega_lite, trial_charts
from pgdyno.report.format import format_confidence, format_estimate
from pgdyno.report.input import ReportInput

_WIDTH = 860
_LINE_LETTERS = 120  # of a line of the title's size that fit into the width


def render_svg(report: ReportInput) -> str:
    """Render the headline as SVG."""
    return vl_convert.vegalite_to_svg(make_picture(report))


def render_png(report: ReportInput, *, scale: float = 2.0) -> bytes:
    """Render the headline as PNG, with `scale` dots for each pixel of its layout."""
    return vl_convert.vegalite_to_png(make_picture(report), scale=scale)


def make_picture(report: ReportInput) -> dict[str, Any]:
    """The picture as one Vega-Lite specification; workloads without a charted trial are left out."""
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

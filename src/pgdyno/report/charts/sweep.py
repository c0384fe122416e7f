"""Draw a sweep over clients: the TPS of each load with its interval and status, and the fitted law."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.report.charts.chart import CONFIG, NUMBER_LABEL, Chart, LegendEntry, colour_by, colour_of
from pgdyno.report.charts.thin import shorten
from pgdyno.report.format import format_clients, format_estimate
from pgdyno.report.verdict_words import STATUS_HUES, name_status

_LAW_POINTS = 80
# An interval is drawn up to so many times its dot, as on the live page; a wider one may end in an arrow.
_MOST_TIMES = 2.0
_MARKS = {"knee": "purple", "highest TPS": "green"}


def curve_chart(sweep: ClientSweep) -> Chart:
    """Draw TPS over clients. A load without an interval is left out: a lone dot would pass for a result."""
    shown = [point for point in sweep.points if point.tps.low is not None and point.tps.high is not None]
    left_out = [f"{point.clients:,}" for point in sweep.points if point not in shown]
    # A useless interval would squeeze all dots onto the axis.
    top = max((min(point.tps.high or 0.0, _MOST_TIMES * (point.tps.value or 0.0)) for point in shown), default=0.0)
    points: list[dict[str, Any]] = [
        {
            "clients": point.clients,
            "tps": shorten(point.tps.value or 0.0),
            "low": shorten(point.tps.low or 0.0),
            "high": shorten(min(point.tps.high or 0.0, top)),
            "status": name_status(point.status),
            **({"beyond": shorten(top)} if (point.tps.high or 0.0) > top else {}),
        }
        for point in shown
    ]
    has_beyond = any("beyond" in point for point in points)
    statuses = {name_status(point.status) for point in shown}
    seen = [name for name in STATUS_HUES if name in statuses]
    # A curve drawn past the loads that are left out would pass for a measurement.
    law = [] if left_out else _law(sweep)
    # Without an upper end of its interval a place is not settled, and a line at it would pass for one that is.
    marks: list[dict[str, Any]] = [
        {"kind": kind, "at": shorten(estimate.value)}
        for kind, estimate in (("knee", sweep.knee), ("highest TPS", sweep.peak))
        if estimate.value is not None and estimate.low is not None and estimate.high is not None
    ]
    legend = [LegendEntry(label=name, hue=STATUS_HUES[name], field="", is_line=False) for name in seen]
    if law:
        legend.append(LegendEntry(label="Universal Scalability Law", hue="muted", field="", is_line=True))
    legend += [LegendEntry(label=one["kind"], hue=_MARKS[one["kind"]], field="", is_line=True) for one in marks]
    return Chart(
        kind="curve",
        title="TPS by clients",
        unit="tps",
        alt=_describe(sweep),
        caption=" ".join(_list_notes(left_out, has_beyond=has_beyond)),
        legend=tuple(legend),
        spec=_spec(
            [point.clients for point in sweep.points],
            has_law=bool(law),
            has_marks=bool(marks),
            has_beyond=has_beyond,
        ),
        marks={"points": points, **({"law": law} if law else {}), **({"at": marks} if marks else {})},
    )


def _list_notes(left_out: list[str], *, has_beyond: bool) -> Iterator[str]:
    if left_out:
        yield f"Not drawn, because they have no interval yet: {', '.join(left_out)} clients."
    if has_beyond:
        yield "An interval that ends in an arrow goes on beyond the axis."


def _law(sweep: ClientSweep) -> list[dict[str, float]]:
    if sweep.usl is None or not sweep.usl.describes:
        return []
    first, last = sweep.points[0].clients, sweep.points[-1].clients
    rows = []
    for clients in np.geomspace(first, last, _LAW_POINTS).tolist():
        tps = sweep.usl.predict_tps(clients)
        if tps is not None:
            rows.append({"clients": shorten(clients), "tps": shorten(tps)})
    return rows


def _describe(sweep: ClientSweep) -> str:
    parts = []
    for point in sweep.points:
        tps = format_estimate(point.tps)
        figure = f"{tps.value} {tps.beside}" if point.tps.low is not None else "no interval yet"
        parts.append(f"{point.clients:,} clients {figure}, {name_status(point.status)}")
    return (
        f"TPS by clients: {'; '.join(parts)}. Knee: {format_clients(sweep.knee)}; peak: {format_clients(sweep.peak)}."
    )


def _spec(clients: list[int], *, has_law: bool, has_marks: bool, has_beyond: bool) -> dict[str, Any]:
    x = {
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "domain": [clients[0] / 1.15, clients[-1] * 1.15], "nice": False},
        "axis": {"title": "clients", "values": clients, "format": ",d", "grid": False, "labelOverlap": True},
    }
    y = {
        "type": "quantitative",
        "scale": {"zero": True, "nice": 4},
        "axis": {"title": None, "tickCount": 5, "labelExpr": NUMBER_LABEL},
    }

    places = {
        "data": {"name": "at"},
        "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
        "encoding": {"x": {"field": "at", **x}, "color": colour_by("kind", _MARKS)},
    }
    curve = {
        "data": {"name": "law"},
        "mark": {"type": "line", "color": colour_of("muted"), "strokeWidth": 1.5},
        "encoding": {"x": {"field": "clients", **x}, "y": {"field": "tps", **y}},
    }
    bars = {
        "data": {"name": "points"},
        "mark": {"type": "rule", "strokeWidth": 2.5},
        "encoding": {
            "x": {"field": "clients", **x},
            "y": {"field": "low", **y},
            "y2": {"field": "high"},
            "color": colour_by("status", STATUS_HUES),
        },
    }
    dots = {
        "data": {"name": "points"},
        "mark": {"type": "circle", "size": 80, "opacity": 1},
        "encoding": {
            "x": {"field": "clients", **x},
            "y": {"field": "tps", **y},
            "color": colour_by("status", STATUS_HUES),
        },
    }
    arrows = {
        "data": {"name": "points"},
        "mark": {"type": "point", "shape": "triangle-up", "size": 130, "filled": True, "opacity": 1},
        "encoding": {
            "x": {"field": "clients", **x},
            "y": {"field": "beyond", **y},
            "color": colour_by("status", STATUS_HUES),
        },
    }
    return {
        "width": "container",
        "height": 260,
        # Vega complains of a layer without data.
        "layer": [
            *([places] if has_marks else []),
            *([curve] if has_law else []),
            bars,
            dots,
            *([arrows] if has_beyond else []),
        ],
        "resolve": {"scale": {"color": "independent"}},
        "config": CONFIG,
    }

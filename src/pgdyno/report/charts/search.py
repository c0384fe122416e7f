"""Draw a search: the share of transactions over the latency limit in each trial, by rate."""

from __future__ import annotations

from typing import Any

from pgdyno.analyse.search.latency_limit import RateVerdict
from pgdyno.analyse.search.rate_search import RateSearch
from pgdyno.plan.search import Search
from pgdyno.report.charts.chart import CONFIG, NUMBER_LABEL, Chart, LegendEntry, colour_by, colour_of
from pgdyno.report.charts.thin import shorten
from pgdyno.report.format import format_number, format_share_exactly

RATE_HUES = {RateVerdict.HOLDS: "green", RateVerdict.FAILS: "vermilion", RateVerdict.UNDECIDED: "slate"}
_PERCENT_LABEL = "format(datum.value, ',~g') + ' %'"
_DECADES = [0.0001, 0.001, 0.01, 0.1, 1, 10, 100]
_CAPACITY = "closed-loop capacity"
_ALLOWED_HUE = "critical"
_MARKS = {"holds": "green", "fails": "vermilion", _CAPACITY: "purple"}


def limit_chart(search: RateSearch, asked: Search) -> Chart | None:
    """Draw the share of transactions over the limit by rate, and the allowed share; None before the first trial."""
    points = [
        {
            "rate": trial.misses.rate_tps,
            "missed": shorten(trial.misses.positive_share_ratio * 100.0),
            "verdict": level.verdict.value,
        }
        for level in search.levels
        for trial in level.trials
    ]
    if not points or search.answer is None:
        return None
    seen = [verdict for verdict in RateVerdict if any(point["verdict"] == verdict.value for point in points)]
    ends = {"holds": search.answer.holds_tps, "fails": search.answer.fails_tps, _CAPACITY: search.capacity.value}
    marks = [{"kind": kind, "at": shorten(at)} for kind, at in ends.items() if at is not None]
    band = _band(search)
    legend = [LegendEntry(label=f"rate {one.value}", hue=RATE_HUES[one], field="", is_line=False) for one in seen]
    legend.append(LegendEntry(label="allowed", hue=_ALLOWED_HUE, field="", is_line=True))
    if search.capacity.value is not None:
        legend.append(LegendEntry(label=_CAPACITY, hue=_MARKS[_CAPACITY], field="", is_line=True))
    allowed = asked.allowed_ratio * 100.0
    return Chart(
        kind="limit",
        title=f"Transactions over {asked.limit_ms:g} ms, by scheduled rate",
        unit="",
        alt=_describe(search, asked),
        caption="A dot is a trial; a share of 0 is drawn as half a transaction."
        + (" The highest rate that holds lies within the band." if band else ""),
        legend=tuple(legend),
        spec=_spec(points=points, marks=marks, allowed=allowed),
        marks={"points": points, "at": marks, "band": band, "allowed": [{"missed": allowed}]},
    )


def _band(search: RateSearch) -> list[dict[str, float]]:
    answer = search.answer
    if answer is None or answer.holds_tps is None or answer.fails_tps is None:
        return []
    return [{"from": answer.holds_tps, "until": answer.fails_tps}]


def _describe(search: RateSearch, asked: Search) -> str:
    parts = [
        f"{format_number(level.rate_tps)} TPS {level.verdict.value}, {level.held_count} of {len(level.trials)} trials"
        " held"
        for level in search.levels
    ]
    return (
        f"Share of transactions over {asked.limit} by scheduled rate; {format_share_exactly(asked.allowed_ratio)}"
        f" are allowed: {'; '.join(parts)}."
    )


def _spec(points: list[dict[str, Any]], marks: list[dict[str, Any]], allowed: float) -> dict[str, Any]:
    rates = [point["rate"] for point in points] + [mark["at"] for mark in marks]
    shares = [point["missed"] for point in points] + [allowed]
    x = {
        "type": "quantitative",
        "scale": {"type": "log", "domain": [min(rates) / 1.05, max(rates) * 1.05], "nice": False},
        "axis": {
            "title": "TPS scheduled",
            "labelExpr": NUMBER_LABEL,
            "tickCount": 8,
            "grid": False,
            "labelOverlap": True,
        },
    }
    y = {
        "type": "quantitative",
        "scale": {"type": "log", "domain": [min(shares) / 1.5, min(150.0, max(shares) * 1.5)], "nice": False},
        "axis": {"title": None, "labelExpr": _PERCENT_LABEL, "values": _DECADES, "labelOverlap": True},
    }

    return {
        "width": "container",
        "height": 260,
        "layer": [
            {
                "data": {"name": "band"},
                "mark": {"type": "rect", "color": colour_of("blue"), "opacity": 0.12},
                "encoding": {"x": {"field": "from", **x}, "x2": {"field": "until"}},
            },
            {
                "data": {"name": "at"},
                "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
                "encoding": {"x": {"field": "at", **x}, "color": colour_by("kind", _MARKS)},
            },
            {
                "data": {"name": "allowed"},
                "mark": {"type": "rule", "color": colour_of(_ALLOWED_HUE), "strokeWidth": 1.5},
                "encoding": {"y": {"field": "missed", **y}},
            },
            {
                "data": {"name": "points"},
                "mark": {"type": "circle", "size": 60, "opacity": 0.85},
                "encoding": {
                    "x": {"field": "rate", **x},
                    "y": {"field": "missed", **y},
                    "color": colour_by("verdict", {one.value: hue for one, hue in RATE_HUES.items()}),
                },
            },
        ],
        "resolve": {"scale": {"color": "independent"}},
        "config": CONFIG,
    }

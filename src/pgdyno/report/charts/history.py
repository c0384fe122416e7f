"""Draw a history: the TPS of each record with its interval, by time, and where the level changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgdyno.analyse.estimate import is_too_wide
from pgdyno.analyse.history.histories import History
from pgdyno.report.charts.chart import CONFIG, NUMBER_LABEL, Chart, colour_of
from pgdyno.report.format import format_number

_HEIGHT = 180
# A narrower axis needs labels of six digits to tell its ticks apart.
_LEAST_REACH_RATIO = 0.01
_TIMES = dict.fromkeys(("hours", "minutes", "seconds"), "%b %-d %H:%M") | {
    "day": "%b %-d",
    "date": "%b %-d",
    "week": "%b %-d",
}


def history_chart(history: History) -> Chart:
    """Draw the TPS of a history's results, with a rule at each change of TPS."""
    shown = [(one.began, one.side.workload.tps) for one in history.results]
    dots = [{"at": began.timestamp() * 1000, "tps": tps.value} for began, tps in shown if tps.value is not None]
    spans = [
        {"at": began.timestamp() * 1000, "low": tps.low, "high": tps.high}
        for began, tps in shown
        # A useless interval would squeeze the dots together.
        if tps.low is not None and not is_too_wide(tps)
    ]
    changes = [
        {"at": history.results[one.place].began.timestamp() * 1000} for one in history.changes if one.metric == "tps"
    ]
    ends_of_spans = [end for span in spans for end in (span["low"], span["high"])]
    values = [value for value in (*(tps.value for _, tps in shown), *ends_of_spans) if value is not None]
    ends = [format_number(dots[place]["tps"]) for place in (0, -1)] if dots else []
    return Chart(
        kind="history",
        title="TPS by time",
        unit="tps",
        alt=f"TPS of {len(dots)} records by time, from {' to '.join(ends)}; {len(changes)} changes.",
        caption="Dots are records, bars the 95 % intervals over their trials. A dashed line is a change.",
        spec=_spec(values, has_spans=bool(spans), has_changes=bool(changes)),
        marks={"dots": dots, **({"spans": spans} if spans else {}), **({"changes": changes} if changes else {})},
    )


def _spec(values: Sequence[float], *, has_spans: bool, has_changes: bool) -> dict[str, Any]:
    # Each label tells the day: on a narrow page only a few of them stay.
    times = {"title": None, "labelOverlap": True, "labelSeparation": 10, "format": _TIMES}
    x = {"field": "at", "type": "temporal", "scale": {"type": "utc"}, "axis": times}
    axis = {"title": None, "tickCount": 5, "labelExpr": NUMBER_LABEL}
    y = {"type": "quantitative", "scale": _scale(values), "axis": axis}
    bars = {
        "data": {"name": "spans"},
        "mark": {"type": "rule", "color": colour_of("blue"), "strokeWidth": 3, "opacity": 0.4},
        "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
    }
    rules = {
        "data": {"name": "changes"},
        "mark": {"type": "rule", "color": colour_of("vermilion"), "strokeDash": [4, 3]},
        "encoding": {"x": x},
    }
    circles = {
        "data": {"name": "dots"},
        "mark": {"type": "circle", "size": 50, "color": colour_of("ink")},
        "encoding": {"x": x, "y": {"field": "tps", **y}},
    }
    # Vega complains of a layer without data.
    layers = [*([bars] if has_spans else []), *([rules] if has_changes else []), circles]
    return {"width": "container", "height": _HEIGHT, "layer": layers, "config": CONFIG}


def _scale(values: Sequence[float]) -> dict[str, Any]:
    """Return a scale that holds all values and is so wide that labels of few digits tell its ticks apart."""
    scale = {"zero": False, "nice": True}
    if not values:
        return scale
    low, high = min(values), max(values)
    middle = (low + high) / 2.0
    reach = middle * _LEAST_REACH_RATIO
    return {**scale, "domain": [min(low, middle - reach), max(high, middle + reach)]}

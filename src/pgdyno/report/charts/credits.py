"""Draw the balance of burst credits over a study, with the trials and the moments at which credits end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgdyno.analyse.credit_balance import CreditBalance
from pgdyno.report.charts.chart import CONFIG, Chart, LegendEntry, colour_by, colour_of
from pgdyno.report.charts.palette import SERIES
from pgdyno.report.charts.thin import shorten
from pgdyno.report.format import format_percent

# More numbers than this do not fit side by side below a line.
_MOST_LABELS = 24
_MINUTE_S = 60.0


def balance_chart(balances: Sequence[CreditBalance], names: Sequence[str]) -> Chart:
    """Draw what is left of each bucket, in per cent of a full one.

    Args:
        balances: The balances of a study, at least one.
        names: The name of each bucket.
    """
    hues = dict(zip(names, SERIES, strict=False))
    points = [
        {"bucket": name, "t": shorten(point.at_s / _MINUTE_S), "left": shorten(point.left_ratio * 100.0)}
        for name, one in zip(names, balances, strict=True)
        for point in one.points
    ]
    ends = [
        {"bucket": name, "at": shorten(one.end.at_s / _MINUTE_S)}
        for name, one in zip(names, balances, strict=True)
        if one.end is not None
    ]
    trials = _list_trials(balances[0])
    return Chart(
        kind="credits",
        title="Burst credits left, predicted",
        unit="percent",
        alt=_describe(balances, names),
        caption=f"Bands are trials with their restoring{'; a dashed line is the end of credits' if ends else ''}.",
        legend=tuple(LegendEntry(label=name, hue=hue, field="", is_line=True) for name, hue in hues.items()),
        spec=_spec(hues),
        marks={"points": points, "ends": ends, "trials": trials},
    )


def _list_trials(balance: CreditBalance) -> list[dict[str, Any]]:
    """List the time of each trial; of many, only some have their number written beside them."""
    spans: dict[int, tuple[float, float]] = {}
    from_s = 0.0
    for point in balance.points:
        if point.trial is not None:
            first_s, _ = spans.get(point.trial, (from_s, 0.0))
            spans[point.trial] = (first_s, point.at_s)
        from_s = point.at_s
    step = -(-len(spans) // _MOST_LABELS)
    return [
        {
            "from": shorten(first_s / _MINUTE_S),
            "until": shorten(last_s / _MINUTE_S),
            "middle": shorten((first_s + last_s) / 2 / _MINUTE_S),
            "shade": number % 2,
            "label": str(trial) if number % step == 0 else "",
        }
        for number, (trial, (first_s, last_s)) in enumerate(spans.items())
    ]


def _describe(balances: Sequence[CreditBalance], names: Sequence[str]) -> str:
    said = []
    for name, one in zip(names, balances, strict=True):
        end = one.end
        where = "" if end is None else f", empty after {end.at_s / _MINUTE_S:.0f} minutes in trial {end.trial}"
        said.append(f"{name}: from 100 % to {format_percent(one.points[-1].left_ratio)}{where}")
    return f"Predicted balance of burst credits over the trials: {'; '.join(said)}."


def _spec(hues: dict[str, str]) -> dict[str, Any]:
    x = {"type": "quantitative", "axis": {"title": "minutes since the first trial", "grid": False, "tickCount": 8}}
    y = {
        "type": "quantitative",
        "scale": {"domain": [0, 100]},
        "axis": {"title": None, "tickCount": 5, "labelExpr": "datum.value + ' %'"},
    }
    return {
        "width": "container",
        "height": 200,
        "layer": [
            {
                "data": {"name": "trials"},
                "mark": {"type": "rect", "color": colour_of("shade")},
                "encoding": {
                    "x": {"field": "from", **x},
                    "x2": {"field": "until"},
                    "opacity": {"condition": {"test": "datum.shade == 1", "value": 0.18}, "value": 0.06},
                },
            },
            {
                "data": {"name": "trials"},
                "mark": {"type": "text", "color": colour_of("muted"), "fontSize": 10, "baseline": "top"},
                "encoding": {"x": {"field": "middle", **x}, "y": {"value": 4}, "text": {"field": "label"}},
            },
            {
                "data": {"name": "ends"},
                "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
                "encoding": {"x": {"field": "at", **x}, "color": colour_by("bucket", hues)},
            },
            {
                "data": {"name": "points"},
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {
                    "x": {"field": "t", **x},
                    "y": {"field": "left", **y},
                    "color": colour_by("bucket", hues),
                },
            },
        ],
        "config": CONFIG,
    }

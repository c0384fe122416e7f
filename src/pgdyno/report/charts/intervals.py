"""Draw the answer of a comparison: every variant's interval against the reference, on one axis."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.report.charts.chart import CONFIG, Chart, colour_by, colour_of
from pgdyno.report.charts.thin import shorten
from pgdyno.report.format import format_within
from pgdyno.report.verdict_words import HUES, METRIC_WORDS, describe_verdict, effect_of, name_levels

# Vega writes a minus sign, where all other changes on the page have a hyphen.
PERCENT_LABEL = r"(datum.value > 0 ? '+' : '') + replace(format(datum.value, ',~g'), '\u2212', '-') + ' %'"
"""How an axis labels changes, as a Vega expression."""
_LINE_HEIGHT = 15
# From a row's words down: the middle of its bar, the top of the figures below that, and the end of the row, which the last row's
# figures must not pass, because the axis is there.
_BAR_AT, _FIGURES_BELOW, _FIGURES_HEIGHT = 16, 7, 11
_BAR_HEIGHT = _BAR_AT + _FIGURES_BELOW + _FIGURES_HEIGHT
# The longest label line, in characters, that fits on a telephone.
_LINE_LETTERS = 46
# Room at both ends of the axis, so that an interval that ends in the chart does not seem to go on.
_MARGIN_SHARE = 0.04


def intervals_chart(verdicts: Iterable[Verdict], *, titles: Mapping[str, str], reference: str) -> Chart | None:
    """Draw every variant's interval against the reference on one axis; None before the first interval.

    Args:
        verdicts: The verdicts on one metric, in the variants' order.
        titles: What a reader calls each variant, by its name.
        reference: What a reader calls the reference.
    """
    shown = [verdict for verdict in verdicts if verdict.low_ratio is not None and verdict.high_ratio is not None]
    if not shown:
        return None
    labels = [textwrap.wrap(titles[verdict.variant], _LINE_LETTERS) or [titles[verdict.variant]] for verdict in shown]
    words_height = _LINE_HEIGHT * max(map(len, labels))
    row_height = _BAR_HEIGHT + words_height
    domain = _common_domain(shown)
    rows = [
        {
            **_interval_row(verdict, domain),
            "label": label,
            # Labels stand above each bar, where they have room on any page width.
            "words": row + (words_height - _LINE_HEIGHT * len(label) + 6) / row_height,
            "bar": row + (words_height + _BAR_AT) / row_height,
        }
        for row, (verdict, label) in enumerate(zip(shown, labels, strict=True))
    ]
    delta_ratio = shown[0].delta_ratio
    metric = METRIC_WORDS[shown[0].metric]
    return Chart(
        kind="intervals",
        title=f"{metric} against {reference}",
        unit="",
        alt=f"Change of {metric} with its interval: {'; '.join(describe_verdict(verdict) for verdict in shown)}.",
        caption=f"Bars are {name_levels(shown)} intervals; within the band variants are equivalent ({format_within(delta_ratio)}).",
        spec=_intervals_spec(rows=len(rows), height=row_height * len(rows), domain=domain),
        marks={"intervals": rows, "band": [bounds_of(delta_ratio)]},
    )


def _interval_row(verdict: Verdict, domain: tuple[float, float]) -> dict[str, Any]:
    low, high = percent(verdict.low_ratio or 0.0), percent(verdict.high_ratio or 0.0)
    start, end = effect_of(verdict).ends
    before = {"before": domain[0], "before_end": f"{start} %"} if low < domain[0] else {}
    beyond = {"beyond": domain[1], "beyond_end": f"{end} %"} if high > domain[1] else {}
    return {
        "low": max(low, domain[0]),
        "high": min(high, domain[1]),
        **before,
        **beyond,
        "effect": percent(verdict.effect_ratio or 0.0),
        "kind": verdict.kind.value,
    }


def _common_domain(verdicts: list[Verdict]) -> tuple[float, float]:
    """Return a range that holds every decided interval; a wide undecided interval may exceed it."""
    bounds = bounds_of(verdicts[0].delta_ratio)
    decided = [end for one in verdicts if one.is_decided for end in (one.low_ratio or 0.0, one.high_ratio or 0.0)]
    effects = [1.5 * (one.effect_ratio or 0.0) for one in verdicts]
    wanted = [percent(ratio) for ratio in (*decided, *effects)] + [2 * bounds["from"], 2 * bounds["until"]]
    low, high = 2 * min(wanted), 2 * max(wanted)
    open_ends = [percent(end) for one in verdicts for end in (one.low_ratio or 0.0, one.high_ratio or 0.0)]
    least = min(*wanted, *(max(low, end) for end in open_ends))
    most = max(*wanted, *(min(high, end) for end in open_ends))
    margin = _MARGIN_SHARE * (most - least)
    return least - margin, most + margin


def _intervals_spec(rows: int, height: int, domain: tuple[float, float]) -> dict[str, Any]:
    x = {
        "type": "quantitative",
        "scale": {"domain": list(domain), "nice": False},
        "axis": {"title": None, "labelExpr": PERCENT_LABEL, "tickCount": 5, "grid": True, "labelOverlap": True},
    }
    colour = colour_by("kind", {kind.value: HUES[kind] for kind in VerdictKind})

    def y(field: str) -> dict[str, Any]:
        scale = {"domain": [0, rows], "reverse": True, "nice": False}
        return {"field": field, "type": "quantitative", "scale": scale, "axis": None}

    def layer(mark: dict[str, Any], **encoding: Any) -> dict[str, Any]:
        return {"data": {"name": "intervals"}, "mark": mark, "encoding": encoding}

    figures = {"baseline": "top", "dy": _FIGURES_BELOW, "fontSize": _FIGURES_HEIGHT, "color": colour_of("muted")}
    return {
        "width": "container",
        "height": height,
        "layer": [
            {
                "data": {"name": "band"},
                "mark": {"type": "rect", "color": colour_of("blue"), "opacity": 0.12, "clip": True},
                "encoding": {"x": {"field": "from", **x}, "x2": {"field": "until"}},
            },
            {
                "data": {"name": "band"},
                "mark": {"type": "rule", "color": colour_of("shade"), "strokeWidth": 1},
                "encoding": {"x": {"datum": 0, **x}},
            },
            layer({"type": "rule", "strokeWidth": 9, "opacity": 0.45, "clip": True},
                  x={"field": "low", **x}, x2={"field": "high"}, y=y("bar"), color=colour),
            # An interval that goes on beyond the axis ends in an arrow, with its end in figures.
            layer({"type": "point", "shape": "triangle-left", "size": 130, "filled": True, "opacity": 1},
                  x={"field": "before", **x}, y=y("bar"), color=colour),
            layer({"type": "point", "shape": "triangle-right", "size": 130, "filled": True, "opacity": 1},
                  x={"field": "beyond", **x}, y=y("bar"), color=colour),
            layer({"type": "text", "align": "left", **figures},
                  x={"field": "before", **x}, y=y("bar"), text={"field": "before_end"}),
            layer({"type": "text", "align": "right", **figures},
                  x={"field": "beyond", **x}, y=y("bar"), text={"field": "beyond_end"}),
            layer({"type": "tick", "orient": "vertical", "size": 15, "thickness": 3, "clip": True},
                  x={"field": "effect", **x}, y=y("bar"), color=colour),
            layer({"type": "text", "align": "left", "baseline": "top", "fontSize": 12, "lineHeight": 15, "limit": {"expr": "width"},
                   "color": colour_of("ink")},
                  x={"value": 0}, y=y("words"), text={"field": "label"}),
        ],
        "config": CONFIG,
    }  # fmt: skip


def bounds_of(delta_ratio: float) -> dict[str, float]:
    """Return the bounds of equivalence in percent."""
    # The bounds are symmetric in logarithms, as the verdict is: +3 % has the counterpart -2.9 %.
    return {"from": percent(1.0 / (1.0 + delta_ratio) - 1.0), "until": percent(delta_ratio)}


def percent(ratio: float) -> float:
    """Return a ratio in percent, with as many digits as a chart can show."""
    return shorten(ratio * 100.0)

"""Define a chart of the report: a Vega-Lite specification, its data apart from it, and a description.

A page with many trials stores each specification once, and the page, SVG and PNG draw the same one. The specifications
are plain dictionaries: building one through altair takes longer than drawing it, and altair's own schema checks them in
the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pgdyno.report.charts import palette

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
NUMBER_LABEL = "abs(datum.value) >= 1e6 ? format(datum.value, '~s') : format(datum.value, ',~g')"
"""How an axis labels its numbers, as a Vega expression."""


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """How a colour's name becomes a colour, and whether the chart itself has a legend."""

    colour: Callable[[str], str]
    has_legend: bool


CSS_THEME = Theme(colour=lambda name: f"var(--{name})", has_legend=False)
"""For the page: its style sheet gives the colours, by day, by night and on paper; its own legend wraps."""
PICTURE_THEME = Theme(colour=lambda name: palette.LIGHT[name], has_legend=True)
"""For SVG and PNG, which stand alone."""


class LegendEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A series' name, the name of its hue, and its field in the data."""

    label: str
    hue: str
    field: str
    is_line: bool


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart: what it shows, in words and as Vega-Lite, and its data."""

    kind: str
    title: str
    unit: str
    alt: str
    """The description for readers who cannot see the chart."""
    note: str
    """How the data were changed for display; empty where they were not."""
    caption: str
    """What a reader must know to read the chart; empty where nothing is needed."""
    is_wide: bool
    is_timed: bool = False
    """Whether the x axis is a trial's time, so that one moment can be marked in all of the trial's charts."""
    legend: tuple[LegendEntry, ...]
    spec: dict[str, Any]
    """The Vega-Lite specification. It refers to its datasets by name: `series`, and those of `marks`."""
    columns: tuple[dict[str, list[float | None]], ...]
    """The dataset `series`, by column: `t` and the fields of the legend; one group for each set of sampling times."""
    marks: dict[str, list[dict[str, Any]]]
    """Every other dataset, by row, such as `spans` and `moments`."""


def to_vega_lite(chart: Chart, *, width: int, title: str = "", subtitle: str | list[str] = "") -> dict[str, Any]:
    """Return the chart as one Vega-Lite specification with its data, for drawing without the page."""
    data = {"series": _rows(chart.columns), **chart.marks}
    named = title or (f"{chart.title} ({chart.unit})" if chart.unit else chart.title)
    return {
        **chart.spec,
        "width": width,
        "title": {"text": named, "subtitle": subtitle, "anchor": "start"},
        "layer": [{**layer, "data": {"values": data[layer["data"]["name"]]}} for layer in chart.spec["layer"]],
    }


def _rows(groups: Sequence[Mapping[str, list[float | None]]]) -> list[dict[str, float | None]]:
    return [dict(zip(group, row, strict=True)) for group in groups for row in zip(*group.values(), strict=True)]


def colour_by(field: str, hues: Mapping[str, str], theme: Theme) -> dict[str, Any]:
    """Encode a mark's colour by a field whose values are names of hues."""
    scale = {"domain": list(hues), "range": [theme.colour(hue) for hue in hues.values()]}
    legend = {"title": None, "orient": "top"} if theme.has_legend else None
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def config_of(theme: Theme) -> dict[str, Any]:
    """Return the fonts, colours and margins that all charts share."""
    muted, grid = theme.colour("muted"), theme.colour("grid")
    return {
        "background": theme.colour("paper") if theme.has_legend else "transparent",
        "font": FONT,
        "padding": 2 if not theme.has_legend else 12,
        # The figure around the chart has a description; describing hundreds of parts would only be noise.
        "aria": False,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "view": {"stroke": None},
        "title": {
            "color": theme.colour("ink"),
            "fontSize": 14,
            "fontWeight": 600,
            "offset": 8,
            "subtitleColor": muted,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
        },
        "legend": {"labelColor": theme.colour("ink"), "symbolType": "square"},
        "axis": {
            "titleColor": muted,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "labelColor": muted,
            "labelFontSize": 11,
            "gridColor": grid,
            "domainColor": grid,
            "tickColor": grid,
            "tickSize": 4,
            "labelPadding": 4,
            "domain": False,
        },
        "axisX": {"ticks": True, "domain": True},
        "axisY": {"ticks": False, "minExtent": 38},
    }

"""Define a chart of the report: a Vega-Lite specification, its data apart from it, and a description.

A page with many trials stores each specification once. The specifications are plain
dictionaries: building one through altair takes longer than drawing it, and altair's own schema checks them in the
tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
NUMBER_LABEL = "abs(datum.value) >= 1e6 ? format(datum.value, '~s') : format(datum.value, ',~g')"
"""How an axis labels its numbers, as a Vega expression."""


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
    note: str = ""
    """How the data were changed for display; empty where they were not."""
    caption: str = ""
    """What a reader must know to read the chart; empty where nothing is needed."""
    is_wide: bool = True
    is_timed: bool = False
    """True if the x axis is a trial's time, so that one moment can be marked in all of the trial's charts."""
    legend: tuple[LegendEntry, ...] = ()
    spec: dict[str, Any]
    """The Vega-Lite specification. It refers to its datasets by name: `series`, and those of `marks`."""
    columns: tuple[dict[str, list[float | None]], ...] = ()
    """The dataset `series`, by column: `t` and the fields of the legend; one group for each set of sampling times."""
    marks: dict[str, list[dict[str, Any]]]
    """Every other dataset, by row, such as `spans` and `moments`."""


def colour_of(name: str) -> str:
    """Return a colour as CSS: the style sheet gives it, by day, by night and on paper."""
    return f"var(--{name})"


def colour_by(field: str, hues: Mapping[str, str]) -> dict[str, Any]:
    """Encode a mark's colour by a field whose values are names of hues; the page draws the legend, which wraps."""
    scale = {"domain": list(hues), "range": [colour_of(hue) for hue in hues.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": _FONT,
    "padding": 2,
    # The figure around the chart has a description; describing hundreds of parts would only be noise.
    "aria": False,
    "autosize": {"type": "fit-x", "contains": "padding"},
    "view": {"stroke": None},
    "axis": {
        "titleColor": colour_of("muted"),
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelColor": colour_of("muted"),
        "labelFontSize": 11,
        "gridColor": colour_of("grid"),
        "domainColor": colour_of("grid"),
        "tickColor": colour_of("grid"),
        "tickSize": 4,
        "labelPadding": 4,
        "domain": False,
    },
    "axisX": {"ticks": True, "domain": True},
    "axisY": {"ticks": False, "minExtent": 38},
}
"""The fonts, colours and margins that all charts share."""

"""The charts of a page and their places in it."""

from __future__ import annotations

from typing import Any

import msgspec

from pgdyno.report.chart import Chart


class PageChart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart's place in the page."""

    id: str
    chart: Chart


class Drawings:
    """Collects the charts of a page; a specification that several charts share is kept once."""

    def __init__(self) -> None:
        self._specs: dict[bytes, int] = {}
        self._charts: dict[str, dict[str, Any]] = {}

    def add(self, figure_id: str, chart: Chart) -> PageChart:
        """Keep a chart and give its place."""
        encoded = msgspec.json.encode(chart.spec, order="deterministic")
        index = self._specs.setdefault(encoded, len(self._specs))
        self._charts[figure_id] = {"spec": index, "columns": chart.columns, "marks": chart.marks}
        return PageChart(id=figure_id, chart=chart)

    def to_json(self) -> str:
        """Everything the page's script draws from, safe inside a script element."""
        specs = [msgspec.Raw(encoded) for encoded in self._specs]
        encoded = msgspec.json.encode({"specs": specs, "charts": self._charts})
        return encoded.decode().replace("<", "\\u003c")

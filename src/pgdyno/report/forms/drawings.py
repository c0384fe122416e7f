"""Encode the charts of a page. A specification that several charts share is stored once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pgdyno.report.document import ChartBlock


def encode_drawings(charts: Iterable[ChartBlock]) -> str:
    """Return all data for the page's script, as JSON that is safe inside a script element."""
    specs: dict[bytes, int] = {}
    drawn: dict[str, dict[str, Any]] = {}
    for block in charts:
        encoded = msgspec.json.encode(block.chart.spec, order="deterministic")
        index = specs.setdefault(encoded, len(specs))
        drawn[block.id] = {"spec": index, "columns": block.chart.columns, "marks": block.chart.marks}
    made = msgspec.json.encode({"specs": [msgspec.Raw(one) for one in specs], "charts": drawn})
    return made.decode().replace("<", "\\u003c")

"""Check charts against the schema of Vega-Lite, with their data as the page would set it."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import altair as alt
import jsonschema

from pgdyno.report.charts import palette
from pgdyno.report.charts.chart import Chart


def to_vega_lite(chart: Chart) -> dict[str, Any]:
    """Return a chart as one Vega-Lite specification with its data."""
    groups = chart.columns
    series = [dict(zip(group, row, strict=True)) for group in groups for row in zip(*group.values(), strict=True)]
    data = {"series": series, **chart.marks}
    layers = [{**layer, "data": {"values": data[layer["data"]["name"]]}} for layer in chart.spec["layer"]]
    return {**chart.spec, "layer": layers}


def check_vega_lite(chart: Chart | None) -> None:
    """Raise an error if a chart is absent, is not valid Vega-Lite, or has a colour that the style sheet does not have."""
    assert chart is not None
    assert set(re.findall(r"var\(--(\w+)\)", json.dumps(chart.spec))) <= palette.LIGHT.keys()
    check_spec(to_vega_lite(chart))


def check_spec(spec: dict[str, Any]) -> None:
    """Raise an error if a specification does not follow the schema of Vega-Lite."""
    # Altair's own objects would check each part of it once more.
    _validator().validate(spec)


@functools.cache
def _validator() -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(alt.load_schema())

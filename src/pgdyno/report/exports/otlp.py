"""Make OpenTelemetry's metrics requests of metric families, as JSON over HTTP: gauges with the time of each value.

Source: OpenTelemetry Protocol 1.5.0, “JSON Protobuf Encoding”, and opentelemetry/proto/metrics/v1/metrics.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pgdyno.report.exports.families import Family, Line

# Collectors refuse bodies of more than 20 MB by default; a point takes about 300 bytes.
_MOST_POINTS = 10_000


def render_otlp(families: Iterable[Family], *, version: str) -> Iterator[bytes]:
    """Yield the bodies of the requests, each for at most 10,000 values."""
    batch: list[dict[str, Any]] = []
    count = 0
    for family in families:
        for line in family.lines:
            for first in range(0, len(line.points), _MOST_POINTS):
                part = Line(line.labels, line.points[first : first + _MOST_POINTS])
                if count + len(part.points) > _MOST_POINTS:
                    yield _make_body(batch, version)
                    batch, count = [], 0
                batch.append(_make_metric(family, part))
                count += len(part.points)
    if batch:
        yield _make_body(batch, version)


def _make_metric(family: Family, line: Line) -> dict[str, Any]:
    attributes = _make_attributes(line.labels)
    points = [
        # 64-bit integers are text in this encoding.
        {"attributes": attributes, "timeUnixNano": str(round(one.at_s * 1e9)), "asDouble": one.value}
        for one in line.points
    ]
    return {"name": family.name, "description": family.help, "gauge": {"dataPoints": points}}


def _make_body(metrics: list[dict[str, Any]], version: str) -> bytes:
    scope = {"scope": {"name": "pgdyno", "version": version}, "metrics": metrics}
    resource = {"attributes": _make_attributes({"service.name": "pgdyno"})}
    return msgspec.json.encode({"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]})


def _make_attributes(labels: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]

"""Print metric families as OpenMetrics text with time stamps, which Prometheus takes into its past.

Source: OpenMetrics 1.0.0, https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgdyno.report.exports.families import Family

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render_openmetrics(families: Iterable[Family]) -> Iterator[str]:
    """Yield the document in pieces; a family's points of one line are by time."""
    for family in families:
        yield f"# HELP {family.name} {family.help.translate(_ESCAPED)}\n# TYPE {family.name} gauge\n"
        for line in family.lines:
            labels = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in line.labels.items())
            yield "".join(f"{family.name}{{{labels}}} {one.value!r} {one.at_s:.3f}\n" for one in line.points)
    yield "# EOF\n"

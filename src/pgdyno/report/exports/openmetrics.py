"""Print metric families as OpenMetrics text: with time stamps, which Prometheus takes into its past, or as they are now.

Source: OpenMetrics 1.0.0, https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgdyno.report.exports.families import Family

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


MEDIA_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def render_openmetrics(families: Iterable[Family], *, has_times: bool = True) -> Iterator[str]:
    """Yield the document in pieces; a family's points of one line are by time.

    Args:
        families: The families.
        has_times: Whether each value has its time; a line may have but one value otherwise.
    """
    for family in families:
        yield f"# HELP {family.name} {family.help.translate(_ESCAPED)}\n# TYPE {family.name} gauge\n"
        for line in family.lines:
            labels = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in line.labels.items())
            head = f"{family.name}{{{labels}}}"
            times = [f" {one.at_s:.3f}" if has_times else "" for one in line.points]
            yield "".join(f"{head} {one.value!r}{at}\n" for one, at in zip(line.points, times, strict=True))
    yield "# EOF\n"

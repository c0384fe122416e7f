"""Read `metrics.toml`: the registry of all metrics that a report shows.

It defines the unit, better direction and meaning of every metric once for all charts, tables and verdicts. A
metric without an entry is a programming error.
"""

from __future__ import annotations

import enum
import functools

import msgspec

from pgdyno.facts.data_file import read_toml
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR
from pgdyno.facts.views import server_counters


class Better(enum.Enum):
    """Direction in which a metric becomes better; NONE if neither is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric."""

    name: str
    unit: str
    """Unit: tps, ratio, count, bytes, pages, s, ms, /s or bytes/s."""
    better: Better
    meaning: str


class _Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    metric: tuple[Metric, ...]


@functools.cache
def all_metrics() -> dict[str, Metric]:
    """Return every metric by name: those of `metrics.toml`, and the server's counters under their canonical names."""
    counters = server_counters(NEWEST_TRIED_MAJOR).counters
    known = {c.name: Metric(name=c.name, unit=c.unit.value, better=Better.NONE, meaning=c.meaning) for c in counters}
    return {**known, **{metric.name: metric for metric in read_toml("metrics.toml", _Metrics).metric}}


def find_metric(name: str) -> Metric:
    """Find a metric by name.

    Raises:
        LookupError: No metric has that name.
    """
    try:
        return all_metrics()[name]
    except KeyError:
        raise LookupError(f"no metric is called {name}") from None

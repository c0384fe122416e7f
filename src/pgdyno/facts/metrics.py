"""What each metric that a report shows is: the typed reader of `metrics.toml`.

One registry gives every metric its unit, range, better direction and meaning, so that no chart, table or verdict
carries its own idea of them. It refuses unknown names: a metric without a line here is a mistake.
"""

from __future__ import annotations

import enum
import functools
import importlib.resources

import msgspec

from pgdyno.facts.versions import NEWEST_TRIED_MAJOR
from pgdyno.facts.views import server_counters


class Better(enum.Enum):
    """Which way is good; NONE where more is neither better nor worse by itself."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class Metric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric. `low` and `high` bound its possible values; None where nothing does."""

    name: str
    unit: str
    """tps, ratio, count, bytes, pages, ms, /s, bytes/s."""
    better: Better
    meaning: str
    low: float | None = None
    high: float | None = None


class _Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    metric: tuple[Metric, ...]


@functools.cache
def all_metrics() -> dict[str, Metric]:
    """Every metric by name: those of `metrics.toml`, and the server's counters under their canonical names."""
    text = importlib.resources.files("pgdyno.facts").joinpath("metrics.toml").read_bytes()
    counters = server_counters(NEWEST_TRIED_MAJOR).counters
    known = {
        c.name: Metric(name=c.name, unit=c.unit.value, better=Better.NONE, meaning=c.meaning, low=0) for c in counters
    }
    return {**known, **{metric.name: metric for metric in msgspec.toml.decode(text, type=_Metrics).metric}}


def find_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        LookupError: There is none.
    """
    try:
        return all_metrics()[name]
    except KeyError:
        raise LookupError(f"no metric is called {name}") from None

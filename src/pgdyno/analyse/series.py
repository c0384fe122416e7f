"""Define the charts of a trial, their series and events.

It imports no analysis, so that code that only names a chart starts fast.

Times named `t_s` count from the start of the trial's measured load.
"""

from __future__ import annotations

import enum

import msgspec


class ChartKind(enum.Enum):
    """The charts of a trial, in the order of the report. Each is a tuple of series on one axis."""

    TPS = "tps"
    LATENCY = "latency"
    WAITS = "waits"
    """Average active client backends by wait class, stacked; `CPU` is running, not waiting."""
    CPU = "cpu"
    """Share of all CPUs by kind, stacked, and the busiest core."""
    RUN_QUEUE = "run_queue"
    CPU_QUOTA = "cpu_quota"
    """Only where a control group enforces one."""
    DISK_IOPS = "disk_iops"
    DISK_THROUGHPUT = "disk_throughput"
    DISK_LATENCY = "disk_latency"
    DIRTY_MEMORY = "dirty_memory"
    WAL = "wal"
    FULL_PAGE_IMAGES = "full_page_images"
    BUFFER_WRITES = "buffer_writes"
    """Pages that left shared_buffers, or were added to files, by who wrote them."""
    CACHE_HITS = "cache_hits"
    PRESSURE = "pressure"
    STANDBY_LAG = "standby_lag"
    """WAL that standbys had not yet written, flushed and replayed; only where there are any."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over time. `metric` is its name in facts/metrics.toml; None marks a moment without an observation."""

    metric: str
    label: str
    unit: str
    t_s: tuple[float, ...]
    values: tuple[float | None, ...]


SWAPPING, OUT_OF_MEMORY = "swapping", "out of memory"
"""Kinds of events of the machine's memory."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event at the moment `t_s`, or from `t_s` until `until_s`."""

    kind: str
    """`checkpoint`, `autovacuum`, `error`, `level shift`, `swapping`, `out of memory`."""
    t_s: float
    until_s: float | None
    text: str

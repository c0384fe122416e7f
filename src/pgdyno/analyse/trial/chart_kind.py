"""Name the charts of a trial. It imports no analysis, so that code that only names a chart starts fast."""

from __future__ import annotations

import enum


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
    PRESSURE = "pressure"

"""Derive I/O below the buffer cache: the concurrency and size of reads, and the background writer."""

from __future__ import annotations

import math

from pgdyno.tune.disk.classes import find_read_latency
from pgdyno.tune.draft import KB, Draft, size
from pgdyno.tune.types import DiskKind, Layer, WorkloadClass
from pgdyno.units import PAGE_BYTES

# The built-in default of PostgreSQL 18 for any disk; before 18 it was 1 and 10.
_LEAST_READS, _MOST_READS = 16, 256
_ASYNC = "PostgreSQL 18 manual, section 19.4.5 “I/O”"
_WRITER = "PostgreSQL 18 manual, section 19.4.4 “Background Writer”"


def derive_io(draft: Draft) -> None:
    """Decide concurrency and size of reads."""
    disk = draft.subject.disk
    latency = find_read_latency(disk)
    # Fewer reads leave the disk idle at times; more only wait in its queue, where they delay others.
    # Source: Little's law; Lazowska et al. 1984, Quantitative System Performance, section 5.2, asymptotic bounds.
    busy = math.ceil(disk.random_read_iops.value * latency.value)
    value = max(_LEAST_READS, min(_MOST_READS, busy))
    why = "which is what this disk needs to be busy" if value == busy else f"while {busy} would keep this disk busy"
    for name, what in (
        ("effective_io_concurrency", "one query's scan"),
        ("maintenance_io_concurrency", "one vacuum or analyze"),
    ):
        draft.put(
            name,
            str(value),
            layer=Layer.IO,
            reason=f"{what} keeps this many reads in flight, {why}.",
            formula="random read IOPS × latency of one at a time (Little's law), at least the 16 that PostgreSQL 18 has built in, at most 256",
            inputs=(disk.random_read_iops, latency),
            source=f"{_ASYNC}, {name}; J. D. C. Little, Operations Research 9 (1961), doi:10.1287/opre.9.3.383",
            trades="other sessions' reads wait behind them",
        )
    _put_workers(draft)
    _put_combine(draft)


def _put_workers(draft: Draft) -> None:
    cpus = draft.subject.cpus
    draft.put(
        "io_workers",
        str(min(32, max(3, math.floor(cpus.value / 4)))),
        layer=Layer.IO,
        reason="these processes do the asynchronous reads, and one keeps up with the sessions of four CPUs.",
        formula="CPUs / 4, from 3 to 32",
        inputs=(cpus,),
        source=f"{_ASYNC}, io_method, io_workers; T. Vondra, “Tuning AIO in PostgreSQL 18” (2025)",
        trades="processes that also work for single sessions",
    )


def _put_combine(draft: Draft) -> None:
    """Decide io_combine_limit, so that reads of a disk with limited IOPS are large enough to use its bandwidth."""
    subject, disk = draft.subject, draft.subject.disk
    needed = disk.read_bytes_per_s.value / disk.random_read_iops.value
    if disk.kind is DiskKind.HDD or needed <= 128 * KB or subject.workload is not WorkloadClass.ANALYTIC:
        return
    most = 1024 * KB if subject.major >= 18 else 256 * KB
    value = size(min(most, 2 ** math.ceil(math.log2(needed))))
    for name in ("io_max_combine_limit", "io_combine_limit"):
        draft.put(
            name,
            value,
            layer=Layer.IO,
            reason="this disk is limited in reads a second, and reaches its bandwidth only with reads of this size.",
            formula="read bandwidth / random read IOPS, rounded up to a power of 2",
            inputs=(disk.read_bytes_per_s, disk.random_read_iops),
            source=f"{_ASYNC}, {name}",
            trades="a query that stops early has read more than it needed",
        )


def derive_writer(draft: Draft) -> None:
    """Decide the background writer's rate, after memory is decided."""
    subject = draft.subject
    writes = subject.workload is not WorkloadClass.OLTP_READ
    if not writes or subject.dataset.value <= draft.number("shared_buffers"):
        return
    delay_s = 0.05
    # Evicted pages are at random positions.
    disk = subject.disk
    ceiling = min(disk.write_bytes_per_s.value / PAGE_BYTES, disk.random_write_iops.value) * delay_s
    shared_source = f"{_WRITER}; src/backend/storage/buffer/bufmgr.c, BgBufferSync()"
    for name, value, reason, formula in (
        (
            "bgwriter_delay",
            "50ms",
            "with data larger than shared_buffers, pages are evicted all the time: small and frequent rounds avoid bursts.",
            "50 ms where data > shared_buffers and the class writes",
        ),
        (
            "bgwriter_lru_maxpages",
            str(max(100, min(1000, round(ceiling)))),
            "it writes only pages that are soon to be evicted, in each round as many as the disk takes meanwhile, and no fewer than the built-in 100.",
            "random write IOPS, or write bandwidth / 8 kB where that is less, × bgwriter_delay, from 100 to 1000",
        ),
    ):
        draft.put(
            name,
            value,
            layer=Layer.BACKGROUND_WRITER,
            reason=reason,
            formula=formula,
            inputs=(subject.dataset, disk.random_write_iops, disk.write_bytes_per_s),
            source=shared_source,
            trades="a page that changes again soon is written twice",
        )

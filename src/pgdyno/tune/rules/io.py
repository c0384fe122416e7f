"""Derive I/O below the buffer cache: the concurrency and size of reads, and the background writer."""

from __future__ import annotations

import math

from pgdyno.tune.disk.classes import find_read_latency
from pgdyno.tune.draft import KB, Draft, size
from pgdyno.tune.types import DiskKind, Known, Layer, WorkloadClass
from pgdyno.units import PAGE_BYTES

# The built-in default of PostgreSQL 18 for any disk; before 18 it was 1 and 10.
_LEAST_READS, _MOST_READS = 16, 256
# What PostgreSQL 18 has built in; 19, whose pool grows to io_max_workers and shrinks by itself, has more. Both take as many.
_LEAST_WORKERS, _MOST_WORKERS = {"io_workers": 3, "io_max_workers": 8}, 32
# The most that PostgreSQL 18 chooses for io_max_concurrency.
_MOST_CHOSEN_READS = 64
_ASYNC = "PostgreSQL 18 manual, section 19.4.5 “I/O”"
_WRITER = "PostgreSQL 18 manual, section 19.4.4 “Background Writer”"


def derive_io(draft: Draft) -> None:
    """Decide concurrency and size of reads."""
    disk = draft.subject.disk
    latency = find_read_latency(disk)
    # Fewer reads leave the disk idle at times; more only wait in its queue, where they delay others.
    # Source: Little's law; Lazowska et al. 1984, Quantitative System Performance, section 5.2, asymptotic bounds.
    busy = math.ceil(disk.random_read_iops.value * latency.value)
    method = draft.text("io_method") if draft.guc("io_method") else "sync"
    if method == "worker":
        _put_workers(draft, busy, latency)
    most, limit = _limit_reads(draft, method)
    value = max(_LEAST_READS, min(most, busy))
    why = "which is what this disk needs to be busy" if value == busy else f"while {busy} would keep this disk busy"
    for name, what in (
        ("effective_io_concurrency", "one query's scan"),
        ("maintenance_io_concurrency", "one vacuum or analyze"),
    ):
        draft.put(
            name,
            str(value),
            layer=Layer.IO,
            reason=f"{what} asks for this many reads at once, {why}.",
            formula=f"random read IOPS × latency of one at a time (Little's law), at most {limit}, at least the 16 that PostgreSQL 18 has built in",
            inputs=(disk.random_read_iops, latency),
            source=f"{_ASYNC}, {name}; J. D. C. Little, Operations Research 9 (1961), doi:10.1287/opre.9.3.383",
            trades="other sessions' reads wait behind them",
        )
    _put_combine(draft)


def _limit_reads(draft: Draft, method: str) -> tuple[int, str]:
    """Return how many reads one session can have in flight, and in words what limits them.

    Source: PostgreSQL 18 src/backend/storage/aio/method_worker.c, IoWorkerMain(); aio_init.c, AioChooseMaxConcurrency().
    """
    limits = [(_MOST_READS, f"{_MOST_READS}")]
    name = _find_workers(draft)
    if method == "worker" and name is not None:
        workers = int(draft.number(name))
        limits.append((workers, f"the {workers} of {name}"))
    if method in {"worker", "io_uring"} and draft.guc("io_max_concurrency"):
        most = int(draft.number("io_max_concurrency"))
        most = _MOST_CHOSEN_READS if most < 0 else most
        limits.append((most, f"the {most} of io_max_concurrency"))
    return min(limits)


def _find_workers(draft: Draft) -> str | None:
    """Return the setting that bounds the number of I/O workers; None if the server has none."""
    return next((name for name in _LEAST_WORKERS if draft.guc(name)), None)


def _put_workers(draft: Draft, busy: int, latency: Known) -> None:
    cpus, name = draft.subject.cpus, _find_workers(draft)
    if name is None:
        return
    least = _LEAST_WORKERS[name]
    by_cpus = math.floor(cpus.value / 4)
    why = "one keeps up with the sessions of four CPUs"
    if busy > max(by_cpus, least):
        why = f"each does one at a time: {busy} would keep this disk busy"
    draft.put(
        name,
        str(min(_MOST_WORKERS, max(least, by_cpus, busy))),
        layer=Layer.IO,
        reason=f"these processes do the asynchronous reads of all sessions, and {why}.",
        formula=f"the larger of CPUs / 4 and random read IOPS × latency of one at a time (Little's law), from {least} to 32",
        inputs=(cpus, draft.subject.disk.random_read_iops, latency),
        source=f"{_ASYNC}, io_method, {name}; T. Vondra, “Tuning AIO in PostgreSQL 18” (2025)",
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
    ceiling = disk.scattered.bytes_per_s / PAGE_BYTES * delay_s
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

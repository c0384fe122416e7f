"""List the figures of a disk card under the names known from fio tables.

An entry is a figure that DBAs ask for: random read IOPS, sequential MB/s, flushes per second, latency at depth one.
Entries exist only for what was measured. If several measurements could answer, `how` says which one did.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from pgdyno.analyse.disk.card import DiskFigures, LatencyFigures
from pgdyno.analyse.estimate import Estimate
from pgdyno.facts.metrics import Better
from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import DiskCard, FlushTest
from pgdyno.units import PAGE_BYTES, format_bytes

_PER_S, _US = "1/s", "us"


class DiskFigureKey(enum.Enum):
    """The names of a disk's figures."""

    RANDOM_READ = "random_read_iops"
    RANDOM_WRITE = "random_write_iops"
    MIXED = "mixed_iops"
    SEQUENTIAL_READ = "sequential_read_bytes_per_s"
    SEQUENTIAL_WRITE = "sequential_write_bytes_per_s"
    WAL = "wal_bytes_per_s"
    FLUSHES = "flushes_per_s"
    FLUSH_TEST = "pg_test_fsync_per_s"
    READ_P50 = "random_read_p50_us"
    READ_P99 = "random_read_p99_us"
    WRITE_P50 = "random_write_p50_us"
    WRITE_P99 = "random_write_p99_us"
    FLUSH_P50 = "flush_p50_us"
    FLUSH_P99 = "flush_p99_us"


class DiskFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of a disk."""

    key: DiskFigureKey
    estimate: Estimate
    how: str
    """How it was measured, in a clause: `from depth 16 on`."""

    @property
    def better(self) -> Better:
        """Which direction is better."""
        return Better.LOWER if self.estimate.unit == _US else Better.HIGHER


def list_entries(card: DiskCard, figures: DiskFigures) -> tuple[DiskFigure, ...]:
    """List the measured figures, in the order in which DBAs ask for them."""
    found = {entry.key: entry for entry in (*_rates(figures), *_flushes(card, figures), *_latencies(figures))}
    return tuple(found[key] for key in DiskFigureKey if key in found and found[key].estimate.value is not None)


def find_flush_test(card: DiskCard) -> FlushTest | None:
    """Return the pg_test_fsync result for one page with PostgreSQL's default method here; None if it was not run."""
    of_page = [test for test in card.flush_tests if test.group == "one 8kB write" and test.ops_per_s]
    return next((test for test in of_page if test.is_default), None)


def _rates(figures: DiskFigures) -> Iterator[DiskFigure]:
    for key, pattern in (
        (DiskFigureKey.RANDOM_READ, Pattern.RANDOM_READ),
        (DiskFigureKey.RANDOM_WRITE, Pattern.RANDOM_WRITE),
        (DiskFigureKey.MIXED, Pattern.MIXED),
        (DiskFigureKey.SEQUENTIAL_READ, Pattern.SEQUENTIAL_READ),
        (DiskFigureKey.SEQUENTIAL_WRITE, Pattern.SEQUENTIAL_WRITE),
    ):
        plateau = figures.find_plateau(pattern)
        if plateau is not None:
            is_rate = pattern in {Pattern.SEQUENTIAL_READ, Pattern.SEQUENTIAL_WRITE}
            is_deepest = plateau.depth == plateau.depths[-1]
            depths = f"depth {plateau.depth}" if is_deepest else f"from depth {plateau.depth} on"
            share = f"{plateau.read_ratio * 100:.0f} % reads, " if plateau.read_ratio else ""
            estimate = plateau.bytes_per_s if is_rate else plateau.iops
            yield DiskFigure(key=key, estimate=estimate, how=f"{share}{depths}")
    wal = [one for one in figures.jobs if one.job.pattern is Pattern.WAL and one.job.block_bytes > PAGE_BYTES]
    if wal:
        largest = max(wal, key=lambda one: one.job.block_bytes)
        how = f"{format_bytes(largest.job.block_bytes)} each, flushed"
        yield DiskFigure(key=DiskFigureKey.WAL, estimate=largest.bytes_per_s, how=how)


def _flushes(card: DiskCard, figures: DiskFigures) -> Iterator[DiskFigure]:
    """Yield the flush figures: commits wait for sequential pages in an existing file, each flushed with fdatasync."""
    own = figures.find(Pattern.WAL) or figures.find(Pattern.WRITE_AND_FLUSH)
    if own is not None:
        how = "sequential pages" if own.job.pattern is Pattern.WAL else "random pages"
        yield DiskFigure(key=DiskFigureKey.FLUSHES, estimate=own.iops, how=how)
        yield from _percentiles(own.flush, DiskFigureKey.FLUSH_P50, DiskFigureKey.FLUSH_P99, how=how)
    test = find_flush_test(card)
    if test is not None:
        reason = "one run has no interval"
        once = Estimate(value=test.ops_per_s, low=None, high=None, n=1, unit=_PER_S, reason=reason)
        yield DiskFigure(key=DiskFigureKey.FLUSH_TEST, estimate=once, how=test.name)
        if own is None:
            yield DiskFigure(key=DiskFigureKey.FLUSHES, estimate=once, how=f"pg_test_fsync, {test.name}")


def _latencies(figures: DiskFigures) -> Iterator[DiskFigure]:
    read, write = (figures.find(pattern) for pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE))
    how = "one at a time"
    if read is not None:
        yield from _percentiles(read.read, DiskFigureKey.READ_P50, DiskFigureKey.READ_P99, how=how)
    if write is not None:
        yield from _percentiles(write.write, DiskFigureKey.WRITE_P50, DiskFigureKey.WRITE_P99, how=how)


def _percentiles(
    latency: LatencyFigures | None, p50: DiskFigureKey, p99: DiskFigureKey, *, how: str
) -> Iterator[DiskFigure]:
    if latency is not None:
        yield DiskFigure(key=p50, estimate=latency.p50_us, how=how)
        yield DiskFigure(key=p99, estimate=latency.p99_us, how=how)

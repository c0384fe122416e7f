"""What is to be measured of a storage path: jobs of fio in rounds, their order, size and expected time.

A job is one access pattern at one depth. Rounds repeat all jobs in random order, since what a disk gives depends on what
it has just done (token buckets, caches, garbage collection) and one run of each would take that for the disk.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator

import msgspec

from pgdyno.units import PAGE_BYTES

_KIB, _MIB = 2**10, 2**20
# Large enough for any file system to hand on whole, and the depth that hides one request's latency behind others.
_LARGE_BYTES = _MIB
_LARGE_DEPTH = 8
# As most published mixes have it.
_MIXED_READ_RATIO = 0.7
_MIXED_DEPTH = 16
FIO_START_S = 0.35
"""What fio needs beside a run's own time: it starts, and looks four times a second whether the run is over."""
# Source: PostgreSQL 15 to 18 src/bin/pg_test_fsync/pg_test_fsync.c, main().
FLUSH_TESTS = 16
"""Of pg_test_fsync, those that Linux has: 2 x 4 methods, 5 sizes, 2 descriptors, and one without a flush."""
# To predict how long laying out takes; what a slow disk cannot write in time is cut off.
_USUAL_BYTES_PER_S = 400e6
# The least that is worth measuring on, and of what is free no more than this.
_LEAST_FILE_BYTES = 64 * _MIB
_MOST_OF_FREE = 0.25


class Pattern(enum.Enum):
    """How a file is accessed, in the words of the field."""

    RANDOM_READ = "random read"
    RANDOM_WRITE = "random write"
    SEQUENTIAL_READ = "sequential read"
    SEQUENTIAL_WRITE = "sequential write"
    MIXED = "mixed"
    """Random reads and writes at once, as OLTP has them beyond memory."""
    WRITE_AND_FLUSH = "write and flush"
    """One random page and a flush after it."""
    WAL = "WAL"
    """Sequential writes into a file that exists, each with fdatasync."""


class DiskJob(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern at one depth, run once in each round."""

    pattern: Pattern
    block_bytes: int
    depth: int = 1
    """I/Os under way at once."""
    read_ratio: float | None = None
    """Of the mixed pattern: reads among all I/Os."""
    runtime_s: float

    @property
    def is_flushed(self) -> bool:
        """Whether each write is followed by a flush that is waited for."""
        return self.pattern in {Pattern.WRITE_AND_FLUSH, Pattern.WAL}


class DiskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that is to be measured of one path."""

    file_bytes: int
    rounds: tuple[tuple[DiskJob, ...], ...]
    """Each holds every job once, in the order to be run."""
    flush_test_s: float
    """Of pg_test_fsync, for each of its tests; 0: it is left out."""
    clock_test_s: float
    expected_s: float
    """With laying out the file."""
    fill_s: float = 20.0
    """The most that laying out the file may take: what is not written by then is cut off."""
    seed: int

    @property
    def expected_fill_s(self) -> float:
        """Of laying out the file."""
        return _predict_fill_s(self.file_bytes, self.fill_s)


class _Scope(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    file_bytes: int
    fill_s: float
    depths: tuple[int, ...]
    wal_bytes: tuple[int, ...]
    rounds: int
    runtime_s: float
    flush_test_s: float
    clock_test_s: float


_QUICK = _Scope(
    file_bytes=512 * _MIB,
    fill_s=6.0,
    depths=(1, 32),
    wal_bytes=(PAGE_BYTES,),
    rounds=3,
    runtime_s=0.75,
    flush_test_s=0.0,
    clock_test_s=1.0,
)
_WHOLE = _Scope(
    file_bytes=2048 * _MIB,
    fill_s=20.0,
    depths=(1, 4, 16, 64, 256),
    wal_bytes=(PAGE_BYTES, 64 * _KIB, _MIB),
    rounds=6,
    runtime_s=1.25,
    flush_test_s=1.0,
    clock_test_s=3.0,
)


def make_disk_plan(*, is_quick: bool, free_bytes: int, seed: int, wants_fio: bool = True) -> DiskPlan:
    """What to measure of a path, in which order, and how long that takes.

    Args:
        is_quick: Within 40 s rather than 4 minutes: fewer depths and sizes, no pg_test_fsync.
        free_bytes: Of the path's file system.
        seed: Draws the order.
        wants_fio: Whether there is fio; without it only PostgreSQL's own programs are left.
    """
    scope = _QUICK if is_quick else _WHOLE
    spare_bytes = int(free_bytes * _MOST_OF_FREE) // _MIB * _MIB
    # pg_test_fsync writes to no more of a file than a WAL segment.
    wanted_bytes = scope.file_bytes if wants_fio else _LEAST_FILE_BYTES
    file_bytes = max(_LEAST_FILE_BYTES, min(wanted_bytes, spare_bytes))
    jobs = tuple(_list_jobs(scope)) if wants_fio else ()
    draw = random.Random(seed)  # noqa: S311 - an order, no secret
    load_s = scope.rounds * sum(job.runtime_s + FIO_START_S for job in jobs)
    tests_s = FLUSH_TESTS * scope.flush_test_s + scope.clock_test_s
    return DiskPlan(
        file_bytes=file_bytes,
        rounds=tuple(tuple(draw.sample(jobs, k=len(jobs))) for _ in range(scope.rounds)) if jobs else (),
        flush_test_s=scope.flush_test_s,
        clock_test_s=scope.clock_test_s,
        expected_s=load_s + tests_s + (_predict_fill_s(file_bytes, scope.fill_s) if jobs else 0.0),
        fill_s=scope.fill_s,
        seed=seed,
    )


def _predict_fill_s(file_bytes: int, most_s: float) -> float:
    return min(most_s, file_bytes / _USUAL_BYTES_PER_S)


def _list_jobs(scope: _Scope) -> Iterator[DiskJob]:
    runtime_s = scope.runtime_s
    for pattern in (Pattern.RANDOM_READ, Pattern.RANDOM_WRITE):
        for depth in scope.depths:
            yield DiskJob(pattern=pattern, block_bytes=PAGE_BYTES, depth=depth, runtime_s=runtime_s)
    for pattern in (Pattern.SEQUENTIAL_READ, Pattern.SEQUENTIAL_WRITE):
        yield DiskJob(pattern=pattern, block_bytes=_LARGE_BYTES, depth=_LARGE_DEPTH, runtime_s=runtime_s)
    yield DiskJob(
        pattern=Pattern.MIXED,
        block_bytes=PAGE_BYTES,
        depth=_MIXED_DEPTH,
        read_ratio=_MIXED_READ_RATIO,
        runtime_s=runtime_s,
    )
    yield DiskJob(pattern=Pattern.WRITE_AND_FLUSH, block_bytes=PAGE_BYTES, runtime_s=runtime_s)
    for block_bytes in scope.wal_bytes:
        yield DiskJob(pattern=Pattern.WAL, block_bytes=block_bytes, runtime_s=runtime_s)

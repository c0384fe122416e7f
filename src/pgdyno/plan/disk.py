"""Plan the measurement of a storage path: fio jobs in rounds, with their order, size and expected time.

A job is one access pattern at one queue depth. Rounds repeat all jobs in random order, because a disk's performance
depends on what it has just done (token buckets, caches, garbage collection), which a single run of each job would hide.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterator

import msgspec

from pgdyno.units import PAGE_BYTES

_KIB, _MIB = 2**10, 2**20
# A size that every file system passes on whole, and a depth at which requests hide each other's latency.
_LARGE_BYTES = _MIB
_LARGE_DEPTH = 8
# The ratio of most published mixes.
_MIXED_READ_RATIO = 0.7
_MIXED_DEPTH = 16
FIO_START_S = 0.35
"""Time that fio takes in addition to the run: it starts, and checks four times a second whether the run has ended."""
# Source: PostgreSQL 15 to 18 src/bin/pg_test_fsync/pg_test_fsync.c, main().
FLUSH_TESTS = 16
"""Tests of pg_test_fsync on Linux: 2 x 4 methods, 5 sizes, 2 descriptors, and one without a flush."""
# Predicts how long writing the test file takes; on a slow disk the file is cut at the time limit.
_USUAL_BYTES_PER_S = 400e6
# A file whose size is asked for is cut only on a disk that is slower than this.
_LEAST_BYTES_PER_S = 20e6
LEAST_FILE_BYTES = 64 * _MIB
"""Size of the smallest useful test file."""
LEAST_RUNTIME_S, MOST_RUNTIME_S = 0.5, 3600.0
"""Shortest and longest run: fio reports eight times a second, and a round has up to 17 runs."""
# Largest share of the free space that the test file takes, unless its size is asked for.
_MOST_OF_FREE = 0.25
FULL_CPU_RATIO = 0.9
"""Share of a CPU from which a process of fio may be the limit: below, it still waits for the disk now and then."""


class Pattern(enum.Enum):
    """Access pattern of a file."""

    RANDOM_READ = "random read"
    RANDOM_WRITE = "random write"
    SEQUENTIAL_READ = "sequential read"
    SEQUENTIAL_WRITE = "sequential write"
    MIXED = "mixed"
    """Concurrent random reads and writes, like OLTP on data larger than memory."""
    WRITE_AND_FLUSH = "write and flush"
    """Write one random page, then flush."""
    WAL = "WAL"
    """Sequential writes into an existing file, each followed by fdatasync."""


_SHARED = frozenset({Pattern.RANDOM_READ, Pattern.RANDOM_WRITE, Pattern.MIXED})


class DiskJob(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern at one queue depth, run once in each round."""

    pattern: Pattern
    block_bytes: int
    depth: int = 1
    """Concurrent I/Os."""
    read_ratio: float | None = None
    """Share of reads in the mixed pattern."""
    runtime_s: float
    processes: int = 1
    """Processes of fio that share the concurrent I/Os evenly."""

    @property
    def is_flushed(self) -> bool:
        """True if the job waits for a flush after each write."""
        return self.pattern in {Pattern.WRITE_AND_FLUSH, Pattern.WAL}


class DiskPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of one path."""

    file_bytes: int
    rounds: tuple[tuple[DiskJob, ...], ...]
    """Rounds that hold every job once, in the order of running."""
    flush_test_s: float
    """Seconds for each test of pg_test_fsync; 0 means that it is not run."""
    clock_test_s: float
    expected_s: float
    """Expected seconds, including writing the test file."""
    fill_s: float = 20.0
    """Time limit for writing the test file, which is cut at what was written by then."""
    seed: int
    most_processes: int = 1
    """Most processes of fio for one job: more would take CPUs from each other."""

    @property
    def expected_fill_s(self) -> float:
        """Expected seconds for writing the test file."""
        return _predict_fill_s(self.file_bytes, self.fill_s)


class _Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Extent of a measurement."""

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


def make_disk_plan(
    *,
    is_quick: bool,
    free_bytes: int,
    seed: int,
    wants_fio: bool = True,
    cpu_count: int = 1,
    file_bytes: int | None = None,
    runtime_s: float | None = None,
) -> DiskPlan:
    """Plan what to measure of a path, in which order, and for how long.

    Args:
        is_quick: Whether to take 40 s instead of 4 minutes, with fewer depths and sizes and without pg_test_fsync.
        free_bytes: Free space of the path's file system.
        seed: Seed of the random order.
        wants_fio: Whether to run fio; without it only PostgreSQL's own programs run.
        cpu_count: CPUs that fio may use.
        file_bytes: Size of the test file, whatever is free; None: the usual one, if there is room.
        runtime_s: Seconds of each run of fio; None: the usual ones.
    """
    scope = _choose_scope(is_quick=is_quick, file_bytes=file_bytes, runtime_s=runtime_s)
    if file_bytes is None or not wants_fio:
        spare_bytes = int(free_bytes * _MOST_OF_FREE)
        # pg_test_fsync writes at most one WAL segment of a file.
        wanted_bytes = scope.file_bytes if wants_fio else LEAST_FILE_BYTES
        file_bytes = max(LEAST_FILE_BYTES, min(wanted_bytes, spare_bytes))
    # fio lays the file out in blocks of this size, and leaves out the rest.
    file_bytes = file_bytes // _MIB * _MIB
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
        most_processes=cpu_count,
    )


def split_job(job: DiskJob, *, most_processes: int) -> DiskJob | None:
    """Return a job with twice as many processes of fio; None where they cannot share its I/Os, or are too many.

    Only random I/Os are shared: two sequential streams would be another pattern.
    """
    processes = job.processes * 2
    if job.pattern not in _SHARED or job.depth % processes or processes > most_processes:
        return None
    return msgspec.structs.replace(job, processes=processes)


def _choose_scope(*, is_quick: bool, file_bytes: int | None, runtime_s: float | None) -> _Scope:
    scope = _QUICK if is_quick else _WHOLE
    if runtime_s is not None:
        scope = msgspec.structs.replace(scope, runtime_s=runtime_s)
    if file_bytes is not None:
        fill_s = max(scope.fill_s, file_bytes / _LEAST_BYTES_PER_S)
        scope = msgspec.structs.replace(scope, file_bytes=file_bytes, fill_s=fill_s)
    return scope


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

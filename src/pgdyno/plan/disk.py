"""What is to be measured of a storage path: jobs of fio in rounds, their order, size and expected time.

A job is one access pattern at one depth. Rounds repeat all jobs in random order, since what a disk gives depends on what
it has just done (token buckets, caches, garbage collection) and one run of each would take that for the disk.
"""

from __future__ import annotations

import enum

import msgspec


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
    seed: int

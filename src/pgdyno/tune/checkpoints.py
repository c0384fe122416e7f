"""How much WAL a checkpoint interval makes, what the disk and the time allowed for recovery leave of it: pure models.

They decide nothing; `layer_wal` does.
"""

from __future__ import annotations

from pgdyno.tune.draft import MB
from pgdyno.tune.types import Disk, Known, TuningSubject, WorkloadClass
from pgdyno.units import PAGE_BYTES

SEGMENT_BYTES = 16 * MB
# What recovery, which is one process, takes in: half of it images of pages, half single rows, of which a CPU replays
# 650 and 58 MB/s. Source: PostgreSQL 15 and 18 on an AMD EPYC; docs/derivation.md has how it was got.
_REPLAY_BYTES_PER_S = 100e6
# What a busy CPU writes of WAL in each class, page images included, taken to grow with each CPU. Source: pgbench's
# tpcb-like writes 2 to 6 kB for a transaction, and a CPU does about 1000 of them in a second; a COPY writes 110 MB for
# each second of its CPU (PostgreSQL 15 on an AMD EPYC), and of 22 analytic CPUs one is supposed to load.
_WAL_BYTES_PER_CPU_S = {
    WorkloadClass.OLTP_WRITE: 5e6,
    WorkloadClass.OLTP_READ: 0.5e6,
    WorkloadClass.MIXED: 2e6,
    WorkloadClass.ANALYTIC: 5e6,
}
# Each page's change is written to the WAL and, later, to its file.
_WAL_SHARE_OF_DISK = 1 / 3
# By wal_compression: more CPU time than without, and what is left, of the image of a page; the mean of pgbench's rows,
# random letters and sentences. Source: PostgreSQL 15 on an AMD EPYC; docs/derivation.md has the figures and how they
# were got.
COMPRESSIONS = {"off": (0.0, 1.0), "lz4": (4.5e-6, 0.49), "zstd": (33e-6, 0.33), "pglz": (74e-6, 0.50)}
# Of the free space: data grow, too, where they share the disk, and the limit is a soft one.
_SHARED_DISK_SHARE, _OWN_DISK_SHARE = 0.25, 0.6


def wal_disk(subject: TuningSubject) -> Disk:
    """Where pg_wal lies."""
    return subject.wal_disk or subject.disk


def wal_rate(subject: TuningSubject) -> Known:
    """WAL under the load, as measured or as the class makes it."""
    if subject.wal_bytes_per_s is not None:
        return subject.wal_bytes_per_s
    by_cpu = subject.cpus.value * _WAL_BYTES_PER_CPU_S[subject.workload]
    by_disk = wal_disk(subject).write_bytes_per_s.value * _WAL_SHARE_OF_DISK
    how = f"{subject.workload.value} on {subject.cpus.value:g} CPUs, at most a third of what the disk writes"
    return Known.assumed("WAL rate", min(by_cpu, by_disk), "bytes/s", how)


def wal_distance_bytes(max_wal_bytes: float, completion_target: float) -> float:
    """WAL between two checkpoints that are begun by max_wal_size.

    Source: PostgreSQL 18 src/backend/access/transam/xlog.c, CalculateCheckpointSegments().
    """
    return max(SEGMENT_BYTES, max_wal_bytes / (1 + completion_target) // SEGMENT_BYTES * SEGMENT_BYTES)


def page_write_s(disk: Disk, dirty_bytes: float, data_bytes: float) -> float:
    """How long it takes at worst to write up to so many pages, anywhere in the data, in the order of their files.

    Neighbours are one write: with a share p of all pages dirty there are p (1 - p) runs for each page of the data, most
    where p is a half.
    """
    dirty = min(dirty_bytes, data_bytes)
    share = min(0.5, dirty / max(data_bytes, 1.0))
    runs = share * (1 - share) * data_bytes / PAGE_BYTES
    return max(dirty / disk.write_bytes_per_s.value, runs / disk.random_write_iops.value)


def recovery_s(subject: TuningSubject, max_wal_bytes: float, compression: str) -> float:
    """About how long recovery after a crash takes at worst.

    All WAL since the last checkpoint but one is read again, each page that it changed is written, and only then does
    the server open. At worst all WAL is images of pages, each of another page: the better they are compressed, the more
    pages it changed.

    Args:
        subject: Disks, data and how long the user allows.
        max_wal_bytes: WAL to replay.
        compression: wal_compression, one of `COMPRESSIONS`.

    Source: PostgreSQL 18 src/backend/access/transam/xlog.c, PerformRecoveryXLogAction(): recovery ends with a checkpoint.
    """
    _, left = COMPRESSIONS[compression]
    written = page_write_s(subject.disk, max_wal_bytes / left, subject.dataset.value)
    replay = min(_REPLAY_BYTES_PER_S, wal_disk(subject).read_bytes_per_s.value)
    return max_wal_bytes / replay + written


def wal_by_recovery_bytes(subject: TuningSubject, compression: str) -> float:
    """The most WAL from which the server recovers in the time allowed, in whole segments."""
    low, high = 0, 1 << 22
    while low < high:
        middle = (low + high + 1) // 2
        if recovery_s(subject, middle * SEGMENT_BYTES, compression) <= subject.recovery_s.value:
            low = middle
        else:
            high = middle - 1
    return low * SEGMENT_BYTES


def wal_by_disk_bytes(subject: TuningSubject) -> float:
    """The most WAL that the disk has room for."""
    share = _SHARED_DISK_SHARE if subject.wal_disk is None else _OWN_DISK_SHARE
    return wal_disk(subject).free_bytes.value * share


def interval_s(subject: TuningSubject, *, timeout_s: float, max_wal_bytes: float, completion_target: float) -> float:
    """How often a checkpoint begins under the load."""
    rate = wal_rate(subject).value
    by_wal = wal_distance_bytes(max_wal_bytes, completion_target) / rate if rate else float("inf")
    return min(timeout_s, by_wal)

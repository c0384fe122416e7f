"""Model checkpoints: the WAL of an interval, and how much of it the disk and the recovery time allow.

These models choose no settings; `rules/wal.py` does.
"""

from __future__ import annotations

from pgdyno.tune.draft import MB
from pgdyno.tune.types import Disk, Known, TuningSubject, WorkloadClass
from pgdyno.units import PAGE_BYTES

SEGMENT_BYTES = 16 * MB
# Replay rate of recovery, which is one process, for WAL of half page images and half single rows, which a CPU replays
# at 650 and 58 MB/s. Source: PostgreSQL 15 and 18 on an AMD EPYC; docs/derivation.md describes the measurement.
_REPLAY_BYTES_PER_S = 100e6
# WAL that a busy CPU writes in each class, page images included, assumed proportional to the number of CPUs. Source:
# pgbench's tpcb-like writes 2 to 6 kB per transaction, and a CPU does about 1000 of them per second; a COPY writes
# 110 MB for each second of CPU time (PostgreSQL 15 on an AMD EPYC), and one of 22 analytic CPUs is assumed to load.
_WAL_BYTES_PER_CPU_S = {
    WorkloadClass.OLTP_WRITE: 5e6,
    WorkloadClass.OLTP_READ: 0.5e6,
    WorkloadClass.MIXED: 2e6,
    WorkloadClass.ANALYTIC: 5e6,
}
# Each change of a page is written to the WAL and, later, to its file.
_WAL_SHARE_OF_DISK = 1 / 3
# Additional CPU time per page image, and compressed share of its size, by wal_compression; mean of pgbench's rows,
# random letters and sentences. Source: PostgreSQL 15 on an AMD EPYC; docs/derivation.md has the figures and the method.
COMPRESSIONS = {"off": (0.0, 1.0), "lz4": (4.5e-6, 0.49), "zstd": (33e-6, 0.33), "pglz": (74e-6, 0.50)}
# Share of the free space for WAL: the limit is soft, and on a shared disk the data grow, too.
_SHARED_DISK_SHARE, _OWN_DISK_SHARE = 0.25, 0.6


def wal_disk(subject: TuningSubject) -> Disk:
    """Return the disk of pg_wal."""
    return subject.wal_disk or subject.disk


def wal_rate(subject: TuningSubject) -> Known:
    """Return the WAL rate of the load, as measured or as assumed for the workload class."""
    if subject.wal_bytes_per_s is not None:
        return subject.wal_bytes_per_s
    by_cpu = subject.cpus.value * _WAL_BYTES_PER_CPU_S[subject.workload]
    by_disk = wal_disk(subject).write_bytes_per_s.value * _WAL_SHARE_OF_DISK
    how = f"{subject.workload.value} on {subject.cpus.value:g} CPUs, at most a third of what the disk writes"
    return Known.assumed("WAL rate", min(by_cpu, by_disk), "bytes/s", how)


def wal_distance_bytes(max_wal_bytes: float, completion_target: float) -> float:
    """Compute the WAL between two checkpoints that max_wal_size triggers.

    Source: PostgreSQL 18 src/backend/access/transam/xlog.c, CalculateCheckpointSegments().
    """
    return max(SEGMENT_BYTES, max_wal_bytes / (1 + completion_target) // SEGMENT_BYTES * SEGMENT_BYTES)


def page_write_s(disk: Disk, dirty_bytes: float, data_bytes: float) -> float:
    """Compute the worst-case time to write dirty pages that are spread over the data, in the order of their files.

    Neighbouring pages are one write: with a share p of all pages dirty, there are p (1 - p) runs for each page of the
    data, which is largest where p is a half.
    """
    dirty = min(dirty_bytes, data_bytes)
    share = min(0.5, dirty / max(data_bytes, 1.0))
    runs = share * (1 - share) * data_bytes / PAGE_BYTES
    return max(dirty / disk.write_bytes_per_s.value, runs / disk.random_write_iops.value)


def recovery_s(subject: TuningSubject, max_wal_bytes: float, compression: str) -> float:
    """Estimate the worst-case time of recovery after a crash.

    The server replays all WAL since the last checkpoint but one and writes each changed page before it accepts
    connections. In the worst case all WAL is images of distinct pages: the better they are compressed, the more pages
    changed.

    Args:
        subject: Machine, disks and data.
        max_wal_bytes: WAL to replay.
        compression: Value of wal_compression, one of `COMPRESSIONS`.

    Source: PostgreSQL 18 src/backend/access/transam/xlog.c, PerformRecoveryXLogAction(): recovery ends with a
    checkpoint.
    """
    _, left = COMPRESSIONS[compression]
    written = page_write_s(subject.disk, max_wal_bytes / left, subject.dataset.value)
    replay = min(_REPLAY_BYTES_PER_S, wal_disk(subject).read_bytes_per_s.value)
    return max_wal_bytes / replay + written


def wal_by_recovery_bytes(subject: TuningSubject, compression: str) -> float:
    """Return the most WAL from which the server recovers within the allowed time, in whole segments."""
    low, high = 0, 1 << 22
    while low < high:
        middle = (low + high + 1) // 2
        if recovery_s(subject, middle * SEGMENT_BYTES, compression) <= subject.recovery_s.value:
            low = middle
        else:
            high = middle - 1
    return low * SEGMENT_BYTES


def wal_by_disk_bytes(subject: TuningSubject) -> float:
    """Return the most WAL for which the disk has space."""
    share = _SHARED_DISK_SHARE if subject.wal_disk is None else _OWN_DISK_SHARE
    return wal_disk(subject).free_bytes.value * share


def interval_s(subject: TuningSubject, *, timeout_s: float, max_wal_bytes: float, completion_target: float) -> float:
    """Return the interval between checkpoints under the load."""
    rate = wal_rate(subject).value
    by_wal = wal_distance_bytes(max_wal_bytes, completion_target) / rate if rate else float("inf")
    return min(timeout_s, by_wal)

"""Model checkpoints: the WAL of an interval, and how much of it the disk and the recovery time allow.

These models choose no settings; `rules/wal.py` does.
"""

from __future__ import annotations

import math

import msgspec

from pgdyno.analyse.models.checkpoints import find_checkpoint_distance_bytes
from pgdyno.tune.types import Disk, Known, Origin, TuningSubject, WorkloadClass
from pgdyno.units import PAGE_BYTES, format_bytes, format_bytes_per_s, format_cpus

# Replay rate of recovery, which is one process, for WAL of half page images and half single rows, which a CPU replays
# at 650 and 58 MB/s. Source: PostgreSQL 15 and 18 on an AMD EPYC; docs/derivation.md describes the measurement.
_REPLAY_BYTES_PER_S = 100e6
# Rows that a busy CPU changes in a second, each in a transaction of its own and anywhere in the data: the usual number,
# and the ratio of the fewest and the most to it. Source: pgbench's tpcb-like, 500 to 2,000 for each CPU where disk and
# locks let it; of mixed and reading work a part is assumed to write.
_CHANGES_PER_CPU_S = {WorkloadClass.OLTP_WRITE: 1000.0, WorkloadClass.OLTP_READ: 100.0, WorkloadClass.MIXED: 400.0}
_CHANGES_RANGE = (0.5, 2.0)
# WAL of such a transaction without page images, and share of the data that is index. Source: pgbench's tpcb-like on
# PostgreSQL 18, scale 100: docs/derivation.md has the figures and the method.
_RECORD_BYTES = 500.0
_INDEX_SHARE = 1 / 7
_PARTS = (1 - _INDEX_SHARE, _INDEX_SHARE)
# Of the number of changes whose pages a disk writes.
_ACCURACY = 1e-6
# Steps of the bisection for the interval between checkpoints, which is then known to far less than a second.
_HALVINGS = 25
# From this length on, an interval is given in minutes.
_IN_MINUTES_S = 300.0
# Source: a COPY writes 110 MB for each second of CPU time (PostgreSQL 15 on an AMD EPYC), and one of 22 analytic CPUs is
# assumed to load.
_LOADED_BYTES_PER_CPU_S = 5e6
# Each change of a page is written to the WAL and, later, to its file.
_WAL_SHARE_OF_DISK = 1 / 3
_BOUND_WORDS = "at most a third of what the disk writes"
# Additional CPU time per page image, and compressed share of its size, by wal_compression; mean of pgbench's rows,
# random letters and sentences. Source: PostgreSQL 15 on an AMD EPYC; docs/derivation.md has the figures and the method.
COMPRESSIONS = {"off": (0.0, 1.0), "lz4": (4.5e-6, 0.49), "zstd": (33e-6, 0.33), "pglz": (74e-6, 0.50)}


def wal_disk(subject: TuningSubject) -> Disk:
    """Return the disk of pg_wal."""
    return subject.wal_disk or subject.disk


def change_wal_bytes(data_bytes: float, changes: float, image_left: float) -> float:
    """Compute the WAL of one changed row, on average over the changes between two checkpoints.

    A page's first change after a checkpoint writes an image of it. Of N pages, n changes anywhere hit N (1 - exp(-n / N)):
    a page of the table and one of its index each.

    Args:
        data_bytes: Size of table and index together.
        changes: Changes between two checkpoints.
        image_left: Share of an image that is left after compression.
    """
    return _RECORD_BYTES + image_left * PAGE_BYTES * _changed_pages(data_bytes, changes) / changes


def _changed_pages(data_bytes: float, changes: float) -> float:
    """Compute how many pages of table and index a number of changes anywhere hits."""
    pages, of_index = _PARTS[0] * data_bytes / PAGE_BYTES, _PARTS[1] * data_bytes / PAGE_BYTES
    return -pages * math.expm1(-changes / pages) - of_index * math.expm1(-changes / of_index)


def limit_changes(disk: Disk, data_bytes: float, changes: float, every_s: float) -> float:
    """Return the changes of rows anywhere between two checkpoints, or as many as the disk writes the pages of meanwhile.

    Each changed page is written once at least, and counts as a write of its own.

    Args:
        disk: Disk of the data.
        data_bytes: Size of table and index together.
        changes: Changes between two checkpoints that the CPUs do.
        every_s: Time between the checkpoints.
    """
    written = every_s * disk.scattered.bytes_per_s / PAGE_BYTES
    if _changed_pages(data_bytes, changes) <= written:
        return changes
    # Newton's method from below: the number of changed pages is concave, so that no step goes beyond the root.
    pages, found, step = data_bytes / PAGE_BYTES, 0.0, written / len(_PARTS)
    while step > _ACCURACY * found:
        found += step
        slope = math.exp(-found / (_PARTS[0] * pages)) + math.exp(-found / (_PARTS[1] * pages))
        step = (written - _changed_pages(data_bytes, found)) / slope
    return found


def with_bound_rate(subject: TuningSubject) -> TuningSubject:
    """Return a subject with no more WAL than its disk takes, where the rate is scaled from that of another machine."""
    rate, most = subject.wal_bytes_per_s, _disk_rate(subject)
    if rate is None or rate.origin is not Origin.ASSUMED or rate.value <= most:
        return subject
    how = f"{_BOUND_WORDS}, less than {format_bytes_per_s(rate.value)} {rate.how}"
    return msgspec.structs.replace(subject, wal_bytes_per_s=msgspec.structs.replace(rate, value=most, how=how))


def wal_rate(subject: TuningSubject, compression: str, *, timeout_s: float, distance_bytes: float = math.inf) -> Known:
    """Return the WAL rate of the load, as measured, or as assumed for the workload class with these checkpoints.

    Args:
        subject: Machine, disks, data and load.
        compression: Value of wal_compression, one of `COMPRESSIONS`; a measured rate is taken as it is.
        timeout_s: Longest time between two checkpoints.
        distance_bytes: WAL after which the next checkpoint begins even earlier.
    """
    if subject.wal_bytes_per_s is not None:
        return subject.wal_bytes_per_s
    cpus, most = subject.cpus.value, _most_rate(subject)
    if subject.workload is WorkloadClass.ANALYTIC:
        how = f"{subject.workload.value} on {format_cpus(cpus)}, {_BOUND_WORDS}"
        return Known.assumed("WAL rate", min(_rate_at(subject, compression, timeout_s), most), "bytes/s", how)

    def find(ratio: float) -> tuple[float, float]:
        every_s = interval_s(subject, compression, timeout_s=timeout_s, distance_bytes=distance_bytes, ratio=ratio)
        return every_s, _rate_at(subject, compression, every_s, ratio=ratio)

    (low_s, low), (every_s, rate), (_, high) = (find(ratio) for ratio in (_CHANGES_RANGE[0], 1.0, _CHANGES_RANGE[1]))
    usual, changes = _CHANGES_PER_CPU_S[subject.workload], _changes_per_s(subject, every_s, ratio=1.0)
    often = f"{every_s / 60:.0f} min" if every_s >= _IN_MINUTES_S else f"{every_s:.0f} s"
    likely = (
        f"{format_bytes_per_s(low)} to {format_bytes_per_s(min(high, most))} for half and twice as many; {_BOUND_WORDS}"
    )
    if low >= most:
        likely = "half as many already write a third of what the disk writes, and no more is assumed"
    elif _changes_per_s(subject, low_s, ratio=_CHANGES_RANGE[0]) < _CHANGES_RANGE[0] * cpus * usual:
        likely = f"half as many already change more pages than the disk writes; {_BOUND_WORDS}"
    is_by_disk = changes < cpus * usual
    bound = f", but in all no more than the {changes:,.0f} whose pages the disk writes," if is_by_disk else ","
    how = (
        f"{subject.workload.value} on {format_cpus(cpus)}: {usual:,.0f} changes a second for each{bound} of"
        f" {format_bytes(rate / changes)} of WAL with the page images of a checkpoint every {often}; {likely}"
    )
    return Known.assumed("WAL rate", min(rate, most), "bytes/s", how)


def interval_s(
    subject: TuningSubject, compression: str, *, timeout_s: float, distance_bytes: float, ratio: float = 1.0
) -> float:
    """Return the interval between checkpoints under the load.

    The more often they come, the more page images the WAL has: it is the time in which the load writes the distance.

    Args:
        subject: Machine, disks, data and load.
        compression: Value of wal_compression, one of `COMPRESSIONS`.
        timeout_s: Longest time between two checkpoints.
        distance_bytes: WAL after which the next checkpoint begins even earlier.
        ratio: Changes a second over the usual ones; of no effect on a measured rate.
    """
    most = _most_rate(subject)

    def has_written(every_s: float) -> bool:
        return every_s * min(_rate_at(subject, compression, every_s, ratio=ratio), most) > distance_bytes

    low, high = 0.0, timeout_s
    if not has_written(high):
        return timeout_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if has_written(middle) else (middle, high)
    return high


def _rate_at(subject: TuningSubject, compression: str, every_s: float, *, ratio: float = 1.0) -> float:
    """Compute the WAL rate with checkpoints this far apart, whatever the disk takes."""
    if subject.wal_bytes_per_s is not None:
        return subject.wal_bytes_per_s.value
    if subject.workload is WorkloadClass.ANALYTIC:
        return subject.cpus.value * _LOADED_BYTES_PER_CPU_S
    changes_per_s = _changes_per_s(subject, every_s, ratio=ratio)
    _, left = COMPRESSIONS[compression]
    return changes_per_s * change_wal_bytes(subject.dataset.value, changes_per_s * every_s, left)


def _changes_per_s(subject: TuningSubject, every_s: float, *, ratio: float) -> float:
    """Return the changes a second that CPUs and disk let the load do with checkpoints this far apart."""
    by_cpus = subject.cpus.value * _CHANGES_PER_CPU_S[subject.workload] * ratio
    return limit_changes(subject.disk, subject.dataset.value, by_cpus * every_s, every_s) / every_s


def _most_rate(subject: TuningSubject) -> float:
    """Return the highest WAL rate that is assumed."""
    return math.inf if subject.wal_bytes_per_s is not None else _disk_rate(subject)


def _disk_rate(subject: TuningSubject) -> float:
    """Return the WAL rate at which the disk of the WAL limits the load."""
    return wal_disk(subject).write_bytes_per_s.value * _WAL_SHARE_OF_DISK


def is_bound_by_wal(subject: TuningSubject, rate: Known) -> bool:
    """Return whether the disk of the WAL limits the load before its CPUs do: WAL takes a third of what it writes.

    Args:
        subject: Machine, disks, data and load.
        rate: Its WAL rate without compression. Of one that was measured with compressed images, all may be images.
    """
    _, left = COMPRESSIONS[subject.wal_compression]
    return rate.value / left >= _disk_rate(subject)


def wal_distance_bytes(subject: TuningSubject, max_wal_bytes: float, completion_target: float) -> float:
    """Compute the WAL between two checkpoints that max_wal_size triggers, which is one segment at least."""
    segment = subject.wal_segment_bytes
    return find_checkpoint_distance_bytes(
        max_wal_size_bytes=max(max_wal_bytes, segment), completion_target=completion_target, segment_bytes=segment
    )


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
        if recovery_s(subject, middle * subject.wal_segment_bytes, compression) <= subject.recovery_s.value:
            low = middle
        else:
            high = middle - 1
    return low * subject.wal_segment_bytes

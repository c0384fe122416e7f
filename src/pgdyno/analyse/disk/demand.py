"""Compare what a trial demanded of its disk with what the disk's card says it can do.

The results are shares of separate limits: commits that wait for flushes, WAL, reads and writes of the device. The
kernel's cache serves much of what shared_buffers miss, so reads are those of the device and not of the server. A share
near 1 shows where to look; the limit may still have been something else, such as CPUs or locks. Shares are not added
up, because a disk does less of each kind if it does all kinds at once; only the instance's limits count everything
together. If less is declared as sustained than was measured, a trial is compared with both: a short trial may run on a
burst.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from pgdyno.analyse.disk.card import DiskFigures, estimate_card
from pgdyno.analyse.disk.ceiling import TRANSFERS, InstanceLimits
from pgdyno.analyse.disk.commits import delays_flushes, find_writing_ratio, waits_for_flushes
from pgdyno.analyse.disk.efficiency import (
    ceilings_of,
    compare_with_ceilings,
    declared_entries,
    instance_limits_of,
)
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey, list_entries
from pgdyno.analyse.disk.raid import count_copies, times_of
from pgdyno.analyse.models.commits import ceiling_tps
from pgdyno.plan.disk import Pattern
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.record.samples import os_series as series
from pgdyno.record.serverlog import CheckpointComplete
from pgdyno.record.trial_data import TrialData

MIN_WRITING_WAL_BYTES = 100.0
"""WAL per transaction from which on a transaction writes: a read-only one causes a little WAL, too (hints, the server itself)."""
# A script with several transactions waits for several flushes.
_ONE_COMMIT_RATIO = 1.05
_TWENTIETHS = 20


class DiskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a disk, from its card; None where not measured."""

    flush_s: float | None = None
    """Time until one page of WAL is durable, one at a time."""
    flush_low_s: float | None = None
    flush_high_s: float | None = None
    """Upper end of its interval; None without one."""
    flush_how: str = ""
    flush_spread: tuple[float, ...] = ()
    """Flush times of twenty equal shares over their mean, in increasing order; empty if only the mean is known."""
    random_read_iops: float | None = None
    random_write_iops: float | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    lasting: DiskLimits | None = None
    """Declared sustained limits where they are lower; None if there are none."""
    instance: InstanceLimits | None = None
    """The machine's limits for all of its network volumes; None if none are known, or if the disk is local."""
    copies: float = 1.0
    """I/Os of volumes for each small write of ours, because each mirror has its own, and parity is read and written."""
    byte_copies: float = 1.0
    """Bytes moved for each byte of a long write, which parity adds less to."""
    entries: tuple[DiskFigure, ...] = ()
    """The measured figures of the disk, with intervals; of sustained limits, the declared ones."""
    wal: DiskLimits | None = None
    """The limits of pg_wal's own disk, none of them known without its card; None if pg_wal lies with the data."""

    @property
    def of_wal(self) -> DiskLimits:
        """The limits of the disk that pg_wal lies on."""
        return self if self.wal is None else self.wal


class UseKind(enum.Enum):
    """The kinds of use of a disk."""

    FLUSHES = "flushes"
    """Commits of several clients, which share flushes."""
    WAL = "WAL"
    READS = "reads"
    READ_BYTES = "bytes read"
    WRITES = "writes"
    WRITTEN_BYTES = "bytes written"
    CHECKPOINTS = "checkpoint writing"
    """While a checkpoint writes."""
    INSTANCE_IOPS = "I/Os through the instance"
    """Reads and writes of this disk together."""
    INSTANCE_BYTES = "bytes through the instance"


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's use of one limit."""

    kind: UseKind
    used: float
    limit: float
    unit: str
    """Unit of both."""
    how: str
    """Description of the limit, in a clause."""
    lasts: float | None = None
    """Sustained part of the limit; None if all of it is sustained, or nothing is declared."""

    @property
    def ratio(self) -> float:
        """The share of the limit."""
        return self.used / self.limit

    @property
    def lasting_ratio(self) -> float | None:
        """The share of the sustained limit; None if there is no separate one."""
        return None if self.lasts is None else self.used / self.lasts


class DiskRates(msgspec.Struct, frozen=True, kw_only=True):
    """What a device did per second of a load."""

    read_iops: float
    write_iops: float
    read_bytes_per_s: float
    write_bytes_per_s: float


class DiskDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's load on the device of its data; None where not observed."""

    device: str | None
    wal_device: str | None = None
    """The device of pg_wal, which flushes are of; None if it is that of the data."""
    busy_ratio: float | None
    """Share of time with any request under way; a device that serves many at once is not full at 1."""
    read_await_ms: float | None
    write_await_ms: float | None
    flush_await_ms: float | None
    missed_blocks_per_s: float | None
    """Blocks that shared_buffers missed; those that the kernel's cache missed, too, are reads of the device."""
    uses: tuple[DiskUse, ...]
    """Of the limits that are known: a card may lack some."""
    rates: DiskRates | None = None

    def find(self, kind: UseKind) -> DiskUse | None:
        """Return the use of a kind; None without one."""
        return next((use for use in self.uses if use.kind is kind), None)


def find_all_limits(card: DiskCard | None, wal_card: DiskCard | None, *, is_apart: bool) -> DiskLimits | None:
    """Find the limits of the disks of data and WAL; None without a card.

    Args:
        card: The card of the data's disk.
        wal_card: The card of pg_wal's own disk.
        is_apart: Whether pg_wal has a disk of its own; the data's card then says nothing of its flushes.
    """
    if card is None and wal_card is None:
        return None
    limits = DiskLimits() if card is None else find_limits(card)
    if not is_apart:
        return limits
    return msgspec.structs.replace(limits, wal=DiskLimits() if wal_card is None else find_limits(wal_card))


def find_limits(card: DiskCard) -> DiskLimits:
    """Find the limits in a card, as measured and as declared to be sustained."""
    figures = estimate_card(card)
    listed = list_entries(card, figures)
    entries = {entry.key: entry for entry in listed}
    flushes = entries.get(DiskFigureKey.FLUSHES)
    estimate = None if flushes is None else flushes.estimate
    copies = _count_copies(card)
    return DiskLimits(
        flush_s=_inverse(None if estimate is None else estimate.value),
        flush_low_s=_inverse(None if estimate is None else estimate.high),
        flush_high_s=_inverse(None if estimate is None else estimate.low),
        flush_how="" if flushes is None else f"disk card, {flushes.how}",
        flush_spread=_spread_flushes(figures),
        random_read_iops=_value(entries.get(DiskFigureKey.RANDOM_READ)),
        random_write_iops=_value(entries.get(DiskFigureKey.RANDOM_WRITE)),
        read_bytes_per_s=_value(entries.get(DiskFigureKey.SEQUENTIAL_READ)),
        write_bytes_per_s=_value(entries.get(DiskFigureKey.SEQUENTIAL_WRITE)),
        lasting=_find_lasting(card, listed),
        instance=instance_limits_of(card),
        entries=listed,
        copies=copies("random_write_iops"),
        byte_copies=copies("write_bytes_per_s"),
    )


def _count_copies(card: DiskCard) -> Callable[[str], float]:
    if card.declared is None:
        return lambda name: count_copies(card.look, TRANSFERS[name])
    times = times_of(card.declared)
    return lambda name: times.copies_of(TRANSFERS[name])


def measure_disk_demand(
    data: TrialData,
    workload: PlannedWorkload,
    limits: DiskLimits,
    *,
    device: str | None,
    wal_device: str | None = None,
    tps: float | None,
) -> DiskDemand:
    """Compute the use of the disk's limits by a trial.

    Args:
        data: The trial's data.
        workload: The trial's load.
        limits: Limits of the disk that holds the data.
        device: Kernel name of the disk.
        wal_device: Kernel name of the disk of pg_wal; None if it is the same.
        tps: TPS of the trial; None if it has none, or if variants alternate in it.
    """
    seen = _observe(data, device)
    grown = _growth(data, data.record.load_s)

    def list_uses(of: DiskLimits, of_wal: DiskLimits) -> Iterator[DiskUse]:
        yield from _commits(data, workload, of_wal, grown, tps)
        yield from _device_uses(data, of, of_wal, grown, seen)
        yield from _instance_uses(of, seen)

    lasting, of_wal = limits.lasting or DiskLimits(), limits.of_wal.lasting or DiskLimits()
    lasts = {use.kind: use.limit for use in list_uses(lasting, of_wal)}
    return DiskDemand(
        device=device,
        wal_device=wal_device,
        busy_ratio=seen.get("disk_util_ratio"),
        read_await_ms=seen.get("disk_read_await_ms"),
        write_await_ms=seen.get("disk_write_await_ms"),
        flush_await_ms=(seen if wal_device is None else _observe(data, wal_device)).get("disk_flush_await_ms"),
        missed_blocks_per_s=grown.get("blks_read_pages"),
        rates=_find_rates(seen),
        uses=tuple(msgspec.structs.replace(use, lasts=lasts.get(use.kind)) for use in list_uses(limits, limits.of_wal)),
    )


def _commits(
    data: TrialData, workload: PlannedWorkload, limits: DiskLimits, grown: dict[str, float], tps: float | None
) -> Iterator[DiskUse]:
    duration_s, count, clients = data.record.load_s, data.transaction_count, workload.writing_clients
    writing_ratio = find_writing_ratio(data, workload)
    if tps is None or limits.flush_s is None or not duration_s or not count or not waits_for_flushes(data.record):
        return
    if delays_flushes(data.record, workload):
        return
    each = {name: grown[name] * duration_s / count for name in ("xact_commit_count", "wal_bytes") if name in grown}
    is_writing = each.get("wal_bytes", 0.0) > MIN_WRITING_WAL_BYTES
    if writing_ratio and is_writing and each.get("xact_commit_count", 0.0) < _ONE_COMMIT_RATIO:
        flush = f"a flush of {limits.flush_s * 1000:.3g} ms"
        yield DiskUse(
            kind=UseKind.FLUSHES,
            used=tps * writing_ratio,
            limit=ceiling_tps(clients, flush_s=limits.flush_s),
            unit="tps",
            how=f"{flush} for 1 client" if clients == 1 else f"{flush}, each shared by half of the {clients} clients",
        )


def _device_uses(
    data: TrialData, limits: DiskLimits, of_wal: DiskLimits, grown: dict[str, float], seen: dict[str, float]
) -> Iterator[DiskUse]:
    found = (
        (UseKind.WAL, grown.get("wal_bytes"), of_wal.write_bytes_per_s, "bytes/s", "sequential write"),
        (UseKind.READS, seen.get("disk_read_iops"), limits.random_read_iops, "/s", "random read"),
        (UseKind.READ_BYTES, seen.get("disk_read_bytes_per_s"), limits.read_bytes_per_s, "bytes/s", "sequential read"),
        (UseKind.WRITES, seen.get("disk_write_iops"), limits.random_write_iops, "/s", "random write"),
        (UseKind.WRITTEN_BYTES, seen.get("disk_write_bytes_per_s"), limits.write_bytes_per_s, "bytes/s", "sequential write"),
        (UseKind.CHECKPOINTS, _checkpoint_pages_per_s(data), limits.random_write_iops, "/s", "random write"),
    )  # fmt: skip
    for kind, used, limit, unit, how in found:
        if used is not None and limit:
            yield DiskUse(kind=kind, used=used, limit=limit, unit=unit, how=how)


def _instance_uses(limits: DiskLimits, seen: dict[str, float]) -> Iterator[DiskUse]:
    """Yield this disk's use of the instance's limits, which count each write of each mirror."""
    instance = limits.instance
    if instance is None:
        return
    for kind, name, lets, unit, copies in (
        (UseKind.INSTANCE_IOPS, "iops", instance.iops, "/s", limits.copies),
        (UseKind.INSTANCE_BYTES, "bytes_per_s", instance.bytes_per_s, "bytes/s", limits.byte_copies),
    ):
        times = "" if copies == 1.0 else f", each write {copies:.3g} times"
        how = f"{instance.name}, reads and writes together{times}"
        read, written = seen.get(f"disk_read_{name}"), seen.get(f"disk_write_{name}")
        if read is not None and written is not None and lets:
            yield DiskUse(kind=kind, used=read + copies * written, limit=lets, unit=unit, how=how)


def _spread_flushes(figures: DiskFigures) -> tuple[float, ...]:
    """Spread flush times: half at the median, then up to the 95th percentile, the last one chosen so that the mean is kept."""
    job = figures.find(Pattern.WAL)
    if job is None or job.flush is None:
        return ()
    mean, p50, p95 = job.flush.mean_us.value, job.flush.p50_us.value, job.flush.p95_us.value
    if not mean or not p50 or not p95:
        return ()
    half = _TWENTIETHS // 2
    below = [p50] * half + [p50 * (p95 / p50) ** (place / half) for place in range(1, half)]
    times = np.array([*below, max(p95, _TWENTIETHS * mean - sum(below))])
    return tuple(float(one) for one in times / times.mean())


def _find_lasting(card: DiskCard, entries: Sequence[DiskFigure]) -> DiskLimits | None:
    """Find the sustained limits of the figures that were measured above them."""
    ceilings = ceilings_of(card)
    held = () if ceilings is None else compare_with_ceilings(entries, ceilings)
    less = {one.key: one.ceiling.value for one in held if one.standing.is_above}
    if ceilings is None or not less:
        return None
    return DiskLimits(
        entries=tuple(entry for entry in declared_entries(ceilings) if entry.key in less),
        flush_s=_inverse(less.get(DiskFigureKey.FLUSHES)),
        random_read_iops=less.get(DiskFigureKey.RANDOM_READ),
        random_write_iops=less.get(DiskFigureKey.RANDOM_WRITE),
        read_bytes_per_s=less.get(DiskFigureKey.SEQUENTIAL_READ),
        write_bytes_per_s=less.get(DiskFigureKey.SEQUENTIAL_WRITE),
    )


def _observe(data: TrialData, device: str | None) -> dict[str, float]:
    """Average the device's series over the load, by metric."""
    if data.os is None or device is None:
        return {}
    means = {metric: data.mean_within_load(line) for metric, line in series.disk_series(data.os, device).items()}
    return {metric: mean for metric, mean in means.items() if mean is not None}


def _find_rates(seen: dict[str, float]) -> DiskRates | None:
    rates = {name: seen[line] for name in DiskRates.__struct_fields__ if (line := f"disk_{name}") in seen}
    return DiskRates(**rates) if len(rates) == len(DiskRates.__struct_fields__) else None


def _growth(data: TrialData, duration_s: float | None) -> dict[str, float]:
    """Compute the growth of counters per second of the load."""
    if not duration_s:
        return {}
    record = data.record
    return {name: grown / duration_s for name in record.counters_after if (grown := record.growth(name)) is not None}


def _checkpoint_pages_per_s(data: TrialData) -> float | None:
    """Compute the pages per second while checkpoints wrote; only checkpoints that ended during the load count."""
    ended = [event for event in data.log_within_load if isinstance(event, CheckpointComplete)]
    writing_s = sum(event.write_s for event in ended)
    return sum(event.written_pages for event in ended) / writing_s if writing_s > 0.0 else None


def _value(entry: DiskFigure | None) -> float | None:
    return None if entry is None else entry.estimate.value


def _inverse(value: float | None) -> float | None:
    return 1.0 / value if value else None

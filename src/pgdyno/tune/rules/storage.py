"""Derive settings of block devices, and advise on stripes, file systems and a separate WAL volume."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.tune.disk.classes import find_read_latency
from pgdyno.tune.draft import KB, Draft, round_down
from pgdyno.tune.rules.wal_pace import rate_of
from pgdyno.tune.types import Device, Disk, DiskKind, Layer, Target, WorkloadClass

_BLOCK = "Linux, Documentation/block"
# Smallest advised chunk: the run of pages that a scan reads at once. Source: PostgreSQL's io_combine_limit.
_LEAST_CHUNK_KB = 128
# Source: Linux, include/linux/pagemap.h, VM_READAHEAD_PAGES.
READ_AHEAD_STOCK_KB, _READ_AHEAD_MOST_KB = 128, 4096
_SCANS_TABLES = "with more read-ahead a table scan keeps all disks of the device busy."
# Source: PostgreSQL 18 src/backend/access/transam/xlogrecovery.c, XLogPageRead(): a page after the other, by one process.
_REPLAYS_WAL = (
    "recovery after a crash reads the WAL in sequence, in one process: with more read-ahead it waits less for the disk."
)
# A network disk does a few thousand requests a second: a scheduler that prefers reads costs nothing there.
SCHEDULERS = {DiskKind.HDD: "mq-deadline", DiskKind.LOCAL_SSD: "none"}
"""Scheduler of each kind of disk; other kinds keep theirs."""
MOUNT_OPTION = "noatime"
"""The option that every file system of PostgreSQL's gets."""
# Share of the disk's write bandwidth that the WAL may take before data and WAL delay each other.
_WAL_SHARE = 0.15


def derive_storage(draft: Draft) -> None:
    """Decide settings of known devices, and advise on the rest."""
    if not draft.subject.kernel.is_unchangeable:
        _put_schedulers(draft)
        _put_read_ahead(draft)
    for role, disk in _roles(draft):
        _advise_filesystem(draft, role, disk)
    _advise_wal_volume(draft)


def _roles(draft: Draft) -> Iterator[tuple[str, Disk]]:
    yield "data", draft.subject.disk
    if draft.subject.wal_disk is not None:
        yield "pg_wal", draft.subject.wal_disk


def _devices(draft: Draft) -> Iterator[tuple[Disk, Device]]:
    seen = set()
    for _, disk in _roles(draft):
        for device in disk.devices:
            if device.name not in seen:
                seen.add(device.name)
                yield disk, device


def _put_schedulers(draft: Draft) -> None:
    for disk, device in _devices(draft):
        wanted = SCHEDULERS.get(disk.kind)
        if (
            wanted is None
            or device.kind != "disk"
            or device.scheduler in {None, wanted}
            or wanted not in device.schedulers
        ):
            continue
        seeks = disk.kind is DiskKind.HDD
        draft.put_outside(
            f"block/{device.name}/queue/scheduler",
            wanted,
            target=Target.SYSFS,
            layer=Layer.STORAGE,
            reason="a disk that seeks is faster when its requests are sorted."
            if seeks
            else "an SSD needs no sorted requests; a scheduler only takes CPU time and a lock.",
            formula="mq-deadline for disks that seek, none for local SSDs; network disks keep theirs",
            inputs=(disk.random_read_iops,),
            source=f"{_BLOCK}/switching-sched.rst",
            trades="CPU time for each request" if seeks else "no process's requests go before another's",
        )


def _put_read_ahead(draft: Draft) -> None:
    subject = draft.subject
    with_data = {device.name for device in subject.disk.devices} if subject.disk.path else set()
    for role, disk in _roles(draft):
        top, latency, wanted = next(iter(disk.devices), None), find_read_latency(disk), compute_read_ahead_kb(disk)
        is_of_data = role == "data" or (top is not None and top.name in with_data)
        if is_of_data and not subject.workload.has_long_queries:
            continue
        if not disk.path:
            now, name, value, target = READ_AHEAD_STOCK_KB, f"read-ahead of {role}", f"{wanted} kB", Target.STORAGE
        # Btrfs reads ahead by a setting of its own, of 4 MB. Source: Linux fs/btrfs/disk-io.c, open_ctree().
        elif top is not None and top.read_ahead_kb is not None and disk.filesystem != "btrfs":
            now, name, value, target = (
                top.read_ahead_kb,
                f"block/{top.name}/queue/read_ahead_kb",
                str(wanted),
                Target.SYSFS,
            )
        else:
            continue
        if wanted > now:
            draft.put_outside(
                name,
                value,
                target=target,
                layer=Layer.STORAGE,
                reason=_SCANS_TABLES if is_of_data else _REPLAYS_WAL,
                formula="2 × read bandwidth × random read latency, at least two stripes and 128 kB, at most 4 MB; never less than it is",
                inputs=(disk.read_bytes_per_s, latency),
                source=f"{_BLOCK}/queue-sysfs.rst, read_ahead_kb",
                trades="pages that no program needs, where files are read in pieces",
            )


def compute_read_ahead_kb(disk: Disk) -> int:
    """Return the read-ahead, in kB, with which a scan keeps all disks of the device busy."""
    stripe_kb = max((advise_chunk_kb(one) * one.data_disks for one in disk.devices if one.data_disks > 1), default=0)
    # Source: bandwidth × delay: the data in flight with which a sequential read never waits.
    flight_kb = disk.read_bytes_per_s.value * find_read_latency(disk).value / KB
    return int(min(_READ_AHEAD_MOST_KB, max(READ_AHEAD_STOCK_KB, 2 * stripe_kb, round_down(2 * flight_kb))))


def advise_chunk_kb(array: Device) -> int:
    """Return the chunk that the set advises: the existing one, or the least advised size."""
    return max(array.chunk_kb or 0, _LEAST_CHUNK_KB)


def format_mkfs_options(filesystem: str, *, chunk_kb: int, data_disks: int) -> str:
    """Return the options of mkfs.xfs or mkfs.ext4 that align the file system with the stripes of an array."""
    if filesystem == "xfs":
        return f"-d su={chunk_kb}k,sw={data_disks}"
    return f"-E stride={chunk_kb // 4},stripe_width={chunk_kb // 4 * data_disks}"


def _advise(draft: Draft, name: str, value: str, *, reason: str, formula: str, source: str, trades: str = "") -> None:
    draft.put_outside(
        name,
        value,
        target=Target.STORAGE,
        layer=Layer.STORAGE,
        reason=reason,
        formula=f"no input: {formula}",
        source=source,
        trades=trades,
    )


def _advise_filesystem(draft: Draft, role: str, disk: Disk) -> None:
    filesystem = disk.filesystem if disk.filesystem in {"xfs", "ext4"} else "xfs" if disk.filesystem is None else None
    if filesystem is None:
        return
    _advise(
        draft,
        f"mount options of {role}",
        MOUNT_OPTION,
        reason="reading a file should not cause a write.",
        formula="noatime on every file system",
        source="Linux, mount(8), noatime",
        trades="the time when a file was last read is not recorded",
    )
    array = next((one for one in disk.devices if one.data_disks > 1), None)
    if array is None or (disk.path and array.chunk_kb is None):
        return
    chunk, disks = advise_chunk_kb(array), array.data_disks
    if chunk != array.chunk_kb:
        _advise(
            draft,
            f"chunk of {role}",
            f"{chunk}K",
            reason="a read of a few pages in a row then needs one disk, not two.",
            formula="at least 128 kB, the built-in io_combine_limit",
            source="Linux, md(4); PostgreSQL 18 manual, section 19.4.5, io_combine_limit",
            trades=f"{array.name} must be created again" if array.chunk_kb else "",
        )
    _advise(
        draft,
        f"mkfs.{filesystem} options of {role}",
        format_mkfs_options(filesystem, chunk_kb=chunk, data_disks=disks),
        reason="it aligns the file system with the stripes of the array.",
        formula=f"the array has {disks} data disks, and its chunk is to be {chunk} kB",
        source=f"mkfs.{filesystem}(8)",
        trades="possible only when the file system is created",
    )


def _advise_wal_volume(draft: Draft) -> None:
    subject = draft.subject
    rate, bandwidth = rate_of(draft), subject.disk.write_bytes_per_s
    if subject.wal_disk is not None or subject.workload is WorkloadClass.OLTP_READ:
        return
    if rate.value < _WAL_SHARE * bandwidth.value:
        return
    draft.put_outside(
        "pg_wal",
        "a volume of its own",
        target=Target.STORAGE,
        layer=Layer.STORAGE,
        reason=f"the WAL takes {rate.value / bandwidth.value:.0%} of the write bandwidth, and each commit waits behind writes of data.",
        formula="WAL rate / write bandwidth, from 15 %",
        inputs=(rate, bandwidth),
        source="PostgreSQL 18 manual, section 28.6 “WAL Internals”",
        trades="one more volume to pay and to watch",
    )

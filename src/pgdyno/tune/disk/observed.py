"""Describe an observed disk: find its kind, and assume the figures of that kind.

Nothing is measured here. Figures are those of the kind, multiplied by the disks of an array, or the control group's
limits where those are lower; each figure names its origin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Transfer
from pgdyno.analyse.disk.raid import array_times, list_arrays
from pgdyno.analyse.disk.throttle import find_throttle
from pgdyno.facts.volumes import is_virtual_disk
from pgdyno.record.machine.preflight import CgroupLimit
from pgdyno.record.machine.tunables import StorageStack, Stripe
from pgdyno.tune.disk.classes import ASSUMED, TITLES, find_write_ratio
from pgdyno.tune.types import Device, Disk, DiskKind, Known, Origin
from pgdyno.units import format_bytes


def make_disk(look: StorageStack, limits: Sequence[CgroupLimit], *, wal_bytes: int = 0) -> Disk:
    """Make the disk that settings are derived from.

    Args:
        look: The file system and its devices, as observed.
        limits: Limits of the control groups, on any device.
        wal_bytes: Size of the WAL that is stored there now, which counts as free space for WAL.
    """
    kind = _find_kind(look)
    arrays = list_arrays(look)
    array = "".join(f" in {stripe.level} of {stripe.disk_count}" for stripe in reversed(arrays))
    figures = {}
    for name, (title, unit) in TITLES.items():
        value, source = ASSUMED[kind][name]
        # A flush waits for all disks of the array.
        times = 1.0 if name == "flush_s" else math.prod(_times(one, kind, TRANSFERS[name]) for one in arrays)
        how = f"{kind.value}{array}, not measured: {source}"
        figure = Known.assumed(title, value * times, unit, how)
        figures[name] = _apply_limits(name, figure, look, limits)
    facts = look.facts
    held = f", or WAL already ({format_bytes(wal_bytes)})" if wal_bytes else ""
    return Disk(
        path=facts.path,
        kind=kind,
        free_bytes=Known.measured("free space", facts.free_bytes + wal_bytes, "bytes", f"free at {facts.path}{held}"),
        filesystem=facts.filesystem,
        card="",
        devices=tuple(_make_device(look, position) for position in range(len(look.devices))),
        **figures,
    )


def _find_kind(look: StorageStack) -> DiskKind:
    """Find the slowest kind of the disks below a file system; an unknown device counts as a network disk."""
    leaves = [device for device in look.devices if device.kind == "disk"]
    if not leaves:
        return DiskKind.NETWORK_SSD
    kinds = set()
    for device in leaves:
        is_remote = is_virtual_disk(device.name, look.models.get(device.name))
        kinds.add(DiskKind.NETWORK_SSD if is_remote else DiskKind.HDD if device.is_rotational else DiskKind.LOCAL_SSD)
    return next(kind for kind in (DiskKind.HDD, DiskKind.NETWORK_SSD, DiskKind.LOCAL_SSD) if kind in kinds)


def _make_device(look: StorageStack, position: int) -> Device:
    seen = look.devices[position]
    stripe = look.stripes.get(seen.name)
    chunk_bytes = None if stripe is None else stripe.chunk_bytes
    return Device(
        name=seen.name,
        kind=seen.kind,
        scheduler=seen.scheduler,
        schedulers=seen.schedulers,
        read_ahead_kb=seen.read_ahead_kb,
        chunk_kb=None if chunk_bytes is None else chunk_bytes // 1024,
        data_disks=1 if stripe is None else int(array_times(stripe.level, stripe.disk_count).data),
    )


def _apply_limits(name: str, figure: Known, look: StorageStack, limits: Sequence[CgroupLimit]) -> Known:
    """Return a figure, or the control group's limit where that is lower."""
    tightest = find_throttle(name, look, limits) if name in TRANSFERS else None
    if tightest is None or tightest.value >= figure.value:
        return figure
    return msgspec.structs.replace(figure, value=tightest.value, origin=Origin.MEASURED, how=tightest.how)


def _times(stripe: Stripe, kind: DiskKind, figure: Transfer) -> float:
    times = array_times(stripe.level, stripe.disk_count, can_seek=kind is not DiskKind.HDD)
    return times.of(figure, write_ratio=find_write_ratio(kind))

"""A disk that was seen, as settings are derived from it: of what kind it is, and what one of its kind is taken to do.

Nothing is measured here: figures are those of the class, times the disks of an array, or the control group's limits where
those are tighter, and all of them say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from pgdyno.record.preflight import CgroupLimit, LimitKind
from pgdyno.record.tunables import DiskLook, Stripe
from pgdyno.tune.hosts import ASSUMED
from pgdyno.tune.types import Device, Disk, DiskKind, Known, Origin

# Disks that a hypervisor shows, and what volumes of clouds call themselves; the local ones are called otherwise.
_NETWORK_NAMES = re.compile(r"(vd|xvd|rbd|nbd|drbd)")
_NETWORK_MODELS = re.compile(
    r"elastic block|persistentdisk|nvme_card-pd|msft|virtual disk|accelerator|qemu", re.IGNORECASE
)
_LIMITED = {
    "random_read_iops": LimitKind.READ_COUNT,
    "random_write_iops": LimitKind.WRITE_COUNT,
    "read_bytes_per_s": LimitKind.READ_BYTES,
    "write_bytes_per_s": LimitKind.WRITE_BYTES,
}
_TITLES = {
    "flush_s": ("flush latency", "s"),
    "random_read_iops": ("random reads", "1/s"),
    "random_write_iops": ("random writes", "1/s"),
    "read_bytes_per_s": ("sequential reads", "bytes/s"),
    "write_bytes_per_s": ("sequential writes", "bytes/s"),
}


def make_disk(look: DiskLook, limits: Sequence[CgroupLimit]) -> Disk:
    """What settings are derived from.

    Args:
        look: As it was seen.
        limits: Of the control groups, on any device.
    """
    kind = _find_kind(look)
    stripe = next(iter(look.stripes.values()), None)
    array = "" if stripe is None else f" in {stripe.level} of {stripe.disk_count}"
    figures = {}
    for name, (title, unit) in _TITLES.items():
        value, source = ASSUMED[kind][name]
        times = 1.0 if stripe is None else max(1.0, _TIMES[name](stripe))
        how = f"{kind.value}{array}, not measured: {source}"
        figure = Known(name=title, value=value * times, unit=unit, origin=Origin.ASSUMED, how=how)
        figures[name] = _hold_against_limits(name, figure, look, limits)
    facts = look.facts
    return Disk(
        path=facts.path,
        kind=kind,
        free_bytes=Known(
            name="free space",
            value=facts.free_bytes,
            unit="bytes",
            origin=Origin.MEASURED,
            how=f"free at {facts.path}",
        ),
        filesystem=facts.filesystem,
        devices=tuple(_make_device(look, position) for position in range(len(look.devices))),
        **figures,
    )


def _find_kind(look: DiskLook) -> DiskKind:
    """The slowest of the disks that a file system lies on; what cannot be seen is somewhere in a network."""
    leaves = [device for device in look.devices if device.kind == "disk"]
    if not leaves:
        return DiskKind.NETWORK_SSD
    kinds = set()
    for device in leaves:
        # Hypervisors call most of their disks rotating: it says nothing of theirs.
        is_remote = _NETWORK_NAMES.match(device.name) or _NETWORK_MODELS.search(look.models.get(device.name, ""))
        kinds.add(DiskKind.NETWORK_SSD if is_remote else DiskKind.HDD if device.is_rotational else DiskKind.LOCAL_SSD)
    return next(kind for kind in (DiskKind.HDD, DiskKind.NETWORK_SSD, DiskKind.LOCAL_SSD) if kind in kinds)


def _make_device(look: DiskLook, position: int) -> Device:
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
        data_disks=1 if stripe is None else max(1, int(_data_disks(stripe))),
    )


def _hold_against_limits(name: str, figure: Known, look: DiskLook, limits: Sequence[CgroupLimit]) -> Known:
    """A figure, or a control group's limit where that is tighter."""
    names = {device.name for device in look.devices}
    binding = [
        limit
        for limit in limits
        if limit.kind is _LIMITED.get(name) and (limit.device is None or limit.device in names)
    ]
    tightest = min(binding, key=lambda limit: limit.value, default=None)
    if tightest is None or tightest.value >= figure.value:
        return figure
    how = f"limit of the control group {tightest.group}"
    return msgspec.structs.replace(figure, value=tightest.value, origin=Origin.MEASURED, how=how)


def _data_disks(stripe: Stripe) -> float:
    """Disks that a full stripe spans. Source: Linux md(4)."""
    count = stripe.disk_count
    return {"raid0": count, "raid10": count / 2, "raid5": count - 1, "raid6": count - 2}.get(stripe.level, 1)


def _write_disks(stripe: Stripe) -> float:
    """How many disks' small writes an array does; parity costs reads and writes of its own.

    Source: Patterson, Gibson & Katz 1988, doi:10.1145/50202.50214.
    """
    count = stripe.disk_count
    return {"raid0": count, "raid10": count / 2, "raid5": count / 4, "raid6": count / 6}.get(stripe.level, 1)


# How many times one disk's figures an array has; a flush waits for all that it reaches.
_TIMES: dict[str, Callable[[Stripe], float]] = {
    "flush_s": lambda _: 1,
    "random_read_iops": lambda stripe: stripe.disk_count,
    "random_write_iops": _write_disks,
    "read_bytes_per_s": _data_disks,
    "write_bytes_per_s": _data_disks,
}

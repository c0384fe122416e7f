"""Limits that the kernel was told for a disk: those of control groups, as a ceiling beside those of its makers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.ceiling import TRANSFERS, Ceiling, Limit, StorageCeilings
from pgdyno.record.preflight import CgroupLimit, LimitKind
from pgdyno.record.tunables import DiskLook

_KINDS = {
    "random_read_iops": LimitKind.READ_COUNT,
    "random_write_iops": LimitKind.WRITE_COUNT,
    "read_bytes_per_s": LimitKind.READ_BYTES,
    "write_bytes_per_s": LimitKind.WRITE_BYTES,
}


def find_throttle(name: str, look: DiskLook, limits: Sequence[CgroupLimit]) -> CgroupLimit | None:
    """The tightest limit to a figure of a disk; None where there is none.

    Args:
        name: Of TRANSFERS.
        look: The disk with all that it is made of.
        limits: Of the control groups, on any device.
    """
    devices = {device.name for device in look.devices}
    ours = [
        limit for limit in limits if limit.kind is _KINDS[name] and (limit.device is None or limit.device in devices)
    ]
    return min(ours, key=lambda limit: limit.value, default=None)


def throttle(ceilings: StorageCeilings, look: DiskLook, limits: Sequence[CgroupLimit]) -> StorageCeilings:
    """The ceilings of a disk, with what control groups take of them. Those know no bursts."""
    tighter = {}
    for name, figure in TRANSFERS.items():
        limit, ceiling = find_throttle(name, look, limits), getattr(ceilings, name)
        if limit is None or (ceiling is not None and ceiling.value <= limit.value):
            continue
        how = f"limit of the control group {limit.group}"
        new = ceiling or Ceiling(value=limit.value, unit=figure.unit, binds=Limit.CONTROL_GROUP, how=how)
        tighter[name] = msgspec.structs.replace(
            new, value=limit.value, binds=Limit.CONTROL_GROUP, how=how, burst_value=None
        )
    absent = {name: reason for name, reason in ceilings.absent.items() if name not in tighter}
    return msgspec.structs.replace(ceilings, absent=absent, **tighter)

"""Apply the kernel's limits for a disk, those of control groups, to its ceilings.

A limit of one disk of an array is no limit of the array: stripes reach the slowest disk's rate times the number of
disks, mirrors write at the slowest disk's rate and read wherever there is no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, Limit, StorageCeilings, Transfer
from pgdyno.analyse.disk.raid import array_times
from pgdyno.record.machine.preflight import CgroupLimit, LimitKind
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.units import PAGE_BYTES

# The limits that apply to each figure, and how much of each limit one I/O or byte uses: I/Os are of 8 kB.
_TAKEN = {
    "random_read_iops": {LimitKind.READ_COUNT: 1, LimitKind.READ_BYTES: PAGE_BYTES},
    "random_write_iops": {LimitKind.WRITE_COUNT: 1, LimitKind.WRITE_BYTES: PAGE_BYTES},
    "read_bytes_per_s": {LimitKind.READ_BYTES: 1},
    "write_bytes_per_s": {LimitKind.WRITE_BYTES: 1},
}


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a figure that a control group leaves."""

    value: float
    """In the figure's unit."""
    how: str


def find_throttle(name: str, look: StorageStack, limits: Sequence[CgroupLimit]) -> Throttle | None:
    """Find the lowest limit of a disk's figure that control groups set; None if they do not limit it.

    Args:
        name: Name in TRANSFERS.
        look: The disk with all devices below it.
        limits: Limits of the control groups, on any device.
    """
    taken = _TAKEN[name]
    by_device: dict[str | None, list[Throttle]] = {}
    for limit in limits:
        if limit.kind in taken:
            found = Throttle(value=limit.value / taken[limit.kind], how=_describe_limit(limit, taken[limit.kind]))
            by_device.setdefault(limit.device, []).append(found)
    top = look.devices[0].name if look.devices else None
    of_path = () if top is None else _list_throttles(top, TRANSFERS[name], look, by_device)
    return _lowest((*by_device.get(None, ()), *of_path))


def _list_throttles(
    name: str, figure: Transfer, look: StorageStack, by_device: Mapping[str | None, Sequence[Throttle]]
) -> Iterator[Throttle]:
    """Yield what the limits of a device and of the devices below it leave of a figure."""
    yield from by_device.get(name, ())
    device = next((one for one in look.devices if one.name == name), None)
    below = () if device is None else device.below
    limited = [one for part in below if (one := _lowest(_list_throttles(part, figure, look, by_device))) is not None]
    least, stripe = _lowest(limited), look.stripes.get(name)
    if least is None:
        return
    if stripe is None:
        yield least
    elif figure.is_write or len(limited) == len(below) or stripe.level == "raid0":
        times = array_times(stripe.level, stripe.disk_count).of(figure)
        how = (
            least.how
            if times == 1
            else f"{times:.3g} × {least.value:,.6g}, {least.how}, of {stripe.level} of {stripe.disk_count}"
        )
        yield Throttle(value=least.value * times, how=how)


def _lowest(found: Iterable[Throttle]) -> Throttle | None:
    return min(found, key=lambda one: one.value, default=None)


def apply_throttles(ceilings: StorageCeilings, look: StorageStack, limits: Sequence[CgroupLimit]) -> StorageCeilings:
    """Cap the ceilings of a disk at the limits of control groups, which have no bursts."""
    held = {}
    for name, figure in TRANSFERS.items():
        limit, ceiling = find_throttle(name, look, limits), getattr(ceilings, name)
        if limit is not None:
            held[name] = _cap(ceiling, limit, figure.unit)
    absent = {name: reason for name, reason in ceilings.absent.items() if name not in held}
    return msgspec.structs.replace(ceilings, absent=absent, **held)


def _cap(ceiling: Ceiling | None, limit: Throttle, unit: str) -> Ceiling:
    if ceiling is None:
        return Ceiling(value=limit.value, unit=unit, binds=Limit.CONTROL_GROUP, how=limit.how)
    if ceiling.value <= limit.value:
        burst = None if ceiling.burst_value is None else min(ceiling.burst_value, limit.value)
        return msgspec.structs.replace(ceiling, burst_value=None if burst == ceiling.value else burst)
    return msgspec.structs.replace(
        ceiling, value=limit.value, binds=Limit.CONTROL_GROUP, how=limit.how, burst_value=None
    )


def _describe_limit(limit: CgroupLimit, taken: int) -> str:
    how = f"limit of the control group {limit.group}"
    return how if taken == 1 else f"{how}, of {limit.value / 1e6:,.5g} MB/s in 8 kB"

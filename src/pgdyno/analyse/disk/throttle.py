"""Limits that the kernel was told for a disk: those of control groups, as a ceiling beside those of its makers.

A limit of one disk of an array is no limit of the array: stripes do as many times what the slowest of their disks does as
they have disks, mirrors write as the slowest and read wherever there is no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, CeilingFigure, Limit, StorageCeilings
from pgdyno.analyse.disk.raid import array_times
from pgdyno.record.machine.preflight import CgroupLimit, LimitKind
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.units import PAGE_BYTES

# What each figure is limited by, and of that kind of limit how much one I/O or byte takes: I/Os are of 8 kB.
_TAKEN = {
    "random_read_iops": {LimitKind.READ_COUNT: 1, LimitKind.READ_BYTES: PAGE_BYTES},
    "random_write_iops": {LimitKind.WRITE_COUNT: 1, LimitKind.WRITE_BYTES: PAGE_BYTES},
    "read_bytes_per_s": {LimitKind.READ_BYTES: 1},
    "write_bytes_per_s": {LimitKind.WRITE_BYTES: 1},
}


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """What a control group leaves of a figure."""

    value: float
    """In the figure's unit."""
    how: str


def find_throttle(name: str, look: StorageStack, limits: Sequence[CgroupLimit]) -> Throttle | None:
    """The least that control groups leave of a figure of a disk; None where they do not limit it.

    Args:
        name: Of TRANSFERS.
        look: The disk with all that it is made of.
        limits: Of the control groups, on any device.
    """
    taken = _TAKEN[name]
    by_device: dict[str | None, list[Throttle]] = {}
    for limit in limits:
        if limit.kind in taken:
            found = Throttle(value=limit.value / taken[limit.kind], how=_say_limit(limit, taken[limit.kind]))
            by_device.setdefault(limit.device, []).append(found)
    top = look.devices[0].name if look.devices else None
    of_path = () if top is None else _descend(top, TRANSFERS[name], look, by_device)
    return _least((*by_device.get(None, ()), *of_path))


def _descend(
    name: str, figure: CeilingFigure, look: StorageStack, by_device: Mapping[str | None, Sequence[Throttle]]
) -> Iterator[Throttle]:
    """What limits of a device and of those that it is made of leave of a figure."""
    yield from by_device.get(name, ())
    device = next((one for one in look.devices if one.name == name), None)
    below = () if device is None else device.below
    limited = [one for part in below if (one := _least(_descend(part, figure, look, by_device))) is not None]
    least, stripe = _least(limited), look.stripes.get(name)
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


def _least(found: Iterable[Throttle]) -> Throttle | None:
    return min(found, key=lambda one: one.value, default=None)


def throttle(ceilings: StorageCeilings, look: StorageStack, limits: Sequence[CgroupLimit]) -> StorageCeilings:
    """The ceilings of a disk, with what control groups take of them. Those know no bursts."""
    held = {}
    for name, figure in TRANSFERS.items():
        limit, ceiling = find_throttle(name, look, limits), getattr(ceilings, name)
        if limit is not None:
            held[name] = _hold(ceiling, limit, figure.unit)
    absent = {name: reason for name, reason in ceilings.absent.items() if name not in held}
    return msgspec.structs.replace(ceilings, absent=absent, **held)


def _hold(ceiling: Ceiling | None, limit: Throttle, unit: str) -> Ceiling:
    if ceiling is None:
        return Ceiling(value=limit.value, unit=unit, binds=Limit.CONTROL_GROUP, how=limit.how)
    if ceiling.value <= limit.value:
        burst = None if ceiling.burst_value is None else min(ceiling.burst_value, limit.value)
        return msgspec.structs.replace(ceiling, burst_value=None if burst == ceiling.value else burst)
    return msgspec.structs.replace(
        ceiling, value=limit.value, binds=Limit.CONTROL_GROUP, how=limit.how, burst_value=None
    )


def _say_limit(limit: CgroupLimit, taken: int) -> str:
    how = f"limit of the control group {limit.group}"
    return how if taken == 1 else f"{how}, of {limit.value / 1e6:,.5g} MB/s in 8 kB"

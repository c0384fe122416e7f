"""Apply the kernel's limits for a disk, those of control groups, to its ceilings.

A limit of one disk of an array is no limit of the array: stripes reach the slowest disk's rate times the number of
disks, mirrors write at the slowest disk's rate and read wherever there is no limit. A small write with parity takes some of
each disk's limit of writes, and what it reads first some of that of reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, Limit, StorageCeilings
from pgdyno.analyse.disk.raid import array_times, is_single
from pgdyno.record.machine.preflight import CgroupLimit, LimitKind
from pgdyno.record.machine.tunables import StorageStack, Stripe
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
    top = look.devices[0].name if look.devices else None
    of_path = () if top is None else _list_throttles(top, name, look, limits)
    return _lowest((*_list_own(None, name, limits), *of_path))


def _list_own(device: str | None, name: str, limits: Sequence[CgroupLimit]) -> Iterator[Throttle]:
    """Yield what the limits of one device leave of a figure; those of None are of all devices."""
    taken = _TAKEN[name]
    for limit in limits:
        if limit.device == device and limit.kind in taken:
            yield Throttle(value=limit.value / taken[limit.kind], how=_describe_limit(limit, taken[limit.kind]))


def _list_throttles(name: str, figure: str, look: StorageStack, limits: Sequence[CgroupLimit]) -> Iterator[Throttle]:
    """Yield what the limits of a device and of the devices below it leave of a figure."""
    yield from _list_own(name, figure, limits)
    device = next((one for one in look.devices if one.name == name), None)
    below, stripe = () if device is None else device.below, look.stripes.get(name)
    for used, times in _list_used(figure, stripe).items():
        limited = [one for part in below if (one := _lowest(_list_throttles(part, used, look, limits))) is not None]
        least = _lowest(limited)
        # Where some mirrors have no limit, those are read.
        is_evaded = not TRANSFERS[used].is_write and stripe is not None and not is_single(stripe.level)
        if least is None or (is_evaded and len(limited) < len(below)):
            continue
        how = (
            least.how
            if stripe is None or times == 1
            else f"{times:.3g} × {least.value:,.6g}, {least.how}, of {stripe.level} of {stripe.disk_count}"
        )
        yield Throttle(value=least.value * times, how=how)


def _list_used(figure: str, stripe: Stripe | None) -> dict[str, float]:
    """List which figures of a single disk limit a figure of its array, and how many times one disk's the array does."""
    if stripe is None:
        return {figure: 1.0}
    times = array_times(stripe.level, stripe.disk_count)
    if figure != "random_write_iops":
        return {figure: times.of(TRANSFERS[figure])}
    # Limits of reads hold what parity reads first, and those of writes nothing of it.
    reads = {"random_read_iops": times.sharing / times.read_first} if times.read_first else {}
    return {figure: times.sharing / times.written, **reads}


def _lowest(found: Iterable[Throttle]) -> Throttle | None:
    return min(found, key=lambda one: one.value, default=None)


def apply_throttles(ceilings: StorageCeilings, look: StorageStack, limits: Sequence[CgroupLimit]) -> StorageCeilings:
    """Cap the ceilings of a disk at the limits of control groups, which have no bursts."""
    held = {}
    for name, figure in TRANSFERS.items():
        limit, ceiling = find_throttle(name, look, limits), getattr(ceilings, name)
        if limit is not None:
            held[name] = _cap(ceiling, limit, figure.unit)
    return ceilings.with_transfers(held)


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

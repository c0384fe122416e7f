"""Compute the ceilings of a declared storage layout: what its volumes, their array and the instance allow at most.

All figures come from data sheets and declarations. Nothing is measured or assumed: a figure without a source is absent,
with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, InstanceLimits, Limit, Price, StorageCeilings
from pgdyno.analyse.disk.raid import array_words, count_copies, has_parity, times_of
from pgdyno.facts.instances import find_instance, list_instances, list_larger
from pgdyno.facts.prices import REGION
from pgdyno.facts.volumes import find_volume, price_of
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.units import PAGE_BYTES, format_cpus

_MEGABYTE = 10**6
_NO_FLUSH = "no source says how long a flush takes: declare volume_latency_ms, or measure"
_NO_FLUSH_OF_PARITY = "with parity a small write reads before it writes, and a controller's cache may hide that: declare flush_ms, or measure"


class VolumeFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of one disk or volume."""

    value: float
    how: str
    """Source of the figure."""
    burst_value: float | None = None
    write_ratio: float = 1.0
    """Small writes that it does in the time of a small read."""


class FlushTime(msgspec.Struct, frozen=True, kw_only=True):
    """The duration of a small write that is waited for."""

    value_s: float
    binds: Limit
    how: str


def limits_of(host: HostSpec) -> InstanceLimits | None:
    """Return the host's limits: declared ones take precedence over its instance's data sheet; None without either."""
    sheet = find_instance(host.instance) if host.instance is not None else None
    limits = InstanceLimits(name=sheet.name if sheet else host.name or "the machine")
    if sheet is not None:
        limits = InstanceLimits(
            name=sheet.name,
            iops=sheet.disk_iops,
            burst_iops=sheet.disk_burst_iops,
            bytes_per_s=sheet.disk_bytes_per_s,
            burst_bytes_per_s=sheet.disk_burst_bytes_per_s,
        )
    if host.instance_iops is not None:
        limits = msgspec.structs.replace(limits, iops=host.instance_iops, burst_iops=None)
    if host.instance_mb_s is not None:
        declared = host.instance_mb_s * _MEGABYTE
        limits = msgspec.structs.replace(limits, bytes_per_s=declared, burst_bytes_per_s=None)
    return None if limits.iops is None and limits.bytes_per_s is None else limits


def usual_limits(cpu_count: float, provider: str | None) -> InstanceLimits:
    """Return what a usual instance sustains: the medians of those known with the nearest number of CPUs.

    Args:
        cpu_count: CPUs of the machine whose limits are not known.
        provider: The provider whose instances count; all count if it is None or none of its instances is known.
    """
    known = [one for one in list_instances() if one.disk_iops is not None and one.disk_bytes_per_s is not None]
    known = [one for one in known if one.provider == provider] or known
    nearest = min((one.cpu_count for one in known), key=lambda count: abs(math.log(count / cpu_count)))
    near = [one for one in known if one.cpu_count == nearest]
    return InstanceLimits(
        name=f"a usual instance with {format_cpus(nearest)} (median of {len(near)})",
        iops=median(one.disk_iops or 0 for one in near),
        bytes_per_s=median(one.disk_bytes_per_s or 0.0 for one in near),
    )


def find_larger(limits: InstanceLimits, units: Iterable[str]) -> InstanceLimits | None:
    """Find the smallest instance of the family that sustains more of any of these units; None if none is known."""
    now = {unit: _limits_in(unit, limits)[0] or math.inf for unit in units}
    for one in list_larger(limits.name):
        more = limits_of(HostSpec(instance=one.name))
        if more is not None and any((_limits_in(unit, more)[0] or 0.0) > lets for unit, lets in now.items()):
            return more
    return None


def compute_ceilings(
    disk: DiskSpec,
    limits: InstanceLimits | None = None,
    *,
    declared_by: str = "as declared",
    region: str | None = None,
) -> StorageCeilings:
    """Compute the ceilings of a layout.

    Args:
        disk: The declared layout.
        limits: Limits of the machine that it is attached to; they apply to network volumes only.
        declared_by: Source of a figure for the whole path, for `how`.
        region: Declared region, which decides the price; None: that of the known prices.
    """
    each, whole = _published(disk), _declared(disk)
    absent = {
        name: f"no source says it of {disk.volume}" if disk.volume else "it is not declared"
        for name in TRANSFERS
        if name not in {*each, *whole}
    }
    transfers: dict[str, Ceiling | None] = dict.fromkeys(TRANSFERS)
    transfers |= {name: compute_array_ceiling(name, one, disk, limits) for name, one in each.items()}
    transfers |= {
        name: _cap_at_instance(name, _own_ceiling(name, value, Limit.PATH, declared_by), disk, limits)
        for name, value in whole.items()
    }
    flush = find_flush_time(disk, declared_by=declared_by)
    if flush is None:
        absent["flushes_per_s"] = _NO_FLUSH_OF_PARITY if has_parity(disk) else _NO_FLUSH
    if disk.size_bytes is None:
        absent["capacity_bytes"] = "no size is declared"
    return StorageCeilings(
        random_read_iops=transfers["random_read_iops"],
        random_write_iops=transfers["random_write_iops"],
        read_bytes_per_s=transfers["read_bytes_per_s"],
        write_bytes_per_s=transfers["write_bytes_per_s"],
        flushes_per_s=None if flush is None else _cap_at_writes(_flushes(flush), transfers["random_write_iops"]),
        capacity_bytes=None if disk.size_bytes is None else _capacity(disk, disk.size_bytes),
        price=_find_price(disk, region or REGION, absent),
        absent=absent,
    )


def ceilings_of_instance(limits: InstanceLimits | None, look: StorageStack | None = None) -> StorageCeilings:
    """Return the ceilings of undeclared disks: the machine's limits if it has any, and otherwise all absent.

    Args:
        limits: As for `compute_ceilings`.
        look: The disks, whose mirrors count each write several times; None if they are not here.
    """
    why = "no volume is declared"
    transfers: dict[str, Ceiling | None] = dict.fromkeys(TRANSFERS)
    for name, figure in TRANSFERS.items():
        lets, lets_burst = (None, None) if limits is None else _limits_in(figure.unit, limits)
        if limits is not None and lets is not None:
            copies = count_copies(look, figure)
            times = f", {copies:.3g} for each that is written" if copies > 1 else ""
            transfers[name] = Ceiling(
                value=lets / copies,
                unit=figure.unit,
                binds=Limit.INSTANCE,
                how=f"{limits.name} lets {_amount(lets, figure.unit)} through to all of its network volumes{times}",
                instance_value=lets / copies,
                burst_value=lets_burst / copies if lets_burst is not None and lets_burst > lets else None,
            )
    rest = ("flushes_per_s", "capacity_bytes", "price")
    absent = dict.fromkeys([*(name for name, one in transfers.items() if one is None), *rest], why)
    return StorageCeilings(
        random_read_iops=transfers["random_read_iops"],
        random_write_iops=transfers["random_write_iops"],
        read_bytes_per_s=transfers["read_bytes_per_s"],
        write_bytes_per_s=transfers["write_bytes_per_s"],
        flushes_per_s=None,
        capacity_bytes=None,
        price=None,
        absent=absent,
    )


def compute_array_ceiling(name: str, each: VolumeFigure, disk: DiskSpec, limits: InstanceLimits | None) -> Ceiling:
    """Compute the ceiling of an array, and compare it with the instance's limit.

    Args:
        name: Name in TRANSFERS.
        each: Limit of one disk or volume.
        disk: Number and arrangement of the disks; its own figures are not used.
        limits: As for `compute_ceilings`.
    """
    times = times_of(disk).of(TRANSFERS[name], write_ratio=each.write_ratio)
    is_array = disk.count > 1
    how = f"{disk.count} × {each.how}, {array_words(disk)}" if is_array else each.how
    own = _own_ceiling(
        name, each.value * times, Limit.ARRAY if is_array else Limit.VOLUME, how, volume_value=each.value
    )
    burst_value = None if each.burst_value is None else each.burst_value * times
    return _cap_at_instance(name, own, disk, limits, burst_value=burst_value)


def find_flush_time(disk: DiskSpec, *, declared_by: str) -> FlushTime | None:
    """Find the duration of a flush, declared or else published; None if it is unknown.

    Of an array with parity only a declared one of the whole path holds: a controller's cache may hide what a small write
    reads first.
    """
    if disk.flush_ms is not None:
        return FlushTime(value_s=disk.flush_ms / 1000, binds=Limit.PATH, how=declared_by)
    if has_parity(disk):
        return None
    if disk.volume_latency_ms is not None:
        how = f"{declared_by}, of each volume"
        return FlushTime(value_s=disk.volume_latency_ms / 1000, binds=Limit.VOLUME, how=how)
    published_ms = find_volume(disk.volume).write_ms if disk.volume is not None else None
    if published_ms is None:
        return None
    how = f"random write latency of {disk.volume} as published"
    return FlushTime(value_s=published_ms / 1000, binds=Limit.VOLUME, how=how)


def _published(disk: DiskSpec) -> dict[str, VolumeFigure]:
    """Return the limits of each volume from data sheets, by the names of TRANSFERS."""
    if disk.volume is None:
        return {}
    ability, how = disk.volume_ability, f"{disk.volume} of {disk.size}"
    rate = ability.bytes_per_s
    reads, writes = (_in_pages(iops, ability.burst_iops, rate, how) for iops in (ability.read_iops, ability.write_iops))
    found = {
        "random_read_iops": reads,
        "random_write_iops": msgspec.structs.replace(writes, write_ratio=writes.value / reads.value),
    }
    if rate is not None:
        stream = VolumeFigure(value=rate, how=how, burst_value=ability.burst_bytes_per_s)
        found |= dict.fromkeys(("read_bytes_per_s", "write_bytes_per_s"), stream)
    return found


def _in_pages(iops: float, burst_iops: float | None, bytes_per_s: float | None, how: str) -> VolumeFigure:
    """Limit I/Os of 8 kB by the volume's IOPS or bandwidth, whichever is lower."""
    pages = float("inf") if bytes_per_s is None else bytes_per_s / PAGE_BYTES
    if pages < iops:
        return VolumeFigure(value=pages, how=f"{how}, whose {iops:,.0f} IOPS its bandwidth cannot fill with 8 kB")
    return VolumeFigure(value=iops, how=how, burst_value=None if burst_iops is None else min(burst_iops, pages))


def _declared(disk: DiskSpec) -> dict[str, float]:
    """Return the declared figures of the whole path, by the names of TRANSFERS."""
    said = {
        "random_read_iops": disk.random_read_iops,
        "random_write_iops": disk.random_write_iops,
        "read_bytes_per_s": disk.read_mb_s and disk.read_mb_s * _MEGABYTE,
        "write_bytes_per_s": disk.write_mb_s and disk.write_mb_s * _MEGABYTE,
    }
    return {name: value for name, value in said.items() if value is not None}


def _own_ceiling(name: str, value: float, binds: Limit, how: str, *, volume_value: float | None = None) -> Ceiling:
    unit = TRANSFERS[name].unit
    return Ceiling(value=value, unit=unit, binds=binds, how=how, volume_value=volume_value, array_value=value)


def _cap_at_instance(
    name: str, own: Ceiling, disk: DiskSpec, limits: InstanceLimits | None, *, burst_value: float | None = None
) -> Ceiling:
    """Cap the disks' own ceiling at the instance's sustained limit, and say which of the two binds."""
    lets, lets_burst = _limits_to(own.unit, disk, limits)
    copies = times_of(disk).copies_of(TRANSFERS[name])
    value, binds, how, through = own.value, own.binds, own.how, None
    if limits is not None and lets is not None:
        through = lets / copies
        words = f"{_amount(lets, own.unit)} through" + (
            f" ({copies:.3g} for each that is written)" if copies > 1 else ""
        )
        if own.value <= through:
            how = f"{how}; {limits.name} lets {words}, so the disks bind"
        else:
            how = (
                f"{limits.name} lets {words} to all of its volumes, which binds: {how} could {_amount(value, own.unit)}"
            )
            value, binds = through, Limit.INSTANCE
    is_unknown = own.binds is not Limit.PATH and _lacks_machine_limit(own.unit, disk, limits)
    if is_unknown:
        how = f"{how}; what the machine lets through is not known, and often binds first"
    burst = max(own.value, burst_value or 0.0)
    if lets_burst is not None:
        burst = min(burst, lets_burst / copies)
    return msgspec.structs.replace(
        own,
        value=value,
        binds=binds,
        how=how,
        instance_value=through,
        burst_value=burst if burst > value else None,
        is_machine_unknown=is_unknown,
    )


def _lacks_machine_limit(unit: str, disk: DiskSpec, limits: InstanceLimits | None) -> bool:
    if disk.disk_kind != "network-ssd":
        return False
    return limits is None or (limits.bytes_per_s if unit == "bytes/s" else limits.iops) is None


def _limits_to(unit: str, disk: DiskSpec, limits: InstanceLimits | None) -> tuple[float | None, float | None]:
    """Return the instance's limits for a unit, sustained and burst; None where it has none."""
    return (None, None) if limits is None or disk.disk_kind != "network-ssd" else _limits_in(unit, limits)


def _limits_in(unit: str, limits: InstanceLimits) -> tuple[float | None, float | None]:
    burst_bytes_per_s = limits.burst_bytes_per_s or limits.bytes_per_s
    if unit == "bytes/s":
        return limits.bytes_per_s, burst_bytes_per_s
    return _lower_limit(limits.iops, limits.bytes_per_s), _lower_limit(
        limits.burst_iops or limits.iops, burst_bytes_per_s
    )


def _lower_limit(iops: float | None, bytes_per_s: float | None) -> float | None:
    """Return I/Os of 8 kB at the lower of two limits."""
    pages = None if bytes_per_s is None else bytes_per_s / PAGE_BYTES
    return min((most for most in (iops, pages) if most is not None), default=None)


def _amount(value: float, unit: str) -> str:
    return f"{value / _MEGABYTE:,.5g} MB/s" if unit == "bytes/s" else f"{value:,.0f} a second"


def _flushes(flush: FlushTime) -> Ceiling:
    value = 1 / flush.value_s
    how = f"one each {flush.value_s * 1000:.3g} ms, {flush.how}"
    return Ceiling(value=value, unit="1/s", binds=flush.binds, how=how)


def _cap_at_writes(flushes: Ceiling, writes: Ceiling | None) -> Ceiling:
    """Cap flushes at the writes of a page that the disks allow, since each flush has one of its own."""
    if writes is None or writes.value >= flushes.value:
        return flushes
    burst = min(flushes.value, writes.burst_value or writes.value)
    return Ceiling(
        value=writes.value,
        unit=flushes.unit,
        binds=writes.binds,
        how=f"each has a write of its own, of which the disks allow {_amount(writes.value, writes.unit)}; without that limit "
        f"{flushes.how}",
        burst_value=burst if burst > writes.value else None,
    )


def _capacity(disk: DiskSpec, size_bytes: float) -> Ceiling:
    if disk.count == 1:
        return Ceiling(value=size_bytes, unit="bytes", binds=Limit.VOLUME, how=disk.size or "")
    # LVM concatenates sets of stripes, so that all disks add capacity.
    count = disk.count if disk.lvm_stripes is not None else times_of(disk).data
    how = f"{disk.count} × {disk.size} {array_words(disk)}"
    value = size_bytes * count
    return Ceiling(value=value, unit="bytes", binds=Limit.ARRAY, how=how, volume_value=size_bytes, array_value=value)


def _find_price(disk: DiskSpec, region: str, absent: dict[str, str]) -> Price | None:
    if disk.volume is None:
        absent["price"] = "none is known, as no volume of a cloud is named"
        return None
    if disk.disk_kind != "network-ssd":
        absent["price"] = "a local disk is part of its machine's"
        return None
    if region != REGION:
        absent["price"] = f"no source says what {disk.volume} costs in {region}"
        return None
    volume = find_volume(disk.volume)
    try:
        each = price_of(volume, disk.volume_gib, iops=disk.volume_iops, mb_s=disk.volume_mb_s)
    except ValueError as exc:
        absent["price"] = str(exc)
        return None
    return Price(
        usd_per_month=each * disk.count,
        how=f"{disk.count} × ${each:,.2f} of {disk.volume} of {disk.size}, on demand in {region}",
        date=volume.price_date,
        source=volume.price_source or volume.source,
    )

"""Find alternatives to a declared machine: other volumes that perform no worse, and the next size of the instance.

Other volumes must sustain what the declared ones sustain on this instance, have the same capacity, and flush as fast
if that is known now. For data this means random and sequential reads and writes; for a separate WAL, sequential I/O and
serial flushes. The declared type and number of volumes is listed again where fewer IOPS or less throughput is enough and
costs less. Volumes that cannot, or for which no source states it, are left out with the reason. Mirrored volumes, and
those with parity, are replaced by a mirror of which as many may fail: by three in place of RAID 6. A single volume is priced
as well, and marked as not mirrored. TPS are not projected: for a larger instance, the result is the factor of TPS at which a
transaction costs the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS, InstanceLimits
from pgdyno.analyse.disk.layout_ceiling import FlushTime, compute_ceilings, find_flush_time, limits_of
from pgdyno.analyse.disk.raid import count_survived, times_of
from pgdyno.facts.instances import list_larger
from pgdyno.facts.prices import Term
from pgdyno.facts.volumes import Volume, find_volume, list_volumes
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import HostCost, paths_of, price_disk
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.units import PAGE_BYTES

_GIBIBYTE = 2**30
# Required sustained figures: data is accessed at random, while WAL is one stream with serial flushes.
_NEEDED = {"data": tuple(TRANSFERS), "WAL": ("read_bytes_per_s", "write_bytes_per_s")}
# Tolerance for the rounding of a division.
_EQUAL_RATIO = 1 - 1e-9


class OtherVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes that could replace those of a path."""

    what: str
    """Contents of the volumes: `data` or `WAL`."""
    now: DiskSpec
    now_per_month: float
    volume: str
    """Name of the type of volume."""
    count: int
    """1, or that of a mirror."""
    disk: DiskSpec | None
    """None if no such layout performs as well."""
    per_month: float | None
    reason: str | None
    """Why there is no price."""
    flush_s: float | None
    """Time of one small synchronous write; None if no source states it."""
    now_flush_s: float | None
    is_as_durable: bool
    """True if data still survive the loss of as many volumes as now."""


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements for other volumes."""

    lasts: dict[str, float]
    """Sustained figures, by the names of TRANSFERS."""
    capacity_bytes: float
    flush: FlushTime | None
    """Time of a flush now; None if unknown."""
    is_serial: bool
    """True if flushes are serial, each of which is an I/O that must be provisioned."""


class NextSize(msgspec.Struct, frozen=True, kw_only=True):
    """The same machine with the next larger instance of its family, on demand."""

    instance: str
    cpu_count: int
    memory_bytes: int
    per_month: float
    times: float
    """Price compared with the current one: with TPS higher by this factor, a transaction costs the same."""


class Alternatives(msgspec.Struct, frozen=True, kw_only=True):
    """All alternatives that could be priced."""

    volumes: tuple[OtherVolumes, ...] = ()
    next_size: NextSize | None = None


def find_alternatives(
    host: HostSpec, cost: HostCost, book: PriceBook, *, price: Callable[[HostSpec], HostCost]
) -> Alternatives:
    """Find alternatives to a machine.

    Args:
        host: The machine as declared.
        cost: Its cost, with that of all machines that stand around it.
        book: Prices to use.
        price: Function that prices another machine in its place, with those around it.
    """
    limits = limits_of(host)
    return Alternatives(
        volumes=tuple(
            other
            for what, disk in paths_of(host).items()
            if what in _NEEDED
            for other in _list_other_volumes(what, disk, limits, book, cost.region)
        ),
        next_size=_find_next_size(host, cost, price),
    )


def _list_other_volumes(
    what: str, disk: DiskSpec, limits: InstanceLimits | None, book: PriceBook, region: str
) -> Iterator[OtherVolumes]:
    """List every type of this provider's volumes with provisioned IOPS; also mirrored, if the loss of any is survived now."""
    try:
        now, wanted = price_disk(what, disk, book, region), _find_wanted(what, disk, limits)
    except ValueError:
        return
    if now is None or disk.volume is None:
        return
    survived, provider = count_survived(disk), find_volume(disk.volume).provider
    for volume in list_volumes():
        for count in (1, 1 + survived) if survived else (1,):
            is_now = (volume.name, count) == (disk.volume.lower(), disk.count)
            if volume.provider != provider or volume.bought_iops is None:
                continue
            other = OtherVolumes(
                what=what,
                now=disk,
                now_per_month=now.per_month,
                volume=volume.name,
                count=count,
                disk=None,
                per_month=None,
                reason=None,
                flush_s=None,
                now_flush_s=None if wanted.flush is None else wanted.flush.value_s,
                is_as_durable=count > survived,
            )
            try:
                found = _lay_out(volume, count, disk, wanted)
                flush_s = _check(found, wanted, limits)
                part = price_disk(what, found, book, region)
            except ValueError as exc:
                if not is_now:
                    yield msgspec.structs.replace(other, reason=str(exc))
                continue
            if part is not None and (not is_now or part.per_month < now.per_month):
                yield msgspec.structs.replace(other, disk=found, per_month=part.per_month, flush_s=flush_s)


def _find_wanted(what: str, disk: DiskSpec, limits: InstanceLimits | None) -> _Wanted:
    """Find the requirements that the current volumes of a path set.

    Raises:
        ValueError: Their performance is unknown.
    """
    ceilings = compute_ceilings(disk, limits)
    found = {name: getattr(ceilings, name) for name in _NEEDED[what]}
    if ceilings.capacity_bytes is None or None in found.values():
        raise ValueError("the current volumes' performance is not known")
    return _Wanted(
        lasts={name: ceiling.value for name, ceiling in found.items()},
        capacity_bytes=ceilings.capacity_bytes.value,
        flush=find_flush_time(disk, declared_by="as declared"),
        is_serial=what == "WAL",
    )


def _lay_out(volume: Volume, count: int, now: DiskSpec, wanted: _Wanted) -> DiskSpec:
    """Lay out one volume, or a mirror of several, with the required figures provisioned.

    Raises:
        ValueError: Such a volume is impossible.
    """
    is_own_type = volume.name == (now.volume or "").lower()
    bare = DiskSpec(
        volume=volume.name,
        count=count,
        raid=1 if count > 1 else None,
        size=f"{max(volume.least_gib, math.ceil(wanted.capacity_bytes / _GIBIBYTE))}GB",
        volume_iops=None if volume.iops is not None else math.ceil(volume.least_iops or 1.0),
        # Declared figures of a type of volume apply to each volume of that type.
        volume_latency_ms=now.volume_latency_ms if is_own_type else None,
        flush_ms=now.flush_ms if is_own_type and now.count == count else None,
    )
    own = bare.volume_ability
    iops, bytes_per_s = _size_up(bare, volume, wanted)
    iops = max(iops, math.ceil(own.read_iops))
    mb_s = math.ceil(bytes_per_s / volume.megabyte_bytes)
    own_mb_s = 0.0 if volume.mb is None else volume.mb.at(bare.volume_gib, iops)
    return msgspec.structs.replace(
        bare,
        volume_iops=iops if volume.iops is None or iops > own.read_iops else None,
        volume_mb_s=mb_s if mb_s > own_mb_s else None,
    )


def _size_up(bare: DiskSpec, volume: Volume, wanted: _Wanted) -> tuple[int, float]:
    """Compute the IOPS and bytes per second that each volume of a layout needs."""
    each = {name: value / times_of(bare).of(TRANSFERS[name]) for name, value in wanted.lasts.items()}
    iops = max((value for name, value in each.items() if TRANSFERS[name].unit == "1/s"), default=0.0)
    flush = find_flush_time(bare, declared_by="as declared")
    if wanted.is_serial and flush is not None:
        iops = max(iops, 1 / flush.value_s)
    # IOPS of one page each need throughput, and throughput depends on IOPS.
    bytes_per_s = max(*(value for name, value in each.items() if TRANSFERS[name].unit != "1/s"), iops * PAGE_BYTES)
    line = volume.bought_mb or volume.mb
    if line is not None and line.per_iops and bytes_per_s > line.floor * volume.megabyte_bytes:
        iops = max(iops, (math.ceil(bytes_per_s / volume.megabyte_bytes) - line.base) / line.per_iops)
    return math.ceil(iops), bytes_per_s


def _check(found: DiskSpec, wanted: _Wanted, limits: InstanceLimits | None) -> float | None:
    """Check that other volumes perform no worse, and return the time of a flush on them.

    Raises:
        ValueError: They perform worse, or their performance is unknown.
    """
    ceilings = compute_ceilings(found, limits)
    for name, value in wanted.lasts.items():
        if getattr(ceilings, name).value < value * _EQUAL_RATIO:
            raise ValueError(f"it sustains fewer {TRANSFERS[name].title} than the current volumes")
    now, flush = wanted.flush, find_flush_time(found, declared_by="as declared")
    if now is not None and flush is None:
        raise ValueError(f"no source states how long a flush takes on {found.volume}")
    if now is not None and flush is not None and flush.value_s > now.value_s:
        raise ValueError(f"a flush takes {flush.value_s * 1e3:.3g} ms, and {now.value_s * 1e3:.3g} ms now")
    return None if flush is None else flush.value_s


def _find_next_size(host: HostSpec, cost: HostCost, price: Callable[[HostSpec], HostCost]) -> NextSize | None:
    """Find the next larger instance of the family; return None for the largest, or if a price is missing."""
    now = cost.find(Term.ON_DEMAND)
    if host.instance is None or now is None:
        return None
    next_one = next(iter(list_larger(host.instance)), None)
    if next_one is None:
        return None
    found = price(msgspec.structs.replace(host, instance=next_one.name)).find(Term.ON_DEMAND)
    if found is None:
        return None
    return NextSize(
        instance=next_one.name,
        cpu_count=next_one.cpu_count,
        memory_bytes=next_one.memory_bytes,
        per_month=found.per_month,
        times=found.per_month / now.per_month,
    )

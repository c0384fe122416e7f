"""What else one could pay for: other volumes that do no less than the declared ones, and the next size of the instance.

Other volumes must read, write and stream as much as the declared ones last on this instance, hold as much, and flush as
fast; those that cannot, or of which no source says it, are left out with the reason. Two of them mirrored keep what a
mirror keeps; a single one in a mirror's place is priced as well, and said to be none. It projects no TPS: of a larger
instance it says at how many times the TPS it costs the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from pgdyno.analyse.ceiling import TRANSFERS, InstanceLimits, StorageCeilings
from pgdyno.analyse.raid import ArrayTimes, array_times
from pgdyno.analyse.storage import FlushTime, find_flush_time, limits_of, reckon_ceilings
from pgdyno.facts.instances import find_instance, list_instances
from pgdyno.facts.prices import Term
from pgdyno.facts.volumes import Volume, find_volume, list_volumes
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import HostCost, paths_of, price_disk, price_host
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.units import PAGE_BYTES

_GIBIBYTE = 2**30
_MIRRORS = frozenset({1, 10})
_DATA_PATHS = ("data", "WAL")
# Figures that are equal but for the last digits of a division.
_EQUAL_RATIO = 1 - 1e-9


class OtherVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes in place of those of a path."""

    what: str
    """`data` or `WAL`."""
    now: DiskSpec
    now_per_month: float
    volume: str
    """Of its kind."""
    count: int
    """1, or 2 that mirror each other."""
    disk: DiskSpec | None
    """None where there is no such layout that does as much."""
    per_month: float | None
    reason: str | None
    """Why there is no price."""
    flush_s: float | None
    """Of one small write that is waited for; None where nobody says."""
    now_flush_s: float | None
    is_as_durable: bool
    """Whether what is mirrored now still is."""


class NextSize(msgspec.Struct, frozen=True, kw_only=True):
    """The same machine with the next larger instance of its family, on demand."""

    instance: str
    cpu_count: int
    memory_bytes: int
    per_month: float
    times: float
    """What it costs now: at so many times the TPS a transaction costs the same."""


class Alternatives(msgspec.Struct, frozen=True, kw_only=True):
    """All that could be reckoned."""

    volumes: tuple[OtherVolumes, ...] = ()
    next_size: NextSize | None = None


def find_alternatives(host: HostSpec, cost: HostCost, book: PriceBook) -> Alternatives:
    """What else one could pay for.

    Args:
        host: As it is declared.
        cost: Of it.
        book: The prices that count.
    """
    limits = limits_of(host)
    return Alternatives(
        volumes=tuple(
            other
            for what, disk in paths_of(host).items()
            if what in _DATA_PATHS
            for other in _list_other_volumes(what, disk, limits, book, cost.region)
        ),
        next_size=_find_next_size(host, cost, book),
    )


def _list_other_volumes(
    what: str, disk: DiskSpec, limits: InstanceLimits | None, book: PriceBook, region: str
) -> Iterator[OtherVolumes]:
    """Every kind of volume of this provider whose IOPS can be bought; mirrored as well where there are mirrors now."""
    try:
        now = price_disk(what, disk, book, region)
    except ValueError:
        return
    if now is None or disk.volume is None:
        return
    ceilings, is_mirrored = reckon_ceilings(disk, limits), disk.raid in _MIRRORS
    flush = find_flush_time(disk, declared_by="as declared")
    for volume in list_volumes():
        for count in (1, 2) if is_mirrored else (1,):
            is_now = (volume.name, count) == (disk.volume.lower(), disk.count)
            if volume.provider != find_volume(disk.volume).provider or volume.bought_iops is None or is_now:
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
                now_flush_s=None if flush is None else flush.value_s,
                is_as_durable=count > 1 or not is_mirrored,
            )
            try:
                found = _lay_out(volume, count, disk, ceilings)
                flush_s = _check(found, ceilings, flush, limits)
                part = price_disk(what, found, book, region)
            except ValueError as exc:
                yield msgspec.structs.replace(other, reason=str(exc))
                continue
            if part is not None:
                yield msgspec.structs.replace(other, disk=found, per_month=part.per_month, flush_s=flush_s)


def _lay_out(volume: Volume, count: int, now: DiskSpec, wanted: StorageCeilings) -> DiskSpec:
    """One volume, or two that mirror each other, with as much bought as others last.

    Raises:
        ValueError: There is no such volume, or it is not known what the others do.
    """
    if wanted.capacity_bytes is None or any(getattr(wanted, name) is None for name in TRANSFERS):
        raise ValueError("it is not known what the volumes do now")
    times = array_times("raid1" if count > 1 else "raid0", count)
    size_gib = max(volume.least_gib, math.ceil(wanted.capacity_bytes.value / _GIBIBYTE))
    iops, mb_s = _size_up(volume, times, wanted)
    own_iops = 0.0 if volume.iops is None else volume.iops.at(size_gib)
    iops = max(iops, math.ceil(own_iops or volume.least_iops or 0.0))
    own_mb_s = 0.0 if volume.mb is None else volume.mb.at(size_gib, iops)
    return DiskSpec(
        volume=volume.name,
        count=count,
        raid=1 if count > 1 else None,
        size=f"{size_gib}GB",
        volume_iops=iops if iops > own_iops else None,
        volume_mb_s=mb_s if mb_s > own_mb_s else None,
        # What was said of a kind of volume holds for each of it.
        volume_latency_ms=now.volume_latency_ms if now.volume == volume.name else None,
    )


def _size_up(volume: Volume, times: ArrayTimes, wanted: StorageCeilings) -> tuple[int, int]:
    """IOPS and MB/s, the latter in the provider's, that each volume needs."""
    each = {name: getattr(wanted, name).value / times.of(figure) for name, figure in TRANSFERS.items()}
    iops = math.ceil(max(each["random_read_iops"], each["random_write_iops"]))
    # IOPS of a page each need their bandwidth, too.
    bytes_per_s = max(each["read_bytes_per_s"], each["write_bytes_per_s"], iops * PAGE_BYTES)
    mb_s = math.ceil(bytes_per_s / volume.megabyte_bytes)
    line = volume.bought_mb or volume.mb
    if line is not None and line.per_iops and mb_s > line.floor:
        iops = max(iops, math.ceil((mb_s - line.base) / line.per_iops))
    return iops, mb_s


def _check(
    found: DiskSpec, wanted: StorageCeilings, now: FlushTime | None, limits: InstanceLimits | None
) -> float | None:
    """How long a flush takes on other volumes, once it is sure that they do no less.

    Raises:
        ValueError: They do, or nobody knows; the message says what.
    """
    ceilings = reckon_ceilings(found, limits)
    for name, figure in TRANSFERS.items():
        if getattr(ceilings, name).value < getattr(wanted, name).value * _EQUAL_RATIO:
            raise ValueError(f"it lasts fewer {figure.title} than the volumes do now")
    flush = find_flush_time(found, declared_by="as declared")
    if now is not None and flush is None:
        raise ValueError(f"no source says how long a flush takes on {found.volume}")
    if now is not None and flush is not None and flush.value_s > now.value_s:
        raise ValueError(f"a flush takes {flush.value_s * 1e3:.3g} ms, and {now.value_s * 1e3:.3g} ms now")
    return None if flush is None else flush.value_s


def _find_next_size(host: HostSpec, cost: HostCost, book: PriceBook) -> NextSize | None:
    """The next larger instance of the family; None for the largest, and where a price is missing."""
    now = cost.find(Term.ON_DEMAND)
    if host.instance is None or now is None:
        return None
    own = find_instance(host.instance)
    family = f"{own.name.rpartition('.')[0]}."
    larger = [one for one in list_instances() if one.name.startswith(family) and one.cpu_count > own.cpu_count]
    if not larger:
        return None
    next_one = min(larger, key=lambda one: one.cpu_count)
    found = price_host(msgspec.structs.replace(host, instance=next_one.name), book).find(Term.ON_DEMAND)
    if found is None:
        return None
    return NextSize(
        instance=next_one.name,
        cpu_count=next_one.cpu_count,
        memory_bytes=next_one.memory_bytes,
        per_month=found.per_month,
        times=found.per_month / now.per_month,
    )

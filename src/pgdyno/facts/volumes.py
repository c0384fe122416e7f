"""Read `volumes.toml`: the performance and prices of cloud volumes.

A volume's figures depend on its size and on what is provisioned. This module covers single volumes; arrays and instance
limits are in `analyse/disk`. What no source states is None.
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import re
from typing import Literal

import msgspec

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.facts.data_file import read_toml

# Kernel names that virtual disks begin with, and words of the models that they report where they act as a SCSI or NVMe disk.
# Disks of a cloud's machine itself, such as Amazon's instance storage, report other models.
_VIRTUAL_NAMES = re.compile(r"vd|xvd|rbd|nbd|drbd")
_VIRTUAL_MODELS = re.compile(
    r"elastic block|persistentdisk|nvme_card-pd|msft|virtual disk|accelerator|qemu|vbox|vmware|blockvolume",
    re.IGNORECASE,
)
DiskKindName = Literal["local-ssd", "network-ssd", "hdd"]
_PAID = {
    "usd_per_gib_month": "a GiB costs",
    "usd_per_iops_month": "IOPS cost that are bought",
    "usd_per_mb_month": "MB/s cost that are bought",
}


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure that grows with a volume's size up to a maximum."""

    most: float
    base: float = 0.0
    per_gib: float = 0.0
    per_iops: float = 0.0
    floor: float = 0.0

    def at(self, size_gib: float, iops: float = 0.0) -> float:
        """Return the figure for a volume's size and IOPS."""
        return min(self.most, max(self.floor, self.base + self.per_gib * size_gib + self.per_iops * iops))


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure of volumes up to a size."""

    most_gib: float
    value: float


class CheaperIops(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of each IOPS beyond a number of them."""

    beyond: float
    usd_per_month: float


class Volume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A type of volume as published by its provider; volumes.toml documents the fields."""

    name: str
    kind: DiskKindName
    least_gib: int
    most_gib: int
    megabyte_bytes: int
    latency: str
    source: str
    date: dt.date
    """Date on which the source was looked up."""
    provider: str | None = None
    iops: Line | None = None
    mb: Line | None = None
    bought_iops: Line | None = None
    bought_mb: Line | None = None
    least_iops: float | None = None
    """Least IOPS that must be provisioned; None if some are included, or no source states it."""
    iops_bytes: int | None = None
    """Size of each I/O that the IOPS were published of, where that is less than a page of PostgreSQL; None: 8 kB or more."""
    write_ratio: float = 1.0
    """Share of the IOPS that is available for writes."""
    write_ms: float | None = None
    burst_iops: float | None = None
    """IOPS of a smaller volume while its burst credits last."""
    burst_credits: float | None = None
    """I/Os above the sustained IOPS until a full volume's burst ends; None if no source states it."""
    burst_mb: tuple[Step, ...] = ()
    """Megabytes per second while burst credits last, smaller volumes first."""
    usd_per_gib_month: float | None = None
    usd_per_iops_month: float | None = None
    """Price per IOPS beyond the included ones."""
    usd_per_mb_month: float | None = None
    """Price per MB/s beyond the included ones."""
    cheaper_iops: tuple[CheaperIops, ...] = ()
    """Prices of IOPS beyond a number, smaller numbers first."""
    price_date: dt.date | None = None
    price_source: str | None = None


class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """Sustained and burst performance of one volume."""

    read_iops: float
    write_iops: float
    bytes_per_s: float | None
    """None if not published."""
    burst_iops: float | None = None
    """None without bursts."""
    burst_bytes_per_s: float | None = None
    """None without bursts of bandwidth."""


class _Volumes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    volume: tuple[Volume, ...]


def is_virtual_disk(name: str, model: str | None) -> bool:
    """Return whether a whole device is a hypervisor's or a network's, whose rotational flag means nothing.

    Args:
        name: Kernel name, such as `sda`.
        model: The model that it reports; None if it reports none.
    """
    return bool(_VIRTUAL_NAMES.match(name) or _VIRTUAL_MODELS.search(model or ""))


def find_volume(name: str) -> Volume:
    """Find a type of volume by name, in any case.

    Raises:
        SpecError: No type of volume has that name.
    """
    known = {volume.name: volume for volume in list_volumes()}
    try:
        return known[name.lower()]
    except KeyError:
        nearest = difflib.get_close_matches(name.lower(), known, n=1)
        raise SpecError(
            f"no volume is known as {name}",
            detail=f"known are {', '.join(known)}",
            hint=did_you_mean(nearest) if nearest else "declare its figures, such as read_mb_s, instead",
        ) from None


@functools.cache
def list_volumes() -> tuple[Volume, ...]:
    """Return all known types of volumes, in the order of the file."""
    return read_toml("volumes.toml", _Volumes).volume


def ability_of(volume: Volume, size_gib: float, *, iops: float | None = None, mb_s: float | None = None) -> Ability:
    """Compute the performance of a volume.

    Args:
        volume: Type of the volume.
        size_gib: Its size.
        iops: Provisioned IOPS; None for the included ones.
        mb_s: Provisioned throughput in the provider's megabytes; None for the included one.

    Raises:
        ValueError: Such a volume is impossible: its size, IOPS or throughput is out of range.
    """
    if not volume.least_gib <= size_gib <= volume.most_gib:
        raise ValueError(f"{size_gib:,.0f} GiB are not within {volume.least_gib} to {volume.most_gib:,} GiB")
    included_iops, own_mb_s = _included_of(volume, size_gib, iops=iops)
    if iops is not None:
        most = None if volume.bought_iops is None else volume.bought_iops.at(size_gib)
        _check_provisioned("IOPS", iops, least=included_iops or volume.least_iops or 0.0, most=most)
    elif included_iops is None:
        raise ValueError("it has only provisioned IOPS, and none are provisioned")
    iops = iops or included_iops or 0.0
    if mb_s is not None:
        most = None if volume.bought_mb is None else volume.bought_mb.at(size_gib, iops)
        _check_provisioned("MB/s", mb_s, least=own_mb_s or 0.0, most=most)
    mb_s = mb_s or own_mb_s
    burst_mb_s = next((step.value for step in volume.burst_mb if size_gib <= step.most_gib), 0.0)
    return Ability(
        read_iops=iops,
        write_iops=iops * volume.write_ratio,
        bytes_per_s=None if mb_s is None else mb_s * volume.megabyte_bytes,
        burst_iops=None if volume.burst_iops is None or volume.burst_iops <= iops else volume.burst_iops,
        burst_bytes_per_s=burst_mb_s * volume.megabyte_bytes if burst_mb_s > (mb_s or 0.0) else None,
    )


def price_of(volume: Volume, size_gib: float, *, iops: float | None = None, mb_s: float | None = None) -> float:
    """Compute the price of a volume in USD per month: its size, and what is provisioned beyond the included figures.

    Args:
        volume: Type of the volume.
        size_gib: Its size.
        iops: Provisioned IOPS; None for the included ones.
        mb_s: Provisioned throughput in the provider's megabytes; None for the included one.

    Raises:
        ValueError: No source states a part of the price.
    """
    paid = count_paid(volume, size_gib, iops=iops, mb_s=mb_s)
    total = 0.0
    for name, amount in paid.items():
        usd: float | None = getattr(volume, name)
        if usd is None:
            raise ValueError(f"no source says what {_PAID[name]}")
        total += amount * usd - (_discount_of(volume, amount, usd) if name == "usd_per_iops_month" else 0.0)
    return total


def _discount_of(volume: Volume, iops: float, usd: float) -> float:
    """Return by how much the IOPS beyond each step are cheaper than at the price below it."""
    discount = 0.0
    for step in volume.cheaper_iops:
        discount += max(0.0, iops - step.beyond) * (usd - step.usd_per_month)
        usd = step.usd_per_month
    return discount


def count_paid(
    volume: Volume, size_gib: float, *, iops: float | None = None, mb_s: float | None = None
) -> dict[str, float]:
    """Count what of a volume is paid for: GiB, and IOPS and MB/s beyond the included ones, each by the field of its price.

    Args:
        volume: Type of the volume.
        size_gib: Its size.
        iops: Provisioned IOPS; None for the included ones.
        mb_s: Provisioned throughput in the provider's megabytes; None for the included one.
    """
    included_iops, own_mb_s = _included_of(volume, size_gib, iops=iops)
    more_iops, more_mb_s = (iops or 0.0) - (included_iops or 0.0), (mb_s or 0.0) - (own_mb_s or 0.0)
    amounts = zip(_PAID, (size_gib, more_iops, more_mb_s), strict=True)
    return {name: amount for name, amount in amounts if amount > 0.0}


def _included_of(volume: Volume, size_gib: float, *, iops: float | None = None) -> tuple[float | None, float | None]:
    """Return the included IOPS and MB/s of a volume, the latter for its IOPS; None if all must be provisioned."""
    included_iops = None if volume.iops is None else volume.iops.at(size_gib)
    return included_iops, None if volume.mb is None else volume.mb.at(size_gib, iops or included_iops or 0.0)


def _check_provisioned(what: str, asked: float, *, least: float, most: float | None) -> None:
    if most is None:
        raise ValueError(f"{what} cannot be provisioned: they depend on its size or on its IOPS")
    if asked < least:
        raise ValueError(f"{asked:,.0f} {what} are fewer than the {least:,.0f} that it has at least")
    if asked > most:
        raise ValueError(f"{asked:,.0f} {what} are more than the {most:,.0f} that one of its size can have")

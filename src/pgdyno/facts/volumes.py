"""What cloud volumes can do: the typed reader of `volumes.toml`.

A volume's figures follow from its size and from what is bought with it. It knows one volume: arrays of them, and what an
instance lets through, are reckoned in `analyse/storage`. What no source says is None.
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import importlib.resources
import re
from typing import Literal

import msgspec

from pgdyno.errors import SpecError

VIRTUAL_DISK_NAMES = re.compile(r"vd|xvd|rbd|nbd|drbd")
"""How names begin of disks that a hypervisor shows, most of them behind a network: what they say of rotating means nothing."""
DiskKindName = Literal["local-ssd", "network-ssd", "hdd"]


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure that grows with the volume until it has reached its most."""

    most: float
    base: float = 0.0
    per_gib: float = 0.0
    per_iops: float = 0.0
    floor: float = 0.0

    def at(self, size_gib: float, iops: float = 0.0) -> float:
        """The figure of a volume of that size and those IOPS."""
        return min(self.most, max(self.floor, self.base + self.per_gib * size_gib + self.per_iops * iops))


class Volume(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of volume, as its provider publishes it; volumes.toml says what the fields are."""

    name: str
    kind: DiskKindName
    least_gib: int
    most_gib: int
    megabyte_bytes: int
    latency: str
    source: str
    date: dt.date
    """On which the source was looked up."""
    provider: str | None = None
    iops: Line | None = None
    mb: Line | None = None
    bought_iops: Line | None = None
    bought_mb: Line | None = None
    least_iops: float | None = None
    """That must be bought; None where some come with it, or no source says."""
    write_ratio: float = 1.0
    """Of the IOPS, for writes."""
    write_ms: float | None = None
    burst_iops: float | None = None
    """Of a volume that has less, while its credits last."""
    usd_per_gib_month: float | None = None
    usd_per_iops_month: float | None = None
    """Beyond those that come with it."""
    usd_per_mb_month: float | None = None
    """Likewise."""
    priced_iops: float | None = None
    """Up to which the price of IOPS is known; None: all that can be bought."""
    price_date: dt.date | None = None
    price_source: str | None = None


class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """What one volume can do for as long as one likes, and in a burst."""

    read_iops: float
    write_iops: float
    bytes_per_s: float | None
    """None where it is not published."""
    burst_iops: float | None = None
    """For a while; None where it has no bursts."""


class _Volumes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    volume: tuple[Volume, ...]


def find_volume(name: str) -> Volume:
    """The volume of that name, in any case.

    Raises:
        SpecError: None is known by it.
    """
    known = {volume.name: volume for volume in list_volumes()}
    try:
        return known[name.lower()]
    except KeyError:
        nearest = difflib.get_close_matches(name.lower(), known, n=1)
        raise SpecError(
            f"no volume is known as {name}",
            detail=f"known are {', '.join(known)}",
            hint=f"did you mean {nearest[0]}?" if nearest else "declare its figures, such as read_mb_s, instead",
        ) from None


@functools.cache
def list_volumes() -> tuple[Volume, ...]:
    """All that are known, in the order of the file."""
    text = importlib.resources.files("pgdyno.facts").joinpath("volumes.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Volumes).volume


def ability_of(volume: Volume, size_gib: float, *, iops: float | None = None, mb_s: float | None = None) -> Ability:
    """What a volume of that size can do.

    Args:
        volume: Its kind.
        size_gib: Its size.
        iops: Bought with it; None: what comes with it.
        mb_s: Bought with it, in the provider's megabytes; None: what comes with it.

    Raises:
        ValueError: There is no such volume: too small, too large, or it cannot have so much or so little; the message
            says what.
    """
    if not volume.least_gib <= size_gib <= volume.most_gib:
        raise ValueError(f"{size_gib:,.0f} GiB are not within {volume.least_gib} to {volume.most_gib:,} GiB")
    own_iops, own_mb_s = _own_of(volume, size_gib, iops=iops)
    if iops is not None:
        most = None if volume.bought_iops is None else volume.bought_iops.at(size_gib)
        _check_bought("IOPS", iops, least=own_iops or volume.least_iops or 0.0, most=most)
    elif own_iops is None:
        raise ValueError("it has only the IOPS that are bought, and none are")
    iops = iops or own_iops or 0.0
    if mb_s is not None:
        most = None if volume.bought_mb is None else volume.bought_mb.at(size_gib, iops)
        _check_bought("MB/s", mb_s, least=own_mb_s or 0.0, most=most)
    mb_s = mb_s or own_mb_s
    return Ability(
        read_iops=iops,
        write_iops=iops * volume.write_ratio,
        bytes_per_s=None if mb_s is None else mb_s * volume.megabyte_bytes,
        burst_iops=None if volume.burst_iops is None or volume.burst_iops <= iops else volume.burst_iops,
    )


def price_of(volume: Volume, size_gib: float, *, iops: float | None = None, mb_s: float | None = None) -> float:
    """USD a month of a volume: its size, and what is bought beyond that which comes with it.

    Args:
        volume: Its kind.
        size_gib: Its size.
        iops: Bought with it; None: what comes with it.
        mb_s: Likewise, in the provider's megabytes.

    Raises:
        ValueError: No source says a part of it; the message says which.
    """
    own_iops, own_mb_s = _own_of(volume, size_gib, iops=iops)
    more_iops, more_mb_s = max(0.0, (iops or 0.0) - (own_iops or 0.0)), max(0.0, (mb_s or 0.0) - (own_mb_s or 0.0))
    if volume.priced_iops is not None and more_iops > volume.priced_iops:
        raise ValueError(f"no source says what IOPS cost beyond {volume.priced_iops:,.0f}")
    parts = {
        "a GiB costs": (size_gib, volume.usd_per_gib_month),
        "IOPS cost that are bought": (more_iops, volume.usd_per_iops_month),
        "MB/s cost that are bought": (more_mb_s, volume.usd_per_mb_month),
    }
    total = 0.0
    for what, (amount, usd) in parts.items():
        if amount and usd is None:
            raise ValueError(f"no source says what {what}")
        total += amount * (usd or 0.0)
    return total


def _own_of(volume: Volume, size_gib: float, *, iops: float | None = None) -> tuple[float | None, float | None]:
    """IOPS and MB/s that come with a volume, the latter with the IOPS bought; None where only what is bought is there."""
    own_iops = None if volume.iops is None else volume.iops.at(size_gib)
    return own_iops, None if volume.mb is None else volume.mb.at(size_gib, iops or own_iops or 0.0)


def _check_bought(what: str, asked: float, *, least: float, most: float | None) -> None:
    if most is None:
        raise ValueError(f"{what} cannot be bought for it: they follow from its size, or from its IOPS")
    if asked < least:
        raise ValueError(f"{asked:,.0f} {what} are fewer than the {least:,.0f} that it has at least")
    if asked > most:
        raise ValueError(f"{asked:,.0f} {what} are more than the {most:,.0f} that one of its size can have")

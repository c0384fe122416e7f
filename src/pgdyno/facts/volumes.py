"""What cloud volumes can do: the typed reader of `volumes.toml`.

A volume's figures follow from its size and from what is bought with it; they last, bursts are left out. It knows one
volume: arrays of them, and what an instance lets through, are reckoned in `tune/`. What no source says is None.
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import importlib.resources
from typing import Literal

import msgspec

from pgdyno.errors import SpecError

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
    provider: str | None = None
    iops: Line | None = None
    mb: Line | None = None
    bought_iops: Line | None = None
    bought_mb: Line | None = None
    write_ratio: float = 1.0
    """Of the IOPS, for writes."""
    write_ms: float | None = None
    usd_per_gib_month: float | None = None
    price_date: dt.date | None = None
    price_source: str | None = None


class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """What one volume can do for as long as one likes."""

    read_iops: float
    write_iops: float
    bytes_per_s: float | None
    """None where it is not published."""


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
        ValueError: There is no such volume: too small, too large, or it cannot have that much; the message says what.
    """
    if not volume.least_gib <= size_gib <= volume.most_gib:
        raise ValueError(f"{size_gib:,.0f} GiB are not within {volume.least_gib} to {volume.most_gib:,} GiB")
    if iops is not None:
        _check_bought("IOPS", iops, volume.bought_iops.at(size_gib) if volume.bought_iops else None)
    elif volume.iops is None:
        raise ValueError("it has only the IOPS that are bought, and none are")
    else:
        iops = volume.iops.at(size_gib)
    if mb_s is not None:
        _check_bought("MB/s", mb_s, volume.bought_mb.at(size_gib, iops) if volume.bought_mb else None)
    elif volume.mb is not None:
        mb_s = volume.mb.at(size_gib, iops)
    return Ability(
        read_iops=iops,
        write_iops=iops * volume.write_ratio,
        bytes_per_s=None if mb_s is None else mb_s * volume.megabyte_bytes,
    )


def _check_bought(what: str, asked: float, most: float | None) -> None:
    if most is None:
        raise ValueError(f"{what} cannot be bought for it: they follow from its size")
    if asked > most:
        raise ValueError(f"{asked:,.0f} {what} are more than the {most:,.0f} that one of its size can have")

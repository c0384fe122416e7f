"""What a storage layout allows at most, and what of that binds: values only, which `storage` reckons and reports show.

A ceiling is what lasts; what is given for a while, from credits, stands beside it. Absent is None, with the reason.
"""

from __future__ import annotations

import datetime as dt
import enum

import msgspec


class Limit(enum.Enum):
    """What a ceiling comes from."""

    VOLUME = "volume"
    """One, because there is only one, or because more of them do not help."""
    ARRAY = "array"
    """All of them together."""
    INSTANCE = "instance"
    """What it lets through to all of its network volumes."""
    PATH = "path"
    """The figure that was declared of the whole path."""
    CONTROL_GROUP = "control group"
    """A limit that the kernel was told."""


class CeilingFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a storage path transfers."""

    title: str
    unit: str
    """`1/s` or `bytes/s`."""
    is_write: bool


# What a path transfers, by the name that it has everywhere.
TRANSFERS = {
    "random_read_iops": CeilingFigure(title="random reads", unit="1/s", is_write=False),
    "random_write_iops": CeilingFigure(title="random writes", unit="1/s", is_write=True),
    "read_bytes_per_s": CeilingFigure(title="sequential reads", unit="bytes/s", is_write=False),
    "write_bytes_per_s": CeilingFigure(title="sequential writes", unit="bytes/s", is_write=True),
}


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The most of something."""

    value: float
    """For as long as one likes."""
    unit: str
    """`1/s`, `bytes/s` or `bytes`."""
    binds: Limit
    how: str
    """In a clause."""
    volume_value: float | None = None
    """Of one disk or volume; None where the figure is of the whole path."""
    array_value: float | None = None
    """Of all of them, whatever the instance lets through."""
    instance_value: float | None = None
    """Of ours that the instance lets through, which counts every mirror's write; None where no limit is known."""
    burst_value: float | None = None
    """For a while; None where a burst is no more than what lasts, or none is known."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What volumes cost."""

    usd_per_month: float
    how: str
    date: dt.date | None
    source: str


class InstanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine lets through to all of its network volumes together; None where nothing is known of it."""

    name: str
    iops: float | None = None
    burst_iops: float | None = None
    bytes_per_s: float | None = None
    burst_bytes_per_s: float | None = None


class StorageCeilings(msgspec.Struct, frozen=True, kw_only=True):
    """What a declared layout can do. Of what is None `absent` has the reason, by the field's name."""

    random_read_iops: Ceiling | None
    """Of 8 kB, as is the next."""
    random_write_iops: Ceiling | None
    read_bytes_per_s: Ceiling | None
    write_bytes_per_s: Ceiling | None
    flushes_per_s: Ceiling | None
    """One after the other, each waited for."""
    capacity_bytes: Ceiling | None
    price: Price | None
    """Of the volumes; the instance's is another."""
    absent: dict[str, str]

"""Define what a storage layout allows at most, and which limit binds: the values that `layout_ceiling` computes.

A ceiling is the sustained limit; a higher limit for a while, from credits, is a burst. Absent values are None, with a
reason.
"""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping

import msgspec


class Limit(enum.Enum):
    """The source of a ceiling."""

    VOLUME = "volume"
    """One volume, because there is only one or because more of them do not help."""
    ARRAY = "array"
    """All volumes together."""
    INSTANCE = "instance"
    """What the instance lets through to all of its network volumes."""
    PATH = "path"
    """The declared figure of the whole path."""
    CONTROL_GROUP = "control group"
    """A limit set for a control group."""


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of transfer on a storage path, such as random reads."""

    title: str
    unit: str
    """`1/s` or `bytes/s`."""
    is_write: bool


# The transfers of a path, by their names throughout the package.
TRANSFERS = {
    "random_read_iops": Transfer(title="random reads", unit="1/s", is_write=False),
    "random_write_iops": Transfer(title="random writes", unit="1/s", is_write=True),
    "read_bytes_per_s": Transfer(title="sequential reads", unit="bytes/s", is_write=False),
    "write_bytes_per_s": Transfer(title="sequential writes", unit="bytes/s", is_write=True),
}


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """The upper limit of a transfer, a flush rate or a capacity."""

    value: float
    """The sustained limit."""
    unit: str
    """`1/s`, `bytes/s` or `bytes`."""
    binds: Limit
    how: str
    """Description of the limit, in a clause."""
    volume_value: float | None = None
    """Limit of one disk or volume; None if the figure is for the whole path."""
    array_value: float | None = None
    """Limit of all of them together, without the instance's limit."""
    instance_value: float | None = None
    """Limit of the instance, divided by the writes that mirrors add; None if there is no known limit."""
    burst_value: float | None = None
    """Limit for a while; None if there is no higher burst, or none is known."""
    is_machine_unknown: bool = False
    """True if network volumes are counted, and what the machine lets through to them is not known: it often binds first."""


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of volumes."""

    usd_per_month: float
    how: str
    date: dt.date | None
    source: str


class InstanceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a machine for all of its network volumes together; None where unknown."""

    name: str
    iops: float | None = None
    burst_iops: float | None = None
    bytes_per_s: float | None = None
    burst_bytes_per_s: float | None = None


class StorageCeilings(msgspec.Struct, frozen=True, kw_only=True):
    """The ceilings of a declared layout. For each None, `absent` has the reason, by the field's name."""

    random_read_iops: Ceiling | None
    """Random reads of 8 kB; random writes likewise."""
    random_write_iops: Ceiling | None
    read_bytes_per_s: Ceiling | None
    write_bytes_per_s: Ceiling | None
    flushes_per_s: Ceiling | None
    """Flushes one after the other, each waited for."""
    capacity_bytes: Ceiling | None
    price: Price | None
    """Price of the volumes, without the instance."""
    absent: dict[str, str]

    def with_transfers(self, known: Mapping[str, Ceiling]) -> StorageCeilings:
        """Return the ceilings with these of transfers in place of their own."""
        absent = {name: reason for name, reason in self.absent.items() if name not in known}
        return msgspec.structs.replace(self, absent=absent, **known)

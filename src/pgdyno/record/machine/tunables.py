"""What of a machine and a server can be set, and what of them decides how, as it is now: seen before anything is derived.

Raw values in the kernel's and the server's own units, as everything in this room. Nothing here judges.
"""

from __future__ import annotations

import msgspec

from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import BlockDevice, CgroupLimit, MemoryFacts, ServerLook, Unseen


class Stripe(msgspec.Struct, frozen=True, kw_only=True):
    """How a software RAID or a logical volume spreads data over its disks."""

    level: str
    """As md calls it; a stripe of LVM's is `raid0`."""
    disk_count: int
    chunk_bytes: int | None
    """None for levels that have none."""


class DiskLook(msgspec.Struct, frozen=True, kw_only=True):
    """A file system, and the devices below it from the one that is mounted down to those it is made of."""

    facts: DiskFacts
    devices: tuple[BlockDevice, ...]
    stripes: dict[str, Stripe] = {}
    """By device, of software RAID and LVM."""
    models: dict[str, str] = {}
    """By device, as it calls itself; none for most virtual disks."""
    unseen: tuple[Unseen, ...] = ()
    """How devices spread their data, where that could not be seen."""


class Tunables(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that settings are to be derived for.

    `host` has the limits and CPUs of the server's own control group where a server runs, else of this process's.
    """

    host: HostFacts
    memory: MemoryFacts
    disk: DiskLook
    wal_disk: DiskLook | None
    """None where pg_wal lies with the data."""
    limits: tuple[CgroupLimit, ...]
    page_bytes: int
    sysctls: dict[str, str]
    """By name; those that cannot be read are missing."""


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's server as far as its settings depend on it."""

    look: ServerLook
    set_names: frozenset[str]
    """Of settings that somebody has set: the others are built in, or chosen by the server itself."""
    waiting_names: frozenset[str] = frozenset()
    """Of those whose files say something else than what is in force, which a restart brings."""
    unseen: tuple[Unseen, ...]
    data_bytes: int
    """Of the files of all databases."""
    wal_bytes: int
    """Of the WAL that it keeps now."""

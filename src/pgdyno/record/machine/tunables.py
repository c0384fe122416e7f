"""Hold the current state of a machine and a server that settings are derived from.

Values are raw, in the kernel's and the server's own units. Nothing is judged here.
"""

from __future__ import annotations

import msgspec

from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import BlockDevice, CgroupLimit, MemoryFacts, ServerSnapshot, Unseen


class Stripe(msgspec.Struct, frozen=True, kw_only=True):
    """The striping of a software RAID array or a logical volume over its disks."""

    level: str
    """RAID level by md's name; a striped LVM volume is `raid0`."""
    disk_count: int
    chunk_bytes: int | None
    """None for levels without chunks."""


class StorageStack(msgspec.Struct, frozen=True, kw_only=True):
    """A file system and the devices below it, from the mounted one down to the physical ones."""

    facts: DiskFacts
    devices: tuple[BlockDevice, ...]
    stripes: dict[str, Stripe] = {}
    """Stripes of software RAID and LVM, by device."""
    models: dict[str, str] = {}
    """Model names that devices report, by device; most virtual disks report none."""
    unseen: tuple[Unseen, ...] = ()
    """Devices whose striping could not be observed."""

    def is_apart_from(self, other: StorageStack) -> bool:
        """Return whether the two are known to have no device in common."""
        ours, theirs = ({device.name for device in one.devices} for one in (self, other))
        return bool(ours and theirs) and ours.isdisjoint(theirs)


class Tunables(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that settings are derived for.

    `host` has the limits and CPUs of the server's control group where a server runs, else of this process's.
    """

    host: HostFacts
    memory: MemoryFacts
    disk: StorageStack
    wal_disk: StorageStack | None
    """None where pg_wal shares the data's file system."""
    limits: tuple[CgroupLimit, ...]
    page_bytes: int
    sysctls: dict[str, str]
    """Values of the famous lines by name, without those that cannot be read."""


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """A replication slot for which a server keeps WAL."""

    name: str
    behind_bytes: int
    """WAL that the server has written since the position that the slot keeps it from."""
    is_active: bool
    """True if a standby or a client is connected to it."""
    is_logical: bool = False
    """True if subscribers or other clients decode WAL by it, and no standby streams it."""


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an existing server that its derived settings depend on."""

    look: ServerSnapshot
    set_names: frozenset[str]
    """Settings that were set explicitly; the others are built-in defaults or chosen by the server itself."""
    waiting_names: frozenset[str] = frozenset()
    """Settings whose value in the configuration files differs from the one in force until a restart."""
    unseen: tuple[Unseen, ...]
    data_bytes: int
    """Size of the files of all databases."""
    wal_bytes: int
    """Size of the WAL that the server currently keeps."""
    slots: tuple[SlotState, ...] = ()
    """Its replication slots, those that have lost their WAL left out; none of a server that did not answer."""

"""Define the input of the preflight rules: the machine, its state, and what is to be measured on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pgdyno.explain.finding import Finding
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import BlockDevice, PreflightFacts


class IntendedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load that will be run."""

    name: str
    clients: int
    scale: int | None
    """None if it is unknown."""
    is_writing_branches: bool
    """True if each transaction updates one of `scale` rows, as the built-in tpcb-like does."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured, as far as the rules need it."""

    horizon_s: float
    """Expected duration of the measurement."""
    loads: tuple[IntendedLoad, ...] = ()
    live_clients: int = 0
    """Clients of all loads that are up at once, each with a server of its own; 0 where one load runs at a time."""
    dataset_bytes: int | None = None
    """Size of the largest data that it loads; None if it uses existing data."""


class ServerFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A file system that a server writes to."""

    content: str
    """`data` or `WAL`."""
    disk: DiskFacts
    devices: tuple[BlockDevice, ...]
    """Devices below it, without those already listed for another folder."""
    inodes_free_ratio: float | None = None
    """Free inodes of the file system; None where their number is not fixed, or not known."""
    variants: tuple[str, ...] = ()
    """The variants that write there; empty for the folders of the reference."""

    @property
    def named(self) -> str:
        """Its content, with its variants."""
        if not self.variants:
            return self.content
        return f"{self.content} of variant{'s' if len(self.variants) > 1 else ''} {', '.join(self.variants)}"

    @property
    def lies(self) -> str:
        """Its content with the verb."""
        return f"The {self.named} {'lie' if self.content == 'data' else 'lies'}"


class RuleInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a rule may look at."""

    host: HostFacts
    facts: PreflightFacts
    intent: Intent

    @property
    def most_clients(self) -> int:
        """The largest number of clients of all loads; 0 without a load."""
        return max((load.clients for load in self.intent.loads), default=0)

    @property
    def clients_at_once(self) -> int:
        """The largest number of clients on this machine at once; 0 without a load."""
        return max(self.most_clients, self.intent.live_clients)

    @property
    def folders(self) -> tuple[ServerFolder, ...]:
        """The folder of the data, that of the WAL if it has a file system of its own, and those of variants."""
        facts, disk, wal = self.facts, self.host.data_disk, self.facts.wal
        data = ServerFolder(content="data", disk=disk, devices=facts.devices, inodes_free_ratio=facts.inodes_free_ratio)
        folders = [data] if disk.is_known else []
        if wal is not None and _is_elsewhere(wal, disk):
            folders.append(ServerFolder(content="WAL", disk=wal, devices=facts.wal_devices))
        folders += [ServerFolder(**msgspec.structs.asdict(one)) for one in facts.further]
        shared: set[str] = set()
        listed = []
        for folder in folders:
            own = tuple(device for device in folder.devices if device.name not in shared)
            listed.append(msgspec.structs.replace(folder, devices=own))
            shared |= {device.name for device in own}
        return tuple(listed)

    @property
    def device_names(self) -> frozenset[str]:
        """Names of all devices of data and WAL, also of variants."""
        return frozenset(
            {device.name for device in self.facts.all_devices}
            | {disk.block_device for disk, _ in self._list_disks() if disk.block_device}
        )

    @property
    def knows_all_devices(self) -> bool:
        """Whether the device of each disk of data and WAL is known, also of variants; what lies in memory has none."""
        return all(disk.is_in_memory or disk.block_device or devices for disk, devices in self._list_disks())

    def _list_disks(self) -> Iterator[tuple[DiskFacts, tuple[BlockDevice, ...]]]:
        yield self.host.data_disk, self.facts.devices
        if self.facts.wal is not None:
            yield self.facts.wal, self.facts.wal_devices
        yield from ((one.disk, one.devices) for one in self.facts.further)


def _is_elsewhere(wal: DiskFacts, data: DiskFacts) -> bool:
    if (wal.filesystem, wal.size_bytes) != (data.filesystem, data.size_bytes):
        return True
    # Older records have neither device nor options of the WAL's file system.
    return bool(wal.device) and (wal.device, wal.mount_options) != (data.device, data.mount_options)


Rule = Callable[[RuleInput], Iterator[Finding]]

"""What settings are derived from, and what a derived setting is: a value that can say why it is so.

Values only. What is not known of a machine is assumed by its class, and said to be: nothing here hides where a figure
came from.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.facts.gucs import ChangeCost
from pgdyno.units import PAGE_BYTES


class Origin(enum.Enum):
    """Where a figure came from; each member yields to the one before it.

    But what the user says of the load stands before what the server has now: it may be about tomorrow.
    """

    MEASURED = "measured"
    """Read from the machine or the server, or measured on them."""
    DECLARED = "declared"
    """By the user, or by the data sheet of an instance or volume."""
    ASSUMED = "assumed"
    """By the class that the machine or workload belongs to."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that settings are derived from."""

    name: str
    """As a person calls it, such as `memory` or `flush latency`."""
    value: float
    unit: str
    """`bytes`, `s`, `count`, `1/s`, `bytes/s`."""
    origin: Origin
    how: str
    """In a clause: `/proc/meminfo, below the container's limit`."""

    @classmethod
    def measured(cls, name: str, value: float, unit: str, how: str) -> Known:
        """A figure that was read or measured."""
        return cls(name=name, value=value, unit=unit, origin=Origin.MEASURED, how=how)

    @classmethod
    def declared(cls, name: str, value: float, unit: str, how: str) -> Known:
        """A figure that the user or a data sheet says."""
        return cls(name=name, value=value, unit=unit, origin=Origin.DECLARED, how=how)

    @classmethod
    def assumed(cls, name: str, value: float, unit: str, how: str) -> Known:
        """A figure that nobody says."""
        return cls(name=name, value=value, unit=unit, origin=Origin.ASSUMED, how=how)


class WorkloadClass(enum.Enum):
    """What the server mostly does."""

    OLTP_WRITE = "oltp-write"
    OLTP_READ = "oltp-read"
    MIXED = "mixed"
    ANALYTIC = "analytic"


class DiskKind(enum.Enum):
    """What a path lies on, as far as it changes what is derived."""

    LOCAL_SSD = "local-ssd"
    NETWORK_SSD = "network-ssd"
    HDD = "hdd"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A block device, as the kernel runs it now."""

    name: str
    kind: str
    """`disk`, `raid`, `lvm`, `crypt`, `mapper` or `loop`."""
    scheduler: str | None
    schedulers: tuple[str, ...]
    read_ahead_kb: int | None
    chunk_kb: int | None = None
    """Of a striped array."""
    data_disks: int = 1
    """Disks that a full stripe spans."""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """What a storage path can do."""

    path: str
    """Empty for a machine that one does not have."""
    kind: DiskKind
    flush_s: Known
    """Of one 8 kB write and its flush, nothing else waiting."""
    random_read_iops: Known
    random_write_iops: Known
    read_bytes_per_s: Known
    write_bytes_per_s: Known
    """Of large sequential writes."""
    free_bytes: Known
    read_s: Known | None = None
    """Of one random read that waits for no other; None where nobody measured it."""
    filesystem: str | None = None
    card: str = ""
    """What measured its figures, such as `disk card of 2026-11-21, FILE`; empty where nothing did."""
    devices: tuple[Device, ...] = ()
    """From the one that is mounted down to those it is made of; of a machine that one does not have at most its array."""

    @property
    def random_to_sequential(self) -> float:
        """How many times longer a page takes when it is read anywhere than in a row; 1 where that is no dearer."""
        return max(1.0, self.read_bytes_per_s.value / PAGE_BYTES / self.random_read_iops.value)


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """What of the kernel changes what is derived."""

    page_bytes: int = 4096
    huge_page_bytes: int = 2 * 1024 * 1024
    swap_bytes: int = 0
    numa_nodes: int = 1
    is_container: bool = False
    """Whether the memory and CPUs are a control group's share of a larger machine."""
    is_left: bool = False
    """Whether the user wants nothing of it changed."""
    transparent_huge_pages: str | None = None
    available_bytes: int | None = None
    """Memory that nobody uses now; None where it cannot be seen, and where the server uses some of it already."""
    committed_bytes: int | None = None
    """Memory that all processes have been promised (Committed_AS); None where it cannot be seen."""
    others_huge_pages: int = 0
    """That other programs have, or have reserved."""
    sysctls: dict[str, str] = {}
    """As they are now, by name; those that cannot be seen are missing."""

    @property
    def is_given(self) -> bool:
        """Whether nothing of it can be changed, so that the server has to do with what it is."""
        return self.is_container or self.is_left


class TuningSubject(msgspec.Struct, frozen=True, kw_only=True):
    """What settings are derived for."""

    major: int
    missing_values: dict[str, tuple[str, ...]] = {}
    """Values of enum settings that this build does not take, such as lz4 of wal_compression."""
    lacking: frozenset[str] = frozenset()
    """Settings that a version of this kind should have, and that this server's program does not."""
    settings: dict[str, str] = {}
    """What somebody has set on the server already, as pg_settings.setting has it; what is missing is built in."""
    workload: WorkloadClass
    cpus: Known
    memory: Known
    connections: Known
    """The most sessions at once."""
    active: Known
    """Of these, at work at once."""
    dataset: Known
    disk: Disk
    wal_disk: Disk | None = None
    """None where pg_wal lies with the data."""
    kernel: Kernel
    wal_bytes_per_s: Known | None = None
    """Under the load that is tuned for; None where none was measured."""
    recovery_s: Known
    """The longest that recovery after a crash may take."""
    stall_s: Known
    """The longest that the kernel's writing back may hold up a flush."""
    clock_read_s: Known | None = None
    """Of one reading of the clock, as pg_test_timing measures it; None where nobody did."""


class Target(enum.Enum):
    """What a setting belongs to."""

    POSTGRESQL = "postgresql"
    SYSCTL = "sysctl"
    SYSFS = "sysfs"
    """`name` is the path below /sys."""
    STORAGE = "storage"
    """Advice for who makes the volumes: nothing applies it."""
    LIMIT = "limit"
    """Of the service or the session that starts the server."""


class Layer(enum.Enum):
    """What a setting acts on; layers are kept or dropped as a whole when it is asked which of them pays."""

    MEMORY = "memory"
    WAL = "WAL and checkpoints"
    BACKGROUND_WRITER = "background writer"
    IO = "I/O"
    PLANNER = "planner"
    PARALLEL = "parallelism"
    AUTOVACUUM = "autovacuum"
    CONNECTIONS = "connections"
    LOGGING = "logging"
    KERNEL = "kernel"
    STORAGE = "storage"
    OTHER = "others"
    """What the user insists on and nothing is derived for."""


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A setting with its reasons."""

    name: str
    value: str
    """As the server or the kernel would be given it, such as `4GB` or `on`."""
    target: Target
    layer: Layer
    reason: str
    """One sentence, without the name in front."""
    formula: str
    """What was computed, in words and names of inputs; empty where nothing was."""
    inputs: tuple[Known, ...]
    source: str
    change: ChangeCost | None
    """What it takes to be in force; None for advice."""
    trades: str
    """What it costs; empty where nothing."""


class MemoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the sum of memory in the worst case."""

    what: str
    bytes: float
    how: str


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """Something that follows from the settings, with how: recovery time, the longest stall, the WAL that is kept."""

    what: str
    value: float
    unit: str
    how: str


class DerivedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A complete set: each value that differs from the server's default or is worth a word."""

    subject: TuningSubject
    settings: tuple[Derived, ...]
    memory: tuple[MemoryShare, ...]
    estimates: tuple[Estimated, ...]
    what_ifs: tuple[Derived, ...]
    """What would be faster and gives up durability: never part of the set; `trades` is what it gives up."""
    notes: tuple[str, ...]
    """What could not be derived, or rests on an assumption that is worth measuring."""

    def of(self, target: Target) -> tuple[Derived, ...]:
        """Those that belong to it."""
        return tuple(setting for setting in self.settings if setting.target is target)

    def values_of(self, target: Target) -> dict[str, str]:
        """Their values, by name."""
        return {setting.name: setting.value for setting in self.of(target)}

"""Define the inputs of the derivation, and derived settings: values with their reasons.

Every figure keeps its origin. Unknown properties of a machine are assumed by class, and marked as assumed.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.facts.gucs import ChangeCost
from pgdyno.record.machine.tunables import SlotState
from pgdyno.spec.initdb import DEFAULT_SEGMENT_MB
from pgdyno.spec.pooler import PoolMode
from pgdyno.units import PAGE_BYTES

DEFAULT_SEGMENT_BYTES = DEFAULT_SEGMENT_MB * 1024**2
"""Size of a WAL segment unless initdb was told otherwise."""


class Origin(enum.Enum):
    """Origin of a figure; each member takes precedence over the next.

    As an exception, the user's hints about the load take precedence over the server's current state.
    """

    MEASURED = "measured"
    """Read from the machine or the server, or measured on them."""
    DECLARED = "declared"
    """Declared by the user, or by the data sheet of an instance or volume."""
    ASSUMED = "assumed"
    """Assumed from the class of the machine or workload."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that settings are derived from."""

    name: str
    """Readable name, such as `memory` or `flush latency`."""
    value: float
    unit: str
    """Unit: `bytes`, `s`, `count`, `1/s` or `bytes/s`."""
    origin: Origin
    how: str
    """Origin of the figure, in a clause: `/proc/meminfo, below the container's limit`."""

    @classmethod
    def measured(cls, name: str, value: float, unit: str, how: str) -> Known:
        """Make a figure that was read or measured."""
        return cls(name=name, value=value, unit=unit, origin=Origin.MEASURED, how=how)

    @classmethod
    def declared(cls, name: str, value: float, unit: str, how: str) -> Known:
        """Make a figure that the user or a data sheet declares."""
        return cls(name=name, value=value, unit=unit, origin=Origin.DECLARED, how=how)

    @classmethod
    def assumed(cls, name: str, value: float, unit: str, how: str) -> Known:
        """Make an assumed figure."""
        return cls(name=name, value=value, unit=unit, origin=Origin.ASSUMED, how=how)


class WorkloadClass(enum.Enum):
    """The main use of the server."""

    OLTP_WRITE = "oltp-write"
    OLTP_READ = "oltp-read"
    MIXED = "mixed"
    ANALYTIC = "analytic"

    @property
    def has_long_queries(self) -> bool:
        """True if some of its queries sort and join much, and run for long."""
        return self in {WorkloadClass.MIXED, WorkloadClass.ANALYTIC}


class DiskKind(enum.Enum):
    """The kinds of disks that the rules distinguish."""

    LOCAL_SSD = "local-ssd"
    NETWORK_SSD = "network-ssd"
    HDD = "hdd"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A block device with its current kernel settings."""

    name: str
    kind: str
    """`disk`, `raid`, `lvm`, `crypt`, `mapper` or `loop`."""
    scheduler: str | None
    schedulers: tuple[str, ...]
    read_ahead_kb: int | None
    chunk_kb: int | None = None
    """Chunk size of a striped array."""
    data_disks: int = 1
    """Disks that a full stripe spans."""


class WriteRate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate at which a disk writes."""

    bytes_per_s: float
    known: Known
    """The figure that it follows from."""
    words: str
    """How it follows, for a formula."""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The performance of a storage path."""

    path: str
    """Path; empty for a declared machine."""
    kind: DiskKind
    flush_s: Known
    """Time of one 8 kB write with its flush, without queueing."""
    random_read_iops: Known
    random_write_iops: Known
    read_bytes_per_s: Known
    write_bytes_per_s: Known
    """Throughput of large sequential writes."""
    free_bytes: Known
    read_s: Known | None = None
    """Time of one random read without queueing; None if not measured."""
    filesystem: str | None = None
    card: str = ""
    """Source of measured figures, such as `disk card of 2026-11-21, FILE`; empty if not measured."""
    devices: tuple[Device, ...] = ()
    """Devices from the mounted one down to the physical ones; of a declared machine only its array."""

    @property
    def random_to_sequential(self) -> float:
        """Ratio of the time of a random read of a page to that of a sequential one; at least 1."""
        return max(1.0, self.read_bytes_per_s.value / PAGE_BYTES / self.random_read_iops.value)

    @property
    def scattered(self) -> WriteRate:
        """Rate of pages that lie all over it, each a write of its own."""
        return WriteRate(
            bytes_per_s=min(self.write_bytes_per_s.value, self.random_write_iops.value * PAGE_BYTES),
            known=self.random_write_iops,
            words="random write IOPS × 8 kB",
        )

    @property
    def writeback(self) -> WriteRate:
        """Rate at which the kernel writes changed pages back. These lie all over a disk: on one that spins, each costs a seek."""
        if self.kind is DiskKind.HDD:
            return self.scattered
        return WriteRate(
            bytes_per_s=self.write_bytes_per_s.value, known=self.write_bytes_per_s, words="sequential write bandwidth"
        )


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of the kernel that the rules use."""

    page_bytes: int = 4096
    huge_page_bytes: int = 2 * 1024 * 1024
    may_have_large_pages: bool = False
    """True if the size of its pages was not seen and may be 64 kB, as of some kernels for arm64, whose huge pages have 512 MB."""
    swap_bytes: int = 0
    numa_nodes: int = 1
    is_container: bool = False
    """True if a control group limits memory and CPUs to a share of a larger machine."""
    is_left: bool = False
    """True if the user wants no kernel settings changed."""
    transparent_huge_pages: str | None = None
    available_bytes: int | None = None
    """Memory that is available now; None if unknown, or if the server already uses some of it."""
    committed_bytes: int | None = None
    """Memory committed to all processes (Committed_AS); None if unknown."""
    others_huge_pages: int = 0
    """Huge pages that other programs use or have reserved."""
    sysctls: dict[str, str] = {}
    """Current values by name, without those that cannot be read."""

    @property
    def others_huge_bytes(self) -> int:
        """Memory in the huge pages of other programs; a container's own memory has none of the machine's."""
        return 0 if self.is_container else self.others_huge_pages * self.huge_page_bytes

    @property
    def is_unchangeable(self) -> bool:
        """True if kernel settings cannot be changed, so that the server must use them as they are."""
        return self.is_container or self.is_left


class MeasuredKnee(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest number of sessions at work with 90 % of the highest TPS, as a sweep over clients or pool sizes found it."""

    clients: float
    """Clients at the server itself, or connections of a pool."""
    low: float | None
    """Ends of its interval; None where the sweep left them open."""
    high: float | None
    cpu_count: float | None
    """CPUs of the machine that it was found on; None if that was not seen."""
    how: str
    """Where it is from, in a clause."""
    is_beyond: bool = False
    """True if TPS still grew at these clients, the most that were tried: the knee lies there or beyond."""
    is_of_pool: bool = False
    """True if it was found by sweeping the size of a pool, and not the number of clients at the server itself."""

    @property
    def unit(self) -> str:
        """What is counted."""
        return "connection" if self.is_of_pool else "client"


class Pooling(msgspec.Struct, frozen=True, kw_only=True):
    """A connection pooler in front of the server."""

    mode: PoolMode
    clients: Known
    """Number of clients that connect to it."""
    size: Known | None = None
    """Server connections of its pool; None as long as they are not chosen."""
    knee: MeasuredKnee | None = None
    no_knee_reason: str = ""
    """Why a record that was named has no knee; empty without such a record."""
    version: tuple[int, int] | None = None
    """Version of PgBouncer; None if it is not known."""


class TuningSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, server and load that settings are derived for."""

    major: int
    missing_values: dict[str, tuple[str, ...]] = {}
    """Values of enum settings that this build lacks, such as lz4 of wal_compression."""
    lacking: frozenset[str] = frozenset()
    """Settings that this version should have and that this server's program lacks."""
    settings: dict[str, str] = {}
    """Settings already set on the server, as in pg_settings.setting; the others have built-in defaults."""
    workload: WorkloadClass
    cpus: Known
    memory: Known
    connections: Known
    """Maximum number of concurrent sessions; behind a pooler, the connections of its pool."""
    active: Known
    """Number of sessions that are active at once."""
    dataset: Known
    held_bytes: float = 0.0
    """Data that lie on the disk already, so that its free space is without them."""
    to_come_bytes: float | None = None
    """What is still to come to the disk of pg_wal beside the WAL, where that is known; None if it is the data that are not held."""
    disk: Disk
    wal_disk: Disk | None = None
    """Disk of pg_wal; None if it shares the data's disk."""
    wal_segment_bytes: int = DEFAULT_SEGMENT_BYTES
    """Size of a WAL segment, which initdb decides; the server refuses a max_wal_size or min_wal_size below two."""
    kernel: Kernel
    wal_bytes_per_s: Known | None = None
    """WAL rate under the load; None if not measured."""
    wal_compression: str = "off"
    """The wal_compression under which that rate was measured."""
    recovery_s: Known
    """Longest allowed recovery after a crash."""
    stall_s: Known
    """Longest allowed delay of a flush by the kernel's writeback."""
    clock_read_s: Known | None = None
    """Time of one clock reading, from pg_test_timing; None if not measured."""
    remarks: tuple[str, ...] = ()
    """What is doubtful about a declared machine, each in a sentence."""
    standbys: Known | None = None
    """Number of standbys that stream from the server; None if there are none."""
    pooling: Pooling | None = None
    slots: tuple[SlotState, ...] = ()
    """The server's replication slots, as far as they were seen."""

    @property
    def is_here(self) -> bool:
        """Whether the machine was seen, and not only declared."""
        return bool(self.disk.path)


class Target(enum.Enum):
    """Kind of object that a setting belongs to."""

    POSTGRESQL = "postgresql"
    SYSCTL = "sysctl"
    SYSFS = "sysfs"
    """A file whose path below /sys is `name`."""
    STORAGE = "storage"
    """Advice for creating volumes, which pgdyno does not apply."""
    LIMIT = "limit"
    """A limit of the service or session that starts the server."""
    POOLER = "pgbouncer"
    """A setting of PgBouncer's, which pgdyno does not apply."""


class Layer(enum.Enum):
    """A group of settings by what they act on; `bench` can test the benefit of each layer as a whole."""

    MEMORY = "memory"
    WAL = "WAL and checkpoints"
    BACKGROUND_WRITER = "background writer"
    IO = "I/O"
    PLANNER = "planner"
    PARALLEL = "parallelism"
    AUTOVACUUM = "autovacuum"
    CONNECTIONS = "connections"
    REPLICATION = "replication"
    POOLER = "pooler"
    LOGGING = "logging"
    KERNEL = "kernel"
    STORAGE = "storage"
    OTHER = "others"
    """Settings that the user fixed and that no rule derives."""


class Derived(msgspec.Struct, frozen=True, kw_only=True):
    """A derived setting with its reasons."""

    name: str
    value: str
    """Value for the server or the kernel, such as `4GB` or `on`."""
    target: Target
    layer: Layer
    reason: str
    """Reason in one sentence, without the name at the beginning."""
    formula: str
    """Formula in words and names of inputs; empty if nothing was computed."""
    inputs: tuple[Known, ...]
    source: str
    change: ChangeCost | None
    """Cost of the change; None for advice."""
    trades: str
    """Disadvantage of the setting; empty if none."""


class MemoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the worst-case memory."""

    what: str
    bytes: float
    how: str


class Estimated(msgspec.Struct, frozen=True, kw_only=True):
    """An estimated consequence of the settings: recovery time, longest stall, WAL that is kept."""

    what: str
    value: float
    unit: str
    how: str


class DerivedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A complete set of derived settings: those that differ from the server's defaults, or are worth mentioning."""

    subject: TuningSubject
    settings: tuple[Derived, ...]
    memory: tuple[MemoryShare, ...]
    estimates: tuple[Estimated, ...]
    what_ifs: tuple[Derived, ...]
    """Settings that would be faster but give up durability: never part of the set; `trades` is the loss."""
    notes: tuple[str, ...]
    """Settings that could not be derived, and assumptions that are worth measuring."""

    def of(self, target: Target) -> tuple[Derived, ...]:
        """Return the settings for a target."""
        return tuple(setting for setting in self.settings if setting.target is target)

    def values_of(self, target: Target) -> dict[str, str]:
        """Return the values of the settings for a target, by name."""
        return {setting.name: setting.value for setting in self.of(target)}

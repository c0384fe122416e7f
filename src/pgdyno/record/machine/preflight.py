"""Hold the preflight facts: the state of machine and server just before a load.

Lasting properties of the machine are in `HostFacts`. Values are raw, in the kernel's and the server's own units. What
could not be observed is in `unseen`, with the reason; any other field that is None or empty means that the machine has
no such thing. Nothing is judged here. Command lines of other processes are not kept, because they may contain
passwords.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.record.described_settings import SettingsSaid
from pgdyno.record.machine.disk_facts import DiskFacts


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be observed, with the reason."""

    what: str
    reason: str


class BusyProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that used CPU time during the observation."""

    pid: int
    name: str
    user: str | None
    cpu_count: float
    """Mean number of CPUs that it used."""
    is_kernel: bool = False
    """True if it is a kernel thread."""


class DiskActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of a device during the observation."""

    device: str
    busy_ratio: float
    read_bytes_per_s: float
    written_bytes_per_s: float


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of all programs except pgdyno during a short observation."""

    window_s: float
    cpu_count: int
    busy_ratio: float
    """Share of all CPUs that other programs used."""
    steal_ratio: float
    """Share of all CPUs that the hypervisor took away."""
    busiest: tuple[BusyProcess, ...]
    disks: tuple[DiskActivity, ...]
    swapped_in_pages: int | None
    swapped_out_pages: int | None
    throttled_count: int | None
    """Thermal throttling events of all CPUs during the observation."""


class ClockFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's clock source and the cost of reading it."""

    source: str | None
    available: tuple[str, ...]
    read_ns: float | None
    """Mean reported by pg_test_timing, without the time in which it had no CPU."""
    steal_ratio: float | None
    """Of the CPU time asked for, the share that the hypervisor took away while pg_test_timing kept one CPU busy; None if it did
    not run now. In older records of the time of all CPUs, idle ones too."""
    is_read_ns_kept: bool = False
    """True if pg_test_timing ran for an earlier command since the machine was started."""


class CpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and state of the CPUs."""

    online_count: int | None
    governors: tuple[str, ...]
    """Distinct frequency governors of all CPUs, sorted."""
    frequency_driver: str | None
    is_boosting: bool | None
    """True if frequencies above the base frequency are allowed; None where the kernel does not report it."""
    is_virtual: bool
    mitigations: tuple[str, ...]
    """Active CPU mitigations, as `name: what is done`."""
    steal_since_boot_ratio: float | None
    product: str | None
    """Product name that the machine reports, such as `t3.large`."""


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Current state of the memory."""

    available_bytes: int | None
    """Memory that programs could get without swapping, with what the cache of ZFS would give back."""
    dirty_bytes: int
    """Dirty pages and pages under writeback."""
    swap_used_bytes: int
    huge_page_bytes: int
    huge_pages_free: int
    """Huge pages neither used nor reserved."""
    huge_pages_total: int
    commit_limit_bytes: int
    committed_bytes: int
    overcommit_memory: int | None
    zone_reclaim_mode: int | None
    numa_nodes: int
    numa_balancing: int | None
    shm_size_bytes: int | None
    """Size limit of /dev/shm; None without a limit."""
    huge_pages_overcommit: int | None = None
    """Huge pages that the kernel adds to the pool on demand (vm.nr_overcommit_hugepages)."""


class RaidArray(msgspec.Struct, frozen=True, kw_only=True):
    """A Linux software RAID array."""

    name: str
    level: str
    action: str
    """`idle`, `frozen`, or its current operation: check, repair, resync, recover, reshape."""
    done_ratio: float | None
    missing_count: int
    """Number of missing disks."""
    devices: tuple[str, ...] = ()
    """The array and all devices that it is made of; empty in older records."""


class BlockDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A block device below a folder: the mounted device, or a device that it is made of."""

    name: str
    kind: str
    """`disk`, `raid`, `lvm`, `crypt`, `mapper` or `loop`."""
    is_rotational: bool | None
    scheduler: str | None
    schedulers: tuple[str, ...]
    """Schedulers that the kernel offers."""
    read_ahead_kb: int | None
    title: str | None = None
    """Name in device-mapper, such as `vg0-data`; None for other devices."""
    below: tuple[str, ...] = ()
    """Names of the whole devices that it is made of."""
    size_bytes: int | None = None


class LimitKind(enum.Enum):
    """Resource that a control group limits."""

    CPU = "cpu"
    MEMORY = "memory"
    MEMORY_HIGH = "memory, throttled above"
    READ_BYTES = "read bandwidth"
    WRITE_BYTES = "write bandwidth"
    READ_COUNT = "read operations"
    WRITE_COUNT = "write operations"
    TASKS = "processes and threads"


class CgroupLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that is set by pgdyno's control group or by one above it."""

    kind: LimitKind
    group: str
    """Path of the control group from the root of its hierarchy."""
    value: float
    """CPUs, bytes, bytes or operations per second, or processes."""
    device: str | None = None
    """Device of an I/O limit, by kernel name or by major and minor numbers."""


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled job that starts within a day."""

    name: str
    """Name of the timer, or file and line of the crontab."""
    job: str
    """Service or program that it starts."""
    due_s: float


LAZY_INIT = "ext4lazyinit"
"""The kernel's thread that writes the tables of inodes of new ext4 file systems, and is gone when they are written."""


class LoadProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A running load generator, such as pgbench or fio."""

    pid: int
    name: str


class OtherServer(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL server that runs on this machine."""

    pid: int
    data_dir: str | None
    """None where this account has no permission to see it."""
    cpu_count: float | None
    """CPUs that its processes used during the observation."""
    is_of_pgdyno: bool = False
    """Whether a pgdyno has started it, to measure it."""


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Soft limits of this process, which its children inherit; None means unlimited."""

    open_files: int | None
    processes: int | None


class ServerOrigin(enum.Enum):
    """Origin of a server's settings."""

    PLANNED = "planned"
    """Pgdyno will start the server: the requested settings, and built-in defaults for the rest."""
    FILES = "files"
    """The server is not running: the settings that its programs read from its configuration files."""
    RUNNING = "running"
    """The running server reported them."""


class ServerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of the server that is to be measured, as far as it can be observed without starting it."""

    origin: ServerOrigin
    major: int
    data_dir: str | None = None
    settings: dict[str, str] = {}
    """Settings by name, as in pg_settings.setting; for PLANNED the requested settings, with the count of huge pages."""
    file_errors: tuple[str, ...] = ()
    """Errors in its configuration files that prevent a start, each with its location and the server's message."""
    waiting: dict[str, str] = {}
    """Settings that shape the shared memory and have another value at the next start, with that value."""
    planned_pool: int | None = None
    """The vm.nr_hugepages that pgdyno sets before it starts the server; None if it leaves that as it is."""
    is_in_recovery: bool | None = None
    active_sessions: int | None = None
    """Client sessions that are not idle, without pgdyno's own."""
    huge_pages_bytes: int | None = None
    """Huge pages that its postmaster has mapped."""
    has_assertions: bool | None = None
    """True if it was built with assertions (--enable-cassert)."""
    data_bytes: int | None = None
    """Size of all its databases."""
    branches: dict[str, int] = {}
    """Approximate rows of pgbench_branches by database, for databases that have that table; empty if not requested."""
    port: int | None = None
    """Port at which it listens now."""
    client_port: int | None = None
    """Value of PGPORT, which clients use; None where it is not set."""
    settings_said: SettingsSaid | None = None
    """As in `ServerFacts`."""


class FurtherDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk on which variants have their data or their WAL, other than those of the reference."""

    variants: tuple[str, ...]
    content: str
    """`data` or `WAL`."""
    disk: DiskFacts
    devices: tuple[BlockDevice, ...] = ()
    """Devices below it."""
    inodes_free_ratio: float | None = None
    """Free inodes of its file system; None where their number is not fixed."""


class PreflightFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a preflight observed. A field at its default was not observed, or there is no such thing."""

    took_s: float | None = None
    activity: Activity | None = None
    clock: ClockFacts | None = None
    cpu: CpuFacts | None = None
    memory: MemoryFacts | None = None
    arrays: tuple[RaidArray, ...] = ()
    devices: tuple[BlockDevice, ...] = ()
    """Devices below the data directory."""
    wal: DiskFacts | None = None
    """File system of pg_wal."""
    wal_devices: tuple[BlockDevice, ...] = ()
    """Devices below pg_wal; the same as `devices` where it shares the data's file system."""
    inodes_free_ratio: float | None = None
    """Free inodes of the data's file system; None where their number is not fixed."""
    further: tuple[FurtherDisk, ...] = ()
    """The disks of variants that have places of their own."""
    home_holder_pid: int | None = None
    """Process ID of another pgdyno that uses the home; 0 where it cannot be determined."""
    limits: tuple[CgroupLimit, ...] = ()
    process_limits: ProcessLimits | None = None
    timers: tuple[Timer, ...] = ()
    load_programs: tuple[LoadProgram, ...] = ()
    servers: tuple[OtherServer, ...] = ()
    is_on_battery: bool | None = None
    """None where the machine has no battery."""
    server: ServerSnapshot | None = None
    unseen: tuple[Unseen, ...] = ()

    @property
    def all_devices(self) -> tuple[BlockDevice, ...]:
        """All devices below data and WAL, also of variants."""
        return (*self.devices, *self.wal_devices, *(device for one in self.further for device in one.devices))

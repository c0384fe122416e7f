"""What was looked up before a load: the state of machine and server that passes, beside `HostFacts`, which stays.

Raw values in the kernel's and the server's own units. What could not be seen is in `unseen`, with the reason; a field
that is None or empty otherwise means that the machine has no such thing. Nothing here judges, and no command line of
somebody else's process is kept: those may hold passwords.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.record.described_settings import SettingsSaid
from pgdyno.record.machine.disk_facts import DiskFacts


class Unseen(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be looked at, with the reason."""

    what: str
    reason: str


class BusyProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that used CPU while it was looked at."""

    pid: int
    name: str
    user: str | None
    cpu_count: float
    """How many CPUs it used."""
    is_kernel: bool = False
    """Whether it is a thread of the kernel's own."""


class DiskActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What a device did while it was looked at."""

    device: str
    busy_ratio: float
    read_bytes_per_s: float
    written_bytes_per_s: float


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What everything but pgdyno did during a short look."""

    window_s: float
    cpu_count: int
    busy_ratio: float
    """Share of all CPUs that others used."""
    steal_ratio: float
    """Share of all CPUs that the hypervisor took away."""
    busiest: tuple[BusyProcess, ...]
    disks: tuple[DiskActivity, ...]
    swapped_in_pages: int | None
    swapped_out_pages: int | None
    throttled_count: int | None
    """Thermal throttling events of all CPUs since boot that came during the look."""


class ClockFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's clock source and what reading it costs."""

    source: str | None
    available: tuple[str, ...]
    read_ns: float | None
    """Mean of pg_test_timing, less the time in which it did not have its CPU."""
    steal_ratio: float | None
    """Share of CPU time that the hypervisor took away over the whole look, while pg_test_timing kept one CPU busy."""


class CpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How the CPUs are run."""

    online_count: int | None
    governors: tuple[str, ...]
    """Distinct ones of all CPUs, sorted."""
    frequency_driver: str | None
    is_boosting: bool | None
    """Whether frequencies above the base one are allowed; None where the kernel does not tell."""
    is_virtual: bool
    mitigations: tuple[str, ...]
    """`name: what is done`, only those that are in force."""
    steal_since_boot_ratio: float | None
    product: str | None
    """The machine's own name for its kind, such as `t3.large`."""


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Memory as it is now."""

    available_bytes: int | None
    dirty_bytes: int
    """Dirty and under writeback."""
    swap_used_bytes: int
    huge_page_bytes: int
    huge_pages_free: int
    """Neither used nor reserved."""
    huge_pages_total: int
    commit_limit_bytes: int
    committed_bytes: int
    overcommit_memory: int | None
    zone_reclaim_mode: int | None
    numa_nodes: int
    numa_balancing: int | None
    shm_size_bytes: int | None
    """What /dev/shm was limited to; None where it was not."""


class RaidArray(msgspec.Struct, frozen=True, kw_only=True):
    """A Linux software RAID array."""

    name: str
    level: str
    action: str
    """`idle`, `frozen`, or what it does: check, repair, resync, recover, reshape."""
    done_ratio: float | None
    missing_count: int
    """Disks it lacks."""


class BlockDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A block device below a folder: the one mounted and all it is made of."""

    name: str
    kind: str
    """`disk`, `raid`, `lvm`, `crypt`, `mapper` or `loop`."""
    is_rotational: bool | None
    scheduler: str | None
    schedulers: tuple[str, ...]
    """Those that the kernel offers."""
    read_ahead_kb: int | None
    title: str | None = None
    """What device-mapper calls it, such as `vg0-data`; None for what is not its."""
    below: tuple[str, ...] = ()
    """Names of the whole devices that it is made of."""
    size_bytes: int | None = None


class LimitKind(enum.Enum):
    """What a control group limits."""

    CPU = "cpu"
    MEMORY = "memory"
    MEMORY_HIGH = "memory, throttled above"
    READ_BYTES = "read bandwidth"
    WRITE_BYTES = "write bandwidth"
    READ_COUNT = "read operations"
    WRITE_COUNT = "write operations"
    TASKS = "processes and threads"


class CgroupLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that a control group sets, above or at the one that pgdyno runs in."""

    kind: LimitKind
    group: str
    """Its name, from the root of its hierarchy."""
    value: float
    """CPUs, bytes, a second's bytes or operations, or processes."""
    device: str | None = None
    """Of limits of I/O: the kernel's name of it, or its numbers."""


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that the machine starts by itself within a day."""

    name: str
    """Of the timer, or the file and line of a crontab."""
    job: str
    """The service it starts, or the program."""
    due_s: float


class LoadProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A program that loads machines, at work now."""

    pid: int
    name: str


class OtherServer(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL server that runs here."""

    pid: int
    data_dir: str | None
    """None where this account may not see it."""
    cpu_count: float | None
    """CPUs that its processes used during the look."""


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """This process's own soft limits, which its children have too; None is without a limit."""

    open_files: int | None
    processes: int | None


class ServerOrigin(enum.Enum):
    """Where a server's settings are known from."""

    PLANNED = "planned"
    """It is to be started by pgdyno: what was asked for, and else what is built in."""
    FILES = "files"
    """It does not run: what its programs make of its configuration files."""
    RUNNING = "running"
    """It says so itself."""


class ServerLook(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is to be measured, as far as it can be seen without starting it."""

    origin: ServerOrigin
    major: int
    data_dir: str | None = None
    settings: dict[str, str] = {}
    """By name, as pg_settings.setting has them; as asked for where it is PLANNED, with the count of huge pages."""
    file_errors: tuple[str, ...] = ()
    """In its configuration files, each with its place and the server's words; with them it does not start."""
    is_in_recovery: bool | None = None
    active_sessions: int | None = None
    """Client sessions but ours that are not idle."""
    huge_pages_bytes: int | None = None
    """That its postmaster has mapped."""
    has_assertions: bool | None = None
    """Whether it was built to check itself."""
    data_bytes: int | None = None
    """Of all its databases."""
    branches: dict[str, int] = {}
    """About how many pgbench_branches has, by database; of those that have it, where it was asked for."""
    port: int | None = None
    """At which it listens now."""
    client_port: int | None = None
    """Of PGPORT, at which clients look for a server; None where it is not set."""
    settings_said: SettingsSaid | None = None
    """As of `ServerFacts`."""


class PreflightFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a preflight saw. What has a default was not looked at, or is not there."""

    took_s: float | None = None
    activity: Activity | None = None
    clock: ClockFacts | None = None
    cpu: CpuFacts | None = None
    memory: MemoryFacts | None = None
    arrays: tuple[RaidArray, ...] = ()
    devices: tuple[BlockDevice, ...] = ()
    """Below the data."""
    wal: DiskFacts | None = None
    """What pg_wal lies on."""
    wal_devices: tuple[BlockDevice, ...] = ()
    """Below it; those of the data where it lies with them."""
    inodes_free_ratio: float | None = None
    """Of the data's file system; None where it has no fixed number of them."""
    home_holder_pid: int | None = None
    """Of another pgdyno that works in the home; 0 where it cannot be seen from here."""
    limits: tuple[CgroupLimit, ...] = ()
    process_limits: ProcessLimits | None = None
    timers: tuple[Timer, ...] = ()
    load_programs: tuple[LoadProgram, ...] = ()
    servers: tuple[OtherServer, ...] = ()
    is_on_battery: bool | None = None
    """None where the machine has none."""
    server: ServerLook | None = None
    unseen: tuple[Unseen, ...] = ()

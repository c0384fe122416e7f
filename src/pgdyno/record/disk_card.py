"""A disk card: what a storage path was seen to do, or is declared to do, in one small versioned file.

It holds each run of each job as it was, in the tools' own figures; estimates with intervals are `analyse/`'s to make.
Absent is None, never 0. A newer format is refused.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from pgdyno.plan.disk import DiskJob
from pgdyno.record.preflight import Unseen
from pgdyno.record.tunables import DiskLook
from pgdyno.spec.host import DiskSpec

FORMAT = 1


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """How long I/Os took, from submission to completion."""

    count: int
    mean_us: float
    p50_us: float
    p95_us: float
    p99_us: float
    p999_us: float
    max_us: float


class Direction(msgspec.Struct, frozen=True, kw_only=True):
    """What was read or written in one run."""

    iops: float
    bytes_per_s: float
    latency: Latencies


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """I/Os of both directions in one part of a run."""

    t_s: float
    """Its end, since the run's start."""
    iops: float


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job."""

    job: DiskJob
    round: int
    """From 0."""
    began_at: dt.datetime
    runtime_s: float
    read: Direction | None
    write: Direction | None
    flush: Latencies | None
    """Of the flushes alone, where the tool tells them apart from the writes before them."""
    spans: tuple[Span, ...]
    others_bytes_per_s: float | None
    """What the device read and wrote beside this run; None where it cannot be told."""
    cpu_ratio: float
    """Of one CPU, that the load generator used."""


class FlushTest(msgspec.Struct, frozen=True, kw_only=True):
    """A line of pg_test_fsync."""

    group: str
    """Its heading, such as `one 8kB write`."""
    name: str
    """As pg_test_fsync calls it, such as `fdatasync`."""
    ops_per_s: float | None
    """None where this platform has no such method, or the file system refused it."""
    op_us: float | None
    remark: str | None = None
    is_default: bool = False


class ClockTest(msgspec.Struct, frozen=True, kw_only=True):
    """What pg_test_timing says."""

    read_ns: float
    """Mean of one reading."""
    counts: dict[str, int]
    """Readings by their time as the tool prints it, in the tool's own unit."""
    unit: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Whose disk it is."""

    hostname: str
    cpu_model: str | None
    cpu_count: int
    memory_bytes: int
    kernel: str
    boot_id: str | None


class DiskCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one storage path."""

    format: int = FORMAT
    pgdyno_version: str
    made_at: dt.datetime
    name: str
    """What tables call it: the path, or the declared layout's name."""
    path: str | None
    """None for one that is only declared."""
    machine: Machine | None
    look: DiskLook | None
    """File system and devices, as seen."""
    instance: str | None = None
    """Declared, of a cloud, whose own limits hold."""
    declared: DiskSpec | None = None
    file_bytes: int | None
    runs: tuple[JobRun, ...]
    flush_tests: tuple[FlushTest, ...]
    clock: ClockTest | None
    tools: dict[str, str]
    """Version by name."""
    unseen: tuple[Unseen, ...]
    """What could not be measured, with the reason."""

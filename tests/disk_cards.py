"""Disk cards made by hand: of a disk that does what a test says, with the noise and the falls that it says."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from pgdyno.conduct.cards.measure import describe_machine
from pgdyno.plan.disk import DiskJob, Pattern
from pgdyno.record.device.disk_card import CardMachine, Direction, DiskCard, FlushTest, JobRun, Latencies, RunPart
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.preflight import BlockDevice
from pgdyno.record.machine.tunables import StorageStack, Stripe
from pgdyno.run.host.tunables import read_tunables

GB = 1024**3
MADE_AT = dt.datetime(2026, 11, 21, 9, 30, tzinfo=dt.UTC)
PAGE = 8192
DEPTHS = (1, 4, 16, 64)
# What an NVMe volume of a cloud does: 12,000 IOPS and 250 MB/s however much is asked of it, half a millisecond each.
IOPS, BYTES_PER_S, LATENCY_S, FLUSH_S = 12_000.0, 250e6, 0.0005, 0.0018
Level = Callable[[DiskJob, int], float]


def job(pattern: Pattern, *, depth: int = 1, block_bytes: int = PAGE) -> DiskJob:
    ratio = 0.7 if pattern is Pattern.MIXED else None
    return DiskJob(pattern=pattern, block_bytes=block_bytes, depth=depth, read_ratio=ratio, runtime_s=3)


JOBS: tuple[DiskJob, ...] = (
    *(job(Pattern.RANDOM_READ, depth=depth) for depth in DEPTHS),
    *(job(Pattern.RANDOM_WRITE, depth=depth) for depth in DEPTHS),
    job(Pattern.SEQUENTIAL_READ, depth=8, block_bytes=1024**2),
    job(Pattern.SEQUENTIAL_WRITE, depth=8, block_bytes=1024**2),
    job(Pattern.MIXED, depth=16),
    job(Pattern.WRITE_AND_FLUSH),
    job(Pattern.WAL),
    job(Pattern.WAL, block_bytes=1024**2),
)


def planted_iops(one: DiskJob) -> float:
    """What such a disk does of a job."""
    if one.is_flushed:
        return 1 / (FLUSH_S + one.block_bytes / BYTES_PER_S)
    return min(one.depth / LATENCY_S, IOPS, BYTES_PER_S / one.block_bytes)


def latencies(mean_us: float, count: int = 10_000) -> Latencies:
    return Latencies(
        count=count,
        mean_us=mean_us,
        p50_us=mean_us * 0.9,
        p95_us=mean_us * 2,
        p99_us=mean_us * 4,
        p999_us=mean_us * 8,
        max_us=mean_us * 20,
    )


def direction(one: DiskJob, iops: float) -> Direction:
    return Direction(iops=iops, bytes_per_s=iops * one.block_bytes, latency=latencies(one.depth / iops * 1e6))


def run(one: DiskJob, number: int, iops: float, *, spans: Iterable[float] = (), **others: Any) -> JobRun:
    """A run at `iops`; `spans` are factors of it for each of its parts."""
    reads = {Pattern.RANDOM_READ: 1.0, Pattern.SEQUENTIAL_READ: 1.0, Pattern.MIXED: one.read_ratio or 0}
    read = reads.get(one.pattern, 0.0)
    return JobRun(
        job=one,
        round=number,
        began_at=MADE_AT + dt.timedelta(seconds=60 * number),
        runtime_s=one.runtime_s,
        read=direction(one, iops * read) if read else None,
        write=direction(one, iops * (1 - read)) if read < 1 else None,
        flush=latencies(1e6 / iops * 0.9) if one.is_flushed else None,
        spans=tuple(
            RunPart(t_s=(place + 1) * 0.5, iops=iops * factor) for place, factor in enumerate(spans or [1.0] * 6)
        ),
        **{"others_bytes_per_s": 0.0, "cpu_ratio": 0.3, **others},
    )


def make_runs(
    *,
    rounds: int = 3,
    noise: float = 0.02,
    seed: int = 1,
    level: Level = lambda _, __: 1.0,
    jobs: Iterable[DiskJob] = JOBS,
) -> tuple[JobRun, ...]:
    """Every job in every round; `level` is by what a job of a round differs from what is planted."""
    dice = random.Random(seed)
    return tuple(
        run(one, number, planted_iops(one) * level(one, number) * math.exp(dice.gauss(0, noise)))
        for number in range(rounds)
        for one in jobs
    )


def make_look(**others: Any) -> StorageStack:
    facts = {
        "path": "/data",
        "device": "/dev/nvme1n1",
        "block_device": "nvme1n1",
        "filesystem": "xfs",
        "mount_options": "rw,relatime",
        "size_bytes": 500 * GB,
        "free_bytes": 400 * GB,
    }
    device = BlockDevice(
        name=str(others.get("block_device") or "nvme1n1"),
        kind="disk",
        is_rotational=False,
        scheduler="none",
        schedulers=("none",),
        read_ahead_kb=128,
    )
    return StorageStack(facts=DiskFacts(**{**facts, **others}), devices=(device,))


def raid_of(count: int, level: str) -> StorageStack:
    """An array of md over volumes."""
    look = make_look(block_device="md0")
    names = [f"nvme{place + 1}n1" for place in range(count)]
    array = msgspec.structs.replace(look.devices[0], kind="raid", below=tuple(names))
    disks = [msgspec.structs.replace(look.devices[0], name=name) for name in names]
    stripe = Stripe(level=level, disk_count=count, chunk_bytes=None)
    return msgspec.structs.replace(look, devices=(array, *disks), stripes={"md0": stripe})


def make_machine(**others: Any) -> CardMachine:
    facts: dict[str, Any] = {
        "hostname": "db1.example",
        "cpu_model": "some CPU",
        "cpu_count": 8,
        "memory_bytes": 16 * GB,
        "kernel": "6.1.0",
        "boot_id": "1b4e28ba",
    }
    return CardMachine(**{**facts, **others})


def seen_here(folder: Path) -> dict[str, Any]:
    """What a card says of this machine and of the disk of a folder."""
    machine = read_tunables(folder)
    return {"look": machine.disk, "machine": describe_machine(machine.host)}


def make_card(**others: Any) -> DiskCard:
    facts: dict[str, Any] = {
        "pgdyno_version": "0.1.0",
        "made_at": MADE_AT,
        "name": "/data",
        "path": "/data",
        "machine": make_machine(),
        "look": make_look(),
        "file_bytes": 4 * GB,
        "flush_tests": (
            FlushTest(group="one 8kB write", name="open_datasync", ops_per_s=530.0, op_us=1887.0),
            FlushTest(group="one 8kB write", name="fdatasync", ops_per_s=540.0, op_us=1852.0, is_default=True),
            FlushTest(group="Non-sync'ed 8kB writes", name="write", ops_per_s=300_000.0, op_us=3.3),
        ),
        "clock": None,
        "tools": {"fio": "3.33", "PostgreSQL": "18.6"},
        "unseen": (),
        **others,
    }
    return DiskCard(**facts, **({} if "runs" in facts else {"runs": make_runs()}))

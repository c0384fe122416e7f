"""Subjects for tests: an ordinary machine, of which a test changes what it is about."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from pgdyno.spec.pooler import PoolMode
from pgdyno.tune.types import Device, Disk, DiskKind, Kernel, Known, Origin, Pooling, TuningSubject, WorkloadClass

MB, GB = 1024**2, 1024**3
FIGURES = {
    DiskKind.LOCAL_SSD: {"iops": 300_000, "bytes_per_s": 2e9, "flush_s": 0.05e-3},
    DiskKind.NETWORK_SSD: {"iops": 3000, "bytes_per_s": 150e6, "flush_s": 1e-3},
    DiskKind.HDD: {"iops": 150, "bytes_per_s": 150e6, "flush_s": 8e-3},
}
MACHINES = {
    "tiny": {"cpus": 1, "memory": 512 * MB, "connections": 15, "active": 4},
    "small": {"cpus": 2, "memory": 4 * GB, "connections": 100, "active": 8},
    "vm": {"cpus": 2, "memory": 24 * GB, "connections": 100, "active": 8},
    "middle": {"cpus": 16, "memory": 64 * GB, "connections": 300, "active": 64},
    "crowded": {"cpus": 16, "memory": 64 * GB, "connections": 5000, "active": 64},
    "large": {"cpus": 192, "memory": 1536 * GB, "connections": 1000, "active": 400},
}


def known(value: float, unit: str = "count", *, name: str = "figure", origin: Origin = Origin.DECLARED) -> Known:
    return Known(name=name, value=float(value), unit=unit, origin=origin, how="said so")


def make_disk(kind: DiskKind = DiskKind.NETWORK_SSD, *, free: float = 400e9, **figures: Any) -> Disk:
    of_kind = {**FIGURES[kind], **{name: figures.pop(name) for name in FIGURES[kind] if name in figures}}
    return Disk(
        path="/data",
        kind=kind,
        flush_s=known(of_kind["flush_s"], "s", name="flush latency"),
        random_read_iops=known(of_kind["iops"], "1/s", name="random reads"),
        random_write_iops=known(of_kind["iops"], "1/s", name="random writes"),
        read_bytes_per_s=known(of_kind["bytes_per_s"], "bytes/s", name="sequential reads"),
        write_bytes_per_s=known(of_kind["bytes_per_s"], "bytes/s", name="sequential writes"),
        free_bytes=known(free, "bytes", name="free space"),
        **figures,
    )


def make_subject(machine: str = "vm", **changes: Any) -> TuningSubject:
    """A machine of `MACHINES`; numbers among `changes` become inputs that were declared."""
    units = {"memory": "bytes", "dataset": "bytes", "recovery_s": "s", "stall_s": "s", "wal_bytes_per_s": "bytes/s"}
    values = {
        "major": 18,
        "workload": WorkloadClass.OLTP_WRITE,
        **MACHINES[machine],
        "disk": make_disk(),
        "kernel": Kernel(),
        "recovery_s": 300,
        "stall_s": 1,
        **changes,
    }
    values.setdefault("dataset", known(4 * values["memory"], "bytes", name="dataset", origin=Origin.ASSUMED))
    inputs = {"cpus", "memory", "connections", "active", "dataset", "recovery_s", "stall_s", "wal_bytes_per_s"}
    for name in inputs & values.keys():
        if isinstance(values[name], (int, float)):
            values[name] = known(values[name], units.get(name, "count"), name=name)
    return msgspec.convert(values, TuningSubject, from_attributes=True)


def make_pooling(clients: int, **changes: Any) -> Pooling:
    """A pooler in transaction mode for so many clients."""
    values = {"mode": PoolMode.TRANSACTION, "clients": known(clients, name="clients"), **changes}
    return Pooling(**values)


def grid() -> Iterator[TuningSubject]:
    """All classes and versions on all machines, disks, in containers and out of them, with data of three sizes."""
    kernels = (
        Kernel(),
        Kernel(is_container=True),
        Kernel(is_left=True),
        Kernel(numa_nodes=2, swap_bytes=GB, transparent_huge_pages="always"),
    )
    for (machine, facts), major, workload, kind, kernel in itertools.product(
        MACHINES.items(), (15, 16, 17, 18), WorkloadClass, DiskKind, kernels
    ):
        data = {"HDD": 0.1, "LOCAL_SSD": 1.0, "NETWORK_SSD": 10.0}[kind.name] * facts["memory"]
        own = make_disk(kind) if kernel.is_container else None
        yield make_subject(
            machine, major=major, workload=workload, disk=make_disk(kind), wal_disk=own, kernel=kernel, dataset=data
        )
        if kernel.numa_nodes == 2:
            yield make_subject(machine, major=major, workload=workload, disk=make_disk(kind), kernel=kernel)
    for major, workload in itertools.product((15, 16, 17, 18), WorkloadClass):
        yield make_seen(major=major, workload=workload)
        yield make_subject(
            "middle", major=major, workload=workload, standbys=known(2, name="standbys"), pooling=make_pooling(300, version=(1, major)),
            settings={"wal_level": "minimal"},
        )  # fmt: skip
        yield make_subject(
            "middle",
            major=major,
            workload=workload,
            disk=msgspec.structs.replace(make_disk(devices=(_ARRAY,)), path=""),
        )


_ARRAY = Device(
    name="the array", kind="raid", scheduler=None, schedulers=(), read_ahead_kb=None, chunk_kb=None, data_disks=4
)


def make_seen(**changes: Any) -> TuningSubject:
    """A machine of which all was seen and measured, and is as it should not be."""
    array = msgspec.structs.replace(_ARRAY, name="md0", read_ahead_kb=128, chunk_kb=64)
    leaf = Device(
        name="nvme1n1", kind="disk", scheduler="mq-deadline", schedulers=("none", "mq-deadline"), read_ahead_kb=128
    )
    sysctls = {
        "vm.nr_hugepages": "64",
        "vm.dirty_bytes": "0",
        "vm.dirty_background_bytes": "0",
        "vm.swappiness": "60",
        "vm.overcommit_memory": "0",
        "vm.overcommit_ratio": "50",
        "vm.zone_reclaim_mode": "1",
        "kernel.numa_balancing": "1",
        "net.core.somaxconn": "128",
    }
    kernel = Kernel(
        numa_nodes=2,
        swap_bytes=GB,
        transparent_huge_pages="always",
        committed_bytes=GB,
        others_huge_pages=64,
        sysctls=sysctls,
    )
    # So few reads a second that only large ones use the bandwidth.
    disk = make_disk(
        DiskKind.LOCAL_SSD, iops=5000, filesystem="xfs", devices=(array, leaf), read_s=known(1e-4, "s", name="one read")
    )
    return make_subject(
        "large",
        settings={"log_checkpoints": "off"},
        disk=disk,
        wal_disk=make_disk(DiskKind.LOCAL_SSD, filesystem="btrfs"),
        kernel=kernel,
        clock_read_s=known(30e-9, "s", name="reading the clock"),
        wal_bytes_per_s=500e6,
        **changes,
    )

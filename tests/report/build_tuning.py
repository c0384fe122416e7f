"""Derived settings made by hand: every form must show them, whatever is derived today."""

from __future__ import annotations

from typing import Any

import msgspec

from pgdyno.facts.gucs import ChangeCost
from pgdyno.record.machine.preflight import Unseen
from pgdyno.report.sections.tuning.view import Tried, TuningView
from pgdyno.tune.types import (
    Derived,
    DerivedSettings,
    Device,
    Disk,
    DiskKind,
    Estimated,
    Kernel,
    Known,
    Layer,
    MemoryShare,
    Origin,
    Target,
    TuningSubject,
    WorkloadClass,
)

GB = 1024**3


def known(name: str, value: float, unit: str, origin: Origin = Origin.MEASURED, how: str = "seen") -> Known:
    return Known(name=name, value=value, unit=unit, origin=origin, how=how)


MEMORY = known("memory", 16 * GB, "bytes", how="/proc/meminfo")
DATASET = known("dataset", 40 * GB, "bytes", Origin.ASSUMED, "larger than memory; no size is known")
FLUSH = known("flush latency", 0.0018, "s", Origin.ASSUMED, "network-ssd, not measured: EBS gp3 as it comes")


def build_subject() -> TuningSubject:
    disk = Disk(
        path="/var/lib/postgresql",
        kind=DiskKind.NETWORK_SSD,
        flush_s=FLUSH,
        random_read_iops=known("random reads", 3000, "1/s", Origin.ASSUMED),
        random_write_iops=known("random writes", 3000, "1/s", Origin.ASSUMED),
        read_bytes_per_s=known("sequential reads", 125e6, "bytes/s", Origin.ASSUMED),
        write_bytes_per_s=known("sequential writes", 125e6, "bytes/s", Origin.ASSUMED),
        free_bytes=known("free space", 200 * GB, "bytes"),
        filesystem="ext4",
        devices=(
            Device(name="vda", kind="disk", scheduler="none", schedulers=("none", "mq-deadline"), read_ahead_kb=128),
        ),
    )
    return TuningSubject(
        major=18,
        workload=WorkloadClass.OLTP_WRITE,
        cpus=known("CPUs", 8, "count"),
        memory=MEMORY,
        connections=known("connections", 200, "count", Origin.DECLARED, "--connections"),
        active=known("active sessions", 32, "count", Origin.ASSUMED, "4 for each CPU, at most the connections"),
        dataset=DATASET,
        disk=disk,
        kernel=Kernel(),
        recovery_s=known("recovery time", 300, "s", Origin.ASSUMED, "usual"),
        stall_s=known("longest stall", 1, "s", Origin.ASSUMED, "usual"),
    )


def derived(
    name: str, value: str, layer: Layer, change: ChangeCost | None = ChangeCost.RESTART, **others: Any
) -> Derived:
    facts: dict[str, Any] = {
        "target": Target.POSTGRESQL,
        "reason": "It pays, since the dataset is larger than memory.",
        "formula": "memory / 4",
        "inputs": (MEMORY, DATASET),
        "source": "PostgreSQL 18 manual, section 19.4.1",
        "trades": "",
        **others,
    }
    return Derived(name=name, value=value, layer=layer, change=change, **facts)


def build_tuning() -> DerivedSettings:
    return DerivedSettings(
        subject=build_subject(),
        settings=(
            derived("shared_buffers", "4GB", Layer.MEMORY, trades="memory that the page cache could use"),
            derived(
                "work_mem", "4MB", Layer.MEMORY, ChangeCost.SESSION, reason="32 sessions at work share what is left."
            ),
            derived(
                "max_wal_size",
                "12GB",
                Layer.WAL,
                ChangeCost.RELOAD,
                reason="checkpoints then come by the clock, every 15 minutes, rather than by WAL; it's what a busy hour takes",
                inputs=(FLUSH,),
            ),
            derived(
                "autovacuum_vacuum_insert_scale_factor",
                "0.05",
                Layer.AUTOVACUUM,
                ChangeCost.RELOAD,
                inputs=(),
                formula="",
            ),
            derived("log_line_prefix", "%m [%p] it's %q", Layer.LOGGING, ChangeCost.RELOAD, inputs=()),
            derived("shared_preload_libraries", "pg_stat_statements, auto_explain", Layer.LOGGING, inputs=()),
            derived("vm.nr_hugepages", "2154", Layer.KERNEL, ChangeCost.KERNEL, target=Target.SYSCTL),
            derived("vm.swappiness", "10", Layer.KERNEL, ChangeCost.KERNEL, target=Target.SYSCTL, inputs=()),
            derived(
                "kernel/mm/transparent_hugepage/enabled", "never", Layer.KERNEL, ChangeCost.KERNEL, target=Target.SYSFS
            ),
            derived("wal volume", "a volume of its own", Layer.STORAGE, None, target=Target.STORAGE),
            derived("LimitNOFILE", "65536", Layer.KERNEL, ChangeCost.RESTART, target=Target.LIMIT),
        ),
        memory=(
            MemoryShare(what="shared_buffers", bytes=4 * GB, how="as set"),
            MemoryShare(what="work_mem", bytes=1.5 * GB, how="32 sessions, 12 nodes each"),
        ),
        estimates=(Estimated(what="recovery after a crash", value=140, unit="s", how="12 GB of WAL at 88 MB/s"),),
        what_ifs=(
            derived(
                "synchronous_commit",
                "off",
                Layer.WAL,
                ChangeCost.SESSION,
                reason="commits would not wait for a flush.",
                trades="a crash loses the last transactions",
            ),
        ),
        notes=("No WAL rate was measured: max_wal_size is what the disk and the recovery time allow.",),
    )


def build_view(**others: Any) -> TuningView:
    view = TuningView(
        tuning=build_tuning(),
        server="PostgreSQL 18.6, running as pid 7 in /data",
        machine="this machine",
        is_workload_said=True,
        now={"shared_buffers": "16384", "work_mem": "4096", "max_wal_size": "1024", "vm.swappiness": "60"},
        now_of="what the running server has",
        tried=Tried.VALUES,
        version="18.6",
        is_named=True,
    )
    return msgspec.structs.replace(view, **others)


UNSEEN = (Unseen(what="what the running server itself has in force", reason="psql was not let in"),)

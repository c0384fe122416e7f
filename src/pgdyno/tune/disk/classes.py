"""Define the figures that are assumed for each kind of disk, and the names of the figures."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.disk.ceiling import TRANSFERS
from pgdyno.tune.types import Disk, DiskKind, Known, Origin
from pgdyno.units import PAGE_BYTES

# Title and unit of each figure of a disk, by the field of Disk.
TITLES = {"flush_s": ("flush latency", "s"), **{name: (one.title, one.unit) for name, one in TRANSFERS.items()}}

# Assumed figures, each with its basis. Flush latencies and IOPS differ tenfold within a kind: these are of slower
# disks.
_GP3 = "EBS gp3 as it comes"
_SATA = "what SATA 3 lets through"
_I4I = "the instance store of EC2's i4i.large"
_HDD = "7200 revolutions a minute and a seek of 8 ms"
ASSUMED: dict[DiskKind, dict[str, tuple[float, str]]] = {
    DiskKind.LOCAL_SSD: {
        "flush_s": (
            0.0005,
            "between drives that keep their cache through a power cut, 0.1 ms, and those that do not, 1 ms",
        ),
        "random_read_iops": (50_000, _I4I),
        "random_write_iops": (27_500, _I4I),
        "read_bytes_per_s": (500e6, _SATA),
        "write_bytes_per_s": (500e6, _SATA),
    },
    DiskKind.NETWORK_SSD: {
        "flush_s": (0.00185, "a published run on gp3 in RAID 10, 540 flushes a second one by one"),
        "random_read_iops": (3_000, _GP3),
        "random_write_iops": (3_000, _GP3),
        "read_bytes_per_s": (125 * 2**20, _GP3),
        "write_bytes_per_s": (125 * 2**20, _GP3),
    },
    DiskKind.HDD: {
        "flush_s": (60 / 7200, "one revolution at 7200 a minute"),
        "random_read_iops": (80, _HDD),
        "random_write_iops": (80, _HDD),
        "read_bytes_per_s": (150e6, "the slower half of a disk of today"),
        "write_bytes_per_s": (150e6, "the slower half of a disk of today"),
    },
}

# Time of one random read without queueing.
_READ_LATENCY_S = {
    DiskKind.LOCAL_SSD: (0.1e-3, "data sheets of NVMe devices"),
    DiskKind.NETWORK_SSD: (0.7e-3, "what EBS gp3 takes"),
    DiskKind.HDD: (8e-3, "a seek and half a revolution of a 7200 rpm disk"),
}


def find_write_ratio(kind: DiskKind) -> float:
    """Return the small writes that a disk of a kind is assumed to do in the time of a small read."""
    return ASSUMED[kind]["random_write_iops"][0] / ASSUMED[kind]["random_read_iops"][0]


def find_read_latency(disk: Disk) -> Known:
    """Return the time of one random read without queueing, measured or assumed for the kind."""
    value, source = _READ_LATENCY_S[disk.kind]
    return disk.read_s or Known.assumed("random read latency", value, "s", f"typical of {disk.kind.value}: {source}")


def raise_bandwidths(disk: Disk) -> Disk:
    """Return the disk with assumed bandwidths of no less than its random pages take: in sequence it is not slower."""
    raised = {
        name: msgspec.structs.replace(
            rate,
            value=pages.value * PAGE_BYTES,
            how=f"no less than {pages.value:,.0f} {pages.name} of 8 kB a second take",
        )
        for name, rate, pages in (
            ("read_bytes_per_s", disk.read_bytes_per_s, disk.random_read_iops),
            ("write_bytes_per_s", disk.write_bytes_per_s, disk.random_write_iops),
        )
        if rate.origin is Origin.ASSUMED and rate.value < pages.value * PAGE_BYTES
    }
    return msgspec.structs.replace(disk, **raised)


def name_after(disk: Disk, content: str) -> Disk:
    """Return the disk with figures whose names say what lies on it: `sequential writes of pg_wal`."""
    end = f" of {content}"
    figures = {
        field: msgspec.structs.replace(known, name=f"{known.name.removesuffix(end)}{end}")
        for field, known in msgspec.structs.asdict(disk).items()
        if isinstance(known, Known)
    }
    return msgspec.structs.replace(disk, **figures)

"""A machine that one does not have, as settings are derived from it: an instance's shape, or what a host file says.

Arrays of volumes are reckoned by the textbook and held against what the instance lets through; what nobody declared is
assumed by the kind of disk, and says so. It knows nothing of bursts: a server that is busy outlasts them.
"""

from __future__ import annotations

import msgspec

from pgdyno.facts.instances import Instance, find_instance
from pgdyno.facts.volumes import find_volume
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.tune.types import Disk, DiskKind, Known, Origin

_GIBIBYTE, _MEGABYTE = 2**30, 10**6
# What an instance without a word on its disks is taken to have.
_USUAL_VOLUME = {"aws": "gp3", "alibaba": "essd-pl1"}
_USUAL_SIZE = "500GB"
_ASSUMED_FREE = 100 * _GIBIBYTE
_FILE = "the host file"


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, as far as settings are derived from it."""

    name: str
    architecture: str | None
    """`x86_64` or `arm64`; None where nothing is said of it."""
    cpus: Known
    memory: Known
    disk: Disk
    wal_disk: Disk | None = None


# What a disk of a kind is taken to do where nobody says, each with what it rests on. Within a kind flush latencies and
# IOPS differ tenfold: these are of its slower members.
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
# What the figures of a disk are called, and what of them an array of n has, by its RAID level.
# Source: md(4); Patterson, Gibson & Katz 1988, doi:10.1145/50202.50214. A mirrored stream is served by one half.
_IOPS = {"random_read_iops": "random reads", "random_write_iops": "random writes"}
_RATES = {"read_bytes_per_s": "sequential reads", "write_bytes_per_s": "sequential writes"}
_TITLES = {"flush_s": "flush latency", **_IOPS, **_RATES}
_UNITS = {"flush_s": "s", **dict.fromkeys(_IOPS, "1/s"), **dict.fromkeys(_RATES, "bytes/s")}


def shape_of(host: Instance | HostSpec) -> Shape:
    """What settings are derived from; an instance by itself is given the volume that is usual there, as an assumption.

    Raises:
        ValueError: A host file is neither a machine nor an instance; those that were read are one or the other.
    """
    spec = HostSpec(instance=host.name) if isinstance(host, Instance) else host
    instance = find_instance(spec.instance) if spec.instance is not None else None
    cpus = spec.cpus or (instance and instance.cpu_count)
    memory = spec.memory_bytes or (instance and instance.memory_bytes)
    if not cpus or not memory:
        raise ValueError("cpus and memory are needed, or an instance")
    sheet = f"shape of {instance.name}" if instance else _FILE
    return Shape(
        name=spec.name or (instance.name if instance else "a described machine"),
        architecture=spec.architecture or (instance.architecture if instance else None),
        cpus=_declare("CPUs", cpus, "count", _FILE if spec.cpus else sheet),
        memory=_declare("memory", memory, "bytes", _FILE if spec.memory else sheet),
        disk=_make_disk(spec.disk, instance) if spec.disk else _assume_disk(instance),
        wal_disk=_make_disk(spec.wal_disk, instance) if spec.wal_disk else None,
    )


def _assume_disk(instance: Instance | None) -> Disk:
    """The disk of an instance of which nothing is said: its figures are assumptions, whoever published them."""
    if instance is None:
        raise ValueError("disk is needed, or an instance")
    if instance.local_bytes is not None:
        spec = DiskSpec(volume="local-nvme", size=f"{instance.local_bytes // _GIBIBYTE}GB")
    else:
        spec = DiskSpec(volume=_USUAL_VOLUME[instance.provider], size=_USUAL_SIZE)
    disk = _make_disk(spec, instance)
    why = "no disk is declared; taken: "
    assumed = {
        name: msgspec.structs.replace(known, origin=Origin.ASSUMED, how=why + known.how)
        for name, known in msgspec.structs.asdict(disk).items()
        if isinstance(known, Known)
    }
    return msgspec.structs.replace(disk, **assumed)


def _make_disk(spec: DiskSpec, instance: Instance | None) -> Disk:
    kind = DiskKind(spec.kind or find_volume(spec.volume or "").kind)
    figures = _figures_of_one(spec, kind)
    if spec.raid is not None:
        times = _times(spec.count, spec.raid)
        figures = {
            name: msgspec.structs.replace(
                one, value=one.value * times[name], how=f"{spec.count} × {one.how}, in RAID {spec.raid}"
            )
            for name, one in figures.items()
        }
    figures |= _declared(spec)
    if instance is not None and kind is DiskKind.NETWORK_SSD:
        figures = {name: _hold_against(figure, instance) for name, figure in figures.items()}
    return Disk(
        path="",
        kind=kind,
        random_read_iops=figures["random_read_iops"],
        random_write_iops=figures["random_write_iops"],
        read_bytes_per_s=figures["read_bytes_per_s"],
        write_bytes_per_s=figures["write_bytes_per_s"],
        flush_s=_find_flush(spec, kind),
        free_bytes=_find_free(spec),
    )


def _figures_of_one(spec: DiskSpec, kind: DiskKind) -> dict[str, Known]:
    """What each disk or volume can do, published where it is a volume, assumed where nothing is."""
    figures = {name: _assume(name, kind) for name in (*_IOPS, *_RATES)}
    if spec.volume is not None:
        ability, how = spec.volume_ability, f"{spec.volume} of {spec.size}"
        published = {
            "random_read_iops": ability.read_iops,
            "random_write_iops": ability.write_iops,
            **dict.fromkeys(_RATES, ability.bytes_per_s),
        }
        figures |= {
            name: _declare(_TITLES[name], value, _UNITS[name], how)
            for name, value in published.items()
            if value is not None
        }
    return figures


def _times(count: int, raid: int) -> dict[str, float]:
    """How many times one disk's figures an array of them has."""
    reads, writes = {0: (count, count), 1: (count, 1), 10: (count, count / 2)}[raid]
    return {"random_read_iops": reads, "random_write_iops": writes, **dict.fromkeys(_RATES, writes)}


def _declared(spec: DiskSpec) -> dict[str, Known]:
    said = {
        "random_read_iops": spec.random_read_iops,
        "random_write_iops": spec.random_write_iops,
        "read_bytes_per_s": spec.read_mb_s and spec.read_mb_s * _MEGABYTE,
        "write_bytes_per_s": spec.write_mb_s and spec.write_mb_s * _MEGABYTE,
    }
    return {name: _declare(_TITLES[name], value, _UNITS[name], _FILE) for name, value in said.items() if value}


def _hold_against(figure: Known, instance: Instance) -> Known:
    """Cap a figure at what lasts of the instance's limit to all of its volumes, and say which of the two binds."""
    is_rate = figure.unit == "bytes/s"
    limit = instance.disk_bytes_per_s if is_rate else instance.disk_iops
    words = f"{limit / _MEGABYTE:,.5g} MB/s" if is_rate else f"{limit:,.0f} a second"
    if figure.value <= limit:
        return msgspec.structs.replace(
            figure, how=f"{figure.how}; {instance.name} lets {words} through, so the disks bind"
        )
    own = f"{figure.value / _MEGABYTE:,.5g} MB/s" if is_rate else f"{figure.value:,.0f} a second"
    how = f"{instance.name} lets {words} through to all of its volumes, which binds: {figure.how} could {own}"
    return msgspec.structs.replace(figure, value=limit, origin=Origin.DECLARED, how=how)


def _find_flush(spec: DiskSpec, kind: DiskKind) -> Known:
    if spec.flush_ms is not None:
        return _declare(_TITLES["flush_s"], spec.flush_ms / 1000, "s", _FILE)
    published_ms = find_volume(spec.volume).write_ms if spec.volume is not None else None
    if published_ms is not None:
        how = f"random write latency of {spec.volume} as published, which no flush is below"
        return _declare(_TITLES["flush_s"], published_ms / 1000, "s", how)
    return _assume("flush_s", kind)


def _find_free(spec: DiskSpec) -> Known:
    name, unit = "free space", "bytes"
    if spec.free_bytes is not None:
        return _declare(name, spec.free_bytes, unit, _FILE)
    if spec.size_bytes is None:
        how = f"no size is declared: {_ASSUMED_FREE / _GIBIBYTE:g} GB are assumed"
        return Known(name=name, value=_ASSUMED_FREE, unit=unit, origin=Origin.ASSUMED, how=how)
    disks = 1.0 if spec.raid is None else _times(spec.count, spec.raid)["random_write_iops"]
    array = f"{spec.count} × {spec.size} in RAID {spec.raid}" if spec.raid is not None else spec.size
    return _declare(name, spec.size_bytes * disks, unit, f"{array}, empty")


def _assume(name: str, kind: DiskKind) -> Known:
    value, source = ASSUMED[kind][name]
    how = f"assumed of a {kind.value}: {source}"
    return Known(name=_TITLES[name], value=value, unit=_UNITS[name], origin=Origin.ASSUMED, how=how)


def _declare(name: str, value: float, unit: str, how: str) -> Known:
    return Known(name=name, value=value, unit=unit, origin=Origin.DECLARED, how=how)

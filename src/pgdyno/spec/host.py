"""Read the declaration of a machine and its disks, from a host file or from a study's `[host]` table.

A host file describes a machine other than this one. Values keep the user's notation (`memory = "64GB"`); properties
convert them to pgdyno's units. Errors name the file, the line and the key. An absent key is None; `tune/` chooses the
assumption for it. Contradictory descriptions and impossible arrays are refused.
"""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance
from pgdyno.facts.volumes import Ability, DiskKindName, ability_of, find_volume
from pgdyno.spec.complaint import name_line, read_complaint, suggest_toml
from pgdyno.spec.shipped import find_shipped, suggest_shipped
from pgdyno.spec.table import StudyTable, check_above_0
from pgdyno.spec.topology import TopologySpec
from pgdyno.units import parse_in_unit, parse_sheet_bytes

_GIBIBYTE = 2**30
PATH_FIGURES = ("flush_ms", "random_read_iops", "random_write_iops", "read_mb_s", "write_mb_s")
"""Figures of a declared disk that are of the whole path."""
_FIGURES = (*PATH_FIGURES, "volume_iops", "volume_mb_s", "volume_latency_ms")
# The smallest chunk that Linux accepts. Source: md(4), lvcreate(8).
_LEAST_CHUNK_BYTES = 4096
_STRIPED = frozenset({0, 5, 6, 10})
# Fewest disks of a level with parity: RAID 5 of two is a mirror. Source: md(4), mdadm(8).
_LEAST_OF_PARITY = {5: 3, 6: 4}


class DiskSpec(StudyTable, frozen=True, kw_only=True):
    """A storage path: one disk or cloud volume, or an array of them, with known figures.

    Attributes:
        kind: Kind of each disk; a volume has its own.
        volume: Type of the cloud volume, such as `gp3`.
        count: Number of equal disks or volumes.
        size: Size of each, such as `500GB`, where a GB is 2^30 bytes of a network volume, and 10^9 of a local disk.
        raid: RAID level of several disks: 0, 1, 5, 6 or 10.
        lvm_stripes: Instead of raid: number of stripes of the LVM logical volume.
        chunk: Chunk size of the array or of LVM's stripes, such as `64kB`.
        filesystem: Type of the file system, such as `xfs`.
        mount_options: Mount options as in fstab, such as `noatime`.
        volume_iops: Provisioned IOPS of each volume; absent: the included ones.
        volume_mb_s: Provisioned throughput of each volume, in the provider's megabytes; absent: the included one.
        volume_latency_ms: Latency of one small synchronous write of each disk or volume; not with parity.
        flush_ms: Time of one 8 kB write with its flush, for the whole path; as are all figures below.
        random_read_iops: Random reads of 8 kB per second.
        random_write_iops: Random writes of 8 kB per second.
        read_mb_s: Throughput of large sequential reads, in 10^6 bytes.
        write_mb_s: Throughput of large sequential writes, in 10^6 bytes.
        free: Space that the cluster may fill.
    """

    kind: DiskKindName | None = None
    volume: str | None = None
    count: int = 1
    size: str | None = None
    raid: Literal[0, 1, 5, 6, 10] | None = None
    lvm_stripes: int | None = None
    chunk: str | None = None
    filesystem: str | None = None
    mount_options: str | None = None
    volume_iops: int | None = None
    volume_mb_s: int | None = None
    volume_latency_ms: float | None = None
    flush_ms: float | None = None
    random_read_iops: float | None = None
    random_write_iops: float | None = None
    read_mb_s: float | None = None
    write_mb_s: float | None = None
    free: str | None = None

    def __post_init__(self) -> None:
        """Refuse contradictory or impossible values."""
        if (self.kind is None) == (self.volume is None):
            raise ValueError("kind or volume: give one of them")
        for name in _FIGURES:
            check_above_0(name, getattr(self, name))
        if self.flush_ms is not None and self.volume_latency_ms is not None:
            raise ValueError(
                "flush_ms and volume_latency_ms: give one of them, since the first follows from the second"
            )
        if self.volume_latency_ms is not None and self.raid in _LEAST_OF_PARITY:
            raise ValueError(
                f"volume_latency_ms says nothing of raid {self.raid}, where a small write reads first: use flush_ms instead"
            )
        _check_array(self)
        if self.volume is not None:
            _ = self.volume_ability
        elif self.volume_iops is not None or self.volume_mb_s is not None:
            raise ValueError("volume_iops and volume_mb_s need volume: use random_read_iops or read_mb_s instead")
        size_bytes, free_bytes = self.size_bytes, self.free_bytes
        if size_bytes is not None and free_bytes is not None and free_bytes > self.count * size_bytes:
            raise ValueError(f"free: {self.free} is more than {self.count} x {self.size}")

    @property
    def disk_kind(self) -> DiskKindName:
        """Kind of each disk, declared or known from its volume type."""
        return self.kind or find_volume(self.volume or "").kind

    @property
    def size_bytes(self) -> float | None:
        """Size of each disk: of network volumes in their providers' GiB, of local disks as their data sheets have it.

        Source: Amazon EBS user guide, volume constraints; Amazon EC2 instance types, instance store: 1 x 468 GB of i4i.large.
        """
        if self.size is None:
            return None
        size_bytes = _read_bytes("size", self.size)
        return size_bytes if self.disk_kind == "network-ssd" else parse_sheet_bytes(self.size)

    @property
    def free_bytes(self) -> float | None:
        """Space that the cluster may fill."""
        return None if self.free is None else _read_bytes("free", self.free)

    @property
    def chunk_bytes(self) -> float | None:
        """Bytes that are stored on one disk before the next."""
        return None if self.chunk is None else _read_bytes("chunk", self.chunk)

    @property
    def volume_gib(self) -> float:
        """Size of each volume, in GiB.

        Raises:
            ValueError: No size is declared.
        """
        if self.size_bytes is None:
            raise ValueError("size is missing: a volume's performance depends on it")
        return self.size_bytes / _GIBIBYTE

    @property
    def volume_ability(self) -> Ability:
        """Performance of each volume.

        Raises:
            ValueError: No volume is declared, its type is unknown, it has no size, or such a volume is impossible.
        """
        if self.volume is None:
            raise ValueError("no volume is declared")
        try:
            volume = find_volume(self.volume)
        except SpecError as exc:
            raise ValueError(f"volume {self.volume!r} is unknown: {exc.detail}") from exc
        size_gib = self.volume_gib
        try:
            return ability_of(volume, size_gib, iops=self.volume_iops, mb_s=self.volume_mb_s)
        except ValueError as exc:
            raise ValueError(f"volume {self.volume}: {exc}") from exc


class HostSpec(StudyTable, frozen=True, kw_only=True):
    """A machine.

    Attributes:
        name: Name in reports; absent: the instance's name.
        instance: Type of the cloud instance, such as `r8g.2xlarge`; other keys take precedence over its figures.
        cpus: CPUs that the server may use.
        memory: Memory that the server may use, such as `64GB`.
        architecture: Architecture of the processor.
        instance_iops: Sustained IOPS of all its network volumes together.
        instance_mb_s: Sustained throughput of all its network volumes together, in 10^6 bytes.
        disk: Disk of the data.
        wal_disk: Disk of pg_wal; absent: the data's disk.
        root_disk: Disk of the operating system, which adds to the price; absent: it adds nothing.
        region: Region, which decides the prices; absent: the region of the prices.
        emulate: Whether a study runs on an emulation of this machine's disks and size.
        topology: What stands around the server on this machine.
    """

    name: str | None = None
    instance: str | None = None
    cpus: int | None = None
    memory: str | None = None
    architecture: Literal["x86_64", "arm64"] | None = None
    instance_iops: int | None = None
    instance_mb_s: float | None = None
    disk: DiskSpec | None = None
    wal_disk: DiskSpec | None = None
    root_disk: DiskSpec | None = None
    region: str | None = None
    emulate: bool = False
    topology: TopologySpec | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown instance and impossible figures."""
        if self.instance is not None:
            try:
                find_instance(self.instance)
            except SpecError as exc:
                raise ValueError(f"instance {self.instance!r} is unknown; {exc.hint}") from exc
        for name in ("cpus", "instance_iops", "instance_mb_s"):
            check_above_0(name, getattr(self, name))
        if not (self.name is None or self.name.isprintable()):
            raise ValueError(f"name {self.name!r} must be printable, and one line")
        _ = self.memory_bytes

    @property
    def is_whole(self) -> bool:
        """True if the declaration is complete, so that nothing of the machine must be observed."""
        return self.instance is not None or None not in (self.cpus, self.memory, self.disk)

    @property
    def memory_bytes(self) -> float | None:
        """Memory that the server and all other programs on the machine may use."""
        return None if self.memory is None else _read_bytes("memory", self.memory)


def read_host(path: Path, *, takes_instance: bool = False) -> HostSpec:
    """Read a host file, the user's or a shipped one.

    Args:
        path: The file, or the name of a shipped one.
        takes_instance: Whether the user may name an instance in its place.

    Raises:
        SpecError: The file cannot be read, is not TOML, or has invalid keys or values.
    """
    path = find_shipped(path)
    try:
        return parse_host(path.read_text(encoding="utf-8-sig"), source=str(path))
    except OSError as exc:
        raise SpecError(
            f"cannot read the host file {path}",
            detail=exc.strerror or str(exc),
            hint=suggest_shipped(path)
            or f"name a {'TOML file, or an instance such as r8g.2xlarge' if takes_instance else 'host file, which declares a machine with its disks'};"
            " `pgdyno studies` lists the host files that pgdyno ships",
        ) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path} is not UTF-8 text", detail=str(exc), hint="a host file is a TOML file") from exc


def parse_host(text: str, *, source: str) -> HostSpec:
    """Parse a host file's text; errors name it `source`.

    Raises:
        SpecError: As for `read_host`.
    """
    try:
        host = msgspec.convert(tomllib.loads(text), HostSpec)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(
            f"{source} is not valid TOML", detail=str(exc), hint=suggest_toml(str(exc), 'memory = "64GB"')
        ) from exc
    except msgspec.ValidationError as exc:
        raise _spec_error(str(exc), text=text, source=source) from exc
    if not host.is_whole:
        raise _spec_error("cpus, memory and disk are needed, or an instance", text=text, source=source)
    return host


def _check_array(disk: DiskSpec) -> None:
    count, raid, stripes = disk.count, disk.raid, disk.lvm_stripes
    if count < 1:
        raise ValueError(f"count {count} is not above 0")
    if raid is not None and stripes is not None:
        raise ValueError("raid and lvm_stripes: give one of them")
    if count > 1 and raid is None and stripes is None:
        raise ValueError(f"raid is missing: set how the {count} are combined: 0, 1, 5, 6 or 10, or lvm_stripes")
    if raid is not None:
        _check_level(raid, count)
    if stripes is not None and (stripes < 2 or count % stripes):
        raise ValueError(f"lvm_stripes {stripes} is impossible for {count} disks: it must be a divisor of at least 2")
    if disk.chunk_bytes is not None:
        if raid not in _STRIPED and stripes is None:
            raise ValueError("chunk needs raid 0, 5, 6 or 10, or lvm_stripes")
        if disk.chunk_bytes < _LEAST_CHUNK_BYTES or not math.log2(disk.chunk_bytes).is_integer():
            raise ValueError(f"chunk {disk.chunk} is not a power of 2 from 4kB")


def _check_level(raid: int, count: int) -> None:
    if count < 2:
        raise ValueError(f"raid {raid} needs a count of disks")
    if raid == 10 and (count < 4 or count % 2):
        raise ValueError(f"count {count} is impossible for raid 10: it takes at least two pairs")
    if count < _LEAST_OF_PARITY.get(raid, 0):
        raise ValueError(f"count {count} is impossible for raid {raid}: it takes at least {_LEAST_OF_PARITY[raid]}")


def _read_bytes(key: str, text: str) -> float:
    try:
        value = parse_in_unit(text, "B", is_integer=False)
    except ValueError as exc:
        raise ValueError(f"{key} {exc}") from exc
    if text.strip()[-1:].isdigit() or value < 1:
        raise ValueError(f"{key} {text!r} is not a size such as 64GB")
    return value


def _spec_error(message: str, *, text: str, source: str) -> SpecError:
    found = read_complaint(message, HostSpec)
    hint = f"keys are {', '.join(found.keys)}"
    if found.choices:
        hint = f"one of {', '.join(found.choices)}"
    elif found.nearest:
        hint = f"did you mean {found.nearest}?"
    elif found.path == "host":
        hint = "only a study has a [host] table: in a host file they are at the top, and its disk is [disk]"
    elif found.key == "volume" and "is unknown" in found.fact:
        hint = 'of a volume that is not among them, give kind = "network-ssd" instead, and its figures, such as random_read_iops'
    elif re.search(r"unit '[kMGT]iB'", found.fact):
        hint = "a GB is 2^30 bytes here, but of a local disk's size 10^9, so that 1788 GiB are 1920GB"
    elif found.key == "volume" and "none are provisioned" in found.fact:
        hint = "volume_iops says how many each has"
    elif found.key in found.keys:
        hint = "`pgdyno studies hosts/template` shows every key with a value"
    where = name_line(source, text, found.path)
    return SpecError(f"{where}: {found.fact}", detail=f"key {found.path}" if found.path else "", hint=hint)

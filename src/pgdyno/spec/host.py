"""A machine and its disks as they are declared: in a host file for one that is not here, or in a study's `[host]` table.

Values keep the user's own notation (`memory = "64GB"`); properties give them in pgdyno's units. Errors name the file,
the line and the key. What a key leaves open stays None: what is assumed for it is `tune/`'s to say. It refuses a
description that says a thing twice, or an array that cannot be built.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance
from pgdyno.facts.volumes import Ability, DiskKindName, ability_of, find_volume
from pgdyno.spec.complaint import find_line, read_complaint
from pgdyno.spec.table import StudyTable
from pgdyno.units import parse_in_unit

_GIBIBYTE = 2**30
_FIGURES = (
    *("flush_ms", "random_read_iops", "random_write_iops", "read_mb_s", "write_mb_s"),
    *("volume_iops", "volume_mb_s", "volume_latency_ms"),
)
# Linux takes no smaller one. Source: md(4), lvcreate(8).
_LEAST_CHUNK_BYTES = 4096


class DiskSpec(StudyTable, frozen=True, kw_only=True):
    """A storage path: a kind of disk or a cloud volume, one or an array of them, and what is known better than that.

    Attributes:
        kind: Of each disk; a volume has its own.
        volume: A cloud volume such as `gp3`.
        count: Of equal disks or volumes.
        size: Of each, such as `500GB`, where a GB is 1024 MB.
        raid: Of more than one: 0, 1 or 10.
        lvm_stripes: Instead of raid: over how many of them at a time LVM stripes a logical volume.
        chunk: Of the array, or of LVM's stripes, such as `64kB`.
        filesystem: Such as `xfs`.
        mount_options: As in fstab, such as `noatime`.
        volume_iops: Bought for each volume; absent: those that come with it.
        volume_mb_s: Likewise, in the provider's megabytes.
        volume_latency_ms: Of one small write that is waited for, of each disk or volume.
        flush_ms: Of one 8 kB write and its flush, of the whole path; so are all that follow.
        random_read_iops: Of 8 kB.
        random_write_iops: Likewise.
        read_mb_s: Of large sequential reads, in 10^6 bytes.
        write_mb_s: Likewise of writes.
        free: Space that the cluster may fill.
    """

    kind: DiskKindName | None = None
    volume: str | None = None
    count: int = 1
    size: str | None = None
    raid: Literal[0, 1, 10] | None = None
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
        """Refuse what cannot be meant or cannot be."""
        if (self.kind is None) == (self.volume is None):
            raise ValueError("kind or volume: give one of them")
        for name in _FIGURES:
            _check_above_0(name, getattr(self, name))
        if self.flush_ms is not None and self.volume_latency_ms is not None:
            raise ValueError(
                "flush_ms and volume_latency_ms: give one of them, since the first follows from the second"
            )
        _check_array(self)
        _ = self.size_bytes, self.free_bytes
        if self.volume is not None:
            _ = self.volume_ability
        elif self.volume_iops is not None or self.volume_mb_s is not None:
            raise ValueError("volume_iops and volume_mb_s go with volume: say random_read_iops or read_mb_s")

    @property
    def disk_kind(self) -> DiskKindName:
        """Of each, whether it was said or is its volume's."""
        return self.kind or find_volume(self.volume or "").kind

    @property
    def size_bytes(self) -> float | None:
        """Of each."""
        return None if self.size is None else _read_bytes("size", self.size)

    @property
    def free_bytes(self) -> float | None:
        """Space that the cluster may fill."""
        return None if self.free is None else _read_bytes("free", self.free)

    @property
    def chunk_bytes(self) -> float | None:
        """What lies on one disk before the next one's turn."""
        return None if self.chunk is None else _read_bytes("chunk", self.chunk)

    @property
    def volume_ability(self) -> Ability:
        """What each volume can do.

        Raises:
            ValueError: It is not said to be one, or there is none such.
        """
        if self.volume is None or self.size_bytes is None:
            raise ValueError("size is missing: what a volume can do follows from it")
        try:
            volume = find_volume(self.volume)
        except SpecError as exc:
            raise ValueError(f"volume {self.volume!r} is unknown: {exc.detail}") from exc
        try:
            return ability_of(volume, self.size_bytes / _GIBIBYTE, iops=self.volume_iops, mb_s=self.volume_mb_s)
        except ValueError as exc:
            raise ValueError(f"volume {self.volume}: {exc}") from exc


class HostSpec(StudyTable, frozen=True, kw_only=True):
    """A machine.

    Attributes:
        name: What reports call it; absent: the instance's name.
        instance: A cloud instance such as `r8g.2xlarge`; what the file says besides is believed before it.
        cpus: That the server may use.
        memory: Likewise, such as `64GB`.
        architecture: Of the processor.
        instance_iops: That the machine lets through to all of its network volumes together, for as long as one likes.
        instance_mb_s: Likewise, in 10^6 bytes.
        disk: Where the data lies.
        wal_disk: Where pg_wal lies; absent: with the data.
        root_disk: Where the system lies, which costs as well; absent: nothing is counted for it.
        region: That it is in, which decides on prices; absent: that of the prices.
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

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.instance is not None:
            try:
                find_instance(self.instance)
            except SpecError as exc:
                raise ValueError(f"instance {self.instance!r} is unknown; {exc.hint}") from exc
        for name in ("cpus", "instance_iops", "instance_mb_s"):
            _check_above_0(name, getattr(self, name))
        _ = self.memory_bytes

    @property
    def is_whole(self) -> bool:
        """Whether so much is said that nothing has to be seen of the machine."""
        return self.instance is not None or None not in (self.cpus, self.memory, self.disk)

    @property
    def memory_bytes(self) -> float | None:
        """Memory that the server may use, with all else that runs there."""
        return None if self.memory is None else _read_bytes("memory", self.memory)


def read_host(path: Path) -> HostSpec:
    """Read a host file.

    Raises:
        SpecError: It cannot be read, is no TOML, or says something that pgdyno does not understand.
    """
    try:
        return parse_host(path.read_text(encoding="utf-8"), source=str(path))
    except OSError as exc:
        raise SpecError(
            f"cannot read the host file {path}",
            detail=exc.strerror or str(exc),
            hint="name a TOML file, or an instance such as r8g.2xlarge",
        ) from exc
    except UnicodeDecodeError as exc:
        raise SpecError(f"{path} is not UTF-8 text", detail=str(exc), hint="a host file is a TOML file") from exc


def parse_host(text: str, *, source: str) -> HostSpec:
    """Parse a host file's text; errors call it `source`.

    Raises:
        SpecError: As for `read_host`.
    """
    try:
        host = msgspec.convert(tomllib.loads(text), HostSpec)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(
            f"{source} is not valid TOML", detail=str(exc), hint='text needs quotes: memory = "64GB"'
        ) from exc
    except msgspec.ValidationError as exc:
        raise _spec_error(str(exc), text=text, source=source) from exc
    if not host.is_whole:
        raise _spec_error("cpus, memory and disk are needed, or an instance", text=text, source=source)
    return host


def _check_above_0(name: str, value: float | None) -> None:
    if value is not None and not 0 < value < float("inf"):
        raise ValueError(f"{name} {value} is not above 0")


def _check_array(disk: DiskSpec) -> None:
    count, raid, stripes = disk.count, disk.raid, disk.lvm_stripes
    if count < 1:
        raise ValueError(f"count {count} is not above 0")
    if raid is not None and stripes is not None:
        raise ValueError("raid and lvm_stripes: give one of them")
    if count > 1 and raid is None and stripes is None:
        raise ValueError(f"raid is missing: say how the {count} are put together: 0, 1 or 10, or lvm_stripes")
    if raid is not None and count < 2:
        raise ValueError(f"raid {raid} needs a count of disks")
    if raid == 10 and (count < 4 or count % 2):
        raise ValueError(f"count {count} makes no raid 10: it takes pairs, two at least")
    if stripes is not None and (stripes < 2 or count % stripes):
        raise ValueError(
            f"lvm_stripes {stripes} is no number of stripes for {count} disks: 2 or more, which divide them"
        )
    if disk.chunk_bytes is not None:
        if raid not in {0, 10} and stripes is None:
            raise ValueError("chunk goes with raid 0, raid 10 or lvm_stripes")
        if disk.chunk_bytes < _LEAST_CHUNK_BYTES or not math.log2(disk.chunk_bytes).is_integer():
            raise ValueError(f"chunk {disk.chunk} is not a power of 2 from 4kB")


def _read_bytes(key: str, text: str) -> float:
    try:
        value = parse_in_unit(text, "B", is_integer=False)
    except ValueError as exc:
        raise ValueError(f"{key} {exc}") from exc
    if text.strip()[-1:].isdigit() or value < 1:
        raise ValueError(f"{key} {text!r} is no size such as 64GB")
    return value


def _spec_error(message: str, *, text: str, source: str) -> SpecError:
    found = read_complaint(message, HostSpec)
    hint = f"keys are {', '.join(found.keys)}"
    if found.choices:
        hint = f"one of {', '.join(found.choices)}"
    elif found.nearest:
        hint = f"did you mean {found.nearest}?"
    elif found.path == "host":
        hint = "only a study has a [host] table: here its keys begin the file, and its disk is [disk]"
    elif found.key in found.keys:
        hint = "studies/hosts/template.toml shows every key with a value"
    line = find_line(text, found.path) if found.path else None
    where = f"{source}, line {line}" if line else source
    return SpecError(f"{where}: {found.fact}", detail=f"key {found.path}" if found.path else "", hint=hint)

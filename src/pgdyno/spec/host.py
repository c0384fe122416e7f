"""A machine that one does not have, as a file describes it for `pgdyno tune --host FILE`.

Values keep the user's own notation (`memory = "64GB"`); properties give them in pgdyno's units. Errors name the file,
the line and the key. What a key leaves open stays None: what is assumed for it is `tune/`'s to say. It refuses a
description that says a thing twice, or an array that cannot be built.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import typing
from pathlib import Path
from typing import Literal

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.instances import find_instance
from pgdyno.facts.volumes import Ability, DiskKindName, ability_of, find_volume
from pgdyno.spec.read import find_line
from pgdyno.spec.table import Table
from pgdyno.units import parse_in_unit

_GIBIBYTE = 2**30
_EXPECTED = re.compile(r"expected `([^`]*)`, got `([^`]*)`", re.IGNORECASE)
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_FIGURES = ("flush_ms", "random_read_iops", "random_write_iops", "read_mb_s", "write_mb_s")
_OF_VOLUME = ("volume_iops", "volume_mb_s")


class DiskSpec(Table, frozen=True, kw_only=True):
    """A storage path: a kind of disk or a cloud volume, one or an array of them, and what is known better than that.

    Attributes:
        kind: Of each disk; a volume has its own.
        volume: A cloud volume such as `gp3`.
        count: Of equal disks or volumes.
        size: Of each, such as `500GB`, where a GB is 1024 MB.
        raid: Of more than one: 0, 1 or 10.
        volume_iops: Bought for each volume; absent: those that come with it.
        volume_mb_s: Likewise, in the provider's megabytes.
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
    volume_iops: int | None = None
    volume_mb_s: int | None = None
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
        for name in (*_FIGURES, *_OF_VOLUME):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} {value} is not above 0")
        _check_array(self.count, self.raid)
        _ = self.size_bytes, self.free_bytes
        if self.volume is not None:
            _ = self.volume_ability
        elif self.volume_iops is not None or self.volume_mb_s is not None:
            raise ValueError("volume_iops and volume_mb_s go with volume: say random_read_iops or read_mb_s")

    @property
    def size_bytes(self) -> float | None:
        """Of each."""
        return None if self.size is None else _read_bytes("size", self.size)

    @property
    def free_bytes(self) -> float | None:
        """Space that the cluster may fill."""
        return None if self.free is None else _read_bytes("free", self.free)

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


class HostSpec(Table, frozen=True, kw_only=True):
    """A machine.

    Attributes:
        name: What reports call it; absent: the instance's name.
        instance: A cloud instance such as `r8g.2xlarge`; what the file says besides is believed before it.
        cpus: That the server may use.
        memory: Likewise, such as `64GB`.
        architecture: Of the processor.
        disk: Where the data lies.
        wal_disk: Where pg_wal lies; absent: with the data.
    """

    name: str | None = None
    instance: str | None = None
    cpus: int | None = None
    memory: str | None = None
    architecture: Literal["x86_64", "arm64"] | None = None
    disk: DiskSpec | None = None
    wal_disk: DiskSpec | None = None

    def __post_init__(self) -> None:
        """Refuse a machine of which too little is said."""
        if self.instance is not None:
            try:
                find_instance(self.instance)
            except SpecError as exc:
                raise ValueError(f"instance {self.instance!r} is unknown; {exc.hint}") from exc
        elif self.cpus is None or self.memory is None or self.disk is None:
            raise ValueError("cpus, memory and disk are needed, or an instance")
        if self.cpus is not None and self.cpus < 1:
            raise ValueError(f"cpus {self.cpus} is not above 0")
        _ = self.memory_bytes

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
        return msgspec.convert(tomllib.loads(text), HostSpec)
    except tomllib.TOMLDecodeError as exc:
        raise SpecError(
            f"{source} is not valid TOML", detail=str(exc), hint='text needs quotes: memory = "64GB"'
        ) from exc
    except msgspec.ValidationError as exc:
        raise _spec_error(str(exc), text=text, source=source) from exc


def _check_array(count: int, raid: int | None) -> None:
    if count < 1:
        raise ValueError(f"count {count} is not above 0")
    if count > 1 and raid is None:
        raise ValueError(f"raid is missing: say how the {count} are put together: 0, 1 or 10")
    if raid is not None and count < 2:
        raise ValueError(f"raid {raid} needs a count of disks")
    if raid == 10 and (count < 4 or count % 2):
        raise ValueError(f"count {count} makes no raid 10: it takes pairs, two at least")


def _read_bytes(key: str, text: str) -> float:
    try:
        value = parse_in_unit(text, "B", is_integer=False)
    except ValueError as exc:
        raise ValueError(f"{key} {exc}") from exc
    if text.strip()[-1:].isdigit() or value < 1:
        raise ValueError(f"{key} {text!r} is no size such as 64GB")
    return value


def _spec_error(message: str, *, text: str, source: str) -> SpecError:
    found = _PATH.search(message)
    path = found[1] if found else ""
    fact = _EXPECTED.sub(r"expected \1, got \2", _PATH.sub("", message))
    table = DiskSpec if path.startswith(("disk", "wal_disk")) else HostSpec
    kinds = {field.name: field.type for field in msgspec.structs.fields(table)}
    hint = f"keys are {', '.join(kinds)}"
    unknown = _UNKNOWN.search(fact)
    if unknown:
        path = f"{path}.{unknown[1]}".lstrip(".")
        fact = f"unknown key {unknown[1]}"
        nearest = difflib.get_close_matches(unknown[1], kinds, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else hint
    # What a value is checked for begins with its key; msgspec names only the table.
    first = fact.split(maxsplit=1)[0]
    if first in kinds and path.rpartition(".")[2] != first:
        path = f"{path}.{first}".lstrip(".")
    choices = _choices_of(kinds.get(path.rpartition(".")[2]))
    if choices:
        hint = f"one of {', '.join(choices)}"
    line = find_line(text, path) if path else None
    where = f"{source}, line {line}" if line else source
    return SpecError(f"{where}: {fact[:1].lower()}{fact[1:]}", detail=f"key {path}" if path else "", hint=hint)


def _choices_of(kind: object) -> list[str]:
    """What a key takes, where it takes only some values."""
    literals = [part for part in typing.get_args(kind) if typing.get_origin(part) is Literal]
    return [str(choice) for literal in literals for choice in typing.get_args(literal)]

"""Define the choices that initdb makes for good: checksums, the size of WAL segments, encoding and locale.

They are keys of `[data]` and of variants. Without a word the clusters are as they always were: with checksums, segments of
16 MB, UTF8, and the locale C.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from pgdyno.spec.table import SettingValue, StudyTable
from pgdyno.units import parse_in_unit

DEFAULT_SEGMENT_MB = 16
SEGMENTS_OF_MAX_WAL = 64
"""Segments of the max_wal_size that initdb writes. Source: src/include/pg_config_manual.h, DEFAULT_MAX_WAL_SEGS."""
# Source: PostgreSQL 18 manual, initdb, --wal-segsize: a power of 2 from 1 to 1024 megabytes.
_MOST_SEGMENT_MB = 1024
# What follows goes into a command line and into a file name.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")
_SWITCH = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


class LocaleProvider(enum.Enum):
    """Provider of the default collation."""

    LIBC = "libc"
    ICU = "icu"
    BUILTIN = "builtin"


class InitdbTable(StudyTable, frozen=True, kw_only=True):
    """The base of tables whose clusters initdb makes; an absent key keeps what is otherwise chosen.

    Attributes:
        checksums: Whether data pages have checksums.
        wal_segment_size: Size of a WAL segment, such as `64MB`. initdb sets max_wal_size to 64 segments.
        encoding: Encoding of the databases, such as `UTF8`.
        locale: Locale of the databases: for libc one that the machine has, such as `en_US.UTF-8`.
        locale_provider: Provider of that locale: `libc`, `icu`, or from PostgreSQL 17 on `builtin`.
    """

    checksums: bool | None = None
    wal_segment_size: str | None = None
    encoding: str | None = None
    locale: str | None = None
    locale_provider: LocaleProvider | None = None

    def check_initdb(self) -> None:
        """Refuse what initdb would refuse.

        Raises:
            ValueError: A key is invalid.
        """
        segment_mb = self.segment_mb
        if segment_mb is not None and (segment_mb & (segment_mb - 1) or not 1 <= segment_mb <= _MOST_SEGMENT_MB):
            raise ValueError(f"wal_segment_size {self.wal_segment_size} is not a power of 2 from 1MB to 1GB")
        for key in ("encoding", "locale"):
            if (word := getattr(self, key)) is not None and not _WORD.fullmatch(word):
                raise ValueError(f"{key} {word!r} is not the name of one")

    @property
    def segment_mb(self) -> int | None:
        """Size of a WAL segment in MB; None without a choice.

        Raises:
            ValueError: It is no size in whole megabytes.
        """
        if self.wal_segment_size is None:
            return None
        try:
            return int(parse_in_unit(self.wal_segment_size, "MB", is_integer=True))
        except ValueError as exc:
            raise ValueError(f"wal_segment_size {exc}") from exc


def is_in_whole_mb(size: str) -> bool:
    """Return whether a valid size of a WAL segment is in whole megabytes; any other would be rounded."""
    return parse_in_unit(size, "MB", is_integer=False).is_integer()


class InitdbChoices(InitdbTable, frozen=True, kw_only=True):
    """The choices of one cluster; those that are the usual ones are None."""


_USUAL = InitdbChoices(
    checksums=True,
    wal_segment_size=f"{DEFAULT_SEGMENT_MB}MB",
    encoding="UTF8",
    locale="C",
    locale_provider=LocaleProvider.LIBC,
)


Table = TypeVar("Table", bound=InitdbTable)
INITDB_KEYS = tuple(field.name for field in msgspec.structs.fields(InitdbTable))


def combine_choices(base: InitdbTable, over: InitdbTable | None = None) -> InitdbChoices:
    """Return the choices of a cluster: those of a variant, where it has any, else the study's."""
    said = {
        key: value
        for key in INITDB_KEYS
        for value in [None if over is None else getattr(over, key)]
        for value in [getattr(base, key) if value is None else value]
    }
    chosen = InitdbChoices(**said)
    size = None if chosen.segment_mb is None else f"{chosen.segment_mb}MB"
    chosen = msgspec.structs.replace(chosen, wal_segment_size=size)
    usual = [key for key in INITDB_KEYS if getattr(chosen, key) == getattr(_USUAL, key)]
    return msgspec.structs.replace(chosen, **dict.fromkeys(usual))


def with_choices(data: Table, choices: InitdbChoices) -> Table:
    """Return a table with the choices of one cluster in place of its own."""
    return msgspec.structs.replace(data, **msgspec.structs.asdict(choices))


def show_choices(table: InitdbTable) -> dict[str, str]:
    """Return what a table chooses, as the user would write it."""
    said: dict[str, object] = {
        "checksums": None if table.checksums is None else "on" if table.checksums else "off",
        "wal_segment_size": table.wal_segment_size,
        "encoding": table.encoding,
        "locale": table.locale,
        "locale_provider": None if table.locale_provider is None else table.locale_provider.value,
    }
    return {key: str(value) for key, value in said.items() if value is not None}


def show_usual(key: str) -> str:
    """Return the value of a key that nobody chose, as the user would write it."""
    return show_choices(_USUAL)[key]


def read_choices(levels: Mapping[str, SettingValue]) -> InitdbChoices:
    """Make choices from values by name, which may be text from a command line.

    Raises:
        ValueError: A name or a value is invalid.
    """
    unknown = next((name for name in levels if name not in INITDB_KEYS), None)
    if unknown is not None:
        raise ValueError(f"{unknown} is not one of {', '.join(INITDB_KEYS)}")
    read: dict[str, object] = {name: str(level) for name, level in levels.items()}
    if "checksums" in levels:
        word = str(levels["checksums"]).lower()
        if word not in _SWITCH:
            raise ValueError(f"checksums {levels['checksums']!r} is neither on nor off")
        read["checksums"] = _SWITCH[word]
    providers = [provider.value for provider in LocaleProvider]
    if levels.get("locale_provider", providers[0]) not in providers:
        raise ValueError(f"locale_provider {levels['locale_provider']!r} is not one of {', '.join(providers)}")
    made = msgspec.convert(read, InitdbChoices)
    made.check_initdb()
    return made

"""Read `views.toml`: the view and column of each statistics counter in each major version of PostgreSQL.

PostgreSQL moves, drops and redefines counters (17 moved checkpoints, 18 moved WAL timing). Samplers and reports
therefore use canonical names that end in their unit; only this room knows the view and column of each. Nothing is
guessed: a version without a line in `views.toml` is an error, and a counter that a version lacks is absent with a
reason.
"""

from __future__ import annotations

import enum
import functools
import importlib.resources
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError

_Source = TypeVar("_Source")

SUPPORTED_MAJORS = (15, 16, 17, 18)
IO_DIMENSIONS = ("backend_type", "object", "context")
"""Columns that identify a row of pg_stat_io."""
IO_OBJECT_WITH_WAL_TIMING = "wal"
"""Object of pg_stat_io whose times depend on track_wal_io_timing.

Source: PostgreSQL 18 manual, section 19.9.1, track_wal_io_timing.
"""
TIMING_SETTINGS = ("track_io_timing", "track_wal_io_timing")


class Unit(enum.Enum):
    """Unit of a counter."""

    COUNT = "count"
    PAGES = "pages"
    BYTES = "bytes"
    MS = "ms"


class FromColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="column", tag_field="from"):
    """A column of a view that has one row (pg_stat_database: one for the watched database)."""

    view: str
    column: str


class FromFunction(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="function", tag_field="from"
):
    """An SQL expression of functions, without a view."""

    call: str


class FromIo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="io", tag_field="from"):
    """The sum of a canonical I/O column over all rows of pg_stat_io for one object."""

    column: str
    object: str


class FromIoColumn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="io_column", tag_field="from"
):
    """A column of pg_stat_io, or an SQL expression of its columns."""

    sql: str


class Absent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="nowhere", tag_field="from"):
    """The version lacks the counter."""

    reason: str


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """A cumulative counter of the server in one version. `needs` names the setting that must be on for it."""

    name: str
    unit: Unit
    meaning: str
    source: FromColumn | FromFunction | FromIo | Absent
    needs: str | None = None


class IoColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A cumulative counter in each row of pg_stat_io, in one version."""

    name: str
    unit: Unit
    meaning: str
    source: FromIoColumn | Absent
    needs: str | None = None

    def setting_needed(self, io_object: str) -> str | None:
        """Return the setting that the column needs in rows of an object; None if it always counts."""
        if self.needs is not None and io_object == IO_OBJECT_WITH_WAL_TIMING:
            return "track_wal_io_timing"
        return self.needs


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True):
    """All counters of one major version, in the order of `views.toml`."""

    version_major: int
    counters: tuple[Counter, ...]
    io_columns: tuple[IoColumn, ...]

    @property
    def direct(self) -> tuple[Counter, ...]:
        """Counters from a single row; the others come from pg_stat_io or are absent."""
        return tuple(counter for counter in self.counters if isinstance(counter.source, FromColumn | FromFunction))

    @property
    def io(self) -> tuple[IoColumn, ...]:
        """Columns of this version's pg_stat_io; empty before 16."""
        return tuple(column for column in self.io_columns if isinstance(column.source, FromIoColumn))


class _CounterEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    unit: Unit
    meaning: str
    read: dict[str, FromColumn | FromFunction | FromIo | Absent]
    needs: str | None = None


class _IoEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    unit: Unit
    meaning: str
    read: dict[str, FromIoColumn | Absent]
    needs: str | None = None


class _Views(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    counter: tuple[_CounterEntry, ...]
    io_column: tuple[_IoEntry, ...]


@functools.cache
def server_counters(version_major: int) -> ServerCounters:
    """Return every counter that pgdyno knows, for one major version of PostgreSQL.

    Raises:
        HostError: pgdyno does not know that version's views.
    """
    if version_major not in SUPPORTED_MAJORS:
        raise HostError(
            f"PostgreSQL {version_major} is not supported",
            detail=f"its statistics views are known for {', '.join(map(str, SUPPORTED_MAJORS))}",
            hint="use one of these versions",
        )
    views = _read_views()
    return ServerCounters(
        version_major=version_major,
        counters=tuple(
            Counter(
                name=e.name, unit=e.unit, meaning=e.meaning, needs=e.needs, source=_pick(e.name, e.read, version_major)
            )
            for e in views.counter
        ),
        io_columns=tuple(
            IoColumn(
                name=e.name, unit=e.unit, meaning=e.meaning, needs=e.needs, source=_pick(e.name, e.read, version_major)
            )
            for e in views.io_column
        ),
    )


@functools.cache
def _read_views() -> _Views:
    text = importlib.resources.files("pgdyno.facts").joinpath("views.toml").read_bytes()
    return msgspec.toml.decode(text, type=_Views)


def _pick(name: str, read: dict[str, _Source], version_major: int) -> _Source:
    for versions, source in read.items():
        first, _, last = versions.partition("-")
        if int(first) <= version_major <= int(last or first):
            return source
    raise LookupError(f"views.toml says nothing of {name} in PostgreSQL {version_major}")

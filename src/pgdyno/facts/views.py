"""Read `views.toml`: the view and column of each statistics counter in each major version of PostgreSQL.

PostgreSQL moves, drops and redefines counters (17 moved checkpoints, 18 moved WAL timing). Samplers and reports
therefore use canonical names that end in their unit; only this room knows the view and column of each. Nothing is
guessed: a counter that a version lacks is absent with a reason. A version newer than the versions that pgdyno was tried with is
read as the newest of them, after its own catalogue has confirmed each column (`readable_counters.py`).
"""

from __future__ import annotations

import enum
import functools
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError
from pgdyno.facts.data_file import read_toml
from pgdyno.facts.versions import CATALOGUED_MAJORS, TRIED_MAJORS, WHAT_IS_SUPPORTED, find_range, is_supported

_Source = TypeVar("_Source")
IO_VIEW = "pg_stat_io"
STANDBY_DIMENSIONS = ("name", "state", "sync_state")
"""What is sampled of each standby beside its lags: its name, and what it is to the server."""
IO_DIMENSIONS = ("backend_type", "object", "context")
"""Columns that identify a row of pg_stat_io."""
TIMING_SETTINGS = ("track_io_timing", "track_wal_io_timing")
"""Settings without which a server counts no times of I/O."""
_OF_DATABASE = "pg_stat_database"


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


class FromSum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="sum", tag_field="from"):
    """The sum of a column over all rows of a view."""

    view: str
    column: str


class FromIo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="io", tag_field="from"):
    """The sum of a canonical I/O column over all rows of pg_stat_io for one object, or over all but those of one context."""

    column: str
    object: str
    without: str | None = None

    def counts(self, io_object: str, context: str) -> bool:
        """Return whether rows of this object and context are part of the sum."""
        return io_object == self.object and context != self.without


class FromIoColumn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="io_column", tag_field="from"
):
    """A column of pg_stat_io, or an SQL expression of its columns."""

    sql: str


class FromStandby(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="standby", tag_field="from"
):
    """A column of pg_stat_replication, or an SQL expression of its columns."""

    sql: str


class Absent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="nowhere", tag_field="from"):
    """The version lacks the counter."""

    reason: str


CounterSource = FromColumn | FromFunction | FromSum | FromIo | Absent


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """A cumulative counter of the server in one version. `needs` names the setting that must be on for it."""

    name: str
    unit: Unit
    meaning: str
    source: CounterSource
    needs: str | None = None


class IoColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A cumulative counter in each row of pg_stat_io, in one version."""

    name: str
    unit: Unit
    meaning: str
    source: FromIoColumn | Absent
    needs: str | None = None


class StandbyColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A value of each row of pg_stat_replication, in one version."""

    name: str
    unit: Unit
    meaning: str
    source: FromStandby


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True):
    """All counters of one major version, in the order of `views.toml`."""

    version_major: int
    counters: tuple[Counter, ...]
    io_columns: tuple[IoColumn, ...]

    @property
    def direct(self) -> tuple[Counter, ...]:
        """Counters from a single row; the others come from pg_stat_io or are absent."""
        return tuple(
            counter for counter in self.counters if isinstance(counter.source, FromColumn | FromFunction | FromSum)
        )

    @property
    def sources(self) -> dict[str, CounterSource | FromIoColumn]:
        """Sources of all counters by name, with those of pg_stat_io."""
        return {one.name: one.source for one in self.counters} | {one.name: one.source for one in self.io_columns}

    @property
    def io(self) -> tuple[IoColumn, ...]:
        """Columns of this version's pg_stat_io; empty before 16."""
        return tuple(column for column in self.io_columns if isinstance(column.source, FromIoColumn))


class _CounterEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    unit: Unit
    meaning: str
    read: dict[str, CounterSource]
    needs: str | None = None


class _IoEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    unit: Unit
    meaning: str
    read: dict[str, FromIoColumn | Absent]
    needs: str | None = None


class _StandbyEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    unit: Unit
    meaning: str
    read: dict[str, FromStandby]


class _Views(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    counter: tuple[_CounterEntry, ...]
    io_column: tuple[_IoEntry, ...]
    standby_column: tuple[_StandbyEntry, ...]


@functools.cache
def server_counters(version_major: int) -> ServerCounters:
    """Return every counter that pgdyno knows, for one major version of PostgreSQL.

    Raises:
        HostError: pgdyno does not know that version's views.
    """
    if not is_supported(version_major):
        raise HostError(
            f"PostgreSQL {version_major} is not supported",
            detail=f"pgdyno takes versions {WHAT_IS_SUPPORTED}",
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
def standby_columns(version_major: int) -> tuple[StandbyColumn, ...]:
    """Return what one major version of PostgreSQL says of each of its standbys, in the order of `views.toml`."""
    return tuple(
        StandbyColumn(name=e.name, unit=e.unit, meaning=e.meaning, source=_pick(e.name, e.read, version_major))
        for e in _read_views().standby_column
    )


@functools.cache
def _read_views() -> _Views:
    return read_toml("views.toml", _Views)


def _pick(name: str, read: dict[str, _Source], version_major: int) -> _Source:
    versions = find_range(read, version_major)
    if versions is None:
        raise LookupError(f"views.toml says nothing of {name} in PostgreSQL {version_major}")
    return read[versions]


@functools.cache
def list_shared_counters() -> frozenset[str]:
    """List the counters that count for the whole server, and not for the watched database alone."""
    return frozenset(
        entry.name
        for entry in _read_views().counter
        for source in entry.read.values()
        if not (isinstance(source, FromColumn) and source.view == _OF_DATABASE)
    )


@functools.cache
def find_reset_with(name: str) -> frozenset[str]:
    """Find the counters of the view that a counter is read from, in any version: a reset takes all of them back to 0.

    Sums over all databases are left out, because they also fall where a database is dropped.
    """
    found = set()
    for major in (*TRIED_MAJORS, *CATALOGUED_MAJORS):
        sources = {counter.name: counter.source for counter in server_counters(major).counters}
        view = _name_view(sources.get(name))
        found |= {
            other
            for other, source in sources.items()
            if view is not None
            and _name_view(source) == view
            and not (isinstance(source, FromSum) and view == _OF_DATABASE)
        }
    return frozenset(found)


def _name_view(source: CounterSource | None) -> str | None:
    match source:
        case FromColumn() | FromSum():
            return source.view
        case FromIo():
            return IO_VIEW
        case _:
            return None


def describe_source(source: CounterSource | FromIoColumn) -> str:
    """Say where a counter is read, as PostgreSQL calls it."""
    match source:
        case FromColumn() | FromSum():
            return f"{source.view}.{source.column}"
        case FromFunction():
            return source.call
        case FromIo():
            return f"{IO_VIEW} with object = {source.object}"
        case FromIoColumn():
            return f"{IO_VIEW}.{source.sql}"
        case Absent():
            return ""

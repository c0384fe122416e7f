"""Where each statistics counter lives in each major version of PostgreSQL: the typed reader of `views.toml`.

PostgreSQL moves, drops and redefines its counters (17 moved checkpoints, 18 moved WAL timing), so samplers and reports
speak of canonical names that end in their unit, and only this room knows which view and column carries one.
It refuses to guess: a version without a line in `views.toml` is an error, and what a version lacks is absent with a reason.
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
"""What tells the rows of pg_stat_io apart; the names of its columns."""
"""The times of this object's rows follow track_wal_io_timing.

Source: PostgreSQL 18 manual, section 19.9.1, track_wal_io_timing.
"""
TIMING_SETTINGS = ("track_io_timing", "track_wal_io_timing")


class Unit(enum.Enum):
    """What one of a counter is."""

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
    """An SQL expression of functions, of no view."""

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
    """This version does not have it."""

    reason: str


class Counter(msgspec.Struct, frozen=True, kw_only=True):
    """A cumulative counter of the server as one version has it. `needs` names the setting that must be on for it."""

    name: str
    unit: Unit
    meaning: str
    source: FromColumn | FromFunction | FromIo | Absent
    needs: str | None = None


class IoColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A cumulative counter that each row of pg_stat_io carries, as one version has it."""

    name: str
    unit: Unit
    meaning: str
    source: FromIoColumn | Absent
    needs: str | None = None


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True):
    """All counters, in the order of `views.toml`, as one major version has them."""

    version_major: int
    counters: tuple[Counter, ...]
    io_columns: tuple[IoColumn, ...]

    @property
    def direct(self) -> tuple[Counter, ...]:
        """Counters that one row of one query answers; the others come from pg_stat_io or not at all."""
        return tuple(counter for counter in self.counters if isinstance(counter.source, FromColumn | FromFunction))

    @property
    def io(self) -> tuple[IoColumn, ...]:
        """Columns that this version's pg_stat_io has; empty before 16."""
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
    """Every counter pgdyno knows, as PostgreSQL `version_major` carries it.

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

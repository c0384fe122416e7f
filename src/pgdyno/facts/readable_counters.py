"""Tell which counters a server can give: those that its own catalogue confirms, and that the role may read.

A version newer than those that pgdyno was tried with is read as the newest of them; what its catalogue lacks is absent with the
reason, and so is what a view refuses to the role.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from pgdyno.facts.views import (
    IO_DIMENSIONS,
    IO_VIEW,
    Absent,
    Counter,
    CounterSource,
    FromColumn,
    FromFunction,
    FromIo,
    FromIoColumn,
    FromSum,
    IoColumn,
    ServerCounters,
    describe_source,
)

_COLUMN = re.compile(r"[a-z_]\w*")
_FUNCTION = re.compile(r"([a-z_]\w*)\(")
_Readable = TypeVar("_Readable", Counter, IoColumn)


class ServerCatalogue(msgspec.Struct, frozen=True, kw_only=True):
    """What a real server has of that which counters are read from."""

    columns: dict[str, frozenset[str]]
    """By view."""
    functions: frozenset[str]
    io_objects: frozenset[str]
    """That rows of pg_stat_io are about."""


def views_read(facts: ServerCounters) -> tuple[str, ...]:
    """List the views that counters are read from."""
    named = {c.source.view for c in facts.counters if isinstance(c.source, FromColumn | FromSum)}
    return tuple(sorted(named | {IO_VIEW}))


def functions_read(facts: ServerCounters) -> tuple[str, ...]:
    """List the functions that counters are read from."""
    calls = (c.source.call for c in facts.counters if isinstance(c.source, FromFunction))
    return tuple(sorted({name for call in calls for name in name_functions(call)}))


def name_functions(call: str) -> tuple[str, ...]:
    """List the functions in an SQL expression."""
    return tuple(_FUNCTION.findall(call))


def confirm_counters(facts: ServerCounters, server: ServerCatalogue) -> ServerCounters:
    """Keep the counters that a real server has where the facts say; each of the others is absent, with the reason."""
    io_columns = tuple(
        msgspec.structs.replace(c, source=_confirm_io(c.source, facts, server)) for c in facts.io_columns
    )
    readable = {c.name for c in io_columns if isinstance(c.source, FromIoColumn)}
    counters = []
    for counter in facts.counters:
        lacking = _find_lacking(counter.source, server, readable)
        source = Absent(reason=_say_lacking(facts, lacking)) if lacking else counter.source
        counters.append(msgspec.structs.replace(counter, source=source))
    return msgspec.structs.replace(facts, counters=tuple(counters), io_columns=io_columns)


def describe_lost(expected: ServerCounters, confirmed: ServerCounters) -> str:
    """Name the counters that a server does not have where they are expected; empty where it has all."""
    lost = [
        f"{name} ({describe_source(source)})"
        for name, source in expected.sources.items()
        if not isinstance(source, Absent) and isinstance(confirmed.sources[name], Absent)
    ]
    return (
        f"this PostgreSQL {expected.version_major} does not have, where older versions have them: {', '.join(lost)}"
        if lost
        else ""
    )


def without_refused(facts: ServerCounters, refused: Mapping[str, str]) -> ServerCounters:
    """Return the counters without those that a server refuses to this role; these are absent, with the server's words.

    Args:
        facts: The counters that the server has.
        refused: The server's words, by place as in `name_place`.
    """

    def replace(one: _Readable) -> _Readable:
        words = refused.get(name_place(one.source))
        return one if words is None else msgspec.structs.replace(one, source=Absent(reason=words))

    io_columns = tuple(map(replace, facts.io_columns))
    return msgspec.structs.replace(facts, counters=tuple(map(replace, facts.counters)), io_columns=io_columns)


def name_place(source: CounterSource | FromIoColumn) -> str:
    """Return the view or function that a role must be allowed to read for a counter; empty for one that is absent."""
    match source:
        case FromColumn() | FromSum():
            return source.view
        case FromFunction():
            return f"{name_functions(source.call)[0]}()"
        case FromIo() | FromIoColumn():
            return IO_VIEW
        case Absent():
            return ""


def _find_lacking(source: CounterSource, server: ServerCatalogue, readable: set[str]) -> str:
    """Find what a source needs and the server lacks; empty where it lacks nothing."""
    match source:
        case FromColumn() | FromSum():
            is_there = source.column in server.columns.get(source.view, ())
        case FromFunction():
            is_there = server.functions.issuperset(name_functions(source.call))
        case FromIo():
            is_there = source.column in readable and source.object in server.io_objects
        case Absent():
            is_there = True
    return "" if is_there else describe_source(source)


def _confirm_io(source: FromIoColumn | Absent, facts: ServerCounters, server: ServerCatalogue) -> FromIoColumn | Absent:
    if isinstance(source, Absent):
        return source
    lacking = {*IO_DIMENSIONS, *_COLUMN.findall(source.sql)} - server.columns.get(IO_VIEW, frozenset())
    named = ", ".join(f"{IO_VIEW}.{name}" for name in sorted(lacking))
    return Absent(reason=_say_lacking(facts, named)) if lacking else source


def _say_lacking(facts: ServerCounters, lacking: str) -> str:
    return f"this PostgreSQL {facts.version_major} has no {lacking}, where older versions have it"

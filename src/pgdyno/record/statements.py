"""Define what pg_stat_statements counts of each statement, and compute its growth over a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

STATEMENTS = "pg_stat_statements"
"""Source name of gaps in the statements."""


class StatementCounts(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of the load's role, normalised by the server, with its counters."""

    queryid: int
    query: str
    calls: int
    exec_ms: float
    """Without parsing and planning, and of a COMMIT without the flush of its WAL."""
    rows: int
    hit_pages: int
    read_pages: int
    dirtied_pages: int
    written_pages: int
    temp_read_pages: int
    temp_written_pages: int
    wal_records: int
    wal_fpi: int
    wal_bytes: int
    plan_ms: float | None = None
    """None without pg_stat_statements.track_planning."""
    read_ms: float | None = None
    """None without track_io_timing."""
    write_ms: float | None = None


_COUNTERS = tuple(field for field in StatementCounts.__struct_fields__ if field not in {"queryid", "query"})
# The last name that a version has. Source: documentation of pg_stat_statements, versions 15 to 18.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "exec_ms": ("total_exec_time",),
    "plan_ms": ("total_plan_time",),
    "hit_pages": ("shared_blks_hit",),
    "read_pages": ("shared_blks_read",),
    "dirtied_pages": ("shared_blks_dirtied",),
    "written_pages": ("shared_blks_written",),
    "temp_read_pages": ("temp_blks_read",),
    "temp_written_pages": ("temp_blks_written",),
    # Version 17 counts those of temporary tables apart.
    "read_ms": ("blk_read_time", "shared_blk_read_time"),
    "write_ms": ("blk_write_time", "shared_blk_write_time"),
}


class StatementsLook(msgspec.Struct, frozen=True, kw_only=True):
    """The view at one moment."""

    statements: tuple[StatementCounts, ...]
    evicted_count: int
    """How often the view had to forget its least used statements."""
    reset_at: str


class StatementsGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """What a load added to the view, and what is wrong with it."""

    statements: tuple[StatementCounts, ...]
    flaw: str | None


def read_statement(row: Mapping[str, Any], *, has_plan_time: bool, has_io_time: bool) -> StatementCounts:
    """Read a row of the view, of any version, by the names of its columns."""
    values = {name: row[column] for name in _COUNTERS for column in _COLUMNS.get(name, (name,)) if column in row}
    is_timed = {"plan_ms": has_plan_time, "read_ms": has_io_time, "write_ms": has_io_time}
    kept = {name: value for name, value in values.items() if is_timed.get(name, True)}
    return msgspec.convert(
        {"queryid": row["queryid"], "query": row["query"] or "", **kept}, StatementCounts, strict=False
    )


def subtract(before: StatementsLook, after: StatementsLook) -> StatementsGrowth:
    """Compute the growth of each statement that was called in between.

    A statement that the view forgot in between counts from where it began again, which is too little.
    """
    if before.reset_at != after.reset_at:
        return StatementsGrowth(statements=(), flaw="somebody reset it during the load")
    earlier = {one.queryid: one for one in before.statements}
    grown = tuple(_grow(earlier.get(one.queryid), one) for one in after.statements)
    called = tuple(one for one in grown if one.calls > 0)
    later = {one.queryid: one.calls for one in after.statements}
    # Where only one statement is reset, the view's own time of reset stays.
    is_lost = any(later.get(one.queryid, 0) < one.calls for one in before.statements)
    flaw = None if called else "it counted no statement of the load; pg_stat_statements.track = 'top' does"
    if after.evicted_count > before.evicted_count or is_lost:
        flaw = (
            "it forgot statements during the load, so that their counts are too low; a larger pg_stat_statements.max "
            "keeps them"
        )
    return StatementsGrowth(statements=called, flaw=flaw)


def _grow(before: StatementCounts | None, after: StatementCounts) -> StatementCounts:
    if before is None or before.calls > after.calls:
        return after
    return msgspec.structs.replace(after, **{name: _difference(before, after, name) for name in _COUNTERS})


def _difference(before: StatementCounts, after: StatementCounts, name: str) -> float | None:
    earlier, later = getattr(before, name), getattr(after, name)
    return None if earlier is None or later is None else later - earlier

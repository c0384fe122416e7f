"""Read what PostgreSQL counted over a trial's load, as the figures that DBAs know: shares, rates, distances.

They are the growth of counters from just before the load to just after it. Pages by writer come from pg_stat_io if the
server has it, because only that view separates pages written to make room from pages added to a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pgdyno.analyse.health.reading import ObservedTrial, Reading, absent_reading
from pgdyno.record.samples import server_series
from pgdyno.record.serverlog import CheckpointStart
from pgdyno.record.types import RESET_COUNTERS, TableState

# From these counts on, a share does not depend on one page or one checkpoint more or less.
_MIN_PAGES = 1_000
_MIN_CHECKPOINTS = 3
_MIN_ROWS = 1_000
# Source: prometheus-community/postgres_exporter, postgres_mixin, PostgresHasTooManyDeadTuples, and
# awesome-prometheus-alerts, PostgresqlTooManyDeadTuples, count a table from this many dead rows on. A few hundred in a
# tiny table do not matter.
_MIN_DEAD_ROWS = 10_000
# Updates of a table, over those of the most updated table, from which on its own share matters.
_MATTERING_RATIO = 0.1
# Source: pgbench.c, createPartitions().
_PARTITION = re.compile(r"^(pgbench_accounts)_\d+$")
# A share this small is good even if it includes pages that sessions added to files, or rests on few rows.
_GOOD_ENOUGH = 0.05
_WITH_ADDED = "before 16 pages that sessions add to files count as theirs, too"
_NO_LOAD = "the load's beginning or end is not recorded"
# Source: PostgreSQL 18 manual, section 19.4.4, bgwriter_delay.
_BGWRITER_DELAY_MS = 200.0


class _Updates(NamedTuple):
    """A table's rows at the end, its updates over the load, and how many of these were HOT updates."""

    rows: int
    updates: int
    hot: int


class _Pages(NamedTuple):
    """Pages written, by writer; None if unknown, with a reason."""

    checkpointer: float
    bgwriter: float
    sessions: float | None
    is_with_added: bool = False
    """True if the sessions' pages include those that they added to files."""
    reason: str = ""


def backend_written(seen: ObservedTrial) -> Reading:
    """Read the share of written pages that sessions wrote themselves."""
    pages = _count_written(seen)
    if pages.sessions is None:
        return absent_reading(pages.reason)
    total = pages.checkpointer + pages.bgwriter + pages.sessions
    if not total:
        return absent_reading("no page was written")
    reading = Reading(pages.sessions / total, f"{pages.sessions:,.0f} of {total:,.0f} pages")
    if not pages.checkpointer:
        return reading._replace(reason="no checkpoint wrote anything: most dirty pages were still to be written")
    if total < _MIN_PAGES:
        return reading._replace(reason="too few pages were written")
    is_unclear = pages.is_with_added and pages.sessions > _GOOD_ENOUGH * total
    return reading._replace(reason=_WITH_ADDED) if is_unclear else reading


def bgwriter_cleaned(seen: ObservedTrial) -> Reading:
    """Read the background writer's share of the pages that it and sessions wrote to make room."""
    pages = _count_written(seen)
    if pages.sessions is None:
        return absent_reading(pages.reason)
    room = pages.bgwriter + pages.sessions
    if not room:
        return absent_reading("no dirty page had to make room")
    reading = Reading(pages.bgwriter / room, f"{pages.bgwriter:,.0f} of {room:,.0f} pages")
    if pages.is_with_added:
        return reading._replace(reason=_WITH_ADDED)
    if room < max(_MIN_PAGES, _GOOD_ENOUGH * (pages.checkpointer + room)):
        return reading._replace(reason="hardly any dirty page had to make room")
    return reading


def bgwriter_stopped(seen: ObservedTrial) -> Reading:
    """Read the share of the background writer's rounds that ended at bgwriter_lru_maxpages."""
    stopped, load_s = seen.grown("bgwriter_stopped_count"), seen.data.record.load_s
    if stopped.by is None or load_s is None:
        return absent_reading(stopped.reason or _NO_LOAD)
    delay_ms = float(seen.setting("bgwriter_delay") or _BGWRITER_DELAY_MS)
    rounds = max(load_s * 1000.0 / delay_ms, stopped.by)
    return Reading(stopped.by / rounds, f"{stopped.by:,.0f} of about {rounds:,.0f} rounds")


def checkpoints_requested(seen: ObservedTrial) -> Reading:
    """Read the share of checkpoints that were requested rather than timed."""
    requested, timed = "checkpoints_requested_count", "checkpoints_timed_count"
    words, nothing = "{part:,.0f} requested, {rest:,.0f} timed", "no checkpoint began under the load"
    reading = _share(seen, requested, timed, words=words, nothing=nothing)
    total = (seen.grown(requested).by or 0) + (seen.grown(timed).by or 0)
    is_few = reading.value is not None and total < _MIN_CHECKPOINTS
    return reading._replace(reason="too few checkpoints for a share") if is_few else reading


def checkpoint_distance(seen: ObservedTrial) -> Reading:
    """Read the seconds from the beginning of one checkpoint to that of the next, from the server's log."""
    record = seen.data.record
    if record.load_start_monotonic_s is None or record.load_end_monotonic_s is None:
        return absent_reading(_NO_LOAD)
    if not seen.data.log:
        return absent_reading(seen.why_unsampled("server log"))
    if not record.logs_checkpoints:
        return absent_reading("log_checkpoints was off")
    begun = sorted(
        entry.origin.monotonic_s
        for entry in seen.data.log_within_load
        if isinstance(entry, CheckpointStart) and entry.origin is not None
    )
    if len(begun) < 2:
        return absent_reading(f"{len(begun) or 'no'} checkpoint began under the load: two tell a distance")
    return Reading((begun[-1] - begun[0]) / (len(begun) - 1), f"{len(begun)} began under the load")


def wal_rate(seen: ObservedTrial) -> Reading:
    """Read the WAL rate."""
    return _per_second(seen, "wal_insert_lsn_bytes", words="{by:,.0f} bytes in all")


def cache_hits(seen: ObservedTrial) -> Reading:
    """Read the share of pages found in shared_buffers."""
    words = "{rest:,.0f} of {total:,.0f} pages missed"
    return _share(seen, "blks_hit_pages", "blks_read_pages", words=words, nothing="no page was asked for")


def temp_files(seen: ObservedTrial) -> Reading:
    """Read the rate of bytes that spilled into temporary files."""
    return _per_second(seen, "temp_bytes", words="{by:,.0f} bytes in all")


def deadlocks(seen: ObservedTrial) -> Reading:
    """Read the deadlocks per minute."""
    reading = _per_second(seen, "deadlocks_count", words="{by:,.0f} in all")
    return reading if reading.value is None else reading._replace(value=reading.value * 60.0)


def rollbacks(seen: ObservedTrial) -> Reading:
    """Read the share of transactions that were rolled back."""
    words = "{part:,.0f} of {total:,.0f}"
    return _share(seen, "xact_rollback_count", "xact_commit_count", words=words, nothing="no transaction ended")


def hot_updates(seen: ObservedTrial) -> Reading:
    """Read the lowest share of HOT updates among tables updated at least a tenth as often as the most updated one."""
    after = seen.data.record.tables_after
    if not after or any(table.updated_count is None for table in after):
        return absent_reading("this record does not hold the tables' counts of updates")
    tables = _count_updates(seen.data.record.tables_before, after)
    # A table that the load made anew, or whose statistics alone were reset, counts from 0.
    tables = {name: one for name, one in tables.items() if min(one.updates, one.hot) >= 0}
    if not tables or seen.data.record.was_reset("tup_updated_count"):
        return absent_reading(RESET_COUNTERS.reason)
    most = max(one.updates for one in tables.values())
    if most < _MIN_ROWS:
        return absent_reading("next to no row was updated")
    mattering = [name for name, one in tables.items() if one.updates >= _MATTERING_RATIO * most]
    name = min(mattering, key=lambda name: tables[name].hot / tables[name].updates)
    rows, updates, hot = tables[name]
    reading = Reading(hot / updates, f"{name}: {hot:,.0f} of {updates:,.0f}")
    if updates < rows:
        return reading._replace(reason=f"{name} has {rows:,} rows: pages that were loaded full have no room yet")
    return reading


def dead_rows(seen: ObservedTrial) -> Reading:
    """Read the largest share of dead rows among the tables with enough of them to matter.

    It is a share of all row versions, not of autovacuum's threshold: a server told to vacuum sooner has no more dead
    rows.
    """
    tables = [one for one in seen.data.record.tables_after if one.live_rows + one.dead_rows >= _MIN_ROWS]
    if not seen.data.record.tables_after:
        return absent_reading("this record does not hold the tables' dead rows")
    if not tables:
        return absent_reading(f"no table has {_MIN_ROWS:,} rows")
    many = [one for one in tables if one.dead_rows >= _MIN_DEAD_ROWS]
    # If no table has many dead rows, the one with most of them shows it best.
    worst = max(many, key=_dead_ratio) if many else max(tables, key=lambda one: one.dead_rows)
    share = _dead_ratio(worst)
    reading = Reading(share, f"{worst.name}: {worst.dead_rows:,} of {worst.live_rows + worst.dead_rows:,}")
    if not many and share > _GOOD_ENOUGH:
        return reading._replace(reason=f"no table has {_MIN_DEAD_ROWS:,} dead rows")
    return reading


def _dead_ratio(table: TableState) -> float:
    return table.dead_rows / (table.live_rows + table.dead_rows)


def _share(seen: ObservedTrial, part: str, rest: str, *, words: str, nothing: str) -> Reading:
    """Read the growth of a counter over the growth of itself and another one; `nothing` is the reason if both are 0."""
    ours, others = seen.grown(part), seen.grown(rest)
    if ours.by is None or others.by is None:
        return absent_reading(ours.reason or others.reason)
    total = ours.by + others.by
    if not total:
        return absent_reading(nothing)
    return Reading(ours.by / total, words.format(part=ours.by, rest=others.by, total=total))


def _per_second(seen: ObservedTrial, name: str, *, words: str) -> Reading:
    """Read the growth of a counter per second of the load."""
    grown, load_s = seen.grown(name), seen.data.record.load_s
    if grown.by is None or load_s is None:
        return absent_reading(grown.reason or _NO_LOAD)
    return Reading(grown.by / load_s, words.format(by=grown.by))


def _count_updates(before: Sequence[TableState], after: Sequence[TableState]) -> dict[str, _Updates]:
    """Count each table's updates over the load; partitions of pgbench_accounts count as one table, as each has few updates."""
    earlier = {table.name: table for table in before}
    counts: dict[str, _Updates] = {}
    for table in after:
        name = _PARTITION.sub(r"\1", table.name)
        rows, updates, hot = counts.get(name, _Updates(0, 0, 0))
        old = earlier.get(table.name)
        counts[name] = _Updates(
            rows=rows + table.live_rows,
            updates=updates + _count_growth(None if old is None else old.updated_count, table.updated_count),
            hot=hot + _count_growth(None if old is None else old.hot_updated_count, table.hot_updated_count),
        )
    return counts


def _count_growth(earlier: int | None, later: int | None) -> int:
    """Return the growth of a counter; less than 0 if the table's statistics were reset, or the table is new."""
    return (later or 0) - (earlier or 0)


def _count_written(seen: ObservedTrial) -> _Pages:
    checkpointer, bgwriter = seen.grown("checkpointer_written_pages"), seen.grown("bgwriter_written_pages")
    if checkpointer.by is None or bgwriter.by is None:
        return _Pages(0.0, 0.0, None, reason=checkpointer.reason or bgwriter.reason)
    pages, samples = _Pages(checkpointer.by, bgwriter.by, None), seen.data.server
    if samples is not None and samples.header is not None and seen.data.record.load_s is not None:
        bytes_per_s = seen.data.mean_within_load(server_series.session_evictions(samples))
        if bytes_per_s is not None:
            return pages._replace(sessions=bytes_per_s * seen.data.record.load_s / samples.header.block_bytes)
    sessions = seen.grown("backend_written_pages")
    if sessions.by is not None:
        return pages._replace(sessions=sessions.by, is_with_added=True)
    return pages._replace(reason=seen.why_unsampled("server sampler"))

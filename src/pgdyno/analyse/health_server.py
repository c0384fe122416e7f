"""What PostgreSQL counted over a trial's load, as the figures that DBAs know: shares, rates, distances.

Growth of counters from just before the load to just after it; who wrote pages comes from pg_stat_io where there is one,
since only that tells pages written to make room from those added to a file.
"""

from __future__ import annotations

from pgdyno.analyse.health_reading import Reading, SeenTrial, unread
from pgdyno.record import server_series
from pgdyno.record.serverlog import CheckpointStart
from pgdyno.record.types import TableState

# From which on a share is a share, and not one page or one checkpoint more or less.
_LEAST_PAGES = 1_000
_LEAST_CHECKPOINTS = 3
_LEAST_ROWS = 1_000
# Of all updates: what a table must have for its own share to matter.
_MATTERING_RATIO = 0.1
_NO_LOAD = "the load's beginning or end is not recorded"
# Source: PostgreSQL 18 manual, section 19.4.4, bgwriter_delay.
_BGWRITER_DELAY_MS = 200.0


def backend_written(seen: SeenTrial) -> Reading:
    """Pages that sessions wrote themselves, of all written."""
    pages = _written(seen)
    if isinstance(pages, str):
        return unread(pages)
    checkpointer, bgwriter, backends, is_with_added = pages
    total = checkpointer + bgwriter + backends
    if not total:
        return unread("no page was written")
    value = backends / total
    evidence = f"{backends:,.0f} of {total:,.0f} pages"
    if not checkpointer:
        return Reading(value, evidence, "no checkpoint wrote anything: most dirty pages were still to be written")
    if total < _LEAST_PAGES:
        return Reading(value, evidence, "too few pages were written")
    if is_with_added:
        evidence += ", those added to files included"
    if is_with_added and value > _GOOD_ENOUGH:
        return Reading(value, evidence, "before 16 pages that sessions add to files count as theirs, too")
    return Reading(value, evidence)


# A share that is good with pages added to files is good without them.
_GOOD_ENOUGH = 0.05


def bgwriter_cleaned(seen: SeenTrial) -> Reading:
    """Pages that the background writer wrote, of those that it and sessions wrote."""
    pages = _written(seen)
    if isinstance(pages, str):
        return unread(pages)
    checkpointer, bgwriter, backends, is_with_added = pages
    room = bgwriter + backends
    if not room:
        return unread("no dirty page had to make room")
    evidence = f"{bgwriter:,.0f} of {room:,.0f} pages"
    if is_with_added:
        return Reading(bgwriter / room, evidence, "before 16 pages that sessions add to files count as theirs, too")
    if room < max(_LEAST_PAGES, _GOOD_ENOUGH * (checkpointer + room)):
        return Reading(bgwriter / room, evidence, "hardly any dirty page had to make room")
    return Reading(bgwriter / room, evidence)


def bgwriter_stopped(seen: SeenTrial) -> Reading:
    """Rounds of the background writer that ended at bgwriter_lru_maxpages."""
    stopped, load_s = seen.grown("bgwriter_stopped_count"), seen.load_s
    if stopped.by is None or load_s is None:
        return unread(stopped.reason or _NO_LOAD)
    delay_ms = float(seen.setting("bgwriter_delay") or _BGWRITER_DELAY_MS)
    rounds = max(load_s * 1000.0 / delay_ms, stopped.by)
    return Reading(stopped.by / rounds, f"{stopped.by:,.0f} of about {rounds:,.0f} rounds")


def checkpoints_requested(seen: SeenTrial) -> Reading:
    """Checkpoints that did not wait for their time."""
    requested, timed = seen.grown("checkpoints_requested_count"), seen.grown("checkpoints_timed_count")
    if requested.by is None or timed.by is None:
        return unread(requested.reason or timed.reason)
    total = requested.by + timed.by
    if not total:
        return unread("no checkpoint began under the load")
    reading = Reading(requested.by / total, f"{requested.by:,.0f} requested, {timed.by:,.0f} timed")
    return reading if total >= _LEAST_CHECKPOINTS else reading._replace(reason="too few checkpoints for a share")


def checkpoint_distance(seen: SeenTrial) -> Reading:
    """Seconds from the beginning of one checkpoint to that of the next, as the server's log has them."""
    start_s, end_s = seen.data.record.load_start_monotonic_s, seen.data.record.load_end_monotonic_s
    if start_s is None or end_s is None:
        return unread(_NO_LOAD)
    if not seen.data.log:
        return unread(seen.why_unsampled("server log"))
    begun = sorted(
        entry.origin.monotonic_s
        for entry in seen.data.log
        if isinstance(entry, CheckpointStart)
        and entry.origin is not None
        and start_s <= entry.origin.monotonic_s <= end_s
    )
    if len(begun) < 2:
        return unread(f"{len(begun) or 'no'} checkpoint began under the load: two tell a distance")
    return Reading((begun[-1] - begun[0]) / (len(begun) - 1), f"{len(begun)} began under the load")


def wal_rate(seen: SeenTrial) -> Reading:
    """WAL in a second."""
    wal, load_s = seen.grown("wal_insert_lsn_bytes"), seen.load_s
    if wal.by is None or load_s is None:
        return unread(wal.reason or _NO_LOAD)
    return Reading(wal.by / load_s)


def cache_hits(seen: SeenTrial) -> Reading:
    """Pages found in shared_buffers."""
    hit, missed = seen.grown("blks_hit_pages"), seen.grown("blks_read_pages")
    if hit.by is None or missed.by is None:
        return unread(hit.reason or missed.reason)
    total = hit.by + missed.by
    if not total:
        return unread("no page was asked for")
    return Reading(hit.by / total, f"{missed.by:,.0f} of {total:,.0f} pages missed")


def temp_files(seen: SeenTrial) -> Reading:
    """Bytes that spilled into files, in a second."""
    spilled, files, load_s = seen.grown("temp_bytes"), seen.grown("temp_files_count"), seen.load_s
    if spilled.by is None or load_s is None:
        return unread(spilled.reason or _NO_LOAD)
    return Reading(spilled.by / load_s, "" if files.by is None else f"{files.by:,.0f} files")


def deadlocks(seen: SeenTrial) -> Reading:
    """Deadlocks in a minute."""
    count, load_s = seen.grown("deadlocks_count"), seen.load_s
    if count.by is None or load_s is None:
        return unread(count.reason or _NO_LOAD)
    return Reading(count.by / load_s * 60.0, f"{count.by:,.0f} in all")


def rollbacks(seen: SeenTrial) -> Reading:
    """Transactions that were rolled back, of all."""
    back, committed = seen.grown("xact_rollback_count"), seen.grown("xact_commit_count")
    if back.by is None or committed.by is None:
        return unread(back.reason or committed.reason)
    total = back.by + committed.by
    if not total:
        return unread("no transaction ended")
    return Reading(back.by / total, f"{back.by:,.0f} of {total:,.0f}")


def hot_updates(seen: SeenTrial) -> Reading:
    """HOT updates of the table where they are fewest, of those with a tenth of all updates or more."""
    before = {table.name: table for table in seen.data.record.tables_before}
    after = seen.data.record.tables_after
    if not after or any(table.updated_count is None for table in after):
        return unread("this record does not hold the tables' counts of updates")
    grown = {table.name: _updates(before.get(table.name), table) for table in after}
    total = sum(updates for updates, _ in grown.values())
    if total < _LEAST_ROWS:
        return unread("next to no row was updated")
    share, name, hot, updates = min(
        (hot / updates, name, hot, updates)
        for name, (updates, hot) in grown.items()
        if updates >= _MATTERING_RATIO * total
    )
    return Reading(share, f"{name}: {hot:,.0f} of {updates:,.0f}")


def dead_rows(seen: SeenTrial) -> Reading:
    """Dead rows of the table where they are most, of those with enough rows to matter."""
    tables = [one for one in seen.data.record.tables_after if one.live_rows + one.dead_rows >= _LEAST_ROWS]
    if not seen.data.record.tables_after:
        return unread("this record does not hold the tables' dead rows")
    if not tables:
        return unread(f"no table has {_LEAST_ROWS:,} rows")
    worst = max(tables, key=lambda one: one.dead_rows / (one.live_rows + one.dead_rows))
    versions = worst.live_rows + worst.dead_rows
    return Reading(worst.dead_rows / versions, f"{worst.name}: {worst.dead_rows:,} of {versions:,}")


def _updates(before: TableState | None, after: TableState) -> tuple[int, int]:
    """Updates and HOT updates of a table over the load; nothing where its statistics were reset."""
    counts = []
    for name in ("updated_count", "hot_updated_count"):
        earlier = 0 if before is None else getattr(before, name) or 0
        counts.append(max(0, (getattr(after, name) or 0) - earlier))
    return counts[0], counts[1]


def _written(seen: SeenTrial) -> tuple[float, float, float, bool] | str:
    """Pages written by checkpointer, background writer and sessions, and whether the last hold those added to files.

    Why nobody knows, where nobody does.
    """
    checkpointer, bgwriter = seen.grown("checkpointer_written_pages"), seen.grown("bgwriter_written_pages")
    if checkpointer.by is None or bgwriter.by is None:
        return checkpointer.reason or bgwriter.reason
    samples = seen.data.server
    if samples is not None and samples.header is not None and seen.load_s is not None:
        bytes_per_s = seen.mean_within(server_series.room_made(samples))
        if bytes_per_s is not None:
            backends = bytes_per_s * seen.load_s / samples.header.block_bytes
            return checkpointer.by, bgwriter.by, backends, False
    backends_grown = seen.grown("backend_written_pages")
    if backends_grown.by is not None:
        return checkpointer.by, bgwriter.by, backends_grown.by, True
    return seen.why_unsampled("server sampler")

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pgdyno.errors import HostError
from pgdyno.facts.readable_counters import name_place
from pgdyno.facts.versions import TRIED_MAJORS
from pgdyno.facts.views import (
    Absent,
    FromColumn,
    FromIo,
    FromIoColumn,
    Unit,
    find_reset_with,
    server_counters,
)
from pgdyno.run.postgres import sql
from tests.facts.clusters import VERSIONS, Cluster
from tests.waiting import wait_until

SUFFIXES = {Unit.COUNT: "_count", Unit.PAGES: "_pages", Unit.BYTES: "_bytes", Unit.MS: "_ms"}


@pytest.mark.parametrize("major", TRIED_MAJORS)
def test_every_version_answers_for_every_counter_and_names_end_in_units(major: int) -> None:
    facts = server_counters(major)
    assert [c.name for c in facts.counters] == [c.name for c in server_counters(15).counters]
    assert len({c.name for c in (*facts.counters, *facts.io_columns)}) == len(facts.counters) + len(facts.io_columns)
    for counter in (*facts.counters, *facts.io_columns):
        assert counter.name.endswith(SUFFIXES[counter.unit])
        if isinstance(counter.source, Absent):
            assert counter.source.reason
        if isinstance(counter.source, FromIo):
            assert counter.source.column in {c.name for c in facts.io}


def test_an_unknown_version_is_refused_with_those_known() -> None:
    with pytest.raises(HostError, match="PostgreSQL 14 is not supported") as caught:
        server_counters(14)
    assert "15 to 18" in caught.value.detail


def columns_of(connection: sql.Connection, view: str) -> set[str]:
    query = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
    return {row["attname"] for row in connection.execute(query, (view,))}


@pytest.mark.parametrize("major", VERSIONS)
def test_each_column_is_where_the_facts_say_and_nowhere_else(major: int, cluster_of: Callable[[int], Cluster]) -> None:
    facts = server_counters(major)
    with sql.connect(cluster_of(major).address) as connection:
        assert connection.info.server_version // 10_000 == major
        for counter in facts.counters:
            if isinstance(counter.source, FromColumn):
                assert counter.source.column in columns_of(connection, counter.source.view), counter.name
                continue
            # What this version reads elsewhere, or has not, is indeed gone from where other versions have it.
            others = [c.source for m in TRIED_MAJORS for c in server_counters(m).counters if c.name == counter.name]
            for source in others:
                if isinstance(source, FromColumn):
                    assert source.column not in columns_of(connection, source.view), counter.name
        io_columns = columns_of(connection, "pg_stat_io")
        assert bool(io_columns) is bool(facts.io)
        for column in facts.io:
            assert isinstance(column.source, FromIoColumn)
            assert set(column.source.sql.split(" * ")) <= io_columns


MOVED = (
    *("wal_fpi_count", "wal_records_count", "wal_sync_count", "wal_write_count", "wal_sync_ms", "wal_write_ms"),
    *("blks_read_pages", "blks_hit_pages", "buffers_alloc_pages", "blk_read_ms", "active_ms", "session_ms"),
    *("checkpointer_written_pages", "checkpoint_write_ms", "tup_returned_count", "tup_fetched_count"),
)


def provoke(connection: sql.Connection) -> None:
    """Things that must move each of the counters by known amounts, or at least move them."""
    connection.execute("SET synchronous_commit = on")
    connection.execute("CREATE TABLE numbers AS SELECT i, repeat('x', 100) AS filler FROM generate_series(1, 50000) i")
    connection.execute("CHECKPOINT")
    connection.execute("INSERT INTO numbers SELECT i, repeat('y', 100) FROM generate_series(1, 1000) i")
    connection.execute("UPDATE numbers SET filler = 'z' WHERE i <= 500")
    connection.execute("DELETE FROM numbers WHERE i <= 10")
    with pytest.raises(Exception, match="division by zero"):
        connection.execute("SELECT 1 / 0")
    connection.execute("SET work_mem = '64kB'")
    connection.execute("SELECT count(*) FROM (SELECT * FROM numbers ORDER BY filler, i) AS sorted")
    connection.execute("CHECKPOINT")


@pytest.mark.parametrize("major", VERSIONS)
def test_counters_count_what_happens(major: int, cluster_of: Callable[[int], Cluster]) -> None:
    with sql.connect(cluster_of(major).address) as watching:
        wait_for_others(watching)
        before = sql.read_counters(watching, watched_database="postgres")
        with sql.connect(cluster_of(major).address) as working:
            provoke(working)
        grown = wait_for_growth(watching, before)
    assert grown["tup_inserted_count"] >= 51_000
    assert grown["tup_updated_count"] >= 500 + 500
    assert grown["tup_deleted_count"] >= 20
    assert grown["xact_rollback_count"] >= 1
    assert grown["xact_commit_count"] >= 8
    assert grown["server_xact_commit_count"] >= grown["xact_commit_count"]
    assert grown["server_xact_rollback_count"] >= 1
    assert grown["temp_files_count"] >= 1
    assert grown["temp_bytes"] > 50_000 * 8
    assert grown["checkpoints_requested_count"] == 2
    assert grown["checkpoints_timed_count"] == 0
    assert grown["deadlocks_count"] == 0
    # The WAL's position and what backends report of it are the same volume, but for headers and padding.
    assert grown["wal_bytes"] == pytest.approx(grown["wal_insert_lsn_bytes"], rel=0.05)
    assert grown["wal_bytes"] > 50_000 * 100
    for name in MOVED:
        assert grown[name] > 0, name
    assert grown["wal_flush_lsn_bytes"] > 50_000 * 100
    if major <= 16:
        # 1 MB of shared_buffers cannot hold the table: the backend wrote and extended itself.
        assert grown["backend_written_pages"] > 500
    else:
        assert before["backend_written_pages"] is None
    assert (before["checkpoints_done_count"] is None) is (major < 18)
    if major >= 18:
        assert grown["checkpoints_done_count"] == 2


NORMAL_WAL = """
    SELECT sum(writes)::int8 AS wal_write_count, sum(fsyncs)::int8 AS wal_sync_count,
           sum(write_time) AS wal_write_ms, sum(fsync_time) AS wal_sync_ms
    FROM pg_stat_io WHERE object = 'wal' AND context = 'normal'
"""


@pytest.mark.cluster
def test_making_segments_is_no_write_or_flush_of_the_wal(cluster_of: Callable[[int], Cluster]) -> None:
    """As in pg_stat_wal up to 17; pg_stat_io of 18 has it."""
    with sql.connect(cluster_of(18).address) as watching, sql.connect(cluster_of(18).address) as working:
        already = count_made_segments(watching)
        # The first ones may have been there.
        for number in range(40):
            working.execute(f"CREATE TABLE segment_{number} ()")
            working.execute("SELECT pg_switch_wal()")
            working.execute("SELECT pg_stat_force_next_flush()")
            if count_made_segments(watching) >= already + 4:
                break
        assert count_made_segments(watching) >= already + 4
        before = watching.execute(NORMAL_WAL).fetchone()
        counted = sql.read_counters(watching, watched_database="postgres")
        after = watching.execute(NORMAL_WAL).fetchone()
    for name in before:
        assert before[name] - 1e-6 <= counted[name] <= after[name] + 1e-6, name


def count_made_segments(connection: sql.Connection) -> int:
    row = connection.execute("SELECT sum(fsyncs)::int8 AS n FROM pg_stat_io WHERE object = 'wal' AND context = 'init'")
    return row.fetchone()["n"]


RESETS = {
    "pg_stat_wal": "pg_stat_reset_shared('wal')",
    "pg_stat_bgwriter": "pg_stat_reset_shared('bgwriter')",
    "pg_stat_checkpointer": "pg_stat_reset_shared('checkpointer')",
    "pg_stat_io": "pg_stat_reset_shared('io')",
    "pg_stat_database": "pg_stat_reset()",
}


@pytest.mark.parametrize("major", VERSIONS)
def test_each_counter_that_a_reset_takes_back_tells_of_all_the_others(
    major: int, cluster_of: Callable[[int], Cluster]
) -> None:
    views = {
        name_place(counter.source) for counter in server_counters(major).counters if isinstance(counter.source, FromIo)
    } | {counter.source.view for counter in server_counters(major).counters if isinstance(counter.source, FromColumn)}
    with sql.connect(cluster_of(major).address) as working:
        # Other tests of this server leave it.
        working.execute("DROP TABLE IF EXISTS numbers")
        provoke(working)
        working.execute("DROP TABLE numbers")
    with sql.connect(cluster_of(major).address) as watching:
        for view in views:
            before = sql.read_counters(watching, watched_database="postgres")
            watching.execute(f"SELECT {RESETS[view]}")
            after = sql.read_counters(watching, watched_database="postgres")
            fallen = {name for name, value in after.items() if (value or 0) < (before[name] or 0)}
            fallen -= {"server_xact_commit_count", "server_xact_rollback_count"}
            assert fallen, view
            for name in fallen:
                assert fallen <= find_reset_with(name)


def wait_for_others(connection: sql.Connection) -> None:
    """Until all that was done before has been reported: sessions do so as they end, other processes before they sleep."""
    at_work = """
        SELECT count(*) AS n FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (
            backend_type IN ('client backend', 'parallel worker')
            OR backend_type IN ('checkpointer', 'background writer', 'walwriter')
               AND wait_event_type IS DISTINCT FROM 'Activity')
    """
    assert wait_until(lambda: connection.execute(at_work).fetchone()["n"] == 0)


def wait_for_growth(connection: sql.Connection, before: sql.Values) -> dict[str, float]:
    """The growth, once every process has reported: backends when they end, the others within a second or so."""
    deadline = time.monotonic() + 600
    while True:
        after = sql.read_counters(connection, watched_database="postgres")
        grown = {name: (value or 0) - (before[name] or 0) for name, value in after.items()}
        has_settled = (
            all(grown[name] > 0 for name in MOVED)
            # The checkpointer reports after it has answered whoever asked for a checkpoint.
            and grown["checkpoints_requested_count"] >= 2
            and grown["wal_bytes"] > 0.96 * grown["wal_insert_lsn_bytes"]
        )
        if has_settled or time.monotonic() > deadline:
            return grown
        time.sleep(0.05)


@pytest.mark.parametrize("major", [pytest.param(m, marks=pytest.mark.cluster) for m in (16, 18)])
def test_io_rows_agree_with_the_relation_that_was_read(major: int, cluster_of: Callable[[int], Cluster]) -> None:
    query = sql.io_query(server_counters(major))
    assert query is not None
    with sql.connect(cluster_of(major).address) as watching:
        wait_for_others(watching)
        before = read_bytes(watching, query)
        with sql.connect(cluster_of(major).address) as working:
            working.execute("CREATE TABLE pages AS SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i")
            working.execute("CHECKPOINT")
            size = working.execute("SELECT pg_relation_size('pages') AS size").fetchall()[0]["size"]
            working.execute("SET max_parallel_workers_per_gather = 0")
            working.execute("SELECT count(*) FROM pages")
        deadline = time.monotonic() + 600
        while (grown := read_bytes(watching, query) - before) < 0.9 * size and time.monotonic() < deadline:
            time.sleep(0.05)
    # At most all of its pages, and a few of the catalog; 1 MB of them may have been in shared_buffers still.
    assert size - 2_000_000 < grown < size + 2_000_000


def read_bytes(connection: sql.Connection, query: str) -> int:
    rows = connection.execute(query).fetchall()
    return sum(row["io_read_bytes"] for row in rows if row["backend_type"] == "client backend" and row["io_read_bytes"])


@pytest.mark.parametrize("major", [pytest.param(m, marks=pytest.mark.cluster) for m in (15, 18)])
def test_times_that_no_setting_makes_the_server_measure_are_absent(
    major: int, cluster_of: Callable[[int], Cluster]
) -> None:
    with sql.connect(cluster_of(major).address) as connection:
        connection.execute("SET track_io_timing = off")
        connection.execute("SET track_wal_io_timing = off")
        values = sql.read_counters(connection, watched_database="postgres")
    assert {name for name, value in values.items() if value is None} >= {
        "blk_read_ms", "blk_write_ms", "wal_write_ms", "wal_sync_ms",
    }  # fmt: skip
    assert values["xact_commit_count"] is not None

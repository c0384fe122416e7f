"""What is said of a PostgreSQL newer than the versions that pgdyno was tried with: facts that stand in, and facts that were read."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.facts.gucs import ChangeCost, Context, VarType, change_cost, find_guc, majors_with, read_value, same_value
from pgdyno.facts.readable_counters import ServerCatalogue, confirm_counters, describe_lost, functions_read, views_read
from pgdyno.facts.versions import CATALOGUED_MAJORS, NEWEST_TRIED_MAJOR, TRIED_MAJORS, covers, find_range, stand_ins
from pgdyno.facts.views import (
    IO_DIMENSIONS,
    IO_VIEW,
    Absent,
    Counter,
    FromColumn,
    FromIoColumn,
    FromSum,
    ServerCounters,
    Unit,
    server_counters,
)
from pgdyno.facts.wait_events import find_resource, list_event_resources
from pgdyno.run.postgres import sql
from pgdyno.spec.setting import find_setting, read_setting
from tests.facts.clusters import Cluster

FUTURE = 99


def test_ranges_and_what_stands_in() -> None:
    assert min(CATALOGUED_MAJORS) > max(TRIED_MAJORS)
    assert [major for major in range(14, 20) if covers("15-16, 18", major)] == [15, 16, 18]
    assert stand_ins(16) == (16,)
    assert stand_ins(19) == (19, 18)
    assert stand_ins(FUTURE) == (FUTURE, 19, 18)
    assert find_range({"15-17": 0, "18": 1}, 19) == "18"
    assert find_range({"15-18": 0, "19": 1}, 19) == find_range({"15-18": 0, "19": 1}, FUTURE) == "19"
    # A fact that ends before the newest tried version is no fact of a newer one, and nothing is made up for old ones.
    assert find_range(["15-17"], FUTURE) is None
    assert find_range(["15-18"], 14) is None


def test_settings_of_19_as_they_were_read() -> None:
    assert find_guc("io_workers", 19) is None
    assert find_guc("io_min_workers", 18) is None
    assert majors_with("io_min_workers") == (19,)
    built_in = {"io_min_workers": "2", "io_max_workers": "8", "jit": "off", "log_lock_waits": "on"}
    built_in |= {"max_locks_per_transaction": "128", "default_toast_compression": None, "shared_buffers": "16384"}
    for major in (19, FUTURE):
        gucs = {name: find_guc(name, major) for name in (*built_in, "log_min_messages", "wal_receiver_timeout")}
        assert {name: guc.boot for name, guc in gucs.items() if guc and name in built_in} == built_in
        assert gucs["log_min_messages"] is not None
        assert (gucs["log_min_messages"].vartype, gucs["log_min_messages"].values) == (VarType.STRING, ())
        assert gucs["wal_receiver_timeout"] is not None
        assert gucs["wal_receiver_timeout"].context is Context.USER
    assert change_cost("io_max_workers", 19) is ChangeCost.RELOAD
    jit = find_guc("jit", 18)
    assert jit is not None
    assert jit.boot == "on"


def test_a_setting_that_is_not_known_is_the_servers_to_judge() -> None:
    guc = find_setting("quantum_buffers", FUTURE)
    assert read_setting(guc, "quantum_buffers", "7 cats") == "7 cats"
    assert change_cost("quantum_buffers", FUTURE) is ChangeCost.RESTART
    assert same_value("quantum_buffers", "1", "1", FUTURE)
    assert not same_value("quantum_buffers", "1", "2", FUTURE)
    with pytest.raises(SpecError, match="has no setting quantum_buffers"):
        find_setting("quantum_buffers", NEWEST_TRIED_MAJOR)
    with pytest.raises(LookupError):
        change_cost("quantum_buffers", NEWEST_TRIED_MAJOR)


def test_bounds_and_words_may_have_grown() -> None:
    for name, value, made in (("max_connections", "300000000", 3e8), ("wal_compression", "Brotli", "brotli")):
        newer, known = find_guc(name, FUTURE), find_guc(name, NEWEST_TRIED_MAJOR)
        assert newer is not None
        assert known is not None
        assert read_value(newer, value) == made
        with pytest.raises(ValueError, match="is not"):
            read_value(known, value)
        # What is no number is none in any version.
        if newer.vartype is VarType.INTEGER:
            with pytest.raises(ValueError, match="many"):
                read_value(newer, "many")


def test_waits() -> None:
    assert list_event_resources(FUTURE) == list_event_resources(NEWEST_TRIED_MAJOR)
    assert find_resource(FUTURE, "IO", "WalSync") == "WAL flush"
    assert find_resource(19, "Buffer", "BufferExclusive") == "lightweight locks"
    assert find_resource(FUTURE, "IO", "QuantumRead") is None
    assert find_resource(FUTURE, "Quantum", "Entangled") is None


def whole(facts: ServerCounters) -> ServerCatalogue:
    """A server that has all that is asked of it."""
    columns: dict[str, set[str]] = {view: set() for view in views_read(facts)}
    for counter in facts.counters:
        if isinstance(counter.source, FromColumn | FromSum):
            columns[counter.source.view].add(counter.source.column)
    columns[IO_VIEW] |= {
        *IO_DIMENSIONS,
        *(word for c in facts.io if isinstance(c.source, FromIoColumn) for word in c.source.sql.split(" * ")),
    }
    return ServerCatalogue(
        columns={view: frozenset(names) for view, names in columns.items()},
        functions=frozenset(functions_read(facts)),
        io_objects=frozenset({"relation", "wal"}),
    )


def test_what_a_server_has_is_confirmed_and_what_it_lacks_is_absent() -> None:
    facts = server_counters(FUTURE)
    server = whole(facts)
    assert confirm_counters(facts, server) == facts
    assert describe_lost(facts, facts) == ""
    columns = {**server.columns, "pg_stat_wal": frozenset(), IO_VIEW: server.columns[IO_VIEW] - {"fsyncs"}}
    less = msgspec.structs.replace(server, columns=columns, functions=frozenset())
    confirmed = confirm_counters(facts, less)
    lost = {name for name in facts.sources if confirmed.sources[name] != facts.sources[name]}
    assert lost == {
        *("wal_records_count", "wal_fpi_count", "wal_fpi_bytes", "wal_bytes", "wal_buffers_full_count"),
        *("wal_insert_lsn_bytes", "wal_flush_lsn_bytes", "io_fsync_count", "wal_sync_count"),
    }
    reason = confirmed.sources["wal_records_count"]
    assert reason == Absent(reason="this PostgreSQL 99 has no pg_stat_wal.wal_records, where older versions have it")
    assert "wal_fpi_count (pg_stat_wal.wal_fpi)" in describe_lost(facts, confirmed)
    assert "pg_stat_wal" not in sql.counters_query(confirmed)


def test_a_view_without_its_dimensions_or_objects_counts_nothing() -> None:
    facts = server_counters(FUTURE)
    server = whole(facts)
    bare = msgspec.structs.replace(server, columns={**server.columns, IO_VIEW: server.columns[IO_VIEW] - {"context"}})
    assert confirm_counters(facts, bare).io == ()
    assert sql.io_query(confirm_counters(facts, bare)) is None
    without = confirm_counters(facts, msgspec.structs.replace(server, io_objects=frozenset({"relation"})))
    assert isinstance(without.sources["wal_write_count"], Absent)
    nothing = ServerCatalogue(columns={}, functions=frozenset(), io_objects=frozenset())
    assert all(isinstance(source, Absent) for source in confirm_counters(facts, nothing).sources.values())


@pytest.mark.cluster
def test_the_catalogue_of_a_real_server_confirms_and_sums_work(cluster_of: Callable[[int], Cluster]) -> None:
    facts = server_counters(NEWEST_TRIED_MAJOR)
    # As 19's pg_stat_lock is read: a view of several rows.
    summed = Counter(
        name="xacts_count", unit=Unit.COUNT, meaning="", source=FromSum(view="pg_stat_database", column="xact_commit")
    )
    with sql.connect(cluster_of(NEWEST_TRIED_MAJOR).address) as connection:
        # Asked as of a version that was not tried, all of what this one is known to have is there.
        confirmed = sql.confirm_by_catalogue(connection, facts)
        assert confirmed == facts
        future = sql.find_counters(connection, FUTURE * 10_000)
        assert describe_lost(server_counters(FUTURE), future).count("pg_stat_lock") == 2
        query = sql.counters_query(msgspec.structs.replace(facts, counters=(*facts.counters, summed)))
        (row,) = connection.execute(query, ("postgres",)).fetchall()
        (total,) = connection.execute("SELECT sum(xact_commit) AS total FROM pg_stat_database").fetchall()
        assert 0 < row["xacts_count"] <= total["total"]

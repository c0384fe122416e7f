from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from pgdyno.errors import StepFailedError
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from tests.facts.clusters import Cluster, made_cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

# 16 comes without pg_prewarm: the fallback is what it takes.
METHODS = {15: "pg_prewarm", 16: "index scans", 18: "pg_prewarm"}

SETTINGS = {"fsync": "off", "shared_buffers": "64MB", "work_mem": "5MB", "autovacuum": "off"}


def restart(cluster: Cluster) -> None:
    cluster.stop()
    cluster.start(**SETTINGS)


@pytest.fixture(params=METHODS, scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with made_cluster(request.param) as made:
        made.start(**SETTINGS)
        with sql.connect(made.address) as connection:
            connection.execute("CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, filler char(84))")
            connection.execute("INSERT INTO pgbench_accounts SELECT i, '' FROM generate_series(1, 100000) i")
            connection.execute("CREATE TABLE pgbench_history (tid int)")
            connection.execute("CREATE SCHEMA pgdyno CREATE TABLE mark (uuid text)")
            connection.execute("VACUUM ANALYZE")
        yield made


@pytest.fixture
def connection(cluster: Cluster) -> Iterator[sql.Connection]:
    with sql.connect(cluster.address) as made:
        yield made


def major_of(connection: sql.Connection) -> int:
    return connection.info.server_version // 10_000


def test_settings_that_differ_are_read_by_name_and_those_of_the_asker_are_not(connection: sql.Connection) -> None:
    connection.execute("SET statement_timeout = 1000")
    settings = {setting.name: setting for setting in sql.read_settings(connection)}
    assert settings["shared_buffers"].value == "8192"
    assert settings["shared_buffers"].unit == "8kB"
    assert settings["work_mem"].value == "5120"
    assert settings["fsync"].value == "off"
    assert settings["fsync"].boot_value == "on"
    assert settings["fsync"].source == "command line"
    assert not {"statement_timeout", "application_name"} & set(settings)


def test_a_password_in_a_setting_is_not_read(cluster: Cluster, connection: sql.Connection) -> None:
    names = {"primary_conninfo", "restore_command", "archive_cleanup_command", "recovery_end_command"}
    for name in names:
        connection.execute(f"ALTER SYSTEM SET {name} = 'password=secret'")
    connection.execute("SELECT pg_reload_conf()")
    deadline_s = time.monotonic() + 600
    while time.monotonic() < deadline_s:
        settings = sql.read_settings(connection)
        if len(found := {one.name: one.value for one in settings if one.name in names}) == len(names):
            break
    assert found == dict.fromkeys(names, "(not recorded)")
    assert not any("secret" in setting.value for setting in settings)


def test_what_archives_is_not_read(cluster: Cluster) -> None:
    cluster.stop()
    try:
        cluster.start(**SETTINGS, archive_mode="on", archive_command="KEY=secret true")
        with sql.connect(cluster.address) as connection:
            assert sql.read_setting(connection, "archive_command") == "KEY=secret true"
            found = {one.name: one.value for one in sql.read_settings(connection)}
    finally:
        restart(cluster)
    with sql.connect(cluster.address) as connection:
        idle = {one.name: one.value for one in sql.read_settings(connection)}
    assert found["archive_command"] == "(not recorded)"
    assert idle["archive_command"] == "(disabled)", "as a server without an archive says"


def test_the_dataset_is_all_tables_but_pgdynos_own_each_before_its_indexes(connection: sql.Connection) -> None:
    relations = sql.read_dataset(connection)
    assert [(relation.name, relation.kind) for relation in relations] == [
        ("pgbench_accounts", "table"),
        ("pgbench_accounts_pkey", "index"),
        ("pgbench_history", "table"),
    ]
    accounts, key, history = relations
    assert accounts.rows == key.rows == 100_000
    # 28 bytes of header and item, 4 of aid, 85 of filler, aligned: at most 68 rows in a page.
    assert 100_000 / 68 <= accounts.pages <= 100_000 / 55
    assert accounts.bytes >= accounts.pages * 8192
    assert history.pages == history.bytes == 0


def pages_read_by_an_index_scan(connection: sql.Connection) -> bool:
    """Whether a scan of the whole table by its key must ask the operating system for pages."""
    connection.execute("SET enable_seqscan = off")
    connection.execute("SET enable_bitmapscan = off")
    query = "EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) SELECT count(filler) FROM pgbench_accounts WHERE aid > 0"
    plan = "\n".join(row["QUERY PLAN"] for row in connection.execute(query))
    assert "Index Scan" in plan
    return "read=" in plan.partition("Planning:")[0]


def test_warming_puts_tables_and_indexes_into_shared_buffers_and_leaves_no_trace(cluster: Cluster) -> None:
    count_functions = "SELECT count(*) AS n FROM pg_proc"
    restart(cluster)
    with sql.connect(cluster.address) as connection:
        assert pages_read_by_an_index_scan(connection)
        before = connection.execute(count_functions).fetchall()
    restart(cluster)
    with sql.connect(cluster.address) as connection:
        warmed = sql.warm_dataset(connection)
        assert not pages_read_by_an_index_scan(connection)
        assert warmed.method == METHODS[major_of(connection)]
        pages = sum(relation.pages for relation in sql.read_dataset(connection))
        assert warmed.pages == (pages if warmed.method == "pg_prewarm" else None)
    with sql.connect(cluster.address) as connection:
        # What is temporary goes when its session has ended, which is a little after it was closed.
        assert wait_until(lambda: connection.execute(count_functions).fetchall() == before)


def test_a_checkpoint_is_made_now(connection: sql.Connection) -> None:
    query = "SELECT redo_lsn FROM pg_control_checkpoint()"
    before = connection.execute(query).fetchall()
    connection.execute("INSERT INTO pgbench_history VALUES (1)")
    connection.execute("TRUNCATE pgbench_history")
    sql.checkpoint(connection)
    assert connection.execute(query).fetchall() != before


def test_a_refused_query_is_told_in_the_servers_words(connection: sql.Connection) -> None:
    sql.create_database(connection, 'odd "name"')
    with pytest.raises(StepFailedError, match="the server refused a query") as caught:
        sql.create_database(connection, 'odd "name"')
    assert caught.value.detail.endswith('database "odd "name"" already exists\nCREATE DATABASE "odd ""name"""')
    connection.execute('DROP DATABASE "odd ""name"""')


def test_counters_of_a_database_that_is_not_there_are_an_error(connection: sql.Connection) -> None:
    with pytest.raises(StepFailedError, match="a query gave 0 rows instead of one"):
        sql.read_counters(connection, watched_database="nowhere")


def test_no_server_is_a_failed_step_with_libpqs_words() -> None:
    with pytest.raises(StepFailedError, match="cannot connect to the server") as caught:
        sql.connect(Address(host=f"/nowhere-{os.getpid()}", port=1, user="postgres"))
    assert "No such file or directory" in caught.value.detail

"""Databases of pgdyno's own in real servers of others: marked, reused, copied, dropped, and nothing else touched."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import psycopg
import pytest

from pgdyno.errors import StepFailedError
from pgdyno.run.given.bounds import bound_data
from pgdyno.run.given.database import (
    copy_database,
    create_database,
    drop_database,
    drop_left_overs,
    find_loaded,
    note_loaded,
)
from pgdyno.run.given.own_databases import _LIST, OwnDatabase, list_databases, refusing
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.lost import HINT_LOST
from tests.rows import check_rows
from tests.tools.pgcluster import PORT, Cluster, running_given
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
CONTENT = "pgbench scale=1; 100 % of it"
FOREIGN = "0123456789abcdef0123456789abcdef"
STUDY = "0123abcd"


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running_given(request.param) as made:
        made.sql("CREATE ROLE other LOGIN CREATEDB")
        made.sql("CREATE DATABASE neighbour OWNER bench")
        made.sql("CREATE TABLE kept AS SELECT 1 AS one", database="neighbour")
        yield made


@pytest.fixture
def address(cluster: Cluster) -> Iterator[Address]:
    at = Address(host=str(cluster.root), port=PORT, user="bench", side_dbname="postgres")
    yield at
    for one in list_databases(at)[0]:
        drop_database(at, one)
    assert names(cluster) == []


def names(cluster: Cluster) -> list[str]:
    return cluster.sql("SELECT datname FROM pg_database WHERE datname LIKE 'pgdyno%' ORDER BY 1").split()


def load(address: Address) -> OwnDatabase:
    made = create_database(address)
    with sql.connect(Address(host=address.host, port=address.port, user=address.user, dbname=made.name)) as inside:
        inside.execute("CREATE TABLE numbers AS SELECT generate_series(1, 1000) AS number")
    return note_loaded(address, made, CONTENT)


def sum_numbers(cluster: Cluster, database: OwnDatabase) -> str:
    return cluster.sql("SELECT sum(number) FROM numbers", database=database.name)


def test_what_is_loaded_is_found_again_and_each_copy_begins_with_it(cluster: Cluster, address: Address) -> None:
    assert find_loaded(address, CONTENT) is None
    made = create_database(address)
    assert find_loaded(address, "") is None or made.content == ""
    assert find_loaded(address, CONTENT) is None
    drop_database(address, made)
    loaded = load(address)
    found = find_loaded(address, CONTENT)
    assert found is not None
    assert (found.name, found.content) == (loaded.name, CONTENT)
    assert found.size_bytes > 1_000_000
    copy = copy_database(address, found, study=STUDY)
    cluster.sql("DELETE FROM numbers", database=copy.name)
    assert (sum_numbers(cluster, copy), sum_numbers(cluster, found)) == ("", "500500")
    copy = copy_database(address, found, study=STUDY)
    assert sum_numbers(cluster, copy) == "500500"
    assert names(cluster) == [loaded.name, copy.name]
    # A copy is never taken for what was loaded.
    own, foreign = list_databases(address)
    assert [(one.name, one.is_copy, one.content) for one in own] == [
        (loaded.name, False, CONTENT),
        (copy.name, True, ""),
    ]
    assert foreign == ()


def test_a_copy_that_takes_too_long_is_given_up_by_the_server_too(cluster: Cluster, address: Address) -> None:
    loaded = load(address)
    assert loaded.size_bytes > 1_000_000
    # Another statement on the same database is waited for; the size leaves half a second of the usual patience.
    impatient = msgspec.structs.replace(loaded, size_bytes=-148_750_000)
    in_copy = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'CREATE DATABASE%'"
    with (
        sql.connect(msgspec.structs.replace(address, user="postgres")) as other,
        other.transaction(force_rollback=True),
    ):
        other.execute(f"COMMENT ON DATABASE {loaded.name} IS 'held'")
        with pytest.raises(StepFailedError, match="does not answer"):
            copy_database(address, impatient, study=STUDY)
        assert wait_until(lambda: cluster.sql(in_copy) == "0")
    assert names(cluster) == [loaded.name]


def test_one_whose_drop_was_broken_off_is_dropped_and_not_taken_again(cluster: Cluster, address: Address) -> None:
    loaded = load(address)
    # As a cancelled DROP DATABASE leaves it.
    cluster.sql(f"UPDATE pg_database SET datconnlimit = -2 WHERE datname = '{loaded.name}'")
    assert find_loaded(address, CONTENT) is None
    drop_left_overs(address)
    assert names(cluster) == []


def test_one_of_another_role_that_is_dropped_meanwhile_is_no_error(cluster: Cluster, address: Address) -> None:
    cluster.sql("CREATE DATABASE pgdyno_of_others")
    with sql.connect(address) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with connection.transaction():
            # From here on, the session's catalogue is that of this moment.
            connection.execute("SELECT count(*) FROM pg_database")
            cluster.sql("DROP DATABASE pgdyno_of_others")
            rows = connection.execute(_LIST).fetchall()
    assert [(row["name"], row["is_own"]) for row in rows] == [("pgdyno_of_others", False)]


def test_one_that_the_server_does_not_copy_any_more_is_loaded_anew(cluster: Cluster, address: Address) -> None:
    """As after an upgrade of the operating system, whose collations are then of another version."""
    loaded = load(address)
    cluster.sql(f"UPDATE pg_database SET datcollversion = '0.1' WHERE datname = '{loaded.name}'")
    with pytest.raises(StepFailedError, match="cannot copy the loaded database"):
        copy_database(address, loaded, study=STUDY)
    assert find_loaded(address, CONTENT) is None
    drop_left_overs(address)
    assert names(cluster) == []


def test_a_role_that_begins_as_another_one_finds_its_tables(cluster: Cluster, address: Address) -> None:
    cluster.sql(
        "CREATE ROLE owners CREATEDB; CREATE ROLE person LOGIN IN ROLE owners;"
        "ALTER ROLE person SET role = owners; ALTER ROLE person SET search_path = nowhere"
    )
    person = msgspec.structs.replace(address, user="person")
    try:
        loaded = load(person)
        copy = copy_database(person, loaded, study=STUDY)
        with sql.connect(msgspec.structs.replace(person, dbname=copy.name)) as inside:
            assert inside.execute("SELECT count(*) AS count FROM numbers").fetchall() == [{"count": 1000}]
        for one in (copy, loaded):
            drop_database(person, one)
    finally:
        cluster.sql("DROP ROLE person, owners")


def test_a_name_without_the_underscore_is_not_looked_at(cluster: Cluster, address: Address) -> None:
    cluster.sql("CREATE DATABASE pgdynos OWNER bench")
    cluster.sql("ALTER ROLE bench SET standard_conforming_strings = off")
    try:
        assert list_databases(address) == ((), ())
        bound_data(address, 1_000_000).check()
    finally:
        cluster.sql("ALTER ROLE bench RESET standard_conforming_strings")
        cluster.sql("DROP DATABASE pgdynos")


def test_a_server_that_lets_the_role_only_into_other_databases(cluster: Cluster, address: Address) -> None:
    file = cluster.data / "pg_hba.conf"
    before = file.read_text()
    file.write_text(f"local postgres bench trust\nlocal all bench reject\n{before}")
    cluster.sql("SELECT pg_reload_conf()")
    inside = msgspec.structs.replace(address, dbname="neighbour")

    def is_kept_out() -> bool:
        try:
            sql.connect(inside).close()
        except StepFailedError:
            return True
        return False

    try:
        assert wait_until(is_kept_out)
        with pytest.raises(StepFailedError, match="cannot connect") as caught:
            create_database(address)
        assert "pg_hba.conf" in caught.value.hint
    finally:
        file.write_text(before)
        cluster.sql("SELECT pg_reload_conf()")
        assert wait_until(lambda: not is_kept_out())
    assert names(cluster) == []


def test_idle_sessions_of_a_pooler_do_not_keep_it_from_being_copied(cluster: Cluster, address: Address) -> None:
    loaded = load(address)
    with sql.connect(Address(host=address.host, port=address.port, user="bench", dbname=loaded.name)):
        copy = copy_database(address, loaded, study=STUDY)
    with sql.connect(Address(host=address.host, port=address.port, user="bench", dbname=copy.name)):
        drop_database(address, copy)
    assert names(cluster) == [loaded.name]


def test_autovacuum_at_work_does_not_keep_it_from_being_dropped(cluster: Cluster, address: Address) -> None:
    """A role without pg_signal_backend may not end it, and an idle session of a pooler is there, too."""
    slowly = ("autovacuum_naptime = '1s'", "autovacuum_vacuum_cost_delay = 100", "autovacuum_vacuum_cost_limit = 1")
    for setting in slowly:
        cluster.sql(f"ALTER SYSTEM SET {setting}")
    cluster.sql("SELECT pg_reload_conf()")
    try:
        made = create_database(address)
        inside = msgspec.structs.replace(address, dbname=made.name)
        with sql.connect(inside) as connection:
            connection.execute("CREATE TABLE wide AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 100000)")
            connection.execute("UPDATE wide SET x = x")
            workers = (
                f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{made.name}' AND backend_type LIKE 'autov%'"
            )
            assert wait_until(lambda: cluster.sql(workers) != "0", within_s=600)
            drop_database(address, made)
        assert names(cluster) == []
    finally:
        for setting in slowly:
            cluster.sql(f"ALTER SYSTEM RESET {setting.partition(' ')[0]}")
        cluster.sql("SELECT pg_reload_conf()")


def test_a_copy_has_its_rows_and_a_search_path_that_finds_them(cluster: Cluster, address: Address) -> None:
    cluster.sql("ALTER ROLE bench SET search_path = elsewhere")
    try:
        made = create_database(address)
        inside = msgspec.structs.replace(address, dbname=made.name)
        with sql.connect(inside) as connection:
            connection.execute("CREATE TABLE numbers AS SELECT generate_series(1, 1000) AS number")
            connection.execute("VACUUM ANALYZE numbers")
        copy = copy_database(address, made, study=STUDY)
        with sql.connect(msgspec.structs.replace(address, dbname=copy.name)) as connection:
            connection.execute("UPDATE numbers SET number = -number WHERE number <= 10")
            connection.execute("SELECT pg_stat_force_next_flush()")
            (table,) = sql.read_table_states(connection)
        assert (table.name, table.live_rows, table.dead_rows) == ("numbers", 1000, 10)
    finally:
        cluster.sql("ALTER ROLE bench RESET search_path")


MISNAMED = f"COMMENT ON DATABASE pgdyno_{FOREIGN} IS 'pgdyno {FOREIGN[::-1]} 2026-11-23: may be dropped'"
# SQL that makes a database whose name looks like one of pgdyno's, and why it is none.
LOOKALIKES = (
    (f"CREATE DATABASE pgdyno_{FOREIGN} OWNER other", "another role owns it"),
    ("CREATE DATABASE pgdyno_backup OWNER bench", "its name is not one that pgdyno gives"),
    (f"CREATE DATABASE pgdyno_{FOREIGN}_old OWNER bench", "its name is not one that pgdyno gives"),
    (
        f"CREATE DATABASE pgdyno_{FOREIGN} OWNER bench; COMMENT ON DATABASE pgdyno_{FOREIGN} IS 'ours, do not drop'",
        "its comment is not pgdyno's",
    ),
    (
        f"CREATE DATABASE pgdyno_{FOREIGN} OWNER bench; {MISNAMED}",
        "its comment names another database",
    ),
)


def test_a_database_that_only_looks_like_one_is_never_touched(cluster: Cluster, address: Address) -> None:
    def refuse(row: tuple[str, str]) -> None:
        words, reason = row
        for one in words.split(";"):
            cluster.sql(one)
        name = re.search(r"DATABASE (\w+)", words)
        assert name is not None
        try:
            own, (foreign,) = list_databases(address)
            assert (own, foreign.name, foreign.reason) == ((), name[1], reason)
            with pytest.raises(StepFailedError, match="is not pgdyno's"):
                drop_database(address, OwnDatabase(name=name[1], content="", size_bytes=0, sessions=0))
            assert names(cluster) == [name[1]]
        finally:
            cluster.sql(f"DROP DATABASE {name[1]}")

    check_rows(LOOKALIKES, refuse)


def test_one_that_lost_its_comment_is_known_by_its_row_and_an_empty_one_by_its_name(
    cluster: Cluster, address: Address
) -> None:
    loaded = load(address)
    cluster.sql(f"COMMENT ON DATABASE {loaded.name} IS NULL")
    assert [one.name for one in list_databases(address)[0]] == [loaded.name]
    cluster.sql("DROP SCHEMA pgdyno CASCADE", database=loaded.name)
    held = (
        "FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SCHEMA pgdyno AUTHORIZATION bench CREATE TABLE data (number int)",
    )
    cluster.sql(f"CREATE {held[0]}; CREATE {held[1]}; SELECT lo_create(1)", database=loaded.name)
    own, (foreign,) = list_databases(address)
    assert (own, foreign.reason) == ((), "it has no mark, and holds 4 objects")
    cluster.sql("DROP FUNCTION one(); DROP SCHEMA pgdyno CASCADE; SELECT lo_unlink(1)", database=loaded.name)
    cluster.sql(f"ALTER DATABASE {loaded.name} ALLOW_CONNECTIONS false")
    own, (foreign,) = list_databases(address)
    assert (own, foreign.reason[:46]) == ((), "it has no comment, and cannot be looked into: ")
    cluster.sql(f"ALTER DATABASE {loaded.name} ALLOW_CONNECTIONS true")
    cluster.sql("DROP TABLE numbers", database=loaded.name)
    assert [one.name for one in list_databases(address)[0]] == [loaded.name]


def test_a_refusal_says_what_to_try(cluster: Cluster, address: Address) -> None:
    poor = Address(host=address.host, port=address.port, user="poor")
    cluster.sql("CREATE ROLE poor LOGIN")
    with pytest.raises(StepFailedError, match="cannot create a database") as caught:
        create_database(poor)
    assert "permission denied" in caught.value.detail
    assert "pgdyno check --dsn" in caught.value.hint


def fail_to_create(address: Address) -> StepFailedError:
    with pytest.raises(StepFailedError, match="cannot create a database") as caught:
        create_database(address)
    return caught.value


def test_a_timeout_that_ends_a_statement_is_named(cluster: Cluster, address: Address) -> None:
    names = ["statement_timeout", *(["transaction_timeout"] if cluster.version_major >= 17 else [])]
    for name in names:
        cluster.sql(f"ALTER ROLE bench SET {name} = '1ms'")
        try:
            # The server's last words are lost with the connection now and then: 30 times in 2,364 on a busy machine.
            tries = (fail_to_create(address) for _ in range(9))
            said = next(one for one in tries if "closed the connection unexpectedly" not in one.detail)
            assert f"this role or server has a {name}" in said.hint
        finally:
            cluster.sql(f"ALTER ROLE bench RESET {name}")


def test_a_session_that_ends_without_a_word_has_a_hint(address: Address) -> None:
    # The server's last words are lost with the connection.
    for ask, fact in ((lambda one: one.execute("SELECT 1"), "cannot look"), (sql.ping, "the server refused a query")):
        with sql.connect(address) as one:
            with socket.socket(fileno=os.dup(one.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
            with pytest.raises(StepFailedError, match=fact) as caught, refusing("look"):
                ask(one)
        assert ("closed the connection" in caught.value.detail, caught.value.hint) == (True, HINT_LOST)


def test_only_these_statements_are_sent_and_all_else_stays_as_it_was(cluster: Cluster, address: Address) -> None:
    before = cluster.dump()
    log = cluster.root / "server.log"
    begins = log.stat().st_size
    cluster.sql("ALTER ROLE bench SET log_statement = 'all'")
    loaded = load(address)
    drop_database(address, copy_database(address, loaded, study=STUDY))
    drop_database(address, loaded)
    cluster.sql("ALTER ROLE bench RESET log_statement")
    assert cluster.dump() == before
    with log.open(errors="replace") as file:
        file.seek(begins)
        asked = re.findall(r"LOG:  (?:statement|execute [^:]*): \s*(.*)", file.read())
    own = r"\"pgdyno_[0-9a-f]{32}(_[0-9a-f]{8}_run)?\""
    allowed = (
        r"SELECT .*|BEGIN(; SET LOCAL [^;]*)*|ROLLBACK|CREATE TABLE numbers .*|ALTER ROLE bench RESET log_statement"
        rf"|SET LOCAL ROLE NONE; ALTER ROLE SESSION_USER IN DATABASE {own} SET search_path = public"
        rf"|CREATE DATABASE {own} TEMPLATE (template0|{own} STRATEGY FILE_COPY)|COMMENT ON DATABASE {own} IS .*"
        rf"|DROP DATABASE IF EXISTS {own} WITH \(FORCE\)|CREATE SCHEMA pgdyno|CREATE TABLE pgdyno.mark .*|INSERT INTO pgdyno.mark .*"
    )
    assert len(asked) > 10
    assert [one for one in asked if not re.fullmatch(allowed, one)] == []


LOOP = """
import sys
from pgdyno.run.given.database import copy_database, create_database, drop_database, note_loaded
from pgdyno.run.postgres.address import Address
address = Address(host=sys.argv[1], port=int(sys.argv[2]), user="bench")
print("ready", flush=True)
while True:
    loaded = note_loaded(address, create_database(address), "x")
    drop_database(address, copy_database(address, loaded, study="0123abcd"))
    drop_database(address, loaded)
"""


def test_whatever_a_kill_leaves_can_be_dropped(cluster: Cluster, address: Address) -> None:
    draw = random.Random(cluster.version_major)
    for _ in range(10):
        argv = [sys.executable, "-c", LOOP, address.host, str(address.port)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=os.environ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            # At any instant of a loop, however long one takes here.
            time.sleep(draw.uniform(0, 0.6))
            child.send_signal(signal.SIGKILL)
        # The server ends the statement that it is at, and then sees that nobody listens.
        while cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'bench'") != "0":
            time.sleep(0.05)
        own, foreign = list_databases(address)
        assert foreign == ()
        for one in own:
            drop_database(address, one)
    assert names(cluster) == []
    assert cluster.sql("SELECT one FROM kept", database="neighbour") == "1"

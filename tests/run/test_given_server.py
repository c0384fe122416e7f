"""A real server of somebody else's as a trial sees it: what its sessions ask for, and what they are refused."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.types import ServerFacts
from pgdyno.run.given.access import open_access
from pgdyno.run.given.bounds import bound_data, bound_wal
from pgdyno.run.given.conninfo import find_address
from pgdyno.run.given.database import create_database, drop_database
from pgdyno.run.given.poolers import check_way, open_poolers
from pgdyno.run.given.settings import read_given_settings
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import pooler_console, sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import find_installation
from pgdyno.run.postgres.lost import NoConnectionError
from pgdyno.run.postgres.pooler_console import SilentPoolerError
from pgdyno.spec.pooler import PoolerSpec, PoolMode
from pgdyno.spec.study import CacheState, ServerSpec
from pgdyno.spec.table import QueryMode
from tests.rows import check_rows
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


def dsn(folder: Path, **more: str) -> str:
    keywords = {"host": str(folder), "port": str(PORT), "user": "plain", "dbname": "postgres", **more}
    return " ".join(f"{name}='{value}'" for name, value in keywords.items())


@pytest.fixture
def server(cluster: Cluster) -> Iterator[GivenServerUnderTest]:
    with open_access(dsn(cluster.root)) as address:
        yield make_server(cluster, address)


def make_server(
    cluster: Cluster, address: sql.Address, kind: type[GivenServerUnderTest] = GivenServerUnderTest
) -> GivenServerUnderTest:
    me = ServerUser(name="me", uid=os.geteuid(), gid=os.getegid())
    pgbench = Pgbench(installation=find_installation(ServerSpec(), user=me, software_dir=Path("/none")), user=me)
    facts = ServerFacts(version="", version_num=cluster.version_major * 10_000, bindir="")
    return kind(
        address=address, facts=facts, generator=pgbench, may_checkpoint=False, lock=None, bounds=(bound_wal(address),)
    )


# Settings that a session asks for, and what the server answers in its next query.
TAKEN = (
    ("work_mem", "5MB", "5MB"),
    ("synchronous_commit", False, "off"),
    ("search_path", 'a, "b c\\d"', 'a, "b c\\d"'),
    ("random_page_cost", 1.5, "1.5"),
    # Of an extension that loads on its first use, and of one that is not there.
    ("pg_trgm.similarity_threshold", 0.5, "0.5"),
    ("my.own", "100 % of 'it'", "100 % of 'it'"),
)


def test_the_wal_that_a_study_may_have_written_is_bounded(cluster: Cluster) -> None:
    def write() -> None:
        cluster.sql("CREATE TABLE filler AS SELECT repeat('x', 100) FROM generate_series(1, 50000)")
        cluster.sql("DROP TABLE filler")

    with open_access(dsn(cluster.root)) as address:
        wide, narrow = bound_wal(address), bound_wal(address, 2.0**20)
        assert wide.is_known
        narrow.check()
        write()
        wide.check()
        assert wide.find_excess() is None
        with pytest.raises(HostError, match="of WAL, more than the study may have it write"):
            narrow.check()
        # The next look is soon, since the bound is near.
        assert wait_until(lambda: narrow.find_excess() is not None)


def test_what_pgdynos_databases_take_is_bounded(cluster: Cluster) -> None:
    with open_access(dsn(cluster.root)) as address:
        wide, narrow = bound_data(address), bound_data(address, 2.0**20)
        narrow.check()
        # Neither a database of somebody else's nor one of another name counts.
        cluster.sql("CREATE DATABASE pgdyno_of_another")
        with sql.connect(address) as connection:
            connection.execute("CREATE DATABASE pgdynos")
        narrow.check()
        made = create_database(address)
        try:
            wide.check()
            with pytest.raises(HostError, match=r"pgdyno's databases take .* more than they may") as caught:
                narrow.check()
            assert "the bound is 1 MB" in caught.value.detail
            assert wait_until(lambda: narrow.find_excess() is not None)
        finally:
            drop_database(address, made)
        narrow.check()
    cluster.sql("DROP DATABASE pgdyno_of_another")
    cluster.sql("DROP DATABASE pgdynos")


def test_sessions_get_what_they_ask_for(server: GivenServerUnderTest, tmp_path: Path) -> None:
    def ask(row: tuple[str, str | float | bool, str]) -> None:
        name, value, shown = row
        server.try_settings({name: value})
        with server.running({name: value}, log_path=tmp_path / "log"), sql.connect(server.load_address) as connection:
            assert sql.read_setting(connection, name) == shown
        with server.running({}, log_path=tmp_path / "log"), sql.connect(server.load_address) as connection:
            assert sql.read_setting(connection, name) != shown

    check_rows(TAKEN, ask)


REFUSED = (
    ({"commit_delay": 1000}, "permission denied", "GRANT SET ON PARAMETER"),
    ({"shared_buffers": "1GB"}, "cannot be changed", "it takes a restart"),
    ({"checkpoint_timeout": "1h"}, "cannot be changed now", "one of the whole server"),
    ({"work_mem": "much"}, "invalid value", "may SET"),
    ({"no_such_setting": 1}, "unrecognized", "may SET"),
)


def test_what_a_session_may_not_ask_for(server: GivenServerUnderTest) -> None:
    def refuse(row: tuple[dict[str, str | int], str, str]) -> None:
        settings, said, hint = row
        with pytest.raises(SpecError, match="a session may not ask for a setting") as caught:
            server.try_settings(settings)
        assert said in caught.value.detail
        assert hint in caught.value.hint

    check_rows(REFUSED, refuse)


def test_a_pooler_that_refuses_or_forgets_what_a_session_asks_for(cluster: Cluster) -> None:
    with pooling(cluster, mode="session", database="*") as folder, open_access(dsn(folder)) as address:
        with pytest.raises(SpecError, match="may not ask") as caught:
            make_server(cluster, address).try_settings({"work_mem": "5MB"})
        assert "takes no options" in caught.value.hint
    forgetful = "ignore_startup_parameters = options"
    with (
        pooling(cluster, mode="session", database="*", more=forgetful) as folder,
        open_access(dsn(folder)) as address,
        pytest.raises(SpecError, match=r"does not get what it asks for: work_mem, my\.own"),
    ):
        make_server(cluster, address).try_settings({"work_mem": "5MB", "my.own": 1})


def test_a_pooler_that_hangs_is_named(
    cluster: Cluster, server: GivenServerUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = PlannedPooler(name="bouncer", mode=PoolMode.TRANSACTION, size=None, most_clients=1, dsn="")
    with pooling(cluster, mode="transaction", database="*") as folder, open_access(dsn(folder)) as address:
        server.poolers = {"bouncer": address}
        server.try_pooler(planned, keeps_statements=False)
        pid = int((folder / "pid").read_text())
        with server.running({}, log_path=tmp_path / "log", pooler=planned), server.connect() as session:
            # It does not let this role into its console, which is an answer.
            assert server.find_stall(session) is None
            os.kill(pid, signal.SIGSTOP)
            monkeypatch.setattr(pooler_console, "LOGIN_PATIENCE_S", 2)
            try:
                silence = server.find_stall(session)
                assert silence is not None
                assert silence.fact == "the pooler bouncer does not answer"
                monkeypatch.setattr(timeouts, "CONNECT_PATIENCE_S", 2)
                check_way(planned, address, cause=silence)
                with pytest.raises(SilentPoolerError, match="the pooler bouncer does not answer"):
                    server.try_pooler(planned, keeps_statements=True)
            finally:
                os.kill(pid, signal.SIGCONT)


def test_a_pooler_is_reached_as_its_service_says_and_else_as_the_server(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.sql("DROP ROLE IF EXISTS pooled; CREATE ROLE pooled LOGIN")
    server = Address(host=str(cluster.root), port=PORT, user="plain", dbname="postgres")
    place = f"host={cluster.root}\nport={PORT}\n"
    (tmp_path / "services").write_text(f"[whole]\n{place}user=pooled\ndbname=template1\n[bare]\n{place}")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGUSER", "postgres")

    def reach(row: tuple[str, str, str]) -> None:
        words, user, dbname = row
        with open_poolers({"bouncer": PoolerSpec(dsn=words)}, server) as ways:
            assert (ways["bouncer"].user, ways["bouncer"].dbname) == (user, dbname)
        assert (os.environ["PGUSER"], "PGSERVICE" in os.environ) == ("postgres", False)

    rows = [
        ("service=whole", "pooled", "template1"),
        ("service=whole user=plain", "plain", "template1"),
        ("service=bare", "plain", "postgres"),
        (f"host={cluster.root} port={PORT}", "plain", "postgres"),
    ]
    check_rows(rows, reach)
    with (
        pytest.raises(StepFailedError) as caught,
        open_poolers({"bouncer": PoolerSpec(dsn="service=none")}, server),
    ):
        pass
    assert caught.value.fact == "the pooler bouncer: cannot connect to the server"


@contextlib.contextmanager
def forwarding(folder: Path, to: Path) -> Iterator[None]:
    """Hand on one connection at a time from a socket in a folder: a pooler that passes on all that the server says."""

    def hand_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while read := source.recv(65536):
                target.sendall(read)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, socket.socket(socket.AF_UNIX) as server:
                server.connect(f"{to}/.s.PGSQL.{PORT}")
                back = threading.Thread(target=hand_on, args=(server, client))
                back.start()
                hand_on(client, server)
                back.join()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/.s.PGSQL.{PORT}")
        listener.listen()
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def test_the_server_itself_is_no_pooler(cluster: Cluster, tmp_path: Path) -> None:
    planned = PlannedPooler(name="bouncer", mode=PoolMode.TRANSACTION, size=None, most_clients=1, dsn="")
    with running(cluster.version_major) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        made.listen()
        by_socket, by_network = dsn(made.root), dsn(made.root, host=LOOPBACK)

        def try_way(of_server: str, of_pooler: str) -> None:
            with open_access(of_server) as address, open_access(of_pooler) as way:
                server = make_server(made, address)
                server.poolers = {"bouncer": way}
                server.try_pooler(planned, keeps_statements=False)

        rows = (
            (by_socket, by_socket, f"both are reached at {made.root}, port {PORT}"),
            (by_network, by_socket, "nothing is in between"),
            (by_socket, by_network, "nothing is in between"),
        )
        for of_server, of_pooler, said in rows:
            with pytest.raises(SpecError, match="the pooler bouncer is the server itself") as caught:
                try_way(of_server, of_pooler)
            assert said in caught.value.detail
        # Its session has the process id that the server tells.
        with forwarding(tmp_path, made.root):
            try_way(by_network, dsn(tmp_path))
        with pooling(made, mode="session", database="*") as folder:
            try_way(by_socket, dsn(folder))


class Away(GivenServerUnderTest):
    """A server that answers at the third try."""

    error: StepFailedError
    tries = 0

    def _read_start(self) -> str:
        self.tries += 1
        if self.tries < 3:
            raise self.error
        return super()._read_start()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_trial_begins_once_a_server_that_is_restarted_is_there_and_waits_for_none_that_hangs(
    cluster: Cluster, server: GivenServerUnderTest, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    away = make_server(cluster, server.address, Away)
    assert isinstance(away, Away)
    away.error = timeouts.NoAnswerError("no answer") if hangs else NoConnectionError("cannot connect to the server")
    monkeypatch.setattr("pgdyno.run.given_server.time.sleep", lambda _: None)
    away._loaded = create_database(server.address)
    try:
        if hangs:
            with pytest.raises(StepFailedError, match="the server does not answer any more"):
                away.reset()
        else:
            away.reset()
    finally:
        away.close()
        drop_database(server.address, away._loaded)
    assert away.tries == (1 if hangs else 3)


def test_what_cannot_be_done_to_it(server: GivenServerUnderTest) -> None:
    with pytest.raises(SpecError, match="cold caches"):
        server.prepare_cache(CacheState.COLD)
    with pytest.raises(SpecError, match="cannot alternate"):
        server.prepare_switch(())
    assert (server.pid, server.block_device, server.log_tail()) == (None, None, "")


def test_the_options_of_the_string_come_first(cluster: Cluster, tmp_path: Path) -> None:
    with open_access(dsn(cluster.root, options="-c work_mem=6MB -c jit=off")) as address:
        server = make_server(cluster, address)
        with server.running({"work_mem": "7MB"}, log_path=tmp_path), sql.connect(server.load_address) as connection:
            seen = [sql.read_setting(connection, name) for name in ("work_mem", "jit")]
    assert seen == ["7MB", "off"]


def test_variables_of_the_environment_change_nothing(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PGSERVICE", "none"), ("PGCLIENTENCODING", "SQL_ASCII"), ("PGTARGETSESSIONATTRS", "standby")):
        monkeypatch.setenv(name, value)
    with sql.connect(sql.Address(host=str(cluster.root), port=PORT, user="plain")) as connection:
        assert sql.read_setting(connection, "client_encoding") == "UTF8"
    assert os.environ["PGSERVICE"] == "none"


def test_a_script_is_found_where_the_record_has_a_relative_path(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.sql").write_text("SELECT 1;\n")
    me = ServerUser(name="me", uid=os.geteuid(), gid=os.getegid())
    pgbench = Pgbench(installation=find_installation(ServerSpec(), user=me, software_dir=Path("/none")), user=me)
    run = LoadRun(
        address=sql.Address(host=str(cluster.root), port=PORT, user="plain"),
        scripts=(("one.sql", 1),),
        mode=QueryMode.SIMPLE,
        clients=1,
        threads=1,
        duration_s=1.0,
        max_tries=1,
        random_seed=1,
        scale=1,
    )
    assert pgbench.run_load(run, directory=Path("load")).exit_code == 0


def test_a_password_that_fills_two_lines_is_refused(cluster: Cluster) -> None:
    with pytest.raises(SpecError, match="line end"), open_access(dsn(cluster.root, password="one\ntwo")):
        pass


def test_settings_are_read_where_slots_are_refused(cluster: Cluster) -> None:
    cluster.sql("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_current_wal_lsn() FROM PUBLIC")
    try:
        given = read_given_settings(dsn(cluster.root))
    finally:
        cluster.sql("GRANT EXECUTE ON FUNCTION pg_catalog.pg_current_wal_lsn() TO PUBLIC")
    assert given.state.slots == ()
    assert given.state.look.settings["max_connections"]


def test_the_address_that_a_string_itself_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGPORT", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)

    def find(row: tuple[str, str | None]) -> None:
        assert find_address(row[0]) == row[1]

    named = (
        ("host=db1", "db1:5432"),
        ("postgresql://bench@[::1]:5433/x", "[::1]:5433"),
        ("hostaddr=127.0.0.1 port=1", "127.0.0.1:1"),
        ("postgresql://%2Ftmp/x", "/tmp, port 5432"),
    )
    unnamed = (("", None), ("user=bench", None), ("host=a,b port=1,2", None), ("service=mine host=db1", None))
    check_rows((*named, *unnamed), find)
    monkeypatch.setenv("PGPORT", "7")
    find(("host=db1", "db1:7"))
    monkeypatch.setenv("PGSERVICE", "mine")
    find(("host=db1", None))

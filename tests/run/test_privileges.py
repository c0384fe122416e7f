"""Real servers that refuse: each source alone, all of them, and behind a pooler."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.facts.privileges import Probe, make_probes, probe_counters, recognise_service
from pgdyno.facts.readable_counters import name_place
from pgdyno.facts.views import server_counters
from pgdyno.flow.given.check import check_given
from pgdyno.record.machine.given_server import Capability, GivenServer
from pgdyno.run.given import conninfo, probe
from pgdyno.run.given.probe import probe_server, watch_server
from pgdyno.run.host import process
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.sql import carefully, planning, read_service_marks, read_setting
from pgdyno.run.sample.server_sampler import ServerReader
from tests.rows import check_rows
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
SECRET = "kanari:/vogel@7"


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN")
        yield made


def dsn(cluster: Cluster, user: str = "plain", **more: str) -> str:
    keywords = {"host": str(cluster.root), "port": str(PORT), "user": user, "dbname": "postgres", **more}
    return " ".join(f"{name}='{value}'" for name, value in keywords.items())


def refused(server: GivenServer) -> dict[str, Capability]:
    return {one.name: one for one in server.capabilities if one.refusal is not None}


def rules(server: GivenServer, *, clients: int = 8) -> dict[str, str]:
    found = find_given_obstacles(server, clients=clients, has_password=False)
    return {one.rule: one.evidence for one in found}


def test_a_superuser_is_refused_nothing(cluster: Cluster) -> None:
    server = probe_server(dsn(cluster, "postgres"))
    assert set(refused(server)) == {"pg_stat_statements"}
    assert rules(server) == {}
    assert (server.major, server.role, server.is_superuser) == (cluster.version_major, "postgres", True)
    assert (server.is_local, server.is_encrypted, server.service) == (True, False, None)
    assert 0.0 < server.round_trip.median_s < 5.0


def test_statements_are_seen_where_the_library_is_loaded_and_the_extension_is_made(cluster: Cluster) -> None:
    name = "pg_stat_statements"

    def ask() -> str | None:
        return next(one.refusal for one in probe_server(dsn(cluster)).capabilities if one.name == name)

    assert "the database postgres has no such extension" in (ask() or "")
    cluster.sql(f"CREATE SCHEMA kept; CREATE EXTENSION {name} SCHEMA kept")
    try:
        assert "its library is not loaded" in (ask() or "")
        cluster.stop()
        cluster.start(f"shared_preload_libraries={name}")
        assert ask() is None
        cluster.sql(f"REVOKE SELECT ON kept.{name} FROM PUBLIC")
        assert ask() == f"permission denied for view {name}"
    finally:
        cluster.sql("DROP SCHEMA kept CASCADE")
        cluster.stop()
        cluster.start()


def test_event_triggers_do_not_run(cluster: Cluster) -> None:
    # A sequence goes on where what happens is rolled back.
    cluster.sql("CREATE SEQUENCE fired")
    cluster.sql(
        "CREATE FUNCTION fire() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('public.fired'); END $$"
    )
    cluster.sql("CREATE EVENT TRIGGER seen ON ddl_command_start EXECUTE FUNCTION fire()")
    try:
        cluster.sql("CREATE TABLE made ()")
        assert cluster.sql("SELECT last_value FROM fired") == "1"
        for role in ("postgres", "plain"):
            watch_server(dsn(cluster, role))
        assert cluster.sql("SELECT last_value FROM fired") == "1"
    finally:
        cluster.sql("DROP EVENT TRIGGER seen; DROP FUNCTION fire(); DROP SEQUENCE fired; DROP TABLE IF EXISTS made")


def test_settings_of_extensions_are_not_kept(cluster: Cluster) -> None:
    cluster.sql("ALTER DATABASE postgres SET session_preload_libraries = plpgsql")
    cluster.sql("ALTER DATABASE postgres SET plpgsql.extra_warnings = shadowed_variables")
    try:
        assert (
            cluster.sql("SELECT setting FROM pg_settings WHERE name = 'plpgsql.extra_warnings'") == "shadowed_variables"
        )
        settings = probe_server(dsn(cluster, "postgres")).settings or {}
        assert settings["session_preload_libraries"] == "plpgsql"
        assert not [name for name in settings if "." in name]
    finally:
        cluster.sql("ALTER DATABASE postgres RESET ALL")


def test_what_a_plain_role_is_refused_comes_with_the_grants_that_give_it(cluster: Cluster) -> None:
    before = refused(probe_server(dsn(cluster)))
    assert {"CREATE DATABASE", "other sessions", "all settings", "SET commit_delay", "ALTER SYSTEM"} < set(before)
    assert 'role "plain" has no CREATEDB' in before["CREATE DATABASE"].refusal
    assert "<insufficient privilege>" in before["other sessions"].refusal
    assert rules(probe_server(dsn(cluster))) == {"no-database": 'role "plain" has no CREATEDB'}
    with given(cluster, [grant for one in before.values() for grant in one.grants]):
        assert set(refused(probe_server(dsn(cluster)))) == {"pg_prewarm", "pg_stat_statements"}
    assert without_counts(refused(probe_server(dsn(cluster)))) == without_counts(before)


def without_counts(capabilities: dict[str, Capability]) -> dict[str, Capability]:
    """Leave out how many processes are hidden: some come and go, and a session ends a little after its client."""
    return {
        name: msgspec.structs.replace(one, refusal=re.sub(r"[0-9]+ of its", "some of its", one.refusal or ""))
        for name, one in capabilities.items()
    }


@contextlib.contextmanager
def given(cluster: Cluster, grants: list[str]) -> Iterator[None]:
    cluster.sql(";".join(grants))
    yield
    cluster.sql("ALTER ROLE plain NOCREATEDB; DROP OWNED BY plain; REVOKE pg_monitor, pg_checkpoint FROM plain")


def test_limits_of_the_database_and_the_role(cluster: Cluster) -> None:
    cluster.sql("ALTER ROLE plain CREATEDB")

    def ask(role: str = "plain", **more: str) -> dict[str, str]:
        try:
            return rules(probe_server(dsn(cluster, role, **more)))
        except StepFailedError as error:
            return {"error": error.reason}

    def says(expected: dict[str, str], role: str = "plain") -> bool:
        """Whether the check comes to say this: a session ends a little after its client, and has its place until then."""
        return wait_until(lambda: ask(role) == expected)

    room = "max_connections and the role's own limit leave room for {}: sessions that idle, as a pooler keeps them, have their places, too"
    try:
        cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT 2")
        assert says({"database-connections": "its CONNECTION LIMIT leaves room for 2"})
        assert says({}, "postgres")
        with conninfo.connect(dsn(cluster)):
            cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT 5")
            assert says({"database-connections": "its CONNECTION LIMIT leaves room for 4"})
        cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT 6")
        with working_in_parallel(cluster):
            assert says({})
        with pooling(cluster, mode="transaction") as folder:
            cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT 4")
            assert wait_until(lambda: ask(host=str(folder)).keys().isdisjoint({"error", "database-connections"}))
        cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT 5")
        assert says({})
        # Eight clients and ten more, beside the connection that asks.
        cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT -1; ALTER ROLE plain CONNECTION LIMIT 18")
        assert says({"connections": room.format(17)})
        with pooling(cluster, mode="session") as folder:
            with conninfo.connect(f"host={folder} port={PORT} user=plain dbname=postgres"):
                pass
            assert says({"connections": room.format(16)})
    finally:
        cluster.sql("ALTER DATABASE postgres CONNECTION LIMIT -1; ALTER ROLE plain NOCREATEDB CONNECTION LIMIT -1")


@contextlib.contextmanager
def working_in_parallel(cluster: Cluster) -> Iterator[None]:
    """Keep a session of the plain role and a parallel worker of it at work: the worker has no place of its own."""
    forced = "force_parallel_mode" if cluster.version_major == 15 else "debug_parallel_query"
    workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'"
    with contextlib.closing(conninfo.connect(dsn(cluster), options=f"-c {forced}=on")) as session:
        session.pgconn.send_query(b"SELECT pg_sleep(3600)")
        try:
            assert wait_until(lambda: cluster.sql(workers) == "1")
            yield
        finally:
            cluster.sql(f"SELECT pg_terminate_backend({session.info.backend_pid})")


def test_each_source_that_is_taken_away_is_lost_alone_and_given_back_by_its_grant(cluster: Cluster) -> None:
    before = set(refused(probe_server(dsn(cluster))))
    probes = make_probes(server_counters(cluster.version_major))
    held = [one for one in probes if one.name not in before and one.grants]
    assert len(held) >= 9

    def lose(probe: Probe) -> None:
        (grant,) = probe.grants
        right = grant.removeprefix("GRANT ").removesuffix(" TO {role}")
        cluster.sql(f"REVOKE {right} FROM PUBLIC")
        try:
            after = refused(probe_server(dsn(cluster)))
            assert set(after) - before == {probe.name}
            assert "permission denied" in (after[probe.name].refusal or "")
            cluster.sql(*after[probe.name].grants)
            assert set(refused(probe_server(dsn(cluster)))) == before
        finally:
            cluster.sql(f"DROP OWNED BY plain; GRANT {right} TO PUBLIC")

    check_rows(held, lose)


def test_a_refused_source_costs_its_own_counters_only(cluster: Cluster) -> None:
    facts = server_counters(cluster.version_major)
    probes = list(probe_counters(facts))
    assert len(probes) >= 5

    def read() -> tuple[set[str], dict[str, str]]:
        with conninfo.connect(dsn(cluster)) as connection:
            values = sql.read_counters(connection, watched_database="postgres")
            gaps = {gap.source: gap.reason for gap in sql.find_gaps(connection)}
            reader = ServerReader(connection, watched_database="postgres")
            assert (reader.refused, len(reader.counters()) == len(reader.counter_names)) == (gaps, True)
            reader.changed_io()
        return {name for name, value in values.items() if value is not None}, gaps

    whole, gaps = read()
    assert gaps == {}

    def lose(probe: Probe) -> None:
        (grant,) = probe.grants
        right = grant.removeprefix("GRANT ").removesuffix(" TO {role}")
        cluster.sql(f"REVOKE {right} FROM PUBLIC")
        try:
            kept, gaps = read()
            assert whole - kept == whole & {one.name for one in facts.counters if name_place(one.source) == probe.name}
            assert list(gaps) == [probe.name]
            assert "permission denied" in gaps[probe.name]
        finally:
            cluster.sql(f"GRANT {right} TO PUBLIC")

    check_rows(probes, lose)


def test_nothing_is_left_and_nothing_but_reading_was_asked(cluster: Cluster) -> None:
    cluster.sql("ALTER ROLE plain SET log_statement = 'all'")
    log = cluster.root / "server.log"
    before, begins = cluster.dump(), log.stat().st_size
    probe_server(dsn(cluster))
    assert cluster.dump() == before
    with log.open(errors="replace") as file:
        file.seek(begins)
        asked = re.findall(r"LOG:  (?:statement|execute [^:]*): \s*(\S+ ?\S*)", file.read())
    assert len(asked) > 30
    beyond = {
        one
        for one in asked
        if not one.startswith(("SELECT", "WITH", "BEGIN", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET LOCAL", "LOAD"))
    }
    assert beyond == set()
    cluster.sql("ALTER ROLE plain RESET log_statement")


def test_no_function_of_somebody_else_runs(cluster: Cluster) -> None:
    """Of the same name and of arguments that fit better, they would be preferred to those of pg_catalog."""
    cluster.sql(
        "CREATE FUNCTION public.quote_ident(name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'ran'; END $$;"
        "CREATE FUNCTION public.format(text, name) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'ran'; END $$"
    )
    try:
        assert "ran" not in {one.refusal for one in refused(probe_server(dsn(cluster))).values()}
    finally:
        cluster.sql("DROP FUNCTION public.quote_ident(name), public.format(text, name)")


def test_a_role_and_a_database_of_odd_names(cluster: Cluster) -> None:
    cluster.sql('CREATE ROLE "a {b} %s ""c" LOGIN')
    cluster.sql('CREATE DATABASE "d {e} %s"')
    server = probe_server(dsn(cluster, 'a {b} %s "c', dbname="d {e} %s"))
    assert refused(server)["other sessions"].grants == ('GRANT pg_monitor TO "a {b} %s ""c"',)
    assert (server.role, server.dbname) == ('a {b} %s "c', "d {e} %s")
    cluster.sql('DROP DATABASE "d {e} %s"')


def test_a_database_without_an_encoding(cluster: Cluster) -> None:
    cluster.sql("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    server = probe_server(dsn(cluster, dbname="ascii"))
    assert server.dbname == "ascii"
    assert set(refused(server)) == set(refused(probe_server(dsn(cluster))))
    cluster.sql("DROP DATABASE ascii")


def test_a_role_that_only_reads_and_may_not_even_see_roles(cluster: Cluster) -> None:
    cluster.sql(
        "ALTER ROLE plain SET default_transaction_read_only = on; REVOKE SELECT ON pg_catalog.pg_roles FROM PUBLIC"
    )
    try:
        server = probe_server(dsn(cluster))
    finally:
        cluster.sql(
            "ALTER ROLE plain RESET default_transaction_read_only; GRANT SELECT ON pg_catalog.pg_roles TO PUBLIC"
        )
    assert "read-only" in rules(server)
    assert (server.role, server.free_connections) == ("plain", None)
    # Nothing that the role lacks gives what this view would show.
    assert refused(server)["CREATE DATABASE"].grants == ()


def test_the_server_itself_ends_what_takes_long(cluster: Cluster) -> None:
    with conninfo.connect(dsn(cluster)) as connection:
        with carefully(connection):
            assert read_setting(connection, "statement_timeout") == "5s"
        assert read_setting(connection, "statement_timeout") == "0"


@pytest.mark.parametrize("cluster", [18], indirect=True)
def test_a_timeout_of_the_role_for_transactions_ends_none_of_many_questions(cluster: Cluster) -> None:
    # Shorter than others are watched for.
    cluster.sql("ALTER ROLE plain SET transaction_timeout = '2s'")
    try:
        assert watch_server(dsn(cluster)).others_tps is not None
        with conninfo.connect(dsn(cluster)) as connection:
            with carefully(connection):
                assert read_setting(connection, "transaction_timeout") == "0"
            with planning(connection):
                assert read_setting(connection, "transaction_timeout") == "0"
            assert read_setting(connection, "transaction_timeout") == "2s"
    finally:
        cluster.sql("ALTER ROLE plain RESET transaction_timeout")


def test_places_that_are_left(cluster: Cluster) -> None:
    # A session takes a place for a moment after its client has gone.
    assert wait_until(lambda: cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'plain'") == "0")
    cluster.sql("ALTER ROLE plain CONNECTION LIMIT 3")
    try:
        # The one that asks is open.
        server = probe_server(dsn(cluster))
        assert server.free_connections == 2
        assert "connections" in rules(server)
    finally:
        cluster.sql("ALTER ROLE plain CONNECTION LIMIT -1")
    assert "connections" not in rules(probe_server(dsn(cluster, "postgres")), clients=8)
    assert "connections" in rules(probe_server(dsn(cluster, "postgres")), clients=100)


def test_dates_of_any_style_are_read(cluster: Cluster) -> None:
    cluster.sql("ALTER ROLE plain SET datestyle = 'German'; ALTER ROLE plain SET intervalstyle = 'sql_standard'")
    try:
        assert "pg_control_checkpoint" not in refused(probe_server(dsn(cluster)))
    finally:
        cluster.sql("ALTER ROLE plain RESET ALL")


def test_timeouts_that_would_end_loading_are_told(cluster: Cluster) -> None:
    assert probe_server(dsn(cluster)).timeouts_ms == {}
    cluster.sql("ALTER ROLE plain SET statement_timeout = '30s'")
    try:
        server = probe_server(dsn(cluster))
        assert server.timeouts_ms == {"statement_timeout": 30_000}
        assert "timeouts" in rules(server)
        assert "timeouts" not in rules(probe_server(dsn(cluster, options="-c statement_timeout=0")))
    finally:
        cluster.sql("ALTER ROLE plain RESET ALL")


def test_a_template_is_no_place_for_a_study(cluster: Cluster) -> None:
    assert "template" in rules(probe_server(dsn(cluster, dbname="template1")))
    cluster.sql("CREATE DATABASE template_letters")
    try:
        assert "template" not in rules(probe_server(dsn(cluster, dbname="template_letters")))
        cluster.sql("ALTER DATABASE template_letters IS_TEMPLATE true")
        assert "template" in rules(probe_server(dsn(cluster, dbname="template_letters")))
    finally:
        cluster.sql("ALTER DATABASE template_letters IS_TEMPLATE false")
        cluster.sql("DROP DATABASE template_letters")


# PostgreSQL 15 reports no transactions of a session that reads no table, until it ends: those are seen in their locks.
@pytest.mark.parametrize("statement", ["SELECT relname FROM pg_catalog.pg_class LIMIT 1;", "SELECT pg_sleep(0.002);"])
def test_others_at_work_are_seen_by_any_role(cluster: Cluster, statement: str) -> None:
    assert "sessions-at-work" not in rules(watch_server(dsn(cluster)))
    where = ("-h", str(cluster.root), "-p", str(PORT), "-U", "postgres")
    script = cluster.root / "others.sql"
    script.write_text(f"{statement}\n")
    argv = [
        str(cluster.bin_directory / "pgbench"),
        "-n",
        "-f",
        str(script),
        "-R",
        "300",
        "-T",
        "600",
        *where,
        "postgres",
    ]
    others = process.start(argv)
    try:
        while "sessions-at-work" not in rules(watch_server(dsn(cluster))):
            assert others.poll() is None
    finally:
        process.stop(others)


def test_what_ends_at_once_and_is_over_is_not_at_work(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    bursts, look = ["BEGIN; SELECT 1; COMMIT;" * 200], probe._watch_transactions

    def look_beside_a_burst(connection: sql.Connection) -> int:
        while bursts:
            # Its session tells what it counts as it ends, at the latest.
            cluster.sql(bursts.pop())
        return look(connection)

    monkeypatch.setattr(probe, "_watch_transactions", look_beside_a_burst)
    server = watch_server(dsn(cluster))
    assert bursts == []
    assert "sessions-at-work" not in rules(server)


def test_a_standby_of_a_service_over_tls() -> None:
    with running(15) as cluster:
        cluster.stop()
        cluster.make_certificate()
        with (cluster.data / "pg_hba.conf").open("w") as hba:
            hba.write(
                "local all all trust\nhostssl all postgres 127.0.0.0/8 trust\nhostssl all all 127.0.0.0/8 scram-sha-256\n"
            )
        cluster.start(
            "ssl=on",
            f"listen_addresses={LOOPBACK}",
            "password_encryption=scram-sha-256",
            "shared_preload_libraries=auto_explain",
        )
        cluster.sql(f"CREATE ROLE bird LOGIN PASSWORD '{SECRET}'")
        server = probe_server(dsn(cluster, "postgres", host=LOOPBACK))
        assert (server.is_encrypted, server.is_local, server.service) == (True, True, None)
        recognise_services(cluster)
        check_rows(WRONG, lambda keywords: refuse_connection(cluster, keywords))
        find_no_secret(cluster)
        cluster.stop()
        (cluster.data / "standby.signal").touch()
        shutil.chown(cluster.data / "standby.signal", cluster.user.uid, cluster.user.gid)
        cluster.start()
        server = probe_server(dsn(cluster, "postgres"))
        assert server.is_in_recovery
        assert "standby" in rules(server)


def recognise_services(cluster: Cluster) -> None:
    """By what a server really has; none of the services could be tried."""
    with conninfo.connect(dsn(cluster, "postgres")) as connection:
        assert read_service_marks(connection, ["aurora_version"]) == {"prefixes": ["auto_explain"], "functions": []}
        connection.execute("CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$")
        seen = read_service_marks(connection, ["aurora_version"])
    named = [recognise_service(*marks) for marks in ((seen["prefixes"], seen["functions"]), (["rds"], []), ([], []))]
    assert [one.name if one else None for one in named] == ["Amazon Aurora", "Amazon RDS", None]


WRONG = (
    {"password": "wrong"},
    {"passfile": "/nonexistent"},
    {"user": "nobody-here", "password": "x"},
    {"user": "postgres", "dbname": "none"},
    {"port": "1"},
    {"host": "no-such-host.invalid"},
    {"sslmode": "disable"},
    {"service": "none"},
)


def refuse_connection(cluster: Cluster, keywords: dict[str, str]) -> None:
    text = dsn(cluster, **{"user": "bird", "host": LOOPBACK} | keywords)
    with pytest.raises(StepFailedError) as caught:
        probe_server(text)
    assert caught.value.fact == "cannot connect to the server"
    assert caught.value.detail
    assert caught.value.hint, caught.value.detail


def find_no_secret(cluster: Cluster) -> None:
    """The password in a URI and in a keyword string is in no form of the result, of errors, or of the log."""
    coded = SECRET.replace(":", "%3A").replace("/", "%2F").replace("@", "%40")
    uri = f"postgresql://bird:{coded}@{LOOPBACK}:{PORT}/postgres"
    for text in (uri, dsn(cluster, "bird", host=LOOPBACK, password=SECRET)):
        result = check_given(text, clients=None)
        assert "password-in-arguments" in {one.rule for one in result.findings}
        shown = f"{result!r}{result.to_json()!r}{(cluster.root / 'server.log').read_text()}"
        assert SECRET not in shown
        assert coded not in shown
    with pytest.raises(SpecError) as caught:
        conninfo.connect(f"postgresql://bird:{SECRET}@{LOOPBACK}/postgres")
    assert SECRET[8:] not in f"{caught.value.fact}{caught.value.detail}{caught.value.hint}"
    assert caught.value.__cause__ is None


@contextlib.contextmanager
def pooling(cluster: Cluster, *, mode: str, database: str = "postgres", more: str = "") -> Iterator[Path]:
    """Run PgBouncer in front of a cluster, on a socket of the same number in a folder that it yields."""
    folder = Path(tempfile.mkdtemp(dir=cluster.root))
    shutil.chown(folder, cluster.user.uid, cluster.user.gid)
    users, ini = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text('"plain" ""\n')
    ini.write_text(
        f"[databases]\n{database} = host={cluster.root} port={PORT}\n[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\n"
        f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {users}\npool_mode = {mode}\nlogfile = {folder}/log\npidfile = {folder}/pid\n{more}\n"
    )
    child = process.start(
        ["/usr/sbin/pgbouncer", str(ini)], user=cluster.user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_socket(folder / f".s.PGSQL.{PORT}", child)
        yield folder
    finally:
        child.terminate()
        child.wait()


def wait_for_socket(path: Path, child: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens: the socket is there a moment earlier, and refuses connections."""
    while child.poll() is None:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as tried:
            tried.connect(str(path))
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.05)
    pytest.fail("pgbouncer ended")


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_a_pooler_between(cluster: Cluster, mode: str) -> None:
    with pooling(cluster, mode=mode) as folder:
        server = probe_server(dsn(cluster, host=str(folder)))
    assert server.pooler is not None
    assert "pooler" in rules(server)
    assert server.has_pooled_transactions is (mode == "transaction")
    assert "unsupported startup parameter" in (refused(server)["options"].refusal or "")


def test_a_pooler_that_takes_options_and_forgets_them(cluster: Cluster) -> None:
    with pooling(cluster, mode="session", more="ignore_startup_parameters = options") as folder:
        server = probe_server(dsn(cluster, host=str(folder)))
    assert refused(server)["options"].refusal == "the options of a session are taken and ignored"


def test_a_timeout_of_the_role_for_idle_transactions_ends_none_of_pgdynos(cluster: Cluster) -> None:
    # Shorter than any pause between two statements.
    cluster.sql("ALTER ROLE plain SET idle_in_transaction_session_timeout = '1ms'")
    try:
        assert watch_server(dsn(cluster)).others_tps is not None
        with conninfo.connect(dsn(cluster)) as connection:
            for within in (carefully, planning):
                with within(connection):
                    assert read_setting(connection, "idle_in_transaction_session_timeout") == "10min"
            assert sql.warm_dataset(connection).method == "index scans"
            assert read_setting(connection, "idle_in_transaction_session_timeout") == "1ms"
        probe_server(dsn(cluster))
    finally:
        cluster.sql("ALTER ROLE plain RESET idle_in_transaction_session_timeout")

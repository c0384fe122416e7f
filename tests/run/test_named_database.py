"""A database of somebody else's as a trial sees it: its sessions only read, whatever they are asked for besides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.facts.views import server_counters
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.samples.pings import PING, PINGS_FILE
from pgdyno.record.types import why_missing
from pgdyno.run.given.access import open_access
from pgdyno.run.given.bounds import bound_wal
from pgdyno.run.given.database import check_named, create_database, drop_database, note_loaded
from pgdyno.run.given.lock import StudyLock
from pgdyno.run.named_database import NamedDatabaseUnderTest
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.trial import run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study
from pgdyno.spec.study import CacheState, DataSpec
from tests.rows import check_rows
from tests.run.test_given_server import dsn, make_server
from tests.run.test_privileges import pooling
from tests.run.test_trial import gaps_beside_late_samples
from tests.tools.pgcluster import Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        made.sql("CREATE DATABASE app OWNER plain")
        made.sql("CREATE TABLE kept AS SELECT 1 AS one; ALTER TABLE kept OWNER TO plain", database="app")
        yield made


def name_database(
    cluster: Cluster, address: Address, *, may_write: bool = False, lock: StudyLock | None = None
) -> NamedDatabaseUnderTest:
    given = make_server(cluster, address)
    return NamedDatabaseUnderTest(
        database="app",
        may_write=may_write,
        address=address,
        facts=given.facts,
        generator=given._generator,
        lock=lock,
        bounds=(bound_wal(address),),
    )


def is_written(address: Address) -> bool:
    with sql.connect(address) as connection:
        try:
            connection.execute("UPDATE public.kept SET one = one")
        except sql.psycopg.errors.ReadOnlySqlTransaction:
            return False
    return True


# What the connection string and a variant ask for besides.
ASKED: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
    ({}, {}),
    ({"options": "-c default_transaction_read_only=off -c work_mem=5MB"}, {"work_mem": "6MB"}),
    ({}, {"default_transaction_read_only": "off"}),
)


def test_its_sessions_only_read_whatever_they_ask_for(cluster: Cluster, tmp_path: Path) -> None:
    def read(row: tuple[dict[str, str], dict[str, str]]) -> None:
        more, settings = row
        with open_access(dsn(cluster.root, **more)) as address:
            for may_write in (False, True):
                server = name_database(cluster, address, may_write=may_write)
                with server.running(settings, log_path=tmp_path / "log"):
                    is_off = "options" not in more
                    assert is_written(server.load_address) is may_write
                    assert not is_off or is_written(server.address) is may_write
                    with sql.connect(server.load_address) as connection:
                        assert sql.read_setting(connection, "work_mem") == settings.get("work_mem", "4MB")

    cluster.sql("ALTER ROLE plain IN DATABASE app SET default_transaction_read_only = off")
    check_rows(ASKED, read)
    cluster.sql("ALTER ROLE plain IN DATABASE app RESET default_transaction_read_only")


@pytest.mark.parametrize("may_write", [False, True])
def test_functions_of_others_do_not_run_in_pgdynos_queries(cluster: Cluster, tmp_path: Path, may_write: bool) -> None:
    names = ("pg_table_size", "pg_relation_size", "pg_total_relation_size")
    for name in names:
        cluster.sql(
            f"CREATE FUNCTION public.{name}(oid) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE 'ran'; END $$",
            database="app",
        )
    cluster.sql(
        "CREATE FUNCTION public.is_same(real, int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE 'ran'; END $$;"
        "CREATE OPERATOR public.= (FUNCTION = public.is_same, LEFTARG = real, RIGHTARG = int);"
        "CREATE AGGREGATE public.array_agg(text) (SFUNC = pg_catalog.array_append, STYPE = text[], INITCOND = '{no columns}')",
        database="app",
    )
    # Whoever has it so, has views of others before those of the server.
    views = ("pg_class", "pg_settings", "pg_stat_user_tables")
    cluster.sql("".join(f"CREATE VIEW public.{view} AS SELECT 1 / 0 AS oid;" for view in views), database="app")
    cluster.sql("ALTER ROLE plain IN DATABASE app SET search_path = public, pg_catalog")
    try:
        with open_access(dsn(cluster.root)) as address:
            server = name_database(cluster, address, may_write=may_write)
            dataset = server.load(
                DataSpec(database="app"), 1, settings={}, output_dir=tmp_path, on_activity=lambda _: None
            )
            with server.connect() as connection:
                states = sql.read_table_states(connection)
                assert sql.read_settings(connection)
                connection.execute("SET search_path = public")
                facts = server_counters(cluster.version_major)
                assert sql.confirm_by_catalogue(connection, facts) == facts
        shown = "kept" if may_write else "public.kept"
        assert [one.name for one in dataset.relations] == [one.name for one in states] == [shown]
        assert (dataset.init_argv, dataset.file_sha256, dataset.total_bytes > 0) == ((), None, True)
    finally:
        cluster.sql("ALTER ROLE plain IN DATABASE app RESET search_path")
        cluster.sql(f"DROP VIEW {', '.join(f'public.{view}' for view in views)}", database="app")
        cluster.sql(
            f"DROP FUNCTION {', '.join(f'public.{name}(oid)' for name in names)}; DROP OPERATOR public.= (real, int);"
            "DROP FUNCTION public.is_same(real, int); DROP AGGREGATE public.array_agg(text)",
            database="app",
        )


def test_nothing_is_done_to_it(cluster: Cluster) -> None:
    with open_access(dsn(cluster.root)) as address:
        server = name_database(cluster, address)
        assert server.reset() == 0.0
        server.prepare_cache(CacheState.WARM)
        with pytest.raises(SpecError, match="cold caches"):
            server.prepare_cache(CacheState.COLD)
        with server.connect() as connection:
            server.checkpoint(connection)
        server.close()
    assert "pgdyno" not in cluster.sql("SELECT string_agg(datname, ' ') FROM pg_database")


def test_a_database_that_is_none_of_the_users(cluster: Cluster) -> None:
    with open_access(dsn(cluster.root)) as address:
        made = note_loaded(address, create_database(address), "x")
        cluster.sql(f"ALTER DATABASE {made.name} RENAME TO mine")
        cluster.sql("CREATE DATABASE shapes OWNER plain IS_TEMPLATE true")
        refused = (
            ("none", "has no database none"),
            ("APP", "has no database APP"),
            ("template0", "is a template"),
            ("template1", "is a template"),
            ("shapes", "is a template"),
            ("mine", "is pgdyno's own"),
        )

        def refuse(row: tuple[str, str]) -> None:
            with pytest.raises(SpecError, match=row[1]):
                check_named(address, row[0])

        check_rows(refused, refuse)
        cluster.sql(f"ALTER DATABASE mine RENAME TO {made.name}; ALTER DATABASE shapes IS_TEMPLATE false")
        cluster.sql("DROP DATABASE shapes")
        with pytest.raises(SpecError, match="is pgdyno's own"):
            check_named(address, made.name)
        drop_database(address, made)
        check_named(address, "app")


def test_a_database_that_takes_fewer_sessions_than_the_load_has(cluster: Cluster) -> None:
    # Sessions of earlier tests end a little after their clients.
    assert wait_until(lambda: cluster.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = 'app'") == "0")
    cluster.sql(
        "ALTER DATABASE app CONNECTION LIMIT 6; CREATE ROLE rises LOGIN IN ROLE postgres; ALTER ROLE rises SET role = postgres"
    )
    try:
        with open_access(dsn(cluster.root)) as address:
            check_named(address, "app", clients=4)
            with pytest.raises(HostError, match=r"5 clients, .* do not fit into the database app") as caught:
                check_named(address, "app", clients=5)
            assert "leaves room for 6" in caught.value.detail
            check_named(msgspec.structs.replace(address, user="postgres"), "app", clients=5)
            # The server looks at who connects, before a session becomes another role.
            with pytest.raises(HostError, match="5 clients"):
                check_named(msgspec.structs.replace(address, user="rises"), "app", clients=5)
            with (
                sql.connect(msgspec.structs.replace(address, dbname="app")),
                pytest.raises(HostError, match="4 clients"),
            ):
                check_named(address, "app", clients=4)
    finally:
        cluster.sql("ALTER DATABASE app CONNECTION LIMIT -1; DROP ROLE rises")


def test_sessions_that_cannot_be_kept_from_writing(cluster: Cluster) -> None:
    forgetful = "ignore_startup_parameters = options"
    poolers = (
        ("session", "", "may not ask for a setting"),
        ("session", forgetful, "does not get what it asks for"),
        ("transaction", forgetful, "does not get what it asks for"),
    )

    def refuse(row: tuple[str, str, str]) -> None:
        mode, more, said = row
        with pooling(cluster, mode=mode, database="*", more=more) as folder, open_access(dsn(folder)) as address:
            with pytest.raises(SpecError) as caught:
                name_database(cluster, address).check_guard()
            assert caught.value.fact.startswith("sessions cannot be kept from writing: ")
            assert said in caught.value.fact
            # Nothing is asked for where it may write.
            name_database(cluster, address, may_write=True).check_guard()

    check_rows(poolers, refuse)
    with open_access(dsn(cluster.root)) as address:
        with pytest.raises(SpecError, match="is in transaction mode"):
            name_database(cluster, address).check_guard()
        lock = StudyLock(address)
        try:
            name_database(cluster, address, lock=lock).check_guard()
        finally:
            lock.close()
        elsewhere = msgspec.structs.replace(address, user="nobody")
        with pytest.raises(StepFailedError, match="cannot connect"):
            name_database(cluster, elsewhere).check_guard()


def make_stage(cluster: Cluster, address: Address, folder: Path, pool: Path) -> TrialStage:
    (folder / "read.sql").write_text("SELECT * FROM public.kept;\n")
    raw: dict[str, object] = {
        "server": {"kind": "given", "dsn": dsn(cluster.root)},
        "data": {"database": "app"},
        "workload": [{"name": "read", "scripts": ["read.sql"], "clients": 6, "threads": 1}],
        "trials": {"duration": "1s", "warm_up": "0s"},
        "poolers": {"pool": {"dsn": dsn(pool)}},
        "variant": [{"endpoint": "primary"}, {"endpoint": "pool"}],
    }
    study = make_study(raw, source="test", folder=folder)
    machine = Machine(version_major=cluster.version_major, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
    server = name_database(cluster, address, may_write=True)
    return TrialStage(
        server=server,
        generator=server._generator,
        dataset=server.load(study.data, 1, settings={}, output_dir=folder, on_activity=lambda _: None),
        study=study,
        plan=plan_study(study, machine),
        settings={},
        cpu_count=2.0,
    )


def test_no_ping_waits_in_the_pool_of_the_load(cluster: Cluster, tmp_path: Path) -> None:
    missing = {}
    with (
        pooling(cluster, mode="transaction", database="*", more="default_pool_size = 2") as pool,
        open_access(dsn(pool)) as way,
        open_access(dsn(cluster.root)) as address,
    ):
        stage = make_stage(cluster, address, tmp_path, pool)
        assert isinstance(stage.server, NamedDatabaseUnderTest)
        stage.server.poolers = {"pool": way}
        for trial in stage.plan.trials[:2]:
            endpoint, folder = stage.plan.find_load(trial).endpoint, tmp_path / str(trial.number)
            folder.mkdir()
            short = msgspec.structs.replace(trial, duration_s=1.0)
            outcome = run_trial(stage, short, folder=folder, on_activity=lambda _: None, on_load=lambda _: None)
            assert outcome.error is None
            missing[endpoint] = why_missing(gaps_beside_late_samples(outcome.record.gaps), PING)
            assert (folder / PINGS_FILE).exists() is (missing[endpoint] is None)
        # A string may lead through a pooler itself, to this database or to another one with a pool of its own.
        for dbname in ("app", "postgres"):
            between = msgspec.structs.replace(address, side_dbname=dbname)
            missing[dbname] = why_missing(name_database(cluster, between, may_write=True).unseen, PING)
    shared = "a ping would wait for a server connection in the same pool as the load's clients"
    assert missing == {"primary": None, "pool": shared, "app": shared, "postgres": None}

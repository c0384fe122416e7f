"""A real server that speaks another language than English, where this machine has its messages, and one that is away for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.plan.types import PlannedPooler, PlannedWorkload
from pgdyno.run.change.given.command_run import await_shown
from pgdyno.run.given.poolers import is_servers_answer, try_databases
from pgdyno.run.given.replicas import Replicas
from pgdyno.run.given.script_check import check_scripts_on_data, check_scripts_there
from pgdyno.run.host.process import ServerUser
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import lost, sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.installation import find_installation
from pgdyno.run.postgres.lost import NoConnectionError, ReturnWatch
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.read import make_study
from pgdyno.spec.study import DataSpec, ServerSpec
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
MACHINE = Machine(version_major=15, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        # Of a locale that every machine has; where there are no such messages, they stay English.
        patch.setenv("LANGUAGE", "de")
        with running(15, conf="lc_messages = 'C.UTF-8'\n") as made:
            made.sql("CREATE ROLE plain LOGIN PASSWORD 'right'")
            yield made


@pytest.fixture
def address(cluster: Cluster) -> Address:
    return Address(host=str(cluster.root), port=PORT, user="postgres")


def test_a_server_that_is_shut_down_and_started_again_is_waited_for(cluster: Cluster, address: Address) -> None:
    last = sql.connect(address)
    # With a session there it tells every new one that it is shutting down.
    cluster.run("pg_ctl", "-D", str(cluster.data), "-m", "smart", "-W", "stop")
    said: list[str] = []

    def go_on(words: str) -> None:
        said.append(words)
        if not last.closed:
            last.close()
            assert wait_until(lambda: not (cluster.data / "postmaster.pid").exists())
            cluster.start()

    await_shown(lambda: sql.connect(address), {"commit_delay": "0"}, on_activity=go_on)
    assert "no answer: cannot connect to the server" in said[0]


def test_a_session_that_the_server_ends_and_a_host_that_is_not_there_may_come_back(
    cluster: Cluster, address: Address
) -> None:
    with sql.connect(address) as session:
        pid = sql.read_backend_pid(session)
        cluster.sql(f"SELECT pg_terminate_backend({pid}, 60000)")
        with pytest.raises(NoConnectionError) as caught:
            sql.ping(session)
        assert ReturnWatch().may_return(caught.value)
    with pytest.raises(NoConnectionError) as caught:
        sql.connect(msgspec.structs.replace(address, host="no-such-host.invalid"))
    assert ReturnWatch().may_return(caught.value)
    with sql.connect(address) as session, pytest.raises(StepFailedError) as refused:
        sql.create_database(session, "postgres")
    assert not ReturnWatch().may_return(refused.value)


def test_a_pooler_that_passes_on_a_database_which_the_server_has_not(cluster: Cluster) -> None:
    planned = PlannedPooler(name="bouncer", mode=PoolMode.SESSION, size=None, most_clients=1, dsn="")
    with pooling(cluster, mode="session", database="*") as folder:
        try_databases(planned, Address(host=str(folder), port=PORT, user="plain"))
    with pooling(cluster, mode="session") as folder, pytest.raises(SpecError, match="does not know the databases"):
        try_databases(planned, Address(host=str(folder), port=PORT, user="plain"))


@pytest.mark.parametrize(
    ("words", "is_servers"),
    [
        ('FATAL:  database "pgdyno_1f" does not exist', True),
        ("FATAL:  Datenbank »pgdyno_1f« existiert nicht", True),
        ("FATAL:  Datenbank ?pgdyno_1f? existiert nicht", True),
        ("FATAL:  Datenbank >>pgdyno_1f<< existiert nicht", True),
        ("FATAL:  la base de données « pgdyno_1f » n'existe pas", True),
        ('치명적오류:  "pgdyno_1f" 데이터베이스 없음', True),
        ("FATAL:  no such database: pgdyno_1f", False),
        ('FATAL:  No pool configured for database: "pgdyno_1f", user: "plain"', False),
        ("FATAL:  odyssey: c7: route for 'pgdyno_1f.plain' is not found", False),
    ],
)
def test_who_says_that_there_is_no_such_database(words: str, *, is_servers: bool) -> None:
    assert is_servers_answer(f"connection failed: {words}", "pgdyno_1f") is is_servers


def test_mistakes_in_scripts_are_told_from_what_other_data_would_avoid(address: Address, tmp_path: Path) -> None:
    (tmp_path / "own.sql").write_text("SELECT no_such_column FROM pgbench_accounts;\n")
    (tmp_path / "writes.sql").write_text("CREATE TABLE one (a int);\n")
    me = ServerUser(name="me", uid=os.geteuid(), gid=os.getegid())
    pgbench = Pgbench(installation=find_installation(ServerSpec(), user=me, software_dir=Path("/none")), user=me)

    def plan(script: str) -> tuple[DataSpec, tuple[PlannedWorkload, ...]]:
        raw: dict[str, object] = {"workload": [{"name": "own", "scripts": [script]}]}
        study = make_study(raw, source="test", folder=tmp_path)
        return study.data, plan_study(study, MACHINE).workloads

    data, workloads = plan("own.sql")
    with pytest.raises(SpecError, match=r"own\.sql fails") as caught:
        check_scripts_there(address, pgbench, data=data, workloads=workloads, replicas=Replicas(), on_activity=str)
    assert "no_such_column" in caught.value.detail
    reading = {"options": "-c default_transaction_read_only=on"}
    read_only = msgspec.structs.replace(address, parameters=reading)
    with pytest.raises(SpecError, match=r"writes\.sql fails") as caught:
        check_scripts_on_data(read_only, pgbench, workloads=plan("writes.sql")[1], read_only=read_only, on_activity=str)
    assert "--allow writes=postgres" in caught.value.hint


def test_a_login_that_is_refused_again_and_again_is_not_waited_for(
    cluster: Cluster, address: Address, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster.listen("scram-sha-256", trusted="postgres")
    passfile = tmp_path / "pass"
    passfile.write_text("*:*:*:*:wrong\n")
    passfile.chmod(0o600)
    wrong = Address(host=LOOPBACK, port=PORT, user="plain", parameters={"passfile": str(passfile)})
    with pytest.raises(NoConnectionError) as caught:
        sql.connect(wrong)
    assert ReturnWatch().may_return(caught.value)
    monkeypatch.setattr(lost, "_LOGIN_REFUSED_FOR_S", 0.0)
    with pytest.raises(NoConnectionError):
        await_shown(lambda: sql.connect(wrong), {"commit_delay": "0"})
    # Of a server that does not ask, and lets nobody in from there.
    (cluster.data / "pg_hba.conf").write_text("local all all trust\n")
    cluster.sql("SELECT pg_reload_conf()")
    with pytest.raises(NoConnectionError):
        await_shown(lambda: sql.connect(msgspec.structs.replace(wrong, user="postgres")), {"commit_delay": "1"})

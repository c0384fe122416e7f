"""Who is let in at the address that load hosts reach: the role of the load, from these hosts, and nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import psycopg
import pytest

from pgdyno.errors import HostError
from pgdyno.plan.types import PlannedPooler
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess, open_load_access
from pgdyno.run.cluster.server import SUPERUSER, Server
from pgdyno.run.pooler.pgbouncer import Pgbouncer
from pgdyno.run.pooler.program import find_pgbouncer
from pgdyno.run.postgres.address import Address
from pgdyno.spec.pooler import PoolMode
from tests.homes import installation_of, some_home
from tests.tools.pgcluster import LOOPBACK

pytestmark = pytest.mark.cluster


@pytest.fixture
def access() -> Iterator[LoadAccess]:
    with open_load_access(LOOPBACK, None) as made:
        yield made


def ask(address: Address, text: str) -> str:
    """The one value of a query's answer, or what the server says instead."""
    try:
        with psycopg.connect(address.conninfo(), autocommit=True) as connection:
            row = connection.execute(text.encode()).fetchone()
            return "" if row is None else str(row[0])
    except psycopg.Error as exc:
        return str(exc)


@pytest.mark.usefixtures("copied_initdb")
def test_only_the_role_of_the_load_is_let_in(tmp_path: Path, access: LoadAccess) -> None:
    with some_home() as home:
        check_who_is_let_in(home, tmp_path, access)


def check_who_is_let_in(home: Home, tmp_path: Path, access: LoadAccess) -> None:
    server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "server.log", access=access)
    way = access.reach("postgres")
    try:
        server.initdb()
        server.start({})
        # A cluster that goes on with its data has the role already.
        for _ in range(2):
            with closing(server.connect(database="postgres")) as connection:
                access.make_role(connection)
        assert (
            ask(way, "SELECT host(inet_server_addr()) || ' ' || current_setting('is_superuser')") == f"{LOOPBACK} off"
        )
        assert "permission denied" in ask(way, "SELECT pg_read_file('postgresql.conf')")
        with closing(server.connect(database="postgres")) as connection:
            connection.execute(b"CREATE TABLE t (x int); CREATE SEQUENCE s")
        assert ask(way, "INSERT INTO t VALUES (nextval('s')) RETURNING x") == "1"
        # What it makes is its own: the superuser's sessions would run a function in public that fits their words best.
        made = "FUNCTION {}jsonb_object_agg(name, text) RETURNS text LANGUAGE sql AS 'SELECT current_user'"
        assert "permission denied for schema public" in ask(way, f"CREATE {made.format('public.')}")
        with psycopg.connect(way.conninfo(), autocommit=True) as connection:
            connection.execute(b"CREATE TABLE mine AS SELECT 1 AS one")
            connection.execute(f"CREATE {made.format('')}".encode())
        assert ask(way, "SELECT one FROM mine") == "1"
        asked = b"SELECT pg_typeof(jsonb_object_agg(name, setting))::text AS type FROM pg_settings"
        with closing(server.connect(database="postgres")) as connection:
            assert connection.execute(asked).fetchall() == [{"type": "jsonb"}]
        wrong = msgspec.structs.replace(way, parameters={"sslmode": "disable", "password": "wrong"})
        assert "password authentication failed" in ask(wrong, "SELECT 1")
        other = msgspec.structs.replace(way, user=SUPERUSER)
        assert "no pg_hba.conf entry" in ask(other, "SELECT 1")
        server.stop()
        access.admit_only(frozenset({"127.0.0.9", "::1"}))
        server.start({})
        assert "no pg_hba.conf entry" in ask(way, "SELECT 1")
        with pytest.raises(HostError, match=f"port {access.port} is in use"):
            access.check_free()
    finally:
        server.abandon()


@pytest.mark.usefixtures("copied_initdb")
def test_a_pooler_lets_in_whom_its_server_lets_in(tmp_path: Path, access: LoadAccess) -> None:
    with some_home() as home:
        server = Server(
            installation=installation_of(18, home), home=home, log_path=tmp_path / "server.log", access=access
        )
        planned = PlannedPooler(
            name="pool", mode=PoolMode.TRANSACTION, size=1, most_clients=2, program=find_pgbouncer(home.user)
        )
        pooler = Pgbouncer(planned, server, log_folder=tmp_path, dbname="postgres")
        way = access.reach("postgres", is_pooled=True)
        wrong = msgspec.structs.replace(way, parameters={"sslmode": "disable", "password": "wrong"})
        try:
            server.initdb()
            server.start({})
            with closing(server.connect(database="postgres")) as connection:
                access.make_role(connection)
            pooler.start()
            # The pool's connections are of the load's role, too.
            assert ask(way, "SELECT session_user || ' ' || current_setting('is_superuser')") == "pgdyno_load off"
            assert "authentication failed" in ask(wrong, "SELECT 1")
            for parameters in (way.parameters, wrong.parameters):
                other = msgspec.structs.replace(way, user=SUPERUSER, parameters=parameters)
                assert "FATAL" in ask(other, "SELECT 1"), pooler.find_failure()
            assert not any("SCRAM" in file.read_text() for file in tmp_path.iterdir())
            pooler.abandon()
            access.admit_only(frozenset({"127.0.0.9", "::1"}))
            taken = pytest.raises(HostError, match=f"port {access.pooler_port} is in use")
            with socket.create_server((LOOPBACK, access.pooler_port)), taken:
                pooler.start()
            pooler.start()
            assert "FATAL" in ask(way, "SELECT 1")
        finally:
            pooler.abandon()
            server.abandon()


def test_an_address_of_another_machine_is_listened_to_everywhere() -> None:
    # Reserved for documentation: no machine has it.
    with open_load_access("192.0.2.1", None) as elsewhere:
        assert elsewhere.listens_on == "*"
    with open_load_access(LOOPBACK, None) as here:
        assert here.listens_on == LOOPBACK

"""Standbys of pgdyno's own servers that load hosts read from: who is let in and when, and what is tried before data are loaded."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.cli.terminal.display import Display
from pgdyno.conduct.load import own
from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.cluster import standby
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.load_access import LoadAccess, open_load_access
from pgdyno.run.cluster.server import SUPERUSER, Server
from pgdyno.run.own_server import OwnServer
from pgdyno.spec.read import make_study
from pgdyno.spec.study import DataSpec
from pgdyno.spec.table import CacheState
from tests.homes import installation_of, some_home
from tests.run.test_load_access import ask
from tests.tools.pgcluster import LOOPBACK

pytestmark = pytest.mark.cluster
WHO = "SELECT session_user || ' ' || pg_is_in_recovery() || ' ' || has_table_privilege('pgbench_accounts', 'SELECT')"


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def prepare(home: Home, folder: Path, access: LoadAccess, *, major: int, standbys: int) -> OwnServer:
    server = OwnServer(installation=installation_of(major, home), home=home, standbys=standbys, access=access)
    (folder / "init").mkdir()
    server.load(DataSpec(), 1, settings={}, output_dir=folder / "init", on_activity=lambda _: None)
    server.reset()
    return server


@pytest.mark.parametrize("major", [15, 18])
def test_standbys_let_in_the_role_of_the_load_as_soon_as_they_run(home: Home, tmp_path: Path, major: int) -> None:
    with open_load_access(LOOPBACK, None, standbys=2) as access:
        server = prepare(home, tmp_path, access, major=major, standbys=2)
        # A commit that is not flushed would not be waited for.
        late = {"recovery_min_apply_delay": "300ms", "synchronous_commit": "off"}
        with server.running(late, log_path=tmp_path / "server.log"):
            ways = [one.load_address for one in server.readers]
            assert [ask(way, WHO) for way in ways] == ["pgdyno_load true true"] * 2
            assert [way.port for way in ways] == [access.port + 2, access.port + 3]
            assert access.pooler_port == access.port + 1
            for way in ways:
                assert "no pg_hba.conf entry" in ask(msgspec.structs.replace(way, user=SUPERUSER), "SELECT 1")
                wrong = msgspec.structs.replace(way, parameters={"sslmode": "disable", "password": "wrong"})
                assert "password authentication failed" in ask(wrong, "SELECT 1")
            # All are restarted.
            server.prepare_cache(CacheState.COLD)
            assert [ask(one.load_address, WHO) for one in server.readers] == ["pgdyno_load true true"] * 2


def test_a_standby_whose_replay_is_late_for_long_is_named(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await_replay = standby.Standbys.await_replay

    def await_shortly(self: standby.Standbys, primary: Server) -> None:
        # It streams by now, however busy the machine is.
        monkeypatch.setattr(standby, "_READY_WITHIN_S", 0.5)
        await_replay(self, primary)

    monkeypatch.setattr(standby.Standbys, "await_replay", await_shortly)
    with open_load_access(LOOPBACK, None, standbys=1) as access:
        server = prepare(home, tmp_path, access, major=18, standbys=1)
        with (
            pytest.raises(StepFailedError, match="standby1 does not replay the role of the load hosts") as caught,
            server.running({"recovery_min_apply_delay": "1h"}, log_path=tmp_path / "server.log"),
        ):
            raise AssertionError("the standby had the role")
    assert "recovery_min_apply_delay" in caught.value.hint


def test_standbys_that_no_load_host_reads_from_have_a_private_socket_only(home: Home, tmp_path: Path) -> None:
    with open_load_access(LOOPBACK, None) as access:
        server = prepare(home, tmp_path, access, major=18, standbys=1)
        with server.running({}, log_path=tmp_path / "server.log"):
            (one,) = server.readers
            # Somebody else may listen at what would be its port.
            assert ask(one.address, "SELECT '<' || current_setting('listen_addresses') || '>'") == "<>"
            assert one.load_address == one.address


def test_ports_of_standbys_come_after_the_poolers() -> None:
    for port, others in ((5432, [5433, 5434, 5435]), (65_534, [65_535, 65_532, 65_531])):
        access = LoadAccess(LOOPBACK, port, secret=0, password="", standbys=2)
        assert [access.pooler_port, access.of_standby(1).port, access.of_standby(2).port] == others


@contextlib.contextmanager
def readying() -> Iterator[None]:
    """Make load hosts ready for a study that reads from two standbys, without the time that measuring them takes."""
    tables: dict[str, Any] = {
        "server": {"standbys": 2},
        "hosts": {name: {"role": "load", "ssh": name} for name in ("db1", "db2")},
        "workload": [{"name": "select-only", "clients": 2, "endpoint": "replicas"}],
    }
    study = make_study(tables, source="a test", folder=Path())
    with some_home() as home, ExitStack() as stack:
        own.ready_own_load(
            study,
            home=home,
            installation=installation_of(18, home),
            cpu_count=2,
            stack=stack,
            ui=Display(quiet=True),
        )
        yield


@pytest.mark.usefixtures("by_ssh", "copied_initdb")
def test_each_load_host_must_get_to_each_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    of_standby = LoadAccess.of_standby

    def turn_away(self: LoadAccess, number: int) -> LoadAccess:
        other = of_standby(self, number)
        if number == 2:
            other.admit_only(frozenset({"127.0.0.9"}))
        return other

    monkeypatch.setattr(LoadAccess, "of_standby", turn_away)
    # It got to the first one.
    with pytest.raises(HostError, match="db1 does not reach standby2") as caught, readying():
        pass
    assert "no pg_hba.conf entry" in caught.value.detail
    assert "does a firewall let it reach port" in caught.value.hint


@pytest.mark.usefixtures("by_ssh", "copied_initdb")
def test_a_port_of_a_standby_that_is_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    @contextlib.contextmanager
    def take_a_port(host: str, port: int | None, *, standbys: int) -> Iterator[LoadAccess]:
        with open_load_access(host, port, standbys=standbys) as access:
            taken.append(access.of_standby(1).port)
            with socket.create_server((access.listens_on, taken[0])):
                yield access

    monkeypatch.setattr(own, "open_load_access", take_a_port)
    with pytest.raises(HostError) as caught, readying():
        pass
    assert caught.value.fact == f"port {taken[0]} is in use"
    assert "standbys those after it" in caught.value.hint

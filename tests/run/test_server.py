from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.run.home import DYNAMIC_SEGMENTS, Home, open_home
from pgdyno.run.installation import find_installation, read_server_facts
from pgdyno.run.process import find_server_user
from pgdyno.run.server import Server
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.homes import SPECS, installation_of, reachable_folder, some_home

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


@pytest.fixture(params=[18, 15])
def server(request: pytest.FixtureRequest, home: Home, tmp_path: Path) -> Iterator[Server]:
    shutil.rmtree(home.data, ignore_errors=True)
    made = Server(installation=installation_of(request.param, home), home=home, log_path=tmp_path / "server.log")
    made.initdb()
    yield made
    made.abandon()


def shared_memory() -> set[str]:
    """Names of all shared memory: System V ids with their key, and POSIX segments of PostgreSQL."""
    system_v = {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    return system_v | {path.name for path in Path("/dev/shm").glob("PostgreSQL.*")}


def shared_memory_of(home: Home) -> set[str]:
    """What the server now running in a home holds, by PostgreSQL's own pid file and what pgdyno noted."""
    system_v = (home.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
    posix = [Path(line).name for line in (home.work / DYNAMIC_SEGMENTS).read_text().splitlines()]
    assert posix
    return {system_v, *posix}


def wait_until(condition: Callable[[], bool], *, seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_it_starts_with_the_settings_and_checksums_and_stops_clean(server: Server) -> None:
    server.start({"shared_buffers": "48MB", "autovacuum": False})
    own = shared_memory_of(server.home)
    assert own <= shared_memory()
    with server.connect(database="postgres") as connection:
        shown = {
            name: connection.execute(f"SHOW {name}").fetchone()[name]
            for name in ("shared_buffers", "autovacuum", "data_checksums", "listen_addresses", "server_version_num")
        }
    assert shown.pop("server_version_num") == str(server.installation.facts.version_num)
    assert shown == {"shared_buffers": "48MB", "autovacuum": "off", "data_checksums": "on", "listen_addresses": ""}
    assert server.find_failure() is None
    server.stop()
    assert not own & shared_memory()
    assert "database system is shut down" in server.log_tail()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"no_such_setting": "1"}, "unrecognized configuration parameter"),
        ({"shared_buffers": "-3MB"}, "outside the valid range"),
        ({"wal_level": "some"}, "invalid value for parameter"),
    ],
)
def test_a_refused_setting_is_the_users_to_mend(server: Server, settings: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match="refuses a setting") as caught:
        server.start(settings)
    assert words in caught.value.detail


def test_a_killed_postmaster_is_noticed_and_nothing_stays(server: Server, home: Home) -> None:
    server.start({})
    own = shared_memory_of(home)
    os.kill(server.pid, signal.SIGKILL)
    assert wait_until(lambda: server.find_failure() is not None)
    failure = server.find_failure()
    assert failure is not None
    assert "was killed by SIGKILL" in failure.fact
    assert "ready to accept connections" in failure.detail
    found = home.end_left_overs()
    assert all("postgres" in name for name in found)
    assert not own & shared_memory()


def test_a_port_in_use(home: Home, tmp_path: Path) -> None:
    shutil.rmtree(home.data, ignore_errors=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "log", port=port)
        server.initdb()
        with pytest.raises(HostError, match=f"port {port} is in use") as caught:
            server.start({})
    assert caught.value.hint
    server.start({})
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    server.stop()


def test_a_data_folder_of_another_version(home: Home, tmp_path: Path) -> None:
    shutil.rmtree(home.data, ignore_errors=True)
    Server(installation=installation_of(15, home), home=home, log_path=tmp_path / "log").initdb()
    newer = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "log")
    with pytest.raises(HostError, match="the data folder is of PostgreSQL 15, the server is 18"):
        newer.start({})


def test_a_server_that_cannot_get_its_memory(server: Server) -> None:
    with pytest.raises(StepFailedError, match="does not start") as caught:
        server.start({"shared_buffers": "8000GB"})
    assert "memory" in caught.value.detail
    assert caught.value.hint


def test_kill_9_of_its_owner_leaves_no_process_and_no_shared_memory() -> None:
    program = """
import sys, time
from pathlib import Path
from pgdyno.run.home import open_home
from pgdyno.run.process import find_server_user
from pgdyno.run.server import Server
from pgdyno.run.installation import find_installation
from pgdyno.spec.study import ServerSpec
root = Path(sys.argv[1])
with open_home(root / "home", find_server_user()) as home:
    server = Server(installation=find_installation(ServerSpec(), user=home.user, software_dir=home.software),
                    home=home, log_path=root / "log")
    server.initdb()
    server.start({})
    print(server.pid, flush=True)
    time.sleep(600)
"""
    with reachable_folder() as folder:
        owner = subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)
        assert owner.stdout is not None
        with owner.stdout:
            postmaster = int(owner.stdout.readline())
        own = shared_memory_of(Home(folder / "home", find_server_user()))
        assert own <= shared_memory()
        owner.kill()
        owner.wait()
        assert wait_until(lambda: not Path(f"/proc/{postmaster}").exists())
        assert wait_until(lambda: not own & shared_memory())
        with open_home(folder / "home", find_server_user()) as home:
            assert not home.data.exists()


def test_two_in_one_home() -> None:
    with (
        some_home() as home,
        pytest.raises(HostError, match="another pgdyno is at work") as caught,
        open_home(home.root, home.user),
    ):
        pass
    assert f"pid {os.getpid()}" in caught.value.detail


def test_programs_out_of_the_servers_reach_are_copied(home: Home, tmp_path: Path) -> None:
    if home.user.is_self:
        pytest.skip("only root runs the server as somebody else")
    # pytest's folders are closed to other users, as a clone below /root is.
    source = installation_of(18, home).bindir.parent.parent
    shutil.copytree(source, tmp_path / source.name, symlinks=True)
    shutil.copytree(f"{source}.libs", tmp_path / f"{source.name}.libs")
    closed = ServerSpec(kind=ServerKind.LOCAL, bindir=str(tmp_path / source.name / "pginstall" / "bin"))
    found = find_installation(closed, user=home.user, software_dir=home.software)
    assert found.bindir.is_relative_to(home.software)
    assert find_installation(closed, user=home.user, software_dir=home.software) == found


def test_what_is_not_installed(home: Home, tmp_path: Path) -> None:
    missing = ServerSpec(kind=ServerKind.LOCAL, version=17)
    with pytest.raises(HostError, match="PostgreSQL 17 is not installed") as caught:
        find_installation(missing, user=home.user, software_dir=home.software)
    assert "15 (/usr/lib/postgresql/15/bin)" in caught.value.detail
    empty = ServerSpec(kind=ServerKind.LOCAL, bindir=str(tmp_path))
    with pytest.raises(SpecError, match="there is no postgres in"):
        find_installation(empty, user=home.user, software_dir=home.software)


@pytest.mark.parametrize("major", SPECS)
def test_facts_of_the_programs(home: Home, major: int) -> None:
    facts = read_server_facts(installation_of(major, home).bindir)
    assert facts.major == major
    assert re.fullmatch(rf"{major}\.\d+.*", facts.version)
    assert facts.configure


def test_a_home_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot use"), open_home(tmp_path / "file" / "home", find_server_user()):
        pass
    deep = tmp_path / ("d" * 90)
    with pytest.raises(HostError, match="too long for a socket"), open_home(deep, find_server_user()):
        pass
    user = find_server_user()
    if not user.is_self:
        with pytest.raises(HostError, match=f"the user {user.name} cannot reach"), open_home(tmp_path / "home", user):
            pass

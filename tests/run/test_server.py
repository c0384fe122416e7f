from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.home_mark import mark_home
from pgdyno.run.cluster.server import Server, psql_command
from pgdyno.run.cluster.shared_memory import free_shared_memory
from pgdyno.run.host.process import ServerUser, find_server_user, start, stop
from pgdyno.run.host.process_id import find_working_in
from tests.homes import SPECS, initdb, installation_of, some_home
from tests.ports import find_free_port
from tests.shared import reachable_folder
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


@pytest.fixture(params=[18, 15])
def server(request: pytest.FixtureRequest, home: Home, tmp_path: Path) -> Iterator[Server]:
    shutil.rmtree(home.data, ignore_errors=True)
    made = Server(installation=installation_of(request.param, home), home=home, log_path=tmp_path / "server.log")
    initdb(made)
    yield made
    made.abandon()


def shared_memory() -> set[str]:
    """Names of all shared memory: System V ids with their key, and POSIX segments of PostgreSQL."""
    system_v = {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}
    return system_v | {path.name for path in Path("/dev/shm").glob("PostgreSQL.*")}


def shared_memory_of(home: Home) -> set[str]:
    """What the server now running in a home holds, by PostgreSQL's own pid file and what its processes have mapped."""
    lines = (home.data / "postmaster.pid").read_text().splitlines()
    postmaster = lines[0]
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.name == postmaster or f"PPid:\t{postmaster}\n" in (process / "status").read_text():
                maps = (process / "maps").read_text()
                found |= set(re.findall(r"/dev/shm/(PostgreSQL\.\d+)", maps))
                # What a map has in the place of an inode is the segment's id.
                found |= set(re.findall(r" (\d+) +/SYSV[0-9a-f]{8}", maps))
        except (FileNotFoundError, ProcessLookupError):
            continue
    assert len(found) > 1
    return {lines[6].split()[1], *found}


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


@pytest.mark.parametrize("settings", [{}, {"dynamic_shared_memory_type": "sysv"}], ids=["posix", "sysv"])
def test_a_postmaster_killed_under_load_leaves_no_shared_memory(
    server: Server, home: Home, settings: dict[str, str]
) -> None:
    parallel = {"parallel_setup_cost": 0, "parallel_tuple_cost": 0, "min_parallel_table_scan_size": 0}
    server.start({**parallel, **settings})
    idle = busy = shared_memory_of(home)

    def is_busy() -> bool:
        nonlocal busy
        busy = shared_memory_of(home)
        return busy > idle

    # What is left of a dead server cannot be committed, which leaving the connection itself as a context would.
    with contextlib.closing(server.connect(database="postgres")) as connection:
        connection.execute("CREATE TABLE slow AS SELECT generate_series(1, 100000) AS number")
        connection.execute("ALTER TABLE slow SET (parallel_workers = 4)")
        connection.execute("ANALYZE slow")
        connection.pgconn.send_query(b"SELECT count(*) FROM slow WHERE pg_sleep(0.01) IS NOT NULL AND number > 0")
        # The segment through which a query and its workers talk lives as long as they do.
        assert wait_until(is_busy)
        os.kill(server.pid, signal.SIGKILL)
        assert wait_until(lambda: server.find_failure() is not None)
        server.abandon()
    assert not busy & shared_memory()


def test_memory_that_another_server_has_made_stays(server: Server, home: Home, tmp_path: Path) -> None:
    """An id that is in a stale postmaster.pid may be that of a later server's memory, such as after a boot."""
    server.start({})
    own = shared_memory_of(home)
    lines = (home.data / "postmaster.pid").read_text().splitlines()
    # Of another server; of one with the same pid, as in another container; and of one that still has it.
    for folder, pid in ((tmp_path, "1"), (tmp_path, lines[0]), (home.data, lines[0])):
        (folder / "postmaster.pid").write_text("\n".join([pid, *lines[1:]]))
        free_shared_memory(folder, home.user)
        assert own <= shared_memory()


def test_the_log_is_written_through_no_link(server: Server, tmp_path: Path) -> None:
    """The account of the server may have put the link there, and the log is opened by root."""
    (tmp_path / "target").write_text("kept\n")
    (tmp_path / "server.log").symlink_to(tmp_path / "target")
    with pytest.raises(StepFailedError, match=r"cannot write .*server\.log"):
        server.start({})
    assert (tmp_path / "target").read_text() == "kept\n"


def test_a_postmaster_killed_after_it_began_anew_leaves_no_shared_memory(server: Server, home: Home) -> None:
    server.start({})
    first = shared_memory_of(home)
    with server.connect(database="postgres") as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
    assert wait_until(lambda: server.log_tail(100).count("ready to accept connections") == 2)
    second = shared_memory_of(home)
    assert second - first
    os.kill(server.pid, signal.SIGKILL)
    server.abandon()
    assert not (first | second) & shared_memory()


def test_a_server_that_was_killed_has_not_stopped(server: Server) -> None:
    server.start({})
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(StepFailedError, match="was killed by SIGKILL") as caught:
        server.stop()
    assert "ready to accept connections" in caught.value.detail


@pytest.fixture
def foreign(server: Server) -> Iterator[Path]:
    """Another cluster that the server's account can read."""
    copy = server.home.work / "foreign"
    subprocess.run(["cp", "-a", str(server.home.data), str(copy)], check=True)
    yield copy
    shutil.rmtree(copy)


def test_what_keeps_a_cluster_private_stands_above_the_users_settings(
    server: Server, foreign: Path, tmp_path: Path
) -> None:
    meant = {
        "data_directory": str(foreign),
        "hba_file": str(tmp_path / "hba"),
        "ident_file": str(tmp_path / "ident"),
        "Port": 7777,
        "listen_addresses": "*",
        "unix_socket_directories": str(tmp_path),
        "logging_collector": True,
        "log_line_prefix": "",
        "log_destination": "csvlog",
        "log_autovacuum_min_duration": "5s",
    }
    server.start(meant)
    with server.connect(database="postgres") as connection:
        shown = {name.lower(): connection.execute(f"SHOW {name}").fetchone()[name.lower()] for name in meant}
    assert shown == {
        "data_directory": str(server.home.data),
        "hba_file": str(server.home.data / "pg_hba.conf"),
        "ident_file": str(server.home.data / "pg_ident.conf"),
        "port": "5432",
        "listen_addresses": "",
        "unix_socket_directories": str(server.home.sockets),
        "logging_collector": "off",
        "log_line_prefix": "%n|%p|%b|%e|",
        "log_destination": "stderr",
        "log_autovacuum_min_duration": "5s",
    }


def test_a_server_of_another_data_folder_is_ended(server: Server, foreign: Path) -> None:
    with (server.home.data / "postgresql.conf").open("a") as config:
        config.write(f"data_directory = '{foreign}'\n")
    with pytest.raises(StepFailedError, match="serves another data folder") as caught:
        server.start({})
    assert str(foreign) in caught.value.detail
    assert server.home.end_servers() == []
    with pytest.raises(StepFailedError, match="cannot connect"):
        server.connect(database="postgres")


@pytest.mark.parametrize("major", SPECS)
def test_who_comes_through_the_port_needs_the_password(home: Home, tmp_path: Path, major: int) -> None:
    shutil.rmtree(home.data, ignore_errors=True)
    port = find_free_port()
    server = Server(installation=installation_of(major, home), home=home, log_path=tmp_path / "log", port=port)
    initdb(server)
    server.start({"password_encryption": "md5"})
    try:
        password_file = home.work / "password"
        assert (
            psql_command(server.home, port)
            == f"PGPASSFILE={password_file} psql -h 127.0.0.1 -p {port} -U pgdyno pgdyno"
        )
        assert password_file.stat().st_mode & 0o777 == 0o600
        assert password_file.stat().st_uid == os.geteuid()
        reach = f"host=127.0.0.1 port={port} user=pgdyno dbname=postgres"
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(f"{reach} passfile=/nowhere")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"{reach} password=guess")
        with psycopg.connect(f"{reach} passfile={password_file}") as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("pgdyno",)
        before = password_file.read_text()
        assert before.rpartition(":")[2].strip() not in server.log_tail(100)
        server.stop()
        assert not password_file.exists()
        server.start({})
        assert password_file.read_text() != before
    finally:
        server.abandon()


def test_the_command_to_look_on_can_be_pasted() -> None:
    home = Home(Path("/mnt/a disk's/home"), find_server_user())
    assert shlex.split(psql_command(home, 5432))[:2] == ["PGPASSFILE=/mnt/a disk's/home/work/password", "psql"]


def test_without_a_port_there_is_nothing_to_look_on(server: Server, home: Home) -> None:
    server.start({})
    assert not (home.work / "password").exists()


def test_a_port_in_use(home: Home, tmp_path: Path) -> None:
    shutil.rmtree(home.data, ignore_errors=True)
    with socket.socket() as taken:
        port = find_free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "log", port=port)
        initdb(server)
        with pytest.raises(HostError, match=f"port {port} is in use") as caught:
            server.start({})
    assert "finds a free one for load hosts" in caught.value.hint
    server.start({})
    with socket.create_connection(("127.0.0.1", port), timeout=60):
        pass
    server.stop()


def test_a_data_folder_of_another_version(home: Home, tmp_path: Path) -> None:
    shutil.rmtree(home.data, ignore_errors=True)
    initdb(Server(installation=installation_of(15, home), home=home, log_path=tmp_path / "log"))
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
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.cluster.server import Server, psql_command
from pgdyno.run.postgres.installation import find_installation
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


def test_only_postgres_of_its_own_account_is_ended() -> None:
    with some_home() as home:
        program = home.software / "postgres"
        shutil.copy(shutil.which("sleep") or "", program)
        home.data.mkdir()
        home.work.chmod(0o755)
        begun = [
            start(["sleep", "3600"], user=home.user, cwd=home.data),
            start([str(program), "3600"], user=home.user, cwd=home.data),
        ]
        if not home.user.is_self:
            other = ServerUser(name="nobody", uid=65534, gid=65534)
            begun.append(start([str(program), "3600"], user=other, cwd=home.data))
        try:
            for child, name in zip(begun, ("sleep", "postgres", "postgres"), strict=False):
                comm = Path(f"/proc/{child.pid}/comm")
                while comm.read_text().strip() != name:
                    assert child.poll() is None
            assert home.end_left_overs() == [f"postgres (pid {begun[1].pid})"]
            assert [child.poll() for child in begun] == [None, -signal.SIGQUIT, None][: len(begun)]
        finally:
            for child in begun:
                stop(child)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system of its own")
def test_a_server_of_another_container_with_the_same_path_is_left_alone() -> None:
    with some_home() as home:
        home.data.mkdir()
        program = home.software / "postgres"
        shutil.copy(shutil.which("sleep") or "", program)
        hidden = 'mount -t tmpfs none "$0" && mkdir "$0/data" && cd "$0/data" && exec setpriv --reuid "$1" "$2" 600'
        argv = ["unshare", "--mount", "sh", "-c", hidden, str(home.work), str(home.user.uid), str(program)]
        with subprocess.Popen(argv) as child:
            try:
                while Path(f"/proc/{child.pid}/comm").read_text() != "postgres\n":
                    assert child.poll() is None
                assert Path(f"/proc/{child.pid}/cwd").readlink() == home.data
                assert home.end_left_overs() == []
                assert child.poll() is None
            finally:
                child.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for two accounts")
@pytest.mark.usefixtures("copied_initdb")
def test_a_server_left_by_a_run_as_another_account_is_ended(tmp_path: Path) -> None:
    """As one that a live round had frozen when its pgdyno was killed."""
    user = find_server_user()
    other = next(one for one in map(find_server_user, ("nobody", "daemon")) if one.uid != user.uid)
    with reachable_folder() as folder:
        home = Home(folder / "home", other)
        home.prepare()
        server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "log")
        server.initdb()
        server.start({})
        try:
            os.kill(server.pid, signal.SIGSTOP)
            with open_home(home.root, user) as opened:
                assert f"postgres (pid {server.pid})" in opened.left_overs
                assert list(find_working_in(home.work)) == []
            assert server.find_failure() is not None
        finally:
            server.abandon()


def test_a_home_that_cannot_be() -> None:
    with reachable_folder() as folder:
        (folder / "file").write_text("")
        with pytest.raises(HostError, match="cannot use"), open_home(folder / "file" / "home", find_server_user()):
            pass
        # 60 letters of two bytes each are longer than a socket's address allows.
        for deep in ("d" * 90, "\u00fc" * 60):
            root = folder / deep
            with pytest.raises(HostError, match="too long for a socket"), open_home(root, find_server_user()):
                pass
            assert not root.exists()
    with reachable_folder() as folder:
        mark_home(folder)
        (folder / "lock").mkdir()
        with pytest.raises(HostError, match="cannot lock"), open_home(folder, find_server_user()):
            pass
    user = find_server_user()
    if not user.is_self:
        with reachable_folder() as folder:
            folder.chmod(0o700)
            with pytest.raises(HostError, match=f"the user {user.name} cannot reach"), open_home(folder / "h", user):
                pass

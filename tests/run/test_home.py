"""Where a home is, and where else to look for what was measured of a machine."""

from __future__ import annotations

import functools
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.cluster.home import Home, default_home, homes_to_read, open_home
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.wal_home import find_note, read_notes, write_note
from pgdyno.run.host.freezer import Freezer
from pgdyno.run.host.process import call_as, find_server_user, start
from tests.homes import installation_of, reachable_folder, some_home
from tests.shared import hardened_umask, run_without_ptrace

ROOTS = Path("/var/lib/pgdyno")


def test_an_ordinary_user_reads_what_root_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGDYNO_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def look() -> None:
        home = default_home()
        assert home == tmp_path / "pgdyno"
        assert homes_to_read(home) == (home, ROOTS)
        assert homes_to_read(tmp_path / "named") == (tmp_path / "named",)
        monkeypatch.setenv("PGDYNO_HOME", str(home))
        assert homes_to_read(home) == (home,), "somebody chose it"

    call_as(find_server_user(), look)


def test_roots_home_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGDYNO_HOME", raising=False)
    assert homes_to_read(ROOTS) == (ROOTS,)


def test_a_slot_shares_templates_and_has_a_cluster_of_its_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", find_server_user())
    one, other = (Home(home.root, home.user, work=home.work / name) for name in ("slot-1", "slot-2"))
    assert one.templates == home.templates
    assert len({each.data for each in (home, one, other)}) == 3
    assert len({each.sockets for each in (home, one, other)}) == 3
    assert len({each.scripts for each in (home, one, other)}) == 3
    assert not any(home.work in each.scripts.parents for each in (home, one, other)), "root writes there"


@pytest.mark.parametrize("name", ["work", "templates", "scripts-2023"])
def test_a_folder_with_folders_of_the_users_is_no_home(name: str) -> None:
    with reachable_folder() as folder:
        (folder / name).mkdir()
        (kept := folder / name / "thesis.txt").write_text("years of work")
        refused = pytest.raises(HostError, match=rf"is no home of pgdyno, and it has {name}$")
        with refused as caught, open_home(folder, find_server_user()):
            pass
        assert "--home" in caught.value.hint
        assert kept.read_text() == "years of work"
        assert [path.name for path in folder.iterdir()] == [name]


@pytest.mark.parametrize("name", ["lock", "restore-command", "clock.json", "wal-home-2023", "other-home-2023"])
def test_a_folder_with_files_of_the_users_is_no_home(name: str) -> None:
    with reachable_folder() as folder:
        (kept := folder / name).write_text("years of work")
        refused = pytest.raises(HostError, match=rf"is no home of pgdyno, and it has {name}$")
        with refused, open_home(folder, find_server_user()):
            pass
        assert kept.read_text() == "years of work"
        assert [path.name for path in folder.iterdir()] == [name]


def test_a_folder_with_kept_disk_cards_becomes_a_home() -> None:
    with reachable_folder() as folder:
        (folder / "disks").mkdir()
        with open_home(folder, find_server_user()):
            assert (folder / ".pgdyno-home").is_file()


def test_an_empty_folder_becomes_a_home_and_one_without_a_mark_stays_one() -> None:
    with reachable_folder() as folder:
        user = find_server_user()
        with open_home(folder, user) as home:
            assert (folder / ".pgdyno-home").is_file()
            home.scripts.mkdir()
        # As versions before the mark left it.
        (folder / ".pgdyno-home").unlink()
        with open_home(folder, user):
            assert (folder / ".pgdyno-home").is_file()


def test_a_damaged_note_of_another_home_names_nothing(tmp_path: Path) -> None:
    write_note(whole := find_note(tmp_path, "other-home", Path("/mnt/b")), Path("/mnt/b"))
    (tmp_path / "other-home-12345678").touch()
    assert read_notes(tmp_path, "other-home") == [(whole, Path("/mnt/b"))]


def test_the_servers_account_reaches_what_root_makes_under_any_umask() -> None:
    with reachable_folder() as folder, hardened_umask(), open_home(folder / "a/home", find_server_user()) as home:
        call_as(home.user, lambda: (home.software.stat(), (home.sockets / "made").touch()))


def test_the_scripts_of_a_killed_load_are_removed() -> None:
    with reachable_folder() as folder:
        home = Home(folder / "home", find_server_user())
        home.prepare()
        left = [home.scripts, home.slot(1).scripts]
        for one in left:
            one.mkdir()
            (one / "script.sql").touch()
        home.end_left_overs()
        assert not any(one.exists() for one in left)


def test_a_home_with_a_comma_would_be_several_to_postgresql() -> None:
    with reachable_folder() as folder:
        root = folder / "a,b"
        with pytest.raises(HostError, match="has a comma"), open_home(root, find_server_user()):
            pass
        assert not root.exists()


def test_a_home_whose_sockets_just_fit_has_room_for_those_of_its_slots() -> None:
    with reachable_folder() as folder:
        root = folder / ("x" * (85 - len(f"{folder}//work/sockets")))
        with open_home(root, find_server_user()) as home:
            assert home.slot(0).sockets.is_dir()
            assert home.slot(9).sockets.is_dir()
        assert [path.name for path in home.work.iterdir()] == ["sockets"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights that the server's account lacks")
def test_root_follows_no_link_that_the_servers_account_puts_into_its_home() -> None:
    with reachable_folder() as folder:
        home = Home(folder / "home", find_server_user())
        home.prepare()
        (of_root := folder / "of-root").mkdir()
        (of_root / "kept").touch()
        home.sockets.rmdir()
        for place in (home.sockets, home.work / "slot-1", home.work / "sock1", home.own_wal):
            call_as(home.user, functools.partial(place.symlink_to, of_root))
        home.end_left_overs()
        assert [path.name for path in of_root.iterdir()] == ["kept"]
        home.prepare()
        slot = home.slot(1)
        home.make_own_wal()
        for made in (home.sockets, slot.work, slot.sockets, home.own_wal):
            assert stat.S_ISDIR(made.lstat().st_mode), made
            assert made.lstat().st_uid == home.user.uid, made
        # Of the files of a cluster there, none is written through a link either.
        call_as(home.user, lambda: slot.data.symlink_to(of_root))
        server = Server(installation=installation_of(18, home), home=slot, log_path=folder / "log")
        with pytest.raises(StepFailedError, match="cannot write"):
            server.write_file(slot.data / "standby.signal", "")
        assert [path.name for path in of_root.iterdir()] == ["kept"]
        assert of_root.stat().st_uid == 0


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
def test_a_cluster_is_removed_with_what_still_writes_to_it(tmp_path: Path) -> None:
    """As what an initdb that was killed had started does."""
    with some_home() as home:
        installation = installation_of(18, home)
        server = Server(installation=installation, home=home, log_path=tmp_path / "server.log")
        server.initdb()
        # This writes the settings that the cluster's own include.
        server.start({})
        server.stop()
        argv = [installation.program("postgres"), "--single", "-D", str(home.data), "postgres"]
        with start(argv, user=home.user, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home.data) as writing:
            said = writing.stdout
            assert said is not None
            # It asks for a statement.
            assert b">" in iter(lambda: said.read(1), b"")
            home.clear_data()
            # Ended before its files were.
            assert writing.wait(timeout=600) != 0
        assert not home.data.exists()


def open_without_ptrace(folder: Path) -> subprocess.CompletedProcess[str]:
    """Open a home, and print what was left there, or the error."""
    program = (
        "import sys; from pathlib import Path\n"
        "from pgdyno.errors import HostError; from pgdyno.run.cluster.home import open_home\n"
        "from pgdyno.run.host.process import find_server_user\n"
        "try:\n"
        "    with open_home(Path(sys.argv[1]), find_server_user()) as home: print(*home.left_overs, sep='\\n')\n"
        "except HostError as error: sys.exit(error.fact)\n"
    )
    return run_without_ptrace(program, str(folder))


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
@pytest.mark.skipif(os.geteuid() != 0, reason="other accounts see their own processes")
def test_frozen_servers_are_ended_by_root_that_may_not_trace(tmp_path: Path) -> None:
    """As Docker and Podman have root: the folder of another account's process is closed to it."""
    with reachable_folder() as folder:
        home = Home(folder / "home", find_server_user())
        home.prepare()
        server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "server.log")
        server.initdb()
        server.start({})
        Freezer().freeze([server.pid])
        # Not before: a process may start or end until all of them stand still.
        pids = sorted(home.server_pids())
        try:
            assert len(pids) > 3
            opened = open_without_ptrace(home.root)
            assert (opened.returncode, opened.stderr) == (0, "")
            assert sorted(opened.stdout.splitlines()) == sorted(f"postgres (pid {pid})" for pid in pids)
            assert not home.data.exists()
        finally:
            server.abandon()


@pytest.mark.skipif(os.geteuid() != 0, reason="other accounts see their own processes")
def test_a_server_elsewhere_that_its_own_account_may_not_see_is_left_alone() -> None:
    """As one with capabilities of its unit is."""
    with reachable_folder() as folder:
        home = Home(folder / "home", find_server_user())
        home.prepare()
        call_as(home.user, home.data.mkdir)
        # Source: prctl(2): PR_SET_NAME is 15; PR_SET_DUMPABLE 4, without which its own account may not see it either.
        hide = (
            "import ctypes; ctypes.CDLL(None).prctl(15, b'postgres', 0, 0, 0); ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"
        )
        argv = [sys.executable, "-c", f"{hide}; print('hidden', flush=True); input()", "-D", f"{home.work}-other"]
        account = {"user": home.user.uid, "group": home.user.gid, "extra_groups": []}
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", **account) as hidden:
            assert hidden.stdout is not None
            assert hidden.stdout.readline() == b"hidden\n"
            opened = open_without_ptrace(home.root)
            hidden.communicate(b"\n")
        assert hidden.returncode == 0
        assert (opened.returncode, opened.stdout, opened.stderr) == (0, "\n", "")
        assert not home.data.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="other accounts see their own processes")
def test_a_server_that_was_started_by_another_path_of_the_home_is_ended() -> None:
    with reachable_folder() as folder:
        home = Home(folder / "home", find_server_user())
        home.prepare()
        call_as(home.user, home.data.mkdir)
        (link := folder / "link").symlink_to(home.root)
        name = "import ctypes; ctypes.CDLL(None).prctl(15, b'postgres', 0, 0, 0)"
        argv = [sys.executable, "-c", f"{name}; print('named', flush=True); input()", "-D", str(link / "work/data")]
        account = {"user": home.user.uid, "group": home.user.gid, "extra_groups": []}
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home.data, **account) as named:
            assert named.stdout is not None
            assert named.stdout.readline() == b"named\n"
            opened = open_without_ptrace(home.root)
            named.communicate(b"\n")
        assert (opened.returncode, opened.stdout, opened.stderr) == (0, f"postgres (pid {named.pid})\n", "")
        assert named.returncode == -signal.SIGQUIT

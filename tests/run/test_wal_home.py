"""pg_wal on a disk of its own: it lies there in every trial, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pgdyno.errors import HostError
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.wal_home import check_wal_home, find_note, open_wal_home, write_note
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.spec.study import CacheState, DataSpec
from tests.folders import look_at
from tests.homes import installation_of
from tests.loops import mounted_loop, needs_root
from tests.shared import reachable_folder

IS_ROOT = os.geteuid() == 0
# The smallest XFS, and what is left of it for WAL.
DISK_BYTES = 400 << 20
SMALL_WAL = {"max_wal_size": "64MB"}


class Disks(NamedTuple):
    """The folders of data and WAL: two disks as root, else two folders of one."""

    data: Path
    wal: Path


@pytest.fixture
def disks() -> Iterator[Disks]:
    with reachable_folder() as folder, contextlib.ExitStack() as stack:
        made = []
        for name in Disks._fields:
            place = folder / name
            place.mkdir()
            made.append(stack.enter_context(mounted_loop(place, "xfs", DISK_BYTES)).folder if IS_ROOT else place)
        yield Disks(*made)


@contextlib.contextmanager
def open_both(disks: Disks) -> Iterator[Home]:
    with open_home(disks.data / "home", find_server_user(), wal_home=disks.wal) as home:
        yield home


def load(server: OwnServer, output_dir: Path) -> None:
    server.load(DataSpec(), 1, settings={}, output_dir=output_dir, on_activity=lambda _: None)


def write_wal(server: OwnServer, log_path: Path) -> str:
    """Run the server, let it write WAL, and give the place of the file that it writes to."""
    with server.running(SMALL_WAL, log_path=log_path), server.connect() as connection:
        connection.execute("CREATE TABLE of_the_trial AS SELECT * FROM pgbench_accounts")
        row = connection.execute("SELECT pg_walfile_name(pg_current_wal_lsn()) AS name").fetchone()
        assert row is not None
        (found,) = {
            Path(f"/proc/{server.pid}/cwd/pg_wal").resolve() / row["name"],
        }
        assert found.exists()
        return str(found.parent)


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
@pytest.mark.parametrize("major", [15, 18])
def test_the_wal_of_every_trial_lies_on_its_disk(disks: Disks, tmp_path: Path, major: int) -> None:
    with open_both(disks) as home:
        assert home.wal is not None
        server = OwnServer(installation=installation_of(major, home), home=home)
        load(server, tmp_path)
        (template,) = home.templates.iterdir()
        assert not (template / "data/pg_wal").is_symlink(), "the loaded cluster serves homes without a WAL home too"
        # Two members of a live round, and the home's own cluster: first a whole copy, then what has changed.
        for each in (server, server.in_slot(1), server.in_slot(2), server):
            each.reset()
            wal = each._home.wal
            assert wal is not None
            assert wal.is_relative_to(disks.wal)
            assert look_at(wal) == look_at(template / "data/pg_wal")
            assert write_wal(each, tmp_path / "log") == str(wal)
            assert look_at(wal) != look_at(template / "data/pg_wal")
        if IS_ROOT:
            assert home.wal.stat().st_dev == disks.wal.stat().st_dev != home.data.stat().st_dev
        server.reset()
        with server.running(SMALL_WAL, log_path=tmp_path / "log"):
            # A cold cache takes a restart and touches all files.
            server.prepare_cache(CacheState.COLD)
    assert list(disks.wal.iterdir()) == []
    assert not [*(disks.data / "home").glob("wal-home*")]
    with open_home(disks.data / "home", find_server_user()) as home:
        server = OwnServer(installation=installation_of(major, home), home=home)
        load(server, tmp_path)
        server.reset()
        assert write_wal(server, tmp_path / "log") == str(home.data / "pg_wal")


def test_what_a_killed_run_has_left_goes_with_the_next_in_the_home() -> None:
    with reachable_folder() as folder:
        wal, home = folder / "wal", folder / "home"
        wal.mkdir()
        program = (
            "import os, signal, sys\n"
            "from pathlib import Path\n"
            "from pgdyno.run.cluster.home import open_home\n"
            "from pgdyno.run.host.process import find_server_user\n"
            "with open_home(Path(sys.argv[1]), find_server_user(), wal_home=Path(sys.argv[2])) as home:\n"
            "    home.wal.mkdir()\n"
            "    (home.wal / '000000010000000000000001').write_bytes(b'left')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        done = subprocess.run([sys.executable, "-c", program, str(home), str(wal)], check=False)
        assert done.returncode == -9
        assert [path.name for path in wal.rglob("0000*")] == ["000000010000000000000001"]
        # The disk is in use by another pgdyno by now, which has removed what was left.
        other = folder / "other"
        other.mkdir()
        with open_wal_home(wal, home=other, user=find_server_user()) as used:
            (used / "slot-1").mkdir()
            with open_home(home, find_server_user()):
                assert (used / "slot-1").exists()
        assert list(wal.iterdir()) == []
        subprocess.run([sys.executable, "-c", program, str(home), str(wal)], check=False)
        with open_home(home, find_server_user()):
            assert list(wal.iterdir()) == []
            assert not [*home.glob("wal-home*")]


def test_two_pgdynos_do_not_share_a_disk_for_wal() -> None:
    with reachable_folder() as folder:
        wal = folder / "wal"
        wal.mkdir()
        with open_home(folder / "one", find_server_user(), wal_home=wal):
            with (
                pytest.raises(HostError, match="another pgdyno is at work") as caught,
                open_home(folder / "other", find_server_user(), wal_home=wal),
            ):
                pass
            assert caught.value.detail == f"pid {os.getpid()} holds {wal}"
        assert list(wal.iterdir()) == []


def test_folders_that_cannot_take_wal(tmp_path: Path) -> None:
    home, wal = tmp_path / "home", tmp_path / "wal"
    wal.mkdir()
    check_wal_home(wal, home=home)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(home)
    (home / "inside").mkdir(parents=True)
    for root, said in [
        (tmp_path / "missing", "missing is no folder: it does not exist"),
        (tmp_path / "file", "file is no folder: it is something else"),
        (home, "are one folder, or one is inside the other"),
        (home / "inside", "are one folder, or one is inside the other"),
        (tmp_path, "are one folder, or one is inside the other"),
        (tmp_path / "link", "are one folder, or one is inside the other"),
    ]:
        with pytest.raises(HostError) as caught:
            check_wal_home(root, home=home)
        assert said in f"{caught.value.fact}: {caught.value.detail}"
        assert "--wal-home" in caught.value.hint


def test_a_folder_that_is_closed_to_the_account() -> None:
    with reachable_folder() as folder:
        wal = folder / "wal"
        wal.mkdir(mode=0o700 if IS_ROOT else 0o500)
        said = "cannot reach" if IS_ROOT else "this account cannot write"
        with (
            pytest.raises(HostError, match=said) as caught,
            open_home(folder / "home", find_server_user(), wal_home=wal),
        ):
            pass
        assert "--wal-home" in caught.value.hint
        assert list(wal.iterdir()) == []


@pytest.mark.parametrize("left", [(), ("pg_wal",), ("slot-12",), ("pg_wal", "slot-0")])
def test_what_a_pgdyno_of_another_home_has_left_is_removed(left: tuple[str, ...]) -> None:
    with reachable_folder() as folder:
        wal = folder / "wal"
        for name in left:
            (wal / "pgdyno-wal" / name / "archive_status").mkdir(parents=True)
        (wal / "pgdyno-wal").mkdir(parents=True, exist_ok=True)
        with open_home(folder / "home", find_server_user(), wal_home=wal) as home:
            assert home.wal is not None
            assert list(home.wal.parent.iterdir()) == []
        assert list(wal.iterdir()) == []


@needs_root
@pytest.mark.parametrize("place", ["pgdyno-wal", "pgdyno-wal/pg_wal"])
def test_a_disk_of_the_users_in_pgdynos_folder_is_refused_and_stays(place: str) -> None:
    with reachable_folder() as folder:
        wal, kept = folder / "wal", folder / "kept"
        (kept / "pg_wal").mkdir(parents=True)
        (kept / "pg_wal/0001").write_text("of the user")
        (wal / place).mkdir(parents=True)
        subprocess.run(["mount", "--bind", str(kept), str(wal / place)], check=True)
        try:
            with (
                pytest.raises(HostError, match=f"something is mounted at {wal / place}"),
                open_home(folder / "home", find_server_user(), wal_home=wal),
            ):
                pass
        finally:
            subprocess.run(["umount", str(wal / place)], check=True)
            assert (kept / "pg_wal/0001").read_text() == "of the user"


@pytest.mark.parametrize("names", [("thesis.txt",), ("pg_wal", "slot-a")])
def test_a_folder_of_the_users_with_the_name_of_pgdynos_own_is_kept(names: tuple[str, ...]) -> None:
    with reachable_folder() as folder:
        wal, home = folder / "wal", folder / "home"
        for name in names:
            (wal / "pgdyno-wal" / name).mkdir(parents=True)
        with (
            pytest.raises(HostError, match=f"pgdyno-wal is not pgdyno's own: it has {names[-1]}") as caught,
            open_home(home, find_server_user(), wal_home=wal),
        ):
            pass
        assert "--wal-home" in caught.value.hint
        assert not [*home.glob("wal-home*")]
        # A killed pgdyno of this home has used the disk before.
        write_note(find_note(home, "wal-home", wal), wal)
        with open_home(home, find_server_user()):
            pass
        with pytest.raises(HostError, match="not pgdyno's own"), open_home(home, find_server_user(), wal_home=wal):
            pass
        assert [path.name for path in wal.iterdir()] == ["pgdyno-wal"]
        assert sorted(path.name for path in (wal / "pgdyno-wal").iterdir()) == sorted(names)

"""Variants on several disks: each cluster lies in its place with the same data, and nothing stays elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgdyno.errors import HostError
from pgdyno.plan.places import Place
from pgdyno.run.cluster.home import OTHER_HOME, open_home
from pgdyno.run.cluster.places import open_places
from pgdyno.run.cluster.wal_home import find_note, write_note
from pgdyno.run.host.mounts import list_mounts
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.spec.study import DataSpec
from tests.folders import look_at
from tests.homes import installation_of
from tests.loops import mounted_loop, needs_root
from tests.shared import reachable_folder

DISK_BYTES = 400 << 20


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
def test_each_cluster_lies_in_its_place(tmp_path: Path) -> None:
    with reachable_folder() as folder, contextlib.ExitStack() as stack:
        wal, other = folder / "wal", folder / "other"
        for disk in (wal, other):
            disk.mkdir()
        if os.geteuid() == 0:
            wal, other = (stack.enter_context(mounted_loop(disk, "xfs", DISK_BYTES)).folder for disk in (wal, other))
        home = folder / "home"
        with_data, elsewhere = Place(), Place(str(other / "home"), str(wal))
        places = (with_data, Place(None, str(wal)), elsewhere)
        with open_places(home, find_server_user(), places) as main:
            first = OwnServer(installation=installation_of(18, main), home=main)
            first.load(DataSpec(), 1, settings={}, output_dir=tmp_path, on_activity=lambda _: None)
            (template,) = main.templates.iterdir()
            loaded = look_at(template / "data/pg_wal")
            servers = {place: first.in_home(main.find(place)) for place in places}
            # In turns, as in paired trials, then side by side, as in a live round.
            turns = [(place, servers[place]) for place in (*places, *places)]
            slots = [(place, servers[place].in_slot(number)) for number, place in enumerate(places)]
            for place, server in (*turns, *slots):
                server.reset()
                with server.running({}, log_path=tmp_path / "log"), server.connect() as connection:
                    connection.execute("CREATE TABLE of_the_trial AS SELECT * FROM pgbench_accounts")
                    data = Path(f"/proc/{server.pid}/cwd").resolve()
                assert data.is_relative_to(other if place is elsewhere else home), place
                of_wal = (data / "pg_wal").resolve()
                assert of_wal.is_relative_to(home if place is with_data else wal), place
                assert look_at(of_wal) != loaded
        assert list(wal.iterdir()) == []
        left = {path.name for at in (home, other / "home") for path in (at / "work").iterdir()}
        assert left == {"sockets"}
        assert not [*home.glob("other-home*"), *home.glob("wal-home*")]
        with open_home(home, find_server_user()) as main:
            first = OwnServer(installation=installation_of(18, main), home=main)
            first.load(DataSpec(), 1, settings={}, output_dir=tmp_path, on_activity=lambda _: None)
            first.reset()
            assert look_at(main.data / "pg_wal") == loaded


KILLED = """
import os, signal, sys
from pathlib import Path
from pgdyno.plan.places import Place
from pgdyno.run.cluster.places import open_places
from pgdyno.run.host.process import find_server_user
home, wal, second, other = sys.argv[1:]
places = [Place(None, wal), Place(None, second), Place(other)]
with open_places(Path(home), find_server_user(), places) as main:
    for place in places:
        for folder in main.find(place).cluster_folders:
            folder.mkdir(exist_ok=True)
            (folder / "left").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_study_has_left_on_all_disks_goes_with_the_next_in_its_home() -> None:
    with reachable_folder() as folder:
        home, wal, second, other = places = [folder / name for name in ("home", "wal", "second", "other")]
        for disk in (wal, second):
            disk.mkdir()

        def find_left() -> set[str]:
            return {path.relative_to(folder).parts[0] for path in folder.rglob("left")}

        for is_used in (False, True):
            done = subprocess.run([sys.executable, "-c", KILLED, *map(str, places)], check=False)
            assert done.returncode == -9
            assert find_left() == {path.name for path in places}
            # What another pgdyno uses by now, it has cleaned up itself.
            with open_home(other, find_server_user()) if is_used else contextlib.nullcontext() as used:
                if used is not None:
                    (used.work / "in use").touch()
                with open_home(home, find_server_user()):
                    assert find_left() == set()
                assert used is None or (used.work / "in use").exists()
            with open_home(home, find_server_user()):
                assert not [*home.glob("other-home*"), *home.glob("wal-home*")]


@needs_root
def test_what_was_mounted_in_any_of_the_homes_is_named() -> None:
    with reachable_folder() as folder:
        home, other, kept = (folder / name for name in ("home", "other", "kept"))
        kept.mkdir()
        data = other / "work/data"

        def mount() -> None:
            data.mkdir(parents=True)
            subprocess.run(["mount", "--bind", str(kept), str(data)], check=True)

        user, places = find_server_user(), [Place(), Place(str(other))]
        with open_places(home, user, places):
            pass
        mount()
        with open_places(home, user, places) as main:
            assert main.left_overs == [f"the mount at {data}"]
        mount()
        # As a killed study leaves it.
        write_note(find_note(home, OTHER_HOME, other), other)
        with open_home(home, user) as main:
            assert main.left_overs == [f"the mount at {data}"]
        assert list_mounts(folder) == []


def test_homes_that_are_one_are_refused() -> None:
    with reachable_folder() as folder:
        home = folder / "home"
        (folder / "link").symlink_to(home)
        for other in (home / "inside", folder, folder / "link"):
            with (
                pytest.raises(HostError, match="two homes are one folder, or one is inside the other"),
                open_places(home, find_server_user(), [Place(), Place(str(other))]),
            ):
                pass
        with (
            open_home(folder / "other", find_server_user()),
            pytest.raises(HostError, match="another pgdyno is at work"),
            open_places(home, find_server_user(), [Place(), Place(str(folder / "other"))]),
        ):
            pass
        assert not [*home.glob("other-home*")]

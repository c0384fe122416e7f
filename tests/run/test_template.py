from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.cluster.home import Home
from pgdyno.run.cluster.restoring import restore_template
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.template import Template, find_loaded_scales, prepare_template, remove_template, template_name
from pgdyno.run.host.process import ServerUser
from pgdyno.spec.study import DataSpec, ServerKind
from tests.folders import look_at
from tests.homes import installation_of, some_home

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("copied_initdb")]


@pytest.fixture
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


def prepare(home: Home, output_dir: Path, on_activity: Callable[[str], None] = lambda _: None) -> Template:
    return prepare_template(
        installation=installation_of(18, home),
        home=home,
        data=DataSpec(),
        scale=1,
        settings={},
        output_dir=output_dir,
        on_activity=on_activity,
    )


def kill_postmaster_at(home: Home, activity: str) -> Callable[[str], None]:
    killed: list[int] = []

    def kill(now: str) -> None:
        if now.startswith(activity) and not killed:
            pid = int((home.data / "postmaster.pid").read_text().split()[0])
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                time.sleep(0.01)

    return kill


@pytest.mark.parametrize("activity", ["writing to disk", "primary keys"])
def test_what_did_not_end_in_order_is_no_template(home: Home, tmp_path: Path, activity: str) -> None:
    with pytest.raises(StepFailedError, match="the server was killed by SIGKILL") as caught:
        prepare(home, tmp_path, kill_postmaster_at(home, activity))
    assert "ready to accept connections" in caught.value.detail
    assert list(home.templates.iterdir()) == []


def test_a_template_is_used_again_and_made_anew_when_part_of_it_is_missing(home: Home, tmp_path: Path) -> None:
    first = prepare(home, tmp_path)
    assert not first.dataset.is_reused
    assert find_loaded_scales(home, installation_of(18, home), DataSpec()) == {1}
    assert find_loaded_scales(home, installation_of(18, home), DataSpec(fillfactor=90)) == frozenset()
    assert find_loaded_scales(home, installation_of(15, home), DataSpec()) == frozenset()
    assert prepare(home, tmp_path).dataset.is_reused
    (first.data_dir / "PG_VERSION").unlink()
    assert find_loaded_scales(home, installation_of(18, home), DataSpec()) == frozenset()
    assert not prepare(home, tmp_path).dataset.is_reused
    assert (first.data_dir / "PG_VERSION").exists()
    remove_template(first.data_dir.parent)
    assert list(home.templates.iterdir()) == []


def test_a_build_that_was_installed_anew_loads_its_data_anew(home: Home, tmp_path: Path) -> None:
    """Even in its old place: it may write other data, or refuse those of the build before it."""
    embedded = installation_of(18, home)
    build = tmp_path / "bin"
    build.mkdir()
    (build / "postgres").symlink_to(tmp_path / "installed")
    installed = shutil.copyfile(embedded.program("postgres"), tmp_path / "installed")
    local = msgspec.structs.replace(embedded, kind=ServerKind.LOCAL, bindir=build)
    folder = home.templates / template_name(local, DataSpec(), 1)
    (folder / "data").mkdir(parents=True)
    (folder / "data/PG_VERSION").write_text("18\n")
    (folder / "dataset.json").write_text("{}")
    times = installed.stat()
    os.utime(folder / "dataset.json", ns=(times.st_ctime_ns, times.st_ctime_ns))
    assert find_loaded_scales(home, local, DataSpec()) == {1}
    # The kernel's clock for files stands still for some milliseconds.
    while installed.stat().st_ctime_ns == times.st_ctime_ns:
        installed.write_bytes(b"of another build")
        os.utime(installed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert find_loaded_scales(home, local, DataSpec()) == frozenset()


def test_a_template_is_its_accounts_when_root_writes_no_more_there(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the account could put there afterwards, root would follow."""
    chown = os.chown
    seen: list[bool] = []

    def look(path: Path, uid: int, gid: int) -> None:
        seen.append((path / "dataset.json").exists())
        chown(path, uid, gid)

    monkeypatch.setattr(os, "chown", look)
    folder = prepare(home, tmp_path).data_dir.parent
    assert seen == [True]
    assert folder.stat().st_uid == home.user.uid


def test_what_cannot_be_removed_is_no_template_any_more(home: Home) -> None:
    elsewhere = home.work / "elsewhere"
    elsewhere.mkdir()
    folder = home.templates / "some"
    folder.symlink_to(elsewhere)
    (folder / "dataset.json").write_text("{}")
    with pytest.raises(HostError, match=f"cannot remove {folder}"):
        remove_template(folder)
    assert not (folder / "dataset.json").exists()


def test_a_trial_leaves_nothing_in_the_next_ones_cluster(home: Home, tmp_path: Path) -> None:
    template = prepare(home, tmp_path)
    restore_template(template, home)
    assert look_at(home.data) == look_at(template.data_dir)
    place = (home.data / "global/pg_control").stat().st_ino
    server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "log")
    server.start({})
    with server.connect() as connection:
        connection.execute("UPDATE pgbench_accounts SET abalance = 1 WHERE aid % 1000 = 0")
        connection.execute("CREATE TABLE of_the_trial AS SELECT * FROM pgbench_accounts")
        connection.execute("DROP TABLE pgbench_history")
        connection.execute("CHECKPOINT")
    server.stop()
    assert look_at(home.data) != look_at(template.data_dir)
    restore_template(template, home)
    assert look_at(home.data) == look_at(template.data_dir)
    assert {path.lstat().st_uid for path in [home.data, *home.data.rglob("*")]} == {home.user.uid}
    # What was there is written over, not made anew.
    assert (home.data / "global/pg_control").stat().st_ino == place
    assert os.geteuid() == os.getuid()


def test_a_link_in_the_way_is_not_followed(home: Home, tmp_path: Path) -> None:
    template = prepare(home, tmp_path)
    restore_template(template, home)
    elsewhere = home.work / "elsewhere"
    shutil.copytree(home.data / "base", elsewhere)
    before = look_at(elsewhere)
    shutil.rmtree(home.data / "base")
    (home.data / "base").symlink_to(elsewhere)
    restore_template(template, home)
    assert look_at(home.data) == look_at(template.data_dir)
    assert look_at(elsewhere) == before


def test_an_old_folder_in_the_way(home: Home, tmp_path: Path) -> None:
    template = prepare(home, tmp_path)
    elsewhere = home.work / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    elsewhere.chmod(0o777)
    home.data.symlink_to(elsewhere)
    with pytest.raises(HostError, match=f"cannot remove {home.data}"):
        restore_template(template, home)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for two accounts")
def test_a_template_serves_another_account(home: Home, tmp_path: Path) -> None:
    template = prepare(home, tmp_path)
    entry = next(pwd.getpwnam(name) for name in ("nobody", "daemon") if pwd.getpwnam(name).pw_uid != home.user.uid)
    other = Home(home.root, ServerUser(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid))
    other.prepare()
    restore_template(template, other)
    assert {path.lstat().st_uid for path in [other.data, *other.data.rglob("*")]} == {other.user.uid}
    assert {path.lstat().st_uid for path in template.data_dir.rglob("*")} == {home.user.uid}
    server = Server(installation=installation_of(18, home), home=other, log_path=tmp_path / "log")
    server.start({})
    with server.connect() as connection:
        assert connection.execute("SELECT count(*) AS n FROM pgbench_accounts").fetchone() == {"n": 100_000}
    server.stop()


def test_builds_do_not_share_templates(home: Home) -> None:
    embedded = installation_of(18, home)
    other_blocks = msgspec.structs.replace(
        embedded, facts=msgspec.structs.replace(embedded.facts, configure="'--with-blocksize=16'")
    )
    local = msgspec.structs.replace(embedded, kind=ServerKind.LOCAL)
    moved = msgspec.structs.replace(local, bindir=Path("/elsewhere/bin"))
    builds = (embedded, other_blocks, local, moved)
    assert len({template_name(build, DataSpec(), 1) for build in builds}) == len(builds)
    unpacked_elsewhere = msgspec.structs.replace(embedded, bindir=Path("/elsewhere/bin"))
    assert template_name(unpacked_elsewhere, DataSpec(), 1) == template_name(embedded, DataSpec(), 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system of its own")
@pytest.mark.parametrize("free_bytes", [0, 8 << 10])
def test_a_record_disk_that_is_full_while_loading(home: Home, tmp_path: Path, free_bytes: int) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], check=True)
    try:
        (disk / "filler").write_bytes(bytes((64 << 10) - free_bytes))
        with pytest.raises(StepFailedError, match=f"cannot write {disk}") as caught:
            prepare(home, disk)
        assert "No space left on device" in caught.value.detail
        assert "the disk of the record is full" in caught.value.hint
        assert list(home.templates.iterdir()) == []
        (disk / "filler").unlink()
        assert prepare(home, disk).data_dir.exists()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system of its own")
def test_a_home_without_room_for_the_settings(home: Home, tmp_path: Path) -> None:
    prepare(home, tmp_path)
    server = Server(installation=installation_of(18, home), home=home, log_path=tmp_path / "log")
    home.data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", str(home.data)], check=True)
    try:
        (home.data / "PG_VERSION").write_text("18\n")
        (home.data / "filler").write_bytes(bytes(4 << 10))
        with pytest.raises(StepFailedError, match="cannot write") as caught:
            server.start({})
    finally:
        subprocess.run(["umount", "--lazy", str(home.data)], check=True)
    assert "free some space" in caught.value.hint

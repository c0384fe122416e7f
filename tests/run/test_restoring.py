"""What a trial begins with under each restoring policy, on real servers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import HostError, StepFailedError
from pgdyno.plan.experiment import Variant
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.restore_command import restore_by_command
from pgdyno.run.cluster.template import template_name
from pgdyno.run.host.mounts import list_mounts
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.session import find_session
from pgdyno.run.own_server import OwnServer
from pgdyno.spec.study import DataSpec, RestorePolicy, ServerSpec
from tests.homes import installation_of, some_home
from tests.loops import mounted_loop, needs_root
from tests.shared import reachable_folder
from tests.waiting import wait_until

SCRIPTS = Path(__file__).parents[2] / "docs/guide/restore-command"


@pytest.fixture
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def load(home: Home, output_dir: Path, data: DataSpec) -> OwnServer:
    server = OwnServer(installation=installation_of(18, home), home=home)
    server.load(data, 1, settings={}, output_dir=output_dir, on_activity=lambda _: None)
    return server


def by_command(command: str) -> DataSpec:
    return DataSpec(restore=RestorePolicy.COMMAND, restore_command=command)


def has_table(server: OwnServer) -> bool:
    with server.connect() as connection:
        rows = connection.execute("SELECT to_regclass('of_the_trial') IS NOT NULL AS found").fetchall()
    return bool(rows[0]["found"])


def make_table(server: OwnServer) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE of_the_trial AS SELECT * FROM pgbench_tellers")


def make_script(folder: Path, text: str) -> str:
    script = folder / "restore.sh"
    script.write_text(f"#!/bin/sh\nset -eu\n{text}\n")
    script.chmod(0o755)
    return str(script)


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
def test_data_that_are_not_restored(home: Home, tmp_path: Path) -> None:
    server, log = load(home, tmp_path, DataSpec(restore=RestorePolicy.NONE)), tmp_path / "log"
    variants = [
        Variant(name=str(mem), server=ServerSpec(settings={"work_mem": mem}), changed={"work_mem": mem})
        for mem in ("4MB", "8MB")
    ]
    server.reset()
    server.prepare_switch(variants)
    with server.running({}, log_path=log):
        make_table(server)
    server.reset()
    files = server.prepare_switch(variants)
    # A thread turns the link: the account, which is the whole process's, stays.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "seteuid", lambda _: pytest.fail("the account changes"))
        files.choose(variants[1])
    assert str((home.data / "pgdyno-variant.conf").readlink()) == "pgdyno-variant-1.conf"
    assert (home.data / "postgresql.conf").read_text().count("include 'pgdyno-variant.conf'") == 1
    # As a variant's own server, whose policy is the study's.
    alike = server.in_home(home)
    for each in (server, alike):
        each.reset()
        with each.running({}, log_path=log):
            assert has_table(each)
    assert "was not properly shut down" not in log.read_text()
    # What has failed leaves a state that no trial is to begin with.
    server.reset()
    with pytest.raises(StepFailedError), server.running({}, log_path=log):
        raise StepFailedError("the load failed")
    server.reset()
    with server.running({}, log_path=log):
        assert not has_table(server)
    # A copy of other data takes its place, and the first data come back by a copy.
    other = load(home, tmp_path, DataSpec(restore=RestorePolicy.NONE, fillfactor=90))
    for each in (other, server):
        each.reset()
        with each.running({}, log_path=log):
            assert not has_table(each)
            make_table(each)


@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
def test_a_command_restores_and_what_it_leaves_is_verified(home: Home, tmp_path: Path) -> None:
    copy = 'rm -rf "$PGDYNO_DATA"; cp -a "$PGDYNO_TEMPLATE" "$PGDYNO_DATA"'
    server, log = load(home, tmp_path, by_command(make_script(tmp_path, copy))), tmp_path / "log"
    for each in (server, server.in_slot(0)):
        each.reset()
        with each.running({}, log_path=log):
            make_table(each)
    assert not home.restore_session.exists()
    # Other tests load other data into this home.
    template = home.templates / template_name(installation_of(18, home), DataSpec(), 1) / "data"
    rows = [
        ("exit 0", "another last checkpoint|was in production"),
        (f"{copy}; echo no room >&2; exit 3", "no room"),
        (f"{copy}; : > $PGDYNO_DATA/PG_VERSION", "PG_VERSION: 3 bytes loaded, 0 bytes restored"),
        (
            f"{copy}; rm $PGDYNO_DATA/PG_VERSION; touch $PGDYNO_DATA/left",
            "(?s)PG_VERSION.*left: absent loaded, 0 bytes",
        ),
        (f"{copy}; rm $PGDYNO_DATA/global/pg_control", "there is no global/pg_control"),
        (f"{copy}; printf 12345678 | dd of=$PGDYNO_DATA/global/pg_control conv=notrunc 2>&1", "system identifier 40"),
        ('rm -rf "$PGDYNO_DATA"; ln -s "$PGDYNO_TEMPLATE" "$PGDYNO_DATA"', "is a link"),
        ('rm -rf "$PGDYNO_DATA"', "is no folder"),
    ]
    for text, said in rows:
        with pytest.raises(StepFailedError, match="the restore command") as caught:
            restore_by_command(make_script(tmp_path, text), template=template, home=home)
        assert re.search(said, caught.value.detail), (text, caught.value.detail)
        assert caught.value.hint
    assert (template / "PG_VERSION").exists()
    make_script(tmp_path, copy)
    server.reset()
    with server.running({}, log_path=log):
        assert not has_table(server)


def test_a_killed_pgdyno_leaves_nothing_of_its_command() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pgdyno.run.cluster.home import open_home\n"
        "from pgdyno.run.cluster.restore_command import restore_by_command\n"
        "from pgdyno.run.host.process import find_server_user\n"
        "with open_home(Path(sys.argv[1]), find_server_user()) as home:\n"
        "    restore_by_command(sys.argv[2], template=home.root, home=home)\n"
    )
    with reachable_folder() as folder:
        root, began = folder / "home", folder / "began"
        # A child of the command that outlives it kills its pgdyno.
        script = make_script(folder, f"sh -c 'touch {began}; kill -9 '\"$PPID\"'; exec sleep 1000'")
        done = subprocess.run([sys.executable, "-c", program, str(root), script], check=False, timeout=600)
        assert done.returncode == -signal.SIGKILL
        assert began.exists()
        session = root / "restore-command"
        assert session.exists()
        with open_home(root, find_server_user()) as home:
            assert not session.exists()
            assert find_session(home.restore_session) == ()


@needs_root
def test_what_a_command_has_mounted_is_unmounted_and_not_emptied() -> None:
    with reachable_folder() as folder:
        kept = folder / "kept"
        kept.mkdir()
        (kept / "data").write_text("of the user")
        with open_home(folder / "home", find_server_user()) as home:
            home.data.mkdir()
            subprocess.run(["mount", "--bind", str(kept), str(home.data)], check=True)
            assert list_mounts(home.work) == [home.data]
        # As a killed pgdyno leaves it, or the user made it.
        home.data.mkdir()
        subprocess.run(["mount", "--bind", str(kept), str(home.data)], check=True)
        with open_home(folder / "home", find_server_user()) as home:
            assert home.left_overs == [f"the mount at {home.data}"]
        assert (kept / "data").read_text() == "of the user"
        assert list_mounts(folder) == []
        assert not home.data.exists()


@needs_root
def test_a_disk_of_the_users_at_the_working_folder_is_refused_and_stays() -> None:
    with reachable_folder() as folder:
        kept, root = folder / "kept", folder / "home"
        kept.mkdir()
        (kept / "data").write_text("of the user")
        (root / "work").mkdir(parents=True)
        subprocess.run(["mount", "--bind", str(kept), str(root / "work")], check=True)
        try:
            refused = pytest.raises(HostError, match=f"something is mounted at {root}/work")
            with refused as caught, open_home(root, find_server_user()):
                pass
            assert "--home" in caught.value.hint
            assert list_mounts(root) == [root / "work"]
        finally:
            subprocess.run(["umount", "--lazy", str(root / "work")], check=True)
        assert (kept / "data").read_text() == "of the user"


@needs_root
@pytest.mark.cluster
@pytest.mark.usefixtures("copied_initdb")
def test_the_example_for_reflinks(tmp_path: Path) -> None:
    with (
        reachable_folder() as folder,
        mounted_loop(folder, "xfs", 400 << 20) as disk,
        open_home(disk.folder / "home", find_server_user()) as home,
    ):
        server = load(home, tmp_path, by_command(str(SCRIPTS / "reflink.sh")))
        free = disk.free_bytes
        for _ in range(2):
            server.reset()
            # A whole copy of the data takes more than 60 MB. XFS gives back the blocks of removed files a little later.
            assert wait_until(lambda: free - disk.free_bytes < 30_000_000)
            with server.running({"max_wal_size": "64MB"}, log_path=tmp_path / "log"):
                assert not has_table(server)
                make_table(server)


@pytest.mark.parametrize("name", ["lvm.sh", "zfs.sh"])
def test_the_calls_of_the_examples_for_snapshots(tmp_path: Path, name: str) -> None:
    """Run a script twice and remove its snapshot, with programs that note their calls in place of the real ones."""
    calls, programs = tmp_path / "calls", tmp_path / "bin"
    programs.mkdir()
    for program in ("lvs", "lvcreate", "lvremove", "zfs", "mount", "umount", "mountpoint", "findmnt", "mkdir", "sync"):
        found = {"findmnt": "case $3 in TARGET) echo /mnt/pg ;; *) echo xfs ;; esac", "mkdir": ":"}.get(program, "")
        fake = programs / program
        fake.write_text(f'#!/bin/sh\necho "{program} $*" >> {calls}\n{found}\n')
        fake.chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LV": "vg/pg",
        "DATASET": "tank/pg",
        "PGDYNO_SLOT": "slot-1",
        "PGDYNO_TEMPLATE": "/mnt/pg/home/templates/one/data",
        "PGDYNO_DATA": "/mnt/pg/home/work/slot-1/data",
    }
    subprocess.run([SCRIPTS / name], env=environment, check=True)
    made = calls.read_text()
    place = {"lvm.sh": "/run/pgdyno-snapshot-slot-1", "zfs.sh": "/run/pgdyno-clone-slot-1"}[name]
    binding = f"mount --bind {place}/home/templates/one/data /mnt/pg/home/work/slot-1/data"
    assert made.splitlines()[-1] == binding
    wanted = {
        "lvm.sh": [
            "umount /mnt/pg/home/work/slot-1/data",
            f"umount {place}",
            "lvremove --yes --quiet vg/pgdyno-slot-1",
            "lvcreate --quiet --snapshot --setactivationskip n --name pgdyno-slot-1 vg/pg",
            f"mount --options nouuid /dev/vg/pgdyno-slot-1 {place}",
        ],
        "zfs.sh": [
            "umount /mnt/pg/home/work/slot-1/data",
            "zfs destroy tank/pg-pgdyno-slot-1",
            "zfs destroy tank/pg@pgdyno-slot-1",
            "zfs snapshot tank/pg@pgdyno-slot-1",
            f"zfs clone -o mountpoint={place} tank/pg@pgdyno-slot-1 tank/pg-pgdyno-slot-1",
        ],
    }[name]
    assert [line for line in made.splitlines() if line in wanted] == wanted
    calls.unlink()
    subprocess.run([SCRIPTS / name, "remove"], env=environment, check=True)
    assert "mount --bind" not in calls.read_text()
    assert calls.read_text().splitlines()[-1].split()[1] in {"--yes", "destroy"}

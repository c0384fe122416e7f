"""The script that makes a declared storage: a shell reads it, it agrees with the advice of `tune`, it starts with checks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.layout import write_storage_script
from pgdyno.record.types import ServerFacts
from pgdyno.spec.host import DiskKindName, DiskSpec, HostSpec, read_host
from pgdyno.tune.derive import derive
from pgdyno.tune.hosts import make_shape
from pgdyno.tune.new_storage import plan_file_systems
from pgdyno.tune.subject import LoadHints, make_subject_from_shape

GOLDEN = Path(__file__).parent / "golden"
TEMPLATE = Path(__file__).parents[2] / "studies" / "hosts" / "template.toml"
SERVER = ServerFacts(version="18.1", version_num=180001, bindir="")
SINGLE = DiskSpec(kind="local-ssd", size="500GB")
DISKS = {
    "single": SINGLE,
    "ext4": DiskSpec(kind="hdd", filesystem="ext4", mount_options="relatime,nobarrier"),
    "raid 0": DiskSpec(kind="local-ssd", count=3, raid=0),
    "raid 1": DiskSpec(kind="network-ssd", count=2, raid=1),
    "raid 10": DiskSpec(volume="gp3", size="50GB", count=8, raid=10, chunk="64kB", filesystem="ext4"),
    "raid 5": DiskSpec(kind="local-ssd", count=4, raid=5, chunk="512kB", filesystem="ext4"),
    "raid 6": DiskSpec(kind="hdd", count=12, raid=6, chunk="64kB"),
    "LVM": DiskSpec(kind="local-ssd", count=4, lvm_stripes=2, chunk="256kB"),
}


def script_of(disk: DiskSpec | None, *, wal: DiskSpec | None = None, name: str = "db1") -> str:
    return write_storage_script(HostSpec(name=name, cpus=8, memory="64GB", disk=disk, wal_disk=wal))


def test_the_template(golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / "storage-commands.txt", write_storage_script(read_host(TEMPLATE)))


@pytest.mark.parametrize("wal", [None, SINGLE], ids=["no WAL disk", "WAL disk"])
@pytest.mark.parametrize("disk", DISKS.values(), ids=DISKS)
def test_a_shell_reads_it(tmp_path: Path, disk: DiskSpec, wal: DiskSpec | None) -> None:
    path = tmp_path / "storage.sh"
    # A name with shell's words stays a comment; one with line ends is refused.
    path.write_text(script_of(disk, wal=wal, name="db1 (; $(false) '"))
    assert subprocess.run(["sh", "-n", path], capture_output=True, text=True, check=False).stderr == ""
    ran = subprocess.run(["sh", path], capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "data_1: is not set: name the device at the top of the script" in ran.stderr


@pytest.mark.parametrize("disk", DISKS.values(), ids=DISKS)
def test_it_agrees_with_the_advice(disk: DiskSpec) -> None:
    host = HostSpec(cpus=8, memory="64GB", disk=disk)
    (made,) = plan_file_systems(host)
    advised = {
        one.name: one.value for one in derive(make_subject_from_shape(make_shape(host), SERVER, LoadHints())).settings
    }
    assert advised.get(f"mkfs.{made.filesystem} options of data", "") == made.mkfs_options
    assert advised["mount options of data"] in made.mount_options.split(",")
    assert advised.get("read-ahead of data") == (None if made.read_ahead_kb is None else f"{made.read_ahead_kb} kB")
    if "chunk of data" in advised:
        assert advised["chunk of data"] == f"{made.chunk_kb}K"


def test_arrays() -> None:
    assert (
        "mdadm --create /dev/md/pgdata --run --level=10 --raid-devices=8 --chunk=128K --bitmap=internal"
        in script_of(DISKS["raid 10"])
    )
    assert "# The host file says chunk 64kB." in script_of(DISKS["raid 10"])
    mirror = script_of(DISKS["raid 1"])
    assert "--level=1 --raid-devices=2 --bitmap=internal" in mirror
    assert "--chunk" not in mirror
    assert "write hole" not in mirror
    # Stripes of two parities have two disks of data fewer.
    parity = script_of(DISKS["raid 6"])
    assert "--level=6 --raid-devices=12 --chunk=128K --bitmap=internal" in parity
    assert "mkfs.xfs -q -d su=128k,sw=10" in parity
    assert "write hole" in parity
    assert "mkfs.ext4 -q -E stride=128,stripe_width=384,lazy_itable_init=0,lazy_journal_init=0 " in script_of(
        DISKS["raid 5"]
    )
    assert "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 " in script_of(
        DiskSpec(kind="local-ssd", filesystem="ext4")
    )
    striped = script_of(DISKS["LVM"])
    assert "lvcreate -q --yes --name data --extents 100%FREE --stripes 2 --stripesize 256k pgdata" in striped
    assert "mkfs.xfs -q -d su=256k,sw=2" in striped
    assert "mdadm" not in striped
    # Before anything is written to a device.
    assert striped.index("if vgs pgdata ") < striped.index("\npvcreate ")


@pytest.mark.parametrize(("kind", "scheduler"), [("local-ssd", "none"), ("hdd", "mq-deadline"), ("network-ssd", None)])
def test_the_scheduler_is_of_the_kind_of_disk(kind: DiskKindName, scheduler: str | None) -> None:
    text = script_of(DiskSpec(kind=kind))
    assert ("queue/scheduler" in text) is (scheduler is not None)
    if scheduler is not None:
        assert f'ATTR{{queue/scheduler}}=\\"{scheduler}\\"' in text


def test_mount_options() -> None:
    text = script_of(DISKS["ext4"])
    # One option of access times, and what gives up durability is the user's own and is said.
    assert "-o noatime,nobarrier " in text
    assert "# nobarrier is declared: the file system does not flush the disk's cache: durability is given up." in text


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (DiskSpec(kind="local-ssd", filesystem="zfs"), "commands are known of xfs and ext4 only"),
        (DiskSpec(kind="local-ssd", mount_options="noatime; reboot"), "are no options of fstab"),
        (DiskSpec(kind="local-ssd", mount_options="$(reboot)"), "are no options of fstab"),
        # The disks would have been emptied before mount failed. XFS is the default.
        (DiskSpec(kind="local-ssd", mount_options="noatime,nobarrier"), "nobarrier of the data: xfs refuses it"),
        (DiskSpec(kind="hdd", filesystem="xfs", mount_options="data=writeback"), "data=writeback of the data: xfs"),
        (DiskSpec(kind="hdd", filesystem="ext4", mount_options="logbsize=256k"), "logbsize=256k of the data: ext4"),
        # Debian's installer writes it for ext4, and fstab is copied.
        (DiskSpec(kind="hdd", mount_options="errors=remount-ro"), "errors=remount-ro of the data: xfs refuses it"),
    ],
)
def test_what_cannot_be_made_is_refused(disk: DiskSpec, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        script_of(disk)


def test_an_instance_alone_has_nothing_to_make() -> None:
    with pytest.raises(SpecError, match="declares no disk of the data"):
        write_storage_script(HostSpec(instance="c7g.2xlarge"))

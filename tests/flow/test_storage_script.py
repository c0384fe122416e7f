"""The script of `pgdyno disk --layout --form commands`, run on disks of the test's own; arrays need kernel modules."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.layout import write_storage_script
from pgdyno.spec.host import DiskSpec, HostSpec
from tests.loops import empty_loop, mounted_loop, needs_root

pytestmark = needs_root
SIZE_BYTES = 320 * 2**20
# Of both, of ext4 and of XFS; without those that newer kernels remove.
OPTIONS = [
    "noatime", "discard", "nodiscard", "lazytime", "grpid", "acl", "user_xattr", "auto_da_alloc", "noauto_da_alloc",
    "barrier=0", "barrier", "nobarrier", "block_validity", "commit=5", "data=ordered", "data_err=abort", "delalloc",
    "nodelalloc", "dioread_lock", "dioread_nolock", "errors=remount-ro", "init_itable", "inode_readahead_blks=32",
    "journal_checksum", "max_batch_time=0", "min_batch_time=0", "noload", "resuid=0", "stripe=64", "allocsize=64k",
    "filestreams", "inode32", "inode64", "largeio", "nolargeio", "logbsize=256k", "logbufs=8", "noalign", "nouuid",
    "sunit=0", "swalloc", "swidth=0", "wsync",
]  # fmt: skip


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "fstab").write_text("# none yet\n")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "target"
    yield folder
    if os.path.ismount(folder):
        subprocess.run(["umount", folder], check=True)


def run_script(filesystem: str, device: Path, folder: Path, etc: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which(f"mkfs.{filesystem}") is None:
        pytest.skip(f"mkfs.{filesystem} is not installed")
    disk = DiskSpec(kind="local-ssd", filesystem=filesystem, read_mb_s=2000)
    script = write_storage_script(HostSpec(cpus=2, memory="8GB", disk=disk))
    for line, filled in (
        ("data_1=", f"data_1={device}"),
        ("data_folder=/mnt/pgdata", f"data_folder={folder}"),
        ("etc=/etc", f"etc={etc}"),
    ):
        assert f"\n{line}\n" in script
        script = script.replace(f"\n{line}\n", f"\n{filled}\n")
    path = etc.parent / "storage.sh"
    path.write_text(script)
    return subprocess.run(["sh", path], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_single_disk_is_made_and_is_not_made_again(tmp_path: Path, etc: Path, target: Path, filesystem: str) -> None:
    with empty_loop(tmp_path, "disk", SIZE_BYTES) as device:
        ran = run_script(filesystem, device, target, etc)
        assert ran.returncode == 0, ran.stderr
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        (mount,) = [one for one in mounts if one[1] == str(target)]
        assert (mount[0], mount[2]) == (str(device), filesystem)
        assert "noatime" in mount[3].split(",")
        # The lines for the next boot name what was made, and findmnt has nothing against them.
        uuid = subprocess.run(
            ["blkid", "-p", "-s", "UUID", "-o", "value", device], capture_output=True, text=True, check=True
        ).stdout.strip()
        order = {"xfs": 0, "ext4": 2}[filesystem]
        line = (etc / "fstab").read_text().splitlines()[-1]
        assert line == f"UUID={uuid} {target} {filesystem} noatime 0 {order}"
        told = subprocess.run(
            ["findmnt", "--verify", "--tab-file", etc / "fstab"], capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stdout
        queue = Path("/sys/class/block", device.name, "queue")
        rules = (etc / "udev/rules.d/90-pgdyno-storage.rules").read_text().splitlines()
        read_ahead_kb = (queue / "read_ahead_kb").read_text().strip()
        assert int(read_ahead_kb) > 128
        assert rules == [
            f'SUBSYSTEM=="block", ENV{{ID_FS_UUID}}=="{uuid}", ATTR{{queue/read_ahead_kb}}="{read_ahead_kb}"',
            f'SUBSYSTEM=="block", ENV{{ID_FS_UUID}}=="{uuid}", ATTR{{queue/scheduler}}="none"',
        ]
        assert "[none]" in (queue / "scheduler").read_text()

        before = (etc / "fstab").read_text()
        again = run_script(filesystem, device, tmp_path / "other", etc)
        assert again.returncode == 1
        assert f"{device} is mounted; nothing was changed" in again.stderr
        subprocess.run(["umount", target], check=True)
        again = run_script(filesystem, device, tmp_path / "other", etc)
        assert again.returncode == 1
        assert f"{device} is not empty" in again.stderr
        assert filesystem in again.stderr
        assert (etc / "fstab").read_text() == before
        assert not (tmp_path / "other").exists()


def test_the_last_line_of_fstab_may_have_no_end(tmp_path: Path, etc: Path, target: Path) -> None:
    before = f"{tmp_path}/none {tmp_path} auto noauto 0 0"
    (etc / "fstab").write_text(before)
    with empty_loop(tmp_path, "disk", SIZE_BYTES) as device:
        ran = run_script("ext4", device, target, etc)
        assert ran.returncode == 0, ran.stderr
        first, *added = (etc / "fstab").read_text().splitlines()
        assert (first, len(added), added[0][:5]) == (before, 1, "UUID=")
        subprocess.run(["umount", target], check=True)


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path, etc: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    with empty_loop(tmp_path, "disk", SIZE_BYTES) as device:
        for folder, words in ((full, "is not empty"), (Path("relative"), "does not begin with /")):
            ran = run_script("ext4", device, folder, etc)
            assert (ran.returncode, words in ran.stderr) == (1, True), ran.stderr
        (etc / "fstab").write_text(f"LABEL=x {tmp_path}/listed ext4 noatime 0 2\n")
        ran = run_script("ext4", device, tmp_path / "listed", etc)
        assert f"{etc}/fstab has {tmp_path}/listed" in ran.stderr
        assert subprocess.run(["wipefs", "-n", device], capture_output=True, text=True, check=True).stdout == ""


def test_what_is_no_empty_disk_is_refused(tmp_path: Path, etc: Path, target: Path) -> None:
    ran = run_script("ext4", tmp_path / "none", target, etc)
    assert "is no block device" in ran.stderr
    with mounted_loop(tmp_path, "ext4", 64 * 2**20) as loop:
        ran = run_script("ext4", loop.device, target, etc)
        assert f"{loop.device} is mounted" in ran.stderr
    assert not target.exists()


@pytest.mark.parametrize("filesystem", ["xfs", "ext4"])
def test_a_script_is_refused_for_the_options_that_mount_refuses(tmp_path: Path, target: Path, filesystem: str) -> None:
    if shutil.which(f"mkfs.{filesystem}") is None:
        pytest.skip(f"mkfs.{filesystem} is not installed")
    target.mkdir()
    taken, written = [], []
    with empty_loop(tmp_path, "disk", SIZE_BYTES) as device:
        subprocess.run([f"mkfs.{filesystem}", "-q", device], check=True)
        for option in OPTIONS:
            mount = ["mount", "-t", filesystem, "-o", option, device, target]
            if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
                subprocess.run(["umount", target], check=True)
                taken.append(option)
            disk = DiskSpec(kind="local-ssd", filesystem=filesystem, mount_options=option)
            with contextlib.suppress(SpecError):
                write_storage_script(HostSpec(cpus=2, memory="8GB", disk=disk))
                written.append(option)
    assert written == taken

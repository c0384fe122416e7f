"""Disks of one's own for tests: loop devices with a file system, slowed down by a control group where a limit is planted.

All of it needs root, and is undone however a test ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_BLKIO = Path("/sys/fs/cgroup/blkio")
# Without the initialisation that ext4 puts off, and does beside the first measurement.
_MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a disk")
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


class Loop(NamedTuple):
    """A file that is a disk, mounted."""

    device: Path
    folder: Path

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def free_bytes(self) -> int:
        usage = os.statvfs(self.folder)
        return usage.f_bfree * usage.f_frsize


@contextlib.contextmanager
def mounted_loop(place: Path, kind: str, size_bytes: int) -> Iterator[Loop]:
    """A disk of that size with a file system on it, below `place`, in memory."""
    folder = place / kind
    if shutil.which(_MKFS[kind][0]) is None:
        pytest.skip(f"{_MKFS[kind][0]} is not installed")
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(empty_loop(place, kind, size_bytes))
        _run(*_MKFS[kind], str(device))
        stack.enter_context(mounted(str(device), folder, "-t", kind))
        yield Loop(device, folder)


@contextlib.contextmanager
def empty_loop(place: Path, name: str, size_bytes: int) -> Iterator[Path]:
    """A disk of that size with nothing on it, below `place`, in memory: this machine's disk has other work to do."""
    memory = place / f"{name}-memory"
    with contextlib.ExitStack() as stack:
        stack.enter_context(mounted("none", memory, "-t", "tmpfs", "-o", f"size={size_bytes + 2**20}"))
        image = memory / "disk.img"
        # Without its pages, which would be filled with zeros one by one.
        with image.open("wb") as file:
            file.truncate(size_bytes)
        device = Path(_run("losetup", "--find", "--show", str(image)))
        stack.callback(_run, "losetup", "--detach", str(device))
        yield device


@contextlib.contextmanager
def mounted(what: str, folder: Path, *options: str) -> Iterator[Path]:
    """A file system, mounted as long as it is needed."""
    folder.mkdir(exist_ok=True)
    _run("mount", *options, what, str(folder))
    try:
        yield folder
    finally:
        _run("umount", "--lazy", str(folder))


@contextlib.contextmanager
def throttled(loop: Loop, **limits: int) -> Iterator[None]:
    """Slow this process and its children down on a disk.

    Args:
        loop: The disk.
        limits: By the kernel's names: read_iops, write_iops, read_bps, write_bps.
    """
    if not (_BLKIO / "blkio.throttle.read_iops_device").exists():
        pytest.skip("this machine has no control groups that throttle block devices (blkio, version 1)")
    number = loop.device.stat().st_rdev
    home = next(
        line.split(":", 2)[2]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if "blkio" in line.split(":")[1].split(",")
    )
    group = _BLKIO / f"pgdyno-test-{os.getpid()}"
    group.mkdir()
    try:
        for name, limit in limits.items():
            (group / f"blkio.throttle.{name}_device").write_text(f"{os.major(number)}:{os.minor(number)} {limit}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (_BLKIO / home.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

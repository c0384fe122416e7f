"""The folder of a run: it holds the folders of its tests, and what costs seconds to make and is shared by all of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pgdyno.run.cluster.home_mark import mark_home
from pgdyno.run.host.stale import name_of_this_process

_VARIABLE = "PGDYNO_TEST_SHARED"
# Source: linux/fs.h and fs/ext4/ext4.h, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS and EXT4_TOPDIR_FL.
_GET_FLAGS, _SET_FLAGS, _TOP_OF_A_HIERARCHY = 0x80086601, 0x40086602, 0x00020000


def open_shared_folder() -> Callable[[], None]:
    """Make the folder of this run, or use that of the run that started this one; return what removes it."""
    if os.environ.get(_VARIABLE):
        return lambda: None
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    spread_folders(folder)
    os.environ[_VARIABLE] = str(folder)

    def remove() -> None:
        del os.environ[_VARIABLE]
        remove_folder(folder)

    return remove


def name_of_process(mark: str, pid: int) -> str:
    """The prefix of the names of temporary folders that another process would make."""
    return name_of_this_process(mark).replace(str(os.getpid()), str(pid), 1)


def spread_folders(parent: Path) -> None:
    """Let ext4 put each new folder in `parent` where few others are; elsewhere, do nothing.

    Without a journal, ext4 gives the inodes of removed files to no others for minutes, and every new file passes them all
    by. Among the removed clusters of other tests, a copy of a cluster takes ten times the CPU time.

    Source: fs/ext4/ialloc.c, find_group_orlov() and recently_deleted().
    """
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            (flags,) = struct.unpack("i", fcntl.ioctl(descriptor, _GET_FLAGS, b"\0" * 4))
            fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("i", flags | _TOP_OF_A_HIERARCHY))
    finally:
        os.close(descriptor)


def without_shared(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment in which a program finds nothing of this run, and makes all of it itself."""
    return {name: value for name, value in environment.items() if name != _VARIABLE}


def make_folder() -> Path:
    """Make a folder that the server's account can reach (pytest's own are closed to it)."""
    # All in that of the run, so that files can be linked; a tool that captures something has none.
    folder = Path(tempfile.mkdtemp(prefix="", dir=os.environ.get(_VARIABLE, "/var/tmp")))
    folder.chmod(0o755)
    return folder


@contextlib.contextmanager
def reachable_folder() -> Iterator[Path]:
    folder = make_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove it with all that is in it, where what a test has ended may still be ending."""
    deadline_s = time.monotonic() + 60
    while folder.exists():
        try:
            shutil.rmtree(folder)
        except OSError as exc:
            # A file went or came meanwhile.
            if exc.errno not in {errno.ENOENT, errno.ENOTEMPTY} or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def hardened_umask() -> Iterator[None]:
    """Close new files to other accounts, as root's umask does on hardened machines."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def make_once(bindir: Path, kind: str, data: Path, make: Callable[[], object]) -> None:
    """Make the empty cluster `data`, or copy it where this run has made one like it before.

    Args:
        bindir: The programs that make it.
        kind: What distinguishes it from other clusters of these programs: the options of initdb, the account.
        data: The cluster.
        make: Makes it.
    """
    if _VARIABLE not in os.environ:
        make()
        return
    # Copies of one build in several homes are the same programs.
    program = (bindir / "postgres").stat()
    words = f"{program.st_size} {int(program.st_mtime)} {kind}"
    kept = Path(os.environ[_VARIABLE], f"empty-{hashlib.sha256(words.encode()).hexdigest()[:12]}")
    with _locked(kept.name):
        if not kept.exists():
            make()
            # In a folder of its own: what is killed here may leave a cp at work.
            with reachable_folder() as folder:
                subprocess.run(
                    ["cp", "--archive", "--no-target-directory", str(data), str(folder / "data")], check=True
                )
                (folder / "data").rename(kept)
            return
    # Beside `data`, the copy would lie where the removed clusters of other tests with this folder were.
    with reachable_folder() as folder:
        is_movable = folder.stat().st_dev == data.parent.stat().st_dev
        copy = folder / "data" if is_movable else data
        subprocess.run(["cp", "--archive", "--no-target-directory", str(kept), str(copy)], check=True)
        if is_movable:
            copy.rename(data)


@contextlib.contextmanager
def shared_templates(templates: Path) -> Iterator[None]:
    """Put this run's loaded clusters into a home's `templates`, and leave there those that are loaded meanwhile."""
    templates.parent.mkdir(parents=True, exist_ok=True)
    mark_home(templates.parent)
    shared = Path(os.environ[_VARIABLE], "templates")
    with _locked("templates"):
        _link_templates(shared, templates)
    yield
    with _locked("templates"):
        _link_templates(templates, shared)


def _link_templates(source: Path, target: Path) -> None:
    """Link each loaded cluster: nothing writes to a template's files, so that one may lie in several homes."""
    target.mkdir(parents=True, exist_ok=True)
    for whole in source.glob("*/dataset.json"):
        if not (target / whole.parent.name).exists():
            subprocess.run(["cp", "--archive", "--link", str(whole.parent), str(target)], check=True)


@contextlib.contextmanager
def shared_home(home: Path) -> Iterator[None]:
    """Put this run's loaded clusters and its test of the clock into a home, and leave there what it makes of them."""
    shared, kept = (Path(folder, "clock.json") for folder in (os.environ[_VARIABLE], home))
    with shared_templates(home / "templates"):
        _copy_once(shared, kept)
        yield
        _copy_once(kept, shared)


def _copy_once(source: Path, target: Path) -> None:
    with _locked("clock"):
        if source.exists() and not target.exists():
            shutil.copy(source, target)


@contextlib.contextmanager
def shared_place(name: str) -> Iterator[Path]:
    """Give a folder of this run, locked meanwhile."""
    folder = Path(os.environ[_VARIABLE], name)
    with _locked(name):
        folder.mkdir(exist_ok=True)
        yield folder


@contextlib.contextmanager
def _locked(name: str) -> Iterator[None]:
    with Path(os.environ[_VARIABLE], f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_without_ptrace(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as Docker and Podman run root: what other accounts' processes have open is closed to it."""
    argv = ["setpriv", "--bounding-set=-sys_ptrace", sys.executable, "-c", program, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)

"""Provide a file without a name to measure a disk with, which no other process can open.

The kernel frees the file when the last process that has it open ends, also after kill -9 or a loss of power. So nothing
is left to be removed, and no file of another account can be removed by mistake. Programs get the file as their standard
input and open it again as /proc/self/fd/0, so no path is followed that another process could have redirected. A
measurement takes at most half of the free space: a server on the same file system must not run out of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host import process
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.process import Completed, ServerUser
from pgdyno.run.host.tree import Tree
from pgdyno.units import format_bytes

AS_STDIN = "/proc/self/fd/0"
"""The path by which a program opens the file that it got as its standard input."""
MOST_OF_FREE = 0.5
"""Largest share of the free space that a measurement may take."""
# Errors of a file system that cannot create files without a name. Source: open(2), O_TMPFILE.
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
# Errors of a file system that cannot reserve space; writes may then run out of it. Source: fallocate(2).
_NO_FALLOCATE = {errno.EOPNOTSUPP, errno.ENOSYS}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


class Scratch(msgspec.Struct, frozen=True, kw_only=True):
    """An open file in a folder."""

    folder: Path
    descriptor: int
    takes_direct: bool
    """True if reads and writes can bypass the page cache, or the file system's own."""

    def run(self, argv: Sequence[str], *, user: ServerUser | None, timeout_s: float) -> Completed:
        """Run a program that opens the file as `AS_STDIN`. Call this from the main thread.

        Args:
            argv: The program and its arguments.
            user: The account to run it as; None: the present one.
            timeout_s: The time after which the program is stopped.

        Raises:
            HostError: The program is missing or may not be run.
            StepFailedError: The program ran into the time limit, or was killed.
        """
        name = Path(argv[0]).name
        with process.start(
            argv, user=user, stdin=self.descriptor, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            try:
                stdout, stderr = child.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as exc:
                raise StepFailedError(f"{name} did not end within {timeout_s:.0f} s") from exc
            finally:
                process.stop(child)
        if child.returncode < 0:
            raise StepFailedError(f"{name} was killed", detail=f"by {signal.Signals(-child.returncode).name}")
        return Completed(
            exit_code=child.returncode,
            stdout=stdout.decode(errors="replace"),
            stderr=stderr.decode(errors="replace"),
        )


@contextlib.contextmanager
def open_scratch(
    folder: Path, file_bytes: int, *, user: ServerUser | None = None, most_of_free: float = MOST_OF_FREE
) -> Iterator[Scratch]:
    """Provide a file whose space is reserved, but not yet written.

    Args:
        folder: An existing folder for it.
        file_bytes: Its size.
        user: The owner of the file, if root measures as another account.
        most_of_free: Largest share of the free space that it may take.

    Raises:
        HostError: The path is not a folder, cannot be written to, is being measured already, or has too little space.
    """
    with contextlib.ExitStack() as stack:
        place = _open_folder(folder)
        stack.callback(os.close, place)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise HostError(
                f"{folder} is being measured by another pgdyno",
                hint="wait for it: two at once would distort each other's figures",
            ) from exc
        _check_space(folder, place, file_bytes, most_of_free)
        try:
            descriptor = _make_file(place)
            stack.callback(os.close, descriptor)
            if user is not None and not user.is_self:
                os.fchown(descriptor, user.uid, user.gid)
            _take_space(descriptor, file_bytes)
        except OSError as exc:
            raise _translate(exc, folder, file_bytes) from exc
        filesystem = read_disk_facts(folder).filesystem
        takes_direct = _takes_direct(descriptor) and not ignores_direct(filesystem, Tree())
        yield Scratch(folder=folder, descriptor=descriptor, takes_direct=takes_direct)


def ignores_direct(filesystem: str, tree: Tree) -> bool:
    """Return whether a file system takes O_DIRECT and goes through its own cache all the same: ZFS before 2.3.

    Source: github.com/openzfs/zfs/releases/tag/zfs-2.3.0, Direct IO (#10018).
    """
    if filesystem != "zfs":
        return False
    version = re.match(r"(\d+)\.(\d+)", tree.read("sys/module/zfs/version") or "0.0")
    return version is None or (int(version[1]), int(version[2])) < (2, 3)


def _open_folder(folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError as exc:
        raise HostError(f"there is no folder {folder}", hint="name one on the disk that is to be measured") from exc
    except NotADirectoryError as exc:
        raise HostError(f"{folder} is no folder", hint="name a folder on the disk that is to be measured") from exc
    except OSError as exc:
        raise HostError(f"cannot open {folder}", detail=exc.strerror or str(exc)) from exc


def _check_space(folder: Path, place: int, file_bytes: int, most_of_free: float) -> None:
    usage = os.fstatvfs(place)
    free_bytes = usage.f_bavail * usage.f_frsize
    # A file system without a size of its own, such as ramfs, reports no free space at all.
    if usage.f_blocks and file_bytes > free_bytes * most_of_free:
        raise HostError(
            f"{folder} has too little space to be measured",
            detail=f"the test file is {format_bytes(file_bytes)} and {format_bytes(free_bytes)} are free, "
            f"of which it may take {most_of_free * 100:.0f} %",
            hint="free some, or name a folder on the same disk that has more",
        )


def _make_file(place: int) -> int:
    try:
        return os.open(".", os.O_RDWR | os.O_TMPFILE, 0o600, dir_fd=place)
    except OSError as exc:
        if exc.errno not in _NO_TMPFILE:
            raise
    return _make_unlinked(place)


def _make_unlinked(place: int) -> int:
    """Create a file and remove its name at once; a kill in between leaves an empty file."""
    name = f".pgdyno-{secrets.token_hex(8)}"
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=place)
    os.unlink(name, dir_fd=place)
    return descriptor


def _take_space(descriptor: int, file_bytes: int) -> None:
    # os.posix_fallocate is avoided: on a file system without support the C library writes to every block, over a
    # network too.
    os.ftruncate(descriptor, file_bytes)
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, 0, 0, file_bytes) != 0 and (code := ctypes.get_errno()) not in _NO_FALLOCATE:
        raise OSError(code, os.strerror(code))


def _takes_direct(descriptor: int) -> bool:
    try:
        os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_DIRECT))
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        return False
    return True


def _translate(exc: OSError, folder: Path, file_bytes: int) -> HostError:
    if exc.errno in _NO_SPACE:
        return HostError(
            f"{folder} has too little space to be measured",
            detail=f"the test file is {format_bytes(file_bytes)}: {exc.strerror}",
            hint="free some, or name a folder on the same disk that has more",
        )
    if exc.errno == errno.EROFS:
        return HostError(f"{folder} is on a file system that is read-only", hint="name a folder that can be written to")
    return HostError(
        f"cannot make a file in {folder}",
        detail=exc.strerror or str(exc),
        hint="name a folder that this account may write to",
    )

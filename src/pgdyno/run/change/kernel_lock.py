"""Lock kernel settings against pgdynos that share this kernel but no file system, such as those of two containers.

Their journals do not know each other, so that one would take the other's temporary value for the original. All mounts of
devtmpfs on a kernel are one file system, in every namespace, and a reboot empties it. There each held setting has a file:
its lock ends with the process that holds it, and its note says what a killed pgdyno has left changed (ADR 20).

An account that may not mount, or a kernel before Linux 5.2, has no such lock: then only the journal protects.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import urllib.parse
from collections.abc import Iterator
from typing import Self

import msgspec

from pgdyno.errors import HostError
from pgdyno.record.damage import NOT_JSON
from pgdyno.run.change.changes import Change
from pgdyno.run.host.log import LOG

_PREFIX = "pgdyno-"
# The same numbers on all architectures but alpha. Source: Linux, include/uapi/asm-generic/unistd.h and linux/mount.h.
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC, _CREATE = 1, 6
_SYSCALL = ctypes.CDLL(None, use_errno=True).syscall


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    change: Change
    host_name: str


class SettingLock:
    """The lock of one kernel setting, which this process holds until `release`, or until it ends."""

    def __init__(self, file: int | None, name: str) -> None:
        self._file = file
        self._name = name

    def read(self) -> Change | None:
        """Return what a killed pgdyno noted; None if none left a note."""
        note = None if self._file is None else _read_note(self._file)
        return None if note is None else note.change

    def note(self, change: Change) -> None:
        """Write what this process is about to change.

        Raises:
            HostError: The note cannot be written.
        """
        if self._file is None:
            return
        content = msgspec.json.encode(_Note(change=change, host_name=os.uname().nodename))
        try:
            os.pwrite(self._file, content, 0)
            os.ftruncate(self._file, len(content))
        except OSError as exc:
            raise HostError("cannot note the change of a kernel setting in devtmpfs", detail=str(exc)) from exc

    def release(self, *, keeps_note: bool = False) -> None:
        """Unlock the setting, and remove the note unless something is left to undo."""
        if self._file is None:
            return
        if not keeps_note:
            with contextlib.suppress(OSError), _devices() as folder:
                os.unlink(self._name, dir_fd=folder)
        os.close(self._file)
        self._file = None

    @classmethod
    def take(cls, change: Change) -> Self:
        """Lock the setting of a change.

        Raises:
            HostError: Another pgdyno on this kernel holds it.
        """
        name = _PREFIX + urllib.parse.quote(f"{change.what} {change.namespace or ''}".strip(), safe=" ")
        try:
            with _devices() as folder:
                while True:
                    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
                    _flock(file, change)
                    # Its owner may have removed it between the two.
                    if os.fstat(file).st_nlink:
                        return cls(file, name)
                    os.close(file)
        except OSError as exc:
            LOG.info("no lock of %s that other containers see: %s", change.what, exc)
            return cls(None, name)


def check_unlocked(change: Change) -> None:
    """Check that no measurement elsewhere on this kernel holds a setting or has left it changed.

    Raises:
        HostError: One does or has.
    """
    lock = SettingLock.take(change)
    left = lock.read()
    lock.release(keeps_note=left is not None)
    if left is not None and change.old_value in left.new_values and change.old_value != left.old_value:
        raise HostError(
            f"a pgdyno that was killed has left {change.what} changed",
            detail=f"it was {left.old_value} before {left.at}, in another container or chroot",
            hint="`pgdyno restore` there puts it back",
        )


def _flock(file: int, change: Change) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        note = _read_note(file)
        os.close(file)
        owner = (
            "" if note is None else f"pid {note.change.owner.pid} there, since {note.change.at}, on {note.host_name}"
        )
        raise HostError(
            f"another pgdyno on this kernel is changing {change.what}",
            detail="; ".join(filter(None, ("it is in another container or chroot", owner))),
            hint="wait for it: two at once would distort each other's figures",
        ) from exc


def _read_note(file: int) -> _Note | None:
    # An owner that was killed as it wrote leaves a part, before it changed anything.
    with contextlib.suppress(OSError, *NOT_JSON):
        return msgspec.json.decode(os.pread(file, 1 << 16, 0), type=_Note)
    return None


@contextlib.contextmanager
def _devices() -> Iterator[int]:
    """Open devtmpfs, mounted nowhere."""
    context = _call(_FSOPEN, b"devtmpfs", _CLOEXEC)
    try:
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        folder = _call(_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)
    try:
        yield folder
    finally:
        os.close(folder)


def _call(number: int, *arguments: int | bytes | None) -> int:
    result = int(_SYSCALL(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

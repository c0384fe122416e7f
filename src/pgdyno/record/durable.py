"""Write files so that a crash leaves each of them whole, and translate the errors of a full disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pgdyno.errors import StepFailedError, why

# Source: linux/fcntl.h and linux/fs.h.
_HERE, _EXCHANGE = -100, 2
_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_durably(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file so that after a crash it holds all of its old or all of its new content.

    Args:
        path: The file.
        content: All of it, or its parts, of which only one is in memory at a time.

    Raises:
        OSError: It cannot be written; the old content stays. So it does after an error of what yields the parts.
    """
    _remove_left_drafts(path)
    # Another process may be writing the same file: each has a draft of its own, and the last one stays.
    partial = _name_draft(path)
    try:
        with _called(path, partial), partial.open("wb") as file:
            if not _hold(partial, file.fileno()):
                write_durably(path, content)
                return
            file.writelines((content,) if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
            partial.replace(path)
    finally:
        # On a full disk a leftover partial file would take space that other files need.
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def drafting_folder(place: Path) -> Iterator[Path]:
    """Make an empty folder beside a place, for what will be moved there, and remove the folder at the end.

    Folders that killed processes have left for the same place are removed, too.

    Raises:
        OSError: It cannot be made.
    """
    _remove_left_drafts(place, shutil.rmtree)
    draft, descriptor = _make_folder(place)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(descriptor)


def _make_folder(place: Path) -> tuple[Path, int]:
    """Make the draft of a folder, and return it with the descriptor that holds it."""
    while True:
        draft = _name_draft(place)
        with _called(place, draft):
            draft.mkdir(mode=0o700)
        # Another process may take it for one that was left, until it is held.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(draft, os.O_RDONLY)
            if _hold(draft, descriptor):
                return draft, descriptor
            os.close(descriptor)


def _name_draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")


@contextlib.contextmanager
def _called(path: Path, draft: Path) -> Iterator[None]:
    """Name in errors what a draft would become, and not the draft, which nobody knows."""
    try:
        yield
    except OSError as exc:
        if str(exc.filename) != str(draft):
            raise
        raise OSError(exc.errno, exc.strerror, str(path)) from exc


def _hold(draft: Path, descriptor: int) -> bool:
    """Lock a new draft while it is written; return False if another writer took it for one that was left, and removed it."""
    # Where a file system has no locks, no draft is taken for one that was left.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return draft.exists()


def _remove_left_drafts(path: Path, remove: Callable[[Path], None] = Path.unlink) -> None:
    """Remove the drafts of a file or folder that killed processes have left: those that nobody holds."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        with contextlib.suppress(OSError):
            descriptor = os.open(draft, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(draft)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Translate OS errors while a record is written into StepFailedError.

    Args:
        path: The file that is written, or the folder of several.

    Raises:
        StepFailedError: It cannot be written; for a full disk, a hint says what to do.
    """
    try:
        yield
    except OSError as exc:
        is_full = exc.errno in _FULL_DISK
        hint = "the disk of the record is full: free some space; `pgdyno resume` continues" if is_full else ""
        raise StepFailedError(f"cannot write {path}", detail=why(exc), hint=hint) from exc


def sync_folder(path: Path) -> None:
    """Flush a folder's entries or a file's contents to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(new: Path, place: Path, *, aside: Path) -> None:
    """Put a folder in the place of another one, and move that one to `aside`. All three lie on one file system.

    Whenever this process is killed, one of the two is in the place. Only on a file system that cannot exchange them, such as ZFS
    before 2.2, there is neither for an instant.

    Raises:
        OSError: They cannot be moved; the old one is in its place.

    Source: renameat2(2), RENAME_EXCHANGE; glibc has it since 2.28.
    """
    import ctypes  # noqa: PLC0415 - few commands need it

    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is not None and rename(_HERE, os.fsencode(new), _HERE, os.fsencode(place), _EXCHANGE) == 0:
        new.rename(aside)
        return
    place.rename(aside)
    try:
        new.rename(place)
    except BaseException:
        aside.rename(place)
        raise

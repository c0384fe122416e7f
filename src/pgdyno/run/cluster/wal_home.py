"""Keep pg_wal of a home's clusters on a disk of its own, in a folder that the user names: the WAL home.

The user makes that folder, because to make it here would hide a disk that is not mounted. Everything of pgdyno's in it is in one
folder, which is there only while a pgdyno uses it. Notes in the home, one for each WAL home in use, tell the next pgdyno what a killed
one has left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pgdyno.errors import HostError, why
from pgdyno.record.durable import write_durably
from pgdyno.run.cluster.lock import held_by_another, take_lock, write_holder
from pgdyno.run.host import process
from pgdyno.run.host.mounts import list_mounts
from pgdyno.run.host.process import ServerUser

WAL_FOLDER = "pg_wal"
"""The folder of a cluster that holds its WAL."""
WAL_LOCK = "pgdyno-wal.lock"
"""The file that a WAL home is locked by."""
SLOT = "slot-"
"""What the name of a slot's folder begins with; its number follows."""
_FOLDER = "pgdyno-wal"
_OWN = re.compile(rf"{WAL_FOLDER}|{SLOT}\d+")
_NOTE = "wal-home"


@contextlib.contextmanager
def open_wal_home(root: Path, *, home: Path, user: ServerUser) -> Iterator[Path]:
    """Lock a WAL home, make pgdyno's folder in it, yield that folder, and remove it in the end.

    Args:
        root: The WAL home.
        home: The home whose clusters have their pg_wal there; it is locked.
        user: The account that owns the server and its files.

    Raises:
        HostError: As for `check_wal_home`; or another pgdyno uses it, it has a folder of that name that is not pgdyno's, or the
            account cannot reach it.
    """
    check_wal_home(root, home=home)
    folder, note = root / _FOLDER, find_note(home, _NOTE, root)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_locked(root))
            _remove(folder)
            write_note(note, root)
            stack.callback(_clear, folder, note)
            folder.mkdir(mode=0o700)
            if not user.is_self:
                os.chown(folder, user.uid, user.gid)
        except OSError as exc:
            raise HostError(
                f"cannot use {root} as WAL home", detail=why(exc), hint="choose another folder with --wal-home"
            ) from exc
        if process.run(["test", "-w", str(folder)], user=user).exit_code != 0:
            raise HostError(
                f"the user {user.name} cannot reach {folder}",
                detail="each folder above it must be open to that user",
                hint="choose another folder with --wal-home",
            )
        yield folder


def check_wal_home(root: Path, *, home: Path) -> None:
    """Check that a folder can be the WAL home of a home, by what can be seen without writing.

    Raises:
        HostError: It is no folder, this account cannot write there, or one of the two is inside the other.
    """
    if not root.is_dir():
        raise HostError(
            f"the WAL home {root} is no folder",
            detail="it does not exist" if not root.exists() else "it is something else",
            hint="mount the disk of the WAL and make the folder, or choose another one with --wal-home",
        )
    if not os.access(root, os.W_OK | os.X_OK):
        raise HostError(
            f"this account cannot write to the WAL home {root}",
            hint="make it writable for this account, or choose another folder with --wal-home",
        )
    one, other = root.resolve(), home.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise HostError(
            "the home and the WAL home are one folder, or one is inside the other",
            detail=f"{other} and {one}",
            hint="choose a folder beside the home, on the disk of the WAL, with --wal-home",
        )


def remove_left_wal(home: Path) -> None:
    """Remove the WAL that a killed pgdyno of this home has left in a WAL home; the home is locked, its servers have ended.

    What another pgdyno uses by now, or what this account may not remove, stays, and so does the note.
    """
    for note, root in read_notes(home, _NOTE):
        with contextlib.suppress(OSError, HostError), _locked(root):
            _clear(root / _FOLDER, note)


def find_note(home: Path, kind: str, folder: Path) -> Path:
    """Return the file in a home that notes the use of a folder elsewhere."""
    return home / f"{kind}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]}"


def write_note(note: Path, folder: Path) -> None:
    """Write a note; it is on disk when this returns."""
    write_durably(note, os.fsencode(folder.absolute()))


def read_notes(home: Path, kind: str) -> list[tuple[Path, Path]]:
    """Return the notes of a kind in a home, each with the folder that it names; damaged ones name nothing."""
    notes = [(note, Path(os.fsdecode(note.read_bytes()))) for note in home.glob(f"{kind}-*")]
    return [(note, folder) for note, folder in notes if folder.is_absolute()]


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    path = root / WAL_LOCK
    # The folder may be open to others: a link that they put there is not followed.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8") as lock:
        # Who had the lock before may have removed the file in between.
        if not take_lock(lock) or not _is_still_at(path, descriptor):
            raise held_by_another(lock, root)
        write_holder(lock)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _is_still_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove(folder: Path) -> None:
    """Remove pgdyno's folder if it is there.

    Raises:
        HostError: It has something that pgdyno does not make, or a mount, so that it is the user's; nothing of it is removed.
    """
    if not os.path.lexists(folder):
        return
    if mounts := list_mounts(folder):
        raise HostError(
            f"something is mounted at {mounts[-1]}",
            detail="pgdyno would empty it, and keeps its own WAL there",
            hint="mount it elsewhere, or choose another folder with --wal-home",
        )
    others = sorted(path.name for path in folder.iterdir() if not _OWN.fullmatch(path.name))
    if others:
        raise HostError(
            f"{folder} is not pgdyno's own: it has {others[0]}",
            detail="pgdyno would remove it, and keeps its own WAL under that name",
            hint="give it another name, or choose another folder with --wal-home",
        )
    shutil.rmtree(folder)


def _clear(folder: Path, note: Path) -> None:
    # What cannot be removed now is left to the next pgdyno, which the note tells.
    with contextlib.suppress(OSError, HostError):
        _remove(folder)
        note.unlink(missing_ok=True)

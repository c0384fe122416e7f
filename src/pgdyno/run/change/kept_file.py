"""Replace files and restore them byte for byte, with owner and mode, in folders of other accounts.

Root writes nowhere else: the folder is opened once and must belong to the expected account, links in it are not
followed, and a file gets its name only when it is whole and on disk. `discard_partial` removes what a kill leaves half
written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.change.changes import SavedFile
from pgdyno.run.change.journal import Journal


class FileCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A file's content, owner, group and mode."""

    content: bytes
    uid: int
    gid: int
    mode: int

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def saved(self) -> SavedFile:
        """Return the journal's description of the file."""
        return SavedFile(sha256=self.sha256, uid=self.uid, gid=self.gid, mode=self.mode)


def load_copy(saved: SavedFile, journal: Journal) -> FileCopy:
    """Load a saved file from the journal.

    Raises:
        HostError: As for `Journal.read_saved`.
    """
    return FileCopy(content=journal.read_saved(saved), uid=saved.uid, gid=saved.gid, mode=saved.mode)


def read_copy(path: Path, *, uid: int) -> FileCopy | None:
    """Read a file with its owner and mode; None if there is none.

    Raises:
        HostError: The file cannot be read, is a link or a device, or it or its folder does not belong to `uid`.
    """
    with _opened_folder(path.parent, uid) as folder:
        return _read(path, folder, uid)


def write_copy(path: Path, copy: FileCopy | None, *, instead_of: FileCopy | None, uid: int) -> None:
    """Replace or remove a file; the result is on disk when this returns.

    Args:
        path: The file.
        copy: The new content, owner and mode; None removes the file.
        instead_of: The expected present state, which is compared once more at the last moment.
        uid: The owner of its folder.

    Raises:
        HostError: The file has changed in the meantime, cannot be written, or its folder does not belong to `uid`.
    """
    partial = _partial(path)
    with _opened_folder(path.parent, uid) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)
        if copy is not None:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                facts = os.fstat(descriptor)
                if (facts.st_uid, facts.st_gid) != (copy.uid, copy.gid):
                    os.fchown(descriptor, copy.uid, copy.gid)
                os.fchmod(descriptor, copy.mode)
                file.write(copy.content)
                file.flush()
                os.fsync(descriptor)
        if _read(path, folder, uid) != instead_of:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=folder)
            raise HostError(f"another program has changed {path} meanwhile", hint="try again")
        if copy is not None:
            os.rename(partial, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        elif instead_of is not None:
            os.unlink(path.name, dir_fd=folder)
        os.fsync(folder)


def discard_partial(path: Path, *, uid: int) -> None:
    """Remove the half-written copy that a killed process has left.

    Raises:
        HostError: As for `write_copy`.
    """
    with _opened_folder(path.parent, uid) as folder, contextlib.suppress(FileNotFoundError):
        os.unlink(_partial(path), dir_fd=folder)


def _read(path: Path, folder: int, uid: int) -> FileCopy | None:
    try:
        descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != uid:
            raise HostError(f"{path} is not a regular file of its folder's owner", hint="find out what created it")
        return FileCopy(content=file.read(), uid=uid, gid=facts.st_gid, mode=stat.S_IMODE(facts.st_mode))


def _partial(path: Path) -> str:
    return f".{path.name}.pgdyno"


@contextlib.contextmanager
def _opened_folder(folder: Path, uid: int) -> Iterator[int]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if (owner := os.fstat(descriptor).st_uid) != uid:
                raise HostError(f"{folder} belongs to another account", detail=f"uid {owner}, expected was {uid}")
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as exc:
        raise HostError(f"cannot use files in {folder}", detail=str(exc)) from exc

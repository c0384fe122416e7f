"""Find the studies that pgdyno was sent here to run and that were stopped, and remove those whose records are at home or unknown."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pgdyno.run.host.tunables import read_folder_bytes
from pgdyno.run.over.far_run import AT_HOME, NOTED, PLACE, UNKNOWN, hold


class StoppedStudy(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a study that nothing runs."""

    folder: str
    size_bytes: int
    is_at_home: bool
    """Whether all that it has measured is on the machine that it was asked for from, too."""
    is_known: bool
    """Whether a record there names it; else that pgdyno was killed, or the link was cut, before one did."""

    @property
    def is_removable(self) -> bool:
        """Whether nobody loses anything with it."""
        return self.is_at_home or not self.is_known


def find_stopped() -> tuple[StoppedStudy, ...]:
    """Return the stopped studies of this account."""
    place = Path.home() / PLACE
    if not place.is_dir():
        return ()
    found = []
    for folder in sorted(place.iterdir()):
        with _held(folder) as is_held:
            if is_held and any(folder.glob(f"**/{NOTED[0]}")):
                found.append(_read_marks(folder, read_folder_bytes(folder)))
    return tuple(found)


def remove_stopped(study: StoppedStudy) -> bool:
    """Remove a stopped study, unless it runs again or has measured something since; return whether it is removed."""
    folder = Path(study.folder)
    with _held(folder) as is_held:
        if not is_held or not _read_marks(folder, study.size_bytes).is_removable:
            return False
        shutil.rmtree(folder)
    return True


def _read_marks(folder: Path, size_bytes: int) -> StoppedStudy:
    is_at_home, is_unknown = ((folder / mark).exists() for mark in (AT_HOME, UNKNOWN))
    return StoppedStudy(folder=str(folder), size_bytes=size_bytes, is_at_home=is_at_home, is_known=not is_unknown)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Keep a study from being resumed; yield whether it is a folder that nothing runs in."""
    held = hold(folder, fcntl.LOCK_EX) if folder.is_dir() and not folder.is_symlink() else None
    try:
        yield held is not None
    finally:
        if held is not None:
            os.close(held)

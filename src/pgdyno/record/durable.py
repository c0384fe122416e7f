"""Writes files so that a crash leaves each of them whole, and translates what a full disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pgdyno.errors import StepFailedError

_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file so that after a crash it holds either its old or its new content, whole.

    Raises:
        OSError: It cannot be written; the old content stays.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        # On a full disk its rest would take the room that others need.
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Translate what the disk of a record refuses.

    Args:
        path: What is written, a file or the folder of several.

    Raises:
        StepFailedError: It cannot be written; on a full disk with what to do about it.
    """
    try:
        yield
    except OSError as exc:
        is_full = exc.errno in _FULL_DISK
        hint = "the disk of the record is full: free some space; `pgdyno resume` goes on" if is_full else ""
        raise StepFailedError(f"cannot write {path}", detail=str(exc), hint=hint) from exc


def sync_folder(path: Path) -> None:
    """Flush a folder's entries, or a file, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Hold a file's lock for this process: two pgdynos at once on one home would distort each other's figures."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from pgdyno.errors import HostError


def take_lock(lock: IO[str]) -> bool:
    """Lock an open file until it is closed. Return False if another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_holder(lock: IO[str]) -> None:
    """Write this process into a file that it has locked, for `held_by_another`."""
    lock.truncate(0)
    lock.write(f"pid {os.getpid()}\n")
    lock.flush()


def held_by_another(lock: IO[str], root: Path) -> HostError:
    """Return the error for a folder whose lock another process has."""
    lock.seek(0)
    return HostError(
        "another pgdyno is at work on this machine",
        detail=f"{lock.read().strip() or 'unknown process'} holds {root}",
        hint="wait for it: two at once would distort each other's figures",
    )

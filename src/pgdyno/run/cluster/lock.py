"""Hold a file's lock for this process: two pgdynos at once on one home would distort each other's figures."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

from pgdyno.errors import HostError
from pgdyno.run.host.clock import monotonic_s

_PATIENCE_S = 2.0
_STEP_S = 0.02


def take_lock(lock: IO[str]) -> bool:
    """Lock an open file until it is closed. Return False if another process has it.

    A pgdyno that was killed while it started a program leaves its lock to the child, which drops it when it executes the
    program. On a busy machine this takes a moment, so wait a little.
    """
    until_s = monotonic_s() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic_s() > until_s:
                return False
            time.sleep(_STEP_S)
        else:
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

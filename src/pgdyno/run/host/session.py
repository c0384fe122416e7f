"""Find and end what is left of a command whose caller was killed: its children outlive it, daemons that it started do not count.

The command runs in a session of its own and writes that session's id to a file before it begins. A daemon leaves the session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from pgdyno.errors import HostError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process_id import identify, read_boot_id

_WRITE = 'cat /proc/$$/stat /proc/sys/kernel/random/boot_id > "$0" && exec "$@"'

_END_PATIENCE_S = 10.0
_LOOK_EVERY_S = 0.05


def note_session(argv: Sequence[str], path: Path) -> list[str]:
    """Return the argv that writes the session's leader to a file and then is `argv`; it must lead a session of its own."""
    return ["/bin/sh", "-c", _WRITE, str(path), *argv]


def find_session(path: Path) -> tuple[int, ...]:
    """Return the processes of a session that still run.

    Args:
        path: The file from `note_session`; if it is missing or cut off, the command did not begin.
    """
    try:
        stat, boot_id = path.read_text(encoding="utf-8", errors="replace").splitlines()
        leader, started = int(stat.partition(" ")[0]), int(_fields(stat)[19])
    except (FileNotFoundError, ValueError, IndexError):
        return ()
    now = identify(leader)
    if boot_id != read_boot_id() or (now is not None and now.start_ticks != started):
        return ()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _fields((entry / "stat").read_text(encoding="utf-8", errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == leader and fields[0] not in {"Z", "X"}:
                found.append(int(entry.name))
    return tuple(found)


def end_session(path: Path) -> None:
    """End the processes of a session that still run, first with SIGTERM, and remove the file from `note_session`.

    Raises:
        HostError: One does not end; the file stays.
    """
    for sign in (signal.SIGTERM, signal.SIGKILL):
        deadline_s = monotonic_s() + _END_PATIENCE_S
        for pid in find_session(path):
            # What sudo runs belongs to root: it can only be waited for.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, sign)
        while find_session(path) and monotonic_s() < deadline_s:
            time.sleep(_LOOK_EVERY_S)
    if left := find_session(path):
        raise HostError(
            "a command that pgdyno has run goes on, and cannot be ended",
            detail=", ".join(f"pid {pid} ({_read_name(pid)})" for pid in left),
            hint="wait for its end, or end it as root; then try again",
        )
    path.unlink(missing_ok=True)


def _read_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "ended since"


def _fields(stat: str) -> list[str]:
    """Return the fields from the 3rd, state, on. Source: proc_pid_stat(5); the 6th is the session, the 22nd the start time."""
    return stat.rpartition(")")[2].split()

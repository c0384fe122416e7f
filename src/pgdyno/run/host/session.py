"""Find what is left of a command whose caller was killed: its children outlive it, daemons that it started do not count.

The command runs in a session of its own and writes that session's id to a file before it begins. A daemon leaves the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgdyno.run.host.process_id import identify, read_boot_id

_WRITE = 'cat /proc/$$/stat /proc/sys/kernel/random/boot_id > "$0" && exec "$@"'


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


def _fields(stat: str) -> list[str]:
    """Return the fields from the 3rd, state, on. Source: proc_pid_stat(5); the 6th is the session, the 22nd the start time."""
    return stat.rpartition(")")[2].split()

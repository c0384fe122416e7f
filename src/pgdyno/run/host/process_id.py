"""Identify processes beyond their pid, so that a process is not mistaken for a later one with the same number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.host.process import ServerUser, call_as

_Result = TypeVar("_Result")
# Source: proc_pid_cwd(5), as for /proc/PID/exe.
_REMOVED = " (deleted)"


class ProcessId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A process, identified beyond doubt: the kernel reuses pids, also across reboots."""

    pid: int
    start_ticks: int
    """Clock ticks from boot to the process's start. Source: proc_pid_stat(5), starttime."""
    boot_id: str


def this_process() -> ProcessId:
    """Identify the process that this code runs in.

    Raises:
        HostError: /proc is not mounted.
    """
    process = identify(os.getpid())
    if process is None:
        raise HostError("/proc is not readable", hint="pgdyno runs on Linux, with /proc mounted")
    return process


def identify(pid: int) -> ProcessId | None:
    """Identify the process that has a number now; return None where no process has it."""
    start_ticks = _read_start_ticks(pid)
    return None if start_ticks is None else ProcessId(pid=pid, start_ticks=start_ticks, boot_id=read_boot_id())


def is_running(process: ProcessId) -> bool:
    """Return whether that very process still runs; one that is dead and not yet reaped does not."""
    return process.boot_id == read_boot_id() and _read_start_ticks(process.pid) == process.start_ticks


def read_boot_id() -> str:
    """Return the id of this boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def read_place() -> tuple[str, str]:
    """Return this boot of the kernel and the namespace of process ids: where both are the same, so is what a pid means."""
    return read_boot_id(), str(Path("/proc/self/ns/pid").readlink())


def look_at(pid: int, look: Callable[[Path], _Result]) -> _Result:
    """Call a function on a process's folder below /proc, if need be once more as the account of that process.

    Root in a container mostly lacks CAP_SYS_PTRACE, which alone opens what the processes of other accounts have open.

    Raises:
        OSError: The process has ended, or neither account may see that of it.
    """
    folder = Path("/proc", str(pid))
    try:
        return look(folder)
    except PermissionError:
        facts = read_status(folder)
        # Source: proc_pid_status(5): the real, the effective, the saved and the file system's.
        uid, gid = (int(facts[name].split()[1]) for name in ("Uid", "Gid"))
        if os.geteuid() != 0 or uid == 0:
            raise
        return call_as(ServerUser(name=str(uid), uid=uid, gid=gid), lambda: look(folder))


def read_status(folder: Path) -> dict[str, str]:
    """Return what /proc/PID/status tells of a process, by name.

    Raises:
        OSError: The process has ended.
    """
    status = (folder / "status").read_text(encoding="utf-8", errors="replace")
    return dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)


def find_working_in(folder: Path) -> Iterator[tuple[int, bool | None]]:
    """Yield the pid of each process that works in a folder or below it, and of each of which that cannot be told.

    Yields:
        The pid and True, or None where this account may not see where the process works.
    """
    inside = f"{folder.resolve()}/"
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a Path of each takes longer than the look
        try:
            if look_at(int(pid), lambda process: _works_in(process, inside)):
                yield int(pid), True
        except PermissionError:
            yield int(pid), None
        except OSError:
            # It has ended.
            continue


def _works_in(process: Path, inside: str) -> bool:
    current = os.readlink(f"{process}/cwd")  # noqa: PTH115 - a Path takes longer than the look
    if not f"{current}/".startswith(inside):
        return False
    try:
        # In another container the same path is another folder.
        return current.endswith(_REMOVED) or (process / "cwd").samefile(current)
    except FileNotFoundError:
        return False


def _read_start_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Source: proc_pid_stat(5): after the name in parentheses follows the 3rd field, state; starttime is the 22nd.
    return None if fields[0] in {"Z", "X"} else int(fields[19])

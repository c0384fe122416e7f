"""Identify processes beyond their pid, so that a process is not mistaken for a later one with the same number."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.host.process import ServerUser, call_as

_Result = TypeVar("_Result")
# What pgdyno starts in its clusters, by the names of /proc/PID/comm.
_SERVERS = frozenset({"postgres", "pgbouncer", "initdb", "sh"})


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

    Root in a container usually lacks CAP_SYS_PTRACE, without which it may not see the files of other accounts' processes. All
    threads have the other account's rights meanwhile: look at few processes, and not while other threads work.

    Raises:
        OSError: The process has ended, or neither account may see that of it.
    """
    folder = Path("/proc", str(pid))
    try:
        return look(folder)
    except PermissionError:
        account = read_account(folder)
        if os.geteuid() != 0 or account.uid == 0 or threading.current_thread() is not threading.main_thread():
            raise
        return call_as(account, lambda: look(folder))


def read_account(folder: Path) -> ServerUser:
    """Return the account whose rights a process has.

    Raises:
        OSError: The process has ended.
    """
    facts = read_status(folder)
    # Source: proc_pid_status(5): the real, the effective, the saved and the file system's.
    uid, gid = (int(facts[name].split()[1]) for name in ("Uid", "Gid"))
    return ServerUser(name=str(uid), uid=uid, gid=gid)


def read_status(folder: Path) -> dict[str, str]:
    """Return what /proc/PID/status tells of a process, by name.

    Raises:
        OSError: The process has ended.
    """
    status = (folder / "status").read_text(encoding="utf-8", errors="replace")
    return dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)


def find_working_in(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the pid of each process that works in a folder or below it, with its current folder, as far as this account sees.

    Of PostgreSQL and PgBouncer it also yields those whose folder is closed to this account, if their command lines name
    the folder; the path is then empty.
    """
    inside = f"{folder.resolve()}/"
    told: dict[int, bool] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a Path of each takes longer than the look
        try:
            current = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - the same
        except PermissionError:
            if _is_told(int(pid), inside, told) and _sees_same_files(pid):
                yield int(pid), ""
        except OSError:
            continue
        else:
            if f"{current}/".startswith(inside):
                yield int(pid), current


def _is_told(pid: int, inside: str, told: dict[int, bool]) -> bool:
    """Return whether a process, or the server or initdb that started it, has a path in a folder as an argument.

    A server's processes show what they do in place of their command lines; the postmaster keeps its own.

    Args:
        pid: The process.
        inside: The folder, without links, with a slash at its end; arguments may name it by any path.
        told: The answers so far, by pid; this one is added.
    """
    if pid not in told:
        process = Path("/proc", str(pid))
        told[pid] = False
        with contextlib.suppress(OSError):
            if (process / "comm").read_text(encoding="utf-8", errors="replace").strip() in _SERVERS:
                words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
                named = (word.removeprefix("--pgdata=") for word in words)
                paths = (os.path.realpath(path) for path in named if path.startswith("/"))
                told[pid] = any(f"{path}/".startswith(inside) for path in paths) or _is_told(
                    int(read_status(process)["PPid"]), inside, told
                )
    return told[pid]


def _sees_same_files(pid: str) -> bool:
    # In another container the same path is another folder.
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/mountinfo").read_bytes() == Path("/proc/self/mountinfo").read_bytes()
    return False


def _read_start_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Source: proc_pid_stat(5): after the name in parentheses follows the 3rd field, state; starttime is the 22nd.
    return None if fields[0] in {"Z", "X"} else int(fields[19])

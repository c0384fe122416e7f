"""Identify processes beyond their pid, so that a process is not mistaken for a later one with the same number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import HostError


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


def find_working_in(folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the pid of each process that works in a folder or below it, with its current folder, as far as this account sees."""
    inside = f"{folder.resolve()}/"
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - a Path of each takes longer than the look
        try:
            current = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - the same
        except OSError:
            continue
        if f"{current}/".startswith(inside):
            yield int(pid), current


def _read_start_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Source: proc_pid_stat(5): after the name in parentheses follows the 3rd field, state; starttime is the 22nd.
    return None if fields[0] in {"Z", "X"} else int(fields[19])

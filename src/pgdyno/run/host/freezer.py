"""Freeze trees of processes as a whole, and thaw them again.

A tree's processes come and go, so they are found anew at each freeze, from the root downwards: a process that is stopped
starts no further one, so what is found below it is all there is. PostgreSQL notices nothing, because it sets SA_NOCLDSTOP;
its sockets, locks and memory stay as they are.

Signals do this everywhere and without root. The kernel's freezers of cgroups are twice as fast, which gains 2 ms in a slice
of half a second, and were left out.
Source: `benchmarks/freezing.py`: PostgreSQL 18, 8 clients of tpcb-like and their pgbench, 18 processes, 2 CPUs under a load
average of 9, medians (and 95th percentiles) of 300 in milliseconds. Signals: freeze 4.2 (12), thaw 0.3 (4.4). Version 1:
freeze 1.9 (8.7), thaw 0.7 (6.8). Version 2: freeze 1.8 (9.7), thaw 0.5 (5.2).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host.clock import monotonic_s

# A process within a write to a disk stops when the write has ended. One that takes longer hangs.
_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.0002
# Source: proc_pid_stat(5): stopped, stopped by a tracer, dead and not yet reaped.
_STILL = frozenset({"T", "t", "Z", "X"})
# Source: proc_pid_task_tid_children(5): Linux has it where it was built with CONFIG_PROC_CHILDREN.
_OWN_CHILDREN = f"/proc/{os.getpid()}/task/{os.getpid()}/children"


class Freezer:
    """Freezes some trees of processes together. What it has frozen it can thaw, also after an interrupted freeze."""

    def __init__(self) -> None:
        self._stopped: list[int] = []

    @property
    def stopped(self) -> tuple[int, ...]:
        """The processes that it has frozen, some of which may have ended."""
        return tuple(self._stopped)

    def freeze(self, roots: Sequence[int]) -> None:
        """Stop all processes of some trees and return once they stand still. Roots that have ended are left out.

        Args:
            roots: The process ids of the trees' roots, in the order of stopping them.

        Raises:
            HostError: The kernel does not tell the children of a process, or does not let this account stop them.
            StepFailedError: A process does not stop.
        """
        level = list(roots)
        while level:
            for pid in level:
                self._stop(pid)
            for pid in level:
                await_stop(pid)
            level = [child for pid in level for child in _read_children(pid)]

    def thaw(self) -> None:
        """Let everything that was frozen run again, in the reverse order of stopping: roots after their children."""
        for pid in reversed(self._stopped):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def _stop(self, pid: int) -> None:
        # Noted first, so that it is thawed if Ctrl-C comes in between.
        self._stopped.append(pid)
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            pass
        except PermissionError as exc:
            raise HostError(f"cannot stop process {pid}", detail=str(exc)) from exc


def is_stopped(pid: int) -> bool:
    """Return whether a process stands still: it is stopped, or has ended."""
    return _read_state(pid) in _STILL


def await_stop(pid: int) -> None:
    """Return once a process that was told to stop stands still.

    Raises:
        StepFailedError: It does not stop.
    """
    if is_stopped(pid):
        return
    deadline_s = monotonic_s() + _PATIENCE_S
    while not is_stopped(pid):
        if monotonic_s() > deadline_s:
            raise StepFailedError(
                f"process {pid} does not stop within {_PATIENCE_S:g} s",
                detail=f"its state is {_read_state(pid)}",
                hint="the disk may hang",
            )
        time.sleep(_LOOK_EVERY_S)


def _read_state(pid: int) -> str:
    try:
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split(maxsplit=1)[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _read_children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        with os.scandir(f"/proc/{pid}/task") as threads:
            for thread in threads:
                found += map(int, _read(f"{thread.path}/children").split())
    except (FileNotFoundError, ProcessLookupError) as exc:
        if not Path(_OWN_CHILDREN).exists():
            raise HostError(
                "cannot freeze a server: the kernel does not tell the children of a process",
                detail=f"{_OWN_CHILDREN} is missing",
            ) from exc
    return found


def _read(path: str) -> str:
    # Without the layers of open(): it is read for every process at each freeze.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        content = b""
        while chunk := os.read(descriptor, 1 << 16):
            content += chunk
        return content.decode(errors="replace")
    finally:
        os.close(descriptor)

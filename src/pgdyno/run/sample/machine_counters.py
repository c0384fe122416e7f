"""Read counters that are exact at any instant, so that two readings show exactly what happened between them.

PostgreSQL's own cumulative views are not among them: each session reports to those at its own time, a second late or
more. The samplers take samples over a whole trial.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pgdyno.record.samples.os_series import choose_cpus, counts_no_flushes
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql

_SECTOR_BYTES = 512
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Counts = dict[str, float | None]


class MachineCounters:
    """A reader of the counters.

    Args:
        connection: The connection that reads the WAL position; None where no server may be asked.
        block_device: The kernel's name of the data's device; None if there is none.
        is_here: Whether the server runs on this machine.
    """

    def __init__(self, connection: sql.Connection | None, block_device: str | None, *, is_here: bool = True) -> None:
        self._connection = connection
        # As `os_series` does: load on other CPUs does not affect the study.
        self._cpus = os.sched_getaffinity(0) if is_here else None
        self._disk = None if block_device is None else Path("/sys/block", block_device.replace("/", "!"), "stat")

    def read(self) -> tuple[float, Counts]:
        """Read the time, and all counters at that time."""
        wal_bytes = None if self._connection is None else sql.read_wal_bytes(self._connection)
        at_s = monotonic_s()
        cpu_s = None if self._cpus is None else _read_cpu_s(self._cpus)
        return at_s, {"wal_bytes": wal_bytes, "cpu_s": cpu_s, **self._read_disk()}

    def _read_disk(self) -> Counts:
        # Source: Documentation/block/stat.rst of the Linux kernel; flushes are counted since 5.5.
        place = {
            "device_read_count": (0, 1),
            "device_read_bytes": (2, _SECTOR_BYTES),
            "device_write_count": (4, 1),
            "device_write_bytes": (6, _SECTOR_BYTES),
            "device_flush_count": (15, 1),
        }
        fields = [] if self._disk is None or not self._disk.exists() else self._disk.read_text(encoding="ascii").split()
        counts: Counts = {
            name: int(fields[at]) * unit if at < len(fields) else None for name, (at, unit) in place.items()
        }
        if self._disk is not None and counts_no_flushes(self._disk.parent.name):
            counts["device_flush_count"] = counts["device_flush_count"] or None
        return counts


def subtract_counts(after: Counts, before: Counts) -> Counts:
    """Return what happened between two readings; None for a counter that one of them lacks."""
    return {name: _subtract(after[name], value) for name, value in before.items()}


def _subtract(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _read_cpu_s(cpus: set[int]) -> float | None:
    """Read the CPU seconds of the CPUs that the study may use; None if their lines cannot be told."""
    lines = Path("/proc/stat").read_text(encoding="ascii").partition("\nintr")[0].splitlines()
    whole, *each = [line.split() for line in lines]
    by_name = {line[0]: line for line in each}
    own = [by_name[name] for name in choose_cpus(by_name, cpus)]
    if not own:
        return None
    # The kernel cuts ticks off for each line: one line for all CPUs is more exact.
    return sum(map(_count_work, own if len(own) < len(each) else [whole])) / _TICKS_PER_S


def _count_work(line: Sequence[str]) -> int:
    # Source: proc_stat(5): user nice system idle iowait irq softirq steal; guest times are within user.
    user, nice, system, _, _, irq, softirq = map(int, line[1:8])
    return user + nice + system + irq + softirq

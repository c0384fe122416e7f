"""Find what else runs on this machine: CPU time by process, load generators and other PostgreSQL servers.

Only the names of other processes are kept, never their command lines. pgdyno, its descendants and its ancestors are
left out. Processes of other containers are not visible; what they use shows in the machine's totals.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from pgdyno.record.machine.preflight import LAZY_INIT, Activity, BusyProcess, LoadProgram, OtherServer
from pgdyno.run.host.disks import compare_disk_counters, read_disk_counters
from pgdyno.run.host.tree import Tree

_MOST_NAMED = 5
# A process that uses less is background noise on any machine.
_LEAST_CPUS = 0.02
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Source: Linux kernel/kthread.c: the parent of the kernel's own threads; a container does not see it.
_KERNEL_PARENT = "kthreadd"
_POSTGRES = frozenset({"postgres", "postmaster"})
# Programs that load a machine or a database, or read or write whole disks, by the kernel's name (15 bytes).
_LOAD_PROGRAMS = frozenset(
    (
        *("pgbench", "fio", "sysbench", "stress", "stress-ng", "pgreplay", "hammerdbcli", "bonnie++", "iozone", "dd"),
        *("pg_dump", "pg_dumpall", "pg_restore", "pg_basebackup", "pg_test_fsync", "pg_test_timing", "pgbackrest"),
        *("barman", "rsync", "restic", "borg", "fstrim", "e2scrub", "xfs_scrub", "e4defrag", "updatedb", "mkfs.ext4"),
        *("apt-get", "dpkg", "unattended-upgr", "dnf", "yum", "redis-benchmark", "wrk", "k6", LAZY_INIT),
    )
)
# Those of them that also wait all day for work, with the word of their command line that tells. Source: the units
# unattended-upgrades.service and rsync.service of Debian; the manuals of pgBackRest (server) and Barman (receive-wal).
_WAITING = {
    "unattended-upgr": "--wait-for-signal",
    "rsync": "--daemon",
    "pgbackrest": "server",
    "barman": "receive-wal",
}
_PGDYNO_AT_WORK = frozenset({"bench", "run", "resume", "compare", "sweep", "disk"})


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process at one moment."""

    pid: int
    parent: int
    name: str
    start_ticks: int
    cpu_ticks: int
    reaped_ticks: int
    """The CPU ticks of the process's children that have ended."""
    is_at_disk: bool = False
    """Whether it waits for a disk, or for something else that no signal interrupts."""


class ProcSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of all counters that are compared."""

    cpu_ticks: tuple[int, ...]
    """The ticks of all CPUs together: user nice system idle iowait irq softirq steal."""
    cpu_count: int
    processes: dict[int, Process]
    disks: dict[str, list[int]]
    vm: dict[str, int]
    throttled_count: int | None


def take_snapshot(tree: Tree) -> ProcSnapshot:
    """Read the counters now."""
    lines = [line.split() for line in (tree.read("proc/stat") or "").splitlines() if line.startswith("cpu")]
    throttles = [
        tree.read_int(file) for file in tree.glob("sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count")
    ]
    seen = [count for count in throttles if count is not None]
    return ProcSnapshot(
        # Source: proc_stat(5); guest times are within user.
        cpu_ticks=tuple(int(field) for field in lines[0][1:9]) if lines else (),
        cpu_count=max(1, len(lines) - 1),
        processes=read_processes(tree),
        disks=read_disk_counters(tree),
        vm=tree.read_table("proc/vmstat"),
        throttled_count=sum(seen) if seen else None,
    )


def compare_snapshots(
    before: ProcSnapshot, after: ProcSnapshot, *, tree: Tree, own_pid: int | None = None
) -> Activity | None:
    """Return what all processes but `own_pid` and its descendants did between two readings.

    Returns:
        None if no time has passed or no CPU counters are known.
    """
    spent = [now - then for then, now in zip(before.cpu_ticks, after.cpu_ticks, strict=False)]
    total_ticks = sum(spent)
    if total_ticks <= 0:
        return None
    window_s = total_ticks / _TICKS_PER_S / after.cpu_count
    used = _ticks_used(before, after)
    own_pids = frozenset[int]() if own_pid is None else descend(after.processes, own_pid)
    own_ticks = sum(ticks for pid, ticks in used.items() if pid in own_pids) + _reaped(before, after, own_pid)
    idle, stolen = spent[3] + spent[4], spent[7] if len(spent) > 7 else 0
    others = {pid: ticks for pid, ticks in used.items() if pid not in own_pids}
    return Activity(
        window_s=window_s,
        cpu_count=after.cpu_count,
        busy_ratio=max(0, total_ticks - idle - stolen - own_ticks) / total_ticks,
        steal_ratio=stolen / total_ticks,
        busiest=_name_busiest(others, after, tree, window_s=window_s),
        disks=compare_disk_counters(before.disks, after.disks, window_s=window_s),
        swapped_in_pages=_difference(before.vm, after.vm, "pswpin"),
        swapped_out_pages=_difference(before.vm, after.vm, "pswpout"),
        throttled_count=(
            None
            if before.throttled_count is None or after.throttled_count is None
            else after.throttled_count - before.throttled_count
        ),
    )


def steal_ratio(before: ProcSnapshot, after: ProcSnapshot) -> float | None:
    """Return the share of the CPU time asked for that the hypervisor withheld between two readings; None if none was asked for.

    Idle CPUs ask for none: of 64, one that is withheld all the time would be 1.6 % of all CPU time.
    """
    spent = [now - then for then, now in zip(before.cpu_ticks, after.cpu_ticks, strict=False)]
    asked = sum(spent) - sum(spent[3:5])
    return spent[7] / asked if len(spent) > 7 and asked > 0 else None


def read_processes(tree: Tree) -> dict[int, Process]:
    """Read all processes that are visible."""
    found = {}
    for entry in tree.list("proc"):
        if not entry.isdigit():
            continue
        # Source: proc_pid_stat(5): the name may hold blanks and brackets; fields after it begin with the 3rd.
        head, _, rest = (tree.read(f"proc/{entry}/stat") or "").rpartition(")")
        fields = rest.split()
        if len(fields) > 19 and fields[0] not in {"Z", "X"}:
            found[int(entry)] = Process(
                pid=int(entry),
                parent=int(fields[1]),
                name=head.partition("(")[2],
                start_ticks=int(fields[19]),
                cpu_ticks=int(fields[11]) + int(fields[12]),
                reaped_ticks=int(fields[13]) + int(fields[14]),
                is_at_disk=fields[0] == "D",
            )
    return found


def descend(processes: Mapping[int, Process], pid: int) -> frozenset[int]:
    """Return a process and all its descendants."""
    below = {pid}
    while grown := {one.pid for one in processes.values() if one.parent in below} - below:
        below |= grown
    return frozenset(below)


def ascend(processes: Mapping[int, Process], pid: int) -> frozenset[int]:
    """Return a process and all its ancestors."""
    above = {pid}
    process = processes.get(pid)
    while process is not None and process.parent not in above:
        above.add(process.parent)
        process = processes.get(process.parent)
    return frozenset(above)


def find_load_programs(
    before: ProcSnapshot, after: ProcSnapshot, tree: Tree, *, own_pid: int | None = None
) -> tuple[LoadProgram, ...]:
    """Find programs whose purpose is load, and other pgdynos that measure; daemons only if they worked between two readings.

    Args:
        before: The first reading.
        after: The second one.
        tree: The machine.
        own_pid: The present process; it, its descendants and its ancestors are left out.
    """
    processes, used = after.processes, _ticks_used(before, after)
    ours = frozenset[int]() if own_pid is None else descend(processes, own_pid) | ascend(processes, own_pid)
    found = []
    for process in processes.values():
        if process.pid in ours:
            continue
        if process.name in _LOAD_PROGRAMS:
            was = before.processes.get(process.pid, process)
            is_at_work = used[process.pid] or process.is_at_disk or was.is_at_disk
            # A daemon forks a child for each transfer.
            if not is_at_work and _is_daemon(tree, process) and not _is_daemon(tree, processes.get(process.parent)):
                continue
            found.append(LoadProgram(pid=process.pid, name=process.name))
        elif _find_command(tree, process) in _PGDYNO_AT_WORK:
            found.append(LoadProgram(pid=process.pid, name="pgdyno"))
    return tuple(found)


def _is_daemon(tree: Tree, process: Process | None) -> bool:
    return process is not None and _WAITING.get(process.name) in _read_words(tree, process.pid)


def _read_words(tree: Tree, pid: int) -> list[str]:
    return (tree.read(f"proc/{pid}/cmdline") or "").split("\0")


def find_servers(
    processes: Mapping[int, Process], tree: Tree, activity: Activity | None, before: ProcSnapshot, after: ProcSnapshot
) -> tuple[OtherServer, ...]:
    """Find PostgreSQL servers by their postmasters, with the CPU time of all processes of each."""
    used = _ticks_used(before, after)
    window_s = activity.window_s if activity else None
    found = []
    for process in processes.values():
        parent = processes.get(process.parent)
        if process.name not in _POSTGRES or (parent is not None and parent.name in _POSTGRES):
            continue
        family = [one.pid for one in processes.values() if process.pid in {one.pid, one.parent}]
        if len(family) == 1:
            # `postgres --version` and the like: a server is never alone.
            continue
        ticks = sum(used.get(pid, 0) for pid in family)
        found.append(
            OtherServer(
                pid=process.pid,
                data_dir=find_data_dir(tree, process.pid),
                cpu_count=ticks / _TICKS_PER_S / window_s if window_s else None,
                is_of_pgdyno=any(_find_command(tree, processes.get(pid)) for pid in ascend(processes, process.pid)),
            )
        )
    return tuple(found)


def find_data_dir(tree: Tree, pid: int) -> str | None:
    """Return a postmaster's data directory: its current folder, or the argument of -D."""
    with contextlib.suppress(OSError):
        return str(tree.path(f"proc/{pid}/cwd").readlink())
    words = _read_words(tree, pid)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "-D":
            return following or None
        if word.startswith("-D"):
            return word[2:]
    return None


def _find_command(tree: Tree, process: Process | None) -> str | None:
    """Return the command of a process that is a pgdyno; None if it is something else."""
    if process is None or not process.name.startswith(("pgdyno", "python")):
        return None
    words = _read_words(tree, process.pid)
    for place, word in enumerate(words[:4]):
        if PurePath(word).name == "pgdyno" or (word == "pgdyno" and words[place - 1 : place] == ["-m"]):
            return next(iter(words[place + 1 : place + 2]), None)
    return None


def _ticks_used(before: ProcSnapshot, after: ProcSnapshot) -> dict[int, int]:
    """Return the CPU ticks of each process between two readings; all ticks of a process that began in between."""
    used = {}
    for pid, now in after.processes.items():
        then = before.processes.get(pid)
        is_same = then is not None and then.start_ticks == now.start_ticks
        used[pid] = now.cpu_ticks - (then.cpu_ticks if then is not None and is_same else 0)
    return used


def _reaped(before: ProcSnapshot, after: ProcSnapshot, pid: int | None) -> int:
    then, now = before.processes.get(pid or 0), after.processes.get(pid or 0)
    return now.reaped_ticks - then.reaped_ticks if then is not None and now is not None else 0


def _name_busiest(
    used: Mapping[int, int], after: ProcSnapshot, tree: Tree, *, window_s: float
) -> tuple[BusyProcess, ...]:
    busiest = sorted(used.items(), key=lambda item: -item[1])[:_MOST_NAMED]
    return tuple(
        BusyProcess(
            pid=pid,
            name=after.processes[pid].name,
            user=_find_user(tree, pid),
            cpu_count=ticks / _TICKS_PER_S / window_s,
            is_kernel=any(
                above in after.processes and after.processes[above].name == _KERNEL_PARENT
                for above in (pid, after.processes[pid].parent)
            ),
        )
        for pid, ticks in busiest
        if ticks / _TICKS_PER_S / window_s > _LEAST_CPUS
    )


def _find_user(tree: Tree, pid: int) -> str | None:
    for line in (tree.read(f"proc/{pid}/status") or "").splitlines():
        if line.startswith("Uid:"):
            uid = int(line.split()[1])
            try:
                return pwd.getpwuid(uid).pw_name
            except KeyError:
                return str(uid)
    return None


def _difference(before: Mapping[str, int], after: Mapping[str, int], name: str) -> int | None:
    return after[name] - before[name] if name in before and name in after else None

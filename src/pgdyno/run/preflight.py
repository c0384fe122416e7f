"""Gather the facts of a preflight: what happens on a machine now and may disturb a measurement, within two seconds.

Two readings of the counters, a little apart, show what other processes do; slow reads happen between them. Then
PostgreSQL's own program measures the clock, unless it did so for an earlier command. Meanwhile a whole CPU is in use,
which shows how much CPU time the hypervisor withholds. Nothing is changed, nothing needs root, and what cannot be seen is
reported. Nothing here judges.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.record.device.disk_card import ClockTest
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import (
    Activity,
    ClockFacts,
    FurtherDisk,
    PreflightFacts,
    ServerSnapshot,
    Unseen,
)
from pgdyno.run.device.clock_test import time_clock
from pgdyno.run.host.cgroup import read_limits
from pgdyno.run.host.clock import local_now, monotonic_s
from pgdyno.run.host.disks import read_arrays, read_devices
from pgdyno.run.host.facts import read_disk_facts, read_host_facts
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.processes import (
    ProcSnapshot,
    compare_snapshots,
    find_load_programs,
    find_servers,
    steal_ratio,
    take_snapshot,
)
from pgdyno.run.host.state import (
    read_clock,
    read_cpu,
    read_is_on_battery,
    read_memory,
    read_process_limits,
)
from pgdyno.run.host.timers import read_timers
from pgdyno.run.host.tree import ROOT, Tree

# The kernel counts CPU time in hundredths of a second: over this long, one of them is 2.5 % of a CPU.
_LOOK_S = 0.4
_T = TypeVar("_T")


class VariantFolder(msgspec.Struct, frozen=True, kw_only=True):
    """An existing folder in which variants have their data or their WAL, where it is not that of the reference."""

    variants: tuple[str, ...]
    content: str
    """`data` or `WAL`."""
    path: Path


class PreflightSubject(msgspec.Struct, frozen=True, kw_only=True):
    """The server, data and folders that a preflight is about.

    Attributes:
        data_dir: An existing folder that holds the data, or will hold them.
        wal_dir: The folder of pg_wal.
        further: The folders of variants that have places of their own.
        home: pgdyno's home, to see whether another pgdyno is working in it.
        bindir: The folder of the programs that measure the clock.
        program_user: The account to run them as; None: the present one.
        clock_file: The file that keeps the test of the clock while the machine is up; None: it is run anew.
        server: The facts of the server that were read before.
    """

    data_dir: Path
    wal_dir: Path
    further: tuple[VariantFolder, ...] = ()
    home: Path | None = None
    bindir: Path | None = None
    program_user: ServerUser | None = None
    clock_file: Path | None = None
    server: ServerSnapshot | None = None


def watch_machine(look: Callable[[], _T]) -> tuple[_T, Activity | None]:
    """Return what a look at something else returns, and what other processes did on this machine meanwhile."""
    tree = Tree()
    before = take_snapshot(tree)
    found = look()
    return found, compare_snapshots(before, take_snapshot(tree), tree=tree, own_pid=os.getpid())


def read_preflight(
    subject: PreflightSubject, *, root: Path = ROOT, later: Path | None = None, now: datetime | None = None
) -> tuple[HostFacts, PreflightFacts, ClockTest | None]:
    """Read the machine as it is, what it does at this moment, and its clock as PostgreSQL's own program measured it.

    Args:
        subject: The subject of the preflight.
        root: `/`, or the folder of captured files.
        later: That of the second look, where the machine was captured twice; None: the same.
        now: The wall-clock time in the time zone of cron, for a tree that was captured at another time.

    Raises:
        HostError: /proc is not mounted.
    """
    began_s = monotonic_s()
    tree, later_tree = Tree(root), Tree(later or root)
    own_pid = os.getpid() if tree.is_live else None
    before = take_snapshot(tree)
    host_facts = read_host_facts(subject.data_dir, root=root)
    unseen: list[Unseen] = []
    timers, unseen_timers = read_timers(
        tree, process_names={one.name for one in before.processes.values()}, now=now or local_now()
    )
    memory, cpu, arrays, limits = read_memory(tree), read_cpu(tree), read_arrays(tree), read_limits(tree)
    devices = read_devices(tree, filter(None, [host_facts.data_disk.block_device]))
    wal = read_disk_facts(subject.wal_dir, root=root)
    further = _read_further(subject.further, (host_facts.data_disk, wal), tree)
    if tree.is_live:
        time.sleep(max(0.0, _LOOK_S - (monotonic_s() - began_s)))
    after = take_snapshot(later_tree)
    activity = compare_snapshots(before, after, tree=later_tree, own_pid=own_pid)
    clock_test, clock = _time_clock(subject, tree, before, unseen)
    facts = PreflightFacts(
        took_s=monotonic_s() - began_s,
        activity=activity,
        clock=clock,
        cpu=cpu,
        memory=memory,
        arrays=arrays,
        devices=devices,
        wal=wal,
        wal_devices=read_devices(tree, filter(None, [wal.block_device])),
        inodes_free_ratio=_read_inodes(subject.data_dir),
        further=further,
        home_holder_pid=_find_holder(subject.home, tree),
        limits=limits,
        process_limits=read_process_limits(tree),
        timers=timers,
        load_programs=find_load_programs(before, after, later_tree, own_pid=own_pid),
        servers=find_servers(after.processes, later_tree, activity, before, after),
        is_on_battery=read_is_on_battery(tree),
        server=subject.server,
        unseen=(
            *unseen,
            *unseen_timers,
            *_list_hidden(tree, before),
            *_list_refused(tree, later_tree),
            *_list_without_device(host_facts.data_disk, wal),
        ),
    )
    busy_ratio = activity.busy_ratio if activity else None
    return msgspec.structs.replace(host_facts, cpu_busy_before_ratio=busy_ratio), facts, clock_test


def _time_clock(
    subject: PreflightSubject, tree: Tree, before: ProcSnapshot, unseen: list[Unseen]
) -> tuple[ClockTest | None, ClockFacts]:
    """Read the clock's state and time it; a test that runs now also shows the CPU time stolen since the first reading."""
    clock = read_clock(tree)
    if not tree.is_live:
        return None, clock
    what = "what reading the clock costs (pg_test_timing)"
    if subject.bindir is None:
        unseen.append(Unseen(what=what, reason="no PostgreSQL was named"))
        return None, clock
    try:
        timed = time_clock(subject.bindir, source=clock.source, user=subject.program_user, kept_in=subject.clock_file)
    except PgdynoError as error:
        unseen.append(Unseen(what=what, reason=error.reason))
        return None, clock
    stolen_ratio = None if timed.is_kept else steal_ratio(before, take_snapshot(tree))
    return timed.test, msgspec.structs.replace(
        clock, read_ns=timed.read_ns, is_read_ns_kept=timed.is_kept, steal_ratio=stolen_ratio
    )


def _read_further(folders: Sequence[VariantFolder], known: Sequence[DiskFacts], tree: Tree) -> tuple[FurtherDisk, ...]:
    """Read the disks of variants' folders, each once, without those that are known."""
    seen = {_identify_disk(disk) for disk in known}
    found: dict[tuple[object, ...], FurtherDisk] = {}
    for folder in folders:
        disk = read_disk_facts(folder.path, root=tree.root)
        key = (_identify_disk(disk), folder.content)
        if key in found:
            variants = dict.fromkeys((*found[key].variants, *folder.variants))
            found[key] = msgspec.structs.replace(found[key], variants=tuple(variants))
        elif key[0] not in seen:
            seen.add(key[0])
            found[key] = FurtherDisk(
                variants=folder.variants,
                content=folder.content,
                disk=disk,
                devices=read_devices(tree, filter(None, [disk.block_device])),
                inodes_free_ratio=_read_inodes(folder.path),
            )
    return tuple(found.values())


def _identify_disk(disk: DiskFacts) -> tuple[object, ...]:
    # File systems in memory have one name for a device.
    return disk.device, disk.filesystem, disk.size_bytes, disk.mount_options


def _read_inodes(path: Path) -> float | None:
    usage = os.statvfs(path)
    return usage.f_favail / usage.f_files if usage.f_files else None


def _find_holder(home: Path | None, tree: Tree) -> int | None:
    """Find the pid of another process that holds a home's lock; 0 if that process is not visible from here.

    The lock itself is not touched.
    """
    try:
        status = (home / "lock").stat() if home is not None else None
    except OSError:
        return None
    if status is None:
        return None
    # Source: proc_locks(5): `1: FLOCK ADVISORY WRITE 4711 fe:00:1234 0 EOF`.
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in (tree.read("proc/locks") or "").splitlines():
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5:6] == [place] and words[4] != str(os.getpid()):
            return max(0, int(words[4]))
    return None


def _list_without_device(*disks: DiskFacts) -> Iterator[Unseen]:
    """Report disks that the kernel names no device of, such as a pool of ZFS: its counters and limits are by device."""
    for disk in {_identify_disk(one): one for one in reversed(disks)}.values():
        if disk.is_known and disk.block_device is None and not disk.is_in_memory:
            what = f"what other programs do on the disk of {disk.path}, and which limits it has"
            yield Unseen(what=what, reason=f"no block device is known below {disk.filesystem}")


def _list_hidden(tree: Tree, snapshot: ProcSnapshot) -> Iterator[Unseen]:
    """Report processes that /proc does not show.

    Source: proc(5), hidepid; kthreadd is the second process of every host.
    """
    mounts = [line for line in (tree.read("proc/self/mountinfo") or "").splitlines() if " - proc " in line]
    is_root = tree.is_live and os.geteuid() == 0
    if not is_root and any("hidepid=" in line and "hidepid=0" not in line for line in mounts):
        yield Unseen(what="processes of other accounts", reason="/proc is mounted with hidepid")
    if 2 not in snapshot.processes or snapshot.processes[2].name != "kthreadd":
        yield Unseen(what="processes and timers of the host", reason="this is a container, with processes of its own")


def _list_refused(*trees: Tree) -> Iterator[Unseen]:
    refused = {path: reason for tree in trees for path, reason in tree.refused.items()}
    # The reader of timers reports this one.
    refused.pop("/var/spool/cron/crontabs", None)
    for path, reason in refused.items():
        # Left out: files of processes that end during the reading, and files that the device itself refuses to have
        # read.
        if not path.startswith("/proc/") or path.count("/") < 3:
            yield Unseen(what=path, reason=reason)

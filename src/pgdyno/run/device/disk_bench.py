"""Measure a storage path by a plan: lay out a file, run fio's jobs by rounds, then PostgreSQL's own programs.

What fails is left out and reported; the rest goes on. Beside each run the device's total traffic is read, because a
disk that other programs use does not show its own figures. Nothing is kept in memory but the figures, and the file is
always removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.plan.disk import FIO_START_S, FLUSH_TESTS, FULL_CPU_RATIO, DiskJob, DiskPlan, split_job
from pgdyno.record.device.disk_card import ClockTest, FlushTest, JobRun
from pgdyno.record.device.fio import FioReport
from pgdyno.record.machine.preflight import Unseen
from pgdyno.run.device.fio import QUEUEING, Fio, can_run, lay_out, run_job
from pgdyno.run.device.pg_tests import run_clock_test, run_flush_tests
from pgdyno.run.device.scratch import Scratch, open_scratch
from pgdyno.run.host.clock import local_now, monotonic_s
from pgdyno.run.host.disks import (
    compare_disk_counters,
    find_members,
    find_siblings,
    read_devices,
    read_disk_counters,
    read_sync_bytes_per_s,
)
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.process import ServerUser
from pgdyno.run.host.processes import find_servers, take_snapshot
from pgdyno.run.host.tree import ROOT, Tree
from pgdyno.units import format_bytes

# In a smaller file the same few blocks would be read and written over and over.
_LEAST_LAID_OUT_BYTES = 16 * 2**20
# A run that only finds how many processes of fio a job needs is not longer.
_PROBE_S = 1.0


class DiskMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """All results of measuring a path."""

    file_bytes: int | None
    """The size of the test file; None if there was none."""
    runs: tuple[JobRun, ...]
    flush_tests: tuple[FlushTest, ...]
    clock: ClockTest | None
    unseen: tuple[Unseen, ...]
    tools: dict[str, str]
    """The version of each tool by name."""
    neighbours: tuple[str, ...]
    """The data directories of servers that run on the same disks."""


class DiskTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools to measure with; what a missing tool would measure is left out and reported."""

    fio: Fio | None
    bindir: Path | None
    """The folder of the server's programs, of which pg_test_fsync and pg_test_timing are run."""
    user: ServerUser | None = None
    """The account to run them as; None: the present one."""


def measure_disk(
    path: Path,
    plan: DiskPlan,
    tools: DiskTools,
    *,
    clock: ClockTest | None = None,
    on_step: Callable[[str, float], None] = lambda _title, _predicted_s: None,
    on_activity: Callable[[str], None] = lambda _text: None,
) -> DiskMeasurement:
    """Carry out a plan. Call this from the main thread.

    Args:
        path: An existing folder on the disk.
        plan: The measurements to make.
        tools: The tools to measure with.
        clock: The test of the clock, if it was run before; None: run it.
        on_step: Called with the title and the expected seconds of each step.
        on_activity: Called with a description of what a step does now.

    Raises:
        HostError: The folder cannot be used.
        StepFailedError: The file cannot be laid out.
    """
    with open_scratch(path, plan.file_bytes, user=tools.user) as scratch:
        bench = _Bench(path, plan, tools, on_step, on_activity)
        runs = bench.run_rounds(scratch)
        flush_tests = bench.run_flush_tests(scratch)
    clock = clock or bench.run_clock_test()
    return DiskMeasurement(
        file_bytes=bench.file_bytes,
        runs=runs,
        flush_tests=flush_tests,
        clock=clock,
        unseen=tuple(bench.unseen),
        tools={"fio": tools.fio.version.removeprefix("fio-")} if tools.fio else {},
        neighbours=tuple(find_neighbours(path)),
    )


class _Bench:
    """A measurement in progress."""

    def __init__(
        self,
        path: Path,
        plan: DiskPlan,
        tools: DiskTools,
        on_step: Callable[[str, float], None],
        on_activity: Callable[[str], None],
    ) -> None:
        self._plan, self._tools = plan, tools
        self._on_step, self._on_activity = on_step, on_activity
        self._tree = Tree()
        self._facts = read_disk_facts(path)
        self._devices = read_devices(self._tree, filter(None, [self._facts.block_device]))
        self._siblings = find_siblings(self._tree, self._devices)
        self.file_bytes: int | None = None
        self.unseen: list[Unseen] = []

    def run_rounds(self, scratch: Scratch) -> tuple[JobRun, ...]:
        """Run every job of every round, and leave out those that cannot run or fail."""
        fio, plan = self._tools.fio, self._plan
        if fio is None or not plan.rounds:
            self._miss("all that fio measures", "fio is missing" if fio is None else "it was not asked for")
            return ()
        self._say_limits(fio, scratch)
        self.file_bytes = self._lay_out(fio, scratch)
        runs: list[JobRun] = []
        settled: dict[DiskJob, DiskJob] = {}
        for number, jobs in enumerate(plan.rounds):
            possible = [job for job in jobs if can_run(fio, job, scratch)]
            seconds = sum(job.runtime_s + FIO_START_S for job in possible)
            self._on_step(f"fio, round {number + 1} of {len(plan.rounds)}", seconds)
            for place, job in enumerate(possible):
                what = f"{job.pattern.value}, {format_bytes(job.block_bytes)}, depth {job.depth}"
                self._on_activity(what)
                seed = plan.seed + number * len(jobs) + place
                with self._missing(f"a run of {what}"):
                    run = self._run_once(fio, scratch, settled.get(job, job), number, seed)
                    if job not in settled:
                        settled[job] = self._find_processes(fio, scratch, run, seed)
                        if settled[job] != job:
                            run = self._run_once(fio, scratch, settled[job], number, seed)
                    runs.append(run)
        return tuple(runs)

    def _find_processes(self, fio: Fio, scratch: Scratch, run: JobRun, seed: int) -> DiskJob:
        """Return the job of a run with as many processes of fio as leave the limit to the disk, if the CPUs allow it."""
        job, cpu_ratio = run.job, run.cpu_ratio
        while cpu_ratio > FULL_CPU_RATIO:
            more = split_job(job, most_processes=self._plan.most_processes)
            if more is None:
                break
            job = more
            probe = msgspec.structs.replace(job, runtime_s=min(job.runtime_s, _PROBE_S))
            cpu_ratio = self._run_once(fio, scratch, probe, run.round, seed).cpu_ratio
        return job

    def _say_limits(self, fio: Fio, scratch: Scratch) -> None:
        if not fio.is_known:
            self._miss(
                "whether pgdyno reads this fio's output correctly",
                f"{fio.version} is newer than the versions that pgdyno knows",
            )
        if not scratch.takes_direct:
            filesystem = self._facts.filesystem
            reason = "ZFS before 2.3 has them in its own cache" if filesystem == "zfs" else f"{filesystem} refuses them"
            self._miss("reads and writes past the page cache (O_DIRECT): all patterns but WAL", reason)
        if fio.queueing is None:
            self._miss("more than one I/O at once", f"this fio has none of the engines {', '.join(QUEUEING)}")

    def _lay_out(self, fio: Fio, scratch: Scratch) -> int:
        plan = self._plan
        self._on_step("laying out the test file", plan.expected_fill_s)
        self._on_activity(f"{format_bytes(plan.file_bytes)} in {scratch.folder}")
        written_bytes = lay_out(
            fio, scratch, plan.file_bytes, seed=plan.seed, most_s=plan.fill_s, user=self._tools.user
        )
        if written_bytes < _LEAST_LAID_OUT_BYTES:
            raise StepFailedError(
                f"{scratch.folder} is too slow to be measured",
                detail=f"{format_bytes(written_bytes)} were written in {plan.fill_s:.0f} s",
            )
        if written_bytes < plan.file_bytes:
            reason = f"only {format_bytes(written_bytes)} were written in {plan.fill_s:.0f} s"
            self._miss(f"a test file of {format_bytes(plan.file_bytes)}", reason)
        return written_bytes

    def _run_once(self, fio: Fio, scratch: Scratch, job: DiskJob, number: int, seed: int) -> JobRun:
        began_at, began_s = local_now().astimezone(dt.UTC), monotonic_s()
        before = read_disk_counters(self._tree)
        report = run_job(fio, job, scratch, self.file_bytes or 0, seed=seed, user=self._tools.user)
        after = read_disk_counters(self._tree)
        return JobRun(
            job=job,
            round=number,
            began_at=began_at,
            runtime_s=report.runtime_s,
            read=report.read,
            write=report.write,
            flush=report.flush,
            spans=report.spans,
            others_bytes_per_s=self._count_others(before, after, report, window_s=monotonic_s() - began_s),
            cpu_ratio=report.cpu_ratio,
        )

    def _count_others(
        self, before: dict[str, list[int]], after: dict[str, list[int]], report: FioReport, *, window_s: float
    ) -> float | None:
        """Return the bytes per second that the disks moved beside the run.

        What other volumes on the same disks moved is read from those volumes: the disks' own counters have each write to
        a mirror twice. The file system's own writes count, too, and are few.
        """
        device = self._facts.block_device
        if device not in after:
            return None
        moved = {
            one.device: one.read_bytes_per_s + one.written_bytes_per_s
            for one in compare_disk_counters(before, after, window_s=window_s)
        }
        beside = max(0.0, moved.get(device, 0.0) - report.moved_bytes / window_s)
        others = sum(moved.get(name, 0.0) for name in self._siblings)
        return beside + others + read_sync_bytes_per_s(self._tree, self._devices)

    def run_flush_tests(self, scratch: Scratch) -> tuple[FlushTest, ...]:
        """Run PostgreSQL's own test of flushes."""
        what, test_s = "the methods of flushing (pg_test_fsync)", self._plan.flush_test_s
        bindir = self._tools.bindir
        if not test_s or bindir is None:
            self._miss(what, "no PostgreSQL was named" if bindir is None else "it was left out to save time")
            return ()
        self._on_step("pg_test_fsync", test_s * FLUSH_TESTS)
        with self._missing(what):
            return run_flush_tests(bindir, scratch, test_s=test_s, user=self._tools.user)
        return ()

    def run_clock_test(self) -> ClockTest | None:
        """Run PostgreSQL's own test of the clock."""
        what, bindir = "what reading the clock costs (pg_test_timing)", self._tools.bindir
        if bindir is None:
            self._miss(what, "no PostgreSQL was named")
            return None
        self._on_step("pg_test_timing", self._plan.clock_test_s)
        with self._missing(what):
            return run_clock_test(bindir, test_s=self._plan.clock_test_s, user=self._tools.user)
        return None

    @contextlib.contextmanager
    def _missing(self, what: str) -> Iterator[None]:
        """Continue without a measurement that fails, and report it."""
        try:
            yield
        except PgdynoError as error:
            self._miss(what, error.reason)

    def _miss(self, what: str, reason: str) -> None:
        if (missed := Unseen(what=what, reason=reason)) not in self.unseen:
            self.unseen.append(missed)


def find_neighbours(path: Path) -> Iterator[str]:
    """Find the data directories of running servers that have data or WAL on a disk of a path."""
    tree = Tree()
    snapshot = take_snapshot(tree)
    disks = name_disks(path)
    for server in find_servers(snapshot.processes, tree, None, snapshot, snapshot):
        folders = [Path(server.data_dir, name) for name in ("", "pg_wal")] if server.data_dir is not None else []
        # A directory of another account may be closed to this one, and a server may end meanwhile.
        with contextlib.suppress(OSError):
            if any(disks & name_disks(folder) for folder in folders):
                yield str(folders[0])


def name_disks(path: Path, *, root: Path = ROOT) -> set[str]:
    """Return the names of the whole devices below a path; the mounted source if there are none.

    Partitions and logical volumes of a disk share its speed.
    """
    facts = read_disk_facts(path, root=root)
    tree = Tree(root)
    members = find_members(tree, facts.filesystem, facts.device)
    devices = read_devices(tree, [*filter(None, [facts.block_device]), *members])
    return {device.name for device in devices} or {facts.shown_device}

"""Causes to plant on this machine, and loads to plant none in: what `causes` runs.

Each plant is a context that slows one thing down for this process and what it starts, and undoes that however it ends.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.run.change.kernel import changed_sysctls

CGROUP = Path("/sys/fs/cgroup")
MB = 1024**2
LOOP_BYTES = 4000 * MB
CACHE_BYTES = 160 * MB
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void nap(void) {
    const char *us = getenv("SLOW_FLUSH_US");
    long n = us ? atol(us) : 0;
    struct timespec t = {n / 1000000, n % 1000000 * 1000};
    if (n) nanosleep(&t, NULL);
}
int fdatasync(int fd) { nap(); return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd); }
int fsync(int fd) { nap(); return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(fd); }
"""
HOT_ROW = "UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;\n"
THINKING = (
    "\\set aid random(1, 100000 * :scale)\n\\sleep {us} us\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
)
OF_DISK = frozenset({Resource.WAL_FLUSH, Resource.DATA_WRITE})


class Place(NamedTuple):
    """Where a case runs: a home on the disk that is measured, and a folder for what else is needed."""

    home: Path
    folder: Path


Plant = Callable[[Place, random.Random], contextlib.AbstractContextManager[None]]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A trial whose answer is known; `study` holds what differs from the common one."""

    name: str
    right: frozenset[Resource]
    study: dict[str, Any]
    plant: Plant | None = None
    on_loop: bool = False
    starves: float = 0.0
    """The part of a CPU that pgbench gets; 0: as it is."""
    is_quiet: bool = False


@contextlib.contextmanager
def group(controller: str, **limits: str | int) -> Iterator[Path]:
    """This process and its children in a control group of version 1 with these limits."""
    home = next(
        line.split(":", 2)[2]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if controller in line.split(":")[1].split(",")
    )
    folder = CGROUP / controller / f"pgdyno-causes-{os.getpid()}"
    folder.mkdir()
    try:
        for name, limit in limits.items():
            (folder / f"{controller}.{name}").write_text(str(limit))
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        yield folder
    finally:
        back = CGROUP / controller / home.lstrip("/") / "cgroup.procs"
        # Where a container hides its own group, the root is where it looked from.
        back = back if back.exists() else CGROUP / controller / "cgroup.procs"
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                back.write_text(pid)
        folder.rmdir()


class Starving:
    """Gives pgbench alone a part of a CPU, from when it is first seen to run."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._folder = CGROUP / "cpu" / f"pgdyno-starving-{os.getpid()}"
        self._caught: set[str] = set()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        (self._folder / "cpu.cfs_quota_us").write_text(str(round(self._share * 100_000)))
        return self

    def catch(self) -> None:
        """Put this process's pgbench into the group."""
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        for pid in set(children) - self._caught:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "pgbench":
                    (self._folder / "cgroup.procs").write_text(pid)
                    self._caught.add(pid)

    def __exit__(self, *_: object) -> None:
        for pid in (self._folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (CGROUP / "cpu" / "cgroup.procs").write_text(pid)
        self._folder.rmdir()


@contextlib.contextmanager
def slow_flush(place: Place, draw: random.Random) -> Iterator[None]:
    source, library = place.folder / "slow_flush.c", place.folder / "slow_flush.so"
    source.write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    os.environ.update(LD_PRELOAD=str(library), SLOW_FLUSH_US=str(draw.randrange(3000, 8000)))
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["SLOW_FLUSH_US"]


@contextlib.contextmanager
def cpu_quota(place: Place, draw: random.Random) -> Iterator[None]:
    del place
    with group("cpu", cfs_quota_us=draw.randrange(20_000, 50_000)):
        yield


def throttle(**limits: tuple[int, int]) -> Plant:
    """A plant that lets the home's device do between so many and so many a second, by the kernel's names."""

    @contextlib.contextmanager
    def plant(place: Place, draw: random.Random) -> Iterator[None]:
        number = place.home.stat().st_dev
        chosen = {
            f"throttle.{name}_device": f"{os.major(number)}:{os.minor(number)} {draw.randrange(*limit)}"
            for name, limit in limits.items()
        }
        with group("blkio", **chosen):
            yield

    return plant


@contextlib.contextmanager
def slow_reads(place: Place, draw: random.Random) -> Iterator[None]:
    # What is cached already belongs to no group, and stays.
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")
    with group("memory", limit_in_bytes=CACHE_BYTES), throttle(read_iops=(300, 800))(place, draw):
        yield


def dirty_thresholds(*, background_mb: int, foreground_mb: int) -> Plant:
    """The kernel's own thresholds, journalled and put back, on a disk that lets few bytes through."""

    @contextlib.contextmanager
    def plant(place: Place, draw: random.Random) -> Iterator[None]:
        changed = {"vm.dirty_background_bytes": background_mb * MB, "vm.dirty_bytes": foreground_mb * MB}
        slow_disk = throttle(write_bps=(8 * MB, 16 * MB))(place, draw)
        with changed_sysctls({name: str(value) for name, value in changed.items()}), slow_disk:
            yield

    return plant


def plant_cases(draw: random.Random) -> list[Case]:
    """One case of each cause, drawn anew."""
    tpcb = {"name": "tpcb-like", "mode": "prepared", "clients": draw.choice([8, 12, 16])}
    small = {"max_wal_size": "32MB", "min_wal_size": "32MB", "checkpoint_timeout": "30s"}
    reading = {"name": "select-only", "mode": "prepared", "clients": draw.choice([4, 8, 16])}
    return [
        Case(name="slow flush", right=frozenset({Resource.WAL_FLUSH}), study={"workload": [tpcb]}, plant=slow_flush),
        Case(
            name="throttled disk",
            right=OF_DISK,
            study={"workload": [tpcb]},
            plant=throttle(write_iops=(100, 250)),
            on_loop=True,
        ),
        Case(
            name="CPU quota",
            right=frozenset({Resource.CPU}),
            study={"workload": [draw.choice([tpcb, reading])]},
            plant=cpu_quota,
        ),
        Case(
            name="tiny buffers",
            right=frozenset({Resource.DATA_READ}),
            study={"workload": [reading], "server": {"settings": {"shared_buffers": "16MB"}}},
            plant=slow_reads,
            on_loop=True,
        ),
        Case(
            name="hot row",
            right=frozenset({Resource.LOCK}),
            study={"workload": [{**tpcb, "name": "hot row", "scripts": ["hot_row.sql"]}]},
        ),
        Case(
            name="scale 1",
            right=frozenset({Resource.LOCK}),
            study={"workload": [{**tpcb, "clients": draw.choice([16, 24, 32])}], "data": {"scale": 1}},
        ),
        Case(
            name="starved load",
            right=frozenset({Resource.LOAD_GENERATOR}),
            study={"workload": [{**reading, "threads": 1}]},
            starves=draw.uniform(0.01, 0.015),
        ),
        Case(
            name="thinking clients",
            right=frozenset({Resource.CLIENT}),
            study={"workload": [{**reading, "name": "thinking", "scripts": [f"thinking-{draw.choice([10, 20])}.sql"]}]},
        ),
        Case(
            name="checkpoint storm",
            right=frozenset({Resource.DATA_WRITE}),
            study={"workload": [tpcb], "server": {"settings": small}},
            plant=throttle(write_bps=(8 * MB, 16 * MB)),
            on_loop=True,
        ),
        *(
            Case(
                name=f"{when} dirty thresholds",
                right=OF_DISK,
                study={"workload": [tpcb], "server": {"settings": small}},
                plant=dirty_thresholds(background_mb=background_mb, foreground_mb=foreground_mb),
                on_loop=True,
            )
            for when, background_mb, foreground_mb in (("early", 1, 2), ("late", 4096, 8192))
        ),
    ]


def draw_quiet(draw: random.Random) -> Case:
    """A load of which nothing is wrong."""
    workload, mode = draw.choice(["tpcb-like", "simple-update", "select-only"]), draw.choice(["simple", "prepared"])
    return quiet_case({"name": workload, "mode": mode, "clients": draw.choice([1, 2, 4, 8, 16])})


def quiet_case(workload: dict[str, Any]) -> Case:
    """A load, and what the machine may show of it: flushes where it writes, pgbench where it is half of all work."""
    other = Resource.LOAD_GENERATOR if workload["name"] == "select-only" else Resource.WAL_FLUSH
    return Case(name="quiet", right=frozenset({Resource.CPU, other}), study={"workload": [workload]}, is_quiet=True)


@contextlib.contextmanager
def open_folder(kept: Path | None) -> Iterator[Path]:
    """Where records go and data are loaded, with the cases' own scripts; without `kept` it is gone afterwards."""
    folder = kept or Path(tempfile.mkdtemp(prefix="pgdyno-causes-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "hot_row.sql").write_text(HOT_ROW)
    for ms in (10, 20):
        (folder / f"thinking-{ms}.sql").write_text(THINKING.format(us=ms * 1000))
    try:
        yield folder
    finally:
        for name in ("memory", "disk") if kept else (".",):
            shutil.rmtree(folder / name, ignore_errors=True)


@contextlib.contextmanager
def mounted_loop(folder: Path) -> Iterator[Path]:
    """A file in memory as a disk with ext4: limits of control groups hold for it alone."""
    memory, disk = folder / "memory", folder / "disk"
    memory.mkdir()
    disk.mkdir()
    with contextlib.ExitStack() as stack:
        call("mount", "-t", "tmpfs", "-o", f"size={LOOP_BYTES + MB}", "none", memory)
        stack.callback(call, "umount", "--lazy", memory)
        image = memory / "disk.img"
        with image.open("wb") as file:
            # Memory is taken as it is written: about a third of that.
            file.truncate(LOOP_BYTES)
        device = call("losetup", "--find", "--show", image)
        stack.callback(call, "losetup", "--detach", device)
        call("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
        call("mount", device, disk)
        stack.callback(call, "umount", "--lazy", disk)
        disk.chmod(0o755)
        yield disk


def call(*argv: str | Path) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def may_plant(case: Case, *, changes_kernel: bool) -> bool:
    """Whether this machine, and who called, let it be planted."""
    if "dirty" in case.name and not changes_kernel:
        return False
    is_root = os.geteuid() == 0
    needs = {
        "slow flush": shutil.which("gcc") is not None,
        "CPU quota": is_root and (CGROUP / "cpu/cpu.cfs_quota_us").parent.joinpath("cgroup.procs").exists(),
        "starved load": is_root and (CGROUP / "cpu/cgroup.procs").exists(),
        "tiny buffers": is_root and (CGROUP / "blkio/cgroup.procs").exists() and (CGROUP / "memory").exists(),
    }
    return needs.get(case.name, not case.on_loop or (is_root and (CGROUP / "blkio/cgroup.procs").exists()))

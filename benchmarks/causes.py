"""What limits a load, where it is known: planted causes on a real server, and loads of which nothing is wrong.

Each case is one short trial through the product's own run path, with a cause planted beside it or in what it asks for:

  slow flush        each flush takes some milliseconds longer (a preloaded shim; needs gcc)
  throttled disk    a loop device whose control group lets few writes through (blkio of cgroup v1, root)
  CPU quota         a control group with a part of one CPU (cpu of cgroup v1, root)
  tiny buffers      shared_buffers of 16 MB, the kernel's cache limited and few reads a second (blkio, memory, root)
  hot row           a script of one's own that has all clients update one row
  scale 1           tpcb-like at scale 1 with many clients
  starved load      pgbench alone in a control group with a part of one CPU (cpu, root)
  thinking clients  a script whose clients sleep between transactions
  checkpoint storm  max_wal_size so small that checkpoints follow each other, on a slow disk (blkio, root)
  dirty thresholds  vm.dirty_bytes very early, and very late: only with --kernel, because they are the whole machine's

Quiet cases draw load, mode and clients at random. What limits them is the machine: CPU, or flushes where they write. A
case is right when the first resource named is one that was planted; 'unknown' counts apart. A verdict on a quiet case
is false when it names anything but what such a load may show.

Usage: python benchmarks/causes.py [--quick] [--cases N] [--quiet N] [--only NAME ...] [--keep DIR] [--cpu N] [--kernel]
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from figures import find_wilson, say

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.time_share import Bottleneck, Resource
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.errors import PgdynoError
from pgdyno.flow.study import machine_of
from pgdyno.plan.plan import plan_study
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import FORMAT_VERSION, HostFacts, StudyRecord
from pgdyno.run.home import Home, open_home
from pgdyno.run.host import read_host_facts
from pgdyno.run.installation import find_installation
from pgdyno.run.kernel import changed_sysctls
from pgdyno.run.process import find_server_user
from pgdyno.run.template import prepare_template
from pgdyno.run.trial import TrialStage, run_trial
from pgdyno.spec.read import format_study, make_study

CGROUP = Path("/sys/fs/cgroup")
MB = 1024**2
DURATION_S, QUICK_DURATION_S = 15, 6
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
OF_LOAD = frozenset({Resource.CPU, Resource.LOAD_GENERATOR})

Plant = Callable[["Bench", random.Random], contextlib.AbstractContextManager[None]]


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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a case."""

    case: str
    words: str
    named: Resource | None
    is_right: bool
    is_quiet: bool
    said: str


class Bench:
    """A home on a disk, the machine, and where records go."""

    def __init__(self, home: Home, folder: Path) -> None:
        self.home = home
        self.host: HostFacts = read_host_facts(home.root)
        self.folder = folder

    def run(self, case: Case, seed: int, seconds: float) -> tuple[RecordStore, StudyRecord]:
        """Run a case's trial into a record of its own."""
        study = make_study(compose(case, seed, seconds), source=case.name, folder=self.folder)
        installation = find_installation(study.server, user=self.home.user, software_dir=self.home.software)
        machine = machine_of(
            self.host, version_major=installation.facts.major, scales=frozenset({study.data.scale or 1})
        )
        plan = plan_study(study, machine)
        store = RecordStore(self.folder / f"{case.name.replace(' ', '-')}-{seed}")
        shutil.rmtree(store.path, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as outputs:
            template = prepare_template(
                installation=installation,
                home=self.home,
                data=study.data,
                scale=plan.scale,
                settings={},
                output_dir=Path(outputs),
                on_activity=lambda _: None,
            )
        record = StudyRecord(
            format_version=FORMAT_VERSION,
            name=case.name,
            started_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            command=("pgdyno",),
            tool_versions={},
            study=study,
            plan=plan,
            host=read_host_facts(self.home.root),
            server=installation.facts,
            dataset=template.dataset,
        )
        store.create(record, study_toml=format_study(study))
        stage = TrialStage(
            installation=installation,
            home=self.home,
            template=template,
            study=study,
            plan=plan,
            settings=study.server.settings,
            cpu_count=self.host.usable_cpu_count,
            scripts=store.keep_scripts(plan),
        )
        (trial,) = plan.trials
        with contextlib.ExitStack() as stack:
            if case.plant is not None:
                stack.enter_context(case.plant(self, random.Random(f"{case.name} {seed}")))
            starving = stack.enter_context(Starving(case.starves)) if case.starves else None
            done = run_trial(
                stage,
                trial,
                folder=store.begin_trial(1),
                on_activity=lambda _: None,
                on_load=lambda _: starving.catch() if starving is not None else None,
            )
        store.write_trial(done.record)
        if done.error is not None:
            print(f"  {done.error.fact}: {done.error.detail}", flush=True)
        return store, record


def compose(case: Case, seed: int, seconds: float) -> dict[str, Any]:
    """The study of a case."""
    common: dict[str, Any] = {
        "data": {"scale": 20},
        "trials": {"rounds": 1, "duration": f"{seconds:.0f}s", "warm_up": "2s", "seed": seed},
    }
    return {**common, **case.study}


def judge(store: RecordStore, record: StudyRecord) -> WorkloadAnalysis:
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    return analyse_study(record, trials).workloads[0]


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
def slow_flush(bench: Bench, draw: random.Random) -> Iterator[None]:
    source, library = bench.folder / "slow_flush.c", bench.folder / "slow_flush.so"
    source.write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    os.environ.update(LD_PRELOAD=str(library), SLOW_FLUSH_US=str(draw.randrange(3000, 8000)))
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["SLOW_FLUSH_US"]


@contextlib.contextmanager
def cpu_quota(bench: Bench, draw: random.Random) -> Iterator[None]:
    del bench
    with group("cpu", cfs_quota_us=draw.randrange(20_000, 50_000)):
        yield


def throttle(**limits: tuple[int, int]) -> Plant:
    """A plant that lets the home's device do between so many and so many a second, by the kernel's names."""

    @contextlib.contextmanager
    def plant(bench: Bench, draw: random.Random) -> Iterator[None]:
        number = bench.home.root.stat().st_dev
        chosen = {
            f"throttle.{name}_device": f"{os.major(number)}:{os.minor(number)} {draw.randrange(*limit)}"
            for name, limit in limits.items()
        }
        with group("blkio", **chosen):
            yield

    return plant


@contextlib.contextmanager
def slow_reads(bench: Bench, draw: random.Random) -> Iterator[None]:
    with group("memory", limit_in_bytes=CACHE_BYTES), throttle(read_iops=(300, 800))(bench, draw):
        yield


def dirty_thresholds(*, background_mb: int, foreground_mb: int) -> Plant:
    """The kernel's own thresholds, journalled and put back, on a disk that lets few bytes through."""

    @contextlib.contextmanager
    def plant(bench: Bench, draw: random.Random) -> Iterator[None]:
        changed = {"vm.dirty_background_bytes": background_mb * MB, "vm.dirty_bytes": foreground_mb * MB}
        slow_disk = throttle(write_bps=(8 * MB, 16 * MB))(bench, draw)
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
            starves=draw.uniform(0.02, 0.04),
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
    clients = draw.choice([1, 2, 4, 8, 16])
    writes = frozenset() if workload == "select-only" else frozenset({Resource.WAL_FLUSH})
    study = {"workload": [{"name": workload, "mode": mode, "clients": clients}]}
    return Case(name="quiet", right=OF_LOAD | writes, study=study, is_quiet=True)


@contextlib.contextmanager
def open_bench(folder: Path, *, on_loop: bool) -> Iterator[Bench]:
    """A bench on the folder's disk, or on one of its own in memory."""
    home = folder / "home"
    with contextlib.ExitStack() as stack:
        if on_loop:
            home = stack.enter_context(mounted_loop(folder)) / "home"
        with open_home(home, find_server_user()) as opened:
            yield Bench(opened, folder)


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


def ask(bench: Bench, case: Case, seed: int, seconds: float, *, keeps: bool) -> Answer | None:
    load = case.study["workload"][0]
    words = f"{load['name']} {load.get('mode', '')} {load['clients']} clients"
    try:
        store, record = bench.run(case, seed, seconds)
    except PgdynoError as exc:
        print(f"{case.name} {seed} ({words}): {exc.fact}: {exc.detail}", flush=True)
        return None
    analysis = judge(store, record)
    found = analysis.bottleneck
    answer = Answer(
        case=case.name,
        words=words,
        named=None if found is None else found.resource,
        is_right=found is not None and found.resource in case.right,
        is_quiet=case.is_quiet,
        said=describe(found, analysis),
    )
    mark = "" if answer.is_right else "   <-- "
    print(f"{case.name} {seed} ({words}): {answer.said}{mark}", flush=True)
    if not keeps:
        shutil.rmtree(store.path)
    return answer


def describe(found: Bottleneck | None, analysis: WorkloadAnalysis) -> str:
    trial = analysis.trials[0]
    shares = () if trial.time is None else trial.time.shares
    parts = ", ".join(f"{share.resource.value} {share.ratio:.0%}" for share in shares if share.ratio >= 0.03)
    verdict = "no verdict" if found is None else f"{found.resource.value} ({found.certainty.value})"
    return f"{verdict}; {trial.tps or 0:.0f} TPS; {parts}"


def say_answers(answers: Sequence[Answer]) -> None:
    for name in dict.fromkeys(answer.case for answer in answers):
        named = Counter("none" if a.named is None else a.named.value for a in answers if a.case == name)
        print(f"{name}: {', '.join(f'{what} {count}' for what, count in named.most_common())}")
    planted = [answer for answer in answers if not answer.is_quiet]
    quiet = [answer for answer in answers if answer.is_quiet]
    is_unknown = [answer.named in {None, Resource.UNKNOWN} for answer in planted]
    say_share("causes.planted.named_first", [answer.is_right for answer in planted], target=">= 0.9")
    say_share("causes.planted.unknown", is_unknown)
    is_false = [not a.is_right and a.named not in {None, Resource.UNKNOWN} for a in quiet]
    say_share("causes.quiet.false", is_false, target="<= 0.05")
    say_share("causes.quiet.unknown", [answer.named in {None, Resource.UNKNOWN} for answer in quiet])


def say_share(name: str, happened: Sequence[bool], *, target: str | None = None) -> None:
    if happened:
        low, high = find_wilson(sum(happened), len(happened))
        say(name, sum(happened) / len(happened), low=low, high=high, unit="ratio", n=len(happened), target=target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one case of each cause, five quiet ones, short trials")
    parser.add_argument("--cases", type=int, help="of each cause [default: 5]")
    parser.add_argument("--quiet", type=int, help="quiet ones [default: 20]")
    parser.add_argument("--only", nargs="+", help="causes, by name; `quiet`")
    parser.add_argument("--seconds", type=float, help="of one trial")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cpu", type=int, help="keep to this CPU")
    parser.add_argument(
        "--kernel", action="store_true", help="also change the kernel's dirty thresholds, and put them back"
    )
    parser.add_argument("--keep", type=Path, help="keep the records below this folder, and the loaded data for another time")
    options = parser.parse_args()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    # The same way out as Ctrl-C: no server is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cases = options.cases if options.cases is not None else 1 if options.quick else 5
    quiet = options.quiet if options.quiet is not None else 5 if options.quick else 20
    seconds = options.seconds or (QUICK_DURATION_S if options.quick else DURATION_S)
    asked = [
        (case, number) for number in range(cases) for case in plant_cases(random.Random(f"{options.seed} {number}"))
    ]
    draw = random.Random(f"quiet {options.seed}")
    asked += [(draw_quiet(draw), number) for number in range(quiet)]
    asked = [(case, number) for case, number in asked if not options.only or case.name in options.only]
    left_out = sorted({case.name for case, _ in asked if not may_plant(case, changes_kernel=options.kernel)})
    if left_out:
        print(f"left out, because nothing here lets them be planted: {', '.join(left_out)}")
    folder = options.keep or Path(tempfile.mkdtemp(prefix="pgdyno-causes-", dir="/var/tmp"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "hot_row.sql").write_text(HOT_ROW)
    for ms in (10, 20):
        (folder / f"thinking-{ms}.sql").write_text(THINKING.format(us=ms * 1000))
    answers: list[Answer | None] = []
    try:
        for on_loop in (False, True):
            own = [(case, n) for case, n in asked if case.on_loop is on_loop and case.name not in left_out]
            if own:
                with open_bench(folder, on_loop=on_loop) as bench:
                    answers += [
                        ask(bench, case, options.seed * 1000 + n, seconds, keeps=options.keep is not None)
                        for case, n in own
                    ]
    finally:
        for name in ("memory", "disk") if options.keep else (".",):
            shutil.rmtree(folder / name, ignore_errors=True)
    say_answers([answer for answer in answers if answer is not None])


if __name__ == "__main__":
    main()

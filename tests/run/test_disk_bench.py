"""With real fio on disks of our own, whose limits are known, and in the ways in which a measurement goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.disk.card import bytes_per_s_of
from pgdyno.errors import HostError
from pgdyno.plan.disk import DiskJob, DiskPlan, Pattern
from pgdyno.record.device.disk_card import JobRun
from pgdyno.run.device import disk_bench
from pgdyno.run.device.disk_bench import DiskTools, measure_disk
from pgdyno.run.device.fio import find_fio
from pgdyno.run.host.disks import read_disk_counters
from pgdyno.run.host.process import find_server_user
from pgdyno.run.host.processes import descend, read_processes
from pgdyno.run.host.tree import Tree
from tests.loops import Loop, mounted, mounted_loop, needs_fio, needs_root, throttled
from tests.tools.pgcluster import running
from tests.waiting import wait_until

pytestmark = [needs_fio, needs_root]
MIB = 2**20
LARGE = MIB
WRITING = {Pattern.RANDOM_WRITE, Pattern.SEQUENTIAL_WRITE, Pattern.WRITE_AND_FLUSH, Pattern.WAL}


def job(pattern: Pattern, block_bytes: int = 8192, depth: int = 1, *, runtime_s: float = 0.3) -> DiskJob:
    read_ratio = 0.7 if pattern is Pattern.MIXED else None
    return DiskJob(pattern=pattern, block_bytes=block_bytes, depth=depth, runtime_s=runtime_s, read_ratio=read_ratio)


EVERY = (
    job(Pattern.RANDOM_READ, depth=1),
    job(Pattern.RANDOM_WRITE, depth=16),
    job(Pattern.SEQUENTIAL_READ, LARGE, 8),
    job(Pattern.SEQUENTIAL_WRITE, LARGE, 8),
    job(Pattern.MIXED, depth=16),
    job(Pattern.WRITE_AND_FLUSH),
    job(Pattern.WAL),
)


def make_plan(*rounds: tuple[DiskJob, ...], file_bytes: int = 32 * MIB) -> DiskPlan:
    return DiskPlan(
        file_bytes=file_bytes,
        rounds=rounds,
        flush_test_s=0.0,
        clock_test_s=1.0,
        expected_s=1.0,
        fill_s=10.0,
        seed=1,
    )


def tools() -> DiskTools:
    return DiskTools(fio=find_fio(), bindir=None, user=find_server_user())


@pytest.fixture(params=["ext4", "xfs"])
def loop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loop]:
    with mounted_loop(tmp_path, request.param, 400 * MIB) as made:
        yield made


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Loop]:
    with mounted_loop(tmp_path, "ext4", 200 * MIB) as made:
        yield made


def test_all_patterns_on_real_file_systems(loop: Loop) -> None:
    free_bytes = loop.free_bytes
    steps: list[str] = []
    found = measure_disk(loop.folder, make_plan(EVERY), tools(), on_step=lambda title, _seconds: steps.append(title))
    assert found.file_bytes == 32 * MIB
    assert [run.job for run in found.runs] == list(EVERY)
    for run in found.runs:
        assert (run.read is None) == (run.job.pattern in WRITING)
        assert (run.write is None) == (run.job.pattern in {Pattern.RANDOM_READ, Pattern.SEQUENTIAL_READ})
        assert (run.flush is not None) == run.job.is_flushed
        assert run.runtime_s > 0.29
        assert run.others_bytes_per_s is not None
    assert steps == ["laying out the test file", "fio, round 1 of 1"]
    assert found.tools == {"fio": find_fio().version.removeprefix("fio-")}
    # XFS gives back a moment later what a file had that is gone.
    assert wait_until(lambda: loop.free_bytes == pytest.approx(free_bytes, abs=4 * MIB))


def test_a_planted_limit_is_found_within_a_tenth(ext4: Loop) -> None:
    limits = {"read_iops": 1500, "write_iops": 800, "read_bps": 40_000_000, "write_bps": 25_000_000}
    jobs = (
        job(Pattern.RANDOM_READ, depth=16, runtime_s=0.7),
        job(Pattern.RANDOM_WRITE, depth=16, runtime_s=0.7),
        job(Pattern.SEQUENTIAL_READ, LARGE, 8, runtime_s=1.0),
        job(Pattern.SEQUENTIAL_WRITE, LARGE, 8, runtime_s=1.0),
    )
    planted = (limits["read_iops"] * 8192, limits["write_iops"] * 8192, limits["read_bps"], limits["write_bps"])
    best = [0.0] * len(jobs)
    # Whoever else is at work on this machine can only slow a run down: in one of some it does not.
    with throttled(ext4, **limits):
        for _ in range(10):
            runs = measure_disk(ext4.folder, make_plan(jobs, jobs), tools()).runs
            best = [
                max([most, *(bytes_per_s_of(run) for run in runs if run.job == job)])
                for job, most in zip(jobs, best, strict=True)
            ]
            if best == pytest.approx(planted, rel=0.1):
                break
    assert best == pytest.approx(planted, rel=0.1)


def test_a_disk_that_is_too_slow_for_the_file_gets_a_smaller_one(ext4: Loop) -> None:
    # Slowed down by others, too, it still writes the 16 MB that are the least, of the 50 that it can.
    plan = msgspec.structs.replace(make_plan((job(Pattern.RANDOM_READ),), file_bytes=80 * MIB), fill_s=2.0)
    with throttled(ext4, write_bps=25 * MIB):
        found = measure_disk(ext4.folder, plan, tools())
    assert found.file_bytes is not None
    assert 16 * MIB <= found.file_bytes < 72 * MIB
    assert len(found.runs) == 1
    (cut,) = [one for one in found.unseen if one.what == "a test file of 80 MB"]
    assert "were written in 2 s" in cut.reason


def test_processes_of_fio_share_a_job_whose_limit_is_a_cpu(ext4: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever CPU time fio takes is too much here.
    monkeypatch.setattr(disk_bench, "FULL_CPU_RATIO", -1.0)
    jobs = (job(Pattern.RANDOM_READ, depth=16, runtime_s=0.5), job(Pattern.SEQUENTIAL_READ, LARGE, 8), job(Pattern.WAL))
    plan = msgspec.structs.replace(make_plan(jobs, jobs), most_processes=4)
    runs = measure_disk(ext4.folder, plan, tools()).runs
    assert [run.job.processes for run in runs] == [4, 1, 1, 4, 1, 1]
    assert [run.round for run in runs] == [0, 0, 0, 1, 1, 1]
    for run in (runs[0], runs[3]):
        assert run.read is not None
        assert run.spans
        # fio sums up the times of its processes; a rate is over the time of the longest.
        assert run.runtime_s == pytest.approx(run.read.latency.count / run.read.iops, rel=0.5)
        # Little's law: the queues of all processes together are not longer than the job's.
        assert run.read.iops * run.read.latency.mean_us * 1e-6 < 1.5 * 16


def test_one_process_is_enough_where_the_disk_is_the_limit(ext4: Loop) -> None:
    jobs = (job(Pattern.RANDOM_READ, depth=16),)
    plan = msgspec.structs.replace(make_plan(jobs), most_processes=4)
    with throttled(ext4, read_iops=500):
        (run,) = measure_disk(ext4.folder, plan, tools()).runs
    assert run.job.processes == 1


def test_load_of_others_on_the_device_is_noticed(ext4: Loop) -> None:
    quiet = only_run(ext4)
    before = read_sectors(ext4)
    size = ["--size=16M", f"--directory={ext4.folder}", "--name=other", "--rw=read", "--bs=64k"]
    other = subprocess.Popen(
        [find_fio().program, *size, "--direct=1", "--rate=20M", "--time_based=1", "--runtime=300"],
        stdout=subprocess.DEVNULL,
    )
    try:
        assert wait_until(lambda: read_sectors(ext4) > before + 1000)
        # On a busy machine it reads less for a while, and catches up then.
        for _ in range(10):
            busy = only_run(ext4)
            if busy.others_bytes_per_s == pytest.approx(20 * MIB, rel=0.5):
                break
    finally:
        other.terminate()
        other.wait()
    assert quiet.spans
    assert quiet.others_bytes_per_s is not None
    assert quiet.others_bytes_per_s < 2e6
    assert busy.others_bytes_per_s == pytest.approx(20 * MIB, rel=0.5)


def test_load_of_others_on_another_volume_of_the_disk_is_noticed(ext4: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of this machine may lack device-mapper: the other volume is only in what is read."""
    readings = 0

    def read(tree: Tree) -> dict[str, list[int]]:
        nonlocal readings
        readings += 1
        # 1 GiB in each run.
        return {**read_disk_counters(tree), "dm-9": [0, 0, 0, 0, 0, readings * 2**21, *[0] * 8]}

    monkeypatch.setattr(disk_bench, "find_siblings", lambda _tree, _devices: ("dm-9",))
    monkeypatch.setattr(disk_bench, "read_disk_counters", read)
    run = only_run(ext4)
    assert run.others_bytes_per_s is not None
    assert run.others_bytes_per_s > 2**30 / 100


def read_sectors(loop: Loop) -> int:
    return int(Path(f"/sys/block/{loop.name}/stat").read_text().split()[2])


def only_run(loop: Loop) -> JobRun:
    (run,) = measure_disk(loop.folder, make_plan((job(Pattern.RANDOM_READ, runtime_s=1.0),)), tools()).runs
    return run


def test_a_path_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="there is no folder"):
        measure_disk(tmp_path / "nothing", make_plan(EVERY), tools())


@pytest.mark.parametrize("kind", ["tmpfs", "overlay"])
def test_what_is_no_disk_is_measured_all_the_same(tmp_path: Path, kind: str) -> None:
    """That nothing is durable there is said by who reads the file system's name from the card."""
    layers = [tmp_path / name for name in ("lower", "upper", "work")]
    for layer in layers:
        layer.mkdir()
    options = ",".join(f"{layer.name}dir={layer}" for layer in layers) if kind == "overlay" else "size=200M"
    with mounted("none", tmp_path / "mounted", "-t", kind, "-o", options) as folder:
        found = measure_disk(folder, make_plan((job(Pattern.RANDOM_WRITE, depth=8), job(Pattern.WAL))), tools())
        assert list(folder.iterdir()) == []
    assert len(found.runs) == 2
    assert all(run.others_bytes_per_s is None for run in found.runs)


def test_where_direct_io_is_refused_only_wal_is_measured(tmp_path: Path) -> None:
    with mounted("none", tmp_path / "ram", "-t", "ramfs") as folder:
        found = measure_disk(folder, make_plan(EVERY), tools())
    assert [run.job.pattern for run in found.runs] == [Pattern.WAL]
    assert found.runs[0].others_bytes_per_s is None
    (refused,) = [one for one in found.unseen if "O_DIRECT" in one.what]
    assert refused.reason == "ramfs refuses them"


def test_a_fio_that_is_killed_costs_its_own_run_only(ext4: Loop) -> None:
    first, second, third = job(Pattern.RANDOM_READ), job(Pattern.RANDOM_READ, depth=8, runtime_s=20.0), job(Pattern.WAL)
    is_over = threading.Event()
    killer = threading.Thread(target=kill_fio_that_runs_for, args=(second, is_over))
    killer.start()
    try:
        found = measure_disk(ext4.folder, make_plan((first, second, third)), tools())
    finally:
        is_over.set()
        killer.join()
    assert [run.job for run in found.runs] == [first, third]
    assert found.unseen[0].what == "a run of random read, 8 kB, depth 8"
    assert found.unseen[0].reason == "fio was killed: by SIGKILL"


def kill_fio_that_runs_for(wanted: DiskJob, is_over: threading.Event) -> None:
    tree = Tree()
    while not is_over.wait(0.05):
        processes = read_processes(tree)
        for pid in descend(processes, os.getpid()):
            words = (tree.read(f"proc/{pid}/cmdline") or "").split("\0")
            if f"--runtime={wanted.runtime_s * 1000:.0f}ms" in words and processes[pid].name == "fio":
                os.kill(pid, signal.SIGKILL)
                return


MEASURE = """
import sys
from pathlib import Path
from tests.run import test_disk_bench as bench
plan = bench.make_plan((bench.job(bench.Pattern.RANDOM_READ, runtime_s=60.0),), file_bytes=64 * bench.MIB)
bench.measure_disk(Path(sys.argv[1]), plan, bench.tools(), on_step=lambda title, _seconds: print(title, flush=True))
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_measurement_that_is_killed_leaves_nothing(ext4: Loop, sign: signal.Signals) -> None:
    free_bytes, names = ext4.free_bytes, set(ext4.folder.iterdir())
    argv = [sys.executable, "-c", MEASURE, str(ext4.folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(argv, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        while child.stdout.readline() != "fio, round 1 of 1\n":
            assert child.poll() is None
        assert ext4.free_bytes < free_bytes - 60 * MIB
        child.send_signal(sign)
        child.wait(timeout=600)
    # fio dies with who started it, a moment later; the file goes with the last of them.
    assert wait_until(lambda: ext4.free_bytes >= free_bytes - 2 * MIB)
    assert set(ext4.folder.iterdir()) == names
    assert len(measure_disk(ext4.folder, make_plan((job(Pattern.WAL),)), tools()).runs) == 1


@pytest.mark.cluster
def test_the_programs_of_postgresql_beside_a_server_on_the_same_device(ext4: Loop) -> None:
    plan = msgspec.structs.replace(make_plan(file_bytes=32 * MIB), flush_test_s=1.0)
    with running(18) as cluster:
        with_it = DiskTools(fio=None, bindir=cluster.bin_directory, user=cluster.user)
        found = measure_disk(cluster.root, plan, with_it)
        elsewhere = measure_disk(ext4.folder, make_plan(), with_it)
    assert {test.name for test in found.flush_tests if test.is_default} == {"fdatasync"}
    assert all(test.ops_per_s for test in found.flush_tests if test.name != "fsync_writethrough")
    assert found.clock is not None
    assert [one.reason for one in found.unseen] == ["fio is missing"]
    assert str(cluster.data) in found.neighbours
    assert elsewhere.neighbours == ()

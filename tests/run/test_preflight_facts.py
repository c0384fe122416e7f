"""The preflight's eyes on a real machine: each thing is broken on purpose, seen, and put back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import LimitKind, PreflightFacts
from pgdyno.run.host.cgroup import read_limits
from pgdyno.run.host.processes import ProcSnapshot, compare_snapshots, steal_ratio, take_snapshot
from pgdyno.run.host.state import read_clock
from pgdyno.run.host.timers import parse_systemd_timers
from pgdyno.run.host.tree import Tree
from pgdyno.run.preflight import PreflightSubject, read_preflight
from tests.proc_trees import FOLDER
from tests.shared import reachable_folder
from tests.sysctls import machine_settings, needs_proc_sys, one_at_a_time
from tests.waiting import wait_until

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CGROUPS = Path("/sys/fs/cgroup")
HERE = Tree()

GROUP = f"pgdyno-test-{os.getpid()}"

is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root may change this machine")


def look_at(folder: Path, *, wal: Path | None = None) -> tuple[HostFacts, PreflightFacts]:
    host, facts, _ = read_preflight(PreflightSubject(data_dir=folder, wal_dir=wal or folder))
    return host, facts


def rules_of(host: HostFacts, facts: PreflightFacts) -> set[str]:
    return {finding.rule for finding in find_obstacles(host, facts)}


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(("cpus", "stolen", "share"), [(1, 20, 0.2), (64, 20, 0.2), (64, 0, 0.0)])
def test_stolen_time_is_a_share_of_the_time_asked_for(cpus: int, stolen: int, share: float) -> None:
    """Of one CPU that is kept busy, among others that are idle."""
    before = ProcSnapshot(cpu_ticks=(0,) * 8, cpu_count=cpus, processes={}, disks={}, vm={}, throttled_count=None)
    idle = 100 * (cpus - 1)
    after = msgspec.structs.replace(before, cpu_ticks=(70 - stolen, 0, 30, idle, 0, 0, 0, stolen))
    assert steal_ratio(before, after) == share
    assert steal_ratio(before, msgspec.structs.replace(before, cpu_ticks=(0, 0, 0, 50, 50, 0, 0, 0))) is None
    assert steal_ratio(before, before) is None


def test_this_machine() -> None:
    host, facts = look_at(Path("/var/tmp"))
    assert facts.took_s is not None
    assert facts.activity is not None
    assert 0.0 <= facts.activity.busy_ratio <= 1.0
    assert host.cpu_busy_before_ratio == facts.activity.busy_ratio
    # It is counted in ticks. On a busy machine the looks themselves take long.
    assert 0.1 < facts.activity.window_s < facts.took_s + 0.2
    assert facts.memory is not None
    assert facts.memory.available_bytes
    assert facts.wal is not None
    assert facts.wal.block_device == host.data_disk.block_device
    assert [one.name for one in facts.devices[:1]] == [one for one in [host.data_disk.block_device] if one]
    assert msgspec.json.decode(msgspec.json.encode(facts), type=PreflightFacts) == facts


@contextlib.contextmanager
def written(path: Path, text: str) -> Iterator[None]:
    """A pseudo-file with another value, one test at a time, and as before whatever the test did."""
    with one_at_a_time("pseudo-files"):
        shown = path.read_text()
        before = shown.split("[", 1)[1].split("]", 1)[0] if "[" in shown else shown
        try:
            path.write_text(text)
            yield
        finally:
            path.write_text(before)


@pytest.mark.skipif(not os.access(THP, os.W_OK, effective_ids=True), reason="transparent huge pages cannot be set here")
def test_transparent_huge_pages(tmp_path: Path) -> None:
    with written(THP, "always"):
        assert "transparent-huge-pages" in rules_of(*look_at(tmp_path))
    with written(THP, "madvise"):
        assert "transparent-huge-pages" not in rules_of(*look_at(tmp_path))


@pytest.fixture
def ext4() -> Iterator[Path]:
    """An empty file system of 64 MB in a file, mounted badly."""
    with reachable_folder() as folder:
        image, mount = folder / "image", folder / "mount"
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(64 * 1024**2)
        try:
            run("mkfs.ext4", "-q", str(image))
            run("mount", "-o", "loop,strictatime,nobarrier,discard", str(image), str(mount))
        except (OSError, subprocess.CalledProcessError) as exc:
            pytest.skip(f"no file system of our own here: {exc}")
        # A loop device keeps its mode beyond its file, and one that writes through loses nothing without barriers.
        number = mount.stat().st_dev
        cache = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/write_cache")
        cache.write_text("write back")
        try:
            yield mount
        finally:
            run("umount", "--lazy", str(mount))


@needs_root
def test_a_bad_disk(ext4: Path) -> None:
    host, facts = look_at(ext4)
    found = find_obstacles(host, facts)
    rules = {finding.rule for finding in found}
    assert {"loop-device", "wal-on-data-disk", "mount-options"} <= rules
    assert "disk-full" not in rules
    mounts = " ".join(finding.evidence for finding in found if finding.rule == "mount-options")
    assert mounts == "Mount options: nobarrier Mount options: neither noatime nor relatime Mount options: discard"

    name = facts.devices[0].name
    assert name.startswith("loop")
    queue = Path("/sys/block", name, "queue")
    with (ext4 / "filling").open("wb") as file:
        # All but 3 MB of what is free.
        os.posix_fallocate(file.fileno(), 0, host.data_disk.free_bytes - 3 * 1024**2)
    with written(queue / "read_ahead_kb", "16384"):
        worse = look_at(ext4)
    assert {"disk-full", "read-ahead"} <= rules_of(*worse)
    if "bfq" in (queue / "scheduler").read_text():
        with written(queue / "scheduler", "bfq"):
            assert "io-scheduler" in rules_of(*look_at(ext4))
    else:
        assert "io-scheduler" not in rules_of(*worse)
    run("mount", "-o", "remount,noatime,barrier,nodiscard", str(ext4))
    assert "mount-options" not in rules_of(*look_at(ext4))
    run("mount", "-o", "remount,ro", str(ext4))
    assert "read-only" in " ".join(finding.claim for finding in find_obstacles(*look_at(ext4)))


@needs_root
def test_data_and_wal_on_disks_of_their_own(ext4: Path) -> None:
    host, facts = look_at(Path("/var/tmp"), wal=ext4)
    found = find_obstacles(host, facts)
    assert "wal-on-data-disk" not in {finding.rule for finding in found}
    of_wal = {finding.evidence for finding in found if "The WAL" in finding.claim or "of the WAL" in finding.claim}
    assert {"Mount options: nobarrier", f"/dev/{facts.wal_devices[0].name}"} <= of_wal


@needs_root
def test_a_full_memory_disk(tmp_path: Path) -> None:
    run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path))
    try:
        assert "disk-full" not in rules_of(*look_at(tmp_path))
        (tmp_path / "filling").write_bytes(bytes(15_900_000))
        host, facts = look_at(tmp_path)
        assert {"disk-full", "data-in-memory"} <= rules_of(host, facts)
    finally:
        run("umount", "--lazy", str(tmp_path))


@needs_root
def test_swap() -> None:
    group = CGROUPS / f"memory/pgdyno-test-swap-{os.getpid()}"
    if not os.access(group.parent / "memory.limit_in_bytes", os.W_OK, effective_ids=True):
        pytest.skip("no control group of version 1 for memory")
    hog = (
        "import os, sys, time\n"
        f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "memory = bytearray(48 << 20)\n"
        "while True:\n"
        "    for at in range(0, len(memory), 4096): memory[at] = (memory[at] + 1) % 256\n"
        "    print('round', flush=True)\n"
    )
    with one_at_a_time("swap"), reachable_folder() as folder, contextlib.ExitStack() as stack:
        if Path("/proc/swaps").read_text().count("\n") > 1:
            pytest.skip("this machine has swap of its own")
        assert "swap-in-use" not in rules_of(*look_at(folder))
        file = folder / "swap"
        file.write_bytes(bytes(96 * 1024**2))
        file.chmod(0o600)
        run("mkswap", str(file))
        try:
            run("swapon", str(file))
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"no swapping to a file here: {exc.stderr}")
        stack.callback(run, "swapoff", str(file))
        group.mkdir()
        stack.callback(group.rmdir)
        (group / "memory.limit_in_bytes").write_text(str(24 * 1024**2))
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", hog], stdout=subprocess.PIPE))
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline()

        def is_moving() -> bool:
            found = find_obstacles(*look_at(folder))
            return any("being swapped at this moment" in one.claim for one in found if one.rule == "swap-in-use")

        # While the disk is busy with what others write, nothing may move for a moment.
        assert wait_until(is_moving)


@contextlib.contextmanager
def nested_groups(controller: str) -> Iterator[tuple[Path, Path]]:
    """A control group of version 1 and one in it."""
    outer = CGROUPS / controller / GROUP
    if not (CGROUPS / controller / "cgroup.procs").exists() or not os.access(
        CGROUPS / controller, os.W_OK, effective_ids=True
    ):
        pytest.skip(f"no control groups of version 1 for {controller}")
    try:
        outer.mkdir()
    except OSError as exc:
        pytest.skip(f"no control group of our own here: {exc}")
    inner = outer / "inner"
    inner.mkdir()
    try:
        yield outer, inner
    finally:
        inner.rmdir()
        outer.rmdir()


def read_limits_inside(*groups: Path) -> dict[LimitKind, tuple[float, str]]:
    """What a process in these groups sees of their limits, and of those of /var/tmp's disk: others may throttle other devices."""
    enter = "".join(f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n" for group in groups)
    program = (
        f"import os, sys, msgspec\n{enter}"
        "from pgdyno.run.host.cgroup import read_limits\nfrom pgdyno.run.host.tree import Tree\n"
        "sys.stdout.buffer.write(msgspec.json.encode(read_limits(Tree())))"
    )
    rows = msgspec.json.decode(run(sys.executable, "-c", program))
    device = Path("/var/tmp").stat().st_dev
    disk = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
    return {LimitKind(row["kind"]): (row["value"], row["group"]) for row in rows if row["device"] in {None, "", disk}}


@needs_root
def test_limits_of_real_control_groups() -> None:
    with nested_groups("cpu") as (cpu, cpu_inner), nested_groups("memory") as (memory, memory_inner):
        without = read_limits_inside(cpu_inner, memory_inner)
        (cpu / "cpu.cfs_quota_us").write_text("150000")
        (cpu_inner / "cpu.cfs_quota_us").write_text("70000")
        (memory / "memory.limit_in_bytes").write_text(str(1 << 30))
        limits = read_limits_inside(cpu_inner, memory_inner)
        (cpu_inner / "cpu.cfs_quota_us").write_text("-1")
        from_above = read_limits_inside(cpu_inner, memory_inner)
    own = {limit.kind: limit.value for limit in read_limits(HERE)}
    assert LimitKind.CPU not in without or without[LimitKind.CPU][0] == own[LimitKind.CPU]
    assert limits[LimitKind.CPU] == (0.7, f"/{GROUP}/inner")
    assert limits[LimitKind.MEMORY] == (1 << 30, f"/{GROUP}")
    assert from_above[LimitKind.CPU] == (1.5, f"/{GROUP}")


@needs_root
def test_limits_of_io_of_a_real_control_group() -> None:
    disk = Path("/var/tmp").stat().st_dev
    numbers = f"{os.major(disk)}:{os.minor(disk)}"
    with nested_groups("blkio") as (outer, inner):
        try:
            (outer / "blkio.throttle.write_bps_device").write_text(f"{numbers} 1048576")
            (inner / "blkio.throttle.read_iops_device").write_text(f"{numbers} 77")
        except OSError as exc:
            pytest.skip(f"no limits of I/O on {numbers}: {exc}")
        limits = read_limits_inside(inner)
    assert limits[LimitKind.WRITE_BYTES] == (1048576, f"/{GROUP}")
    assert limits[LimitKind.READ_COUNT] == (77, f"/{GROUP}/inner")


@needs_proc_sys
def test_settings_of_the_kernel() -> None:
    with machine_settings("vm.zone_reclaim_mode"):
        Path("/proc/sys/vm/zone_reclaim_mode").write_text("1")
        _, facts = look_at(Path("/var/tmp"))
    assert facts.memory is not None
    assert facts.memory.zone_reclaim_mode == 1


def test_what_we_do_ourselves_is_not_somebody_elses() -> None:
    before = take_snapshot(HERE)
    # A child of ours and ourselves, both at work.
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        until_s = time.process_time() + 0.3
        while time.process_time() < until_s:
            pass
        after = take_snapshot(HERE)
        child.kill()
    ours = compare_snapshots(before, after, tree=HERE, own_pid=os.getpid())
    all_of_it = compare_snapshots(before, after, tree=HERE)
    assert ours is not None
    assert all_of_it is not None
    assert not {child.pid, os.getpid()} & {one.pid for one in ours.busiest}
    assert ours.busy_ratio < all_of_it.busy_ratio


def test_a_home_that_is_in_use(tmp_path: Path) -> None:
    subject = PreflightSubject(data_dir=tmp_path, wal_dir=tmp_path, home=tmp_path)
    (tmp_path / "lock").touch()
    assert read_preflight(subject)[1].home_holder_pid is None
    hold = f"import fcntl, time; f = open('{tmp_path}/lock'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        host, facts, _ = read_preflight(subject)
        holder.kill()
    assert facts.home_holder_pid == holder.pid
    assert "load-running" in rules_of(host, facts)
    with (tmp_path / "lock").open() as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        assert read_preflight(subject)[1].home_holder_pid is None, "our own lock is nobody else's"


def test_timers_of_a_real_systemd() -> None:
    """Captured from `systemctl --user list-timers --all --output=json` of systemd 252."""
    text = (FOLDER / "systemctl-252-list-timers.json").read_text(encoding="utf-8")
    (mono,) = parse_systemd_timers(text, now=datetime.fromtimestamp(1795246893, UTC))
    assert (mono.name, mono.job) == ("mono.timer", "fstrimx.service")
    assert mono.due_s == pytest.approx(1200, abs=1)
    with pytest.raises(msgspec.DecodeError):
        parse_systemd_timers("NEXT LEFT LAST", now=datetime.now(UTC))


def test_the_clock_of_this_machine() -> None:
    clock = read_clock(HERE)
    assert clock.source in clock.available

"""Emulated disks on real loop devices: what they let through, how long they take, and what a machine lacks for them.

Each emulation is made by a process of its own, whose mounts no other process sees.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgdyno.errors import HostError
from pgdyno.run.change.changes import EmulationChange, UndoOutcome
from pgdyno.run.change.emulation import groups, loop, note
from pgdyno.run.change.emulation.groups import Rates, _limit_memory, plan_groups, remove_group
from pgdyno.run.change.emulation.latency import find_compiler
from pgdyno.run.change.emulation.loop import attach, keep_flushes_above
from pgdyno.run.change.emulation.machine import EmulatedDisk, EmulatedMachine, check_emulation, emulated
from pgdyno.run.change.emulation.note import EmulationNote, undo_left_emulations
from pgdyno.run.host.freezer import is_stopped
from pgdyno.run.host.process_id import this_process
from tests.loops import needs_root
from tests.run.emulating import IOPS, LATENCY_S, MEMORY_BYTES, find_groups
from tests.shared import reachable_folder
from tests.waiting import wait_until

BLKIO = Path("/sys/fs/cgroup/blkio")
NOTES = Path("/var/lib/pgdyno-journal/emulations")
RATES = Rates(read_iops=1, write_iops=1, read_bytes_per_s=1, write_bytes_per_s=1)
XFS = EmulatedDisk(
    name="data", size_bytes=2**30, filesystem="xfs", mount_options="", rates=RATES, flush_s=0.001, read_s=0.001
)


def skip_without_means() -> None:
    try:
        check_emulation([XFS])
        plan_groups("test", limits_memory=True)
    except HostError as error:
        pytest.skip(error.reason)


@needs_root
def test_a_machine_without_loop_devices_is_told_of_before_gigabytes_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_CONTROL", tmp_path / "loop-control")
    with pytest.raises(HostError, match="gives an emulation no loop device") as caught:
        check_emulation([XFS])
    assert "No such file" in (caught.value.detail or "")
    assert caught.value.hint


@needs_root
def test_disks_are_throttled_delayed_and_gone(tmp_path: Path) -> None:
    skip_without_means()
    emulating = subprocess.Popen(
        [sys.executable, "-m", "tests.run.emulating", str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    out, _ = emulating.communicate(timeout=600)
    assert emulating.returncode == 0
    seen = json.loads(out)
    for name, filesystem in (("data", "xfs"), ("wal", "ext4")):
        # A thread that wakes up late sleeps less the next time, and never less than half.
        assert seen[name]["flush"] >= LATENCY_S / 2, name
        assert seen[name]["direct"] >= LATENCY_S / 2, name
        assert seen[name]["cached"] < LATENCY_S / 2, name
        assert any(f"/{name} " in line and f" - {filesystem} " in line for line in seen["mounts"].splitlines())
        device = seen["devices"][name]
        numbers = f"{os.major(device)}:{os.minor(device)}"
        block = (Path("/sys/dev/block") / numbers).resolve().name
        assert ["read operations", IOPS, block] in seen["limits"]
        assert ["write operations", IOPS, block] in seen["limits"]
    assert ["memory", MEMORY_BYTES, None] in seen["limits"]
    # Memory and swap together: what is declared has no swap. A kernel may not count it. This is, as all control files
    # that are looked at here, that of v1: a folder stands for a group of v2 in a test below.
    assert seen["swap"] == [MEMORY_BYTES] * Path("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists()
    assert seen["is_filled"], "a store that compresses would keep nothing of zeros"
    assert seen["cpus"] == 1
    assert seen["caches"] == ["write through"] * 2
    assert seen["caches_afterwards"] == ["write back"] * 2
    assert list(tmp_path.iterdir()) == []
    assert list(NOTES.glob(f"{emulating.pid}-*")) == []
    assert str(IOPS) not in (BLKIO / "blkio.throttle.read_iops_device").read_text()
    assert find_groups("/sys/fs/cgroup/memory", f"pgdyno-{emulating.pid}") == []
    # Somebody else who looks at all devices has them open for a moment.
    assert wait_until(lambda: str(tmp_path) not in subprocess.check_output(["losetup"], text=True))


@needs_root
@pytest.mark.cluster
def test_a_kill_while_servers_are_frozen_leaves_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_means()
    # Any other pgdyno on this machine would undo what it finds in the usual place.
    notes = tmp_path / "notes"
    monkeypatch.setattr(note, "_FOLDER", notes)
    with reachable_folder() as base:
        argv = [sys.executable, "-m", "tests.run.emulating_frozen", str(base), str(notes)]
        killed = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        pids = json.loads(killed.stdout)
        try:
            assert len(pids) > 1
            assert all(map(is_stopped, pids))
            (undone,) = undo_left_emulations()
            assert undone.change.what.startswith(f"{base}/")
            assert undone.outcome is UndoOutcome.UNDONE
            assert wait_until(lambda: not any(Path("/proc", str(pid)).exists() for pid in pids))
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        assert wait_until(lambda: str(base) not in subprocess.check_output(["losetup"], text=True))
        assert list(base.iterdir()) == []


@needs_root
def test_a_device_that_has_gone_keeps_no_other_from_being_put_back(tmp_path: Path) -> None:
    skip_without_means()
    image = tmp_path / "image"
    with image.open("w+b") as file:
        file.truncate(2**20)
        device = attach(file.fileno())
    try:
        keep_flushes_above(device.numbers, is_kept=True)
        left = EmulationNote(
            change=EmulationChange(what=str(tmp_path / "disks"), at="now", owner=this_process()),
            groups=plan_groups("test", limits_memory=False),
            devices=("7:99999", device.numbers),
        )
        assert left.undo().outcome is UndoOutcome.UNDONE
        cache = Path("/sys/dev/block") / device.numbers / "queue/write_cache"
        assert cache.read_text() == "write back\n"
    finally:
        os.close(device.descriptor)


@needs_root
@pytest.mark.parametrize(("given", "taken"), [("cpu", ["-io", "-memory"]), ("memory cpu", ["-io"]), ("io memory", [])])
def test_the_root_group_has_the_controllers_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, taken: list[str]
) -> None:
    """A folder stands for the root group of version 2, which this machine may not have."""
    written: list[str] = []
    control = tmp_path / "cgroup.subtree_control"
    control.write_text(given)
    monkeypatch.setattr(groups, "_ROOT", tmp_path)
    files = plan_groups("1", limits_memory=True)
    own, other = tmp_path / "pgdyno-1", tmp_path / "pgdyno-2"
    assert (files.own_folder, files.is_v1) == (str(own), False)
    own.mkdir()
    other.mkdir()
    assert remove_group(files) == ""
    assert not own.exists()
    assert control.read_text() == given, "another emulation uses them"
    other.rmdir()
    write_text = Path.write_text
    monkeypatch.setattr(
        Path, "write_text", lambda path, text, **words: written.append(text) or write_text(path, text, **words)
    )
    # As after a kill before the group was made.
    assert remove_group(files) == ""
    assert written == taken


def test_a_group_of_version_2_has_no_swap(tmp_path: Path) -> None:
    """A folder stands for the group, with the file that a kernel has that counts swap."""
    swap = tmp_path / "memory.swap.max"
    swap.write_text("max")
    _limit_memory(tmp_path, MEMORY_BYTES, is_v1=False)
    assert [(tmp_path / name).read_text() for name in ("memory.max", swap.name)] == [str(MEMORY_BYTES), "0"]


@needs_root
def test_a_folder_that_no_library_is_preloaded_from(tmp_path: Path) -> None:
    skip_without_means()
    base = tmp_path / "my disks"
    base.mkdir()
    machine = EmulatedMachine(disks=(XFS,), cpu_count=None, memory_bytes=None)
    with pytest.raises(HostError, match="a blank or a colon") as caught, emulated(machine, base=base):
        pytest.fail("went on")
    assert caught.value.detail == str(base)
    assert list(base.iterdir()) == []


@needs_root
def test_missing_programs_name_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("pgdyno.run.host.process._OF_ROOT", str(tmp_path))
    with pytest.raises(HostError, match="C compiler") as no_compiler:
        check_emulation([XFS])
    assert "apt-get install gcc" in no_compiler.value.hint
    (tmp_path / "cc").symlink_to("/bin/true")
    with pytest.raises(HostError, match=r"mkfs\.xfs is missing") as no_mkfs:
        check_emulation([XFS])
    assert "apt-get install xfsprogs" in no_mkfs.value.hint
    assert find_compiler() == str(tmp_path / "cc")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may emulate")
def test_others_than_root_are_refused() -> None:
    with pytest.raises(HostError, match="only root"):
        check_emulation([XFS])

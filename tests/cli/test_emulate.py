"""`--emulate` as users run it: a study ends on emulated disks and leaves nothing, and what a kill has left is undone."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from pgdyno.run.measured_load import _Observers
from tests.cli.experiments import finished_trials
from tests.cli.program import GENTLE, SMALL, Bench
from tests.loops import needs_root
from tests.run.test_emulation import BLKIO, NOTES, skip_without_means
from tests.waiting import wait_until

# As small as a plan takes, and with limits that are found again in the kernel's files.
HOST = """
name = "db1"
cpus = 1
memory = "2GB"
[disk]
kind = "network-ssd"
size = "3200MB"
filesystem = "xfs"
mount_options = "noatime"
flush_ms = 2.0
random_read_iops = 4_321
random_write_iops = 4_321
read_mb_s = 100
write_mb_s = 100
"""
WAL = """
[wal_disk]
kind = "network-ssd"
size = "1300MB"
filesystem = "ext4"
flush_ms = 1.0
"""
SHORT = ["bench", *SMALL, *GENTLE, "--workload", "simple-update", "--emulate", "host.toml", "--out", "out"]


@pytest.fixture
def here(bench: Bench) -> Bench:
    (bench.folder / "host.toml").write_text(HOST + WAL)
    return bench


def what_is_left(bench: Bench, pid: int) -> list[str]:
    """Everything of an emulation that could outlive its process."""
    loops = subprocess.run(["losetup", "--list"], check=True, capture_output=True, text=True).stdout
    throttles = [file.read_text() for file in BLKIO.glob("blkio.throttle.*_device")]
    # Other tests' groups come and go meanwhile, which a glob does not stand.
    groups = [
        Path(place, name) for place, names, _ in os.walk("/sys/fs/cgroup") for name in names if name == f"pgdyno-{pid}"
    ]
    return [
        *(["loop device"] if str(bench.folder) in loops else []),
        *(["throttle"] if any("4321" in text for text in throttles) else []),
        *map(str, groups),
        *map(str, NOTES.glob(f"{pid}-*")),
        *map(str, bench.home.glob("emulated-*")),
        *(["mount"] if str(bench.folder) in Path("/proc/self/mountinfo").read_text() else []),
    ]


@needs_root
@pytest.mark.cluster
def test_a_study_leaves_nothing_also_after_a_kill(here: Bench) -> None:
    skip_without_means()
    record = here.folder / "out"
    with here.started(*SHORT, stops_at=_Observers.follow) as process:
        assert process.stands_still((record / "trials/0001/os.jsonl").exists), process.communicate()
        assert set(what_is_left(here, process.pid)) >= {"loop device", "throttle"}
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    assert wait_until(lambda: here.run("restore").returncode == 0 and not what_is_left(here, process.pid), within_s=600)

    with here.started("resume", "out") as process:
        _, stderr = process.communicate(timeout=800)
    assert process.returncode == 0, stderr
    assert what_is_left(here, process.pid) == []
    assert [trial["status"] for trial in finished_trials(record)] == ["finished"]
    made = open_record(record).read_record()
    host, plan = made.host, made.plan
    assert host is not None
    # `run` predicts with the emulated disk's rate, as `plan` does.
    assert plan.between is not None
    assert plan.dataset_bytes is not None
    assert plan.between.restore_s == pytest.approx(plan.dataset_bytes / 100e6)
    assert (host.cpu_count, host.memory_limit_bytes, host.data_disk.filesystem) == (1, 2 * 2**30, "xfs")
    assert "emulate = true" in (record / "study.toml").read_text()
    assert "**Emulated:** these figures are of db1 as this machine could act it" in (record / "report.md").read_text()


@needs_root
def test_what_cannot_be_emulated_is_refused_with_a_reason(here: Bench) -> None:
    skip_without_means()
    (here.folder / "study.toml").write_text('[[workload]]\nname = "tpcb-like"\n')
    (here.folder / "no-disk.toml").write_text('instance = "c7g.2xlarge"\n')
    (here.folder / "btrfs.toml").write_text(HOST.replace('"xfs"', '"btrfs"'))
    (here.folder / "large.toml").write_text(HOST.replace('"3200MB"', '"900TB"'))
    (here.folder / "wal").mkdir()
    rows = [
        (["run", "study.toml", "--emulate"], 2, "needs a machine"),
        (["plan", "study.toml", "--emulate"], 2, "needs a machine"),
        (["bench", "--emulate", "no-disk.toml"], 2, "needs a disk"),
        (["bench", "--emulate", "missing.toml"], 2, "cannot read the host file"),
        (["bench", "--emulate", "btrfs.toml"], 2, "no file system btrfs"),
        (["bench", "--emulate", "host.toml", "--wal-home", "wal"], 2, "[wal_disk]"),
        (["bench", "--emulate", "host.toml", "--dsn", "service=x", "--home", "h"], 2, "leave out home, emulate"),
        (["compare", "--set", "work_mem=1MB", "--emulate", "large.toml", "--scale", "999999"], 3, "free"),
    ]
    for arguments, code, words in rows:
        done = here.refuse(*arguments)
        assert (done.returncode, words in done.stderr) == (code, True), (arguments, done.stderr)
    assert what_is_left(here, os.getpid()) == []
    assert here.records == []

"""kill -9 at any instant, and a disk that fills up: nothing finished is lost, nothing stays behind, and it goes on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import GENTLE, SMALL, Bench, some_bench, wait_until

pytestmark = pytest.mark.cluster


def finished(record: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in record.glob("trials/[0-9][0-9][0-9][0-9]/trial.json")}


@pytest.mark.timeout(900)  # it waits for ten deaths
def test_kill_9_at_ten_random_instants_loses_nothing_finished() -> None:
    draw = random.Random(20261121)
    kills = 0
    with some_bench() as bench:
        record = bench.folder / "out"
        command = ["bench", "--workload", "select-only", "--workload", "simple-update", *SMALL, *GENTLE]
        command += ["--rounds", "3", "--out", "out"]
        kept: dict[str, bytes] = {}
        while kills < 10:
            # Most instants lie within a trial; some in starting, loading, copying and writing the report.
            seconds = draw.uniform(0.2, 7.0)
            with bench.started(*command) as process:
                try:
                    process.wait(timeout=seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                    kills += 1
            bench.assert_nothing_runs()
            now = finished(record)
            assert {name: now.get(name) for name in kept} == kept
            kept = now
            if (record / "record.json").exists():
                if len(kept) == 6 and process.returncode == 0:
                    # It got through before all kills were spent: begin again beside it.
                    shutil.move(record, bench.folder / f"done-{kills}")
                    kept = {}
                    continue
                command = ["resume", "out"]
            elif record.exists():
                shutil.rmtree(record)
        if not (record / "record.json").exists():
            return
        done = bench.run("resume", "out")
        assert done.returncode == 0, done.stderr
        report = json.loads((record / "report.json").read_text())
        assert sum(len(workload["trials"]) for workload in report["workloads"]) == 6
        assert {name: finished(record)[name] for name in kept} == kept
        # What was cut short is set aside, not lost.
        assert all((path / "trial.json").exists() is False for path in record.glob("trials/*.cut-*"))


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """An ext4 of its own, large enough for the plan to begin."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system of its own")
    with some_bench() as bench:
        image, mount = bench.folder / "image", bench.folder / "disk"
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(5 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(mount)], check=True)
        try:
            yield mount
        finally:
            subprocess.run(["umount", str(mount)], check=True)


def test_a_disk_that_fills_up_midway(small_disk: Path) -> None:
    with some_bench() as elsewhere:
        bench = Bench(small_disk)
        out = elsewhere.folder / "out"
        long = ("--duration", "20s", "--workload", "tpcb-like", "--out", str(out))
        with bench.started("bench", *SMALL, *long) as process:
            assert wait_until((out / "trials" / "0001" / "os.jsonl").exists)
            filler = small_disk / "filler"
            # As much as there is, in pieces that get smaller, because the server takes some meanwhile.
            for size in (1 << 30, 1 << 26, 1 << 22, 1 << 18, 1 << 14):
                with filler.open("ab") as file, contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
            _, stderr = process.communicate(timeout=200)
        assert process.returncode == 4, stderr
        assert "No space left on device" in stderr
        assert "the disk is full" in stderr
        bench.assert_nothing_runs()
        assert json.loads((out / "trials" / "0001" / "trial.json").read_text())["status"] == "failed"
        filler.unlink()
        # The disk is as it was: the same command goes on, with a shorter study so as not to wait.
        done = bench.run("bench", *SMALL, *GENTLE, "--workload", "select-only", "--out", str(elsewhere.folder / "next"))
        assert done.returncode == 0, done.stderr

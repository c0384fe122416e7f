"""kill -9 at any instant, and a disk that fills up: nothing finished is lost, nothing stays behind, and it goes on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.program import GENTLE, SMALL, Bench, some_bench
from tests.cli.test_watch import read_address
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def finished(record: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in record.glob("trials/[0-9][0-9][0-9][0-9]/trial.json")}


def chosen_instants() -> list[str]:
    """Names below the bench's folder that appear when a stage has begun: initdb, loading, a load, the next copy, a report."""
    return [
        "home/work/data",
        "out/init/pgbench.stderr",
        "out/trials/0001/os.jsonl",
        "out/trials/0002/trial.json",
        "out/report.json",
    ]


def random_instants() -> list[float]:
    """As many seconds as PGDYNO_KILLS says. Most lie within a trial; some in starting, loading, copying and reporting."""
    draw = random.Random(20261121)
    return [draw.uniform(0.2, 7.0) for _ in range(int(os.environ.get("PGDYNO_KILLS", "0")))]


def await_instant(bench: Bench, process: subprocess.Popen[str], instant: str | float) -> None:
    """Wait until the instant has come; the program may have ended before one that is a time."""
    if isinstance(instant, float):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=instant)
        return
    place = bench.folder / instant
    # What is there while a trial runs may have come and gone before anybody looked.
    signs = (place, place.with_name("trial.json"))
    assert wait_until(lambda: any(one.exists() for one in signs) or process.poll() is not None, within_s=600)
    assert process.poll() is None or any(one.exists() for one in signs), instant


def test_kill_9_at_any_instant_loses_nothing_finished() -> None:
    with some_bench() as bench:
        record = bench.folder / "out"
        begin = ["bench", "--workload", "select-only", "--workload", "simple-update", *SMALL, *GENTLE]
        begin += ["--rounds", "2", "--out", "out"]
        kept: dict[str, bytes] = {}
        for number, instant in enumerate([*chosen_instants(), *random_instants()]):
            if record.exists() and not (record / "record.json").exists():
                shutil.rmtree(record)
            command = ["resume", "out"] if record.exists() else begin
            with bench.started(*command) as process:
                await_instant(bench, process, instant)
                process.kill()
                process.wait()
            bench.assert_nothing_runs()
            now = finished(record)
            assert {name: now.get(name) for name in kept} == kept
            kept = now
            if len(kept) == 4 and process.returncode == 0:
                # It got through before: begin again beside it.
                shutil.move(record, bench.folder / f"done-{number}")
                kept = {}
        done = bench.run(*(["resume", "out"] if (record / "record.json").exists() else begin))
        assert done.returncode == 0, done.stderr
        report = json.loads((record / "report.json").read_text())
        assert sum(len(workload["trials"]) for workload in report["workloads"]) == 4
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
            subprocess.run(["umount", "--lazy", str(mount)], check=True)


def read_whole(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=600) as answer:
        content: bytes = answer.read()
        return content


def test_a_disk_that_fills_up_midway(small_disk: Path) -> None:
    with some_bench() as elsewhere:
        bench = Bench(small_disk)
        out = elsewhere.folder / "out"
        # It ends when the disk is full.
        long = ("--duration", "60s", "--workload", "tpcb-like", "--out", str(out))
        with bench.started("bench", *SMALL, *long, "--live") as process, ThreadPoolExecutor() as threads:
            address = read_address(process.stderr)
            page = threads.submit(read_whole, f"{address}events")
            assert wait_until((out / "trials" / "0001" / "os.jsonl").exists)
            filler = small_disk / "filler"
            # As much as there is, in pieces that get smaller, because the server takes some meanwhile.
            for size in (1 << 30, 1 << 26, 1 << 22, 1 << 18, 1 << 14):
                with filler.open("ab") as file, contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
            _, stderr = process.communicate(timeout=600)
        assert process.returncode == 4, stderr
        assert "No space left on device" in stderr
        assert "the disk is full" in stderr
        assert b'"state":"unfinished"' in page.result().rpartition(b"event: course")[2]
        bench.assert_nothing_runs()
        assert json.loads((out / "trials" / "0001" / "trial.json").read_text())["status"] == "failed"
        filler.unlink()
        # The disk is as it was: the same command goes on, with a shorter study so as not to wait.
        done = bench.run("bench", *SMALL, *GENTLE, "--workload", "select-only", "--out", str(elsewhere.folder / "next"))
        assert done.returncode == 0, done.stderr

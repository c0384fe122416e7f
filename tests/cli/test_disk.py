"""`pgdyno disk` as a user runs it: one real measurement and all that its card is for, bad input, Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.disk.card import iops_of
from pgdyno.analyse.disk.entries import DiskFigureKey
from pgdyno.record.device.disk_card import read_card
from pgdyno.report.documents.disk import DiskComparisonDocument, DiskDocument
from tests.cli.program import Bench, run_here, some_bench
from tests.disk_cards import make_card
from tests.ready_program import run_program
from tests.waiting import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def run_disk(
    *arguments: str, cwd: Path, prefix: Sequence[str] = (), home: Path | None = None, width: int = 80
) -> subprocess.CompletedProcess[str]:
    return run_program(
        arguments,
        prefix=prefix,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env={**os.environ, "COLUMNS": str(width), "NO_COLOR": "1", "PGDYNO_HOME": str(home or cwd / "home")},
    )


@pytest.fixture
def bench() -> Iterator[Bench]:
    with some_bench() as made:
        yield made


@pytest.mark.cluster
def test_a_disk_is_measured_and_its_card_is_used(bench: Bench) -> None:
    folder = bench.folder / "data"
    folder.mkdir()
    done = run_disk("disk", "--quick", str(folder), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    assert f"{folder}: " in done.stderr.splitlines()[0]
    assert re.search(
        r"\d patterns of fio in 3 rounds, 0.75 s each, on a test file of \d+ MB that goes when", done.stderr
    )
    assert re.search(r"^about \d\d s$", done.stderr, re.MULTILINE)
    assert "so one client commits at most" in done.stdout
    assert not list(folder.iterdir()), "nothing stays"
    bench.assert_nothing_runs()

    (file,) = (bench.folder / "pgdyno-disks").glob("*.json")
    assert done.stdout.rstrip().endswith(f"card: pgdyno-disks/{file.name}")
    assert "# Disk card of" in file.with_suffix(".md").read_text()
    card = read_card(file)
    assert {run.round for run in card.runs} == {0, 1, 2}
    assert (card.took_s or 0) > 10
    assert card.clock
    assert set(card.tools) == {"fio", "PostgreSQL"}

    def read(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_here(arguments, cwd=bench.folder, PGDYNO_HOME=str(bench.home))

    shown = read("disk", "--show", str(file), "--host", "c7g.2xlarge", "--json")
    assert shown.returncode == 0, shown.stderr
    (document,) = msgspec.json.decode(shown.stdout, type=DiskDocument).cards
    found = {entry.key: entry.estimate for entry in document.entries}
    assert {
        DiskFigureKey.RANDOM_READ,
        DiskFigureKey.SEQUENTIAL_WRITE,
        DiskFigureKey.FLUSHES,
        DiskFigureKey.READ_P99,
    } <= set(found)
    # A run in which the disk stood still has no rate.
    still_count = sum(not iops_of(run) for run in card.runs)
    assert all(3 - still_count <= estimate.n <= 3 for estimate in found.values())
    assert document.efficiencies

    other = bench.folder / "other.json"
    shutil.copy(file, other)
    alike = read("disk", "--compare", str(file), str(other), "--json")
    comparison = msgspec.json.decode(alike.stdout, type=DiskComparisonDocument)
    assert {one.ratio.value for one in comparison.differences} == {1.0}

    tuned = json.loads(read("tune", "--json").stdout)
    flush = tuned["tuning"]["subject"]["disk"]["flush_s"]
    assert flush["origin"] == "measured"
    assert flush["value"] == pytest.approx(1 / (found[DiskFigureKey.FLUSHES].value or 0))
    assert f"disk card of {card.made_at:%Y-%m-%d}, {bench.home}/disks/" in flush["how"]
    assert tuned["tuning"]["subject"]["clock_read_s"]["value"] == pytest.approx(card.clock.read_ns * 1e-9)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("--compare", "card.json"), 2, "a comparison takes two disk cards or more"),
        (
            ("--compare", "--quick", "--install", "card.json"),
            2,
            "--compare measures nothing: leave out --quick, --install",
        ),
        (("--show", "--file-size", "1GB", "--run-time", "2s", "card.json"), 2, "leave out --file-size, --run-time"),
        ((".", "--file-size", "1MB"), 2, "--file-size 1 MB is too small"),
        ((".", "--file-size", "1"), 2, "--file-size 1: it has no unit"),
        ((".", "--run-time", "2h"), 2, "--run-time 7200 s is too short or too long"),
        ((".", "--file-size", "500TB"), 3, "has too little space for a test file of 500 TB"),
        (("card.json",), 2, "card.json is no folder"),
        ((".", "--out", "card.json"), 3, "card.json exists already"),
        ((".", "--out", "page.json"), 3, "page.md exists already"),
        ((".", "home", "--out", "new.json"), 2, "new.json is one file, for 2 paths"),
        ((".", "--out", "card.json/cards"), 3, "cannot write a card to card.json/cards"),
        (("--layout", "--form", "commands"), 2, "--form commands goes with --layout and --host only"),
        (("--host", "c7g.2xlarge", "--form", "commands"), 2, "--form commands goes with --layout and --host only"),
        (("--layout", "--form", "command"), 2, "--form command: not one of table, commands"),
    ],
)
def test_what_it_does_not_take(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], exit_code: int, words: str
) -> None:
    folder = bench.folder
    bench.home.mkdir()
    (folder / "page.md").write_text("of somebody else")
    (folder / "card.json").write_bytes(msgspec.json.encode(make_card()))
    monkeypatch.setenv("PGDYNO_HOME", str(bench.home))
    done = run_here(["disk", *arguments, "--json"], cwd=folder)
    assert done.returncode == exit_code, done.stderr
    error = json.loads(done.stdout)["error"]
    assert words in error["fact"]
    assert error["exit_code"] == exit_code
    assert not (folder / "pgdyno-disks").exists()


def test_the_commands_that_make_a_layout_are_printed(tmp_path: Path) -> None:
    (tmp_path / "db1.toml").write_text('cpus = 8\nmemory = "64GB"\n[disk]\nkind = "local-ssd"\ncount = 2\nraid = 1\n')
    done = run_here(["disk", "--layout", "--host", "db1.toml", "--form", "commands"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/bin/sh\n")
    assert "--level=1" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["db1.toml"]


@needs_root
def test_a_file_system_that_is_read_only(bench: Bench) -> None:
    inside = f'mount --bind {bench.folder} {bench.folder} && mount -o remount,ro,bind {bench.folder} && exec "$@"'
    try:
        subprocess.run(["unshare", "-m", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        pytest.skip(f"no mount namespace here: {exc}")
    with some_bench() as elsewhere:
        prefix = ["unshare", "-m", "sh", "-c", inside, "sh"]
        done = run_disk("disk", str(bench.folder), cwd=elsewhere.folder, prefix=prefix)
    assert done.returncode == 3, done.stderr
    assert "is on a file system that is read-only" in done.stderr


@contextlib.contextmanager
def begun(bench: Bench, **others: str) -> Iterator[subprocess.Popen[bytes]]:
    (bench.folder / "data").mkdir()
    with (
        (bench.folder / "said").open("w") as said,
        subprocess.Popen(
            [sys.executable, "-m", "pgdyno", "disk", "--quick", str(bench.folder / "data")],
            cwd=bench.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, "PGDYNO_HOME": str(bench.home), "COLUMNS": "200", **others},
        ) as process,
    ):
        yield process


@pytest.mark.cluster
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_what_is_stopped_leaves_nothing(bench: Bench, sign: signal.Signals) -> None:
    with begun(bench) as process:
        assert wait_until(lambda: "laying out" in (bench.folder / "said").read_text())
        process.send_signal(sign)
        process.wait(timeout=600)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}[sign]
    bench.assert_nothing_runs()
    assert not list((bench.folder / "data").iterdir())
    assert not list((bench.folder / "pgdyno-disks").iterdir())


@pytest.mark.cluster
def test_without_fio_only_flushes_are_measured(bench: Bench) -> None:
    """A machine without fio is one whose PATH leads to none."""
    programs = bench.folder / "bin"
    programs.mkdir()
    for name in ("setpriv", "test"):
        (programs / name).symlink_to(shutil.which(name) or "")
    with begun(bench, PATH=str(programs)) as process:
        assert wait_until(lambda: "pg_test_fsync, on a test file" in (bench.folder / "said").read_text())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=600)
    said = (bench.folder / "said").read_text()
    words = "fio is missing: only flushes are measured, by pg_test_fsync, which takes 16 s also with --quick"
    assert f"{words}; `pgdyno disk --install` gets fio" in said
    assert process.returncode == 130

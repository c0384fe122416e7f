"""`pgdyno compare` as users run it: a planted difference is found, and what cannot be compared is said."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from pgdyno.record.store import open_record
from pgdyno.report.documents.report import make_schema
from pgdyno.run.host.facts import read_host_facts
from tests.cli.experiments import (
    GENTLE,
    QUICK_COMMITS,
    SLOW_COMMITS,
    finished_trials,
    read_report,
    verdict_of,
    write_study,
)
from tests.cli.program import Bench
from tests.rows import check_rows

pytestmark = pytest.mark.cluster

SLOW = f'name = "slow"\nsettings = {{ {SLOW_COMMITS} }}'
QUICK = f'name = "quick"\nsettings = {{ {QUICK_COMMITS} }}'


def test_a_planted_difference_is_found_early_and_the_record_alone_says_so_again(bench: Bench) -> None:
    server = '[server]\nkind = "local"\nversion = 15'
    done = bench.run("run", write_study(bench, SLOW, QUICK, server=server), "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, make_schema())
    verdict = verdict_of(document, "quick")
    assert verdict["kind"] == "faster"
    # An estimate that later pairs have moved out of the interval stands at its end.
    assert 0 < verdict["low_ratio"] <= verdict["effect_ratio"] <= verdict["high_ratio"]
    assert verdict["low_ratio"] < verdict["high_ratio"]
    (trial,) = finished_trials(bench.folder / "out")
    assert trial["load_end_monotonic_s"] - trial["load_start_monotonic_s"] < trial["planned"]["duration_s"] / 2
    bench.assert_nothing_runs()
    # All that is left is the record; nothing is left to ask, so that a resumed study only writes the report.
    assert read_report(bench.folder / "out") == document
    shutil.rmtree(bench.home)
    for again in ("report", "resume"):
        (bench.folder / "out" / "report.json").unlink()
        done = bench.read(again, "out")
        assert done.returncode == 0, done.stderr
        assert "quick" in done.stdout
        assert ("nothing is left to measure" in done.stderr) == (again == "resume")
        assert read_report(bench.folder / "out") == document
    assert not bench.home.exists()


REFUSED: list[tuple[tuple[str, ...], list[str]]] = [
    (("--set", "commit_dely=5"), ["PostgreSQL 18 has no setting commit_dely", "did you mean commit_delay"]),
    (
        ("--set", "io_method=sync", "--set", "io_method=worker", "--server", "15"),
        ["PostgreSQL 15 has no setting io_method", "PostgreSQL 18 has it"],
    ),
    (("--set", "commit_delay=0", "--set", "commit_delay=5", "--minutes", "0.1"), ["0.1 is not within 0.5"]),
    (("--server", "15", "--server", "embedded", "--design", "switchback"), ["server cannot change"]),
    (("--sysctl", "vm.swapiness=5"), ["no setting 'vm.swapiness'", "did you mean vm.swappiness"]),
    (("--set", "work_mem=lots"), ["work_mem cannot be lots", "is not a number", "for example work_mem=4MB"]),
    (("--set", "shared_buffers=900TB"), ["shared_buffers cannot be 900TB", "for example shared_buffers=128MB"]),
    (
        ("--set", "shared_buffers=1MB", "--set", "shared_buffers=2MB", "--minutes", "1"),
        ["1 minute is too few for a verdict", "s a round", "--minutes "],
    ),
    (("--clients", "abc"), ["--clients abc"]),
    (
        ("--set", "commit_delay=5", "--failover", "fire", "--standbys", "1"),
        ["--failover: 'fire'", "one of crash, stop"],
    ),
    (("--set", "commit_delay=5", "--failover", "crash"), ["a failover needs a standby", "--standbys 1"]),
    (
        ("--set", "commit_delay=5", "--failover", "stop", "--standbys", "1", "--design", "switchback"),
        ["paired trials"],
    ),
]
if os.geteuid() == 0:  # other accounts may set none, whatever its value
    REFUSED.append((("--sysctl", "vm.swappiness=sixty"), ["vm.swappiness cannot be sixty", "now", "it takes a number"]))


def test_what_cannot_be_compared(bench: Bench) -> None:
    def check(row: tuple[tuple[str, ...], list[str]]) -> None:
        arguments, words = row
        done = bench.refuse("compare", *arguments, "--home", str(bench.home), "--out", "out")
        assert done.returncode == 2, done.stderr
        assert all(word in done.stderr for word in words), done.stderr
        # Before the machine is checked, and without a record.
        assert done.stderr.startswith("error: ")
        assert not (bench.folder / "out").exists()
        bench.assert_nothing_runs()

    check_rows(REFUSED, check)


def test_servers_that_get_no_memory(bench: Bench) -> None:
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1":
        pytest.skip("this kernel grants any memory: vm.overcommit_memory = 1")
    host = read_host_facts(bench.folder)
    too_large = f"{(host.memory_bytes + host.swap_bytes) // 2**30 + 8}GB"
    own = ("--home", str(bench.home), "--out", "out", "--no-disk", "--yes")
    done = bench.refuse("compare", "--set", f"shared_buffers={too_large}", "--set", "shared_buffers=64MB", *own)
    assert done.returncode == 3, done.stderr
    assert "error: the server would not start: the kernel refuses that much shared memory" in done.stderr
    assert "hint: lower shared_buffers" in done.stderr
    assert not (bench.folder / "out").exists()

    done = bench.refuse("compare", "--set", "shared_buffers=64MB", "--set", f"shared_buffers={too_large}", *own)
    assert done.returncode == 2, done.stderr
    assert f"shared_buffers={too_large}: The server would not start" in done.stderr
    assert "only the reference starts: there is nothing to compare" in done.stderr
    assert "with huge_pages = on, a larger vm.nr_hugepages" in done.stderr or "Cannot allocate memory" in done.stderr
    bench.assert_nothing_runs()


def test_the_minutes_that_are_suggested_are_enough(bench: Bench) -> None:
    def plan(minutes: float) -> tuple[int, str]:
        study = write_study(bench, 'name = "a"', 'name = "b"\nsettings = { shared_buffers = "1MB" }', minutes=minutes)
        done = bench.read("plan", study)
        return done.returncode, done.stderr

    code, said = plan(0.5)
    assert code == 2
    assert "0.5 minutes are too few for a verdict" in said
    suggested = int(said.partition("--minutes ")[2].partition(",")[0])
    assert plan(suggested) == (0, "")


def test_the_final_look_is_made_when_the_planned_blocks_have_run(bench: Bench) -> None:
    # Nothing can be decided: the verdicts would be false for one of 10,000 such studies, and ±0.1 % is out of reach.
    study = write_study(
        bench, 'name = "a"', 'name = "b"\nsettings = { work_mem = "4096kB" }', minutes=0.7, confidence="99.99%",
        experiment='design = "switchback"\ndetect = "0.1%"\n', load=GENTLE,
    )  # fmt: skip
    done = bench.run("run", study, "--out", "looked")
    assert done.returncode == 0, done.stderr
    record = open_record(bench.folder / "looked").read_record()
    assert record.final_looks == {"tpcb-like": len(record.plan.trials)}
    verdict = verdict_of(read_report(bench.folder / "looked"), "b")
    assert verdict["final_look"]["is_made"]
    assert verdict["final_look"]["n"] == verdict["n"]
    assert "final look at tpcb-like: b inconclusive" in done.stderr
    assert "The variants plan all 5 statements alike." in (bench.folder / "looked/report.md").read_text()
    assert "Plans differ" not in done.stdout
    assert "nothing is left to measure" in bench.read("resume", "looked").stderr


def test_servers_that_do_not_start(empty_bench: Bench) -> None:
    (empty_bench.folder / "small.conf").write_text("shared_buffers = 1MB\n")
    (empty_bench.folder / "wrong.conf").write_text("wal_level = minimal\n")
    options = ("--home", str(empty_bench.home), "--scale", "1", "--clients", "1")
    done = empty_bench.run("compare", "small.conf", "wrong.conf", *options, "--out", "alone")
    assert done.returncode == 2
    assert "only the reference starts: there is nothing to compare" in done.stderr
    assert 'wrong.conf: WAL streaming ("max_wal_senders" > 0) requires "wal_level"' in done.stderr
    # It was heard of before anything was loaded.
    assert not list((empty_bench.home / "templates").iterdir())
    # No study could resume the record.
    assert "alone is removed: it has no trial" in done.stderr
    assert not (empty_bench.folder / "alone").exists()
    done = empty_bench.run("compare", "wrong.conf", "small.conf", "small.conf", *options, "--out", "reference")
    assert done.returncode == 2
    assert "the reference wrong.conf does not start" in done.stderr
    assert not (empty_bench.folder / "reference").exists()
    empty_bench.assert_nothing_runs()

"""`pgdyno compare` as users run it: a planted difference is found, and what cannot be compared is said."""

from __future__ import annotations

import json
import shutil

import jsonschema
import pytest

from pgdyno.report.documents.report import make_schema
from tests.cli.experiments import finished_trials, read_report, verdict_of, write_study
from tests.cli.program import Bench

pytestmark = pytest.mark.cluster

DURABLE = 'name = "durable"\nsettings = { synchronous_commit = "on" }'
QUICK = 'name = "quick"\nsettings = { synchronous_commit = "off" }'


@pytest.mark.parametrize(
    ("server", "again"),
    [("", "report"), ('[server]\nkind = "local"\nversion = 15', "resume")],
    ids=["18", "15"],
)
def test_a_planted_difference_is_found_early_and_the_record_alone_says_so_again(
    bench: Bench, server: str, again: str
) -> None:
    done = bench.run("run", write_study(bench, DURABLE, QUICK, server=server), "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, make_schema())
    verdict = verdict_of(document, "quick")
    assert verdict["kind"] == "faster"
    assert 0 < verdict["low_ratio"] < verdict["effect_ratio"] < verdict["high_ratio"]
    (trial,) = finished_trials(bench.folder / "out")
    assert trial["load_end_monotonic_s"] - trial["load_start_monotonic_s"] < trial["planned"]["duration_s"] / 2
    bench.assert_nothing_runs()
    # All that is left is the record; nothing is left to ask, so that a resumed study only writes the report.
    assert read_report(bench.folder / "out") == document
    shutil.rmtree(bench.home)
    (bench.folder / "out" / "report.json").unlink()
    done = bench.run(again, "out")
    assert done.returncode == 0, done.stderr
    assert "quick" in done.stdout
    assert ("nothing is left to measure" in done.stderr) == (again == "resume")
    assert read_report(bench.folder / "out") == document
    assert not bench.home.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--set", "commit_dely=5"), 2, ["PostgreSQL 18 has no setting commit_dely", "did you mean commit_delay"]),
        (
            ("--set", "io_method=sync", "--set", "io_method=worker", "--server", "15"),
            2,
            ["PostgreSQL 15 has no setting io_method", "PostgreSQL 18 has it"],
        ),
        (("--set", "commit_delay=0", "--set", "commit_delay=5", "--minutes", "0.1"), 2, ["0.1 is not within 0.5"]),
        (("--server", "15", "--server", "embedded", "--design", "switchback"), 2, ["server cannot change"]),
        (("--sysctl", "vm.swapiness=5"), 2, ["no setting 'vm.swapiness'", "did you mean vm.swappiness"]),
    ],
)
def test_what_cannot_be_compared(bench: Bench, arguments: tuple[str, ...], code: int, words: list[str]) -> None:
    done = bench.run("compare", *arguments, "--home", str(bench.home), "--out", "out")
    assert done.returncode == code, done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
    bench.assert_nothing_runs()


def test_the_minutes_that_are_suggested_are_enough(bench: Bench) -> None:
    def plan(minutes: float) -> tuple[int, str]:
        study = write_study(bench, 'name = "a"', 'name = "b"\nsettings = { shared_buffers = "1MB" }', minutes=minutes)
        done = bench.run("plan", study)
        return done.returncode, done.stderr

    code, said = plan(0.5)
    assert code == 2
    assert "0.5 minutes are too few for a verdict" in said
    suggested = int(said.partition("--minutes ")[2].partition(",")[0])
    assert plan(suggested) == (0, "")


def test_servers_that_do_not_start(empty_bench: Bench) -> None:
    (empty_bench.folder / "huge.conf").write_text("shared_buffers = 900TB\n")
    (empty_bench.folder / "small.conf").write_text("shared_buffers = 1MB\n")
    (empty_bench.folder / "wrong.conf").write_text("wal_level = minimal\n")
    options = ("--home", str(empty_bench.home), "--scale", "1", "--clients", "1")
    done = empty_bench.run("compare", "small.conf", "wrong.conf", *options, "--out", "alone")
    assert done.returncode == 2
    assert "only the reference starts: there is nothing to compare" in done.stderr
    assert 'wrong.conf: WAL streaming ("max_wal_senders" > 0) requires "wal_level"' in done.stderr
    # It was heard of before anything was loaded.
    assert not list((empty_bench.home / "templates").iterdir())
    done = empty_bench.run("compare", "wrong.conf", "small.conf", "huge.conf", *options, "--out", "reference")
    assert done.returncode == 2
    assert "the reference wrong.conf does not start" in done.stderr
    assert "huge.conf: the server refuses a setting" in done.stderr
    empty_bench.assert_nothing_runs()

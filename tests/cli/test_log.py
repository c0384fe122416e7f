"""`pgdyno.log` of a real record: what pgdyno did, in the order in which it did it."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.cli.program import GENTLE, SMALL, Bench, some_bench

pytestmark = pytest.mark.cluster

STORY = (
    "pgdyno ",
    "step begins: check",
    "step ends: check",
    "plan: scale 2, 1 trials",
    "step begins: load scale 2",
    "pgbench --initialize",
    "step begins: trial 1/1 select-only",
    "trial 1: data restored",
    "/postgres -D ",
    "answers after",
    "trial 1: the measured load begins",
    "pgbench --no-vacuum",
    "ended after",
    "the study ends",
)


def test_the_log_of_a_bench_tells_what_was_done_and_when(monkeypatch: pytest.MonkeyPatch) -> None:
    # An empty home, so that data are loaded.
    with some_bench() as bench:
        check_log(bench, monkeypatch)


def check_log(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "not-for-the-log")
    before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
    done = bench.run("bench", "--workload", "select-only", *SMALL, *GENTLE)
    assert done.returncode == 0, done.stderr
    text = (bench.record / "pgdyno.log").read_text()
    lines = text.splitlines()
    found = iter(lines)
    missing = [words for words in STORY if not any(words in line for line in found)]
    assert not missing, text
    times = [dt.datetime.fromisoformat(line.split()[0]) for line in lines]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= dt.datetime.now(dt.UTC)
    assert "not-for-the-log" not in text
    assert len(lines) < 150

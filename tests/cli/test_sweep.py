"""`pgdyno sweep` as users run it: a verdict for each level, and what cannot be swept is said."""

from __future__ import annotations

import pytest

from tests.cli.experiments import SLOW_COMMITS, THINKING, finished_trials, read_report, verdict_of, write_study
from tests.cli.program import Bench
from tests.rows import check_rows

pytestmark = pytest.mark.cluster


def test_each_level_gets_its_verdict_against_the_first(bench: Bench) -> None:
    sweep = '[[sweep]]\nname = "synchronous_commit"\nlevels = ["off", "on", "local"]'
    # Commits that wait for the disk sleep, too, so that few rounds decide.
    server = f"[server]\nsettings = {{ {SLOW_COMMITS} }}\n{sweep}"
    done = bench.run("run", write_study(bench, server=server), "--out", "out")
    assert done.returncode == 0, done.stderr
    report = read_report(bench.folder / "out")
    levels = {f"synchronous_commit={level}" for level in ("off", "on", "local")}
    assert {variant["name"] for variant in report["experiment"]["arms"]} == levels
    for level in ("on", "local"):
        verdict = verdict_of(report, f"synchronous_commit={level}")
        assert verdict["kind"] == "slower"
        assert f"synchronous_commit={level} slower" in done.stderr
    # What loses commits is said to, wherever it is compared.
    assert [variant["is_durable"] for variant in report["experiment"]["arms"]] == [False, True, True]
    (trial,) = finished_trials(bench.folder / "out")
    assert trial["planned"]["arms"] == [f"synchronous_commit={level}" for level in ("off", "on", "local")]
    bench.assert_nothing_runs()


def test_every_load_gets_its_status(bench: Bench) -> None:
    # Loads that differ by less than 85 % are the same here: three rounds show it also on a busy machine. Of clients that
    # think, four do a third more than three.
    (bench.folder / "thinking.sql").write_text(THINKING)
    options = ("--duration", "1s", "--warm-up", "0s", "--scale", "4", "--detect", "85%", "--minutes", "6")
    options = (*options, "--workload", "thinking.sql")
    done = bench.run("sweep", "clients=3,4", *options, "--out", "out", "--home", str(bench.home))
    assert done.returncode == 0, done.stderr
    (comparison,) = read_report(bench.folder / "out")["experiment"]["comparisons"]
    points = [(point["clients"], point["status"]) for point in comparison["sweep"]["points"]]
    assert points == [(3, "peak"), (4, "peak")]
    trials = finished_trials(bench.folder / "out")
    first = sorted(trial["planned"]["arms"][0] for trial in trials if trial["planned"]["round"] == 1)
    assert first == ["clients=3", "clients=3", "clients=4"]
    bench.assert_nothing_runs()


REFUSED = [
    (("clients",), "clients is no axis"),
    (("commit_dely=0,50",), "did you mean commit_delay"),
    (("clients=1,200",), "200 clients do not fit into max_connections"),
    (("a=1,2", "b=1,2", "c=1,2"), "3 axes: two are the most"),
]


def test_what_cannot_be_swept(bench: Bench) -> None:
    def check(row: tuple[tuple[str, ...], str]) -> None:
        arguments, words = row
        done = bench.refuse("sweep", *arguments, "--home", str(bench.home))
        assert done.returncode == 2, done.stderr
        assert words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not bench.records
        bench.assert_nothing_runs()

    check_rows(REFUSED, check)

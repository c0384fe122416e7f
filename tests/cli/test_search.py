"""`pgdyno sweep 'latency<...'` as users run it: the rate that holds, Ctrl-C in between, and a limit that nothing holds."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from pgdyno.plan.types import PlannedTrial
from pgdyno.record.running_trial import read_planned
from tests.cli.experiments import THINKING, finished_trials, read_report
from tests.cli.program import Bench
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

SMALL = (
    "--scale",
    "2",
    "--clients",
    "2",
    "--duration",
    "1s",
    "--warm-up",
    "0s",
    "--confidence",
    "50%",
    "--detect",
    "50%",
)


def sweep(bench: Bench, limit: str, *options: str) -> list[str]:
    (bench.folder / "thinking.sql").write_text(THINKING)
    return ["sweep", limit, *SMALL, *options, "--workload", "thinking.sql", "--out", "out", "--home", str(bench.home)]


def found(bench: Bench) -> dict[str, Any]:
    (workload,) = read_report(bench.folder / "out")["search"]["workloads"]
    found: dict[str, Any] = workload["found"]
    return found


def test_it_goes_on_where_ctrl_c_stopped_it(bench: Bench) -> None:
    trials = bench.folder / "out" / "trials"
    # In a second no queue becomes so long: all rates hold, and few trials say so on a busy machine, too.
    with bench.started(*sweep(bench, "latency<250ms@p50", "--minutes", "5")) as process:
        assert wait_until((trials / "0005" / "planned.json").exists)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert "trials" in stderr
    assert "pgdyno resume out" in stderr
    before = finished_trials(bench.folder / "out")
    assert [trial["planned"]["rate_tps"] for trial in before[:3]] == [None, None, None]
    assert before[3]["planned"]["rate_tps"] > 0
    bench.assert_nothing_runs()
    done = bench.run("resume", "out")
    assert done.returncode == 0, done.stderr
    after = finished_trials(bench.folder / "out")
    assert after[: len(before)] == before
    search = found(bench)
    assert search["answer"]["n"] == len(after) - 3
    assert search["answer"]["is_settled"]
    assert search["answer"]["holds_tps"] > 0
    probe = after[3]
    assert read_planned(trials / "0004") == msgspec.convert(probe["planned"], PlannedTrial)
    assert f"--rate={probe['planned']['rate_tps']}" in probe["argv"]
    assert "--latency-limit=250.0" in probe["argv"]
    # A record that is settled has nothing left to measure, and its report is the same.
    again = bench.read("resume", "out")
    assert "nothing is left to measure" in again.stderr
    assert found(bench) == search
    bench.assert_nothing_runs()


def test_a_limit_that_nothing_holds_on_the_distributions_server(bench: Bench) -> None:
    done = bench.run(*sweep(bench, "latency<0.1ms@p50", "--server", "15", "--minutes", "5"))
    assert done.returncode == 0, done.stderr
    assert "does not hold p50 < 0.1 ms even at" in done.stdout
    search = found(bench)
    assert search["answer"]["holds_tps"] is None
    assert search["answer"]["fails_tps"] == search["lowest_tps"]
    assert all(level["held_count"] == 0 for level in search["levels"])
    trial = search["levels"][0]["trials"][0]["misses"]
    # By chance, and on average one trial's seconds times the rate.
    assert trial["scheduled_count"] >= 0.1 * search["lowest_tps"]
    assert "p50 &lt; 0.1 ms" in (bench.folder / "out" / "report.html").read_text()
    bench.assert_nothing_runs()


def test_what_the_shell_made_of_the_limit_is_an_error_in_words(bench: Bench) -> None:
    done = bench.refuse(*sweep(bench, "latency"))
    assert done.returncode == 2
    assert "the limit needs quotes" in done.stderr
    assert not bench.records

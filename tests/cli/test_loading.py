"""`--workload init` as users run it: the load is `pgbench -i` itself, also after a kill, and the report has its steps."""

from __future__ import annotations

import json
import signal

import pytest

from pgdyno.run.load.watch import LoadWatch
from tests.cli.experiments import finished_trials, read_report
from tests.cli.program import Bench

STUDY = """
[data]
scale = 1
generate = "server"
foreign_keys = true
[[workload]]
name = "init"
[[variant]]
settings = { maintenance_work_mem = "1MB" }
[[variant]]
settings = { maintenance_work_mem = "64MB" }
checksums = false
[experiment]
minutes = 0.9
extra_rounds = false
"""
ROWS = 100_000


@pytest.mark.cluster
def test_loading_is_compared_by_its_steps_also_after_a_kill(bench: Bench) -> None:
    record = bench.folder / "out"
    (bench.folder / "study.toml").write_text(STUDY)
    with bench.started("run", "study.toml", "--yes", "--out", "out", stops_at=LoadWatch.find_failure) as process:
        assert process.stands_still((record / "trials/0002/pgbench.stderr").exists), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    done = bench.run("resume", "out")
    assert done.returncode == 0, done.stderr
    trials = finished_trials(record)
    assert len(trials) >= 3, "a round holds three"
    for trial in trials:
        assert {"--initialize", "--init-steps=dtGvpf", "--scale=1"} <= set(trial["argv"])
        assert trial["tables_before"] == [], "each trial begins with an empty database"
        assert {one["name"]: one["live_rows"] for one in trial["tables_after"]}["pgbench_accounts"] == ROWS
        assert trial["checkpoint_s"] > 0
        assert {one["value"] for one in trial["settings"] if one["name"] == "maintenance_work_mem"} <= {"1024"}
    report = read_report(record)
    (comparison,) = report["experiment"]["comparisons"]
    questions = {question["metric"]: question["verdict"] for question in comparison["questions"]}
    assert comparison["primary"] == "init_s"
    assert questions["init_s"]["n"] >= 1
    assert "tps" not in questions
    loaded = [
        trial for workload in report["workloads"] for trial in workload["trials"] if trial["status"] == "finished"
    ]
    steps = {
        "init_s",
        "init_tables_s",
        "init_generate_s",
        "init_vacuum_s",
        "init_primary_keys_s",
        "init_foreign_keys_s",
    }
    assert all(steps | {"init_checkpoint_s"} == set(trial["init_s"]) for trial in loaded)
    page = (record / "report.md").read_text()
    assert "Steps of loading" in page
    assert "Not recorded" not in page
    assert {gap["source"] for trial in loaded for gap in trial["gaps"]} <= {"os sampler", "server sampler"}


def test_what_options_cannot_say_is_refused(bench: Bench) -> None:
    base = ("compare", "--workload", "init", "--set", "work_mem=4MB", "--set", "work_mem=8MB")
    rows = [
        (("--duration", "5s"), "--duration makes no sense with --workload init"),
        (("--warm-up", "1s"), "--warm-up makes no sense with --workload init"),
        (("--init-steps", "vp"), "--init-steps vp: not one of dtgvp, dtgvpf, dtGvp, dtGvpf"),
        (("--dsn", "host=nowhere"), "the workload init is not for a server of yours"),
    ]
    for words, said in rows:
        done = bench.refuse(*base, *words)
        assert done.returncode == 2, words
        assert said in done.stderr, words
    plan = bench.folder / "study.toml"
    plan.write_text(STUDY)
    steps = json.loads(bench.read("plan", str(plan), "--json").stdout)["plan"]["steps"]
    assert any(step["trial"] for step in steps)

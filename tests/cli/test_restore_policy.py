"""`--restore` and `--restore-command` as users run them: what a kill leaves is put right, and the report says what was done."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from pgdyno.record.device.disk_card import keep_card
from pgdyno.run.host.clock import local_now
from pgdyno.run.measured_load import _Observers
from tests.cli.experiments import finished_trials
from tests.cli.program import GENTLE, SMALL, Bench
from tests.disk_cards import make_card, seen_here

COPY = 'rm -rf "$PGDYNO_DATA"; cp -a "$PGDYNO_TEMPLATE" "$PGDYNO_DATA"; echo "$PGDYNO_SLOT" >> "${0%/*}/calls"'


def write_script(folder: Path) -> None:
    script = folder / "restore.sh"
    script.write_text(f"#!/bin/sh\nset -eu\n{COPY}\n")
    script.chmod(0o755)


@pytest.mark.cluster
@pytest.mark.parametrize("policy", ["none", "command"])
def test_a_study_goes_on_after_a_kill(bench: Bench, policy: str) -> None:
    record = bench.folder / "out"
    write_script(bench.folder)
    words = ["--restore", "none"] if policy == "none" else ["--restore-command", "./restore.sh"]
    long = ("--rounds", "3", "--warm-up", "0s", "--duration", "2s")
    begin = ["bench", *SMALL, *GENTLE, *long, "--workload", "simple-update", *words]
    keep_card(make_card(**seen_here(bench.folder), made_at=local_now()), bench.home)
    with bench.started(*begin, "--out", "out", stops_at=_Observers.follow) as process:
        assert process.stands_still((record / "trials/0002/os.jsonl").exists), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    done = bench.run("resume", "out")
    assert done.returncode == 0, done.stderr
    study = bench.folder / "study.toml"
    times = '[trials]\nwarm_up = "0s"\nduration = "2s"\n'
    study.write_text(f'[data]\nscale = 2\n[[workload]]\nname = "simple-update"\n{times}')
    plan = json.loads(bench.read("plan", str(study), *words, "--home", str(bench.home), "--json").stdout)["plan"]
    assert plan["steps"][1] == {"kind": "load", "predicted_s": 0.0, "trial": None}, "the data are loaded"
    between = json.loads((record / "record.json").read_text())["plan"]["between"]
    assert between == plan["between"], "a bench that measures no disk knows the one that the home has a card of"
    assert (between["restore_s"] > 31e6 / 260e6) is (policy == "none"), "the card's disk writes 250 MB/s"
    trials = finished_trials(record)
    assert [trial["status"] for trial in trials] == ["finished"] * 3
    report = (record / "report.md").read_text()
    if policy == "command":
        # The second trial twice: before the kill and after it.
        assert (bench.folder / "calls").read_text().split() == ["main"] * 4
        assert "A command restored the data before each trial." in report
        return
    sizes = [
        {table["name"]: table["live_rows"] for table in trial["tables_before"]}["pgbench_history"] for trial in trials
    ]
    assert sizes[0] == sizes[1] == 0, "the kill leaves no state to begin with: the data are copied again"
    assert sizes[2] > 0
    assert "nothing was restored between trials" in report
    assert "with the data as the trial before left them" in report


def test_what_is_refused(bench: Bench) -> None:
    rows = [
        (("bench", "--restore", "never"), "--restore never: not one of copy, none"),
        (("bench", "--restore", "none", "--restore-command", "true"), "exclude each other"),
        (("bench", "--restore-command", "./none.sh"), "there is no program ./none.sh to restore the data with"),
        (
            ("bench", "--dsn", "host=nowhere", "--restore", "none"),
            "already determines these options: leave out ",
        ),
        (
            ("sweep", "clients=1,2", "--dsn", "host=nowhere", "--restore", "none"),
            "already determines these options: leave out ",
        ),
    ]
    for words, said in rows:
        done = bench.refuse(*words)
        assert done.returncode == 2, words
        assert said in done.stderr, words


def test_a_plan_says_how_long_a_trial_waits_for_its_data(bench: Bench) -> None:
    study = bench.folder / "study.toml"
    study.write_text('[data]\nscale = 1\n[[workload]]\nname = "select-only"\n')
    for words, policy in [((), "copy"), (("--restore", "none"), "none"), (("--restore-command", "true"), "command")]:
        done = bench.read("plan", str(study), *words, "--json")
        between = json.loads(done.stdout)["plan"]["between"]
        assert between["policy"] == policy
    assert "between trials" in bench.read("plan", str(study)).stdout

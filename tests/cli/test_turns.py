"""A sweep whose loads take turns on one server, as users run it: killed within a turn, resumed, and begun by a pgdyno of before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pgdyno.record.generators.turns import TURNS_DIR
from pgdyno.run.turn_member import _Turn
from tests.cli.experiments import THINKING, finished_trials, read_report, verdict_of
from tests.cli.program import Bench
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


def begin_as_before(record: Path) -> None:
    """Let a record be one of a pgdyno in which each load of a live round had a server of its own."""
    text = json.loads((record / "record.json").read_text())
    del text["plan"]["experiment"]["takes_turns"]
    (record / "record.json").write_text(json.dumps(text))


def test_a_sweep_that_is_killed_within_a_turn_leaves_nothing_and_is_finished(bench: Bench) -> None:
    # Loads that differ by less than 85 % are the same here: three rounds show it also on a busy machine.
    (bench.folder / "thinking.sql").write_text(THINKING)
    short = ("--duration", "2s", "--warm-up", "0s", "--scale", "4", "--detect", "85%", "--minutes", "6")
    out, older = bench.folder / "out", bench.folder / "older"
    words = ("sweep", "clients=3,4", *short, "--workload", "thinking.sql", "--out", "out", "--home", str(bench.home))
    with bench.started(*words, stops_at=_Turn._see) as process:
        assert process.stands_still(), process.communicate()
        assert bench.find_process("pgbench ") is not None
        process.kill()
        process.communicate()
    bench.assert_nothing_runs()
    assert wait_until(lambda: not list(Path("/dev/shm").glob(f"pgdyno-log-{process.pid}-*")))
    shutil.copytree(out, older)
    begin_as_before(older)
    for record, has_turns in ((out, True), (older, False)):
        done = bench.run("resume", record.name)
        assert done.returncode == 0, done.stderr
        bench.assert_nothing_runs()
        (comparison,) = read_report(record)["experiment"]["comparisons"]
        assert [(one["clients"], one["status"]) for one in comparison["sweep"]["points"]] == [(3, "peak"), (4, "peak")]
        rounds = [trial for trial in finished_trials(record) if trial["planned"]["round"] > 0]
        assert len(rounds) in range(6, 60, 3)
        folders = [record / f"trials/{trial['planned']['number']:04}" for trial in rounds]
        assert {(folder / TURNS_DIR).exists() for folder in folders} == {has_turns}
        # The one server of a round has its log with the round's first trial.
        assert [(folder / "server.log").exists() for folder in folders] == [
            not has_turns or place % 3 == 0 for place in range(len(folders))
        ]
        # What was cut short is set aside, and never analysed.
        assert list(record.glob(f"trials/*.cut-1/{TURNS_DIR}"))


def test_numbers_of_clients_are_compared_in_turns(bench: Bench) -> None:
    # Clients that think for so long that what a busy machine adds is little: twice as many do twice as much.
    (bench.folder / "thinking.sql").write_text(THINKING.replace("20 ms", "200 ms"))
    short = ("--duration", "2s", "--warm-up", "0s", "--scale", "4", "--detect", "90%", "--confidence", "50%")
    words = ("--clients", "2", "--clients", "4", *short, "--workload", "thinking.sql", "--out", "out")
    done = bench.run("compare", *words, "--home", str(bench.home))
    assert done.returncode == 0, done.stderr
    report = read_report(bench.folder / "out")
    assert report["experiment"]["design"] == "live"
    verdict = verdict_of(report, "clients=4")
    assert (verdict["kind"], verdict["effect_ratio"] > 0.5) == ("faster", True), verdict
    assert all(list((bench.folder / f"out/trials/{number:04}" / TURNS_DIR).iterdir()) for number in (3, 4, 5))
    bench.assert_nothing_runs()

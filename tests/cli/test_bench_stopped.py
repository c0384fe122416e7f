"""What happens to a study while it runs: it is stopped, its programs are killed, its script is changed, another begins."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pgdyno.run.cluster.server import Server
from pgdyno.run.load.watch import LoadWatch
from pgdyno.run.measured_load import _Observers
from tests.cli.program import GENTLE, SMALL, Bench
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
# Of a trial that is to be found under way, however late this process looks; one that is not run to its end costs nothing.
LONG, ENDLESS = ("--duration", "8s"), ("--duration", "10min")


def test_a_trial_whose_program_is_killed_is_repeated_once_and_the_next_command_works(loaded: Bench) -> None:
    first, second = (loaded.folder / "killed" / "trials" / number for number in ("0001", "0002"))
    set_aside = second.with_name("0002.cut-1")
    long = ("--workload", "tpcb-like", "--rounds", "2", *LONG, "--warm-up", "0s")
    with loaded.started("bench", *SMALL, *GENTLE, *long, "--out", "killed", stops_at=_Observers.follow) as process:
        for victim, tries in (("bin/postgres -D", 0), ("bin/pgbench --no-vacuum", 1)):

            def is_at_work(tries: int = tries) -> bool:
                return second.exists() and set_aside.exists() == bool(tries)

            assert process.stands_still(is_at_work), process.communicate()
            pid = loaded.find_process(victim)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            if not tries:
                process.send_signal(signal.SIGCONT)
        process.go_on()
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 4, stderr
    assert "the server was killed by SIGKILL" in stderr
    assert "repeating trial 2" in stderr
    assert "it was ended by SIGKILL" in stderr
    loaded.assert_nothing_runs()
    kept = (first / "trial.json").read_bytes()
    done = loaded.run("resume", "killed")
    assert done.returncode == 0, done.stderr
    assert (first / "trial.json").read_bytes() == kept
    report = json.loads((loaded.folder / "killed" / "report.json").read_text())
    assert len(report["workloads"][0]["trials"]) == 2


def test_a_stop_at_each_stage_leaves_nothing_and_resumes(empty_bench: Bench) -> None:
    command = ["bench", "--workload", "select-only", *SMALL, *GENTLE, "--out", "out"]
    stages: tuple[tuple[str, signal.Signals, Callable[..., object]], ...] = (
        ("home/work/data", signal.SIGINT, Server.initdb),
        ("out/init/pgbench.stderr", signal.SIGTERM, LoadWatch.find_failure),
        ("out/trials/0001/warm-up", signal.SIGINT, LoadWatch.find_failure),
        ("out/trials/0001/os.jsonl", signal.SIGTERM, LoadWatch.find_failure),
    )
    for stage, number, stops_at in stages:
        is_there = (empty_bench.folder / stage).exists
        assert not is_there()
        with empty_bench.started(*command, stops_at=stops_at) as process:
            # While initdb runs: it is only where this process comes late that the program stands still behind it.
            assert wait_until(is_there) if stops_at is Server.initdb else process.stands_still(is_there)
            process.send_signal(number)
            process.go_on()
            _, stderr = process.communicate(timeout=600)
        assert process.returncode == 130, stderr
        assert "Traceback" not in stderr
        empty_bench.assert_nothing_runs()
        assert not (empty_bench.home / "work" / "data").exists()
        assert not list(Path("/dev/shm").glob(f"pgdyno-log-{process.pid}-*"))
        assert "pgdyno resume out" in stderr
        assert "0/1 unfinished" in empty_bench.read("list", "--records", ".").stdout
        command = ["resume", "out"]
    done = empty_bench.run(*command)
    assert done.returncode == 0, done.stderr
    assert json.loads((empty_bench.folder / "out" / "record.json").read_text())["is_ended"] is True


def test_a_second_ctrl_c_while_the_first_is_obeyed(loaded: Bench) -> None:
    with loaded.started("bench", *SMALL, *GENTLE, *ENDLESS, "--out", "twice") as process:
        load = "bin/pgbench --no-vacuum"
        assert wait_until(lambda: loaded.find_process(load) is not None)
        process.send_signal(signal.SIGINT)
        # The server is ended after it, which takes a moment.
        assert wait_until(lambda: loaded.find_process(load) is None)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    assert "`pgdyno resume " in stderr
    loaded.assert_nothing_runs()


def test_a_script_is_run_as_it_was_when_the_study_began(loaded: Bench) -> None:
    script = loaded.folder / "mine.sql"
    script.write_text("SELECT 1;\n")
    long = ("--workload", str(script), "--rounds", "2", "--out", "scripted")
    with loaded.started("bench", *SMALL, *GENTLE, *long) as process:
        assert wait_until((loaded.folder / "scripted" / "trials" / "0001" / "os.jsonl").exists)
        script.write_text("SELECT no_such_column;\n")
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    # The study in the record needs neither the script's own file nor this machine to be the same again.
    script.unlink()
    assert "scale = 2" in (loaded.folder / "scripted" / "study.toml").read_text()
    again = loaded.read_json("plan", "scripted/study.toml")["plan"]["workloads"][0]
    assert again["scripts"][0][0].startswith(f"{loaded.folder}/scripted/scripts/")


def test_two_at_once(loaded: Bench) -> None:
    with loaded.started("bench", *SMALL, *GENTLE, *ENDLESS, "--out", "one"):
        assert wait_until((loaded.folder / "one" / "record.json").exists)
        assert wait_until(lambda: "being measured" in loaded.read("list", "--records", ".").stdout)
        done = loaded.refuse("bench", *SMALL, "--out", "two")
        assert done.returncode == 3
        assert "another pgdyno is at work" in done.stderr
        assert not (loaded.folder / "two").exists()
    loaded.assert_nothing_runs()

"""The server on one machine, the load from another, and pgdyno on a third: killed there in the middle, and resumed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from pgdyno.record.far import FarRecord, write_far
from pgdyno.record.store import open_record
from tests.cli.experiments import THINKING, finished_trials
from tests.cli.program import Bench, some_bench
from tests.hosts import Sshd
from tests.records import copy_record
from tests.run.test_load_hosts import left_overs
from tests.run.trees import is_alive
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
STUDY = """
[hosts.db]
role = "server"
ssh = "db1"
[hosts.load]
role = "load"
ssh = "db2"
[data]
scale = 1
[trials]
rounds = 1
duration = "6s"
warm_up = "0s"
[[workload]]
name = "think"
scripts = ["think.sql"]
clients = 2
"""


def is_killed_in_its_trial(bench: Bench, name: str, far: Path, before: set[str]) -> bool:
    """Kill a study here while its only trial runs there; return False if that had ended by then."""
    trial = f"*/{name}/trials/0001"
    running = f"{trial}/loads/load/load.json"
    with bench.started("run", "study.toml", "--out", name) as process:
        assert wait_until(lambda: process.poll() is not None or any(far.glob(running)))
        process.kill()
        _, said = process.communicate()
    assert process.returncode in {0, -signal.SIGKILL}, said
    bench.assert_nothing_runs()
    pids = [json.loads(path.read_text())["pid"] for path in far.glob(running)]
    assert wait_until(lambda: not any(map(is_alive, pids)))
    assert wait_until(lambda: left_overs() <= before)
    return bool(pids) and not any(far.glob(f"{trial}/trial.json"))


def test_a_study_between_two_machines_that_is_killed_here_stops_on_both_and_goes_on(carried: Sshd) -> None:
    with some_bench(is_empty=False) as bench:
        (bench.folder / "think.sql").write_text(THINKING)
        (bench.folder / "study.toml").write_text(STUDY)
        far, before = carried.home / "pgdyno-on", left_overs()
        mine = next(
            name for name in map("mine-{}".format, range(9)) if is_killed_in_its_trial(bench, name, far, before)
        )
        done = bench.run("resume", mine)
        assert done.returncode == 0, done.stderr
        bench.assert_nothing_runs()
        assert not [*far.glob(f"*/{mine}")]
        record = open_record(bench.folder / mine).read_record()
        assert [(host.name, host.ssh) for host in record.load_hosts] == [("load", "db2")]
        assert len(finished_trials(bench.folder / mine)) == 1
        assert [*(bench.folder / mine).glob("trials/*.cut-1")]


def test_load_hosts_are_reached_from_here_before_anything_begins_there(carried: Sshd) -> None:
    with some_bench() as bench:
        done = bench.run("bench", "--server-host", "db1", "--load-host", "unknown", "--quick")
        assert (done.returncode, "the host key of unknown is not known" in done.stderr) == (3, True), done.stderr
        words = ("--workload", "select-only", "--scale", "1", "--quick", "--server-address", "nowhere.invalid")
        done = bench.run("bench", "--server-host", "db1", "--load-host", "db2", *words)
        assert done.returncode == 3, done.stderr
        assert "error on db1: db2 does not reach the server" in done.stderr
        assert "--server-address" in done.stderr
        assert not bench.records


def test_a_study_goes_to_the_machine_of_its_server_and_to_no_other(carried: Sshd) -> None:
    with some_bench() as bench:
        (bench.folder / "study.toml").write_text(f'[server]\nkind = "local"\nbindir = "/nowhere/bin"\n{STUDY}')
        (bench.folder / "think.sql").write_text(THINKING)
        for command in ("run", "plan", "check"):
            done = bench.run(command, "study.toml")
            assert "error on db1: " in done.stderr, (command, done.stderr)
            assert "/nowhere/bin" in done.stderr
        done = bench.run("on", "db2", "run", "study.toml")
        assert done.returncode == 2, done.stderr
        assert "error on db2: the study names db1 as the machine of its server" in done.stderr
        assert not bench.records


def test_a_record_from_another_machine_does_not_choose_what_is_reached_from_here(carried: Sshd) -> None:
    with some_bench() as bench:
        added = {"unknown": {"role": "load", "ssh": "unknown"}}
        copy_record(
            bench.folder / "mine",
            study=lambda record: (record.update(ended_at=None), record["study"].update(hosts=added)),
        )
        shutil.rmtree(bench.folder / "mine/trials/0002")
        write_far(bench.folder / "mine", FarRecord(ssh="db1", folder=f"{carried.home}/pgdyno-on/gone", record="mine"))
        done = bench.run("resume", "mine")
        assert done.returncode != 0
        # It went to db1, and not to the machine that the record names.
        assert "host key" not in done.stderr, done.stderr
        assert "db1" in done.stderr

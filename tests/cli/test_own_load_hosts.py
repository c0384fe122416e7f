"""A server of pgdyno's own whose load comes from load hosts, as a user measures it."""

from __future__ import annotations

import json

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from tests.cli.program import some_bench
from tests.hosts import Sshd

pytestmark = pytest.mark.cluster
SHORT = ("--workload", "select-only", "--scale", "1", "--clients", "3", "--rounds", "1", "--duration", "2s")
SLOW = ("--warm-up", "1s", "--rate", "300", "--stock-only")


def test_load_hosts_reach_a_server_of_pgdynos_own(by_ssh: Sshd) -> None:
    with some_bench() as bench:
        done = bench.run("bench", "--load-host", "db1", "--load-host", "db2", *SHORT, *SLOW)
        assert done.returncode == 0, done.stderr
        record = open_record(bench.record).read_record()
        assert record.format_version == 5
        assert [(host.name, host.is_server_host) for host in record.load_hosts] == [("db1", True), ("db2", True)]
        (trial,) = open_record(bench.record).read_trials()
        assert [part.clients for part in trial.generators] == [2, 1]
        data = read_trial_data(bench.record / "trials/0001", trial)
        assert data.transactions is not None
        assert data.transactions.ok_count == data.transaction_count
        report = json.loads((bench.record / "report.json").read_text())
        assert "without encryption" in (bench.record / "report.md").read_text()
        assert report["load_hosts"]

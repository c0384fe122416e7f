"""A server of pgdyno's own whose load comes from load hosts, as a user measures it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from pgdyno.cli.given_options import put_load_hosts
from pgdyno.conduct.load.hosts import ReachedHost
from pgdyno.conduct.load.own import _find_address
from pgdyno.errors import HostError, SpecError
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.run.host.program import MACHINE_VARIABLE
from pgdyno.spec.read import format_study, parse_study
from tests.cli.program import some_bench
from tests.hosts import Sshd
from tests.ports import find_free_port

pytestmark = pytest.mark.cluster
SHORT = ("--workload", "select-only", "--scale", "1", "--clients", "3", "--rounds", "1", "--duration", "2s")
SLOW = ("--warm-up", "1s", "--rate", "300", "--stock-only")
COUNTED = ("--set", "shared_preload_libraries=pg_stat_statements")


def test_load_hosts_reach_a_server_of_pgdynos_own(by_ssh: Sshd) -> None:
    with some_bench() as bench:
        watched = ("--port", str(find_free_port()))
        done = bench.run("bench", "--load-host", "db1", "--load-host", "db2", *watched, *SHORT, *SLOW, *COUNTED)
        assert done.returncode == 0, done.stderr
        record = open_record(bench.record).read_record()
        assert record.format_version == 5
        assert "to watch the server while a trial runs" in done.stderr
        assert [(host.name, host.is_server_host) for host in record.load_hosts] == [("db1", True), ("db2", True)]
        (trial,) = open_record(bench.record).read_trials()
        assert [part.clients for part in trial.generators] == [2, 1]
        data = read_trial_data(bench.record / "trials/0001", trial)
        assert data.transactions is not None
        assert data.transactions.ok_count + data.transactions.early_count == data.transaction_count
        # The server's machine is this one, on its own clock, and counts what the role of the load asks for.
        assert data.os is not None
        assert all(part.os is not None for part in data.generators)
        assert trial.statements is not None
        assert any("abalance" in (one.query or "") for one in trial.statements)
        report = json.loads((bench.record / "report.json").read_text())
        assert "without encryption" in (bench.record / "report.md").read_text()
        assert report["load_hosts"]


def test_load_hosts_reach_a_pooler_of_pgdynos_own_and_a_primary_with_a_standby(by_ssh: Sshd) -> None:
    """What each has a test of its own for goes together here: commits that wait for a standby, of a load through a pooler."""
    load = ("--workload", "simple-update", "--scale", "1", "--clients", "3", "--rounds", "1", "--duration", "2s")
    topology = ("--endpoint", "pool", "--pool-size", "2", "--standbys", "1", "--set", "synchronous_commit=remote_apply")
    with some_bench(is_empty=False) as bench:
        done = bench.run("bench", "--load-host", "db1", "--load-host", "db2", *topology, *load, *SLOW)
        assert done.returncode == 0, done.stderr
        assert "load hosts to poolers" in done.stderr
        (trial,) = open_record(bench.record).read_trials()
        assert [part.clients for part in trial.generators] == [2, 1]
        report = json.loads((bench.record / "report.json").read_text())
        (seen,) = report["workloads"][0]["trials"]
        assert (seen["pooler"]["name"], seen["pooler"]["size"]) == ("pool", 2)
        # Rates need two looks within the load, which a busy machine may not take; what was counted needs none.
        data = read_trial_data(bench.record / "trials/0001", trial)
        assert data.pooler is not None
        counts = [one.transactions or 0 for one in data.pooler.samples]
        assert data.transaction_count
        assert counts[-1] - counts[0] > 0.3 * data.transaction_count
        assert [lag["name"] for lag in seen["standbys"]["lags"]] == ["standby1"]
        assert "replay" in seen["standbys"]["waited"]


@pytest.mark.parametrize(
    ("standbys", "made", "served"),
    [
        (1, [(None, "db1", 2), (None, "db2", 1)], []),
        # The clients are divided among the standbys, and those of each among the hosts.
        (
            2,
            [("standby1", "db1", 1), ("standby1", "db2", 1), ("standby2", "db1", 1)],
            [("standby1", 2), ("standby2", 1)],
        ),
    ],
)
def test_load_hosts_read_from_standbys_of_pgdynos_own(
    by_ssh: Sshd, standbys: int, made: list[tuple[str | None, str, int]], served: list[tuple[str, int]]
) -> None:
    read = ("--standbys", f"{standbys}", "--endpoint", "replicas")
    with some_bench(is_empty=False) as bench:
        done = bench.run("bench", "--load-host", "db1", "--load-host", "db2", *read, *SHORT, *SLOW)
        assert done.returncode == 0, done.stderr
        assert open_record(bench.record).read_record().format_version == 7
        (trial,) = open_record(bench.record).read_trials()
        assert [(part.endpoint, part.host, part.clients) for part in trial.generators] == made
        data = read_trial_data(bench.record / "trials/0001", trial)
        assert data.transactions is not None
        count = data.transaction_count
        assert data.transactions.ok_count + data.transactions.early_count == count
        # Counters are of the standbys that are read from; sessions that are ending may not have counted their last second yet.
        assert count is not None
        assert (trial.growth("xact_commit_count") or 0.0) > 0.3 * count
        words = (bench.record / "report.md").read_text()
        names = " and ".join(f"standby{number}" for number in range(1, standbys + 1))
        assert f"The clients of select-only read from {names}" in words
        report = json.loads((bench.record / "report.json").read_text())
        (seen,) = report["workloads"][0]["trials"]
        assert [(part["name"], part["clients"]) for part in seen["parts"]] == served
        assert [(one["host"], one["clients"]) for one in seen["generators"]] == [("db1", 2), ("db2", 1)]


def test_the_address_of_load_hosts_is_the_one_that_ssh_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    def see(address: str | None) -> ReachedHost:
        # No more of it is looked at.
        seen = SimpleNamespace(host=SimpleNamespace(name="load1"), look=SimpleNamespace(client_address=address))
        return cast(ReachedHost, seen)

    assert _find_address([see("127.0.0.7"), see("192.0.2.1")]) == "127.0.0.7"
    # Reserved for documentation: no machine has it.
    with pytest.raises(HostError, match="does not know by which address") as caught:
        _find_address([see("192.0.2.1")])
    assert "load1 sees 192.0.2.1" in caught.value.detail
    # What pgdyno was carried to, load hosts reach elsewhere than where they are connected from.
    monkeypatch.setenv(MACHINE_VARIABLE, "db1")
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.9 50000 127.0.0.8 22")
    assert _find_address([see("127.0.0.7")]) == "127.0.0.8"
    monkeypatch.delenv("SSH_CONNECTION")
    with pytest.raises(HostError, match="does not know by which address"):
        _find_address([see("127.0.0.7")])


def test_an_address_without_load_hosts_is_refused_by_the_name_of_its_option() -> None:
    asked = '[[workload]]\nname = "select-only"\n'
    with pytest.raises(SpecError, match="--server-address is where load hosts reach the server") as caught:
        put_load_hosts(parse_study(asked, source="test", folder=Path("/")), None, address="db1")
    assert "--load-host" in caught.value.hint


def test_a_study_that_came_from_another_machine_goes_to_its_servers_machine_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = parse_study('[[workload]]\nname = "read"\nscripts = ["select-only"]\n', source="mine", folder=Path())
    assert put_load_hosts(study, None, address=None).server_host is None
    monkeypatch.setenv(MACHINE_VARIABLE, "me@db1")
    for loads in ([], ["load1"]):
        text = format_study(put_load_hosts(study, loads, address=None))
        again = parse_study(text, source="again", folder=Path())
        assert again.server_host is not None
        assert again.server_host[1].ssh == "me@db1"
        assert [*again.load_hosts] == loads

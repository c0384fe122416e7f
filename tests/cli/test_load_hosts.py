"""A given server whose load comes from load hosts, as a user measures it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from tests.hosts import Sshd
from tests.ready_program import Program, run_program
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running

from .program import Bench

pytestmark = pytest.mark.cluster
SHORT = ("--workload", "select-only", "--scale", "1", "--clients", "3", "--rounds", "1", "--duration", "5s")
DSN = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres"
CANARY = "canary-7f3b"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18) as made:
        made.listen("scram-sha-256")
        made.sql(f"CREATE ROLE bench LOGIN CREATEDB PASSWORD '{CANARY}' IN ROLE pg_monitor")
        yield made


@pytest.fixture
def bench(tmp_path: object) -> Bench:
    return Bench(folder=tmp_path)  # type: ignore[arg-type]


def run(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    return run_program(words, cwd=bench.folder, env={**os.environ, "PGPASSWORD": CANARY})


def test_two_load_hosts_make_one_load(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    hosts = ("--load-host", "db1", "--load-host", "db2", "--server-host", "db1")
    # A load that is so slow that each of its transactions is logged.
    slow = ("--warm-up", "1s", "--rate", "300")
    done = run(bench, "bench", "--dsn", DSN, *hosts, *SHORT, *slow, "--allow", "busy", "--stock-only")
    assert done.returncode == 0, done.stderr
    record = open_record(bench.record).read_record()
    assert record.format_version == 5
    assert [(host.name, host.ssh, host.is_server_host) for host in record.load_hosts] == [
        ("db1", "db1", True),
        ("db2", "db2", True),
    ]
    assert all(host.empty_tps > 0 and host.round_trip_s > 0 for host in record.load_hosts)
    (trial,) = open_record(bench.record).read_trials()
    assert [part.clients for part in trial.generators] == [2, 1]
    data = read_trial_data(bench.record / "trials/0001", trial)
    assert data.transactions is not None
    assert data.transactions.ok_count + data.transactions.early_count == data.transaction_count
    parts = [one.transactions for one in data.generators if one.transactions is not None]
    assert len(parts) == 2
    assert sum(one.ok_count + one.early_count for one in parts) == data.transaction_count
    for path in bench.record.rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path


def test_levels_of_load_hosts_are_compared(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    hosts = ("--load-host", "db1", "--load-host", "db2")
    load = ("--workload", "select-only", "--scale", "1", "--rate", "100", "--duration", "1s", "--warm-up", "0s")
    asked = (
        "sweep",
        "load_hosts=1,2",
        "--dsn",
        DSN,
        *hosts,
        *load,
        "--clients",
        "4",
        "--minutes",
        "5",
        "--allow",
        "busy",
    )
    with Program(asked, cwd=bench.folder, env={**os.environ, "PGPASSWORD": CANARY}) as child:
        while (seen := list_shares(bench)).keys() < {"load_hosts=1", "load_hosts=2"}:
            assert child.poll() is None
            time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        child.wait()
    assert seen == {"load_hosts=1": [4], "load_hosts=2": [2, 2]}
    record = open_record(bench.record).read_record()
    assert (record.format_version, record.study.question) == (7, "Do the load hosts limit the load?")
    done = run(bench, "report", str(bench.record))
    assert done.returncode == 0, done.stderr
    words = (bench.record / "report.md").read_text()
    rows = (
        "db1 | select-only, load_hosts=1 | 4",
        "db1 | select-only, load_hosts=2 | 2",
        "db2 | select-only, load_hosts=2 | 2",
    )
    assert all(f"| {row} |" in words for row in rows)


def list_shares(bench: Bench) -> dict[str, list[int]]:
    """The clients of each load host in the finished trials of each variant."""
    if not bench.records:
        return {}
    trials = (json.loads(file.read_text()) for file in bench.record.glob("trials/*/trial.json"))
    finished = [one for one in trials if one["status"] == "finished"]
    return {one["planned"]["arms"][0]: [part["clients"] for part in one["generators"]] for one in finished}


def test_load_hosts_are_checked_before(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    study = bench.folder / "study.toml"
    pooled = '[hosts.gone]\nrole = "load"\nssh = "db1"\npgbench = "/nowhere/pgbench"\n'
    study.write_text(
        f'[server]\nkind = "given"\ndsn = "{DSN}"\n[hosts.load1]\nrole = "load"\nssh = "db2"\n{pooled}'
        '[[workload]]\nname = "select-only"\n'
    )
    done = run(bench, "hosts", str(study))
    assert done.returncode == 1, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[1][:2] == ["load1", "load"]
    assert rows[1][-1] in {"ms", "µs"}, done.stdout
    assert rows[2] == ["gone", "load", "no", "link"]
    assert "gone: there is no pgbench that runs" in done.stdout


def test_what_load_hosts_cannot_do_is_refused(cluster: Cluster, bench: Bench, by_ssh: Sshd) -> None:
    settings = ("--set", "synchronous_commit=local", "--set", "synchronous_commit=on")
    failover = bench.refuse("compare", *settings, "--standbys", "1", "--failover", "crash", "--load-host", "db1")
    assert "the load of a failover comes from the server's machine" in failover.stderr
    # No server is there, and neither it nor a load host is asked.
    named = ("sweep", "load_hosts=1,3", "--dsn", "host=/nowhere", "--load-host", "unknown", "--load-host", "other")
    assert "load_hosts is 3, and the study names 2 load hosts" in bench.refuse(*named).stderr
    few = bench.refuse(*named, "--load-host", "third", "--clients", "2")
    assert "workload tpcb-like of load_hosts=3: 3 load hosts for 2 clients" in few.stderr
    words = ("compare", "--set", "work_mem=1MB", "--set", "work_mem=8MB", "--design", "live", "--load-host", "db1")
    refused = run(bench, *words, "--dsn", DSN, *SHORT[:6], "--allow", "busy")
    assert refused.returncode == 2, refused.stderr
    assert "a pgbench on a load host is not frozen and thawed quickly enough" in refused.stderr
    gone = run(bench, "bench", "--dsn", DSN, "--load-host", "unknown", *SHORT, "--allow", "busy")
    assert (gone.returncode, "the host key of unknown is not known" in gone.stderr) == (3, True), gone.stderr
    assert not bench.records

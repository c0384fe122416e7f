"""Loads in parts from load hosts, as a user measures them: of a server of pgdyno's own, and of a given one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from tests.cli.program import Bench, some_bench
from tests.hosts import Sshd
from tests.tools.pgcluster import LOOPBACK, PORT, running

pytestmark = pytest.mark.cluster
HOSTS = """
[hosts.load1]
role = "load"
ssh = "db1"

[hosts.load2]
role = "load"
ssh = "db2"

[trials]
duration = "5s"
warm_up = "1s"
rounds = 1
"""
# Slow enough for every transaction to be logged, however fast the machine is.
SLOW_READS = "\\sleep 5 ms\nSELECT abalance FROM pgbench_accounts WHERE aid = 1;\nSELECT 1;\n"


def write_study(folder: Path, *, server: str, reads_at: str) -> None:
    (folder / "reads.sql").write_text(SLOW_READS)
    parts = (
        f'{{ name = "reads", scripts = ["reads.sql"], clients = 3, endpoint = "{reads_at}" }}',
        '{ name = "job", scripts = ["simple-update"], clients = 1, rate_tps = 40 }',
    )
    load = f'[[workload]]\nname = "split"\nparts = [{", ".join(parts)}]\n'
    (folder / "split.toml").write_text(f"{server}\n[data]\nscale = 1\n{HOSTS}\n{load}")


def check_record(bench: Bench, *, reads_at: str) -> None:
    record = open_record(bench.record).read_record()
    assert record.format_version == 7
    (trial,) = open_record(bench.record).read_trials()
    assert [(one.part, one.host, one.endpoint, one.clients) for one in trial.generators] == [
        ("reads", "load1", reads_at, 2),
        ("reads", "load2", reads_at, 1),
        ("job", "load2", "primary", 1),
    ]
    data = read_trial_data(bench.record / "trials/0001", trial)
    assert data.transactions is not None
    assert data.transactions.ok_count + data.transactions.early_count == data.transaction_count
    logged = [one.transactions for one in data.generators if one.transactions is not None]
    assert len(logged) == 3
    assert sum(one.ok_count + one.early_count for one in logged) == data.transaction_count
    # The samples of a machine are one, however many pgbenches it has.
    assert [one.os is not None for one in data.generators] == [True, True, False]
    report = json.loads((bench.record / "report.json").read_text())
    (seen,) = report["workloads"][0]["trials"]
    assert [(one["name"], one["endpoints"], one["clients"]) for one in seen["parts"]] == [
        ("reads", [reads_at], 3),
        ("job", ["primary"], 1),
    ]
    # On a very busy machine transactions may take long: those of a part then count by the share of their time, at both ends.
    at_ends_tps = 0.0 if all(one.long_load is None for one in data.generators) else 2 * 4 / 3.0
    assert sum(one["tps"] for one in seen["parts"]) == pytest.approx(seen["tps"], rel=0.01, abs=at_ends_tps)
    assert [(one["host"], one["clients"]) for one in seen["generators"]] == [("load1", 2), ("load2", 2)]
    assert sum(one["tps"] for one in seen["generators"]) == pytest.approx(data.transaction_count / trial.load_s)
    # A statement of reads is one exchange, and of simple-update are five.
    of_first = seen["generators"][0]
    assert of_first["sent_per_s"] == pytest.approx(2 * of_first["tps"])
    words = (bench.record / "report.md").read_text()
    assert "side by side as one load from 2 load hosts." in words
    assert f"# reads, connected to {reads_at}, on load2" in words
    assert "loads/reads+load2/script-1-reads.sql" in words


def test_parts_of_a_server_of_pgdynos_own_come_from_load_hosts_through_a_pooler_and_past_it(by_ssh: Sshd) -> None:
    with some_bench(is_empty=False) as bench:
        write_study(bench.folder, server="[poolers.pool]\nsize = 2", reads_at="pool")
        planned = bench.run("plan", "split.toml")
        assert "4 clients (3 of reads at the pool, 1 of job at 40 tps at the primary)" in planned.stdout, planned.stderr
        done = bench.run("run", "split.toml")
        assert done.returncode == 0, done.stderr
        assert "load hosts to poolers" in done.stderr
        check_record(bench, reads_at="pool")


def test_a_part_that_reads_from_a_standby_comes_from_load_hosts_beside_one_that_writes(by_ssh: Sshd) -> None:
    with some_bench(is_empty=False) as bench:
        write_study(bench.folder, server="[server]\nstandbys = 1", reads_at="replicas")
        done = bench.run("run", "split.toml")
        assert done.returncode == 0, done.stderr
        assert "all get to standby1" in done.stderr
        check_record(bench, reads_at="standby1")


def test_parts_of_a_given_server_come_from_load_hosts(by_ssh: Sshd, tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path)
    with running(15) as cluster:
        cluster.listen("scram-sha-256", trusted="bench")
        cluster.sql("CREATE ROLE bench LOGIN CREATEDB IN ROLE pg_monitor")
        server = f'[server]\nkind = "given"\ndsn = "postgresql://bench@{LOOPBACK}:{PORT}/postgres"'
        write_study(tmp_path, server=server, reads_at="primary")
        done = bench.run("run", "split.toml", "--allow", "busy")
        assert done.returncode == 0, done.stderr
        check_record(bench, reads_at="primary")

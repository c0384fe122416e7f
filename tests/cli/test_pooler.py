"""Loads through a real PgBouncer, as a user runs them: compared with the server itself, refused in time, and gone at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.experiments import THINKING
from tests.cli.test_compare_given import run, start
from tests.homes import reachable_folder
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = pytest.mark.cluster
ALIKE = ("--scale", "1", "--clients", "4", "--warm-up", "0s", "--yes", "--json")
# At a rate that leaves the CPUs to the tests beside it.
LOAD = ("--workload", "select-only", "--rate", "200", *ALIKE)
ONE = ("--stock-only", "--rounds", "1", "--duration", "5s", "--no-disk")
# Where nothing is to run: enough for a plan.
LONG = ("--minutes", "5")
BOTH = ("--endpoint", "primary", "--endpoint", "pool")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with reachable_folder() as made:
        yield made / "home"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(18) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


def dsn(cluster: Cluster, folder: Path | None = None) -> str:
    return f"host={folder or cluster.root} port={PORT} user=plain dbname=postgres"


def list_processes(home: Path) -> str:
    return subprocess.run(["pgrep", "-af", f"{home}/work"], capture_output=True, text=True, check=False).stdout


def test_a_bench_through_a_pooler(tmp_path: Path, home: Path) -> None:
    words = ("--endpoint", "pool", "--pool-size", "2", "--server", "15", "--home", str(home), *ONE, *LOAD)
    for number in range(9):
        record = tmp_path / f"record-{number}"
        code, out, err = run(tmp_path, "bench", *words, "--out", str(record))
        assert code == 0, err
        (workload,) = json.loads(out)["workloads"]
        (trial,) = workload["trials"]
        seen = trial["pooler"]
        # Of so short a load, samplers that come late see too little for a rate.
        if seen["samples"] >= 2 and seen["thread"] is not None:
            break
    assert seen["version"].startswith("PgBouncer ")
    assert (seen["name"], seen["mode"], seen["size"]) == ("pool", "transaction", 2)
    assert seen["queries_per_s"] == pytest.approx(seen["transactions_per_s"])
    assert seen["thread"]["running_ratio"] > 0.0
    assert seen["active_servers"]["largest"] <= 2
    resources = {share["resource"] for share in trial["time"]["shares"]}
    assert "connections of the pool" in resources
    assert list_processes(home) == ""

    report = (record / "report.md").read_text()
    assert "Poolers" in report
    assert "its pool has 2 server connections" in report
    code, out, err = run(tmp_path, "plan", str(record / "study.toml"))
    assert code == 0, err
    assert "[poolers.pool]\nsize = 2" in (record / "study.toml").read_text()


def test_direct_against_pooled_alternates_live_and_ctrl_c_leaves_nothing(tmp_path: Path, home: Path) -> None:
    # Loads at a rate do not alternate live; clients that think leave the CPUs to others as well.
    (tmp_path / "thinking.sql").write_text(THINKING)
    load = ("--workload", "thinking.sql", "--duration", "1s", *ALIKE)
    words = (*BOTH, "--home", str(home), "--no-disk", *load, *LONG)
    child = start(tmp_path, "compare", *words, "--out", str(tmp_path / "record"))
    trials = tmp_path / "record/trials"
    # Both observed trials, then a round in which three members take turns.
    while not (trials / "0005/slices.jsonl").exists():
        assert child.poll() is None
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate()
    assert child.returncode == 130, err
    assert list_processes(home) == ""
    study = (tmp_path / "record/study.toml").read_text()
    assert 'design = "live"' in study
    assert "# design = live: the load of each endpoint has a server of its own" in study


def test_prepared_statements_through_debians_pgbouncer_are_refused_before_loading(tmp_path: Path, home: Path) -> None:
    words = (*BOTH, "--mode", "prepared", "--home", str(home), *LOAD, *LONG)
    code, out, err = run(tmp_path, "compare", *words, "--out", str(tmp_path / "record"))
    assert code == 2
    error = json.loads(out)["error"]
    assert "prepared statements do not work through pool" in error["fact"]
    assert error["hint"] == "use --mode simple or extended, a pool in session mode, or a PgBouncer from 1.21 on"
    assert "load scale" not in err
    assert not (tmp_path / "record").exists()


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    rows = [
        (("compare", *BOTH, "--pool-mode", "statement"), "--pool-mode 'statement' is not known"),
        (("compare", "--endpoint", "primary", "--endpoint", "primary", "--pool-size", "3"), "no pooler is named"),
        (("compare", "--endpoint", "primary=port=1", "--endpoint", "pool"), "the primary is the server itself"),
        (("compare", "--endpoint", "pool", "--endpoint", "pool=port=1"), "comes twice with two meanings"),
        (
            ("compare", "--endpoint", "a=port=1 password=x", "--endpoint", "primary", "--dsn", "host=/nowhere"),
            "no password",
        ),
        (("compare", *BOTH, "--pool-size", "0"), "--pool-size 0 is not within 1 to 10000"),
        (("compare", "--endpoint", "primary", "--endpoint", "po ol"), "--endpoint: 'po ol' is no name"),
        (("sweep", "pool_size=2,many"), "many is not a whole number from 1 to 10000"),
        (("sweep", "pool_size=2,0"), "0 is not a whole number from 1 to 10000"),
        (("sweep", "pool_size=2"), "pool_size=2: a sweep needs at least two sizes"),
        (("sweep", "pool_size=2,4", "endpoint=primary,pool"), "the axes endpoint and pool_size exclude each other"),
        (("sweep", "pool_size=2,4", "--pool-size", "2"), "exclude each other"),
        (
            ("sweep", "pool_size=2,4", "--endpoint", "replicas", "--standbys", "1"),
            "--endpoint replicas and the axis pool_size",
        ),
        (("sweep", "pool_size=2,4", "--endpoint", "pool"), "--endpoint pool and the axis pool_size"),
        # No server is there, and none is asked.
        (("compare", *BOTH, "--dsn", "host=/nowhere"), "the pooler pool of a given server needs a connection string"),
        (("sweep", "pool_size=2,4", "--dsn", "host=/nowhere"), "no pooler to size at the server of --dsn"),
        (
            ("sweep", "endpoint=primary,pool", "--dsn", "host=/nowhere"),
            "endpoint=primary,pool: nothing says how to reach pool",
        ),
        (("sweep", "endpoint=primary,pool=host=/nowhere"), "takes names, and no connection strings"),
        (
            ("compare", "--endpoint", "primary", "--endpoint", "a=sslcert=me.crt", "--dsn", "host=/nowhere"),
            "what names the pooler a: there is no file me.crt",
        ),
        (
            ("bench", "--endpoint", "pool", "--dsn", "host=/nowhere"),
            "compare --dsn CONNINFO --endpoint primary --endpoint NAME=",
        ),
    ]
    for words, said in rows:
        code, out, err = run(tmp_path, *words)
        assert (code, out) != (0, ""), words
        assert said in err, (words, err)


def test_a_pooler_that_runs_already_against_the_server_behind_it(tmp_path: Path, cluster: Cluster) -> None:
    with pooling(cluster, mode="transaction", database="*", more="stats_users = plain") as folder:
        words = ("--dsn", dsn(cluster), "--endpoint", "primary", "--endpoint", f"bouncer={dsn(cluster, folder)}")
        # The fewest rounds that can decide anything do, where clients think.
        (tmp_path / "thinking.sql").write_text(THINKING)
        few = ("--duration", "2s", "--minutes", "2", "--detect", "90%", "--confidence", "50%")
        code, out, err = run(tmp_path, "compare", *words, "--workload", "thinking.sql", *ALIKE, *few)
    assert code == 0, err
    report = json.loads(out)
    assert report["experiment"]["design"] == "paired"
    (comparison,) = report["experiment"]["comparisons"]
    (question,) = [one for one in comparison["questions"] if one["metric"] == "tps"]
    # How many pairs there is time for is the machine's affair.
    assert question["verdict"]["arm"] == "endpoint=bouncer"
    trials = [trial["pooler"] for workload in report["workloads"] for trial in workload["trials"] if trial["pooler"]]
    assert all(seen["version"].startswith("PgBouncer ") and seen["size"] is None for seen in trials)
    assert max(seen["samples"] for seen in trials) >= 1
    assert cluster.sql("SELECT count(*) FROM pg_database WHERE datname ~ '_run$'") == "0"


def test_poolers_that_cannot_take_the_load_are_refused_before_loading(tmp_path: Path, cluster: Cluster) -> None:
    def refuse(folder: Path, *more: str) -> str:
        words = ("--dsn", dsn(cluster), "--endpoint", "primary", "--endpoint", f"bouncer={dsn(cluster, folder)}")
        code, _, err = run(tmp_path, "compare", *words, *LOAD, "--duration", "1s", *LONG, *more)
        assert code != 0
        assert not list(tmp_path.glob("pgdyno-records/*"))
        return err

    with pooling(cluster, mode="transaction") as folder:
        assert "does not know the databases that pgdyno makes" in refuse(folder)
    with pooling(cluster, mode="transaction", database="*") as folder:
        assert "prepared statements do not work through the pooler bouncer" in refuse(folder, "--mode", "prepared")
        assert "these variants cannot be compared live" in refuse(folder, "--design", "live")
    assert "the pooler bouncer: cannot connect" in refuse(folder)
    with running(15) as other:
        other.sql("CREATE ROLE plain LOGIN CREATEDB")
        assert "leads to another server" in refuse(other.root)
    assert cluster.sql("SELECT count(*) FROM pg_database WHERE datname ~ '^pgdyno_'") in {"0", "1"}

"""What commands with `--dsn` ask of a server outside of pgdyno's databases, by the server's own log: a closed list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from tests.cli.experiments import THINKING, read_report, verdict_of
from tests.cli.test_compare_given import on_15, on_18, run
from tests.given import LOG_PREFIX, list_unexpected
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = pytest.mark.cluster
LOAD = ("--scale", "1", "--clients", "1", "--warm-up", "0s", "--workload", "select-only", "--rate", "50")
QUICK_ANSWER = ("--detect", "90%", "--confidence", "50%")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param, conf=f"log_statement = all\nlog_line_prefix = '{LOG_PREFIX}'\n") as made:
        made.sql("CREATE ROLE bench LOGIN CREATEDB; CREATE ROLE chief LOGIN SUPERUSER")
        made.sql("CREATE DATABASE neighbour")
        made.sql("CREATE TABLE kept AS SELECT generate_series(1, 100) AS one", database="neighbour")
        yield made


@pytest.fixture
def neighbour(cluster: Cluster) -> Iterator[None]:
    """Another database, which is the same after a test to the byte."""
    before = cluster.dump("neighbour")
    yield
    assert cluster.dump("neighbour") == before


def dsn(cluster: Cluster, role: str) -> str:
    return f"host={cluster.root} port={PORT} user={role} dbname=postgres"


def ask(cluster: Cluster, folder: Path, role: str, *words: str, changes: tuple[str, ...] = ()) -> str:
    """Run a command to its end; its statements must be on the closed list, or change a setting that it names."""
    log = cluster.root / "server.log"
    begins = len(log.read_text(errors="replace"))
    code, out, said = run(folder, *words, "--dsn", dsn(cluster, role), "--yes")
    assert code == 0, said
    logged = log.read_text(errors="replace")[begins:]
    # Outside of pgdyno's databases a study loads nothing.
    assert list_unexpected(logged, role=role, settings=changes) == []
    return out + said


@on_15
def test_settings_of_the_whole_server(cluster: Cluster, neighbour: None, tmp_path: Path) -> None:
    values = ("--set", "commit_delay=10", "--set", "commit_delay=20", "--design", "switchback", "--minutes", "0.75")
    ask(cluster, tmp_path, "chief", "compare", *values, *LOAD, *QUICK_ANSWER, changes=("commit_delay",))
    tuned = ("tune", "--host", "r8g.2xlarge", "--dataset", "20GB", "--apply", "--allow", "busy")
    names = cluster.sql("SELECT name FROM pg_settings WHERE context NOT IN ('internal', 'postmaster')").split()
    said = ask(cluster, tmp_path, "chief", *tuned, changes=tuple(names))
    assert "max_wal_size" in said
    assert "put back" in ask(cluster, tmp_path, "chief", "restore", changes=tuple(names))
    assert "dropped 1 database" in ask(cluster, tmp_path, "chief", "clean")


@on_18
def test_live_slices_turns_a_file_and_a_check(cluster: Cluster, neighbour: None, tmp_path: Path) -> None:
    cluster.sql("ALTER ROLE bench SET statement_timeout = '60s'")
    (tmp_path / "schema.sql").write_text("CREATE TABLE orders AS SELECT generate_series(1, 100) AS id;\n")
    (tmp_path / "count.sql").write_text("SELECT count(*) FROM orders;\n")
    short = ("--warm-up", "0s", "--duration", "1s")
    (tmp_path / "thinking.sql").write_text(THINKING)
    load = ("--scale", "1", "--workload", "thinking.sql", "--minutes", "2", *short, *QUICK_ANSWER)
    live = ("compare", "--set", "work_mem=4MB", "--set", "work_mem=8MB", "--clients", "1", "--design", "live")
    assert "ask for no statement_timeout" in ask(cluster, tmp_path, "bench", *live, *load, "--out", "live")
    # Identical variants are equivalent, although each asks for its own value.
    verdict = verdict_of(read_report(tmp_path / "live"), "work_mem=8MB")
    assert verdict["kind"] == "equivalent", verdict
    argv = " ".join(word for trial in open_record(tmp_path / "live").read_trials() for word in trial.argv)
    assert set(re.findall(r"work_mem=(\w+)", argv)) == {"4MB", "8MB"}
    said = ask(cluster, tmp_path, "bench", "sweep", "clients=1,2", *load, "--out", "turns")
    assert "take turns on one server" in said
    # Nothing is frozen.
    assert "ask for no" not in said
    own = ("bench", "--init", "schema.sql", "--workload", "count.sql", "--stock-only", "--rounds", "1")
    ask(cluster, tmp_path, "bench", *own, "--clients", "1", *short, "--out", "own")
    assert "dropped 2 databases" in ask(cluster, tmp_path, "bench", "clean")
    cluster.sql("ALTER ROLE bench RESET statement_timeout")

"""`pgdyno sweep --dsn` on a real server: numbers of clients, and a rate that holds a latency limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.experiments import THINKING
from tests.cli.program import Bench, run_here
from tests.tools.pgcluster import PORT, Cluster, running_given

pytestmark = pytest.mark.cluster
SHORT = ("--scale", "1", "--warm-up", "0s", "--duration", "1s", "--json")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_given(18) as made:
        yield made


def sweep(cluster: Cluster, *axes: str) -> tuple[str, ...]:
    return ("sweep", *axes, "--dsn", f"host={cluster.root} port={PORT} user=bench dbname=postgres", *SHORT)


def test_numbers_of_clients_are_swept(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "thinking.sql").write_text(THINKING)
    asked = sweep(cluster, "clients=1,2", "--workload", "thinking.sql", "--minutes", "1")
    done = run_here(asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["experiment"]["comparisons"]) == 1
    record = Bench(folder=tmp_path).record
    assert record.name.endswith("-sweep")
    asked = [json.loads(file.read_text())["argv"] for file in record.glob("trials/*/trial.json")]
    assert {word for argv in asked for word in argv if word.startswith("--client=")} == {"--client=1", "--client=2"}


def test_the_largest_load_must_fit(cluster: Cluster, tmp_path: Path) -> None:
    done = run_here(sweep(cluster, "clients=1,200"), cwd=tmp_path)
    assert (done.returncode, "do not fit" in done.stderr) == (3, True), done.stderr
    assert Bench(folder=tmp_path).records == []


def test_a_server_is_named_once(cluster: Cluster, tmp_path: Path) -> None:
    done = run_here(sweep(cluster, "clients=1,2", "--server", "15"), cwd=tmp_path)
    assert (done.returncode, "leave out server" in done.stderr) == (2, True), done.stderr


def test_a_limit_that_nothing_holds(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "thinking.sql").write_text(THINKING)
    asked = sweep(cluster, "latency<0.1ms@p50", "--clients", "2", "--workload", "thinking.sql")
    done = run_here(asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["search"]["workloads"]
    assert found["found"]["answer"]["holds_tps"] is None

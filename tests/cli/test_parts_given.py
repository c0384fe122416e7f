"""Loads in parts on a given server: side by side from this machine, with its sessions' settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pgdyno.record.store import open_record
from tests.cli.program import Bench
from tests.ready_program import run_program
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = pytest.mark.cluster
STUDY = """
[server]
kind = "given"
dsn = "host={host} port={port} user=plain dbname=postgres"
settings = {{ {settings} }}

[data]
scale = 1

[poolers.pool]
dsn = "host={pool} port={port} user=plain dbname=postgres"

[[workload]]
name = "split"
parts = [
    {{ name = "simple-update", clients = 2, rate_tps = 100, endpoint = "{endpoint}" }},
    {{ name = "select-only", clients = 3, rate_tps = 200 }},
]

[trials]
rounds = 1
duration = "2s"
warm_up = "1s"
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(15) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


def run_split(bench: Bench, cluster: Cluster, *, endpoint: str, pool: Path, settings: str) -> CompletedProcess[str]:
    study = STUDY.format(host=cluster.root, port=PORT, pool=pool, endpoint=endpoint, settings=settings)
    (bench.folder / "split.toml").write_text(study)
    return run_program(("run", "split.toml", "--allow", "busy", "--json", "--out", endpoint), cwd=bench.folder)


def test_parts_load_a_given_server_with_the_settings_of_its_sessions(cluster: Cluster, bench: Bench) -> None:
    done = run_split(bench, cluster, endpoint="primary", pool=cluster.root, settings='work_mem = "7MB"')
    assert done.returncode == 0, done.stderr
    (trial,) = open_record(bench.folder / "primary").read_trials()
    parts = [(part.part, part.endpoint, part.clients) for part in trial.generators]
    assert parts == [("simple-update", "primary", 2), ("select-only", "primary", 3)]
    assert "7168" in {one.value for one in trial.settings if one.name == "work_mem"}
    (workload,) = json.loads(done.stdout)["workloads"]
    (seen,) = workload["trials"]
    assert all(part["tps"] > 0.0 for part in seen["parts"])
    # What was seen of the machine that all of them ran on.
    assert seen["shares"]["load_generator_thread_ratio"] > 0.0
    assert open_record(bench.folder / "primary").read_record().format_version == 7


def test_a_part_goes_through_a_pooler_beside_one_that_does_not(cluster: Cluster, bench: Bench) -> None:
    with pooling(cluster, mode="transaction", database="*") as pool:
        refused = run_split(bench, cluster, endpoint="pool", pool=pool, settings='work_mem = "7MB"')
        assert refused.returncode == 2, refused.stderr
        assert "workload split: a session through pool cannot ask for work_mem" in refused.stderr
        done = run_split(bench, cluster, endpoint="pool", pool=pool, settings="")
    assert done.returncode == 0, done.stderr
    (trial,) = open_record(bench.folder / "pool").read_trials()
    assert [part.endpoint for part in trial.generators] == ["pool", "primary"]
    (workload,) = json.loads(done.stdout)["workloads"]
    (seen,) = workload["trials"]
    assert all(part["tps"] > 0.0 for part in seen["parts"])
    assert seen["pooler"]["name"] == "pool"

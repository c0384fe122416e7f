"""`--init` on a real server: the user's own tables under the user's own scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Bench, run_here
from tests.tools.pgcluster import PORT, Cluster, running_given

pytestmark = pytest.mark.cluster
SCHEMA = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text);\nINSERT INTO orders SELECT generate_series(1, 1000), '';\n"
)
# Clients that think leave the CPUs to the tests beside them.
LOAD = "\\set id random(1, 1000 * :scale)\nUPDATE orders SET note = 'paid' WHERE id = :id;\n\\sleep 20 ms\n"
SHORT = ("--workload", "pay.sql", "--clients", "1", "--warm-up", "0s", "--duration", "1s")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_given(18) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "schema.sql").write_text(SCHEMA)
    (tmp_path / "pay.sql").write_text(LOAD)
    return Bench(folder=tmp_path)


def dsn(cluster: Cluster) -> tuple[str, ...]:
    return ("--dsn", f"host={cluster.root} port={PORT} user=bench dbname=postgres")


def test_own_tables_are_loaded_measured_and_told(cluster: Cluster, bench: Bench) -> None:
    done = run_here(
        ("bench", *dsn(cluster), "--stock-only", "--init", "schema.sql", *SHORT, "--rounds", "1"), cwd=bench.folder
    )
    assert done.returncode == 0, done.stderr
    assert "load schema.sql" in done.stderr
    record = json.loads((bench.record / "record.json").read_text())
    assert {one["name"] for one in record["dataset"]["relations"]} == {"orders", "orders_pkey"}
    assert (bench.record / "init" / "schema.sql").read_text() == SCHEMA
    assert 'init = "init/schema.sql"' in (bench.record / "study.toml").read_text()
    report = (bench.record / "report.md").read_text()
    assert "on the data of schema.sql" in report
    assert "psql --set=ON_ERROR_STOP=1 --file=" in report
    assert "pgbench --initialize" not in report
    # The record's study runs with the record's files, whatever has become of the user's.
    (bench.folder / "schema.sql").unlink()
    (bench.folder / "pay.sql").unlink()
    again = run_here(("run", str(bench.record / "study.toml"), "--out", "again"), cwd=bench.folder)
    assert again.returncode == 0, again.stderr
    assert "reused" in again.stderr
    cleaned = run_here(("clean", *dsn(cluster), "--yes"), cwd=bench.folder)
    assert "dropped 1 database" in cleaned.stdout, cleaned.stderr


def test_clients_are_swept_on_own_tables(cluster: Cluster, bench: Bench) -> None:
    words = ("sweep", "clients=1,2", *dsn(cluster), "--init", "schema.sql", "--workload", "pay.sql", "--minutes", "1")
    done = run_here((*words, "--warm-up", "0s", "--duration", "1s", "--json"), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["experiment"]["comparisons"]) == 1


def test_a_superusers_file_and_one_without_tables_are_told(cluster: Cluster, bench: Bench) -> None:
    said = "schema.sql may change anything in this server"
    done = run_here(
        ("bench", *dsn(cluster), "--stock-only", "--init", "schema.sql", *SHORT, "--rounds", "1"), cwd=bench.folder
    )
    assert (done.returncode, said in done.stderr, "makes no table" in done.stderr) == (0, False, False), done.stderr
    (bench.folder / "schema.sql").write_text("SELECT 1;\n")
    (bench.folder / "pay.sql").write_text("SELECT 1;\n\\sleep 20 ms\n")
    of_superuser = ("--dsn", f"host={cluster.root} port={PORT} user=postgres dbname=postgres")
    words = ("bench", *of_superuser, "--stock-only", "--init", "schema.sql", *SHORT, "--rounds", "1", "--out", "other")
    done = run_here(words, cwd=bench.folder)
    assert (done.returncode, f"postgres is a superuser: {said}" in done.stderr) == (0, True), done.stderr
    assert "schema.sql makes no table" in done.stderr
    cleaned = [run_here(("clean", *each, "--yes"), cwd=bench.folder) for each in (dsn(cluster), of_superuser)]
    assert [one.returncode for one in cleaned] == [0, 0]


def test_what_is_refused_leaves_no_record(cluster: Cluster, bench: Bench) -> None:
    def refuse(*words: str, said: str, **files: str) -> None:
        for name, text in files.items():
            (bench.folder / f"{name}.sql").write_text(text)
        done = run_here((*words, "--rounds", "1"), cwd=bench.folder)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert bench.records == []
        bench.folder.joinpath("schema.sql").write_text(SCHEMA)

    given = ("bench", *dsn(cluster), "--stock-only", "--init", "schema.sql")
    refuse(*given, said="name script files")
    refuse(*given, *SHORT, "--scale", "2", said="--init: takes the place of other data: leave out scale")
    refuse(*given, *SHORT, said="schema.sql:1: error: backslash commands are restricted", schema="\\connect postgres\n")
    refuse(*given, *SHORT, said="schema.sql:2: ERROR:  division by zero", schema="SELECT 1;\nSELECT 1/0;\n")
    refuse(*given, *SHORT, said='relation "lines" does not exist', pay="SELECT * FROM lines;\n")
    refuse("bench", "--init", "schema.sql", *SHORT, "--home", "home", said="in a given server only")

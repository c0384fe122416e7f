"""`--database` on real servers: a database of somebody else's that is measured as it is, by a role that may create none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import GENTLE, Bench, run_here
from tests.given import LOG_PREFIX, list_unexpected
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = pytest.mark.cluster
READ = "\\set id random(1, 1000)\nSELECT note FROM orders WHERE id = :id;\n"
PAY = "\\set id random(1, 1000)\nUPDATE orders SET note = 'paid' WHERE id = :id;\n"
SHORT = ("--clients", "2", "--rounds", "2", "--warm-up", "0s", "--duration", "1s", *GENTLE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running(15, conf=f"log_statement = all\nlog_line_prefix = '{LOG_PREFIX}'\n") as made:
        made.sql("CREATE ROLE bench LOGIN")
        for name in ("app", "neighbour"):
            made.sql(f"CREATE DATABASE {name} OWNER bench")
            made.sql(
                "CREATE TABLE orders (id int PRIMARY KEY, note text);"
                " INSERT INTO orders SELECT number, '' FROM generate_series(1, 1000) AS number;"
                " ALTER TABLE orders OWNER TO bench",
                database=name,
            )
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "read.sql").write_text(READ)
    (tmp_path / "pay.sql").write_text(PAY)
    return Bench(folder=tmp_path)


def words(
    cluster: Cluster, command: str, *more: str, database: str = "app", dbname: str = "postgres"
) -> tuple[str, ...]:
    dsn = f"host={cluster.root} port={PORT} user=bench dbname={dbname}"
    return (command, *more, "--dsn", dsn, "--database", database)


def log(cluster: Cluster) -> str:
    return (cluster.root / "server.log").read_text(errors="replace")


def list_said(cluster: Cluster, *, begins: int, scripts: str) -> list[str]:
    """Return the statements since then that are neither a script's nor on the closed list."""
    return list_unexpected(log(cluster)[begins:], role="bench", scripts=scripts)


def test_it_is_only_read(cluster: Cluster, bench: Bench) -> None:
    before = cluster.dump()
    begins = len(log(cluster))
    done = run_here((*words(cluster, "bench", "--stock-only"), "--workload", "read.sql", *SHORT), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    assert list_said(cluster, begins=begins, scripts=r"SELECT note FROM orders WHERE id = \d+;") == []
    assert cluster.dump() == before
    assert "the database app is only read" in done.stderr
    assert "is kept in" not in done.stderr
    record = json.loads((bench.record / "record.json").read_text())
    assert (record["study"]["data"]["database"], record["are_writes_allowed"]) == ("app", False)
    assert [one["name"] for one in record["dataset"]["relations"]] == ["public.orders", "public.orders_pkey"]
    trials = [json.loads(file.read_text()) for file in bench.record.glob("trials/*/trial.json")]
    assert [one["restore_s"] for one in trials] == [0.0, 0.0]
    report = (bench.record / "report.md").read_text()
    assert "on the data of database app" in report
    assert "The database app was measured as it is, and only read." in report
    assert "pgbench --initialize" not in report
    dsn = f"host={cluster.root} port={PORT} user=bench dbname=postgres"
    cleaned = run_here(("clean", "--dsn", dsn, "--yes"), cwd=bench.folder)
    assert (cleaned.returncode, "nothing to drop" in cleaned.stdout) == (0, True), cleaned.stderr
    assert "app" not in cleaned.stdout.replace(str(cluster.root), "")
    assert cluster.dump() == before


def test_variants_are_compared_there(cluster: Cluster, bench: Bench) -> None:
    before, begins = cluster.dump(), len(log(cluster))
    varied = ("--set", "work_mem=4MB", "--set", "work_mem=8MB", "--workload", "read.sql", "--minutes", "1")
    # Twice as fast or half is near enough here: that is decided by the fewest rounds that can decide anything.
    near = ("--detect", "90%", "--confidence", "50%")
    short = ("--clients", "1", "--warm-up", "0s", "--duration", "1s")
    # A client that thinks does the same each second.
    (bench.folder / "read.sql").write_text(f"{READ}\\sleep 20 ms\n")
    done = run_here((*words(cluster, "compare"), *varied, *near, *short), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    assert list_said(cluster, begins=begins, scripts=r"SELECT note FROM orders WHERE id = \d+;") == []
    assert cluster.dump() == before
    trials = [json.loads(file.read_text()) for file in bench.record.glob("trials/*/trial.json")]
    assert {value for one in trials for value in read_settings(one, "default_transaction_read_only")} == {"on"}
    assert all(one["plans"][0]["plan"] is not None for one in trials)


def test_the_string_may_name_it_too(cluster: Cluster, bench: Bench) -> None:
    before = cluster.dump()
    named = words(cluster, "bench", "--stock-only", dbname="app")
    done = run_here((*named, "--workload", "read.sql", *SHORT), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    done = run_here((*named, "--workload", "pay.sql", *SHORT, "--out", "other"), cwd=bench.folder)
    assert (done.returncode, "in a read-only transaction" in done.stderr) == (2, True), done.stderr
    assert cluster.dump() == before


def read_settings(trial: dict[str, list[dict[str, str]]], name: str) -> list[str]:
    return [one["value"] for one in trial["settings"] if one["name"] == name] or ["not set"]


def test_a_script_that_writes_is_refused_before_anything_is_measured(cluster: Cluster, bench: Bench) -> None:
    before = cluster.dump()

    def refuse(*more: str, said: str, database: str = "app") -> None:
        done = run_here((*words(cluster, "bench", "--stock-only", database=database), *SHORT, *more), cwd=bench.folder)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert bench.records == []

    (bench.folder / "take.sql").write_text(
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ\n WRITE;\nDELETE FROM orders;\nEND;\n"
    )
    (bench.folder / "set.sql").write_text("SET default_transaction_read_only = off;\nDELETE FROM orders;\n")
    refuse("--workload", "pay.sql", said="cannot execute UPDATE in a read-only transaction")
    refuse("--workload", "pay.sql", said="`--allow writes=app` lets the load write there")
    (bench.folder / "system.sql").write_text("ALTER /* x */ SYSTEM SET work_mem = '5MB';\n")
    refuse("--workload", "pay.sql", said="and nothing puts it back")
    refuse("--workload", "take.sql", said="take.sql may write")
    refuse("--workload", "set.sql", said="set.sql may write")
    refuse("--workload", "system.sql", said="system.sql may write")
    refuse("--workload", "select-only", said="it needs pgbench's tables")
    refuse("--workload", "read.sql", "--allow", "writes=neighbour", said="the study names app")
    refuse("--workload", "read.sql", "--allow", "writes", said="--allow writes: not known")
    scripts = ("--script", "read.sql", "--script", "pay.sql", "--duration", "1s")
    done = run_here((*words(cluster, "compare"), *scripts, "--clients", "1"), cwd=bench.folder)
    assert (done.returncode, "pay.sql fails" in done.stderr) == (2, True), done.stderr
    refuse("--workload", "read.sql", "--scale", "2", said="--database: takes the place of other data: leave out scale")
    refuse(
        "--workload", "read.sql", "--init", "pay.sql", said="--init: takes the place of other data: leave out database"
    )
    refuse("--workload", "read.sql", said="--database: is empty: it needs a name", database="")
    refuse(said="--database: name the load with --workload")
    refuse("--workload", "read.sql", "--cache", "cold", said="cold caches")
    refuse("--workload", "read.sql", said="is a template", database="template1")
    done = run_here(("bench", "--database", "app", "--workload", "read.sql", "--home", "home"), cwd=bench.folder)
    assert (done.returncode, "in a given server only" in done.stderr) == (2, True), done.stderr
    assert cluster.dump() == before


def test_a_procedure_that_begins_a_transaction_that_writes(cluster: Cluster, bench: Bench) -> None:
    cluster.sql("CREATE DATABASE calls OWNER bench")
    cluster.sql(
        "CREATE TABLE kept (id int); GRANT ALL ON kept TO bench;"
        " CREATE PROCEDURE pay() LANGUAGE plpgsql AS"
        " $$ BEGIN COMMIT; SET TRANSACTION READ WRITE; INSERT INTO kept VALUES (1); END $$",
        database="calls",
    )
    (bench.folder / "call.sql").write_text("CALL pay();\n")
    # Words that stand for something else refuse nothing.
    (bench.folder / "words.sql").write_text("-- it reads, and writes nothing\nSELECT 1 AS read, 2 AS write;\n")
    named = words(cluster, "bench", "--stock-only", database="calls")
    done = run_here((*named, "--workload", "call.sql", *SHORT), cwd=bench.folder)
    assert (done.returncode, "rows were written to the database calls" in done.stderr) == (2, True), done.stderr
    assert bench.records == []
    done = run_here((*named, "--workload", "call.sql", *SHORT, "--allow", "busy", "--out", "busy"), cwd=bench.folder)
    assert (done.returncode, "rows were written to the database calls" in done.stderr) == (0, True), done.stderr
    done = run_here((*named, "--workload", "words.sql", *SHORT, "--out", "words"), cwd=bench.folder)
    assert (done.returncode, "rows were written" in done.stderr) == (0, False), done.stderr
    cluster.sql("DROP DATABASE calls WITH (FORCE)")


def test_what_is_allowed_by_name_is_written(cluster: Cluster, bench: Bench) -> None:
    before, begins = cluster.dump("neighbour"), len(log(cluster))
    done = run_here(
        (*words(cluster, "bench", "--stock-only"), "--workload", "pay.sql", *SHORT, "--allow", "writes=app"),
        cwd=bench.folder,
    )
    assert done.returncode == 0, done.stderr
    assert "the load may write to the database app, and nothing puts it back" in done.stderr
    assert int(cluster.sql("SELECT count(*) FROM orders WHERE note = 'paid'", database="app")) > 0
    assert cluster.dump("neighbour") == before
    assert list_said(cluster, begins=begins, scripts=r"UPDATE orders SET note = 'paid' WHERE id = \d+;") == []
    assert json.loads((bench.record / "record.json").read_text())["are_writes_allowed"] is True
    report = (bench.record / "report.md").read_text()
    assert "The load could write to the database app, and nothing was restored between trials." in report
    cluster.sql("UPDATE orders SET note = ''", database="app")


def test_pgbenchs_own_tables_are_read_by_select_only(cluster: Cluster, bench: Bench) -> None:
    cluster.sql("CREATE DATABASE tables OWNER bench")
    cluster.run("pgbench", "-i", "-q", "-s", "1", "-h", str(cluster.root), "-p", str(PORT), "-U", "bench", "tables")
    before = cluster.dump("tables")
    named = words(cluster, "bench", "--stock-only", database="tables")
    done = run_here((*named, "--workload", "select-only", *SHORT), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    done = run_here((*named, "--workload", "tpcb-like", *SHORT, "--out", "other"), cwd=bench.folder)
    assert (done.returncode, "cannot execute UPDATE in a read-only transaction" in done.stderr) == (2, True), (
        done.stderr
    )
    assert not (bench.folder / "other").exists()
    assert cluster.dump("tables") == before
    cluster.sql("DROP DATABASE tables")


def test_numbers_of_clients_take_turns_there(cluster: Cluster, bench: Bench) -> None:
    before, begins = cluster.dump(), len(log(cluster))
    # A client that thinks leaves the CPUs to the tests beside it.
    (bench.folder / "read.sql").write_text(f"{READ}\\sleep 20 ms\n")
    short = ("--warm-up", "0s", "--duration", "2s", "--minutes", "1")
    done = run_here((*words(cluster, "sweep", "clients=1,2"), "--workload", "read.sql", *short), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    assert "take turns on one server" in done.stderr
    assert list_said(cluster, begins=begins, scripts=r"SELECT note FROM orders WHERE id = \d+;") == []
    assert cluster.dump() == before
    trials = [json.loads(file.read_text()) for file in bench.record.glob("trials/*/trial.json")]
    assert {value for one in trials for value in read_settings(one, "default_transaction_read_only")} == {"on"}
    assert list(bench.record.glob("trials/*/turns/001"))

"""The user's own SQL file in real servers of others: loaded whole or not at all, found again by its content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.record.types import Dataset
from pgdyno.run.given.access import open_access
from pgdyno.run.given.database import drop_database
from pgdyno.run.given.own_databases import list_databases
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.init_file import read_init_lines
from pgdyno.spec.study import DataSpec
from tests.rows import check_rows
from tests.run.test_given_server import dsn, make_server
from tests.tools.pgcluster import Cluster, running

pytestmark = pytest.mark.cluster
ORDERS = """\\restrict key
CREATE TABLE orders (id int PRIMARY KEY, note text);
COPY orders (id, note) FROM stdin;
1\t'one
2\t\\N
\\.
INSERT INTO orders SELECT number, 'more' FROM generate_series(3, 1000) AS number;
CREATE SCHEMA other CREATE TABLE lines (line int);
CREATE MATERIALIZED VIEW counts AS SELECT count(*) FROM orders;
\\unrestrict key
"""


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        made.sql("CREATE DATABASE neighbour OWNER plain")
        yield made


@pytest.fixture
def address(cluster: Cluster) -> Iterator[Address]:
    with open_access(dsn(cluster.root)) as made:
        yield made
        for one in list_databases(made)[0]:
            drop_database(made, one)


def load(cluster: Cluster, address: Address, file: Path) -> tuple[GivenServerUnderTest, Dataset]:
    server = make_server(cluster, address)
    kept = file.with_name("kept.sql")
    kept.write_bytes(b"".join(read_init_lines(file)))
    data = DataSpec(init=str(kept))
    return server, server.load(data, 1, settings={}, output_dir=file.parent / "init", on_activity=lambda _: None)


def names(cluster: Cluster) -> list[str]:
    return cluster.sql("SELECT datname FROM pg_database WHERE datname LIKE 'pgdyno%' ORDER BY 1").split()


def test_a_file_is_loaded_once_for_its_content_and_copied(cluster: Cluster, address: Address, tmp_path: Path) -> None:
    file = tmp_path / "schema.sql"
    file.write_text(ORDERS)
    server, dataset = load(cluster, address, file)
    rows = {one.name: (one.kind, one.rows) for one in dataset.relations}
    # Vacuumed and analysed, as pgbench's tables are.
    assert rows["orders"] == ("table", 1000.0)
    assert rows["counts"] == ("materialized view", 1.0)
    assert set(rows) == {"orders", "orders_pkey", "other.lines", "counts"}
    assert (dataset.is_reused, dataset.total_bytes > 0) == (False, True)
    server.reset()
    with server.connect() as inside:
        inside.execute("DELETE FROM orders")
    server.reset()
    with server.connect() as inside:
        assert inside.execute("SELECT count(*) FROM orders").fetchall() == [{"count": 1000}]
        assert sql.warm_dataset(inside).method == "index scans"
    server.close()
    (kept,) = names(cluster)
    server, again = load(cluster, address, file)
    assert again == msgspec.structs.replace(dataset, is_reused=True, init_total_s=0.0)
    file.write_text(ORDERS.replace("1000)", "2000)"))
    server, other = load(cluster, address, file)
    assert {one.name: one.rows for one in other.relations}["orders"] == 2000.0
    assert other.file_sha256 != dataset.file_sha256
    assert len(names(cluster)) == 2
    assert kept in names(cluster)


# What looks like a command of psql's, and is none.
TAKEN = """CREATE TABLE notes (note text, more text);
INSERT INTO notes VALUES ('
\\restrict key
\\begin{tex}
');
COPY notes (note, more)
  FROM stdin;
\\\\server\tone
\\.
COPY notes FROM STDIN; -- rows
\\N\ttwo
\\.
"""


def test_backslashes_that_are_no_commands_are_loaded_as_they_are(
    cluster: Cluster, address: Address, tmp_path: Path
) -> None:
    file = tmp_path / "schema.sql"
    file.write_text(TAKEN)
    server, _ = load(cluster, address, file)
    server.reset()
    with server.connect() as inside:
        notes = [row["note"] for row in inside.execute("SELECT note FROM notes").fetchall()]
    server.close()
    assert notes == ["\n\\restrict key\n\\begin{tex}\n", "\\server", None]


# SQL, and what the error says of it.
BROKEN = (
    (
        "CREATE TABLE t (id int);\n\nINSERT INTO t VALUES ('x');\n",
        'kept.sql:3: ERROR:  invalid input syntax for type integer: "x"',
    ),
    ("CREATE TABLE t (id int);\nSELEC 1;\n", 'kept.sql:2: ERROR:  syntax error at or near "SELEC"'),
    ("CREATE TABLE t (id int);\nSELECT 1/0;\n", "kept.sql:2: ERROR:  division by zero"),
    ("CREATE TABLE t (id int);\nCOPY t FROM stdin;\n1\nx\n\\.\n", "kept.sql:5: ERROR:  invalid input syntax"),
    ("BEGIN;\nCREATE TABLE t (id int);\n", "VACUUM cannot run inside a transaction block"),
    ("SELECT 1; \\connect neighbour\nCREATE TABLE here ();\n", "kept.sql:1: error: backslash commands are restricted"),
    (
        "SELECT 1; \\unrestrict pgdyno\nSELECT 2; \\connect neighbour\nCREATE TABLE here ();\n",
        "kept.sql:1: error: \\unrestrict: ",
    ),
    ("SELECT 1; \\unrestrict\nSELECT 2;\n", "kept.sql:1: error: \\unrestrict: missing required argument"),
    ("\\connect neighbour\n", "kept.sql:1: error: backslash commands are restricted"),
    (
        "CREATE TABLE t (a int);\nCOPY t FROM stdin;\n1\n\\.\n\\! rm file\n",
        "kept.sql:5: error: backslash commands are restricted",
    ),
    ("SELECT 1 \\g | cat\n", "kept.sql:1: error: backslash commands are restricted"),
)


def test_after_an_error_nothing_stays(cluster: Cluster, address: Address, tmp_path: Path) -> None:
    def refuse(row: tuple[str, str]) -> None:
        text, said = row
        file = tmp_path / "schema.sql"
        file.write_text(text)
        with pytest.raises(SpecError, match=r"kept\.sql fails") as caught:
            load(cluster, address, file)
        assert said in caught.value.detail
        assert ("say it in SQL" in caught.value.hint) is ("restricted" in said)
        assert names(cluster) == []

    check_rows(BROKEN, refuse)
    assert cluster.sql("SELECT count(*) FROM pg_class WHERE oid >= 16384", database="neighbour") == "0"

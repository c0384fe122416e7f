"""Whether data and port of a real server are those that are meant, asked of the server itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgdyno.explain.finding import Finding
from pgdyno.flow.check import Check, check_data
from pgdyno.run.host.tunables import read_data_bytes
from pgdyno.spec.study import ServerKind, ServerSpec
from tests.tools.pgcluster import PORT, Cluster, running

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With pgbench's tables in one of its databases, and with traps in others."""
    with running(request.param) as made:
        made.sql("CREATE DATABASE bench")
        made.sql('CREATE DATABASE "host=nowhere dbname=bench"')
        made.run("pgbench", "-i", "-q", "-s", "3", "-h", str(made.root), "-p", str(PORT), "-U", "postgres", "bench")
        made.sql("CREATE VIEW pgbench_branches AS SELECT 1 / 0 AS bid")
        yield made


def look(cluster: Cluster, *, scale: int | None = None, clients: int | None = None) -> tuple[Check, dict[str, Finding]]:
    named = ServerSpec(kind=ServerKind.LOCAL, bindir=str(cluster.bin_directory))
    check = check_data(cluster.data, named=named, scale=scale, clients=clients)
    return check, {finding.rule: finding for finding in check.findings}


def test_branches_are_counted_in_every_database(cluster: Cluster) -> None:
    check, found = look(cluster, clients=9)
    assert check.facts.server is not None
    assert check.facts.server.branches == {"bench": 3}
    assert (found["scale-below-clients"].evidence, found["scale-below-clients"].workload) == (
        "Scale 3, 9 clients",
        "tpcb-like in bench",
    )
    assert "wrong-database" not in found
    assert "ERROR" not in (cluster.root / "server.log").read_text(), "nothing of anybody's is run or missed"


def test_another_scale_than_the_one_meant(cluster: Cluster) -> None:
    _, found = look(cluster, scale=7, clients=5)
    assert found["wrong-database"].evidence == "Scale 7 is asked for; pgbench_branches has 3 rows in bench"
    assert "scale-below-clients" not in found
    assert "wrong-database" not in look(cluster, scale=3, clients=3)[1]


def test_where_clients_go_and_how_large_the_data_are(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPORT", raising=False)
    check, found = look(cluster)
    assert f"listens at {PORT}; PGPORT is not set" in found["wrong-port"].evidence
    assert check.facts.server is not None
    assert check.facts.server.data_bytes == pytest.approx(read_data_bytes(cluster.data), rel=0.1)
    assert "fit into memory" in found["data-against-memory"].claim
    assert check.facts.server.branches == {}, "nobody asked for a load"
    monkeypatch.setenv("PGPORT", str(PORT))
    assert "wrong-port" not in look(cluster)[1]


def test_a_server_that_does_not_run_tells_of_no_tables(cluster: Cluster) -> None:
    cluster.stop()
    try:
        check, found = look(cluster, clients=9)
    finally:
        cluster.start()
    assert [one.reason for one in check.facts.unseen if "pgbench's tables" in one.what] == ["it does not run"]
    assert not {"scale-below-clients", "wrong-port", "wrong-database"} & set(found)

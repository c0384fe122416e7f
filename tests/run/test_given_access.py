"""Every later connection to a server of the user's, also pgbench's own, is encrypted as the first one was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgdyno.run.given.access import open_access
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.lost import NoConnectionError
from tests.cli.program import wait_until
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running_given

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Of the distribution: the embedded server has no TLS."""
    with running_given(15) as made:
        made.make_certificate()
        made.listen()
        yield made


def offer_tls(cluster: Cluster, word: str) -> None:
    cluster.sql(f"ALTER SYSTEM SET ssl = {word}")
    cluster.sql("SELECT pg_reload_conf()")
    assert wait_until(lambda: cluster.sql("SHOW ssl") == word)


def test_a_server_that_begins_or_ceases_to_offer_tls(cluster: Cluster) -> None:
    way = f"host={LOOPBACK} port={PORT} user=bench dbname=postgres"
    offer_tls(cluster, "off")
    with open_access(way) as address:
        offer_tls(cluster, "on")
        with sql.connect(address) as later:
            assert not later.pgconn.ssl_in_use
    with open_access(way) as address:
        with sql.connect(address) as later:
            assert later.pgconn.ssl_in_use
        offer_tls(cluster, "off")
        with pytest.raises(NoConnectionError) as caught:
            sql.connect(address)
    assert "does not support SSL" in caught.value.detail


@pytest.mark.parametrize("asked", ["", "gssencmode=prefer", "sslmode=prefer gssencmode=prefer"])
def test_a_way_without_kerberos_does_not_become_one_with_it(cluster: Cluster, asked: str) -> None:
    for host in (LOOPBACK, str(cluster.root)):
        with open_access(f"host={host} port={PORT} user=bench dbname=postgres {asked}") as address:
            assert address.parameters["gssencmode"] == "disable"

"""Real replicas of a server: what is counted as following it, and what the wait for one says that will never have the data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgdyno.errors import StepFailedError
from pgdyno.run.given import replicas
from pgdyno.run.given.replicas import Replicas, open_replicas
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from tests.replicas import streaming
from tests.tools.pgcluster import PORT, Cluster, running_given

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and a replica of it."""
    with running_given(18) as primary, streaming(primary) as (standby,):
        yield primary, standby


@pytest.fixture
def address(servers: tuple[Cluster, Cluster]) -> Address:
    return Address(host=str(servers[0].root), port=PORT, user="bench", dbname="postgres")


@pytest.fixture
def opened(servers: tuple[Cluster, Cluster], address: Address) -> Iterator[Replicas]:
    with open_replicas([f"host={servers[1].root} port={PORT}"], address) as found:
        yield found


def test_a_slot_counts_beside_those_who_are_connected_unless_one_of_them_uses_it(address: Address) -> None:
    with sql.connect(address) as connection:
        assert sql.count_replicas(connection) == 1
        with sql.connect(Address(host=address.host, port=PORT, user="postgres", dbname="postgres")) as holder:
            # It is held by a session that sends no WAL.
            holder.execute("SELECT pg_create_physical_replication_slot('held', true, true)")
            assert sql.count_replicas(connection) == 2
            holder.execute("SELECT pg_create_physical_replication_slot('kept', true)")
            assert sql.count_replicas(connection) == 3
            holder.execute("SELECT pg_drop_replication_slot('kept')")


def test_a_server_that_replays_on_without_the_data_is_not_waited_for(
    servers: tuple[Cluster, Cluster], address: Address, opened: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "copy_patience_s", lambda _: 1.0)
    looks = 0

    def write(_: str) -> None:
        nonlocal looks
        looks += 1
        assert looks < 200, "the wait does not end while others write"
        servers[0].sql("SELECT pg_logical_emit_message(false, 'test', 'more'); CHECKPOINT")

    with pytest.raises(StepFailedError, match="does not get what the primary writes") as caught:
        opened.await_replay(address, "no_such_database", on_activity=write)
    assert "has no database no_such_database" in caught.value.detail


def test_a_replica_that_hides_how_far_it_is_is_not_called_silent(
    servers: tuple[Cluster, Cluster], address: Address, opened: Replicas
) -> None:
    function = "FUNCTION pg_catalog.pg_last_wal_replay_lsn()"
    superuser = Address(host=address.host, port=PORT, user="postgres", dbname="postgres")
    with open_replicas([f"host={servers[1].root} port={PORT}"], superuser) as seeing:
        servers[0].sql(f"REVOKE EXECUTE ON {function} FROM PUBLIC")
        try:
            seeing.await_replay(superuser, "postgres", on_activity=str)
            with pytest.raises(StepFailedError, match="refuses what pgdyno asks") as caught:
                opened.await_replay(address, "postgres", on_activity=str)
        finally:
            servers[0].sql(f"GRANT EXECUTE ON {function} TO PUBLIC")
            seeing.await_replay(superuser, "postgres", on_activity=str)
    assert "permission denied for function pg_last_wal_replay_lsn" in caught.value.detail

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.facts.versions import TRIED_MAJORS
from pgdyno.facts.wait_events import find_resource, list_event_resources
from pgdyno.run.postgres import sql
from tests.facts.clusters import VERSIONS, Cluster

_VIEW_SINCE = 17


@pytest.mark.parametrize("major", TRIED_MAJORS)
def test_each_event_is_for_a_resource_that_analysis_knows(major: int) -> None:
    assert {Resource(resource) for resource in list_event_resources(major).values()} == {
        Resource.WAL_FLUSH,
        Resource.WAL_LOCK,
        Resource.DATA_READ,
        Resource.DATA_WRITE,
        Resource.TEMP_FILE,
        Resource.STANDBY,
        Resource.LOCK,
        Resource.LIGHTWEIGHT_LOCK,
    }


def test_versions_spell_one_wait_in_their_own_ways() -> None:
    assert find_resource(16, "IO", "WALSync") == find_resource(17, "IO", "WalSync") == "WAL flush"
    assert find_resource(17, "IO", "WALSync") is None
    assert find_resource(15, "IO", "WalSync") is None


def test_what_is_not_told_apart_is_as_its_type_or_not_known() -> None:
    assert find_resource(18, "Lock", "transactionid") == "row and lock contention"
    assert find_resource(18, "LWLock", "SomethingNew") == "lightweight locks"
    assert find_resource(18, "LWLock", "WALWrite") == "WAL flush"
    assert find_resource(18, "IO", "SomethingNew") is None
    assert find_resource(18, "Extension", "Extension") is None


@pytest.mark.parametrize("major", VERSIONS)
def test_each_event_is_one_of_the_servers(major: int, cluster_of: Callable[[int], Cluster]) -> None:
    cluster = cluster_of(major)
    if major >= _VIEW_SINCE:
        connection = sql.connect(cluster.address)
        known = {(row["type"], row["name"]) for row in connection.execute("SELECT type, name FROM pg_wait_events")}
        connection.close()
        assert list_event_resources(major).keys() <= known
    else:
        # These have no view of them; their names are words of the program.
        program = (cluster.bindir / "postgres").read_bytes()
        assert [name for _, name in list_event_resources(major) if b"\0" + name.encode() + b"\0" not in program] == []

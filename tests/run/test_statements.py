"""What pg_stat_statements counts of loads on real servers, where it is there, and why not elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.record.statements import STATEMENTS
from pgdyno.run import statements
from pgdyno.run.cluster.home import Home
from pgdyno.run.given.access import open_access
from pgdyno.run.given_server import GivenServerUnderTest
from pgdyno.run.postgres.address import Address
from pgdyno.run.trial_stage import Observed
from tests.homes import some_home
from tests.run.test_given_server import dsn, make_server
from tests.run.test_trial import GENTLE, make_stage, run_first
from tests.tools.pgcluster import Cluster, running

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_helpers")]
ROLES = ("plain", "postgres")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        made.sql("CREATE DATABASE load")
        yield made


class BesideLoad(GivenServerUnderTest):
    """A given server whose load runs in a database that is there already."""

    @property
    def address(self) -> Address:
        return msgspec.structs.replace(super().address, dbname="load")


def observe(cluster: Cluster, role: str) -> Observed:
    """What is seen of ten selects in another database than the one that the user named."""
    seen = Observed()
    with open_access(dsn(cluster.root, user=role)) as address:
        server = make_server(cluster, address, kind=BesideLoad)
        statements.look_before(server, seen, ())
        with server.connect() as connection:
            for number in range(10):
                connection.execute(f"SELECT generate_series(1, {number + 1})".encode())
        statements.look_after(server, seen)
    return seen


def test_statements_of_a_given_server(cluster: Cluster) -> None:
    # Before the library is loaded: without the extension, and with it.
    for is_created in (False, True):
        if is_created:
            cluster.sql('CREATE SCHEMA "Ex.t"; CREATE EXTENSION pg_stat_statements SCHEMA "Ex.t"')
            cluster.sql('GRANT USAGE ON SCHEMA "Ex.t" TO PUBLIC')
        for role in ROLES:
            seen = observe(cluster, role)
            assert seen.statements is None
            (gap,) = seen.gaps
            assert gap.source == STATEMENTS
            assert ("must be loaded" if is_created else "no such extension") in gap.reason
            assert "CREATE EXTENSION pg_stat_statements in postgres" in gap.reason
    cluster.stop()
    cluster.start("shared_preload_libraries=pg_stat_statements", "track_io_timing=on")
    for role in ROLES:
        seen = observe(cluster, role)
        assert seen.gaps == ()
        assert seen.statements is not None
        (one,) = (one for one in seen.statements if "generate_series" in one.query)
        assert one.query == "SELECT generate_series($1, $2)"
        assert (one.calls, one.rows, one.wal_bytes) == (10, 55, 0)
        assert one.exec_ms > 0
        assert one.plan_ms is None
        assert one.read_ms == 0
    cluster.sql('REVOKE USAGE ON SCHEMA "Ex.t" FROM PUBLIC')
    (gap,) = observe(cluster, "plain").gaps
    assert "permission denied for schema" in gap.reason
    assert observe(cluster, "postgres").gaps == ()


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


@pytest.mark.parametrize("major", [18, 15])
def test_a_server_of_its_own_has_them_if_its_settings_say_so(home: Home, tmp_path: Path, major: int) -> None:
    short = {"duration": "1s", "warm_up": "1s"}
    stage = make_stage(home, tmp_path, major, trials=short, **GENTLE)
    asked = msgspec.structs.replace(stage, settings={"shared_preload_libraries": "auto_explain, pg_stat_statements"})
    outcome = run_first(asked, tmp_path / "asked")
    assert outcome.error is None
    assert STATEMENTS not in {gap.source for gap in outcome.record.gaps}
    assert outcome.record.statements is not None
    (select,) = (one for one in outcome.record.statements if "FROM pgbench_accounts WHERE" in one.query)
    assert select.rows == select.calls > 0
    assert run_first(stage, tmp_path / "not-asked").record.statements is None

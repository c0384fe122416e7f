"""The session by which a study keeps other pgdynos away from a real server."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from pgdyno.errors import HostError
from pgdyno.run.given.lock import StudyLock, is_study_at_work
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
END_ALL = (
    "SELECT count(pg_terminate_backend(pid, 600000)) FROM pg_stat_activity WHERE application_name = 'pgdyno-study'"
)


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE one LOGIN; CREATE ROLE two LOGIN")
        made.sql("CREATE DATABASE other")
        yield made


@pytest.fixture(autouse=True)
def last_session(cluster: Cluster) -> Iterator[None]:
    """Leave nothing to the next test: a server has a session for a moment longer than its client."""
    yield
    assert wait_until(lambda: not is_study_at_work(reach(cluster, "two", "other")))


def reach(cluster: Cluster, user: str, dbname: str) -> Address:
    return Address(host=str(cluster.root), port=PORT, user=user, dbname=dbname)


def test_a_second_study_is_kept_away_from_every_database(cluster: Cluster) -> None:
    one, two = reach(cluster, "one", "postgres"), reach(cluster, "two", "other")
    with closing(StudyLock(one)) as lock:
        assert is_study_at_work(two)
        with pytest.raises(HostError, match="another pgdyno is at work"):
            StudyLock(two)
        lock.check()
    assert wait_until(lambda: not is_study_at_work(two))
    StudyLock(two).close()


def test_a_session_that_was_ended_is_taken_anew(cluster: Cluster) -> None:
    one, two = reach(cluster, "one", "postgres"), reach(cluster, "two", "other")
    with closing(StudyLock(one)) as lock:
        assert cluster.sql(END_ALL) == "1"
        assert not is_study_at_work(two)
        lock.check()
        assert is_study_at_work(two)
        assert cluster.sql(END_ALL) == "1"
        with closing(StudyLock(two)), pytest.raises(HostError, match="another pgdyno is at work"):
            lock.check()


def test_a_connection_that_the_network_has_forgotten_is_taken_anew(cluster: Cluster) -> None:
    """The server does not know, and keeps the session."""
    one, two = reach(cluster, "one", "postgres"), reach(cluster, "two", "other")
    with closing(StudyLock(one)) as lock:
        line = lock._session.fileno()
        with socket.socket(fileno=os.dup(line)):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                os.dup2(ours.fileno(), line)
            assert is_study_at_work(two)
            lock.check()
            with closing(sql.connect(two)) as connection:
                assert sql.count_named_sessions(connection, "pgdyno-study") == 1

"""Dropping what pgdyno has loaded into a real server, while others may begin to use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError
from pgdyno.flow.given.clean import clean_given
from pgdyno.run.given.database import create_database, drop_database, note_loaded
from pgdyno.run.given.lock import StudyLock, is_study_at_work
from pgdyno.run.given.own_databases import OwnDatabase, list_databases
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from tests.replicas import streaming
from tests.tools.pgcluster import PORT, Cluster, running_given
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


class Asked(Ui):
    """Says yes, after something has happened."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens = happens

    def confirm(self, question: str, *, default: bool) -> bool:
        self._happens()
        return True


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_given(18) as made:
        yield made


@pytest.fixture
def address(cluster: Cluster) -> Address:
    return Address(host=str(cluster.root), port=PORT, user="bench", dbname="postgres", side_dbname="postgres")


@pytest.fixture
def loaded(address: Address) -> Iterator[OwnDatabase]:
    made = note_loaded(address, create_database(address), "pgbench")
    yield made
    drop_database(address, made)


def dsn(address: Address) -> str:
    return f"host={address.host} port={PORT} user=bench dbname=postgres"


def test_a_study_that_begins_while_the_question_is_open_keeps_its_data(address: Address, loaded: OwnDatabase) -> None:
    with ExitStack() as stack, pytest.raises(HostError, match="another pgdyno is at work"):
        clean_given(dsn(address), ui=Asked(lambda: stack.enter_context(closing(StudyLock(address)))))
    assert [one.name for one in list_databases(address)[0]] == [loaded.name]


def test_a_database_that_is_used_by_then_and_one_that_was_not_asked_for_are_left(
    address: Address, loaded: OwnDatabase
) -> None:
    asked = create_database(address)
    inside = Address(host=address.host, port=PORT, user="bench", dbname=loaded.name)
    with ExitStack() as stack:
        made: list[OwnDatabase] = []

        def begin() -> None:
            stack.enter_context(sql.connect(inside))
            made.append(create_database(address))

        cleaned = clean_given(dsn(address), ui=Asked(begin))
        assert ([one.name for one in cleaned.dropped], [one.name for one in cleaned.in_use]) == (
            [asked.name],
            [loaded.name],
        )
    assert wait_until(lambda: not is_study_at_work(address))
    assert {one.name for one in list_databases(address)[0]} == {loaded.name, made[0].name}
    drop_database(address, made[0])


def test_a_standby_is_refused_before_the_question(cluster: Cluster, address: Address, loaded: OwnDatabase) -> None:
    with streaming(cluster) as (standby,):
        there = Address(host=str(standby.root), port=PORT, user="bench", dbname="postgres")
        with pytest.raises(HostError, match="is a standby"):
            clean_given(dsn(there), ui=Asked(lambda: pytest.fail("it was asked")))
    assert [one.name for one in list_databases(address)[0]] == [loaded.name]

"""What a user allowed when a study of a given server began holds when it goes on; writes are not added later."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.given.bench import allowed_again
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.spec.allowed import NOTHING, Allowed
from pgdyno.spec.study import DataSpec
from tests.given import RECORDS

GB = 1024.0**3
BUSY, WRITES = Allowed(is_busy=True), Allowed(writes="app")


def record(*, is_busy: bool = False, may_write: bool = False) -> StudyRecord:
    made = RecordStore(RECORDS / "v1-pg18").read_record()
    study = msgspec.structs.replace(
        made.study,
        data=DataSpec(database="app"),
        workload=(msgspec.structs.replace(made.study.workload[0], name="mine", scripts=("/mine.sql@1",)),),
    )
    return msgspec.structs.replace(made, study=study, is_busy_allowed=is_busy, are_writes_allowed=may_write)


def test_what_was_allowed_is_allowed_again() -> None:
    assert allowed_again(record()) == NOTHING
    assert allowed_again(record(is_busy=True)) == BUSY
    assert allowed_again(record(may_write=True)) == WRITES


@pytest.mark.parametrize("began", [GB, 200 * GB])
def test_a_bound_holds_until_another_is_set(began: float) -> None:
    bounded = msgspec.structs.replace(record(), allowed_data_bytes=began, allowed_wal_bytes=began)
    again = allowed_again(bounded, BUSY)
    assert (again.most_data_bytes, again.most_wal_bytes) == (began, began)
    for bound in (2 * GB, 100 * GB):
        again = allowed_again(bounded, Allowed(wal_bytes=bound))
        assert (again.most_data_bytes, again.most_wal_bytes) == (began, bound)
        again = allowed_again(bounded, Allowed(data_bytes=bound))
        assert (again.most_data_bytes, again.most_wal_bytes) == (bound, began)


def test_without_a_bound_there_is_one() -> None:
    again = allowed_again(record())
    assert (again.most_data_bytes, again.most_wal_bytes) == (50 * GB, 50 * GB)


def test_a_server_may_have_become_busy_and_writes_are_not_added() -> None:
    assert allowed_again(record(), BUSY) == BUSY
    assert allowed_again(record(may_write=True), WRITES) == WRITES
    with pytest.raises(SpecError, match="only read"):
        allowed_again(record(), WRITES)

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
    for one in (None, NOTHING):
        assert allowed_again(record(), one) == NOTHING
        assert allowed_again(record(is_busy=True), one) == BUSY
        assert allowed_again(record(may_write=True), one) == WRITES


def test_a_server_may_have_become_busy_and_writes_are_not_added() -> None:
    assert allowed_again(record(), BUSY) == BUSY
    assert allowed_again(record(may_write=True), WRITES) == WRITES
    with pytest.raises(SpecError, match="only read"):
        allowed_again(record(), WRITES)

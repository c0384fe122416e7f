"""A given server's record goes on from the machine that its load came from, and from no other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pgdyno.errors import HostError
from pgdyno.flow.given.bench import check_same_server
from pgdyno.record.store import RecordStore
from tests.given import give


def test_a_load_comes_from_the_machine_that_it_came_from(tmp_path: Path) -> None:
    record = RecordStore(give("v1-pg18", tmp_path).path).read_record()
    before = record.load_host
    assert before is not None

    def go_on(**changed: object) -> None:
        host = msgspec.structs.replace(before, **changed)
        ready = SimpleNamespace(seen=record.given, host=record.host, load=None, load_host=host)
        check_same_server(record, ready)  # type: ignore[arg-type] - what of it is used

    go_on(host_name="another container")
    for name, value in (("cpu_model", "another"), ("cpu_count", 96), ("kernel", "another")):
        with pytest.raises(HostError, match="the load comes from another machine or kernel now"):
            go_on(**{name: value})

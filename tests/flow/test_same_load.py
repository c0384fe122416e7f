"""A given server's record goes on from the machine that its load came from, and from no other."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from pgdyno.conduct.load.hosts import check_same_load
from pgdyno.conduct.machine import check_same
from pgdyno.errors import HostError
from pgdyno.flow.given.bench import check_same_server
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.store import RecordStore
from pgdyno.record.types import LoadHostFacts
from tests.explain.test_bottleneck import make_load_host
from tests.given import give
from tests.records import RECORDS


def test_a_load_comes_from_the_machine_that_it_came_from(tmp_path: Path) -> None:
    record = RecordStore(give("v1-pg18", tmp_path).path).read_record()
    before = record.load_host
    assert before is not None

    def go_on(**changed: object) -> None:
        host = msgspec.structs.replace(before, **changed)
        ready = SimpleNamespace(seen=record.given, replicas=(), host=record.host, load=None, load_host=host)
        check_same_server(record, ready)  # type: ignore[arg-type] - what of it is used

    go_on(host_name="another container")
    for name, value in (("cpu_model", "another"), ("cpu_count", 96), ("kernel", "another")):
        with pytest.raises(HostError, match="the load comes from another machine or kernel now"):
            go_on(**{name: value})
    # An older record does not name its Arm cores.
    go_on(cpu_core="Neoverse-V2")
    record = msgspec.structs.replace(record, load_host=msgspec.structs.replace(before, cpu_core="Neoverse-V1"))
    with pytest.raises(HostError, match="the load comes from another machine or kernel now"):
        go_on(cpu_core="Neoverse-V2")


def test_a_study_goes_on_with_the_load_hosts_that_it_began_with() -> None:
    record = RecordStore(RECORDS / "v1-pg18").read_record()
    of_old = make_load_host(record)

    def with_core(core: str | None) -> LoadHostFacts:
        return msgspec.structs.replace(of_old, facts=msgspec.structs.replace(of_old.facts, cpu_core=core))

    first = with_core("Neoverse-V1")
    check_same_load((first,), (first,))
    # An older record does not name its Arm cores.
    check_same_load((with_core(None),), (first,))
    for others in ((with_core("Neoverse-V2"),), (msgspec.structs.replace(first, name="load2"),), (), (first, first)):
        with pytest.raises(HostError, match="other load hosts, or from another pgbench"):
            check_same_load((first,), others)


def test_a_study_goes_on_with_the_replicas_that_it_read_from(tmp_path: Path) -> None:
    given = RecordStore(give("v1-pg18", tmp_path).path).read_record()
    assert given.given is not None
    record = msgspec.structs.replace(given, replicas=(given.given,))

    def go_on(*replicas: GivenServer) -> None:
        ready = SimpleNamespace(
            seen=given.given, replicas=replicas, host=given.host, load=None, load_host=given.load_host
        )
        check_same_server(record, ready)  # type: ignore[arg-type] - what of it is used

    go_on(given.given)
    others = (), (given.given, given.given), (msgspec.structs.replace(given.given, version="18.0"),)
    for replicas in others:
        with pytest.raises(HostError, match="another replica is there now"):
            go_on(*replicas)


def test_a_device_that_was_not_looked_for_does_not_end_a_study(tmp_path: Path) -> None:
    """Earlier versions knew no device of a btrfs."""
    given = RecordStore(give("v1-pg18", tmp_path).path).read_record()
    record = RecordStore(RECORDS / "v1-pg18").read_record()
    then = record.host
    assert then is not None
    assert then.data_disk.block_device is not None

    def go_on(**changed: object) -> None:
        host = msgspec.structs.replace(then, data_disk=msgspec.structs.replace(then.data_disk, **changed))
        ready = SimpleNamespace(seen=given.given, replicas=(), host=host, load=None, load_host=given.load_host)
        check_same_server(msgspec.structs.replace(given, host=then), ready)  # type: ignore[arg-type] - what of it is used
        check_same(record, host, record.preflight, record.server)

    go_on(block_device=None)
    for name, value in (("block_device", "nvme7n1"), ("filesystem", "another")):
        with pytest.raises(HostError, match="the server runs on another machine or kernel now"):
            go_on(**{name: value})
        other = msgspec.structs.replace(then, data_disk=msgspec.structs.replace(then.data_disk, **{name: value}))
        with pytest.raises(HostError, match="the record was made on another machine, disk or kernel"):
            check_same(record, other, record.preflight, record.server)

"""Which machine a record may go on on."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.conduct.machine import check_same
from pgdyno.errors import HostError
from pgdyno.flow.resume import check_same_pooler
from pgdyno.plan.types import PlannedPooler, PoolerProgram
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.spec.pooler import PoolMode
from tests.report.build import build_report


def test_a_machine_with_a_new_name_is_the_same_and_one_with_another_cpu_is_not() -> None:
    record = build_report().record
    named = msgspec.structs.replace(record, host=msgspec.structs.replace(record.host, host_name="alpha"))
    for now in (record.host, named.host, msgspec.structs.replace(record.host, host_name="beta")):
        check_same(named, now, record.preflight, record.server)
    arm = msgspec.structs.replace(named.host, cpu_core="Neoverse-V1")
    check_same(named, arm, record.preflight, record.server)
    named = msgspec.structs.replace(named, host=arm)
    for changed in ({"cpu_model": "another"}, {"cpu_core": "Neoverse-V2"}):
        with pytest.raises(HostError, match="another machine"):
            check_same(named, msgspec.structs.replace(arm, **changed), record.preflight, record.server)


def test_the_disk_of_pg_wal_must_be_the_same() -> None:
    record = build_report().record
    disk = record.host.data_disk

    def wal_on(device: str) -> PreflightFacts:
        wal = msgspec.structs.replace(disk, device=f"/dev/{device}", block_device=device)
        return PreflightFacts(wal=wal)

    apart = msgspec.structs.replace(record, preflight=wal_on("vdb"))
    assert (apart.wal_device, record.wal_device) == ("vdb", None)
    check_same(apart, record.host, wal_on("vdb"), record.server)
    for now in (wal_on("vdc"), PreflightFacts(wal=disk)):
        with pytest.raises(HostError, match="another machine, disk"):
            check_same(apart, record.host, now, record.server)


def test_each_variants_postgresql_must_be_the_same() -> None:
    record = build_report().record
    older, newer = (
        msgspec.structs.replace(record.server, version=version, version_num=number)
        for version, number in (("17.6", 170006), ("17.7", 170007))
    )
    compared = msgspec.structs.replace(record, other_servers={"old": older})
    check_same(compared, record.host, record.preflight, record.server, other_servers={"old": older})
    with pytest.raises(HostError, match=r"made with PostgreSQL 17\.6, here is 17\.7"):
        check_same(compared, record.host, record.preflight, record.server, other_servers={"old": newer})
    # Older records do not say.
    check_same(record, record.host, record.preflight, record.server, other_servers={"old": newer})


def test_the_pgbouncer_of_a_pool_must_have_the_same_version() -> None:
    record = build_report().record
    then = PoolerProgram(path="/usr/sbin/pgbouncer", version=(1, 18))
    pools = (PlannedPooler(name="pool", mode=PoolMode.TRANSACTION, size=5, most_clients=8, program=then),)
    pooled = msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, poolers=pools))
    newer = msgspec.structs.replace(then, version=(1, 25))
    check_same_pooler(pooled, then)
    check_same_pooler(record, newer)
    with pytest.raises(HostError, match=r"made with PgBouncer 1\.18, here is 1\.25"):
        check_same_pooler(pooled, newer)

"""What keeps a load from a server of the user's depends on what the load does there."""

from __future__ import annotations

import msgspec

from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.record.machine.given_server import Capability
from tests.given import SERVER

REFUSED = Capability(name="CREATE DATABASE", group="load", shows="", refusal="no CREATEDB", grants=("ALTER ROLE r",))
ALL = msgspec.structs.replace(
    SERVER, is_read_only=True, is_archiving=True, replica_count=1, others_tps=1000.0, capabilities=(REFUSED,)
)


def rules(*, makes_database: bool, may_write: bool) -> set[str | None]:
    found = find_given_obstacles(ALL, clients=1, has_password=False, makes_database=makes_database, may_write=may_write)
    return {one.rule for one in found}


def test_what_only_reads_needs_neither_a_database_nor_writes() -> None:
    everything = rules(makes_database=True, may_write=True)
    assert everything >= {"no-database", "read-only", "archiving", "replicas", "sessions-at-work"}
    assert rules(makes_database=False, may_write=True) == everything - {"no-database"}
    assert rules(makes_database=False, may_write=False) == everything - {
        "no-database",
        "read-only",
        "archiving",
        "replicas",
    }

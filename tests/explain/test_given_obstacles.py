"""What keeps a load from a server of the user's depends on what the load does there."""

from __future__ import annotations

import msgspec
import pytest

from pgdyno.explain.finding import Severity
from pgdyno.explain.preflight.given import LeftSettings, find_given_obstacles
from pgdyno.explain.preflight.given_rules import IN_USE
from pgdyno.explain.preflight.replicas import find_replica_obstacles
from pgdyno.record.machine.given_server import Capability, GivenServer
from pgdyno.record.machine.preflight import Activity, BusyProcess
from tests.given import SERVER

REFUSED = Capability(name="CREATE DATABASE", group="load", shows="", refusal="no CREATEDB", grants=("ALTER ROLE r",))
ALL = msgspec.structs.replace(
    SERVER,
    is_read_only=True,
    is_archiving=True,
    replica_count=1,
    others_tps=1000.0,
    timeouts_ms={"statement_timeout": 30_000},
    capabilities=(REFUSED,),
)


def rules(*, makes_database: bool, may_write: bool) -> set[str | None]:
    found = find_given_obstacles(ALL, clients=1, has_password=False, makes_database=makes_database, may_write=may_write)
    return {one.rule for one in found}


def test_what_only_reads_needs_neither_a_database_nor_writes() -> None:
    everything = rules(makes_database=True, may_write=True)
    assert everything >= {"no-database", "read-only", "archiving", "replicas", "sessions-at-work"}
    assert rules(makes_database=False, may_write=True) == everything - {"no-database", "timeouts"}
    assert rules(makes_database=False, may_write=False) == everything - {
        "no-database",
        "timeouts",
        "read-only",
        "archiving",
        "replicas",
    }


@pytest.mark.parametrize(
    ("seen", "rule", "severity"),
    [
        ({"is_encrypted": False, "is_local": False}, "not-encrypted", Severity.WARNING),
        ({"is_archiving": True}, "archiving", Severity.WARNING),
        ({"replica_count": 2}, "replicas", Severity.WARNING),
        ({"active_sessions": 3}, "sessions-at-work", Severity.WARNING),
        ({"is_in_recovery": True}, "standby", Severity.CRITICAL),
        ({"timeouts_ms": {"statement_timeout": 30_000}}, "timeouts", Severity.WARNING),
        ({"free_connections": 10}, "connections", Severity.CRITICAL),
        ({"dbname": "template1"}, "template", Severity.CRITICAL),
        ({"dbname": "model", "is_template": True}, "template", Severity.CRITICAL),
        ({"dbname": f"pgdyno_{7:032x}"}, "template", Severity.CRITICAL),
    ],
)
def test_each_danger_is_told_alone(seen: dict[str, object], rule: str, severity: Severity) -> None:
    def find(server: GivenServer) -> dict[str | None, Severity]:
        return {one.rule: one.severity for one in find_given_obstacles(server, clients=1, has_password=False)}

    assert find(SERVER) == {}
    assert find(msgspec.structs.replace(SERVER, **seen)) == {rule: severity}
    # On this machine nobody listens in between, and TLS hides it elsewhere.
    assert find(msgspec.structs.replace(SERVER, is_encrypted=False, is_local=True)) == {}
    assert find(msgspec.structs.replace(SERVER, is_encrypted=False, has_gss_encryption=True)) == {}
    assert find(msgspec.structs.replace(SERVER, dbname="templates")) == {}
    assert find(msgspec.structs.replace(SERVER, timeouts_ms={"statement_timeout": 600_000})) == {}


@pytest.mark.parametrize(
    ("free", "clients", "claim", "advice"),
    [(10, 1, "1 client, and", "Raise what limits them"), (11, 2, "2 clients, and", "Use fewer clients")],
)
def test_fewer_clients_are_advised_where_one_fits(free: int, clients: int, claim: str, advice: str) -> None:
    (found,) = find_given_obstacles(
        msgspec.structs.replace(SERVER, free_connections=free), clients=clients, has_password=False
    )
    assert (found.claim.startswith(claim), found.advice.startswith(advice)) == (True, True), found


def test_what_lifts_timeouts_is_told_for_poolers_too() -> None:
    short = msgspec.structs.replace(SERVER, timeouts_ms={"statement_timeout": 30_000, "transaction_timeout": 40_000})
    (found,) = find_given_obstacles(short, clients=1, has_password=False)
    assert "options='-c statement_timeout=0 -c transaction_timeout=0' in the connection string" in found.advice
    assert "through a pooler, which may refuse that, use `ALTER ROLE`" in found.advice


@pytest.mark.parametrize(("busy_ratio", "cpus", "is_told"), [(0.6, 0.02, True), (0.05, 0.7, True), (0.05, 0.1, False)])
def test_a_busy_machine_of_the_load_is_told_and_refuses_nothing(busy_ratio: float, cpus: float, is_told: bool) -> None:
    activity = Activity(
        window_s=2.0,
        cpu_count=8,
        busy_ratio=busy_ratio,
        steal_ratio=0.0,
        busiest=(BusyProcess(pid=7, name="make", user="anna", cpu_count=cpus, is_kernel=False),),
        disks=(),
        swapped_in_pages=None,
        swapped_out_pages=None,
        throttled_count=None,
    )
    found = find_given_obstacles(SERVER, clients=1, has_password=False, activity=activity)
    assert [(one.rule, one.severity) for one in found] == [("busy-load-machine", Severity.WARNING)] * is_told
    assert all(f"8 CPUs {busy_ratio * 100:.0f} % busy over 2.0 s" in one.evidence for one in found)


def test_what_others_depend_on_takes_the_users_word() -> None:
    assert {"archiving", "replicas", "sessions-at-work"} == IN_USE


def test_settings_left_changed_are_told_with_the_command_to_paste() -> None:
    left = LeftSettings(names=("commit_delay", "work_mem"), restore="`pgdyno restore --dsn host=db1`")
    (found,) = find_given_obstacles(SERVER, clients=1, has_password=False, left=left)
    assert (found.severity, "commit_delay, work_mem" in found.evidence) == (Severity.CRITICAL, True)
    assert left.restore in found.advice


def test_a_design_is_advised_where_one_can_be_chosen() -> None:
    few = msgspec.structs.replace(SERVER, free_connections=13)
    advice = [
        find_given_obstacles(few, clients=8, has_password=False, is_live=compares)[0].advice
        for compares in (True, False)
    ]
    assert ["--design" in one for one in advice] == [True, False]
    assert all("--clients" in one for one in advice)


def test_clients_of_a_pooler_in_transaction_mode_share_the_connections() -> None:
    few = msgspec.structs.replace(SERVER, free_connections=3)
    assert [one.rule for one in find_given_obstacles(few, clients=8, has_password=False)] == ["connections"]
    pooled = msgspec.structs.replace(few, pooler="PgBouncer", has_pooled_transactions=True)
    assert [one.rule for one in find_given_obstacles(pooled, clients=8, has_password=False)] == ["pooler"]


def test_a_replica_that_differs_in_much_names_what_matters_most() -> None:
    settings = {
        f"enable_{name}": "off" for name in ("bitmapscan", "hashagg", "hashjoin", "material", "memoize", "sort")
    }
    primary = msgspec.structs.replace(SERVER, settings={})
    replica = msgspec.structs.replace(
        SERVER, is_in_recovery=True, settings={**settings, "shared_buffers": "131072", "ssl_key_file": "/etc/own.key"}
    )
    (found,) = find_replica_obstacles(replica, primary, name="replica1", clients=1)
    assert (found.rule, found.severity) == ("replica-differs", Severity.WARNING)
    differs = "replica1 (db1.example:5432): It differs from the primary: shared_buffers 1GB, not 128MB; enable_bitmapscan off, not on;"
    assert found.claim.startswith(differs)
    assert found.claim.endswith("; and 1 more.")
    assert find_replica_obstacles(replica, replica, name="replica1", clients=1, asked=()) == ()

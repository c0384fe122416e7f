"""Find what would keep a load from reading at a replica of a given server, or spoil what it measures there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from pgdyno.analyse.replicas import compare_with_primary
from pgdyno.explain.finding import Finding, Severity, worst_first
from pgdyno.explain.preflight.given import RULES_OF_READING
from pgdyno.record.machine.given_server import GivenServer

_NAME_ANOTHER = "Name a standby of the server of --dsn with --endpoint replicas=CONNINFO."
# The report has a table of all.
_MOST_DIFFERENCES = 6


def find_replica_obstacles(
    replica: GivenServer, primary: GivenServer, *, name: str, clients: int, asked: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Find what stands between a replica of a given server and a fair measurement of reading there, worst first.

    Args:
        replica: The replica.
        primary: The given server.
        name: What the replica is called.
        clients: Of the load that is meant, those that connect to this replica.
        asked: Settings, in lower case, that all sessions of the load ask for.
    """
    found = [*_find_strangers(replica, primary), *(one for rule in RULES_OF_READING for one in rule(replica, clients))]
    found += _find_differences(replica, primary, asked)
    return worst_first(msgspec.structs.replace(one, claim=f"{name} ({replica.address}): {one.claim}") for one in found)


def _find_differences(replica: GivenServer, primary: GivenServer, asked: Collection[str]) -> Iterator[Finding]:
    differences = compare_with_primary(replica, primary, asked=asked)
    if not differences:
        return
    told = [f"{one.subject} {one.other}, not {one.first}" for one in differences[:_MOST_DIFFERENCES]]
    more = len(differences) - len(told)
    yield Finding(
        rule="replica-differs",
        severity=Severity.WARNING,
        claim=f"It differs from the primary: {'; '.join([*told, *([f'and {more} more'] if more else [])])}.",
        evidence="by version(), pg_settings and the round trip of one connection to each; CPUs, memory and disks are not seen",
        why="What is read faster or slower here may be due to that, and not to reading from a replica.",
        advice="Set both alike, unless this is what is to be measured.",
    )


def _find_strangers(replica: GivenServer, primary: GivenServer) -> Iterator[Finding]:
    """Find what shows that a server is no standby of another one, or is asked by another role."""
    yield from _find_other_cluster(replica, primary)
    if replica.role != primary.role:
        yield Finding(
            rule="other-role",
            severity=Severity.CRITICAL,
            claim="Another role asks here than at the primary.",
            evidence=f"{replica.role} here, {primary.role} there",
            why="What one role loads another one may not read.",
            advice="Name the same user in both connection strings; a replica has the primary's roles and passwords.",
        )
    if replica.has_pooled_transactions:
        yield Finding(
            rule="pooled-replica",
            severity=Severity.CRITICAL,
            claim="A pooler in transaction mode stands before this replica.",
            evidence=replica.pooler or "",
            why="Its sessions would be counted for others, and it need not know the databases that pgdyno makes.",
            advice="Connect to the replica itself.",
        )


def _find_other_cluster(replica: GivenServer, primary: GivenServer) -> Iterator[Finding]:
    """Find what shows that a server is no standby, or one of another server, as far as this role may see that."""
    is_known = None not in (replica.system_identifier, primary.system_identifier)
    is_copy = is_known and replica.system_identifier == primary.system_identifier
    if not replica.is_in_recovery:
        identity = "this role may not see its system identifier"
        if is_known:
            identity = "it has the system identifier of the server of --dsn" if is_copy else "it is another cluster"
        yield Finding(
            rule="no-standby",
            severity=Severity.CRITICAL,
            claim="This is the primary itself, or a copy of it." if is_copy else "This server is no standby.",
            evidence=f"pg_is_in_recovery() is false; {identity}",
            advice=_NAME_ANOTHER,
        )
    elif is_known and not is_copy:
        yield Finding(
            rule="other-cluster",
            severity=Severity.CRITICAL,
            claim="This is a standby of another server.",
            evidence=f"its system identifier is {replica.system_identifier}, and that of the server of --dsn {primary.system_identifier}",
            advice=_NAME_ANOTHER,
        )

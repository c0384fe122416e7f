"""Find what would keep a load from a server that is reached by a connection string, or spoil what it measures there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.transaction_time.exchanges import BUILTIN_EXCHANGES
from pgdyno.analyse.transaction_time.network import FAR_ON_THIS_MACHINE_S, FAR_S
from pgdyno.explain.finding import Finding, Severity, worst_first
from pgdyno.explain.preflight.given_rules import FAR, IN_ARGUMENTS, NOT_ENCRYPTED, TIMEOUTS
from pgdyno.explain.preflight.other_load import advise_stop, describe_busy, is_busy
from pgdyno.explain.preflight.version import find_untried
from pgdyno.plan.scaling import SPARE_CONNECTIONS
from pgdyno.record.machine.given_server import IDLE_TPS, OWN_NAME, GivenServer
from pgdyno.record.machine.preflight import Activity
from pgdyno.units import count_things

_CONNECTIONS = "connections"
OWN_CONNECTIONS = 5
"""Of pgdyno's own at once to the database that the connection string names: the study's, the sampler's, that of pings, one that tells how
far replicas lag, and one that looks whether a bound is reached, which would find nothing out if it was refused."""


class LeftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a server that a pgdyno changes now, or left changed when it was killed."""

    names: tuple[str, ...]
    restore: str
    """The command that puts them back."""


# On the slowest volumes, of 5 MB/s, the default scale takes half as long.
_SHORT_TIMEOUT_MS = 300_000

_Rule = Callable[[GivenServer, int], Iterator[Finding]]


def find_given_obstacles(
    server: GivenServer,
    *,
    clients: int,
    has_password: bool,
    left: LeftSettings | None = None,
    makes_database: bool = True,
    may_write: bool = True,
    is_live: bool = False,
    named_replicas: int = 0,
    activity: Activity | None = None,
) -> tuple[Finding, ...]:
    """Find everything that stands between this server and a fair measurement, worst first.

    Args:
        server: The server.
        clients: Of the load that is meant, those that hold a server connection each.
        has_password: Whether the connection string itself holds a password.
        left: Settings of the whole server that a pgdyno has left changed, or changes now.
        makes_database: Whether the load runs in a database of pgdyno's own.
        may_write: Whether the load may write.
        is_live: Whether live pairs were asked for, whose clients may be connected all at once.
        named_replicas: The number of replicas that the study reads from: to name one is to agree that it gets what the load writes.
        activity: What other programs do on this machine, if the load is to come from here.
    """
    beyond = None if server.replica_count is None else max(0, server.replica_count - named_replicas)
    server = msgspec.structs.replace(server, replica_count=beyond)
    left_out = (set() if makes_database else {_own_database, _timeouts}) | (set() if may_write else _OF_WRITES)
    findings = [finding for rule in _RULES if rule not in left_out for finding in rule(server, clients)]
    if is_live:
        findings = [_add_design(finding) for finding in findings]
    if has_password:
        findings.append(_PASSWORD)
    if left is not None:
        findings.append(_describe_left(left))
    if activity is not None and is_busy(activity):
        findings.append(_describe_activity(activity))
    return worst_first(findings)


_PASSWORD = Finding(
    rule=IN_ARGUMENTS,
    severity=Severity.WARNING,
    claim="The password stands on the command line.",
    evidence="--dsn holds it, and `ps` shows it to every account of this machine",
    advice="Leave it out, and put it into ~/.pgpass or the file that PGPASSFILE names.",
)


def _add_design(finding: Finding) -> Finding:
    if finding.rule != _CONNECTIONS:
        return finding
    return msgspec.structs.replace(
        finding,
        advice=f"{finding.advice} Live pairs of settings or scripts connect the clients of all variants at once, the"
        " reference's twice: `--design paired` connects one variant's at a time.",
    )


def _describe_left(left: LeftSettings) -> Finding:
    return Finding(
        rule="settings-left",
        severity=Severity.CRITICAL,
        claim="A pgdyno changes settings of this server, or was killed before it put them back.",
        evidence=f"this account's journal of changes has {', '.join(left.names)}",
        why="What is measured now is not the server as its owner set it.",
        advice=f"Wait for it; after a kill, {left.restore} puts them back.",
    )


def _describe_activity(activity: Activity) -> Finding:
    return Finding(
        rule="busy-load-machine",
        severity=Severity.WARNING,
        claim="Something else was running on this machine: it uses the CPUs that pgbench needs.",
        evidence=describe_busy(activity),
        why="pgbench may then be the limit, and not the server.",
        advice=advise_stop(activity),
    )


def _standby(server: GivenServer, _: int) -> Iterator[Finding]:
    if server.is_in_recovery:
        yield Finding(
            rule="standby",
            severity=Severity.CRITICAL,
            claim="This server is a standby: nothing can be loaded there.",
            evidence="pg_is_in_recovery() is true",
            advice="Connect to the primary: of several hosts in the string, target_session_attrs=read-write takes it.",
        )


def _read_only(server: GivenServer, _: int) -> Iterator[Finding]:
    if server.is_read_only and not server.is_in_recovery:
        yield Finding(
            rule="read-only",
            severity=Severity.CRITICAL,
            claim="Sessions of this role only read here: nothing can be loaded.",
            evidence="default_transaction_read_only is on",
            why="Some services switch it on when a disk is full.",
            advice="See `ALTER ROLE`, `ALTER DATABASE` and the server's settings for default_transaction_read_only.",
        )


def _own_database(server: GivenServer, _: int) -> Iterator[Finding]:
    yield from _need(
        server,
        "CREATE DATABASE",
        rule="no-database",
        claim="This role cannot create a database.",
        why="pgdyno loads a database of its own, so that no other is touched.",
    )


def _timeouts(server: GivenServer, _: int) -> Iterator[Finding]:
    short = {name: ms for name, ms in server.timeouts_ms.items() if ms < _SHORT_TIMEOUT_MS}
    if short:
        yield Finding(
            rule=TIMEOUTS,
            severity=Severity.WARNING,
            claim="A timeout of this role may end the loading of data.",
            evidence=", ".join(f"{name} = {ms:,} ms" for name, ms in short.items()),
            why="Each table is loaded by one statement, and the loaded database is copied by one.",
            advice="Say options='"
            + " ".join(f"-c {name}=0" for name in short)
            + "' in the connection string; through a pooler, which may refuse that, use `ALTER ROLE`. Or load less: --scale.",
        )


def _own_sessions(server: GivenServer, _: int) -> Iterator[Finding]:
    yield from _need(
        server,
        "own sessions",
        rule="no-sessions",
        claim="This role sees no sessions.",
        why="Nothing else tells whether a database of pgdyno's is in use, and where the load's time goes.",
    )


def _need(server: GivenServer, name: str, *, rule: str, claim: str, why: str) -> Iterator[Finding]:
    """Yield a critical finding if a server refuses what every study needs."""
    refused = next((one for one in server.capabilities if one.name == name and one.refusal is not None), None)
    if refused is not None:
        yield Finding(
            rule=rule,
            severity=Severity.CRITICAL,
            claim=claim,
            evidence=refused.refusal or "",
            why=why,
            advice=" ".join(f"Run `{grant}` as a superuser." for grant in refused.grants),
        )


def _connections(server: GivenServer, clients: int) -> Iterator[Finding]:
    free = server.connections_for_clients
    if free is not None and free < clients + SPARE_CONNECTIONS:
        yield Finding(
            rule=_CONNECTIONS,
            severity=Severity.CRITICAL,
            claim=f"{count_things(clients, 'client')}, and {SPARE_CONNECTIONS} connections for samplers, do not fit.",
            evidence=f"max_connections and the role's own limit leave room for {free}: sessions that idle, as a pooler keeps them, have"
            " their places, too",
            why="Clients that are refused would end the load; all places taken would lock others out.",
            advice="Use fewer clients (--clients, in a sweep lower levels of clients), or raise what limits them."
            if free > SPARE_CONNECTIONS
            else "Raise what limits them: there is no room for a single client.",
        )


def _database_connections(server: GivenServer, _: int) -> Iterator[Finding]:
    # A pooler in transaction mode shares out sessions that it keeps, and which have their places already.
    free = None if server.has_pooled_transactions else server.free_in_database
    if free is not None and free < OWN_CONNECTIONS:
        yield Finding(
            rule="database-connections",
            severity=Severity.CRITICAL,
            claim=f"{OWN_CONNECTIONS} connections of pgdyno's do not fit into the database {server.dbname}.",
            evidence=f"its CONNECTION LIMIT leaves room for {free}",
            why="Samplers and checks connect to the database that the connection string names, and clients to another one.",
            advice="Name another database, such as dbname=postgres, or raise the limit.",
        )


def _sessions(server: GivenServer, _: int) -> Iterator[Finding]:
    seen = []
    if server.active_sessions:
        seen.append(f"sessions that run a statement now: {server.active_sessions}")
    if server.others_tps is not None and server.others_tps > IDLE_TPS:
        seen.append(f"transactions that end in a second: {server.others_tps:.0f}")
    if seen:
        yield Finding(
            rule="sessions-at-work",
            severity=Severity.WARNING,
            claim="Others are at work in this server.",
            evidence="; ".join(seen),
            why="Their load is in every figure, and the load would slow them down.",
            advice="Measure when no one else uses the server.",
        )


def _template(server: GivenServer, _: int) -> Iterator[Finding]:
    # CREATE DATABASE copies template1 unless it is told otherwise, and pgdyno copies what it has loaded.
    if server.is_template or server.dbname == "template1" or OWN_NAME.match(server.dbname):
        yield Finding(
            rule="template",
            severity=Severity.CRITICAL,
            claim="Databases are copied from this one.",
            evidence=f"the connection is to {server.dbname}",
            why="A study keeps sessions in the database that it is given, and while they last the database cannot be copied.",
            advice="Name another database, such as dbname=postgres.",
        )


def _archiving(server: GivenServer, _: int) -> Iterator[Finding]:
    if server.is_archiving:
        yield Finding(
            rule="archiving",
            severity=Severity.WARNING,
            claim="This server archives its WAL.",
            evidence="archive_mode is not off",
            why="A load writes gigabytes of WAL, which all go to the archive, and the archiver slows the load down.",
            advice="Measure a server that does not archive, or accept both.",
        )


def _replicas(server: GivenServer, _: int) -> Iterator[Finding]:
    if server.replica_count:
        yield Finding(
            rule="replicas",
            severity=Severity.WARNING,
            claim="Other servers follow this one.",
            evidence=f"connected standbys, and replication slots that none of them uses: {server.replica_count},"
            " not counting replicas that the study reads from",
            why="They get all that a load writes, may fall behind, and keep WAL on this server's disk.",
            advice="Measure a server without replicas, or accept that. To see how they do, read from them: --endpoint replicas=CONNINFO.",
        )


def _pooler(server: GivenServer, _: int) -> Iterator[Finding]:
    if server.pooler is None:
        return
    is_shared = server.has_pooled_transactions
    yield Finding(
        rule="pooler",
        severity=Severity.WARNING,
        claim="A pooler stands between this machine and the server"
        + (", and each transaction may run in another session." if is_shared else "."),
        evidence=server.pooler,
        why="Figures are of both."
        + (
            " In transaction mode PgBouncer refuses pgbench's prepared mode before 1.21, and before 1.24 unless max_prepared_statements is set."
            if is_shared
            else ""
        ),
        advice="Connect to the server itself, unless the pooler is to be measured too.",
    )


def _far(server: GivenServer, _: int) -> Iterator[Finding]:
    trip = server.round_trip
    # Without a network, tpcb-like took 2 to 5 ms with 4 to 8 clients on 2 CPUs: seven round
    # trips that are longer are more than a fifth of it.
    if trip.median_s > (FAR_ON_THIS_MACHINE_S if server.is_local else FAR_S):
        exchanges = BUILTIN_EXCHANGES["tpcb-like"]
        yield Finding(
            rule=FAR,
            severity=Severity.WARNING,
            claim="Much of each transaction goes to the network:"
            f" one client can do at most {float(f'{1 / (exchanges * trip.median_s):.2g}'):,g} of tpcb-like a second.",
            evidence=f"a round trip takes {trip.median_s * 1000.0:.2g} ms, and tpcb-like makes {exchanges}",
            why="With few clients the load would measure the network.",
            advice="Run pgdyno on a machine beside the server.",
        )


def _plain_text(server: GivenServer, _: int) -> Iterator[Finding]:
    if not (server.is_encrypted or server.has_gss_encryption or server.is_local):
        yield Finding(
            rule=NOT_ENCRYPTED,
            severity=Severity.WARNING,
            claim="The connection to another machine is not encrypted.",
            evidence=f"{server.host} is not this machine, and the session has neither TLS nor GSSAPI encryption",
            advice="Say sslmode=require, or better verify-full, if the network is not yours.",
        )


def _untried(server: GivenServer, _: int) -> Iterator[Finding]:
    finding = find_untried(server.major, None)
    if finding is not None:
        yield finding


_OF_WRITES: set[_Rule] = {_read_only, _archiving, _replicas}
"""Rules on what a load that only reads leaves as it is."""
RULES_OF_READING: tuple[_Rule, ...] = (
    _own_sessions,
    _connections,
    _database_connections,
    _sessions,
    _pooler,
    _far,
    _plain_text,
)
"""Rules that hold for a server that is only read from, too."""
_RULES: tuple[_Rule, ...] = (
    _standby,
    _read_only,
    _own_database,
    _timeouts,
    _own_sessions,
    _connections,
    _database_connections,
    _template,
    _sessions,
    _archiving,
    _replicas,
    _pooler,
    _far,
    _plain_text,
    _untried,
)

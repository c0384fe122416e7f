"""Ask a server, by SQL alone, what it is and what it lets this role see and do. Nothing in it is changed.

All probes run in one transaction that is rolled back, each behind a savepoint of its own, with nothing but pg_catalog in
the search path: a function that somebody else made must not run as the role that asks. No session setting is changed and
no statement is prepared under a name: behind a pooler, the next client of the session would inherit both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import psycopg

from pgdyno.errors import HostError, StepFailedError
from pgdyno.facts.privileges import Probe, Service, list_services, make_probes, recognise_service
from pgdyno.facts.versions import WHAT_IS_SUPPORTED, is_supported
from pgdyno.record.machine.given_server import IDLE_TPS, Capability, GivenServer, RoundTrip
from pgdyno.run.given import conninfo
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.lost import HINT_LOST

_PATIENCE_S = 10.0
_MOST_ROUND_TRIPS = 400
_LONGEST_ROUND_TRIPS_S = 3.0
_FEWEST_ROUND_TRIPS = 20
_MAJOR = 10_000
_NOT_PRIVILEGED = psycopg.errors.InsufficientPrivilege
# A name of nobody's: a pooler that hands it on to a shared session does no harm.
_SESSION_SETTING = "pgdyno.probe"
_SECOND_SESSION_PATIENCE_S = 5.0
_SEVERAL = 5
# Sessions tell their counts each second. Source: PostgreSQL 18 src/backend/utils/activity/pgstat.c, PGSTAT_MIN_INTERVAL.
_WATCH_S = 2.2
_LOOKS = 10
_OWN_TRANSACTIONS = 10
_T = TypeVar("_T")


def probe_server(dsn: str) -> GivenServer:
    """Connect to a server and return what one role sees of it.

    Args:
        dsn: The connection string.

    Raises:
        SpecError: It is no connection string.
        HostError: The server is of a version that is not supported.
        StepFailedError: There is no connection, or it was lost.
    """
    with _telling_loss(), conninfo.connect(dsn) as connection:
        return _probe(dsn, connection)


def has_pooled_transactions(dsn: str) -> bool:
    """Return whether a pooler in between shares sessions among transactions.

    Raises:
        SpecError: It is no connection string.
        StepFailedError: There is no connection, or it was lost.
    """
    with _telling_loss(), conninfo.connect(dsn) as connection:
        return _find_pooler(connection) is not None and _has_pooled_transactions(dsn, connection)


@contextmanager
def _telling_loss() -> Iterator[None]:
    try:
        yield
    except timeouts.NoAnswerError as error:
        hint = "it, its disk or the network hangs"
        raise StepFailedError("the server does not answer", detail=error.detail, hint=hint) from error
    except psycopg.Error as error:
        said = str(error).strip()
        is_timeout = isinstance(error, psycopg.errors.IdleSessionTimeout)
        hint = (
            "a timeout of this role or server ends sessions that idle for seconds: see `ALTER ROLE`"
            if is_timeout
            else HINT_LOST
        )
        raise StepFailedError("the connection to the server was lost", detail=said, hint=hint) from error


def _probe(dsn: str, connection: sql.Connection) -> GivenServer:
    info = connection.info
    major = info.server_version // _MAJOR
    if not is_supported(major):
        raise HostError(f"PostgreSQL {major} is not supported", hint=f"pgdyno takes versions {WHAT_IS_SUPPORTED}")
    with timeouts.limit(connection), sql.carefully(connection):
        state = sql.read_given_server(connection)
        service = _find_service(connection)
        probes = make_probes(sql.find_counters(connection, info.server_version))
        capabilities = tuple(_ask(connection, probe, role=state["quoted_role"]) for probe in probes)
        free_connections = _read(sql.count_free_connections, connection)
        free_in_database = _read(sql.count_free_in_database, connection)
        active_sessions = _read(sql.count_active_sessions, connection)
        archiving = _read(sql.is_archiving, connection)
        replica_count = _read(sql.count_replicas, connection)
        system_identifier = _read(sql.read_system_identifier, connection)
        settings = _read(sql.read_settings, connection)
        pooler = _find_pooler(connection)
        tls = _read(sql.read_tls, connection)
        has_gss = _read(sql.has_gss_encryption, connection)
    return GivenServer(
        host=info.host or info.hostaddr,
        port=info.port,
        dbname=info.dbname,
        role=state["role"],
        version=state["version"].split()[0],
        major=major,
        is_superuser=state["is_superuser"],
        is_in_recovery=state["is_in_recovery"],
        is_read_only=state["is_read_only"],
        is_template=state["is_template"],
        timeouts_ms=state["timeouts_ms"],
        is_encrypted=connection.pgconn.ssl_in_use,
        sslmode=conninfo.find_parameter(connection, "sslmode"),
        tls=tls if pooler is None else None,
        has_gss_encryption=bool(has_gss),
        is_local=info.host.startswith(("/", "@")) or info.hostaddr.startswith("127.") or info.hostaddr == "::1",
        service=service.name if service else None,
        settings_way=service.settings if service else "",
        pooler=pooler,
        has_pooled_transactions=pooler is not None and _has_pooled_transactions(dsn, connection),
        free_connections=free_connections,
        free_in_database=free_in_database,
        active_sessions=active_sessions,
        is_archiving=None if archiving is None else bool(archiving),
        replica_count=replica_count,
        system=state["system"],
        # Those of extensions may hold a secret under any name.
        settings=None if settings is None else {one.name: one.value for one in settings if "." not in one.name},
        system_identifier=None if system_identifier is None else str(system_identifier),
        round_trip=_time_round_trips(connection),
        capabilities=(_ask_for_options(dsn), *capabilities),
    )


def watch_server(dsn: str) -> GivenServer:
    """Connect to a server, return what one role sees of it, and watch for two seconds what others do; see `probe_server`."""
    server = probe_server(dsn)
    with _telling_loss(), conninfo.connect(dsn) as connection:
        others_tps = _count_others(connection)
        if others_tps is not None and others_tps > IDLE_TPS:
            # Autovacuum ends many transactions at once, and a session tells some only as it ends: that is over by now.
            again_tps = _count_others(connection)
            others_tps = others_tps if again_tps is None else min(others_tps, again_tps)
        return msgspec.structs.replace(server, others_tps=others_tps)


def _count_others(connection: sql.Connection) -> float | None:
    """Return how many transactions of others end in a second, also where their sessions are hidden; None if that is refused."""
    before, began_s = _count_transactions(connection), time.monotonic()
    if before is None:
        return None
    passed = _watch_transactions(connection)
    after, took_s = _count_transactions(connection), time.monotonic() - began_s
    # The two looks, and what connecting took, are pgdyno's own.
    return None if after is None else max(passed, after - before - _OWN_TRANSACTIONS) / took_s


def _watch_transactions(connection: sql.Connection) -> int:
    """Watch for two seconds, and return how many transactions of others ended meanwhile at the least; 0 if that is refused.

    PostgreSQL 15 counts the transactions of a session that touches no table only when the session ends.
    """
    numbers: dict[str, list[int]] = {}
    with timeouts.limit(connection), sql.carefully(connection):
        for _ in range(_LOOKS):
            time.sleep(_WATCH_S / _LOOKS)
            for session, number in _read(sql.list_virtual_transactions, connection) or ():
                numbers.setdefault(session, []).append(number)
    return sum(max(seen) - min(seen) for seen in numbers.values())


def _count_transactions(connection: sql.Connection) -> int | None:
    with timeouts.limit(connection), sql.carefully(connection):
        return _read(sql.count_transactions, connection)


def _read(read: Callable[[sql.Connection], _T | None], connection: sql.Connection) -> _T | None:
    """Return what is read, or None if the server refuses it."""
    try:
        with connection.transaction(force_rollback=True):
            return read(connection)
    except StepFailedError:
        if connection.broken:
            raise
        return None


def _ask(connection: sql.Connection, probe: Probe, *, role: str) -> Capability:
    try:
        with timeouts.limit(connection, _PATIENCE_S), connection.transaction(force_rollback=True):
            cursor = connection.execute(probe.sql.encode())
            rows = cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        if connection.broken:
            raise
        # What fails for another reason than a lacking privilege, or in a probe that only asks, is not given by one.
        is_lacking = isinstance(error, _NOT_PRIVILEGED) and not probe.only_asks
        return _refuse(probe, _say(error), role=role if is_lacking else None)
    refusal = rows[0].get("refusal") if rows else None
    if refusal is not None:
        return _refuse(probe, refusal, role=role)
    return Capability(name=probe.name, group=probe.group, shows=probe.shows)


def _refuse(probe: Probe, words: str, *, role: str | None) -> Capability:
    """Return what a server refuses, with what gives it to a role; None: nothing does."""
    grants = () if role is None else tuple(grant.format(role=role) for grant in probe.grants)
    return Capability(name=probe.name, group=probe.group, shows=probe.shows, refusal=words, grants=grants)


def _say(error: psycopg.Error) -> str:
    parts = (error.diag.message_primary or str(error).strip().partition("\n")[0], error.diag.message_detail)
    return ". ".join(part.rstrip(".") for part in parts if part)


def _ask_for_options(dsn: str) -> Capability:
    """Ask for a session with a setting of its own, which poolers may refuse or ignore."""
    asked = Capability(
        name="options", group="load", shows="comparisons of settings that each session chooses for itself"
    )
    try:
        with conninfo.connect(dsn, options=f"-c {_SESSION_SETTING}=1") as other:
            value = sql.read_setting(other, _SESSION_SETTING)
    except StepFailedError as error:
        return msgspec.structs.replace(asked, refusal=error.detail.rpartition("FATAL:")[2].strip())
    if value != "1":
        return msgspec.structs.replace(asked, refusal="the options of a session are taken and ignored")
    return asked


def _find_service(connection: sql.Connection) -> Service | None:
    functions = [one.function for one in list_services() if one.function]
    try:
        with connection.transaction(force_rollback=True):
            seen = sql.read_service_marks(connection, functions)
    except StepFailedError:
        if connection.broken:
            raise
        return None
    return recognise_service(seen["prefixes"], seen["functions"])


def _find_pooler(connection: sql.Connection) -> str | None:
    """Return what shows that a pooler stands between: it hands out process ids of its own."""
    real = sql.read_backend_pid(connection)
    is_told = connection.info.backend_pid == real
    return None if is_told else f"libpq was told another process id than {real}, which the server says"


def _has_pooled_transactions(dsn: str, connection: sql.Connection) -> bool:
    """Return whether another session's transactions take, or displace, the process that served this one.

    A pooler of whole sessions may have no process for a second one, and a pooler of transactions may have several free.
    """
    try:
        with conninfo.connect(dsn) as other, timeouts.limit(other, _SECOND_SESSION_PATIENCE_S):
            served = {sql.read_backend_pid(connection)}
            for _ in range(_SEVERAL):
                with sql.carefully(other):
                    taken = sql.read_backend_pid(other)
                    served.add(sql.read_backend_pid(connection))
                if taken in served or len(served) > 1:
                    return True
    except StepFailedError:
        if connection.broken:
            raise
    return False


def _time_round_trips(connection: sql.Connection) -> RoundTrip:
    """Time empty statements by libpq's own call, since a cursor of psycopg takes longer than a near server.

    Raises:
        StepFailedError: One was not answered.
    """
    taken: list[float] = []
    end_s = time.monotonic() + _LONGEST_ROUND_TRIPS_S
    # The call does not hear Ctrl-C. In one transaction they do not look like the work of others to the next probe.
    with timeouts.limit(connection, _PATIENCE_S), sql.carefully(connection):
        while len(taken) < _FEWEST_ROUND_TRIPS or (len(taken) < _MOST_ROUND_TRIPS and time.monotonic() < end_s):
            began_s = time.perf_counter()
            result = connection.pgconn.exec_(b"SELECT")
            taken.append(time.perf_counter() - began_s)
            if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
                raise psycopg.OperationalError(result.get_error_message())
    return RoundTrip(median_s=statistics.median(taken), n=len(taken))

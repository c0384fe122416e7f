"""Reach poolers that run already in front of a given server, and try them before anything is loaded."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgdyno.errors import PgdynoError, SpecError, StepFailedError
from pgdyno.plan.endpoints import HINT_MODE
from pgdyno.plan.types import PlannedPooler
from pgdyno.run.given.access import open_access
from pgdyno.run.given.straight import find_straightness
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.pooler_console import SilentPoolerError
from pgdyno.run.postgres.timeouts import NoAnswerError
from pgdyno.spec.pooler import PoolerSpec

# The server quotes the name, in each language with other signs; poolers do not, or put a colon before.
_QUOTED = r"(?<!: )[^\w\s:/.()-]\s?{name}\s?[^\w\s:/.,()-]"
_HINT_DATABASES = "let it pass on databases that it does not list (PgBouncer: a line `* = host=…` in [databases]), or name one with --database"

HINT_SILENT = "see its log, or ask who runs it; `pgdyno resume` continues once it answers"


@contextlib.contextmanager
def open_poolers(poolers: Mapping[str, PoolerSpec], server: Address) -> Iterator[dict[str, Address]]:
    """Connect once to each pooler, and yield their addresses by name, for the length of a `with` block.

    Args:
        poolers: Those with a connection string; what it and its service leave out of user and database is the server's.
        server: Where the server itself is reached.

    Raises:
        SpecError: One is no connection string, or needs a secret that cannot be handed on.
        StepFailedError: There is no connection to one.
    """
    with contextlib.ExitStack() as stack:
        found = {}
        for name, pooler in poolers.items():
            if pooler.dsn is None:
                continue
            try:
                found[name] = stack.enter_context(open_access(complete_dsn(pooler.dsn, server)))
            except PgdynoError as error:
                error.fact = f"the pooler {name}: {error.fact}"
                raise
        yield found


def try_pooler(
    pooler: PlannedPooler, way: Address, *, server: Address, started_at: str, keeps_statements: bool
) -> None:
    """Make sure that a pooler is one, leads to the server under test, and takes the load's statements.

    Args:
        pooler: The pooler.
        way: Where it is reached, with a database that it knows.
        server: Where the server under test is reached.
        started_at: When the server under test started, which tells it from others.
        keeps_statements: Whether a load through it uses prepared statements.

    Raises:
        SpecError: It does not.
        StepFailedError: There is no connection, or no answer.
    """
    with _named(pooler), sql.connect(way) as connection:
        if (there := sql.read_start_time(connection)) != started_at:
            raise SpecError(
                f"the pooler {pooler.name} leads to another server",
                detail=f"that one started at {there}, the server under test at {started_at}",
                hint="name the server behind the pooler with --dsn",
            )
        reason = find_straightness(connection, way, server)
        if reason is not None:
            raise SpecError(
                f"the pooler {pooler.name} is the server itself",
                detail=reason,
                hint=f"name the host and port of the pooler, for example --endpoint {pooler.name}='host=db1 port=6432'",
            )
    if not keeps_statements:
        return
    with _named(pooler):
        refusal = find_statement_refusal(way)
    if refusal is not None:
        raise SpecError(
            f"prepared statements do not work through the pooler {pooler.name}",
            detail=refusal,
            hint=HINT_MODE,
        )


def try_databases(pooler: PlannedPooler, way: Address) -> None:
    """Make sure that a pooler passes on a database that it does not know: trials run in copies that are made later.

    Raises:
        SpecError: It does not.
        SilentPoolerError: It does not answer.
    """
    unknown = msgspec.structs.replace(way, dbname=f"pgdyno_{secrets.token_hex(4)}")
    try:
        with _named(pooler):
            sql.connect(unknown).close()
    except SilentPoolerError:
        raise
    except StepFailedError as error:
        if is_servers_answer(error.detail, unknown.dbname):
            return
        raise SpecError(
            f"the pooler {pooler.name} does not know the databases that pgdyno makes",
            detail=error.detail,
            hint=_HINT_DATABASES,
        ) from error


def is_servers_answer(words: str, database: str) -> bool:
    """Return whether the server itself says that it has no such database: the pooler has asked it."""
    return re.search(_QUOTED.format(name=re.escape(database)), words) is not None


def check_way(pooler: PlannedPooler, way: Address, *, cause: PgdynoError) -> None:
    """Raise an error if a pooler explains the failure of a load through it, and that failure does not name the pooler itself.

    Raises:
        StepFailedError: It does not answer any more, or it has closed the load's connections.
    """
    if isinstance(cause, SilentPoolerError):
        return
    try:
        with sql.connect(way) as connection:
            sql.read_start_time(connection)
    except StepFailedError as error:
        raise StepFailedError(
            f"the pooler {pooler.name} does not answer any more",
            detail=error.detail or error.fact,
            hint=HINT_SILENT,
        ) from cause
    if "closed the connection" in cause.detail or "terminating connection" in cause.detail:
        raise StepFailedError(
            f"the pooler {pooler.name} closed connections of the load",
            detail=cause.detail,
            hint="it was restarted, or a limit of its own ended them: see its log",
        ) from cause


@contextlib.contextmanager
def _named(pooler: PlannedPooler) -> Iterator[None]:
    """Raise a SilentPoolerError in place of the error that says that the server does not answer."""
    try:
        yield
    except NoAnswerError as error:
        raise SilentPoolerError(pooler.name, detail=error.detail, hint=HINT_SILENT) from error


def complete_dsn(dsn: str, server: Address) -> str:
    """Return a connection string with the user and database of a server where neither it nor its service names them."""
    try:
        named = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # `open_access` says what is wrong with it.
        return dsn
    given = {"user": server.user, "dbname": server.dbname}
    if "service" in named:
        given = _read_service(str(named["service"]), named.get("servicefile"), given)
    return make_conninfo(dsn, **{key: value for key, value in given.items() if key not in named})


def _read_service(service: str, file: object, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the user and database that a service names, and those of `defaults` that it leaves out.

    libpq takes a service before the variables of the environment.
    """
    variables = {"PGSERVICE": service, "PGUSER": defaults["user"], "PGDATABASE": defaults["dbname"]}
    if file is not None:
        variables["PGSERVICEFILE"] = str(file)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        found = {one.keyword.decode(): one.val for one in psycopg.pq.Conninfo.get_defaults()}
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    return {key: (found[key] or default.encode()).decode() for key, default in defaults.items()}


def find_statement_refusal(way: Address) -> str | None:
    """Prepare a statement of one name in two sessions, as pgbench's clients do; return what the pooler says, None if it takes them.

    In transaction mode both get the same server connection, one after the other.

    Raises:
        NoAnswerError: The pooler does not answer.
        StepFailedError: There is no connection.
    """
    name, query = f"pgdyno_{secrets.token_hex(4)}".encode(), b"SELECT 1"
    try:
        with sql.connect(way) as first, sql.connect(way) as second, timeouts.limit(first), timeouts.limit(second):
            try:
                for session in (first, second):
                    _require(session, session.pgconn.prepare(name, query))
                for session in (first, second, first):
                    _require(session, session.pgconn.exec_prepared(name, None))
            finally:
                # Else it would stay with a server connection that others get.
                first.pgconn.exec_(b"DEALLOCATE " + name)
    except psycopg.Error as exc:
        return str(exc).strip()
    return None


def _require(session: sql.Connection, result: psycopg.pq.abc.PGresult) -> None:
    if result.status not in {psycopg.pq.ExecStatus.COMMAND_OK, psycopg.pq.ExecStatus.TUPLES_OK}:
        raise psycopg.OperationalError(result.get_error_message(session.info.encoding))

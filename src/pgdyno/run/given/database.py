"""Make, copy, mark and drop databases of pgdyno's own in a given server: one with the loaded data, and the copy that a trial runs in.

No database is written to or dropped that `own_databases` does not recognise.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from typing import LiteralString

import msgspec
import psycopg
from psycopg import sql as compose

from pgdyno.errors import HostError, SpecError, StepFailedError
from pgdyno.record.machine.given_server import OWN_NAME
from pgdyno.run.given.own_databases import (
    OWN_COMMENT,
    OwnDatabase,
    check_own,
    connect_to,
    list_databases,
    refusing,
)
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.log import LOG
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.timeouts import NoAnswerError

_TEMPLATES = {"template0", "template1"}
# It looks at the tables and the plans beside the load.
_OWN_CONNECTIONS = 2
# The server itself waits 5 s for sessions to end, which on a busy machine is not enough. Source: PostgreSQL 18
# src/backend/storage/ipc/procarray.c, CountOtherDBBackends.
_TRIES = 3
_FIND: LiteralString = """
SELECT datistemplate AS is_template, coalesce(pg_catalog.shobj_description(oid, 'pg_database'), '') AS comment,
       CASE WHEN datconnlimit >= 0 AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user)
            THEN datconnlimit - (SELECT count(*) FROM pg_catalog.pg_stat_get_activity(NULL) a
                                 WHERE a.datid = d.oid AND a.usesysid IS NOT NULL) END AS free
FROM pg_catalog.pg_database d WHERE datname = %s"""
# A pooler keeps them for the next client, and a database with sessions cannot be copied.
_END_OWN_SESSIONS: LiteralString = """
SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_get_activity(NULL) a
JOIN pg_catalog.pg_database d ON d.oid = a.datid WHERE d.datname = %s AND a.usesysid = d.datdba"""

_CANCEL_COPY: LiteralString = """
SELECT pg_catalog.pg_cancel_backend(pid) FROM pg_catalog.pg_stat_get_activity(NULL)
WHERE state = 'active' AND pg_catalog.starts_with(query, %s)"""


def create_database(address: Address) -> OwnDatabase:
    """Create an empty database, and mark it.

    Raises:
        StepFailedError: The server refuses.
    """
    token = uuid.uuid4().hex
    name = f"pgdyno_{token}"
    with refusing("create a database"), sql.connect(address) as connection:
        _execute(connection, "CREATE DATABASE {name} TEMPLATE template0", name)
        made = OwnDatabase(name=name, content="", size_bytes=0, sessions=0)
        try:
            _comment(connection, name, token)
            _settle(connection, name)
            with connect_to(address, name) as inside:
                inside.execute("CREATE SCHEMA pgdyno")
                inside.execute("CREATE TABLE pgdyno.mark (uuid text NOT NULL)")
                inside.execute("INSERT INTO pgdyno.mark VALUES (%s)", (token,))
        except BaseException:
            drop_if_possible(address, made)
            raise
    return made


def note_loaded(address: Address, database: OwnDatabase, content: str) -> OwnDatabase:
    """Note what a database holds, which makes it one to take again; return it with its size.

    Raises:
        StepFailedError: The server refuses, or the database is not pgdyno's any more.
    """
    there = check_own(address, database.name) or database
    with refusing("mark the loaded database"), sql.connect(address) as connection:
        _comment(connection, database.name, _token(database.name), content)
    return msgspec.structs.replace(database, content=content, size_bytes=there.size_bytes)


def find_loaded(address: Address, content: str) -> OwnDatabase | None:
    """Find a database that holds this already; None if there is none.

    Raises:
        StepFailedError: The server refuses to tell.
    """
    own, _ = list_databases(address)
    return next((one for one in own if one.content == content and not one.is_copy and one.sessions == 0), None)


def plan_copy(source: OwnDatabase, study: str) -> OwnDatabase:
    """Return the copy of a loaded database that a study's trials run in, before it is made.

    Args:
        source: The loaded database.
        study: Eight hexadecimal digits that no other study has, so that none drops the copy of another one.
    """
    return OwnDatabase(name=f"{source.name}_{study}_run", content="", size_bytes=source.size_bytes, sessions=0)


def copy_database(address: Address, source: OwnDatabase, *, study: str) -> OwnDatabase:
    """Make a study's copy of a loaded database anew, file by file: no WAL is written for its pages.

    Raises:
        StepFailedError: The server refuses, or somebody is connected to one of the two.
    """
    copy = plan_copy(source, study)
    drop_database(address, copy)
    words = "CREATE DATABASE {name} TEMPLATE {source} STRATEGY FILE_COPY"
    with refusing("copy the loaded database"), sql.connect(address) as connection:
        connection.execute(_END_OWN_SESSIONS, (source.name,))
        try:
            _execute(connection, words, copy.name, source=source.name, size_bytes=source.size_bytes)
        except NoAnswerError:
            _cancel_copy(address, copy.name)
            raise
        _comment(connection, copy.name, _token(copy.name))
        _settle(connection, copy.name)
    return copy


def drop_database(address: Address, database: OwnDatabase) -> None:
    """Drop one of pgdyno's databases, and end the sessions in it.

    Raises:
        StepFailedError: It is not pgdyno's, or the server refuses.
    """
    if check_own(address, database.name) is None:
        return
    words: LiteralString = "DROP DATABASE IF EXISTS {name}"
    with refusing("drop a database"), sql.connect(address) as connection:
        try:
            _execute(connection, words + " WITH (FORCE)", database.name, size_bytes=database.size_bytes)
        except psycopg.errors.InsufficientPrivilege:
            # Only pg_signal_backend may force autovacuum out of a database; without FORCE the server itself ends it there.
            connection.execute(_END_OWN_SESSIONS, (database.name,))
            _execute(connection, words, database.name, size_bytes=database.size_bytes)


def drop_left_overs(address: Address) -> None:
    """Drop what killed studies left: half-loaded databases and copies. Call it only where no other study is at work.

    Raises:
        StepFailedError: The server refuses.
    """
    own, _ = list_databases(address)
    for one in own:
        if one.sessions == 0 and (one.is_copy or not one.content):
            drop_database(address, one)


def drop_if_possible(address: Address, database: OwnDatabase) -> None:
    """Drop a database at the end of a study, whose own error must not be hidden by what the server then says."""
    try:
        drop_database(address, database)
    except StepFailedError as error:
        LOG.warning(
            "the database %s stays, and `pgdyno clean --dsn CONNINFO` drops it: %s", database.name, error.reason
        )


def check_named(address: Address, name: str, *, clients: int = 0) -> None:
    """Make sure that a database is the user's own, which a load may be made in.

    Args:
        address: The server.
        name: The database.
        clients: Of the load, those that hold a server connection each.

    Raises:
        SpecError: It is not there, or is a template or pgdyno's.
        HostError: It does not take as many clients.
        StepFailedError: The server refuses to tell.
    """
    with (
        refusing("look for a database"),
        sql.connect(address) as connection,
        timeouts.limit(connection),
        sql.carefully(connection),
    ):
        rows = connection.execute(_FIND, (name,)).fetchall()
    if not rows:
        raise SpecError(f"the server has no database {name}", hint="`psql --list` shows its databases; case counts")
    (row,) = rows
    if row["is_template"] or name in _TEMPLATES:
        raise SpecError(
            f"the database {name} is a template", hint="name one that holds data: others are copied from it"
        )
    if OWN_NAME.fullmatch(name) or OWN_COMMENT.fullmatch(row["comment"]):
        raise SpecError(
            f"the database {name} is pgdyno's own", hint="leave out --database: pgdyno finds what it has loaded"
        )
    if row["free"] is not None and row["free"] < clients + _OWN_CONNECTIONS:
        raise HostError(
            f"{clients} clients, and {_OWN_CONNECTIONS} connections of pgdyno's, do not fit into the database {name}",
            detail=f"its CONNECTION LIMIT leaves room for {max(0, row['free'])}",
            hint="use fewer clients (--clients), or raise the limit: all places taken would lock others out",
        )


def _token(name: str) -> str:
    named = OWN_NAME.fullmatch(name)
    if named is None:
        raise ValueError(name)
    return named[1]


def _comment(connection: sql.Connection, name: str, token: str, content: str = "") -> None:
    day = local_now().astimezone(dt.UTC).date().isoformat()
    text = f"pgdyno {token} {day}: may be dropped" + (f"; {content}" if content else "")
    words = compose.SQL("COMMENT ON DATABASE {name} IS {text}")
    connection.execute(words.format(name=compose.Identifier(name), text=compose.Literal(text)))


def _settle(connection: sql.Connection, name: str) -> None:
    """Let this role's sessions in one of its databases find the tables, whatever search_path it has elsewhere.

    Where the role's sessions begin as another role, by ALTER ROLE … SET role, they still have the settings of their own.
    """
    words = compose.SQL("SET LOCAL ROLE NONE; ALTER ROLE SESSION_USER IN DATABASE {name} SET search_path = public")
    connection.execute(words.format(name=compose.Identifier(name)))


def _cancel_copy(address: Address, name: str) -> None:
    """Have the server cancel a copy that nobody waits for any more: else it would finish it after this study has ended."""
    with (
        contextlib.suppress(psycopg.Error, StepFailedError),
        sql.connect(address) as connection,
        timeouts.limit(connection),
    ):
        connection.execute(_CANCEL_COPY, (f'CREATE DATABASE "{name}"',))


def copy_patience_s(size_bytes: int) -> float:
    """Return how long the copy of a database may take, which a slow disk reads and writes."""
    return timeouts.QUERY_PATIENCE_S + 2 * size_bytes / timeouts.SLOW_DISK_BYTES_PER_S


def _execute(
    connection: sql.Connection, words: LiteralString, name: str, *, source: str = "", size_bytes: int = 0
) -> None:
    """Execute a statement on a database, and again where sessions that are about to end are still there."""
    named = compose.SQL(words).format(name=compose.Identifier(name), source=compose.Identifier(source or name))
    patience_s = copy_patience_s(size_bytes)
    for tries_left in reversed(range(_TRIES)):
        try:
            with timeouts.limit(connection, patience_s):
                connection.execute(named)
        except psycopg.errors.ObjectInUse:
            if not tries_left:
                raise
        else:
            return

"""Keep databases of pgdyno's own in a given server: one with the loaded data, and the copy that a trial runs in.

A database is pgdyno's only if this role owns it, its name holds a uuid, and that uuid stands in the database's comment or in a
row inside it. Between CREATE DATABASE and its marks a pgdyno may be killed: an empty database of such a name counts, too, since
nothing can be lost with it. No other database is ever written to or dropped.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg import sql as compose

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.log import LOG
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address

_NAME = re.compile(r"pgdyno_([0-9a-f]{32})(_[0-9a-f]{8}_run)?")
_COMMENT = re.compile(r"pgdyno ([0-9a-f]{32}) [-0-9]+: may be dropped(?:; (.*))?", re.DOTALL)
_TEMPLATES = {"template0", "template1"}
# For each 5 MB that a slow disk copies in a second.
_SLOW_DISK_BYTES_PER_S = 5_000_000
# The server itself waits 5 s for sessions to end, which on a busy machine is not enough. Source: PostgreSQL 18
# src/backend/storage/ipc/procarray.c, CountOtherDBBackends.
_TRIES = 3

_LIST: LiteralString = """
SELECT d.datname AS name, coalesce(pg_catalog.shobj_description(d.oid, 'pg_database'), '') AS comment,
       d.datdba = r.oid AS is_own, d.datconnlimit = -2 AS is_broken, CASE WHEN d.datdba = r.oid THEN pg_catalog.pg_database_size(d.oid) ELSE 0 END AS size_bytes,
       (SELECT count(*) FROM pg_catalog.pg_stat_get_activity(NULL) a WHERE a.datid = d.oid AND a.usesysid IS NOT NULL)::int AS sessions
FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
WHERE r.rolname = current_user AND d.datname LIKE 'pgdyno\\_%' ORDER BY d.datname"""
_FIND: LiteralString = """
SELECT datistemplate AS is_template, coalesce(pg_catalog.shobj_description(oid, 'pg_database'), '') AS comment
FROM pg_catalog.pg_database WHERE datname = %s"""
_HAS_TABLE: LiteralString = "SELECT pg_catalog.to_regclass('pgdyno.mark') IS NOT NULL AS has_table"
_READ_ROW: LiteralString = "SELECT uuid FROM pgdyno.mark"
# Objects of users have oids from 16384 on. Source: PostgreSQL 18 src/include/access/transam.h, FirstNormalObjectId.
_COUNT_OBJECTS: LiteralString = """
SELECT ((SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND (n.nspname, c.relname) <> ('pgdyno', 'mark'))
      + (SELECT count(*) FROM pg_catalog.pg_proc WHERE oid >= 16384)
      + (SELECT count(*) FROM pg_catalog.pg_largeobject_metadata))::int AS count"""
# A pooler keeps them for the next client, and a database with sessions cannot be copied.
_END_OWN_SESSIONS: LiteralString = """
SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_get_activity(NULL) a
JOIN pg_catalog.pg_database d ON d.oid = a.datid WHERE d.datname = %s AND a.usesysid = d.datdba"""
HINT_DISK_FULL = "the server's disk is full: load less data (--scale), or free some space there"
_HINTS = (
    (psycopg.errors.DiskFull, HINT_DISK_FULL),
    (psycopg.errors.InsufficientPrivilege, "`pgdyno check --dsn` says what this role may do, and which GRANT gives it"),
    (psycopg.errors.ObjectInUse, "somebody is connected to pgdyno's own database: end that session"),
    (psycopg.errors.QueryCanceled, "a statement_timeout of this role or server ends what takes long"),
)


class OwnDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """A database that pgdyno made in a given server."""

    name: str
    content: str
    """What is loaded; empty until it is complete, and for the copy that a trial runs in."""
    size_bytes: int
    sessions: int
    """Sessions that are connected to it, without the server's own workers."""

    @property
    def is_copy(self) -> bool:
        """Whether a trial runs in it."""
        return self.name.endswith("_run")


class ForeignDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """A database whose name begins as pgdyno's do, and which pgdyno does not touch."""

    name: str
    reason: str


def create_database(address: Address) -> OwnDatabase:
    """Create an empty database, and mark it.

    Raises:
        StepFailedError: The server refuses.
    """
    token = uuid.uuid4().hex
    name = f"pgdyno_{token}"
    with _refusing("create a database"), sql.connect(address) as connection:
        _execute(connection, "CREATE DATABASE {name} TEMPLATE template0", name)
        made = OwnDatabase(name=name, content="", size_bytes=0, sessions=0)
        try:
            _comment(connection, name, token)
            _settle(connection, name)
            with _connect_to(address, name) as inside:
                inside.execute("CREATE SCHEMA pgdyno")
                inside.execute("CREATE TABLE pgdyno.mark (uuid text NOT NULL)")
                inside.execute("INSERT INTO pgdyno.mark VALUES (%s)", (token,))
        except BaseException:
            drop_if_possible(address, made)
            raise
    return made


def note_loaded(address: Address, database: OwnDatabase, content: str) -> OwnDatabase:
    """Note what a database holds, which makes it one to take again.

    Raises:
        StepFailedError: The server refuses, or the database is not pgdyno's any more.
    """
    _check_own(address, database.name)
    with _refusing("mark the loaded database"), sql.connect(address) as connection:
        _comment(connection, database.name, _token(database.name), content)
    return msgspec.structs.replace(database, content=content)


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
    with _refusing("copy the loaded database"), sql.connect(address) as connection:
        connection.execute(_END_OWN_SESSIONS, (source.name,))
        _execute(connection, words, copy.name, source=source.name, size_bytes=source.size_bytes)
        _comment(connection, copy.name, _token(copy.name))
        _settle(connection, copy.name)
    return copy


def drop_database(address: Address, database: OwnDatabase) -> None:
    """Drop one of pgdyno's databases, and end the sessions in it.

    Raises:
        StepFailedError: It is not pgdyno's, or the server refuses.
    """
    if not _check_own(address, database.name):
        return
    words: LiteralString = "DROP DATABASE IF EXISTS {name}"
    with _refusing("drop a database"), sql.connect(address) as connection:
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


def check_named(address: Address, name: str) -> None:
    """Make sure that a database is the user's own, which a load may be made in.

    Raises:
        SpecError: It is not there, or is a template or pgdyno's.
        StepFailedError: The server refuses to tell.
    """
    with (
        _refusing("look for a database"),
        sql.connect(address) as connection,
        timeouts.limit(connection),
        connection.transaction(force_rollback=True),
    ):
        sql.begin_carefully(connection)
        rows = connection.execute(_FIND, (name,)).fetchall()
    if not rows:
        raise SpecError(f"the server has no database {name}", hint="`psql --list` shows its databases; case counts")
    (row,) = rows
    if row["is_template"] or name in _TEMPLATES:
        raise SpecError(
            f"the database {name} is a template", hint="name one that holds data: others are copied from it"
        )
    if _NAME.fullmatch(name) or _COMMENT.fullmatch(row["comment"]):
        raise SpecError(
            f"the database {name} is pgdyno's own", hint="leave out --database: pgdyno finds what it has loaded"
        )


def list_databases(address: Address) -> tuple[tuple[OwnDatabase, ...], tuple[ForeignDatabase, ...]]:
    """List pgdyno's databases, and those whose names only look so, each with the reason.

    Raises:
        StepFailedError: The server refuses to tell.
    """
    own: list[OwnDatabase] = []
    foreign: list[ForeignDatabase] = []
    with _refusing("list databases"), sql.connect(address) as connection:
        with timeouts.limit(connection), connection.transaction(force_rollback=True):
            sql.begin_carefully(connection)
            rows = connection.execute(_LIST).fetchall()
        for row in rows:
            reason = _find_doubt(address, row)
            if reason:
                foreign.append(ForeignDatabase(name=row["name"], reason=reason))
                continue
            said = _COMMENT.fullmatch(row["comment"])
            content = (said[2] or "") if said else ""
            own.append(
                OwnDatabase(name=row["name"], content=content, size_bytes=row["size_bytes"], sessions=row["sessions"])
            )
    return tuple(own), tuple(foreign)


def _find_doubt(address: Address, row: dict[str, Any]) -> str:
    """Return why a database is not pgdyno's; empty if it is."""
    named = _NAME.fullmatch(row["name"])
    if named is None:
        return "its name is not one that pgdyno gives"
    if not row["is_own"]:
        return "another role owns it"
    if row["is_broken"]:
        # DROP DATABASE was broken off in it: it can only be dropped. Source: PostgreSQL's DATCONNLIMIT_INVALID_DB.
        return ""
    said = _COMMENT.fullmatch(row["comment"])
    if said is not None:
        return "" if said[1] == named[1] else "its comment names another database"
    return "its comment is not pgdyno's" if row["comment"] else _look_into(address, row["name"], token=named[1])


def _look_into(address: Address, name: str, *, token: str) -> str:
    """Return why a database without a comment is not pgdyno's; empty if a pgdyno was killed before it wrote one."""
    try:
        with _connect_to(address, name) as inside:
            if inside.execute(_HAS_TABLE).fetchall()[0]["has_table"]:
                rows = inside.execute(_READ_ROW).fetchall()
                if rows:
                    return "" if [one["uuid"] for one in rows] == [token] else "its row names another database"
            count = inside.execute(_COUNT_OBJECTS).fetchall()[0]["count"]
    except (psycopg.Error, StepFailedError) as error:
        words = error.detail if isinstance(error, StepFailedError) else str(error)
        return f"it has no comment, and cannot be looked into: {words.strip()}"
    return f"it has no mark, and holds {count} objects" if count else ""


def _check_own(address: Address, name: str) -> bool:
    """Return whether a database of that name is there; raise an error if it is not pgdyno's."""
    own, foreign = list_databases(address)
    doubt = next((one.reason for one in foreign if one.name == name), None)
    if doubt is not None:
        raise StepFailedError(f"the database {name} is not pgdyno's", detail=doubt)
    return any(one.name == name for one in own)


def _token(name: str) -> str:
    named = _NAME.fullmatch(name)
    if named is None:
        raise ValueError(name)
    return named[1]


def _comment(connection: sql.Connection, name: str, token: str, content: str = "") -> None:
    day = local_now().astimezone(dt.UTC).date().isoformat()
    text = f"pgdyno {token} {day}: may be dropped" + (f"; {content}" if content else "")
    words = compose.SQL("COMMENT ON DATABASE {name} IS {text}")
    connection.execute(words.format(name=compose.Identifier(name), text=compose.Literal(text)))


def _settle(connection: sql.Connection, name: str) -> None:
    """Let this role's sessions in one of its databases find the tables, whatever search_path it has elsewhere."""
    words = compose.SQL("ALTER ROLE CURRENT_USER IN DATABASE {name} SET search_path = public")
    connection.execute(words.format(name=compose.Identifier(name)))


def _execute(
    connection: sql.Connection, words: LiteralString, name: str, *, source: str = "", size_bytes: int = 0
) -> None:
    """Execute a statement on a database, and again where sessions that are about to end are still there."""
    named = compose.SQL(words).format(name=compose.Identifier(name), source=compose.Identifier(source or name))
    patience_s = timeouts.QUERY_PATIENCE_S + 2 * size_bytes / _SLOW_DISK_BYTES_PER_S
    for tries_left in reversed(range(_TRIES)):
        try:
            with timeouts.limit(connection, patience_s):
                connection.execute(named)
        except psycopg.errors.ObjectInUse:
            if not tries_left:
                raise
        else:
            return


@contextmanager
def _connect_to(address: Address, name: str) -> Iterator[sql.Connection]:
    try:
        connection = sql.connect(msgspec.structs.replace(address, dbname=name))
    except StepFailedError as error:
        error.hint = (
            "a pooler in between must pass on databases that it was not told of: in PgBouncer, `* =` below [databases]"
        )
        raise
    with connection, timeouts.limit(connection):
        yield connection


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn what the server says into an error with a hint."""
    try:
        yield
    except psycopg.Error as error:
        hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
        raise StepFailedError(f"cannot {what}", detail=str(error).strip(), hint=hint) from error

"""Recognise the databases that pgdyno made in a given server.

A database is pgdyno's only if this role owns it, its name holds a uuid, and that uuid stands in the database's comment or in a row
inside it. Between CREATE DATABASE and its marks a pgdyno may be killed: an empty database of such a name counts, too, since
nothing can be lost with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import msgspec
import psycopg

from pgdyno.errors import StepFailedError
from pgdyno.record.machine.given_server import OWN_NAME
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.lost import HINT_LOST
from pgdyno.run.postgres.timeouts import NoAnswerError

OWN_COMMENT = re.compile(r"pgdyno ([0-9a-f]{32}) [-0-9]+: may be dropped(?:; (.*))?", re.DOTALL)
# What looks into a database fails if another role's study has dropped it meanwhile, and is asked for own ones only.
_LIST: LiteralString = """
SELECT d.datname AS name, coalesce(pg_catalog.shobj_description(d.oid, 'pg_database'), '') AS comment,
       d.datdba = r.oid AS is_own, d.datconnlimit = -2 AS is_broken,
       CASE WHEN d.datdba = r.oid THEN d.datcollversion <> coalesce(pg_catalog.pg_database_collation_actual_version(d.oid), '') END
         AS is_collated_otherwise,
       CASE WHEN d.datdba = r.oid THEN pg_catalog.pg_database_size(d.oid) ELSE 0 END AS size_bytes,
       (SELECT count(*) FROM pg_catalog.pg_stat_get_activity(NULL) a WHERE a.datid = d.oid AND a.usesysid IS NOT NULL)::int AS sessions
FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
WHERE r.rolname = current_user AND pg_catalog.starts_with(d.datname, 'pgdyno_') ORDER BY d.datname"""
_HAS_TABLE: LiteralString = "SELECT pg_catalog.to_regclass('pgdyno.mark') IS NOT NULL AS has_table"
_READ_ROW: LiteralString = "SELECT uuid FROM pgdyno.mark"
# Objects of users have oids from 16384 on. Source: PostgreSQL 18 src/include/access/transam.h, FirstNormalObjectId.
_COUNT_OBJECTS: LiteralString = """
SELECT ((SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND (n.nspname, c.relname) <> ('pgdyno', 'mark'))
      + (SELECT count(*) FROM pg_catalog.pg_proc WHERE oid >= 16384)
      + (SELECT count(*) FROM pg_catalog.pg_largeobject_metadata))::int AS count"""
HINT_DISK_FULL = "the server's disk is full: load less data (--scale), or free some space there"
HINT_TIMEOUT = (
    "this role or server has a {0}: say options='-c {0}=0' in the connection string, or lift it by `ALTER ROLE`"
)
# By SQLSTATE: the oldest psycopg that pgdyno runs with has no class for the last.
_HINTS = {
    "53100": HINT_DISK_FULL,
    "42501": "`pgdyno check --dsn` says what this role may do, and which GRANT gives it",
    "55006": "somebody is connected to pgdyno's own database: end that session",
    "57014": HINT_TIMEOUT.format("statement_timeout"),
    "25P04": HINT_TIMEOUT.format("transaction_timeout"),
    # Its last words are lost with the connection now and then.
    None: HINT_LOST,
}

_HINT_HBA = "its pg_hba.conf must let this role into `all` databases, since pgdyno makes its own; or measure one that is there: --database"
_HINT_POOLER = (
    "a pooler in between must pass on databases that it was not told of: in PgBouncer, `* =` below [databases]"
)


class OwnDatabase(msgspec.Struct, frozen=True, kw_only=True):
    """A database that pgdyno made in a given server."""

    name: str
    content: str
    """What is loaded; empty before that is complete, after a DROP DATABASE that was broken off, where the server refuses to copy it,
    and for the copy of a trial."""
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


def list_databases(address: Address) -> tuple[tuple[OwnDatabase, ...], tuple[ForeignDatabase, ...]]:
    """List pgdyno's databases, and those whose names only look so, each with the reason.

    Raises:
        StepFailedError: The server refuses to tell.
    """
    own: list[OwnDatabase] = []
    foreign: list[ForeignDatabase] = []
    with refusing("list databases"), sql.connect(address) as connection:
        with timeouts.limit(connection), sql.carefully(connection):
            rows = connection.execute(_LIST).fetchall()
        for row in rows:
            reason = _find_doubt(address, row)
            if reason:
                foreign.append(ForeignDatabase(name=row["name"], reason=reason))
                continue
            # No copy is made of one whose collation the server's operating system has changed since. Source: PostgreSQL 18
            # src/backend/commands/dbcommands.c, createdb().
            is_useless = row["is_broken"] or row["is_collated_otherwise"]
            said = None if is_useless else OWN_COMMENT.fullmatch(row["comment"])
            content = (said[2] or "") if said else ""
            own.append(
                OwnDatabase(name=row["name"], content=content, size_bytes=row["size_bytes"], sessions=row["sessions"])
            )
    return tuple(own), tuple(foreign)


def _find_doubt(address: Address, row: dict[str, Any]) -> str:
    """Return why a database is not pgdyno's; empty if it is."""
    named = OWN_NAME.fullmatch(row["name"])
    if named is None:
        return "its name is not one that pgdyno gives"
    if not row["is_own"]:
        return "another role owns it"
    if row["is_broken"]:
        # DROP DATABASE was broken off in it: it can only be dropped. Source: PostgreSQL's DATCONNLIMIT_INVALID_DB.
        return ""
    said = OWN_COMMENT.fullmatch(row["comment"])
    if said is not None:
        return "" if said[1] == named[1] else "its comment names another database"
    return "its comment is not pgdyno's" if row["comment"] else _look_into(address, row["name"], token=named[1])


def _look_into(address: Address, name: str, *, token: str) -> str:
    """Return why a database without a comment is not pgdyno's; empty if a pgdyno was killed before it wrote one."""
    try:
        with connect_to(address, name) as inside:
            if inside.execute(_HAS_TABLE).fetchall()[0]["has_table"]:
                rows = inside.execute(_READ_ROW).fetchall()
                if rows:
                    return "" if [one["uuid"] for one in rows] == [token] else "its row names another database"
            count = inside.execute(_COUNT_OBJECTS).fetchall()[0]["count"]
    except (psycopg.Error, StepFailedError) as error:
        words = error.detail if isinstance(error, StepFailedError) else str(error)
        return f"it has no comment, and cannot be looked into: {words.strip()}"
    return f"it has no mark, and holds {count} objects" if count else ""


def check_own(address: Address, name: str) -> OwnDatabase | None:
    """Return the database of that name as it is now, None if there is none; raise an error if it is not pgdyno's."""
    own, foreign = list_databases(address)
    doubt = next((one.reason for one in foreign if one.name == name), None)
    if doubt is not None:
        raise StepFailedError(f"the database {name} is not pgdyno's", detail=doubt)
    return next((one for one in own if one.name == name), None)


@contextmanager
def connect_to(address: Address, name: str) -> Iterator[sql.Connection]:
    """Connect to a database for the length of a block, which may take as long as a query may.

    Raises:
        StepFailedError: There is no connection, or no answer.
    """
    try:
        connection = sql.connect(msgspec.structs.replace(address, dbname=name))
    except NoAnswerError:
        raise
    except StepFailedError as error:
        # The name of the file is in all languages.
        error.hint = _HINT_HBA if "pg_hba.conf" in error.detail else _HINT_POOLER
        raise
    with connection, timeouts.limit(connection):
        yield connection


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn what the server says into an error with a hint."""
    try:
        yield
    except psycopg.Error as error:
        hint = _HINTS.get(error.diag.sqlstate, "")
        raise StepFailedError(f"cannot {what}", detail=str(error).strip(), hint=hint) from error

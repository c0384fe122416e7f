"""Connect to a server by the user's connection string, and never let a secret of it out of this module.

libpq reads the string, and with it what plain psql would: PG* variables, the service file and pgpass. What is shown or
kept of it afterwards comes from the open connection: host, port, database and role.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader

from pgdyno.errors import SpecError, StepFailedError, did_you_mean
from pgdyno.record.machine.given_server import write_address
from pgdyno.run.given.password_command import PasswordCommand
from pgdyno.run.postgres import timeouts
from pgdyno.run.postgres.lost import no_connection
from pgdyno.run.postgres.sql import Connection

# What libpq and the server say, and what to try. Source: PostgreSQL 18 src/interfaces/libpq and
# src/backend/{libpq,utils/init,postmaster}.
_HINTS = (
    (r"could not translate host name|failed to resolve host", "is the name right, and does it resolve on this machine?"),
    (r"Connection refused", "is the server running, and does it listen on this address and port (`listen_addresses`)?"),
    (r"No such file or directory", "no server listens on that socket: are its folder (host=/folder) and its port right? Or name a host with host=NAME"),
    (r"timeout expired|timed out", "it hangs, or a firewall or a security group drops the connection"),
    (r"no password supplied", "put the password into ~/.pgpass, PGPASSFILE or PGPASSWORD"),
    (r"password authentication failed", "is the role right, and the password in ~/.pgpass, PGPASSFILE or PGPASSWORD?"),
    (r"pg_hba\.conf", "its pg_hba.conf lets this role in neither from this machine nor with this sslmode"),
    (r"Peer authentication failed", "run pgdyno as the account of that name, or connect with host=127.0.0.1"),
    (r"database \".*\" does not exist", "name one that exists, such as dbname=postgres"),
    (r"role \".*\" does not exist", "name the role with user=NAME"),
    (r"too many clients|remaining connection slots|too many connections", "wait until others disconnect"),
    (r"session is (not )?read-only|hot standby mode", "no server of the string is what target_session_attrs asks for"),
    (r"starting up|shutting down|recovery mode", "try again when the server is up"),
    (r"definition of service|service file", "is the name in ~/.pg_service.conf or in the file that PGSERVICEFILE names?"),
    (r"invalid \w+ value", "PostgreSQL's documentation of libpq has the values of this keyword"),
    (r"certificate|SSL", "see sslmode, sslrootcert and sslcert of libpq"),
)  # fmt: skip

_UNKNOWN = re.compile(r'invalid (?:connection option|URI query parameter:) "(\w+)"')
_PORTS = re.compile(r"[0-9,]*")
_PORT = "5432"
# Source: PostgreSQL 18 src/interfaces/libpq/fe-connect.c, PQconninfoOptions.
SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
# "system" is libpq's word for the certificates that the machine trusts.
_PATHS = {"passfile", "servicefile", "sslcert", "sslcrl", "sslcrldir", "sslkey", "sslkeylogfile", "sslrootcert"}
_NO_PATHS = {"", "system"}
_WRITTEN = {"sslkeylogfile"}


class _Source:
    """Where connections of this process get their password if the string has none."""

    command: PasswordCommand | None = None


def use_password_command(command: PasswordCommand | None) -> None:
    """Have all connections from now on ask a command for their password; None: libpq looks for it."""
    _Source.command = command


def find_password_command() -> PasswordCommand | None:
    """Return the command that gives the password; None where libpq looks for it."""
    return _Source.command


def has_password(dsn: str, *, of: str = "--dsn") -> bool:
    """Return whether a connection string itself holds a secret, which every account of the machine then sees.

    Args:
        dsn: The string.
        of: Where the user wrote it.

    Raises:
        SpecError: It is no connection string.
    """
    return not SECRETS.isdisjoint(_read(dsn, of=of))


def hide_secrets(dsn: str) -> str:
    """Return a connection string without its secrets that is good in any folder, and hide them in the quoted command line, too.

    Raises:
        SpecError: It is no connection string.
    """
    kept = {name: value for name, value in _read(dsn).items() if name not in SECRETS}
    shown = make_conninfo("", **with_whole_paths(kept))
    if has_password(dsn):
        sys.argv = [word.replace(dsn, shown) for word in sys.argv]
    return shown


def with_whole_paths(keywords: Mapping[str, str], folder: Path = Path()) -> dict[str, str]:
    """Return the keywords of a connection with the paths of files from the root: what uses them may work in another folder.

    Args:
        keywords: Keywords and values.
        folder: Where relative paths start.
    """
    return {
        name: str((folder / value).absolute()) if name in _PATHS and not _is_no_path(name, value) else value
        for name, value in keywords.items()
    }


def name_whole_paths(dsn: str, folder: Path, *, of: str = "--dsn") -> str:
    """Return a connection string with the paths of files from the root, so that it holds in any folder.

    Where that changes no path, it is returned as it was written.

    Args:
        dsn: The string.
        folder: Where relative paths start.
        of: Where the user wrote it.

    Raises:
        SpecError: It is no connection string.
    """
    keywords = _read(dsn, of=of)
    whole = with_whole_paths(keywords, folder)
    return dsn if whole == keywords else make_conninfo("", **whole)


def check_files(dsn: str, folder: Path, *, of: str) -> None:
    """Refuse a connection string with a relative path of a file that is not there: libpq passes over some in silence.

    Args:
        dsn: The string.
        folder: Where relative paths start.
        of: Where the user wrote it.

    Raises:
        SpecError: One is not there.
    """
    keywords = _read(dsn, of=of)
    for name, path in with_whole_paths(keywords, folder).items():
        if path != keywords[name] and name not in _WRITTEN and not os.path.exists(path):  # noqa: PTH110 - False, not an error, in a folder that is closed to us
            raise SpecError(
                f"{of}: there is no file {keywords[name]}",
                detail=f"{name}: looked for {path}",
                hint="a relative path starts at the study's folder, or at the current one of a command line: write the whole path",
            )


def _is_no_path(name: str, value: str) -> bool:
    # A key may be one of an engine, ENGINE:KEY. Source: PostgreSQL 18 src/interfaces/libpq/fe-secure-openssl.c.
    return value in _NO_PATHS or (name == "sslkey" and ":" in value)


def split_hosts(dsn: str) -> tuple[str, ...]:
    """Return a connection string for each of the hosts that one names, as libpq lists them.

    Raises:
        SpecError: It is no connection string, or its lists differ in length.
    """
    keywords = _read(dsn)
    lists = {
        name: str(keywords[name]).split(",") for name in ("host", "hostaddr", "port") if keywords.get(name) is not None
    }
    count = max((len(values) for values in lists.values()), default=1)
    if count == 1:
        return (dsn,)
    if any(len(values) not in ({1, count} if name == "port" else {count}) for name, values in lists.items()):
        raise SpecError(
            "a connection string lists hosts and ports of different numbers", hint="name a port for each host"
        )
    return tuple(
        make_conninfo("", **keywords | {name: values[number % len(values)] for name, values in lists.items()})
        for number in range(count)
    )


def find_address(dsn: str) -> str | None:
    """Return where a connection string leads, as people write it; None if only a connection tells that.

    Raises:
        SpecError: It is no connection string.
    """
    keywords = _read(dsn)
    host = keywords.get("host") or keywords.get("hostaddr")
    port = str(keywords.get("port") or os.environ.get("PGPORT") or _PORT)
    if not host or not port.isdecimal() or "service" in keywords or "PGSERVICE" in os.environ:
        return None
    return write_address(str(host), int(port))


def connect(dsn: str, *, options: str = "") -> Connection:
    """Connect in autocommit mode, with rows as dicts.

    Args:
        dsn: A URI or a keyword string, as psql takes it; empty: what plain psql would reach.
        options: Options as in PGOPTIONS, after the string's own.

    Raises:
        SpecError: It is no connection string.
        StepFailedError: There is no connection, with what was said and what to try.
    """
    keywords = _read(dsn)
    if options:
        keywords["options"] = f"{keywords.get('options', '')} {options}".strip()
    if "PGCONNECT_TIMEOUT" not in os.environ:
        keywords.setdefault("connect_timeout", timeouts.CONNECT_PATIENCE_S)
    keywords.setdefault("application_name", "pgdyno")
    if _Source.command is not None:
        if "password" in keywords:
            raise SpecError("--password-command and a password in --dsn exclude each other", hint="leave one out")
        keywords["password"] = _Source.command.get()
    # Of a database in SQL_ASCII, texts would come as bytes.
    keywords["client_encoding"] = "UTF8"
    try:
        # Behind a pooler, a statement that psycopg prepares by itself would be left to others.
        connection = psycopg.Connection.connect(
            **keywords, autocommit=True, row_factory=dict_row, prepare_threshold=None
        )
    except (psycopg.Error, UnicodeError) as error:
        said = str(error).strip()
        hint = next((hint for pattern, hint in _HINTS if re.search(pattern, said)), "")
        # Its traceback holds the string.
        if isinstance(error, psycopg.Error):
            raise no_connection(error, hint=hint) from None
        raise StepFailedError("cannot connect to the server", detail=said, hint=hint) from None
    # Another DateStyle or IntervalStyle than ISO is one that psycopg cannot read.
    for kind in ("date", "timestamp", "timestamptz", "interval"):
        connection.adapters.register_loader(kind, TextLoader)
    return connection


def find_parameter(connection: Connection, name: str) -> str:
    """Return a parameter of an open connection, also one that libpq chose by itself; empty if it has none."""
    values = (one.val for one in connection.pgconn.info if one.keyword.decode() == name)
    return (next(values, None) or b"").decode()


def _read(dsn: str, *, of: str = "--dsn") -> dict[str, Any]:
    near: list[str] = []
    try:
        keywords = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError) as error:
        keywords, near = None, _find_near(str(error))
    if keywords is None or not _is_plausible(keywords):
        raise SpecError(
            f"{of} is no connection string",
            detail="libpq does not know one of its keywords" if near else "",
            hint=did_you_mean(near)
            if near
            else "for example postgresql://bench@db1:5432/postgres, 'host=db1 user=bench', or service=NAME;"
            " in a URI, %-encode special characters of a password",
        )
    return keywords


def _find_near(said: str) -> list[str]:
    """Return the keyword of libpq's that is most like the one it complains of; none if none is like it.

    The one it complains of may be a part of a password, and is not returned.
    """
    unknown = _UNKNOWN.search(said)
    known = [one.keyword.decode() for one in psycopg.pq.Conninfo.get_defaults()]
    return difflib.get_close_matches(unknown[1], known, n=1) if unknown else []


def _is_plausible(keywords: dict[str, Any]) -> bool:
    """Return whether no part of a password, whose special characters were not encoded, was taken for something else.

    libpq would quote it in an error.
    """
    names = f"{keywords.get('host', '')}{keywords.get('dbname', '')}"
    return "@" not in names.removeprefix("@") and _PORTS.fullmatch(str(keywords.get("port", ""))) is not None

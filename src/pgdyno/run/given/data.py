"""Read what a preflight needs to know of a server beside its settings: data, pgbench's tables and port.

The databases of a running server are queried through psql as the account that owns it. The queries read only system
catalogues, because what bears a table's name may be a view that runs anyone's functions. Nothing is started, and no
rows of user tables are read.
"""

from __future__ import annotations

import os

import msgspec

from pgdyno.errors import PgdynoError
from pgdyno.record.machine.preflight import ServerSnapshot, Unseen
from pgdyno.run.given.data_folder import DataFolder, Postmaster
from pgdyno.run.given.state import PATIENCE_S, read_server_snapshot
from pgdyno.run.host.tunables import read_data_bytes

# Each database takes one start of psql.
_MOST_DATABASES = 20


def read_server_and_data(folder: DataFolder, *, wants_branches: bool) -> tuple[ServerSnapshot, tuple[Unseen, ...]]:
    """Return what can be seen of a server with its data, and what cannot.

    Args:
        folder: Its data directory.
        wants_branches: Whether to search its databases for pgbench's tables.
    """
    snapshot, unseen = read_server_snapshot(folder)
    running = folder.postmaster()
    branches: dict[str, int] = {}
    if wants_branches:
        branches, reason = _count_branches(folder, running)
        unseen += (Unseen(what="pgbench's tables in this server", reason=reason),) if reason else ()
    port = os.environ.get("PGPORT", "")
    snapshot = msgspec.structs.replace(
        snapshot,
        data_bytes=read_data_bytes(folder.path),
        branches=branches,
        port=running.port or None if running else None,
        client_port=int(port) if port.isdigit() else None,
    )
    return snapshot, unseen


def _count_branches(folder: DataFolder, running: Postmaster | None) -> tuple[dict[str, int], str]:
    """Return the number of pgbench's branches by database, and the reason if some databases are missing."""
    # The import brings psycopg, which only commands that query a server should wait for.
    from pgdyno.run.postgres.sql import BRANCHES, DATABASES  # noqa: PLC0415

    if running is None:
        return {}, "it does not run"
    found: dict[str, int] = {}
    try:
        databases = folder.ask_once(running, DATABASES, list[str], patience_s=PATIENCE_S, database="postgres")
        for database in databases[:_MOST_DATABASES]:
            seen = folder.ask_once(running, BRANCHES, list[float], patience_s=PATIENCE_S, database=database)
            if seen:
                found[database] = round(max(seen))
    except PgdynoError as error:
        return found, error.reason
    is_whole = len(databases) <= _MOST_DATABASES
    return (
        found,
        "" if is_whole else f"only the newest {_MOST_DATABASES} of {len(databases)} databases were looked into",
    )

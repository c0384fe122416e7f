"""Where a PostgreSQL server is reached."""

from __future__ import annotations

import msgspec


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and the role and database to connect as. It never holds a password: libpq reads pgpass."""

    host: str
    """A name or an IP address, or the absolute path of the folder that holds the server's socket, as libpq takes it."""
    port: int
    user: str
    dbname: str = "postgres"

"""Define what is known of a server that is reached by a connection string, whose machine pgdyno may not be able to see."""

from __future__ import annotations

import re

import msgspec

OWN_NAME = re.compile(r"pgdyno_([0-9a-f]{32})(_[0-9a-f]{8}_run)?")
"""The name of a database that pgdyno makes in a server: the uuid, and what the copy for a trial has beside it."""
IDLE_TPS = 20.0
"""Transactions of others in a second, above which they count as being at work: monitoring and the server's workers end some."""


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that pgdyno would see or do in a server, and whether the server permits it."""

    name: str
    group: str
    shows: str
    """What it is needed for."""
    refusal: str | None = None
    """The server's own words; None: it is granted."""
    grants: tuple[str, ...] = ()
    """Statements that would give it, in the database that was connected to; empty if it is granted, or if no GRANT would give it."""


class RoundTrip(msgspec.Struct, frozen=True, kw_only=True):
    """How long an empty statement takes from here to the server and back, in seconds.

    The statements follow each other within a moment, so they say nothing of round trips at other times; hence no interval.
    """

    median_s: float
    n: int


def write_address(host: str, port: int) -> str:
    """Return an address as people write it."""
    if host.startswith(("/", "@")):
        return f"{host}, port {port}"
    return f"{f'[{host}]' if ':' in host else host}:{port}"


class GivenServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server as one connection saw it. It holds no secret: neither a password nor the connection string."""

    host: str
    """As libpq took it; the folder of the socket for one without an address."""
    port: int
    dbname: str
    role: str
    version: str
    major: int
    is_superuser: bool
    is_in_recovery: bool
    is_read_only: bool
    """Whether its sessions are read-only by default."""
    is_template: bool = False
    """Whether databases may be copied from its database; False in older records."""
    timeouts_ms: dict[str, int] = {}
    """statement_timeout and transaction_timeout of a session of this role, where they end anything; empty in older records."""
    is_encrypted: bool
    is_local: bool
    """Whether it is reached by a socket file or the loopback interface."""
    service: str | None
    """The managed service, recognised by marks that its servers have; None if none was."""
    settings_way: str
    """How users of that service change settings; empty without one."""
    pooler: str | None
    """What shows that a pooler stands between; None if nothing does."""
    has_pooled_transactions: bool
    """Whether one session here may run each transaction in a different session of the server."""
    free_connections: int | None
    """How many more connections this role may open; None if that could not be read."""
    free_in_database: int | None = None
    """How many connections its database takes beside those of others; None if it has no limit of its own for this role, and in older records."""
    active_sessions: int | None
    """Sessions of others that run a statement now; None if they are hidden from this role."""
    others_tps: float | None = None
    """Transactions per second of others before the load; None if they were not counted.

    Counted over two seconds, and where they were above `IDLE_TPS` once more, of which the lower count holds.
    """
    is_archiving: bool | None = None
    """Whether archive_mode is on; None if that could not be read."""
    replica_count: int | None = None
    """How many others get its WAL: those that are connected for it, and slots that none of them uses; None if that could not be read.

    In older records the number of slots or of those connected, whichever is larger.
    """
    system_identifier: str | None = None
    """PostgreSQL's system identifier, which standbys and physical copies share; None if it could not be read."""
    round_trip: RoundTrip
    capabilities: tuple[Capability, ...]
    sslmode: str | None = None
    """What libpq was asked for, by the user or by itself; None in older records."""
    tls: str | None = None
    """Protocol and cipher of the connection, by pg_stat_ssl; None without TLS, behind a pooler, and in older records."""
    has_gss_encryption: bool = False
    """Whether GSSAPI encrypts the connection, in place of TLS; False in older records."""
    system: str | None = None
    """The platform and compiler that its version() names; None if it was not asked."""
    settings: dict[str, str] | None = None
    """`pg_settings.setting` of what is not built in, by name, as a session of this role has it; `NOT_RECORDED` for a secret.

    Settings of extensions are left out. None if they were not read, and in older records.
    """

    @property
    def connections_for_clients(self) -> int | None:
        """How many more clients may connect; None if that could not be read, or if they share the server connections of a pooler."""
        return None if self.has_pooled_transactions else self.free_connections

    @property
    def address(self) -> str:
        """Where it listens, as people write it."""
        return write_address(self.host, self.port)

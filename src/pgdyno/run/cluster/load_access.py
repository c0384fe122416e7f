"""Let load hosts into servers of pgdyno's own: by a role that is no superuser, with a password that nobody has seen.

A server of pgdyno's own has a private socket only. For load hosts it also listens on an address that they reach, and its
pg_hba.conf lets nobody in there but one role, from the addresses that these hosts have come from. The password is made for
one study, and is nowhere in a file with a name.
"""

from __future__ import annotations

import contextlib
import copy
import ipaddress
import random
import secrets
import socket
from collections.abc import Iterator

import psycopg

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.run.postgres.passfile import name_passfile, open_passfile

LOAD_HBA_FILE = "pgdyno_hba.conf"
_ANYWHERE = ("0.0.0.0/0", "::/0")
# Below the ports that Linux gives to connections: the port stays free while the server is down between two trials.
_PORTS = range(15_000, 32_000)
_TRIES = 100
_LAST_PORT = 65_535
_CONNECTS_WITHIN_S = 10
# It reads and writes all data, and makes tables of its own. Everything else is the superuser's, whose sessions look for functions
# in the schema public, too: there it must make none.
_RIGHTS = (
    "GRANT pg_read_all_data, pg_write_all_data TO {role}",
    "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    "CREATE SCHEMA IF NOT EXISTS {role} AUTHORIZATION {role}",
    "GRANT TRUNCATE ON ALL TABLES IN SCHEMA public TO {role}",
)
_SCRAM = "SET password_encryption = 'scram-sha-256'"
# Who waits for standbys to replay the role waits for what is flushed.
_FLUSHED = "SET synchronous_commit = local"
_MAKE = (
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role} LOGIN; END IF;"
    " END $$"
)


class LoadAccess:
    """How load hosts reach the servers of a study. Make it with `open_load_access`.

    Args:
        host: The name or IP address of this machine for the load hosts.
        port: The port of the servers.
        secret: The descriptor of a password file in memory.
        password: What it holds.
        standbys: How many standbys of each server they read from.
    """

    def __init__(self, host: str, port: int, *, secret: int, password: str, standbys: int = 0) -> None:
        self.host = host
        self.port = port
        self.standbys = standbys
        self.listens_on = _choose_listening(host)
        self.sources: tuple[str, ...] = _ANYWHERE
        """Where the load hosts come from, as pg_hba.conf has it: from anywhere, until `admit_only`."""
        self._secret = secret
        self._password = password

    def admit_only(self, clients: frozenset[str]) -> None:
        """Let only these IP addresses in from now on."""
        self.sources = tuple(f"{one}/{ipaddress.ip_address(one).max_prefixlen}" for one in sorted(clients))

    @property
    def pooler_port(self) -> int:
        """The port of a pooler in front of the server: the next one, which a firewall may have to let through, too."""
        return self._place(1)

    def of_standby(self, number: int) -> LoadAccess:
        """Return how load hosts reach one of the server's standbys, counted from 1: at a port of its own, after the pooler's."""
        other = copy.copy(self)
        other.port = self._place(1 + number)
        return other

    def _place(self, distance: int) -> int:
        """Return the port at a distance from the server's, below it where there is none above."""
        return self.port + (distance if self.port + distance <= _LAST_PORT else -distance)

    def reach(self, dbname: str, *, is_pooled: bool = False) -> Address:
        """Return where load hosts reach a database, through the pooler or not."""
        return Address(
            host=self.host,
            port=self.pooler_port if is_pooled else self.port,
            user=sql.LOAD_ROLE,
            dbname=dbname,
            parameters={
                "passfile": name_passfile(self._secret),
                "sslmode": "disable",
                "connect_timeout": str(_CONNECTS_WITHIN_S),
            },
            inherited=(self._secret,),
        )

    def format_hba(self, watcher: str | None) -> str:
        """Return pg_hba.conf: pgdyno itself comes through the private socket.

        Args:
            watcher: A role that may come from this machine, too, with a password; None: there is none.
        """
        lines = [
            "local all all trust",
            "local replication all trust",
            *([] if watcher is None else [f"host all {watcher} 127.0.0.1/32 scram-sha-256"]),
            *self._admit(),
        ]
        return "\n".join(lines) + "\n"

    def format_pooler_hba(self) -> str:
        """Return the pg_hba.conf of a PgBouncer in front of the server, which lets in the same role."""
        return "\n".join(["local all all trust", *self._admit()]) + "\n"

    def _admit(self) -> Iterator[str]:
        for source in self.sources:
            yield f"host all {sql.LOAD_ROLE} {source} scram-sha-256"

    def make_role(self, connection: sql.Connection) -> None:
        """Make the role of the load hosts, with its password and its rights in the connection's database.

        Raises:
            StepFailedError: The server does not take it.
        """
        try:
            with timeouts.limit(connection):
                for text in (_FLUSHED, _SCRAM, _MAKE, *_RIGHTS):
                    connection.execute(text.format(role=sql.LOAD_ROLE).encode())
                connection.pgconn.change_password(sql.LOAD_ROLE.encode(), self._password.encode())
        except psycopg.Error as exc:
            raise StepFailedError("cannot make the role of the load hosts", detail=str(exc).strip()) from exc

    def check_free(self, *, is_pooled: bool = False) -> None:
        """Make sure that a server, or a pooler before it, can listen there.

        Raises:
            HostError: The port is in use.
        """
        port, what = (self.pooler_port, "pooler") if is_pooled else (self.port, "server")
        if not _can_listen("" if self.listens_on == "*" else self.listens_on, port):
            raise HostError(
                f"port {port} is in use",
                detail=f"load hosts are to reach the {what} at {self.host}:{port}",
                hint="name another one: `port = 5499` in [server], or leave it out; a pooler has the next one, and standbys those after it",
            )


@contextlib.contextmanager
def open_load_access(host: str, port: int | None, *, standbys: int = 0) -> Iterator[LoadAccess]:
    """Choose a password for load hosts, and a port if none is named, for the length of a `with` block.

    Raises:
        HostError: The port is in use, or none is free.
    """
    password = secrets.token_urlsafe(24)
    with open_passfile(password) as secret:
        found = port or _find_port(more=1 + standbys)
        access = LoadAccess(host, found, secret=secret, password=password, standbys=standbys)
        access.check_free()
        yield access


def _find_port(*, more: int) -> int:
    """Find a free port with so many free ones after it: the next one is for a pooler, the others are for standbys."""
    for port in random.sample(_PORTS, _TRIES):
        if all(_can_listen("", port + distance) for distance in range(1 + more)):
            return port
    raise HostError("no port is free for load hosts", hint="name one: `port = 5499` in [server]")


def _choose_listening(host: str) -> str:
    """Return the address to listen on: the machine's own that the name leads to, else all of them.

    A name may lead to an address of a router before this machine, or, on this machine only, to a loopback address.
    """
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return "*"
    own = [one for one in found if _can_listen(one, 0) and (one == host or not ipaddress.ip_address(one).is_loopback)]
    return own[0] if len(found) == 1 and own else "*"


def is_own_address(address: str) -> bool:
    """Return whether this machine has an IP address."""
    return _can_listen(address, 0)


def _can_listen(address: str, port: int) -> bool:
    return find_listen_error(address, port) is None


def find_listen_error(address: str, port: int) -> OSError | None:
    """Return why a server cannot listen at an IP address and a port; None if it can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as exc:
            return exc
    return None

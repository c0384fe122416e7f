"""Find where a connection is sure to lead to the server itself, through no pooler."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from pgdyno.record.machine.given_server import write_address
from pgdyno.run.host.process_id import read_status
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address

_CREDENTIALS = struct.Struct("3i")


def find_straightness(connection: sql.Connection, way: Address, server: Address) -> str | None:
    """Return what shows that a connection leads to the server itself; None where a pooler may be in between.

    Most poolers tell libpq a process id of their own. One that hands on the server's is told by the two ends of the connection.

    Args:
        connection: The connection.
        way: Its address.
        server: Where the server is reached.
    """
    ends = sql.read_connection_ends(connection)
    if ends.pid != connection.info.backend_pid:
        return None
    if _place(way) == _place(server):
        return f"both are reached at {write_address(way.host, way.port)}"
    if _has_ends(connection, ends):
        return "the server sees the same two ends of a connection as this machine, so that nothing is in between"
    return None


def _place(address: Address) -> tuple[str, int]:
    return address.parameters.get("hostaddr", address.host), address.port


def _has_ends(connection: sql.Connection, ends: sql.ConnectionEnds) -> bool:
    """Return whether the server's ends of a connection are those of this process's socket."""
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as opened:
        if opened.family == socket.AF_UNIX:
            said = opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            return ends.client_port is None and _is_parent(_CREDENTIALS.unpack(said)[0], ends.pid)
        here, there = opened.getsockname()[:2], opened.getpeername()[:2]
    return (here, there) == ((ends.client_host, ends.client_port), (ends.server_host, ends.server_port))


def _is_parent(listener: int, pid: int) -> bool:
    """Return whether the process that listens on a socket is the parent of the server's; False where a container hides it."""
    try:
        return int(read_status(Path("/proc", str(pid)))["PPid"]) == listener
    except (OSError, KeyError):
        return False

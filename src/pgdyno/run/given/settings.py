"""Read what a given server has set, which values it accepts, and which settings one role may change there. Nothing is changed."""

from __future__ import annotations

import msgspec

from pgdyno.errors import StepFailedError
from pgdyno.record.machine.preflight import ServerOrigin, ServerSnapshot
from pgdyno.record.machine.tunables import ServerState, SlotState
from pgdyno.run.given import conninfo
from pgdyno.run.postgres import sql, timeouts


class GivenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a given server, as one role sees them."""

    state: ServerState
    version_num: int
    quoted_role: str
    """The role's name as SQL takes it."""
    words: dict[str, tuple[str, ...]]
    """The values that each enum setting takes in this server."""
    alterable: frozenset[str]
    """Settings that the role may change by ALTER SYSTEM."""


def read_given_settings(dsn: str) -> GivenSettings:
    """Read the settings of a server through one role's connection, and how much data it has.

    Args:
        dsn: The connection string.

    Raises:
        SpecError: It is no connection string.
        StepFailedError: There is no connection, or the server refuses the queries.
    """
    with conninfo.connect(dsn) as connection:
        with timeouts.limit(connection), sql.carefully(connection):
            rows = sql.read_given_settings(connection)
            data_bytes = sql.read_data_bytes(connection)
            quoted_role = sql.read_given_server(connection)["quoted_role"]
        version_num = connection.info.server_version
        slots = _read_slots(connection)
    state = ServerState(
        look=ServerSnapshot(
            origin=ServerOrigin.RUNNING,
            major=version_num // 10_000,
            settings={row["name"]: row["setting"] for row in rows if row["setting"] is not None},
        ),
        set_names=frozenset(row["name"] for row in rows if row["is_set"]),
        waiting_names=frozenset(row["name"] for row in rows if row["is_waiting"]),
        unseen=(),
        data_bytes=data_bytes,
        wal_bytes=0,
        slots=slots,
    )
    return GivenSettings(
        state=state,
        version_num=version_num,
        quoted_role=quoted_role,
        words={row["name"]: tuple(row["words"]) for row in rows if row["words"]},
        alterable=frozenset(row["name"] for row in rows if row["may_alter"]),
    )


def _read_slots(connection: sql.Connection) -> tuple[SlotState, ...]:
    """Read a server's replication slots; none where it refuses, as some managed services do, which store WAL differently.

    Raises:
        StepFailedError: The connection broke.
    """
    try:
        with timeouts.limit(connection), sql.carefully(connection):
            return tuple(SlotState(**row) for row in sql.read_slots(connection))
    except StepFailedError:
        if connection.broken:
            raise
        return ()

"""Connect to change settings of a server, under a name that says which process does it.

The server still executes what a session was sent after its client was killed. Whoever puts the settings back must know
when that session is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from pgdyno.errors import StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.host.process_id import ProcessId, this_process
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address

# A session ends as soon as its server has executed what it was sent, unless the way to its client is cut.
ENDS_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.05
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'"


def connect_writer(address: Address) -> sql.Connection:
    """Connect for changes by this process; raises as `sql.connect`."""
    return sql.connect(address, application_name=name_writer(this_process()))


def name_writer(owner: ProcessId) -> str:
    """Return the name that the server shows for the session by which a process changes settings."""
    return f"pgdyno-settings-{owner.boot_id[:8]}-{owner.pid}-{owner.start_ticks}"


def await_writers(connection: sql.Connection, owners: Iterable[ProcessId]) -> None:
    """Wait until no session of these processes changes settings any more: ended ones, or this one, which has closed its own.

    Raises:
        StepFailedError: One is still there after ENDS_WITHIN_S.
    """
    deadline_s = monotonic_s() + ENDS_WITHIN_S
    for name in dict.fromkeys(map(name_writer, owners)):
        while sql.count_named_sessions(connection, name):
            if monotonic_s() > deadline_s:
                raise StepFailedError(
                    "a session of a pgdyno that was ended is still at the server, and could change settings once more",
                    detail=f"after {ENDS_WITHIN_S:g} s; its application_name is {name}",
                    hint=f"end it: `{_END.format(name)}`, then restore once more",
                )
            time.sleep(_LOOK_EVERY_S)

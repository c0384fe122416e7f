"""Find whether two connection strings lead to one server: a copy of it has its system identifier, too."""

from __future__ import annotations

from pgdyno.errors import StepFailedError
from pgdyno.record.machine.given_server import write_address
from pgdyno.run.given import conninfo
from pgdyno.run.postgres import sql


def is_same_server(dsn: str, other_dsn: str, *, address: str) -> bool | None:
    """Return whether a connection string leads to the server that another one reaches at an address.

    A server runs under one system identifier since one instant, whichever of its addresses answers.

    Args:
        dsn: The connection string.
        other_dsn: The other one.
        address: Where that one led.

    Returns:
        None if that cannot be told: nothing answers at the address any more, or the role is refused there, or what answers is a
        standby, which may be what has become of a primary.
    """
    try:
        with conninfo.connect(other_dsn) as there, conninfo.connect(dsn) as here:
            if write_address(there.info.host or there.info.hostaddr, there.info.port) != address:
                return None
            starts = [(sql.read_system_identifier(one), sql.read_start_time(one)) for one in (there, here)]
            is_standby = sql.is_in_recovery(there)
    except StepFailedError:
        return None
    if starts[0] == starts[1]:
        return True
    return None if is_standby else False

"""Bound what a study has a given server write and hold: archives, replicas and disks of others must take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import LiteralString

import psycopg

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql, timeouts
from pgdyno.run.postgres.address import Address
from pgdyno.spec.allowed import DEFAULT_DATA_BYTES, DEFAULT_WAL_BYTES
from pgdyno.units import format_bytes

# Each look is a connection, and twice as many are made as the rate so far would need until the bound is reached.
_SOONEST_S, _LATEST_S = 0.5, 5.0
# The watch over the load finds a server that hangs, and cannot while a look waits for its answer.
_PATIENCE_S = 10.0
_OWN_SIZES: LiteralString = """
SELECT coalesce(sum(pg_catalog.pg_database_size(d.oid)), 0)::bigint AS size_bytes
FROM pg_catalog.pg_database d, pg_catalog.pg_roles r
WHERE r.rolname = current_user AND d.datdba = r.oid AND pg_catalog.starts_with(d.datname, 'pgdyno_')"""


class Bound:
    """A number of bytes that a study must not exceed. Make it with `bound_wal` or `bound_data`.

    Args:
        read: Counts the bytes; None where the role may not know, or nothing answers now.
        most_bytes: The bound.
        refuse: Makes the error that ends the study, of the bytes seen and the bound.
    """

    def __init__(
        self, read: Callable[[], int | None], most_bytes: float, refuse: Callable[[int, float], HostError]
    ) -> None:
        self._read = read
        self._most_bytes = most_bytes
        self._refuse = refuse
        first_bytes = read()
        self.is_known = first_bytes is not None
        """Whether the role may know how many there are; if not, nothing is bounded."""
        self._seen_bytes = first_bytes or 0
        self._looked_s = monotonic_s()
        self._next_s = self._looked_s + _SOONEST_S

    def find_excess(self) -> HostError | None:
        """Return the error that ends the study if there are more, when it is time for another look."""
        if not self.is_known or monotonic_s() < self._next_s:
            return None
        return self._look()

    def check(self) -> None:
        """Look now.

        Raises:
            HostError: There are more.
        """
        if self.is_known and (excess := self._look()) is not None:
            raise excess

    def _look(self) -> HostError | None:
        looked_s, seen_bytes = self._looked_s, self._seen_bytes
        self._looked_s = monotonic_s()
        now_bytes = self._read()
        if now_bytes is None:
            self._next_s = self._looked_s + _SOONEST_S
            return None
        left_bytes = self._most_bytes - now_bytes
        rate = max(1.0, (now_bytes - seen_bytes) / max(0.001, self._looked_s - looked_s))
        self._next_s = self._looked_s + min(_LATEST_S, max(_SOONEST_S, left_bytes / rate / 2))
        self._seen_bytes = now_bytes
        return None if left_bytes >= 0 else self._refuse(now_bytes, self._most_bytes)


def bound_wal(address: Address, most_bytes: float = DEFAULT_WAL_BYTES) -> Bound:
    """Bound the WAL that the server writes from now on, for whomever.

    Args:
        address: A database that every session may connect to.
        most_bytes: The bound.
    """
    began_bytes = _read_wal(address)

    def read() -> int | None:
        now_bytes = None if began_bytes is None else _read_wal(address)
        return None if now_bytes is None or began_bytes is None else now_bytes - began_bytes

    return Bound(read, most_bytes, _refuse_wal)


def bound_data(address: Address, most_bytes: float = DEFAULT_DATA_BYTES) -> Bound:
    """Bound what pgdyno's own databases of this role take in the server, those of earlier studies included.

    Args:
        address: A database that every session may connect to.
        most_bytes: The bound.
    """
    return Bound(lambda: _read_data(address), most_bytes, _refuse_data)


def _refuse_wal(seen_bytes: int, most_bytes: float) -> HostError:
    return HostError(
        f"the server has written {format_bytes(seen_bytes)} of WAL, more than the study may have it write",
        detail=f"the bound is {format_bytes(most_bytes)}, and what others wrote counts, too",
        hint="`pgdyno resume` continues with the data that were loaded, and counts anew; `--allow wal=200GB` sets another bound",
    )


def _refuse_data(seen_bytes: int, most_bytes: float) -> HostError:
    return HostError(
        f"pgdyno's databases take {format_bytes(seen_bytes)} in the server, more than they may",
        detail=f"the bound is {format_bytes(most_bytes)}, and what earlier studies have loaded counts, too",
        hint="load less data, drop what is loaded with `pgdyno clean --dsn CONNINFO`, or set another bound with"
        " `--allow data=200GB`",
    )


def _read_wal(address: Address) -> int | None:
    """Return the WAL written since the cluster was made; None where the role may not know, or nothing answers now."""
    try:
        with sql.connect(address) as connection, timeouts.limit(connection, _PATIENCE_S):
            return sql.read_wal_bytes(connection)
    except StepFailedError:
        return None


def _read_data(address: Address) -> int | None:
    """Return the bytes of pgdyno's databases; None where nothing answers now, or one is just being dropped."""
    try:
        with sql.connect(address) as connection, timeouts.limit(connection, _PATIENCE_S):
            size_bytes: int = connection.execute(_OWN_SIZES).fetchall()[0]["size_bytes"]
            return size_bytes
    except (psycopg.Error, StepFailedError):
        return None

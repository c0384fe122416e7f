"""Bound the WAL that a study has a given server write: archives, replicas and disks of others must take it."""

from __future__ import annotations

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.allowed import DEFAULT_WAL_BYTES
from pgdyno.units import format_bytes

# Each look is a connection, and twice as many are made as the rate so far would need until the bound is reached.
_SOONEST_S, _LATEST_S = 0.5, 5.0


class WalBound:
    """The WAL that the server may write from now on, for whomever.

    Args:
        address: A database that every session may connect to.
        most_bytes: The bound.
    """

    def __init__(self, address: Address, most_bytes: float = DEFAULT_WAL_BYTES) -> None:
        self._address = address
        self._most_bytes = most_bytes
        self._began_bytes = self._seen_bytes = self._read()
        self._looked_s = monotonic_s()
        self._next_s = self._looked_s + _SOONEST_S

    @property
    def is_known(self) -> bool:
        """Whether the role may know how much WAL there is; if not, nothing is bounded."""
        return self._began_bytes is not None

    def find_excess(self) -> HostError | None:
        """Return the error that ends the study if more was written, when it is time for another look."""
        if self._began_bytes is None or monotonic_s() < self._next_s:
            return None
        return self._look(self._began_bytes)

    def check(self) -> None:
        """Look now.

        Raises:
            HostError: More was written.
        """
        if self._began_bytes is not None and (excess := self._look(self._began_bytes)) is not None:
            raise excess

    def _look(self, began_bytes: int) -> HostError | None:
        looked_s, seen_bytes = self._looked_s, self._seen_bytes or 0
        self._looked_s = monotonic_s()
        now_bytes = self._read()
        if now_bytes is None:
            self._next_s = self._looked_s + _SOONEST_S
            return None
        left_bytes = began_bytes + self._most_bytes - now_bytes
        rate = max(1.0, (now_bytes - seen_bytes) / max(0.001, self._looked_s - looked_s))
        self._next_s = self._looked_s + min(_LATEST_S, max(_SOONEST_S, left_bytes / rate / 2))
        self._seen_bytes = now_bytes
        if left_bytes >= 0:
            return None
        return HostError(
            f"the server has written {format_bytes(now_bytes - began_bytes)} of WAL, more than the study may have it write",
            detail=f"the bound is {format_bytes(self._most_bytes)}, and what others wrote counts, too",
            hint="`pgdyno resume` goes on with the data that were loaded, and counts anew; `--allow wal=200GB` sets another bound",
        )

    def _read(self) -> int | None:
        """Return the WAL written since the cluster was made; None where the role may not know, or nothing answers now."""
        try:
            with sql.connect(self._address) as connection:
                return sql.read_wal_bytes(connection)
        except StepFailedError:
            return None

"""Bound the WAL that a study has a given server write: archives, replicas and disks of others must take it."""

from __future__ import annotations

from pgdyno.errors import HostError, StepFailedError
from pgdyno.run.host.clock import monotonic_s
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.allowed import DEFAULT_WAL_BYTES
from pgdyno.units import format_bytes

# A server writes a few GB of WAL in this time at the most.
_LOOK_S = 5.0


class WalBound:
    """The WAL that the server may write from now on, for whomever.

    Args:
        address: A database that every session may connect to.
        most_bytes: The bound.
    """

    def __init__(self, address: Address, most_bytes: float = DEFAULT_WAL_BYTES) -> None:
        self._address = address
        self._most_bytes = most_bytes
        self._began_bytes = self._read()
        self._looked_s = monotonic_s()

    def find_excess(self) -> HostError | None:
        """Return the error that ends the study if more was written, as far as the last look of the last seconds tells."""
        if self._began_bytes is None or monotonic_s() - self._looked_s < _LOOK_S:
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
        self._looked_s = monotonic_s()
        now_bytes = self._read()
        if now_bytes is None or now_bytes - began_bytes <= self._most_bytes:
            return None
        return HostError(
            f"the server has written {format_bytes(now_bytes - began_bytes)} of WAL, more than the study may have it write",
            detail=f"the bound is {format_bytes(self._most_bytes)}, and what others wrote counts, too",
            hint="`pgdyno resume` goes on, and counts anew; `--allow wal=200GB` sets another bound",
        )

    def _read(self) -> int | None:
        """Return the WAL written since the cluster was made; None where the role may not know, or nothing answers now."""
        try:
            with sql.connect(self._address) as connection:
                return sql.read_wal_bytes(connection)
        except StepFailedError:
            return None

"""Define what one of several pgbenches does that make one load in parts, on this machine or on load hosts."""

from __future__ import annotations

import msgspec

from pgdyno.run.load.argv import LoadRun
from pgdyno.run.postgres.address import Address
from pgdyno.spec.table import QueryMode


class PartRun(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the pgbenches does; see `LoadRun` for what is of the same name."""

    name: str
    """Name of its folder in the record; on load hosts the first part of it."""
    endpoint: str
    """What its clients connect to: `primary`, a standby or a pooler by its name."""
    address: Address
    scripts: tuple[tuple[str, int], ...]
    mode: QueryMode
    clients: int
    threads: int
    rate_tps: float | None
    part: str = ""
    """The study's part that it belongs to; empty of a load that is only divided among standbys."""
    first_script: int = 0
    """Number of its first script among those of the whole load."""

    def aim(self, run: LoadRun) -> LoadRun:
        """Return its share of the run of a whole load."""
        return msgspec.structs.replace(
            run,
            address=self.address,
            scripts=self.scripts,
            mode=self.mode,
            clients=self.clients,
            threads=self.threads,
            rate_tps=self.rate_tps,
        )

"""Define what a user allows pgdyno to do to a server of theirs, asked for by name."""

from __future__ import annotations

import msgspec

DEFAULT_WAL_BYTES = 50 * 1024.0**3
"""Bound on the WAL of a study where the user sets none."""

DEFAULT_DATA_BYTES = 50 * 1024.0**3
"""Bound on what pgdyno's databases take in a server where the user sets none."""


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What `--allow` says.

    Attributes:
        is_busy: Whether to load a server that others use.
        writes: The database of the user's that the load may write to; None: it only reads.
        wal_bytes: WAL that the server may write while the study runs; None: not said.
        data_bytes: What pgdyno's own databases may take in the server, those of earlier studies included; None: not said.
    """

    is_busy: bool = False
    writes: str | None = None
    wal_bytes: float | None = None
    data_bytes: float | None = None

    @property
    def most_wal_bytes(self) -> float:
        """Return the bound on WAL, said or not."""
        return DEFAULT_WAL_BYTES if self.wal_bytes is None else self.wal_bytes

    @property
    def most_data_bytes(self) -> float:
        """Return the bound on data, said or not."""
        return DEFAULT_DATA_BYTES if self.data_bytes is None else self.data_bytes


NOTHING = Allowed()
"""What is allowed to those who do not say."""

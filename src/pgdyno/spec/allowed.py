"""Define what a user allows pgdyno to do to a server of theirs, asked for by name."""

from __future__ import annotations

import msgspec


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """What `--allow` says.

    Attributes:
        is_busy: Whether to load a server that others use.
        writes: The database of the user's that the load may write to; None: it only reads.
    """

    is_busy: bool = False
    writes: str | None = None


NOTHING = Allowed()
"""What is allowed to those who do not say."""

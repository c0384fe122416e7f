"""Read from a draft how fast WAL is written and how far its checkpoints are apart, with the settings decided so far."""

from __future__ import annotations

from pgdyno.facts.gucs import read_value
from pgdyno.tune.checkpoints import wal_distance_bytes, wal_rate
from pgdyno.tune.draft import Draft
from pgdyno.tune.types import Known

LONGEST_S, SHORTEST_S = 1800.0, 300.0
"""Longest and shortest time between two checkpoints that is aimed at."""


def compression_of(draft: Draft) -> str:
    """Return the value of wal_compression, one of `COMPRESSIONS`; `on` means pglz."""
    guc = draft.guc("wal_compression")
    return "off" if guc is None else str(read_value(guc, draft.text(guc.name)))


def distance_of(draft: Draft, max_wal_bytes: float) -> float:
    """Return the WAL between two checkpoints that a max_wal_size triggers."""
    return wal_distance_bytes(draft.subject, max_wal_bytes, draft.number("checkpoint_completion_target"))


def longest_s(draft: Draft) -> float:
    """Return the longest time between two checkpoints, which the user may have fixed."""
    return draft.number("checkpoint_timeout") if draft.is_fixed("checkpoint_timeout") else LONGEST_S


def rate_of(draft: Draft) -> Known:
    """Return the WAL rate with the checkpoints that the settings bring about, after all of them are decided."""
    return wal_rate(
        draft.subject,
        compression_of(draft),
        timeout_s=draft.number("checkpoint_timeout"),
        distance_bytes=distance_of(draft, draft.number("max_wal_size")),
    )

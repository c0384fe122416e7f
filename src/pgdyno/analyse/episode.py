"""What happens within a trial over time: values only, which `episodes` finds and explanations name causes for."""

from __future__ import annotations

import enum

import msgspec


class EpisodeKind(enum.Enum):
    """The shape of a change in throughput or latency."""

    CLIFF = "cliff"
    """A drop that stays."""
    RECOVERY = "recovery"
    """A rise that stays, after a drop."""
    STALL = "stall"
    """A gap: far less is done for some seconds, or nothing, and then all goes on."""
    SAWTOOTH = "sawtooth"
    """Drops that come back at about equal distances, as checkpoints make them."""
    DECLINE = "decline"
    """A slow fall without a step."""
    WARM_UP = "warm-up"
    """A rise from the start on that levels off."""


WORSE = frozenset({EpisodeKind.CLIFF, EpisodeKind.STALL, EpisodeKind.SAWTOOTH, EpisodeKind.DECLINE})
"""Kinds for the worse: the others are told, and no cause is looked for."""

NOTHING_RATIO = 0.02
"""Of the level: no more is next to nothing."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one metric within a trial. Times are seconds since its measured load began."""

    kind: EpisodeKind
    metric: str
    """As facts/metrics.toml names it: `tps`, `latency_p99_ms`."""
    from_s: float
    until_s: float | None
    """None: it lasted until the end."""
    before: float
    """The metric's level before it, in its unit."""
    after: float
    """And in it; of a sawtooth in its low parts."""
    change_ratio: float
    """after / before - 1."""
    change_low_ratio: float | None = None
    """Ends of its 95 % interval; None where there is too little for one."""
    change_high_ratio: float | None = None
    period_s: float | None = None
    """Of a sawtooth."""
    recovery_s: float | None = None
    """From its low until the level before was reached again; None where that did not happen."""
    settled_s: float | None = None
    """From its beginning until 95 % of the change was done; None where it has no such moment."""

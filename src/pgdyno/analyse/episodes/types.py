"""What happens within a trial over time, and what it may come from: values only, which `episodes` and `episode_causes` find."""

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


class Cause(enum.Enum):
    """What may lie behind an episode."""

    CHECKPOINT = "checkpoint"
    FULL_PAGE_IMAGES = "full-page images after a checkpoint"
    DIRTY_LIMIT = "the kernel's limit for dirty memory"
    WRITEBACK = "the kernel's write-back"
    CREDITS = "a burst of the disk that ended"
    DEVICE = "a disk that became slower"
    AUTOVACUUM = "autovacuum"
    STEAL = "CPU time taken by the hypervisor"
    QUOTA = "the CPU quota of a control group"
    OTHERS = "other programs"


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that was looked at."""

    cause: Cause
    fits: bool
    """In time and in size."""
    text: str
    """Its figures before and in the episode, in a clause."""
    explained_ratio: float | None = None
    """Share of the change that it explains; None where that cannot be reckoned."""


class EpisodeCauses(msgspec.Struct, frozen=True, kw_only=True):
    """The suspects of an episode: those that fit, best first, then the others."""

    episode: Episode
    suspects: tuple[Suspect, ...]
    absent: tuple[str, ...] = ()
    """What could not be looked at, and why."""

    @property
    def named(self) -> tuple[Suspect, ...]:
        """Those that fit; empty: the cause is unknown."""
        return tuple(one for one in self.suspects if one.fits)

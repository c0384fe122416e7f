"""Define what happens within a trial over time, and what may have caused it: the values that `detection` and `causes` find."""

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
    """A gap: for some seconds far less is done, or nothing, and then the load goes on."""
    SAWTOOTH = "sawtooth"
    """Drops that return at about equal distances, as checkpoints cause them."""
    DECLINE = "decline"
    """A slow fall without a step."""
    WARM_UP = "warm-up"
    """A rise from the start that levels off."""


WORSE = frozenset({EpisodeKind.CLIFF, EpisodeKind.STALL, EpisodeKind.SAWTOOTH, EpisodeKind.DECLINE})
"""Kinds for the worse; the others are reported without a cause."""

NOTHING_RATIO = 0.02
"""Share of the level at or below which throughput counts as nothing."""
AGAIN_RATIO = 0.9
"""Share of the level before from which on it counts as reached again."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one metric within a trial. Times are seconds since its measured load began."""

    kind: EpisodeKind
    metric: str
    """The name in facts/metrics.toml: `tps`, `latency_p99_ms`."""
    from_s: float
    until_s: float | None
    """None if it lasted until the end."""
    before: float
    """The metric's level before the episode, in its unit."""
    after: float
    """The level in the episode; in the low parts of a sawtooth."""
    change_ratio: float
    """after / before - 1."""
    change_low_ratio: float | None = None
    """Lower end of its 95 % interval; None if there are too few data for one."""
    change_high_ratio: float | None = None
    period_s: float | None = None
    """Period of a sawtooth."""
    recovery_s: float | None = None
    """Time from its low until the level before was reached again; None if it was not."""
    settled_s: float | None = None
    """Time from its beginning until 95 % of the change was done; None if there is no such moment."""


class Cause(enum.Enum):
    """The possible causes of an episode."""

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
    MEMORY = "a lack of memory"
    HALT = "a halt of the machine or of pgdyno"


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A possible cause that was checked."""

    cause: Cause
    fits: bool
    """True if it fits in time and in size."""
    text: str
    """Its figures before and in the episode, in a clause."""
    explained_ratio: float | None = None
    """Share of the change that it explains; None if that cannot be computed."""
    is_of_wal: bool = False
    """True if its figures are of the disk of pg_wal, where that is another than the data's."""


class EpisodeCauses(msgspec.Struct, frozen=True, kw_only=True):
    """The suspects of an episode: those that fit, best first, then the others."""

    episode: Episode
    suspects: tuple[Suspect, ...]
    absent: tuple[str, ...] = ()
    """What could not be checked, and why."""

    @property
    def named(self) -> tuple[Suspect, ...]:
        """The suspects that fit; if there are none, the cause is unknown."""
        return tuple(one for one in self.suspects if one.fits)

"""What a finding is: a claim with its evidence, for people who read little and trust what is proven."""

from __future__ import annotations

import enum

import msgspec

from pgdyno.analyse.bottleneck.time_share import Certainty
from pgdyno.analyse.trial.chart_kind import ChartKind


class Severity(enum.Enum):
    """How much a finding matters to the figures of its report."""

    CRITICAL = "critical"
    """The figures should not be used as they are."""
    WARNING = "warning"
    """The figures need this beside them."""
    NOTE = "note"


class Rival(msgspec.Struct, frozen=True, kw_only=True):
    """Another cause that could have made what a finding rests on."""

    cause: str
    """A clause, such as `the disk's credits ran out`."""
    against: str
    """What speaks against it, with figures; that nothing does, or that nobody looked, is said, too."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A claim, what it rests on, and what to do about it."""

    severity: Severity
    claim: str
    """One sentence."""
    evidence: str
    """Figures, with units."""
    advice: str = ""
    """One sentence; empty where nothing is to be done."""
    workload: str | None = None
    """None: about the machine or the whole study."""
    rule: str = ""
    """What found it, in a word that stays the same; empty where none does."""
    why: str = ""
    """One sentence: what it does to a measurement or to speed; empty where the claim says it."""
    rivals: tuple[Rival, ...] = ()
    """What else could have made it, likeliest first; none where the claim is what was counted."""
    confirm: str = ""
    """The one experiment that would settle it, as a command where there is one; empty where nothing is left to settle."""
    gain: str = ""
    """What acting on it gains, with its interval, and whether that is proven or expected; empty where nobody knows."""
    gain_ratio: float | None = None
    """Its best estimate in TPS, by which steps are put in order; None where it is no such number."""
    is_gain_proven: bool = False
    """Whether that was measured, rather than worked out or expected."""
    certainty: Certainty | None = None
    """Of a verdict on what limits a load; None for what was counted."""
    shows: tuple[ChartKind, ...] = ()
    """The charts that show it."""
    trial: int | None = None
    """Number of the trial that it was seen in; None where it was not one trial alone."""

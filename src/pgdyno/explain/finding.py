"""What a finding is: a claim with its evidence, for people who read little and trust what is proven."""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.Enum):
    """How much a finding matters to the figures of its report."""

    CRITICAL = "critical"
    """The figures should not be used as they are."""
    WARNING = "warning"
    """The figures need this beside them."""
    NOTE = "note"


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

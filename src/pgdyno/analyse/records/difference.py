"""In what two records differ, and what that means for comparing them: values only."""

from __future__ import annotations

import enum

import msgspec


class DifferenceGravity(enum.Enum):
    """What a difference between two records means for comparing them, gravest first."""

    REFUSED = "refused"
    DECLARED = "to be declared"
    FREE = "free"


class RecordDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Something in which two records differ, or a weakness of one or both."""

    standing: DifferenceGravity
    subject: str
    first: str
    """What it is in the first record."""
    other: str
    why: str = ""
    """What it does to a comparison, as a clause; empty where the subject says it."""
    hint: str = ""
    """What to try instead, of a refusal."""


def refuse(subject: str, first: str, other: str, *, why: str, hint: str) -> RecordDifference:
    """What makes the figures answers to different questions, with what to do instead."""
    return RecordDifference(
        standing=DifferenceGravity.REFUSED, subject=subject, first=first, other=other, why=why, hint=hint
    )


def declare(subject: str, first: str, other: str, *, why: str = "") -> RecordDifference:
    """What has to be said beside a ratio."""
    return RecordDifference(standing=DifferenceGravity.DECLARED, subject=subject, first=first, other=other, why=why)


def free(subject: str, first: str, other: str) -> RecordDifference:
    """What one compares for, or what cannot matter."""
    return RecordDifference(standing=DifferenceGravity.FREE, subject=subject, first=first, other=other)

"""Define a difference between two records, and what it means for comparing them."""

from __future__ import annotations

import enum

import msgspec

UNSEEN = "not seen"
"""Said of a fact of a machine that nobody looked at."""


class DifferenceGravity(enum.Enum):
    """What a difference between two records means for comparing them, most severe first."""

    REFUSED = "refused"
    DECLARED = "to be declared"
    FREE = "free"


class RecordDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between two records, or a weakness of one or both."""

    standing: DifferenceGravity
    subject: str
    first: str
    """The value in the first record."""
    other: str
    why: str = ""
    """What it does to a comparison, as a clause; empty if the subject says it."""
    hint: str = ""
    """What to try instead, for a refusal."""


def refuse(subject: str, first: str, other: str, *, why: str, hint: str) -> RecordDifference:
    """Return a difference that makes the figures answer different questions, with a hint what to do instead."""
    return RecordDifference(
        standing=DifferenceGravity.REFUSED, subject=subject, first=first, other=other, why=why, hint=hint
    )


def declare(subject: str, first: str, other: str, *, why: str = "") -> RecordDifference:
    """Return a difference that must be stated beside a ratio."""
    return RecordDifference(standing=DifferenceGravity.DECLARED, subject=subject, first=first, other=other, why=why)


def free(subject: str, first: str, other: str) -> RecordDifference:
    """Return a difference that is the purpose of the comparison, or cannot matter."""
    return RecordDifference(standing=DifferenceGravity.FREE, subject=subject, first=first, other=other)

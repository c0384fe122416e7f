"""Define the table `failover` of a study: the primary dies under load, and a standby takes its place."""

from __future__ import annotations

import enum

from pgdyno.spec.table import StudyTable
from pgdyno.units import parse_seconds


class FailoverKind(enum.Enum):
    """How the primary ends."""

    CRASH = "crash"
    """All of its processes are killed at once."""
    STOP = "stop"
    """A fast shutdown: it writes a checkpoint and sends all of its WAL first."""


class FailoverSpec(StudyTable, frozen=True, kw_only=True):
    """A failover in each trial.

    Attributes:
        how: How the primary ends.
        at: Seconds of load before that; absent: half of the trial's duration. The load goes on for the rest of it afterwards.
        promote_within: Longest time that the promotion may take before the trial fails.
    """

    how: FailoverKind = FailoverKind.CRASH
    at: str | None = None
    promote_within: str = "60s"

    def __post_init__(self) -> None:
        """Check ranges."""
        for key, low, high in (("at", 1.0, 86_400.0), ("promote_within", 1.0, 3_600.0)):
            text = getattr(self, key)
            if text is not None and not low <= _seconds(key, text) <= high:
                raise ValueError(f"{key} {text} is not within {low:g}s to {high:g}s")

    @property
    def at_s(self) -> float | None:
        """Seconds of load before the primary ends; None if that is left to pgdyno."""
        return None if self.at is None else _seconds("at", self.at)

    @property
    def promote_within_s(self) -> float:
        """Longest promotion in seconds."""
        return _seconds("promote_within", self.promote_within)


def _seconds(key: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as exc:
        raise ValueError(f"{key} {exc}") from exc

"""Read `health.toml`: what DBAs monitor on a server, with thresholds for warning and critical.

Each threshold says whether it comes from a manual, a program's source, a published guide or our own judgement. A
threshold shows where to look; it never means that something limits a load.
"""

from __future__ import annotations

import enum
import functools

import msgspec

from pgdyno.facts.data_file import read_toml


class Level(enum.Enum):
    """Level of a value by its thresholds, best first."""

    GOOD = "good"
    WARNING = "warning"
    CRITICAL = "critical"


class Worse(enum.Enum):
    """Direction in which a value becomes worse."""

    HIGHER = "higher"
    LOWER = "lower"


class Basis(enum.Enum):
    """Origin of a threshold."""

    MANUAL = "manual"
    SOURCE = "source"
    """A program changes its behaviour at this value."""
    GUIDE = "guide"
    JUDGEMENT = "judgement"
    """Our own judgement."""


class Threshold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A threshold; values beyond it are bad, the threshold itself is not."""

    at: float
    basis: Basis
    source: str


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quantity to monitor."""

    name: str
    title: str
    unit: str
    worse: Worse
    meaning: str
    action: str
    """Advice for a bad value; empty without thresholds."""
    warning: Threshold | None = None
    critical: Threshold | None = None
    unbounded: str | None = None
    """Why there is no threshold."""

    def judge(self, value: float) -> Level | None:
        """Return the level of a value; None without thresholds."""
        for threshold, level in ((self.critical, Level.CRITICAL), (self.warning, Level.WARNING)):
            if threshold is not None and self._is_beyond(value, threshold.at):
                return level
        return None if self.warning is None and self.critical is None else Level.GOOD

    def _is_beyond(self, value: float, at: float) -> bool:
        return value > at if self.worse is Worse.HIGHER else value < at


class _Checks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    check: tuple[HealthCheck, ...]


@functools.cache
def health_checks() -> dict[str, HealthCheck]:
    """Return all checks by name, in the order of the report."""
    return {check.name: check for check in read_toml("health.toml", _Checks).check}

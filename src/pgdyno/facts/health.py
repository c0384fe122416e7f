"""What DBAs watch of a server, and from which figure on it is a warning or critical: the typed reader of `health.toml`.

Thresholds are worth what they rest on, so each says whether a manual, a program's source, a published guide or nobody but
us named it. A threshold tells where to look; it never says that something limits a load.
"""

from __future__ import annotations

import enum
import functools
import importlib.resources

import msgspec


class Level(enum.Enum):
    """How a value stands to its thresholds, best first."""

    GOOD = "good"
    WARNING = "warning"
    CRITICAL = "critical"


class Worse(enum.Enum):
    """Which way is bad."""

    HIGHER = "higher"
    LOWER = "lower"


class Basis(enum.Enum):
    """Who named a threshold."""

    MANUAL = "manual"
    SOURCE = "source"
    """What a program does from there on."""
    GUIDE = "guide"
    JUDGEMENT = "judgement"
    """Nobody but us."""


class Threshold(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Beyond it is bad; the value itself is not."""

    at: float
    basis: Basis
    source: str


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing to watch."""

    name: str
    title: str
    unit: str
    worse: Worse
    meaning: str
    action: str
    """What to do about a value that is not good; empty where nothing is judged."""
    warning: Threshold | None = None
    critical: Threshold | None = None
    unbounded: str | None = None
    """Why there is no threshold at all."""

    def judge(self, value: float) -> Level | None:
        """The level of a value; None where there are no thresholds."""
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
    """All checks by name, in the order of a report."""
    text = importlib.resources.files("pgdyno.facts").joinpath("health.toml").read_bytes()
    return {check.name: check for check in msgspec.toml.decode(text, type=_Checks).check}

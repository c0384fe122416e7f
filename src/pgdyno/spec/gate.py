"""Read the conditions of `--fail-if`: what must not be proven of a variant, or a run in CI fails.

A condition names a verdict (`slower`, `worse`, `inconclusive`) or a metric with a threshold (`tps<-3%`). A threshold that
would fail a gain is refused, because it is a sign that was forgotten.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.metrics import Better, find_metric

_THRESHOLD = re.compile(r"(?P<metric>\w+)\s*(?P<side>[<>])\s*(?P<percent>[+-]?[0-9]+(?:\.[0-9]+)?)\s*%", re.ASCII)
_MOST_PERCENT = 1_000_000.0


class VerdictWord(enum.Enum):
    """The conditions that are one word."""

    SLOWER = "slower"
    """Slower in the metric that decides the comparison: TPS, or the p95 latency in an open loop."""
    WORSE = "worse"
    """Slower in TPS or in any latency percentile that has a verdict."""
    INCONCLUSIVE = "inconclusive"
    """Without a decision in the metric that decides the comparison."""

    @property
    def text(self) -> str:
        """The condition as a user types it."""
        return self.value


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a metric, as a share of the reference, beyond which a variant fails."""

    metric: str
    bound_ratio: float
    is_upper: bool
    """Whether what lies above the bound fails; else what lies below."""

    @property
    def text(self) -> str:
        """The condition as a user types it."""
        return f"{self.metric}{'>' if self.is_upper else '<'}{self.bound_ratio * 100:.10g}%"


Condition = VerdictWord | Threshold


def parse_conditions(texts: Sequence[str], *, metrics: Sequence[str]) -> tuple[Condition, ...]:
    """Parse the values of `--fail-if`, each of which may hold several conditions with commas between them.

    Args:
        texts: The values, in the order of the command line.
        metrics: The metrics that a comparison can have a verdict on.

    Returns:
        The conditions, each once.

    Raises:
        SpecError: One of them is not a condition.
    """
    pieces = [piece.strip() for text in texts for piece in text.split(",")]
    return tuple(dict.fromkeys(_parse_condition(piece, metrics) for piece in pieces))


def _parse_condition(text: str, metrics: Sequence[str]) -> Condition:
    if text in {word.value for word in VerdictWord}:
        return VerdictWord(text)
    found = _THRESHOLD.fullmatch(text)
    words = ", ".join(word.value for word in VerdictWord)
    if found is None:
        raise SpecError(
            f"--fail-if {text}: not a condition" if text else "--fail-if: a condition is empty",
            detail="the shell takes < and > for redirections: a threshold needs quotes",
            hint=f"use {words}, or a metric with a threshold such as 'tps<-3%' or 'latency_p95_ms>5%'",
        )
    name, ratio, is_upper = found["metric"], float(found["percent"]) / 100.0, found["side"] == ">"
    if name not in metrics:
        raise SpecError(
            f"--fail-if {text}: no metric of a comparison is called {name}",
            hint=f"the metrics are {', '.join(metrics)}",
        )
    _check_bound(text, name, ratio, is_upper=is_upper)
    return Threshold(metric=name, bound_ratio=ratio, is_upper=is_upper)


def _check_bound(text: str, name: str, ratio: float, *, is_upper: bool) -> None:
    better = find_metric(name).better
    if better is (Better.HIGHER if is_upper else Better.LOWER):
        wanted = f"{name}{'<-' if is_upper else '>'}{abs(ratio) * 100:g}%"
        raise SpecError(
            f"--fail-if {text}: a change in this direction is a gain", hint=f"a loss is '{wanted}', in quotes"
        )
    if (ratio < 0) if is_upper else (ratio > 0):
        wanted = f"{name}{'>' if is_upper else '<-'}{abs(ratio) * 100:g}%"
        raise SpecError(
            f"--fail-if {text}: no change at all would lie beyond this threshold", hint=f"write '{wanted}', in quotes"
        )
    if ratio <= -1 or ratio * 100 > _MOST_PERCENT:
        raise SpecError(f"--fail-if {text}: no change is as large as that", hint="for example 'tps<-3%', in quotes")

"""Define the health checks' results: of a trial, and summarised over the trials of a workload."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from pgdyno.facts.health import HealthCheck, Level, Worse, health_checks


class HealthRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check on one trial."""

    check: str
    """Name of the check in facts/health.toml."""
    value: float | None
    """The value in the check's unit; None if it was not counted."""
    level: Level | None
    """The verdict; None if the value is absent, has no threshold, or rests on too little data."""
    evidence: str
    """The figures that the value rests on, in a clause."""
    reason: str | None = None
    """Why the value is absent or not judged."""


class HealthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check over the trials of a workload."""

    check: HealthCheck
    value: float | None
    """The median of the trials; with an even number, the worse of the two in the middle, so that it was observed."""
    low: float | None
    """The smallest value; `low` and `high` are a range and not an interval."""
    high: float | None
    n: int
    """Number of trials with a value."""
    level: Level | None
    """The verdict on the median."""
    evidence: str
    """The figures of the trial that has the median."""
    reason: str | None = None


def summarise_health(trials: Sequence[Sequence[HealthRow]]) -> tuple[HealthSummary, ...]:
    """Summarise all checks over the trials of a workload; empty if no trial has any.

    Args:
        trials: The rows of each trial.
    """
    by_check = {name: [row for rows in trials for row in rows if row.check == name] for name in health_checks()}
    return tuple(_summarise(health_checks()[name], rows) for name, rows in by_check.items() if rows)


def _summarise(check: HealthCheck, rows: Sequence[HealthRow]) -> HealthSummary:
    seen = [(row.value, row) for row in rows if row.value is not None]
    # A trial that was judged is better evidence than one with too little data.
    judged = [(value, row) for value, row in seen if row.level is not None]
    reason = next((row.reason for row in rows if row.reason), None)
    if not seen:
        return HealthSummary(
            check=check, value=None, low=None, high=None, n=0, level=None, evidence="", reason=reason or "not counted"
        )
    values = [value for value, _ in seen]
    choose = statistics.median_high if check.worse is Worse.HIGHER else statistics.median_low
    median = choose([value for value, _ in judged or seen])
    return HealthSummary(
        check=check,
        value=median,
        low=min(values),
        high=max(values),
        n=len(values),
        level=check.judge(median) if judged else None,
        evidence=next(row.evidence for value, row in judged or seen if value == median),
        reason=None if judged else reason,
    )

"""The counters that DBAs watch as values: of a trial, and summed up over the trials of a workload."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from pgdyno.facts.health import HealthCheck, Level, Worse, health_checks


class HealthRow(msgspec.Struct, frozen=True, kw_only=True):
    """One check of one trial."""

    check: str
    """Its name in facts/health.toml."""
    value: float | None
    """In the check's unit; None where it was not counted."""
    level: Level | None
    """None where it is absent, has no threshold, or too little was seen to judge."""
    evidence: str
    """The figures it rests on, in a clause."""
    reason: str | None = None
    """Why it is absent, or not judged."""


class HealthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One check over the trials of a workload."""

    check: HealthCheck
    value: float | None
    """The median of the trials; of two in the middle the worse, so that it is one that was seen."""
    low: float | None
    """The least of them; no interval."""
    high: float | None
    n: int
    """Trials that have a value."""
    level: Level | None
    """Of the median."""
    evidence: str
    """Of the trial that has it."""
    reason: str | None = None


def summarise_health(trials: Sequence[Sequence[HealthRow]]) -> tuple[HealthSummary, ...]:
    """All checks over the trials of a workload; nothing where no trial has any.

    Args:
        trials: The rows of each.
    """
    by_check = {name: [row for rows in trials for row in rows if row.check == name] for name in health_checks()}
    return tuple(_summarise(health_checks()[name], rows) for name, rows in by_check.items() if rows)


def _summarise(check: HealthCheck, rows: Sequence[HealthRow]) -> HealthSummary:
    seen = [(row.value, row) for row in rows if row.value is not None]
    # A trial that was judged says more than one that saw too little.
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

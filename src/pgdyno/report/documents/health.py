"""Make the part of report.json on the counters that DBAs watch."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.facts.health import Level, Threshold, Worse
from pgdyno.report.documents.described import says
from pgdyno.report.sections.conditions.health import assess_workload


class HealthDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One counter over a workload's trials."""

    name: str
    title: str
    unit: str
    value: Annotated[float | None, says("The median of the trials; null where none counted it.")]
    low: Annotated[float | None, says("The least of the trials; no interval.")]
    high: float | None
    n: Annotated[int, says("Trials that have a value.")]
    level: Annotated[Level | None, says("Of the median; null where it is not judged.")]
    reason: Annotated[str | None, says("Why it is absent or not judged.")]
    evidence: str
    worse: Annotated[Worse, says("Which way is bad.")]
    warning: Threshold | None
    critical: Threshold | None
    meaning: str
    action: str


def make_health(workload: WorkloadAnalysis) -> tuple[HealthDocument, ...]:
    """Return all counters of a workload; none where variants alternated in its trials."""
    return tuple(
        HealthDocument(
            name=one.check.name,
            title=one.check.title,
            unit=one.check.unit,
            value=one.value,
            low=one.low,
            high=one.high,
            n=one.n,
            level=one.level,
            reason=one.reason,
            evidence=one.evidence,
            worse=one.check.worse,
            warning=one.check.warning,
            critical=one.check.critical,
            meaning=one.check.meaning,
            action=one.check.action,
        )
        for one in assess_workload(workload)
    )

"""Build the table of the counters that DBAs watch, and describe those that are not good."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.analyse.health.types import HealthSummary, summarise_health
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.facts.health import Basis, HealthCheck, Level, Threshold, Worse, health_checks
from pgdyno.report.format import format_bytes_per_s, format_number, format_seconds, format_value
from pgdyno.report.table import Cell, Table, absent, columns, text

_HUES = {Level.GOOD: "green", Level.WARNING: "warning", Level.CRITICAL: "critical"}
_BASES = {
    Basis.MANUAL: "manual",
    Basis.SOURCE: "source code",
    Basis.GUIDE: "guide",
    Basis.JUDGEMENT: "ours",
}
_REMARK = "A level shows where to look, not what limits the load: a load can run at full speed despite a warning."


def assess_workload(workload: WorkloadAnalysis) -> tuple[HealthSummary, ...]:
    """Return the checks over a workload's trials; none where variants alternated or a search varied the rate."""
    trials = [trial for trial in workload.trials if trial.record.planned.rate_tps is None]
    return summarise_health([trial.health for trial in trials])


def health_table(workload: WorkloadAnalysis) -> Table | None:
    """Build the table of all checks with their levels, and why some have no value; None without checks."""
    checks = assess_workload(workload)
    if not checks:
        return None
    count = max(one.n for one in checks)
    titles = columns("Counter", "Median of trials" if count > 1 else "Value", numbers_from=1)
    uncounted = [f"{one.check.title} ({one.reason})" for one in checks if one.value is None]
    return Table(
        caption="Counters DBAs watch",
        columns=(*titles, *columns("Level", "Warning", "Critical", "Meaning or advice")),
        rows=tuple(_row(one) for one in checks if one.value is not None),
        remark=f"{_REMARK} Not counted: {'; '.join(uncounted)}." if uncounted else _REMARK,
    )


def sources_table(workloads: Sequence[WorkloadAnalysis]) -> Table | None:
    """Build the table of the sources of the thresholds, once for a whole report; None without thresholds."""
    if not any(assess_workload(workload) for workload in workloads):
        return None
    bounded = [one for one in health_checks().values() if one.warning is not None or one.critical is not None]
    return Table(
        caption="Sources of the thresholds",
        columns=columns("Counter", "Warning", "Critical"),
        rows=tuple(
            (text(one.title), *(text(_source(each)) for each in (one.warning, one.critical))) for one in bounded
        ),
        remark="Where no published figure exists, the threshold is our judgement: treat it as a hint.",
    )


def describe_health(workload: WorkloadAnalysis) -> tuple[str, ...]:
    """Describe each check that is not good, critical ones first, and then all others in one sentence."""
    checks = assess_workload(workload)
    if not checks:
        return ()
    bad = [one for level in (Level.CRITICAL, Level.WARNING) for one in checks if one.level is level]
    good = sum(one.level is Level.GOOD for one in checks)
    lines = [f"{level.value}: {_describe(one, level)}" for one in bad if (level := one.level) is not None]
    return (*lines, f"{good} of {len(checks)} counters are good, {len(checks) - good - len(bad)} were not judged.")


def format_health(check: HealthCheck, value: float) -> str:
    """Format a value in its check's unit."""
    if check.unit == "bytes/s":
        return format_bytes_per_s(value)
    if check.unit == "s":
        return format_seconds(value)
    if check.unit == "times":
        return f"×{format_number(value, digits=2)}"
    if check.unit == "/min":
        return f"{value:.3g} a minute"
    return format_value(value, check.unit)


def _row(one: HealthSummary) -> tuple[Cell, ...]:
    check = one.check
    is_bad = one.level in {Level.WARNING, Level.CRITICAL}
    return (
        text(check.title),
        _value(one),
        _level(one),
        _bound(check, check.warning),
        _bound(check, check.critical),
        text(check.action if is_bad else check.meaning),
    )


def _value(one: HealthSummary) -> Cell:
    if one.value is None or one.low is None or one.high is None:
        return absent(one.reason)
    low, high = format_health(one.check, one.low), format_health(one.check, one.high)
    return Cell(text=format_health(one.check, one.value), detail="" if low == high else f"({low} to {high})")


def _level(one: HealthSummary) -> Cell:
    if one.level is None:
        return text("not judged", note=one.reason)
    return Cell(text=one.level.value, hue=_HUES[one.level], is_strong=one.level is not Level.GOOD)


def _bound(check: HealthCheck, threshold: Threshold | None) -> Cell:
    if threshold is None:
        return text(None)
    return Cell(text=_format_bound(check, threshold), tag=_BASES[threshold.basis])


def _format_bound(check: HealthCheck, threshold: Threshold) -> str:
    sign = "above" if check.worse is Worse.HIGHER else "below"
    # A bound is exact: it needs no digits after the point.
    shown = f"{threshold.at * 100:g} %" if check.unit == "ratio" else format_health(check, threshold.at)
    return f"{sign} {shown}"


def _source(threshold: Threshold | None) -> str | None:
    return None if threshold is None else f"{_BASES[threshold.basis]}: {threshold.source}"


def _describe(one: HealthSummary, level: Level) -> str:
    threshold = one.check.critical if level is Level.CRITICAL else one.check.warning
    value = "" if one.value is None else format_health(one.check, one.value)
    beyond = "" if threshold is None else f", {_format_bound(one.check, threshold)}"
    evidence = f" ({one.evidence})" if one.evidence else ""
    return f"{one.check.title}: {value}{beyond}{evidence}. {one.check.action}".rstrip()

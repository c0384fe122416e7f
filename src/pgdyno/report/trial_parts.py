"""The parts of the page that show a workload and its trials."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.report import content, trial_tables
from pgdyno.report.chart import CSS_THEME
from pgdyno.report.disk_uses import describe_uses, uses_table
from pgdyno.report.drawings import Drawings, PageChart
from pgdyno.report.evidence import time_table
from pgdyno.report.format import format_seconds
from pgdyno.report.health import health_table
from pgdyno.report.places import name_figure, name_time, name_trial_part
from pgdyno.report.predictions import predictions_table
from pgdyno.report.strip import strip_chart
from pgdyno.report.table import Table
from pgdyno.report.trial_charts import list_zeros, marked_events, trial_charts


class TrialPart(msgspec.Struct, frozen=True, kw_only=True):
    """A trial's part of the page."""

    id: str
    trial: TrialAnalysis
    title: str
    summary: str
    figures: tuple[PageChart, ...]
    keys: tuple[tuple[str, str], ...]
    """The marks on its charts: hue and meaning."""
    thinned: str
    zeros: tuple[str, ...]
    """Charts left out for want of anything but zeros."""
    events: Table | None
    unknown_lines: str


class WorkloadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's part of the page."""

    id: str
    name: str
    load: str
    tag: str
    """What its trials give up, where variants differ in that."""
    size: str
    """How many trials, and whether any failed."""
    is_mixed: bool
    """Whether variants alternated within its trials."""
    scripts: str
    words: tuple[str, ...]
    """What it comes to beside its disk."""
    strip: PageChart | None
    shares: Table | None
    tables: tuple[Table, ...]
    counts: Table | None
    """Of interest to few."""
    evidence: tuple[tuple[str, Table], ...]
    """What explanations rest on, each with its id."""
    first: TrialPart | None
    others: tuple[TrialPart, ...]


def make_workload(
    part_id: str, workload: WorkloadAnalysis, drawings: Drawings, *, points: int, tag: str = ""
) -> WorkloadPart:
    """The part of a workload; its charts join the drawings, each series with at most `points` moments."""
    planned = workload.load
    is_mixed = any(content.is_mixed(trial) for trial in workload.trials)
    strip = None if is_mixed else strip_chart(workload, theme=CSS_THEME)
    shown = (
        uses_table(workload),
        predictions_table(workload),
        trial_tables.counts_table(workload),
        trial_tables.statements_table(workload),
    )
    parts = {
        trial.record.planned.number: _make_trial(name_trial_part(part_id, trial), trial, drawings, points)
        for trial in workload.trials
    }
    representative = workload.representative
    first = None if representative is None else parts.pop(representative.record.planned.number)
    return WorkloadPart(
        id=part_id,
        name=workload.name,
        load=f"{content.describe_load(planned)}, {planned.threads} pgbench {'thread' if planned.threads == 1 else 'threads'}",
        tag=tag,
        size=_describe_size(workload),
        is_mixed=is_mixed,
        scripts=", ".join(name if weight == 1 else f"{name} @ {weight}" for name, weight in planned.scripts),
        words=describe_uses(workload),
        strip=None if strip is None else drawings.add(f"{part_id}-strip", strip),
        shares=trial_tables.shares_table(workload),
        tables=tuple(table for table in shown if table is not None),
        counts=trial_tables.all_counts_table(workload),
        evidence=_list_evidence(part_id, workload),
        first=first,
        others=tuple(parts.values()),
    )


def _list_evidence(part_id: str, workload: WorkloadAnalysis) -> tuple[tuple[str, Table], ...]:
    made = ((name_time(part_id), time_table(workload)), (name_figure(part_id, "health"), health_table(workload)))
    return tuple((anchor, table) for anchor, table in made if table is not None)


def _describe_size(workload: WorkloadAnalysis) -> str:
    count = len(workload.trials)
    failed = sum(trial.record.error is not None for trial in workload.trials)
    return f"{count} {'trial' if count == 1 else 'trials'}{f', {failed} failed' if failed else ''}"


def _make_trial(part_id: str, trial: TrialAnalysis, drawings: Drawings, points: int) -> TrialPart:
    charts = trial_charts(trial, theme=CSS_THEME, points=points)
    kinds = {event.kind for event in marked_events(trial)}
    keys = (
        [
            (
                "shade",
                f"left out as not steady: the first {format_seconds(trial.steady_from_s)} (points are whole seconds)",
            )
        ]
        if trial.steady_from_s
        else []
    )
    keys += [
        (hue, kind)
        for kind, hue in (("checkpoint", "amber"), ("level shift", "purple"), ("error", "critical"))
        if kind in kinds
    ]
    return TrialPart(
        id=part_id,
        trial=trial,
        title=content.name_trial(trial).capitalize(),
        summary=content.describe_trial(trial),
        figures=tuple(drawings.add(name_figure(part_id, chart.kind), chart) for chart in charts),
        keys=tuple(keys),
        thinned=next((chart.note for chart in charts if chart.note), ""),
        zeros=list_zeros(trial),
        events=trial_tables.events_table(trial),
        unknown_lines="\n".join(trial.unknown_lines),
    )

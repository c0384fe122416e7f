"""Find where in a report the evidence of a statement is: charts by title and, on the page, by id."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.finding import Finding
from pgdyno.report.charts.trial import list_drawn, name_chart
from pgdyno.report.document import Link
from pgdyno.report.input import ReportInput


def name_workload(number: int) -> str:
    """Return the id of a workload's section, by its place in the analysis, counted from 1."""
    return f"w{number}"


def name_trial_part(workload_id: str, trial: TrialAnalysis) -> str:
    """Return the id of a trial's section."""
    return f"{workload_id}-t{trial.record.planned.number}"


def name_figure(part_id: str, kind: str) -> str:
    """Return the id of a chart in a section."""
    return f"{part_id}-{kind}"


def name_time(workload_id: str) -> str:
    """Return the id of the table of where a transaction's time goes."""
    return name_figure(workload_id, "time")


def find_places(finding: Finding, report: ReportInput) -> tuple[Link, ...]:
    """Find the charts and tables that show a finding: of its trial, or else of the representative one."""
    found = _find_trial(finding, report)
    if found is None:
        return ()
    workload_id, trial = found
    part_id = name_trial_part(workload_id, trial)
    where = f"trial {trial.record.planned.number}"
    drawn = list_drawn(trial)
    charts = [_place(part_id, kind, where) for kind in dict.fromkeys(finding.shows) if kind in drawn]
    return (*_find_tables(finding, workload_id, trial, where), *charts)


def _find_tables(finding: Finding, workload_id: str, trial: TrialAnalysis, where: str) -> Iterator[Link]:
    if finding.rule == LIMITS and trial.time is not None:
        yield Link(title="Transaction time breakdown", anchor=name_time(workload_id), where=where)


def _place(part_id: str, kind: ChartKind, where: str) -> Link:
    return Link(title=name_chart(kind), anchor=name_figure(part_id, kind.value), where=where)


def _find_trial(finding: Finding, report: ReportInput) -> tuple[str, TrialAnalysis] | None:
    for number, workload in enumerate(report.analysis.workloads, start=1):
        if finding.workload in {None, workload.name, workload.load.name}:
            trial = _pick(workload, finding.trial)
            if trial is not None:
                return name_workload(number), trial
    return None


def _pick(workload: WorkloadAnalysis, number: int | None) -> TrialAnalysis | None:
    if number is None:
        return workload.representative
    return next((trial for trial in workload.trials if trial.record.planned.number == number), None)

"""The end of a bench on the terminal: each workload's figures in two lines, what to doubt, where the report lies.

Fits 80 columns and says nothing by colour alone.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.finding import Severity
from pgdyno.report import content
from pgdyno.report.answers import answer_study
from pgdyno.report.comparison_terminal import list_answers, list_curve
from pgdyno.report.declared_disk import describe_standing
from pgdyno.report.disk_uses import describe_uses
from pgdyno.report.finding_words import list_findings
from pgdyno.report.first_page import make_first_page
from pgdyno.report.first_page_terminal import list_first_page
from pgdyno.report.format import format_confidence, format_estimate
from pgdyno.report.input import ReportInput
from pgdyno.report.layers_terminal import list_proof
from pgdyno.report.losses import find_durability_given_up
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.predictions import describe_predictions
from pgdyno.report.scaling import scaling_report
from pgdyno.report.search_terminal import list_search_answers
from pgdyno.report.terminal_parts import SEVERITY_STYLES, make_heading

# Leaves room for the figures on a line of 80; a longer name pushes its own line alone.
_MOST_NAME = 24
_SHOWN_PERCENTILES = ("p50", "p95", "p99")


def render_terminal(report: ReportInput) -> RenderableType:
    """Render the summary of a report."""
    lines: list[RenderableType] = [Paragraph(content.describe_bench(report), by=0), ""]
    lines += _list_results(report)
    sweep = scaling_report(report)
    if sweep is not None:
        lines += ["", *(line for answers in answer_study(sweep) for line in list_curve(answers))]
    standing = describe_standing(report)
    if standing:
        lines += ["", *(Paragraph(words, by=0) for words in standing)]
    durability = find_durability_given_up(report)
    if durability:
        lines += ["", Text(f"durability given up: {', '.join(durability)}", style="bold red")]
    lines += ["", *list_first_page(make_first_page(report))]
    findings = list_findings(report)
    if findings:
        lines += ["", make_heading("what weakens the figures")]
    for finding in findings:
        of = f" ({finding.of})" if finding.of else ""
        claim = Text.assemble((f"{finding.severity.value}: ", SEVERITY_STYLES[finding.severity]), finding.claim, of)
        lines.append(Paragraph(claim, by=0))
        if finding.severity is not Severity.NOTE:
            lines += [Paragraph(words) for words in (*finding.evidence, finding.advice) if words]
    # A path is to be copied: it may pass the margin, and never breaks.
    lines += ["", Text(f"report: {report.record_dir}/report.html", no_wrap=True, overflow="ignore")]
    return Group(*lines)


def _list_results(report: ReportInput) -> list[RenderableType]:
    record = report.record
    if record.plan.search is not None:
        return list_search_answers(report)
    if record.tuned is not None:
        return list_proof(report)
    return list_answers(report) if record.plan.experiment is not None else _list_figures(report)


def _list_figures(report: ReportInput) -> list[RenderableType]:
    workloads = report.analysis.workloads
    names = min(_MOST_NAME, max(cell_len(workload.name) for workload in workloads))
    return [line for workload in workloads for line in _figures(workload, names=names)]


def _figures(workload: WorkloadAnalysis, *, names: int) -> tuple[RenderableType, ...]:
    tps = format_estimate(workload.tps)
    name = f"{workload.name}{' ' * (names - cell_len(workload.name))}"
    if not tps.interval:
        return (_plain(f"{name}  no figure: {tps.reason}"),)
    doubt = tps.interval
    if doubt.startswith("["):
        doubt = f"{doubt} {format_confidence(workload.tps)}, n={workload.tps.n}"
    shown = []
    for percentile in _SHOWN_PERCENTILES:
        latency = format_estimate(workload.latency_ms[percentile])
        shown.append(f"{percentile} {latency.value}{' ms' if latency.interval else ''}")
    said = (content.advise_trials(workload), *describe_uses(workload), describe_predictions(workload))
    return (
        _plain(f"{name}  {tps.value} tps  {doubt}"),
        _plain(f"{' ' * names}  {'  '.join(shown)}"),
        *(Paragraph(words, by=names + 2) for words in said if words),
    )


def _plain(words: str) -> Text:
    return Text(words, no_wrap=True, overflow="fold")

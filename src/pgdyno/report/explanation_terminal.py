"""An explanation on the terminal: the first page in full, what it rests on, and what weakens it. Fits 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.report import content
from pgdyno.report.capacity import describe_projection
from pgdyno.report.evidence import time_table
from pgdyno.report.finding_words import join_places, list_explained, list_findings
from pgdyno.report.first_page import make_first_page
from pgdyno.report.first_page_terminal import list_first_page
from pgdyno.report.grid import Grid
from pgdyno.report.health import describe_health
from pgdyno.report.input import ReportInput
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.terminal_parts import make_heading


def render_explanation(report: ReportInput, *, change: str = "") -> RenderableType:
    """Render a record's explanation.

    Args:
        report: Of the record.
        change: Of the machine that was asked for, of which the projections are shown; empty for none.
    """
    lines: list[RenderableType] = [Paragraph(content.describe_bench(report), by=0), ""]
    lines += list_first_page(make_first_page(report), is_full=True)
    lines += _list_times(report)
    lines += _list_projections(report, change)
    lines += _list_health(report)
    lines += _list_doubts(report)
    lines += ["", Text(f"charts and figures: {report.record_dir}/report.html", no_wrap=True, overflow="ignore")]
    return Group(*lines)


def _list_times(report: ReportInput) -> Iterator[RenderableType]:
    for workload in list_explained(report):
        table = time_table(workload, is_short=True)
        if table is not None:
            yield ""
            yield Paragraph(make_heading(f"{workload.name}: {table.caption}"), by=0)
            yield Grid(table)


def _list_projections(report: ReportInput, change: str) -> Iterator[RenderableType]:
    told = [describe_projection(one, change) for one in report.analysis.capacities]
    if any(told):
        yield ""
        yield Paragraph(make_heading(f"With {change}: projected, not measured"), by=0)
        yield from (Paragraph(one) for one in told if one)


def _list_health(report: ReportInput) -> Iterator[RenderableType]:
    """The counters that are not good; alike ones of several workloads once."""
    said: dict[tuple[str, ...], list[str]] = {}
    for workload in list_explained(report):
        words = describe_health(workload)
        if words:
            said.setdefault(words, []).append(workload.name)
    for words, names in said.items():
        yield ""
        yield Paragraph(make_heading(f"{join_places(tuple(names))}: counters DBAs watch"), by=0)
        yield from (Paragraph(one) for one in words)


def _list_doubts(report: ReportInput) -> Iterator[RenderableType]:
    findings = list_findings(report)
    if findings:
        yield ""
        yield make_heading("what weakens the figures")
    for one in findings:
        yield Paragraph(Text.assemble((f"{one.badge}: ", "bold"), one.claim, f" ({one.of})" if one.of else ""))

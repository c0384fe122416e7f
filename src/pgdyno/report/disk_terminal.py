"""Disk cards on the terminal: the figures that people ask, every job, what they mean for PostgreSQL, what to doubt.

What spoils all of it stands first. Fits 80 columns and says nothing by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.explain.finding import Finding, Severity
from pgdyno.report.disk import CardView, describe_making, describe_place, explain_for_postgresql
from pgdyno.report.disk_tables import efficiency_table, flush_table, headline_table, jobs_table, layout_of
from pgdyno.report.format import format_number
from pgdyno.report.grid import Grid
from pgdyno.report.layout import ceilings_table, explain_layout
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.table import Table
from pgdyno.report.terminal_parts import SEVERITY_STYLES, make_heading, show_table


def render_cards(views: Sequence[CardView]) -> RenderableType:
    """One after the other."""
    lines = [line for view in views for line in (*_render(view), "")]
    return Group(*lines[:-1])


def render_findings(findings: Sequence[Finding]) -> Iterator[RenderableType]:
    """The gravest first, each with what was seen, why it matters and what to do."""
    for finding in findings:
        yield Paragraph(
            Text.assemble((f"{finding.severity.value}: ", SEVERITY_STYLES[finding.severity]), finding.claim), by=0
        )
        words = (finding.evidence, finding.why) if finding.severity is not Severity.NOTE else (finding.evidence,)
        yield from (Paragraph(one) for one in (*words, finding.advice) if one)


def _render(view: CardView) -> Iterator[RenderableType]:
    yield Paragraph(Text(describe_place(view.card), style="bold"), by=0)
    yield Paragraph(describe_making(view.card, view.figures), by=0)
    grave = [finding for finding in view.findings if finding.severity is Severity.CRITICAL]
    others = [finding for finding in view.findings if finding not in grave]
    if grave:
        yield from ("", *render_findings(grave))
    if view.entries:
        yield from ("", Grid(headline_table(view)))
    layout = layout_of(view)
    declared = None if layout is None else ceilings_table(layout)
    for table in (jobs_table(view), flush_table(view), declared, efficiency_table(view)):
        yield from _section(table)
    if layout is not None:
        yield from (Paragraph(words) for words in explain_layout(layout))
    meaning = explain_for_postgresql(view)
    if meaning:
        yield from ("", make_heading("What that means for PostgreSQL"))
        yield from (Paragraph(words) for words in meaning)
    if others:
        yield from ("", *render_findings(others))
    yield from _rest(view)
    if view.file is not None:
        # A path is to be copied: it may pass the margin, and never breaks.
        yield from ("", Text(f"card: {view.file}", no_wrap=True, overflow="ignore"))


def _section(table: Table | None) -> Iterator[RenderableType]:
    if table is not None:
        yield from ("", *show_table(table))


def _rest(view: CardView) -> Iterator[RenderableType]:
    clock = view.card.clock
    if clock is not None:
        yield from ("", Paragraph(f"pg_test_timing: reading the clock takes {format_number(clock.read_ns)} ns", by=0))
    if view.card.unseen:
        yield from ("", Text("not seen", style="bold"))
        yield from (Paragraph(f"{one.what}: {one.reason}") for one in view.card.unseen)

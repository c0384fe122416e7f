"""Build what `pgdyno explain` shows: the first page in full, its evidence, and what weakens the figures."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.report.document import Block, Claims, Document, Prose, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections import evidence, findings, first_page, head
from pgdyno.report.sections.capacity import describe_projection
from pgdyno.report.sections.conditions import health


def build_explanation(report: ReportInput, *, change: str = "") -> Document:
    """Return the explanation of a record.

    Args:
        report: The record and its analysis.
        change: The change of the machine whose projections are shown; empty: none.
    """
    return Document(title=head.title_study(report.record), blocks=tuple(_list_blocks(report, change)), is_titled=False)


def _list_blocks(report: ReportInput, change: str) -> Iterator[Block]:
    yield Prose(words=head.describe_bench(report))
    yield from first_page.build_first_page(report)
    yield from _list_times(report)
    projections = [describe_projection(one, change) for one in report.analysis.capacities]
    words = tuple(Prose(words=one) for one in projections if one)
    yield Section(title=f"With {change}: projected, not measured", blocks=words)
    yield from _list_health(report)
    doubts = [
        msgspec.structs.replace(findings.make_claim(one), is_brief=True) for one in findings.list_findings(report)
    ]
    if doubts:
        yield Section(title="Measurement quality", blocks=(Claims(claims=tuple(doubts)),))
    yield Prose(words=f"charts and figures: {report.record_dir}/report.html")


def _list_times(report: ReportInput) -> Iterator[Block]:
    for workload in findings.list_explained_workloads(report):
        table = evidence.time_table(workload)
        if table is not None:
            caption = f"{workload.name}: {table.caption}"
            yield msgspec.structs.replace(table, caption=caption, remark="", level=Level.STANDARD)


def _list_health(report: ReportInput) -> Iterator[Block]:
    """Yield the counters that are not good; workloads with the same counters share a section."""
    by_words: dict[tuple[str, ...], list[str]] = {}
    for workload in findings.list_explained_workloads(report):
        words = health.describe_health(workload)
        if words:
            by_words.setdefault(words, []).append(workload.name)
    for words, names in by_words.items():
        title = f"{findings.join_places(tuple(names))}: counters DBAs watch"
        yield Section(title=title, blocks=tuple(Prose(words=one) for one in words))

"""Build the document of records side by side: refusals, figures, differences, and which machine for how much load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.records.comparison import RecordComparison
from pgdyno.report.charts.records import records_chart
from pgdyno.report.document import Block, ChartBlock, Document, Prose, Section
from pgdyno.report.level import Level
from pgdyno.report.lists import name_by_letters
from pgdyno.report.sections.records.pairs import (
    REMARK,
    NamedRecord,
    describe_pair,
    describe_record,
    differences_table,
    figures_table,
    list_lone,
    list_refusals,
)
from pgdyno.report.sections.records.tiers import build_tiers

TITLE = "Records side by side"


def build_records(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> Document:
    """Return records side by side, each against the first."""
    names = name_by_letters(records)
    named = (
        Prose(strong=name, words=describe_record(one), level=Level.HEADLINE)
        for name, one in zip(names, records, strict=True)
    )
    blocks: list[Block] = [*named, *(_build_comparison(one, names) for one in comparisons)]
    if (tiers := build_tiers(records, comparisons)).blocks:
        blocks.append(tiers)
    blocks.append(
        Section(title="How to read this report", id="how-to-read", blocks=(Prose(words=REMARK, level=Level.HEADLINE),))
    )
    return Document(title=TITLE, blocks=tuple(blocks), made_by="pgdyno")


def _build_comparison(comparison: RecordComparison, names: Sequence[str]) -> Section:
    both = (names[0], names[comparison.place])
    blocks: list[Block] = []
    for place, pair in enumerate(comparison.pairs):
        chart = records_chart(pair, both)
        if chart is not None:
            blocks.append(ChartBlock(id=f"r{comparison.place}-{place}", chart=chart))
    blocks += _list_blocks(comparison, names)
    return Section(title=f"{both[1]} against {both[0]}", id=f"against-{comparison.place}", blocks=tuple(blocks))


def _list_blocks(comparison: RecordComparison, names: Sequence[str]) -> Iterator[Block]:
    """Yield the blocks of a record against the first one, in reading order.

    A remark on several loads appears once.
    """
    both = (names[0], names[comparison.place])
    said: list[Prose] = []
    for pair in comparison.pairs:
        yield Prose(words=describe_pair(pair, both), level=Level.HEADLINE)
        refusals = [refusal for refusal in list_refusals(pair, both) if refusal not in said]
        said += refusals
        yield from refusals
        yield msgspec.structs.replace(figures_table(pair, both), level=Level.HEADLINE)
    tables = [table for pair in comparison.pairs if (table := differences_table(pair, both)) is not None]
    for rows in dict.fromkeys(table.rows for table in tables):
        alike = [table for table in tables if table.rows == rows]
        caption = f"Differences on {', '.join(table.caption for table in alike)}"
        yield msgspec.structs.replace(alike[0], caption=caption, level=Level.HEADLINE)
    yield from list_lone(comparison, names)

"""Build the document of records side by side: refusals, figures, differences, and which machine for how much load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.records.comparison import RecordComparison
from pgdyno.report.charts.records import records_chart
from pgdyno.report.document import Block, ChartBlock, Document, Prose, Section, Tone
from pgdyno.report.level import Level
from pgdyno.report.sections.records.pairs import (
    REMARK,
    NamedRecord,
    describe_lone,
    describe_pair,
    describe_record,
    describe_refusals,
    differences_table,
    figures_table,
    name_records,
)
from pgdyno.report.sections.records.tiers import TIERS_TITLE, list_tier_parts
from pgdyno.report.table import Table

TITLE = "Records side by side"
_REFUSED = "refused:"


def build_records(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> Document:
    """Return records side by side, each against the first."""
    names = name_records(records)
    named = (
        Prose(strong=name, words=describe_record(one), level=Level.HEADLINE)
        for name, one in zip(names, records, strict=True)
    )
    tiers = tuple(_make_block(part) for part in list_tier_parts(records, comparisons))
    blocks: list[Block] = [*named, *(_build_comparison(one, names) for one in comparisons)]
    blocks.append(Section(title=TIERS_TITLE, id="tiers", blocks=tiers))
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
    blocks += [_make_block(part) for part in _list_parts(comparison, names)]
    return Section(title=f"{both[1]} against {both[0]}", id=f"against-{comparison.place}", blocks=tuple(blocks))


def _make_block(part: Table | str) -> Block:
    if isinstance(part, Table):
        return msgspec.structs.replace(part, level=Level.HEADLINE)
    if part.startswith(_REFUSED):
        words = part.removeprefix(_REFUSED).strip()
        return Prose(strong=_REFUSED, words=words, tone=Tone.ALARM, level=Level.HEADLINE)
    return Prose(words=part, level=Level.HEADLINE)


def _list_parts(comparison: RecordComparison, names: Sequence[str]) -> Iterator[Table | str]:
    """Yield the sections of a record against the first one, in reading order.

    A remark on several loads appears once.
    """
    both = (names[0], names[comparison.place])
    said: set[str] = set()
    for pair in comparison.pairs:
        yield describe_pair(pair, both)
        refusals = [words for words in describe_refusals(pair, both) if words not in said]
        said.update(refusals)
        yield from refusals
        yield figures_table(pair, both)
    tables = [table for pair in comparison.pairs if (table := differences_table(pair, both)) is not None]
    for rows in dict.fromkeys(table.rows for table in tables):
        alike = [table for table in tables if table.rows == rows]
        caption = ", ".join(table.caption for table in alike)
        yield msgspec.structs.replace(alike[0], caption=f"Differences on {caption}")
    yield from describe_lone(comparison, names)

"""Records side by side on the terminal, as Markdown and as JSON: the same words and tables in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.analyse.capacity.tiers import Tiers
from pgdyno.analyse.records.comparison import PairComparison, RecordComparison, RecordFigure
from pgdyno.analyse.records.difference import RecordDifference
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.types import ServerFacts
from pgdyno.report.described import says
from pgdyno.report.markdown import escape, format_table
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.records import (
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
from pgdyno.report.records_tiers import TIERS_TITLE, list_tier_parts, list_tiers
from pgdyno.report.table import Table
from pgdyno.report.terminal_parts import show_table

RECORDS_VERSION = 1
TITLE = "Records side by side"


class RecordDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record."""

    name: str
    path: str
    started_at: str
    question: str
    server: ServerFacts
    host: HostFacts


class PairDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A load of the first record beside that of another."""

    first: str
    other: str
    is_refused: bool
    sentence: str
    differences: Annotated[tuple[RecordDifference, ...], says("Gravest first; with a refusal there are no ratios.")]
    figures: tuple[RecordFigure, ...]


class AgainstDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record against the first one."""

    name: str
    is_refused: Annotated[bool, says("Whether anything that was asked for gets no answer.")]
    pairs: tuple[PairDocument, ...]
    only_first: tuple[str, ...]
    only_other: tuple[str, ...]


class RecordsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `pgdyno compare-records --json` prints. Fields may be added; none is renamed without a new version."""

    format: str = "pgdyno-records"
    version: int = RECORDS_VERSION
    is_refused: bool
    remark: str = REMARK
    records: tuple[RecordDocument, ...]
    against_first: tuple[AgainstDocument, ...]
    tiers: Annotated[dict[str, Tiers], says("By load, which machine for how much; none of one machine alone.")] = {}


def render_records(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> RenderableType:
    """As a person reads it."""
    names = name_records(records)
    parts: list[RenderableType] = [
        Paragraph(Text.assemble((f"{name}  ", "bold"), describe_record(one)), by=3)
        for name, one in zip(names, records, strict=True)
    ]
    said = [part for comparison in comparisons for part in list_parts(comparison, names)]
    for part in (*said, *list_tier_parts(records, comparisons)):
        if isinstance(part, Table):
            parts += ["", *show_table(part)]
        else:
            style = "bold red" if part.startswith("refused:") else ""
            parts += ["", Paragraph(Text(part, style=style), by=2)]
    return Group(*parts, "", Paragraph(REMARK, by=0))


def render_records_markdown(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> str:
    """As one pastes it into a ticket."""
    names = name_records(records)
    lines = [f"- **{name}**: {escape(describe_record(one))}" for name, one in zip(names, records, strict=True)]
    blocks = [f"# {TITLE}", "\n".join(lines)]
    sections = [
        (f"{names[comparison.place]} against {names[0]}", list_parts(comparison, names)) for comparison in comparisons
    ]
    tiers = tuple(list_tier_parts(records, comparisons))
    for title, parts in (*sections, *([(TIERS_TITLE, iter(tiers))] if tiers else [])):
        blocks.append(f"## {title}")
        blocks += [format_table(part) if isinstance(part, Table) else _paragraph(part) for part in parts]
    return "\n\n".join([*blocks, escape(REMARK)]) + "\n"


def list_parts(comparison: RecordComparison, names: Sequence[str]) -> Iterator[Table | str]:
    """A record against the first one, in the order of reading: what may be said, refusals, figures, then differences.

    What holds for several loads is said once.
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


def records_document(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> RecordsDocument:
    """For programs, at full precision."""
    names = name_records(records)
    return RecordsDocument(
        is_refused=any(one.is_refused for one in comparisons),
        records=tuple(
            RecordDocument(
                name=name,
                path=one.path,
                started_at=one.record.started_at,
                question=one.record.study.question,
                server=one.record.server,
                host=one.record.host,
            )
            for name, one in zip(names, records, strict=True)
        ),
        against_first=tuple(
            AgainstDocument(
                name=names[one.place],
                is_refused=one.is_refused,
                pairs=tuple(_make_pair(pair, (names[0], names[one.place])) for pair in one.pairs),
                only_first=one.only_first,
                only_other=one.only_other,
            )
            for one in comparisons
        ),
        tiers=list_tiers(records, comparisons),
    )


def _make_pair(pair: PairComparison, names: tuple[str, str]) -> PairDocument:
    return PairDocument(
        first=pair.first.name,
        other=pair.other.name,
        is_refused=bool(pair.refusals),
        sentence=describe_pair(pair, names),
        differences=pair.differences,
        figures=pair.figures,
    )


def _paragraph(words: str) -> str:
    lead, colon, rest = words.partition(":")
    return f"**{escape(lead)}:** {escape(rest)}" if lead == "refused" and colon else escape(words)

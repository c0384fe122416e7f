"""Build what `pgdyno disk` shows of a card: its figures, every job, what they mean for PostgreSQL, and its findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pgdyno.analyse.comparison.disk_cards import DiskDifference
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.device.disk_card import ClockTest
from pgdyno.report.document import Block, Claim, Claims, Document, Prose, Section
from pgdyno.report.format import format_number, format_percent
from pgdyno.report.input import CardView
from pgdyno.report.lists import name_by_letters
from pgdyno.report.sections.disk.card import describe_making, describe_place, explain_for_postgresql, format_latency
from pgdyno.report.sections.disk.comparison import (
    REMARK,
    describe_comparison,
    describe_extents,
    figures_table,
    ratios_table,
)
from pgdyno.report.sections.disk.layout import ceilings_table, explain_layout
from pgdyno.report.sections.disk.tables import efficiency_table, flush_table, headline_table, jobs_table, layout_of

# The figures of this many cards fit side by side into 80 columns.
_BESIDE = 4

# A reading of a fast clock takes some ten nanoseconds; what takes more than this was interrupted. Of pg_test_timing's bounds it
# is the nearest to 1 µs: up to 1023 ns where it counts in nanoseconds.
_QUICK_US = 1.024


def build_card(view: CardView) -> Document:
    """Return a disk card as a document of its own."""
    return Document(title=f"Disk card of {view.card.name}", blocks=tuple(_list_blocks(view)), is_titled=False)


def build_cards(views: Sequence[CardView]) -> Document:
    """Return disk cards one after the other."""
    return Document(
        title="Disk cards", blocks=tuple(block for view in views for block in _list_blocks(view)), is_titled=False
    )


def build_card_comparison(views: Sequence[CardView], differences: Sequence[DiskDifference]) -> Document:
    """Return the document of all cards' figures, with each other card against the first, and a summary."""
    named = tuple(
        Prose(
            strong=name,
            words="; ".join(filter(None, (describe_place(view.card), describe_making(view.card, view.figures)))),
        )
        for name, view in zip(name_by_letters(views), views, strict=True)
    )
    starts = range(0, len(views), _BESIDE)
    blocks: list[Block] = [*named]
    blocks += [figures_table(views, range(start, min(start + _BESIDE, len(views)))) for start in starts]
    blocks += [ratios_table(views, differences, place) for place in range(1, len(views))]
    said = (*describe_extents(views), *describe_comparison(views, differences), REMARK)
    blocks += [Prose(words=words) for words in said]
    return Document(title="Disks side by side", blocks=tuple(blocks), is_titled=False)


def _list_blocks(view: CardView) -> Iterator[Block]:
    grave = [finding for finding in view.findings if finding.severity is Severity.CRITICAL]
    others = [finding for finding in view.findings if finding not in grave]
    making = describe_making(view.card, view.figures)
    yield Prose(strong=f"{describe_place(view.card)}{';' if making else ''}", words=making)
    yield from _list_findings(grave)
    if view.entries:
        yield msgspec.structs.replace(headline_table(view), is_captioned=False)
    layout = layout_of(view)
    declared = None if layout is None else ceilings_table(layout)
    made = (jobs_table(view), flush_table(view), declared, efficiency_table(view))
    yield from (table for table in made if table is not None)
    if layout is not None:
        yield from (Prose(words=words) for words in explain_layout(layout))
    meaning = tuple(Prose(words=words) for words in explain_for_postgresql(view))
    yield Section(title="Consequences for PostgreSQL", blocks=meaning)
    yield from _list_findings(others)
    if view.card.clock is not None:
        yield Prose(words=_describe_clock(view.card.clock))
    unseen = tuple(Prose(words=f"{one.what}: {one.reason}") for one in view.card.unseen)
    yield Section(title="Not observed", blocks=unseen)
    if view.file is not None:
        yield Prose(words=f"card: {view.file}")


def _describe_clock(clock: ClockTest) -> str:
    """Describe the mean of pg_test_timing and the tail of its histogram, whose bounds are in µs or ns."""
    said = f"pg_test_timing: reading the clock takes {format_number(clock.read_ns)} ns"
    us = {float(bound) * (1 if clock.unit == "us" else 1e-3): count for bound, count in clock.counts.items()}
    total, quick = sum(us.values()), sum(count for bound, count in us.items() if bound <= _QUICK_US)
    if not total:
        return said
    share = format_percent(1 - quick / total)
    longest = format_latency(max(bound for bound, count in us.items() if count))
    return f"{said}; {share} of {total:,} readings took longer than 1 µs, and none longer than {longest}"


def _list_findings(findings: Iterable[Finding]) -> Iterator[Claims]:
    claims = tuple(
        Claim(
            badge=one.severity.value,
            hue=one.severity.value,
            claim=one.claim,
            evidence=(one.evidence,) if one.evidence else (),
            detail=(one.why,) if one.why and one.severity is not Severity.NOTE else (),
            advice=one.advice,
        )
        for one in findings
    )
    if claims:
        yield Claims(claims=claims)

"""A disk card as Markdown that one pastes into a ticket: the words and tables of the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.analyse.disk.comparison import DiskDifference
from pgdyno.report.disk import CardView, describe_making, describe_place, explain_for_postgresql
from pgdyno.report.disk_comparison import REMARK, describe_comparison, figures_table, name_cards, ratios_table
from pgdyno.report.disk_tables import efficiency_table, flush_table, headline_table, jobs_table, layout_of
from pgdyno.report.format import format_number
from pgdyno.report.layout import ceilings_table, explain_layout
from pgdyno.report.markdown import escape, format_table, mark


def render_card_markdown(view: CardView) -> str:
    """A card."""
    return "\n\n".join(_blocks(view)) + "\n"


def render_comparison_markdown(views: Sequence[CardView], differences: Sequence[DiskDifference]) -> str:
    """Cards side by side."""
    names = name_cards(views)
    cards = [
        f"- **{name}**: {escape('; '.join(filter(None, (describe_place(view.card), describe_making(view.card, view.figures)))))}"
        for name, view in zip(names, views, strict=True)
    ]
    tables = [figures_table(views), *(ratios_table(views, differences, place) for place in range(1, len(views)))]
    said = [f"- {escape(words)}" for words in describe_comparison(views, differences)]
    blocks = ["# Disks side by side", "\n".join(cards), "\n".join(said), *map(format_table, tables), escape(REMARK)]
    return "\n\n".join(blocks) + "\n"


def _blocks(view: CardView) -> Iterator[str]:
    yield f"# What the disk of {escape(view.card.name)} can do"
    yield f"{escape(describe_place(view.card))}; {escape(describe_making(view.card, view.figures))}."
    if view.entries:
        yield format_table(headline_table(view))
    meaning = explain_for_postgresql(view)
    if meaning:
        yield "## What that means for PostgreSQL"
        yield "\n".join(f"- {escape(words)}" for words in meaning)
    if view.findings:
        yield "## Findings"
        yield "\n".join(
            f"- **{one.severity.value}**: {escape(one.claim)} "
            + mark(" ".join(_sentence(words) for words in (one.evidence, one.why, one.advice) if words))
            for one in view.findings
        )
    layout = layout_of(view)
    declared = None if layout is None else ceilings_table(layout)
    for table in (declared, efficiency_table(view), jobs_table(view), flush_table(view)):
        if table is not None:
            yield format_table(table)
    if layout is not None:
        yield "\n".join(f"- {escape(words)}" for words in explain_layout(layout))
    if view.card.clock is not None:
        yield f"Reading the clock takes {format_number(view.card.clock.read_ns)} ns (pg\\_test\\_timing)."
    if view.card.unseen:
        yield "## Not seen"
        yield "\n".join(f"- {escape(f'{one.what}: {one.reason}')}" for one in view.card.unseen)


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."

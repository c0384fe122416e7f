"""Print a document on the terminal: it fits 60 columns, breaks no interval, and uses colour only as an addition."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.report.document import (
    Block,
    ChartBlock,
    Charts,
    Claim,
    Claims,
    Code,
    Document,
    Facts,
    Listing,
    Prose,
    Section,
    Steps,
    Tone,
    select,
)
from pgdyno.report.forms.columns import Columns, Grid, Row, widths_of
from pgdyno.report.forms.markdown import describe_links
from pgdyno.report.forms.paragraph import Paragraph
from pgdyno.report.level import Level
from pgdyno.report.table import Table

_TONES = {Tone.CLAIM: "bold", Tone.ALARM: "bold red"}
HUE_STYLES = {
    "critical": "bold red", "vermilion": "bold red", "warning": "bold yellow", "amber": "bold yellow",
    "green": "bold green", "blue": "bold green", "indigo": "bold cyan", "cyan": "bold cyan",
}  # fmt: skip
_MARKS = "▲▼=? "
_HEADING = "bold underline"
_TITLE = "bold"
_INDENT = 2
# This leaves room for the figures on a line of 80; a longer name shifts only its own line.
_MOST_NAME = 24


def print_terminal(document: Document, *, level: Level = Level.HEADLINE) -> RenderableType:
    """Return a document as the terminal shows it.

    Args:
        document: The document to print.
        level: The highest level of the blocks that are shown.
    """
    lines: list[RenderableType] = [Text(document.title, style=_TITLE)] if document.is_titled else []
    return Group(*lines, *_separate(_print_blocks(select(document.blocks, level), level)))


def print_headlines(blocks: Iterable[Block]) -> RenderableType:
    """Return the headlines of some blocks as the terminal shows them."""
    return Group(*_separate(_print_blocks(select(blocks, Level.HEADLINE), Level.HEADLINE)))


Part = list[RenderableType]


def _separate(parts: Iterable[Part]) -> Iterator[RenderableType]:
    """Yield the lines of all parts, with an empty line between parts."""
    is_first = True
    for part in parts:
        if part and not is_first:
            yield ""
        is_first = is_first and not part
        yield from part


def _print_blocks(blocks: Iterable[Block], level: Level, *, is_titled: bool = False) -> Iterator[Part]:
    """Yield the parts, between which empty lines go; paragraphs under a heading form one indented part."""
    by = _INDENT if is_titled else 0
    for kind, group in itertools.groupby(blocks, key=_join_key):
        if kind is Facts:
            yield _print_facts([block for block in group if isinstance(block, Facts)])
        elif kind is Prose:
            lines = [_print_prose(block, level, by=by) for block in group if isinstance(block, Prose)]
            shown = [line for line in lines if line is not None]
            yield from [shown] if is_titled else ([line] for line in shown)
        else:
            for block in group:
                if isinstance(block, Section):
                    yield from _print_section(block, level)
                elif isinstance(block, Listing):
                    yield from _print_listing(block)
                else:
                    yield _print_block(block, level)


def _join_key(block: Block) -> type[Block] | None:
    """Return the kind of a block that is printed together with its neighbours of the same kind."""
    return type(block) if isinstance(block, (Facts, Prose)) else None


def _print_section(section: Section, level: Level) -> Iterator[Part]:
    blocks = (*section.blocks, *section.beside)
    parts = [part for part in _print_blocks(blocks, level, is_titled=bool(section.title)) if part]
    if not parts:
        return
    if section.title:
        tag = f" ({section.tag})" if section.tag else ""
        head: Part = [Paragraph(Text(f"{section.title}{tag}", style=_HEADING), by=0)]
        yield [*head, *parts[0]]
        yield from parts[1:]
    else:
        yield from parts


def _print_block(block: Block, level: Level) -> Part:
    match block:
        case Table():
            return _print_table(block.at_level(level))
        case Claims():
            return [line for one in block.claims for line in _print_claim(one, level)]
        case Steps():
            return [line for number, one in enumerate(block.steps, start=1) for line in _print_step(number, one)]
        case Code():
            return [*_say(block.purpose, ":"), *(_keep(line) for line in block.lines.splitlines())]
        case ChartBlock() | Charts() | Facts() | Listing() | Prose() | Section():
            return []


def _say(words: str, end: str = "") -> Iterator[RenderableType]:
    if words:
        yield Paragraph(f"{words}{end}", by=0)


def _keep(line: str) -> Text:
    # Paths and commands are copied by users: they may exceed the margin and never break.
    return Text(line, no_wrap=True, overflow="ignore")


def _print_prose(block: Prose, level: Level, *, by: int) -> RenderableType | None:
    words = block.brief if level is Level.HEADLINE and block.brief else block.words
    if not words:
        return None
    style = _TONES.get(block.tone, "")
    strong = f"{block.strong} " if block.strong else ""
    text = Text.assemble((strong, "bold red" if block.tone is Tone.ALARM else "bold"), (words, style))
    return Paragraph(text, by=by)


def _print_listing(listing: Listing) -> Iterator[Part]:
    rows = [row for _, group in listing.groups for row in group]
    heading = [Row(cells=listing.titles, words=listing.words_title, is_heading=True)] if listing.titles else []
    shown = [Row(cells=row.cells, words=row.words, is_strong=bool(listing.titles)) for row in rows]
    widths = widths_of([*heading, *shown], most=listing.widest)
    before: Part = [Columns(heading, widths)] if heading else []
    for title, group in listing.groups:
        rows_of = [Row(cells=row.cells, words=row.words, is_strong=bool(listing.titles)) for row in group]
        head: Part = [Paragraph(Text(title, style=_HEADING), by=0)] if title else []
        yield [*before, *head, Columns(rows_of, widths)]
        before = []


def _print_table(table: Table) -> Part:
    head: Part = [Paragraph(Text(table.caption, style=_HEADING), by=0)] if table.is_captioned else []
    return [*head, Grid(table)]


def _print_facts(cards: list[Facts]) -> Part:
    width = min(_MOST_NAME, max(cell_len(card.title) for card in cards))
    return [line for card in cards for line in _print_card(card, width)]


def _print_card(card: Facts, width: int) -> Iterator[RenderableType]:
    name = f"{card.title}{' ' * (width - cell_len(card.title))}"
    label = f"  ({card.label})" if card.label else ""
    for fact in card.facts[:1]:
        figure = " ".join(filter(None, (fact.value, fact.unit, fact.name)))
        doubt = f"  {fact.doubt}" if fact.doubt else ""
        yield _plain(f"{name}  {figure}{doubt}{label}")
    others = [" ".join(filter(None, (fact.name, fact.value, fact.unit))) for fact in card.facts[1:]]
    if others:
        yield _plain(f"{' ' * width}  {'  '.join(others)}")
    yield from (Paragraph(words, by=width + 2) for words in card.remarks)


def _plain(words: str) -> Text:
    return Text(words.rstrip(), no_wrap=True, overflow="fold")


def _print_claim(one: Claim, level: Level) -> Iterator[RenderableType]:
    of = f" ({one.of})" if one.of else ""
    style = HUE_STYLES.get(one.hue, "bold")
    figures = "; ".join(filter(None, (one.figures, one.outlook)))
    claim = f"{one.claim.rstrip('.')}{of}: {figures}." if figures else f"{one.claim}{of}"
    yield Paragraph(_mark_badge(claim, one.badge, style), by=0)
    if one.is_brief and level is Level.HEADLINE:
        return
    is_full = level > Level.HEADLINE
    yield from (Paragraph(words) for words in one.evidence)
    if is_full:
        yield from (Paragraph(words) for words in one.detail)
    yield from (Paragraph(words) for words in (one.advice, one.caution) if words)
    if not is_full:
        return
    yield from (Paragraph(f"it could also be: {rival}") for rival in one.rivals)
    if one.settle:
        yield Paragraph(f"what would settle it: {one.settle}")
    if one.links:
        yield Paragraph(Text(f"see {describe_links(one.links)} in report.html", style="dim"))


def _mark_badge(claim: str, badge: str, style: str) -> Text:
    """Return a claim after its badge, or with the badge's word marked where the claim contains it."""
    word = badge.lstrip(_MARKS)
    start = claim.find(f" {word}") + 1
    if not start:
        return Text.assemble((f"{badge}: ", style), claim)
    words = Text(claim)
    words.stylize(style, start, start + len(word))
    return words


def _print_step(number: int, one: Claim) -> Iterator[RenderableType]:
    of = f" ({one.of})" if one.of else ""
    head = Text.assemble(f"{number}. ", (f"{one.badge}: ", HUE_STYLES.get(one.hue, "bold")), f"{one.claim}{of}")
    yield Paragraph(head)
    yield from (Paragraph(words, by=5) for words in (one.figures, one.caution) if words)

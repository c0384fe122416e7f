"""Print a document as Markdown for a ticket: everything that the page says, without its charts.

The output is CommonMark with pipe tables. Text from studies, servers and tools is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgdyno.report.document import (
    Block,
    ChartBlock,
    Charts,
    Claim,
    Claims,
    Code,
    Document,
    Facts,
    Link,
    Listing,
    Prose,
    Section,
    Steps,
    Tone,
)
from pgdyno.report.table import Cell, Table
from pgdyno.units import with_capital

# Whatever could begin markup within a line, and no more, so that the text stays legible where it is not rendered. Our
# words and those of others never stand at a line's start, so markup that only means something there needs no care.
_MARKUP = re.compile(r"[\\`*<|~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|&(?=#?\w+;)")
_CODE = re.compile(r"(?<!`)(`[^`]+`)(?!`)")
_LOWEST_HEADING = 6


def print_markdown(document: Document) -> str:
    """Return a document as Markdown."""
    parts = [f"# {escape(document.title)}", *_print_blocks(document.blocks, depth=2)]
    return "\n\n".join(parts) + "\n"


def escape(words: str) -> str:
    """Return text on one line, escaped for Markdown."""
    return _escape(" ".join(words.split()))


def mark(words: str) -> str:
    """Return a sentence with the parts between backticks as code; the rest is escaped."""
    parts = _CODE.split(" ".join(words.split()))
    return "".join(part if place % 2 else _escape(part) for place, part in enumerate(parts))


def format_table(table: Table) -> str:
    """Return a pipe table with its caption above, and its footnotes and remark below."""
    lines = [f"**{escape(table.caption)}**", ""] if table.is_captioned else []
    lines.append(_row(column.title for column in table.columns))
    lines.append("|" + "|".join("---:" if column.is_number else "---" for column in table.columns) + "|")
    lines += [_row((_cell(table, cell) for cell in row), is_escaped=True) for row in table.rows]
    below = [f"({number}) {mark(note)}" for number, note in enumerate(table.notes, start=1)]
    below += [mark(table.remark)] if table.remark else []
    return "\n".join([*lines, *(f"\n{line}" for line in below)])


def _print_blocks(blocks: Iterable[Block], *, depth: int) -> Iterator[str]:
    facts: list[str] = []
    for block in blocks:
        if isinstance(block, Facts):
            facts.append(_print_facts(block))
            continue
        if facts:
            yield "\n".join(facts)
            facts = []
        yield from _print_block(block, depth=depth)
    if facts:
        yield "\n".join(facts)


def _print_block(block: Block, *, depth: int) -> Iterator[str]:
    match block:
        case Section():
            yield from _print_section(block, depth=depth)
        case Prose():
            yield from [_print_prose(block)] if block.words else []
        case Table():
            yield format_table(block)
        case Listing():
            yield from (format_table(table) for table in block.to_tables())
        case Claims():
            yield "\n".join(line for one in block.claims for line in _print_claim(one))
        case Steps():
            yield "\n".join(f"{number}. {_print_step(one)}" for number, one in enumerate(block.steps, start=1))
        case Code():
            if block.purpose:
                yield f"{mark(block.purpose)}:"
            yield _fence(block.lines)
        case ChartBlock() | Charts() | Facts():
            pass


def _print_section(section: Section, *, depth: int) -> Iterator[str]:
    inner = list(_print_blocks((*section.blocks, *section.beside), depth=depth + bool(section.title)))
    if not inner:
        return
    if section.title:
        tag = f" ({section.tag})" if section.tag else ""
        yield f"{'#' * min(depth, _LOWEST_HEADING)} {escape(f'{section.title}{tag}')}"
        yield from [f"{mark(with_capital(section.sub))}."] if section.sub else []
    yield from inner


def _print_prose(block: Prose) -> str:
    strong = f"**{mark(block.strong)}** " if block.strong else ""
    words = mark(block.words)
    if block.tone is Tone.ALARM and not strong:
        words = f"**{words}**"
    return f"{strong}{words}".rstrip()


def _print_facts(block: Facts) -> str:
    shown = []
    for place, fact in enumerate(block.facts):
        figure = f"{fact.value}{f' {fact.unit}' if fact.unit else ''}"
        doubt = f" {_doubt(fact.doubt)}" if fact.doubt else ""
        shown.append(
            f"**{escape(figure)}{f' {escape(fact.name)}' if fact.name else ''}**{doubt}"
            if place == 0
            else f"{escape(f'{fact.name} {figure}')}{doubt}"
        )
    label = f" ({block.label})" if block.label else ""
    words = f"; {mark(block.words)}" if block.words else ""
    lines = [f"- {escape(block.title + label)}: {', '.join(shown)}{words}"]
    return "\n".join([*lines, *(f"  - {mark(one)}" for one in block.remarks)])


def _doubt(doubt: str) -> str:
    return escape(doubt if doubt.startswith("[") else f"({doubt})")


def _print_claim(one: Claim) -> Iterator[str]:
    lone = one.evidence if len(one.evidence) == 1 else ()
    words = " ".join(filter(None, (*(mark(_sentence(each)) for each in lone), mark(one.advice), mark(one.caution))))
    of = f" ({one.of})" if one.of else ""
    head = f"- **{escape(one.badge)}**: {mark(one.claim + of)}"
    if one.figures:
        head = f"{head.rstrip('.')}: {mark(_join_figures(one))}"
    yield f"{head} {words}{_print_links(one.links)}".rstrip()
    yield from (f"  - {mark(each)}" for each in one.evidence if not lone)
    yield from (f"  - {mark(_sentence(each))}" for each in one.detail)
    if one.rivals:
        yield f"  - What else it could be: {mark('; '.join(one.rivals))}"
    if one.settle:
        yield f"  - What would settle it: {mark(one.settle)}"


def _join_figures(one: Claim) -> str:
    return f"{'; '.join(filter(None, (one.figures, one.outlook)))}."


def _print_step(one: Claim) -> str:
    of = f" ({one.of})" if one.of else ""
    figures = _sentence(one.figures) if one.figures else ""
    words = " ".join(filter(None, (f"{one.claim}{of}", figures, one.caution)))
    return f"**{escape(one.badge)}**: {mark(words)}{_print_links(one.links)}"


def _print_links(links: tuple[Link, ...]) -> str:
    return f" *See {escape(describe_links(links))}.*" if links else ""


def describe_links(links: Iterable[Link]) -> str:
    """Return links as text, for forms without hyperlinks: `CPU, Run queue (trial 7)`."""
    by_where: dict[str, list[str]] = {}
    for link in links:
        titles = by_where.setdefault(link.where, [])
        if link.title not in titles:
            titles.append(link.title)
    return "; ".join(f"{', '.join(titles)}{f' ({where})' if where else ''}" for where, titles in by_where.items())


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _escape(line: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", line)


def _row(cells: Iterable[str], *, is_escaped: bool = False) -> str:
    return "| " + " | ".join(cell if is_escaped else escape(cell) for cell in cells) + " |"


def _cell(table: Table, cell: Cell) -> str:
    # Some readers do not accept an escaped pipe in a code span, so a cell with a pipe stays text.
    is_code = cell.is_code and not set("`|") & set(cell.text)
    shown = f"`{' '.join(cell.text.split())}`" if is_code else _mark_cell(cell.text)
    shown = f"**{shown}**" if cell.is_strong else shown
    # A verdict is followed by its figures, a figure by its interval.
    shown += f"{':' if cell.hue else ''} {_mark_cell(cell.detail)}" if cell.detail else ""
    shown += f" ({escape(cell.tag)})" if cell.tag else ""
    number = table.note_number(cell)
    return shown if number is None else f"{shown} ({number})"


def _mark_cell(words: str) -> str:
    return escape(words) if "|" in words else mark(words)


def _fence(words: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{words}\n{fence}"

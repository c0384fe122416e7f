"""Print the small results of commands on the terminal: a line, a table of words, or paragraphs below headings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pgdyno.report.forms.paragraph import Paragraph


class Heading(msgspec.Struct, frozen=True):
    """The heading of a column."""

    title: str
    is_number: bool = False
    is_whole: bool = False
    """True if a cell below it stays on one line."""


def render_line(words: str) -> RenderableType:
    """Print one line."""
    return Text(words)


def render_rows(headings: Sequence[Heading], rows: Iterable[Sequence[str]], *, caption: str = "") -> RenderableType:
    """Print rows of words below headings."""
    table = Table(box=None, pad_edge=False, caption=caption or None, caption_justify="left")
    for heading in headings:
        table.add_column(
            heading.title,
            justify="right" if heading.is_number else "left",
            no_wrap=heading.is_whole,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def render_headed(parts: Iterable[tuple[str, str]], *, last: str = "") -> RenderableType:
    """Print paragraphs below bold headings, then a last line; a heading without words is left out."""
    lines: list[RenderableType] = [Text()]
    for title, words in parts:
        if words:
            lines += [Paragraph(Text(title, "bold"), by=0), Paragraph(words)]
    if last:
        lines.append(Paragraph(last, by=0))
    return Group(*lines)

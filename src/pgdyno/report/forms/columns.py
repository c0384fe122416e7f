"""Print aligned rows of cells on the terminal: tables, and listings with a sentence for each row."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pgdyno.report.forms.paragraph import Paragraph
from pgdyno.report.table import Cell, Column, Table

# The least width for a sentence of several lines beside the cells.
_ROOM = 50
_GAP = "  "
_MARGIN = "  "
# The indent of a sentence that has no room beside its cells.
_BELOW = 6


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Cells, and a sentence about them."""

    cells: tuple[str, ...]
    words: str = ""
    is_strong: bool = False
    is_heading: bool = False
    """True if the words are a heading, which is placed where the other rows' words are."""


class Columns:
    """Aligned rows.

    Args:
        rows: The rows to show.
        widths: The widths of the cells; see `widths_of`. A longer cell shifts the rest of its line.
    """

    def __init__(self, rows: Sequence[Row], widths: Sequence[int]) -> None:
        self._rows = rows
        self._widths = widths

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, none of which ends in blanks."""
        room = options.max_width - len(_MARGIN) - sum(self._widths) - len(_GAP) * len(self._widths)
        for row in self._rows:
            head = _GAP.join(_pad(cell, width) for cell, width in zip(row.cells, self._widths, strict=True))
            style = "bold" if row.is_strong else ""
            needed = _ROOM if row.is_heading else min(_ROOM, cell_len(row.words))
            is_beside = row.words and room >= needed
            beside = list(Text(row.words).wrap(console, room)) if is_beside else []
            if not beside or cell_len(head) > options.max_width - room - len(_GAP):
                yield Paragraph(Text(head.rstrip(), style))
                if row.words and not row.is_heading:
                    yield Paragraph(row.words, by=_BELOW)
                continue
            yield Text.assemble(_MARGIN, (head, style), _GAP, beside[0].plain.rstrip())
            for line in beside[1:]:
                yield Text(" " * (options.max_width - room) + line.plain.rstrip())


def widths_of(rows: Sequence[Row], *, most: Sequence[int]) -> tuple[int, ...]:
    """Return the widths that hold all cells of these rows, each at most its `most`."""
    columns = zip(*(row.cells for row in rows), strict=True)
    return tuple(min(limit, max(map(cell_len, cells), default=0)) for limit, cells in zip(most, columns, strict=False))


def _pad(cell: str, width: int) -> str:
    return cell + " " * max(0, width - cell_len(cell))


class Grid:
    """A table without its caption. Lines are wrapped where the screen is too narrow.

    Args:
        table: The table to show.
    """

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, the footnotes and the remark."""
        table = self._table
        heading = tuple(Cell(text=column.title) for column in table.columns)
        rows = [[_show(table, cell) for cell in row] for row in (heading, *table.rows)]
        widths = [max(map(cell_len, cells)) for cells in zip(*rows, strict=True)]
        for place, row in enumerate(rows):
            line = _GAP.join(map(_align, row, widths, table.columns)).rstrip()
            yield Paragraph(Text(f"{_MARGIN}{line}", style="" if place else "dim"), by=0)
        for number, note in enumerate(table.notes, start=1):
            yield Paragraph(f"({number}) {note}")
        if table.remark:
            yield Paragraph(table.remark)


def _show(table: Table, cell: Cell) -> str:
    words = " ".join(filter(None, (cell.text, cell.detail, cell.tag)))
    return f"{words} ({table.note_number(cell)})" if cell.note else words


def _align(words: str, width: int, column: Column) -> str:
    blanks = " " * (width - cell_len(words))
    return blanks + words if column.is_number else words + blanks

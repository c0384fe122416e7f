"""Print a table on the terminal: aligned columns, numbers to the right, no line that ends in blanks."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pgdyno.report.forms.paragraph import Paragraph
from pgdyno.report.table import Cell, Column, Table

_GAP, _MARGIN = "  ", "  "


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

"""Lay out rows of cells with a sentence each: beside the cells where there is room, otherwise below them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from pgdyno.report.forms.paragraph import Paragraph

# The least width for a sentence of several lines beside the cells.
_ROOM = 50
_GAP = "  "
_MARGIN = "  "
_BELOW = 6


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Cells, and a sentence about them."""

    cells: tuple[str, ...]
    words: str = ""
    is_strong: bool = False
    is_heading: bool = False
    """Whether the words are a heading, which is placed where the other rows' words are."""


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

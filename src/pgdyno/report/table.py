"""Define tables as data, so that all forms show the same cells and footnotes."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from pgdyno.report.format import ABSENT
from pgdyno.report.level import Level


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A table cell: its text, and the note that explains it, such as the reason of an absent value."""

    text: str
    note: str | None = None
    is_code: bool = False
    is_strong: bool = False
    detail: str = ""
    """A text that follows or stands below the cell's text, such as its interval."""
    tag: str = ""
    """A label that follows the text everywhere, such as the durability that a variant gives up."""
    hue: str = ""
    """The colour of a verdict."""
    link: str = ""
    """The page that the text leads to, relative to this one; only pages have links."""
    order: float | None = None
    """The place of the cell in its column when a page sorts it; None: by its text."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column's heading; numbers are aligned to the right."""

    title: str
    is_number: bool = False
    level: Level = Level.HEADLINE
    """The least detailed form that shows the column."""


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table. The first cell of each row is the row's heading."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    remark: str = ""
    """A sentence below it."""
    id: str = ""
    level: Level = Level.STANDARD
    """The least detailed form that shows the table; a page folds tables of level DETAIL."""
    is_captioned: bool = True
    """True if the caption is shown; a heading above may already say the same."""
    is_sortable: bool = False
    """True if the reader of a page can sort the rows."""

    def at_level(self, level: Level) -> Table:
        """Return the table with only the columns of a form's level; only forms that show all print the remark."""
        kept = [place for place, column in enumerate(self.columns) if column.level <= level]
        return msgspec.structs.replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in self.rows),
            remark=self.remark if level > Level.HEADLINE else "",
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The distinct notes of all cells in reading order: the footnotes, numbered from 1."""
        return tuple(dict.fromkeys(cell.note for row in self.rows for cell in row if cell.note))

    def note_number(self, cell: Cell) -> int | None:
        """Return the number of a cell's footnote."""
        return self.notes.index(cell.note) + 1 if cell.note else None


def text(value: str | None, *, note: str | None = None) -> Cell:
    """Return a cell of plain text; absent without one."""
    return Cell(text=value or ABSENT, note=note)


def code(value: str) -> Cell:
    """Return a cell of code or of a program's own name for something."""
    return Cell(text=value, is_code=True)


def absent(reason: str | None) -> Cell:
    """Return a cell without a value, with the reason."""
    return Cell(text=ABSENT, note=reason)


def number(value: float | None, formatted: Callable[[float], str], reason: str | None) -> Cell:
    """Return a cell of a number; absent with the reason."""
    return absent(reason) if value is None else text(formatted(value))


def columns(*titles: str, numbers_from: int | None = None, details: Collection[str] = ()) -> tuple[Column, ...]:
    """Return columns with these titles; those from position `numbers_from` on hold numbers, and headlines leave out `details`."""
    return tuple(
        Column(
            title=title,
            is_number=numbers_from is not None and position >= numbers_from,
            level=Level.STANDARD if title in details else Level.HEADLINE,
        )
        for position, title in enumerate(titles)
    )

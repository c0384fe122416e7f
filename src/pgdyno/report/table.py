"""Tables as data, so that Markdown and HTML show the same cells and the same footnotes. Knows nothing of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pgdyno.report.format import ABSENT
from pgdyno.report.level import Level


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell: its text, and the note that explains it, such as the reason of an absent value."""

    text: str
    note: str | None = None
    is_code: bool = False
    is_strong: bool = False
    detail: str = ""
    """What belongs to the text and stands behind or below it, such as its interval."""
    tag: str = ""
    """A label that goes wherever the text goes, such as what a variant gives up."""
    hue: str = ""
    """Of a verdict, beside its words."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column's heading; numbers stand to the right."""

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
    """The least detailed form that shows the table; a page folds one of level DETAIL."""
    is_captioned: bool = True
    """Whether the caption is shown; it is not where a heading above says the same."""

    def at_level(self, level: Level) -> Table:
        """Return the table with the columns that a form of a level shows; its remark is for forms that show all."""
        kept = [place for place, column in enumerate(self.columns) if column.level <= level]
        return msgspec.structs.replace(
            self,
            columns=tuple(self.columns[place] for place in kept),
            rows=tuple(tuple(row[place] for place in kept) for row in self.rows),
            remark=self.remark if level > Level.HEADLINE else "",
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """The distinct notes of all cells in the order of reading: the footnotes, numbered from 1."""
        return tuple(dict.fromkeys(cell.note for row in self.rows for cell in row if cell.note))

    def note_number(self, cell: Cell) -> int | None:
        """The number of a cell's footnote."""
        return self.notes.index(cell.note) + 1 if cell.note else None


def text(value: str | None, *, note: str | None = None) -> Cell:
    """A cell of plain text; absent without one."""
    return Cell(text=value or ABSENT, note=note)


def code(value: str) -> Cell:
    """A cell of something that people type or that a program calls so."""
    return Cell(text=value, is_code=True)


def absent(reason: str | None) -> Cell:
    """A cell without a value, with the reason."""
    return Cell(text=ABSENT, note=reason)


def number(value: float | None, formatted: Callable[[float], str], reason: str | None) -> Cell:
    """A cell of a number; absent with the reason."""
    return absent(reason) if value is None else text(formatted(value))


def columns(*titles: str, numbers_from: int | None = None) -> tuple[Column, ...]:
    """Headings; those from position `numbers_from` on are of numbers."""
    return tuple(
        Column(title=title, is_number=numbers_from is not None and position >= numbers_from)
        for position, title in enumerate(titles)
    )

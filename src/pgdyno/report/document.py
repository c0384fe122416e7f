"""Define what a report is made of: sections of blocks, independent of the form in which they are printed.

A section is built once, by a module of `sections/`, and printed by every module of `forms/`. Text is plain; text
between backticks is code. Nothing here rounds a number, lays out a page or knows PostgreSQL.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from pgdyno.errors import with_program
from pgdyno.report.charts.chart import Chart
from pgdyno.report.level import Level
from pgdyno.report.table import Cell, Column, Table


class Tone(enum.Enum):
    """The role of a paragraph."""

    PLAIN = "plain"
    LEAD = "lead"
    """The first sentence of a document."""
    SMALL = "small"
    """A remark on the block beside it."""
    CLAIM = "claim"
    """An answer."""
    ALARM = "alarm"
    """A reason not to use the figures as they are."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A reference to a chart, table or section elsewhere in the document."""

    title: str
    """The title of the target."""
    anchor: str
    """The id of the target."""
    where: str = ""
    """The trial that the target belongs to; empty where the title is enough."""


class Prose(msgspec.Struct, frozen=True, kw_only=True):
    """A paragraph."""

    words: str
    strong: str = ""
    """Bold words before the paragraph, such as `Durability given up:`."""
    brief: str = ""
    """The text that short forms print instead; empty: `words`."""
    tone: Tone = Tone.PLAIN
    level: Level = Level.STANDARD


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A named figure with its uncertainty."""

    name: str
    value: str
    unit: str = ""
    doubt: str = ""
    """The interval and n, or the reason why there is none."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one thing, such as a workload, the most important first."""

    title: str
    anchor: str = ""
    """The id of the section with the details; empty: there is none."""
    words: str = ""
    """A description, such as `8 clients, simple protocol`."""
    label: str = ""
    """A warning beside the figures, such as `durability given up`."""
    facts: tuple[Fact, ...] = ()
    remarks: tuple[str, ...] = ()
    level: Level = Level.HEADLINE


class ChartBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A chart. Forms without pictures leave it out: tables hold its figures."""

    id: str
    chart: Chart
    level: Level = Level.STANDARD


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    """Charts side by side, over one time axis where they belong to one trial."""

    draw: Callable[[], tuple[ChartBlock, ...]]
    """Makes the charts on demand, so that forms without pictures do not wait for hundreds of them."""
    keys: tuple[tuple[str, str], ...] = ()
    """Hues with the same meaning in all of the charts, each with that meaning."""
    level: Level = Level.STANDARD

    @property
    def charts(self) -> tuple[ChartBlock, ...]:
        """The charts."""
        return self.draw()

    @property
    def note(self) -> str:
        """How the data were changed for display; empty where they were not."""
        return next((one.chart.note for one in self.charts if one.chart.note), "")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A statement with its certainty and its evidence."""

    badge: str
    """The certainty or severity in a word or two; a verdict with its mark."""
    hue: str
    claim: str
    figures: str = ""
    """The measured figures, such as `TPS +18 % [+6, +44]`."""
    outlook: str = ""
    """A remark on the figures."""
    of: str = ""
    """The workloads that the statement holds for; empty: the whole study."""
    evidence: tuple[str, ...] = ()
    """The main evidence, which every form prints."""
    detail: tuple[str, ...] = ()
    """The rest of the evidence."""
    rivals: tuple[str, ...] = ()
    """Other possible causes, each with the evidence against it."""
    settle: str = ""
    """What would settle which cause it is."""
    advice: str = ""
    caution: str = ""
    """The evidence against the statement."""
    links: tuple[Link, ...] = ()
    id: str = ""
    reason: str = ""
    """The id of the claim that this one follows from."""
    is_brief: bool = False
    """True if short forms print the claim without its evidence and advice."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """A list of claims."""

    claims: tuple[Claim, ...]
    level: Level = Level.HEADLINE


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Things to do, in order."""

    steps: tuple[Claim, ...]
    level: Level = Level.HEADLINE


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """Lines to type, or lines that a program printed."""

    lines: str
    purpose: str = ""
    level: Level = Level.STANDARD


class ListRow(msgspec.Struct, frozen=True, kw_only=True):
    """Short cells, and a sentence about them."""

    cells: tuple[str, ...]
    words: str = ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of short cells with a sentence each, in groups: a table whose last column is prose."""

    groups: tuple[tuple[str, tuple[ListRow, ...]], ...]
    """Titles with their rows; a title may be empty."""
    widest: tuple[int, ...]
    """The maximum width in characters to which each column of cells is aligned."""
    titles: tuple[str, ...] = ()
    words_title: str = ""
    level: Level = Level.HEADLINE

    def to_tables(self) -> tuple[Table, ...]:
        """Return a table for each group, for forms with tables."""
        titles = self.titles or ("",) * len(self.widest)
        columns = tuple(Column(title=title) for title in (*titles, self.words_title))
        return tuple(
            Table(
                caption=title,
                columns=columns,
                rows=tuple(tuple(Cell(text=cell) for cell in (*row.cells, row.words)) for row in rows),
                is_captioned=bool(title),
            )
            for title, rows in self.groups
        )


class Look(enum.Enum):
    """The appearance of a section on a page; other forms ignore it."""

    PLAIN = "plain"
    CARDS = "cards"
    """One card for each of the section's facts."""
    VERDICTS = "verdicts"
    """A panel."""
    FRAME = "frame"
    TRIAL = "trial"
    """A trial, whose charts mark the same moment together."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks under a heading. A section above the form's level is left out, and all its blocks with it."""

    title: str
    """Empty: no heading."""
    blocks: tuple[Block, ...]
    id: str = ""
    sub: str = ""
    """Smaller type beside the title."""
    tag: str = ""
    """A label that follows the title everywhere, such as the durability that a variant gives up."""
    beside: tuple[Block, ...] = ()
    """Blocks that a page sets beside the others where it is wide enough; other forms print them last."""
    look: Look = Look.PLAIN
    level: Level = Level.STANDARD
    is_folded: bool = False
    """True if a page shows only the heading until the reader opens the section."""
    is_printed: bool = True
    """True if a folded section is opened on paper."""
    is_listed: bool = False
    """True if the page's table of contents lists the section."""
    list_title: str = ""
    """The title in the table of contents; empty: `title`."""


Block = Prose | Facts | Table | Listing | ChartBlock | Charts | Claims | Steps | Code | Section


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A report or a screen."""

    title: str
    blocks: tuple[Block, ...]
    made_by: str = ""
    """The program's name and version."""
    made_at: str = ""
    place: str = ""
    """The path of the data that the document was made from."""
    is_titled: bool = True
    """True if short forms also begin with the title."""


def name_program(document: Document, program: str, *, recorded: str = "pgdyno") -> Document:
    """Return a document whose commands name the program as given, in place of `pgdyno` or of the name that a record keeps."""
    if program == recorded == "pgdyno":
        return document
    kept = f"`{shlex.quote(recorded)} "

    def rename(part: Any) -> Any:
        if isinstance(part, str):
            return with_program(part.replace(kept, "`pgdyno "), program) if "`" in part else part
        if type(part) is tuple:
            return tuple(map(rename, part))
        if not isinstance(part, msgspec.Struct) or isinstance(part, (Chart, Charts)):
            return part
        return msgspec.structs.replace(part, **{name: rename(getattr(part, name)) for name in part.__struct_fields__})

    named: Document = rename(document)
    return named


def select(blocks: Iterable[Block], level: Level) -> tuple[Block, ...]:
    """Return the blocks that a form of a level shows, in order; a section with no such block is left out."""
    return tuple(_select(blocks, level))


def _select(blocks: Iterable[Block], level: Level) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, Section):
            inner, beside = select(block.blocks, level), select(block.beside, level)
            if inner or beside:
                yield msgspec.structs.replace(block, blocks=inner, beside=beside)
        elif block.level <= level:
            yield block


def list_charts(blocks: Iterable[Block]) -> Iterator[ChartBlock]:
    """Yield every chart of some blocks, in order."""
    for block in blocks:
        match block:
            case ChartBlock():
                yield block
            case Charts():
                yield from block.charts
            case Section():
                yield from list_charts((*block.blocks, *block.beside))
            case _:
                pass


def list_contents(blocks: Iterable[Block]) -> Iterator[Section]:
    """Yield the sections that the table of contents lists, in order."""
    for block in blocks:
        if isinstance(block, Section):
            if block.is_listed:
                yield block
            yield from list_contents((*block.blocks, *block.beside))

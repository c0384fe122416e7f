"""Defines what a report is made of: sections of blocks, which know nothing of the form that they are printed in.

A section is built once, by a module of `sections/`, and printed by every form of `forms/`. Text is plain; what stands
between backticks is something to type. Nothing here rounds a number, lays out a page or knows PostgreSQL.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator

import msgspec

from pgdyno.report.charts.chart import Chart
from pgdyno.report.level import Level
from pgdyno.report.table import Cell, Column, Table


class Tone(enum.Enum):
    """How a paragraph is meant."""

    PLAIN = "plain"
    LEAD = "lead"
    """The first sentence of a document."""
    SMALL = "small"
    """A remark on what stands beside it."""
    CLAIM = "claim"
    """An answer."""
    ALARM = "alarm"
    """A reason not to use the figures as they are."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A chart, table or section elsewhere in the document."""

    title: str
    """As it is called where it stands."""
    anchor: str
    """Its id."""
    where: str = ""
    """The trial that it is of; empty where its title says enough."""


class Prose(msgspec.Struct, frozen=True, kw_only=True):
    """A paragraph."""

    words: str
    strong: str = ""
    """Words before it that stand out, such as `Durability given up:`."""
    brief: str = ""
    """What short forms print in place of it; empty: the words."""
    tone: Tone = Tone.PLAIN
    level: Level = Level.STANDARD
    links: tuple[Link, ...] = ()


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A named figure with its doubt."""

    name: str
    value: str
    unit: str = ""
    doubt: str = ""
    """Its interval and n; why there is none."""
    level: Level = Level.HEADLINE


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one thing, such as a workload, the most important first."""

    title: str
    anchor: str = ""
    """Where the thing is shown in full; empty: nowhere else."""
    words: str = ""
    """What the thing is, such as `8 clients, simple protocol`."""
    label: str = ""
    """A warning that stands beside the figures, such as `durability given up`."""
    facts: tuple[Fact, ...] = ()
    remarks: tuple[str, ...] = ()
    level: Level = Level.HEADLINE


class ChartBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A chart; forms without pictures leave it out, since its figures stand in tables."""

    id: str
    chart: Chart
    level: Level = Level.STANDARD


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    """Charts side by side, over one time axis where they are of one trial."""

    draw: Callable[[], tuple[ChartBlock, ...]]
    """Makes them when they are asked for: forms without pictures do not wait for hundreds."""
    keys: tuple[tuple[str, str], ...] = ()
    """Hues that mean the same in all of them, each with its meaning."""
    level: Level = Level.STANDARD

    @property
    def charts(self) -> tuple[ChartBlock, ...]:
        """The charts."""
        return self.draw()

    @property
    def note(self) -> str:
        """What was done to the data for the display; empty where nothing was."""
        return next((one.chart.note for one in self.charts if one.chart.note), "")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that says how sure it is, with what it rests on."""

    badge: str
    """How sure it is, or how grave, in a word or two; a verdict with its mark."""
    hue: str
    claim: str
    figures: str = ""
    """What was measured, such as `TPS +18 % [+6, +44]`."""
    outlook: str = ""
    """What else there is to say of the figures."""
    of: str = ""
    """The workloads that it holds for; empty: the whole study."""
    evidence: tuple[str, ...] = ()
    """What everybody reads of what it rests on."""
    detail: tuple[str, ...] = ()
    """The rest of it."""
    rivals: tuple[str, ...] = ()
    """What else it could be, each with what speaks against it."""
    settle: str = ""
    """What would settle it."""
    advice: str = ""
    caution: str = ""
    """What speaks against it."""
    links: tuple[Link, ...] = ()
    id: str = ""
    reason: str = ""
    """The id of the claim that it follows from."""
    level: Level = Level.HEADLINE
    is_brief: bool = False
    """Whether short forms print the claim without its evidence and advice."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """Claims in a list."""

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
    """Cells, and a sentence on them."""

    cells: tuple[str, ...]
    words: str = ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of short cells with a sentence each, in groups: a table whose last column is prose."""

    groups: tuple[tuple[str, tuple[ListRow, ...]], ...]
    """Titles with their rows; a title may be empty."""
    widest: tuple[int, ...]
    """The most letters of each cell that others are aligned with."""
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
    """How a section looks on a page; other forms pay no attention."""

    PLAIN = "plain"
    CARDS = "cards"
    """A card for each of its facts."""
    VERDICTS = "verdicts"
    """A panel."""
    FRAME = "frame"
    TRIAL = "trial"
    """A trial: pointing at a moment shows it in all of its charts."""


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks under a heading; a section of a higher level than the form shows is left out with all that is in it."""

    title: str
    """Empty: no heading."""
    blocks: tuple[Block, ...]
    id: str = ""
    sub: str = ""
    """What stands beside the title in smaller type."""
    tag: str = ""
    """A label that goes wherever the title goes, such as what a variant gives up."""
    brief_title: str = ""
    """The heading in short forms; empty: the title."""
    beside: tuple[Block, ...] = ()
    """Blocks that a page sets beside the others, where it is wide enough; other forms print them afterwards."""
    look: Look = Look.PLAIN
    level: Level = Level.STANDARD
    is_folded: bool = False
    """Whether a page shows the heading alone until somebody opens it."""
    is_printed: bool = True
    """Whether a folded section is opened on paper."""
    is_listed: bool = False
    """Whether the page's table of contents has it."""
    list_title: str = ""
    """As the table of contents has it; empty: the title."""


Block = Prose | Facts | Table | Listing | ChartBlock | Charts | Claims | Steps | Code | Section


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A report, or a screen."""

    title: str
    blocks: tuple[Block, ...]
    made_by: str = ""
    """The program's name and version."""
    made_at: str = ""
    place: str = ""
    """Where the data lie that it was made from."""
    is_titled: bool = True
    """Whether short forms, too, begin with the title."""


def select(blocks: Iterable[Block], level: Level) -> tuple[Block, ...]:
    """Return the blocks that a form of a level shows, in order; a section without any of them is left out."""
    return tuple(_select(blocks, level))


def _select(blocks: Iterable[Block], level: Level) -> Iterator[Block]:
    for block in blocks:
        if block.level > level and not isinstance(block, Section):
            continue
        match block:
            case Section():
                inner, beside = select(block.blocks, level), select(block.beside, level)
                if inner or beside:
                    yield msgspec.structs.replace(block, blocks=inner, beside=beside)
            case Claims():
                claims = tuple(one for one in block.claims if one.level <= level)
                if claims:
                    yield msgspec.structs.replace(block, claims=claims)
            case _:
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
    """Yield the sections that a table of contents has, in order."""
    for block in blocks:
        if isinstance(block, Section):
            if block.is_listed:
                yield block
            yield from list_contents((*block.blocks, *block.beside))

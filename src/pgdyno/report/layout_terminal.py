"""Storage layouts on the terminal. Fits 80 columns, and says nothing by colour alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.report.grid import Grid
from pgdyno.report.layout import (
    LayoutView,
    ceilings_table,
    describe_declared,
    describe_look,
    devices_table,
    explain_layout,
    explain_layouts,
)
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.terminal_parts import show_table

_UNDECLARED = (
    "What it allows is not known: nothing is declared of it (--host FILE), and nothing here limits it."
    " Measuring tells: pgdyno disk, without --layout."
)
_NO_FIGURES = "What it allows is not known: no figure of it is declared, such as random_read_iops or flush_ms."


def render_layouts(views: Sequence[LayoutView]) -> RenderableType:
    """One after the other, and what holds for all of them."""
    lines = [line for view in views for line in (*_render(view), "")]
    return Group(*lines, *(Paragraph(words, by=0) for words in explain_layouts(views)))


def _render(view: LayoutView) -> Iterator[RenderableType]:
    yield Text(view.title, style="bold")
    if view.look is not None:
        yield Paragraph(describe_look(view.look))
    if view.declared is not None:
        yield Paragraph(f"declared: {describe_declared(view.declared)}")
    devices = None if view.look is None else devices_table(view.look)
    if devices is not None:
        yield from ("", Grid(devices))
    elif view.look is not None:
        yield Paragraph("No block device lies below it: it is memory, or another machine's.")
    if view.look is not None:
        yield from (Paragraph(f"not seen: {one.what}: {one.reason}") for one in view.look.unseen)
    ceilings = ceilings_table(view)
    if ceilings is None:
        yield from ("", Paragraph(_UNDECLARED if view.declared is None else _NO_FIGURES))
    else:
        yield from ("", *show_table(ceilings))
    yield from (Paragraph(words) for words in explain_layout(view))

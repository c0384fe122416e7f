"""Build what `pgdyno disk --layout` shows: the devices, and what each declared layout allows at most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.report.document import Block, Document, Prose, Section
from pgdyno.report.sections.disk.layout import (
    LayoutView,
    ceilings_table,
    describe_declared,
    describe_look,
    devices_table,
    explain_layout,
    explain_layouts,
)

_UNDECLARED = (
    "Its limits are not known: nothing is declared (--host FILE), and no limit was found here. To measure them, run"
    " pgdyno disk without --layout."
)
_NO_FIGURES = "Its limits are not known: no figure is declared, such as random_read_iops or flush_ms."


def build_layouts(views: Sequence[LayoutView]) -> Document:
    """Return the document of some layouts, with what holds for all of them at the end."""
    sections = tuple(Section(title=view.title, blocks=tuple(_list_blocks(view))) for view in views)
    words = tuple(Prose(words=one) for one in explain_layouts(views))
    return Document(title="Storage layouts", blocks=(*sections, *words), is_titled=False)


def _list_blocks(view: LayoutView) -> Iterator[Block]:
    look = view.look
    if look is not None:
        yield Prose(words=describe_look(look))
    if view.declared is not None:
        yield Prose(words=f"declared: {describe_declared(view.declared)}")
    devices = None if look is None else devices_table(look)
    if devices is not None:
        yield msgspec.structs.replace(devices, is_captioned=False)
    elif look is not None:
        yield Prose(words="No block device was found below it: it is in memory or on another machine.")
    if look is not None:
        yield from (Prose(words=f"not observed: {one.what}: {one.reason}") for one in look.unseen)
    ceilings = ceilings_table(view)
    if ceilings is None:
        yield Prose(words=_UNDECLARED if view.declared is None else _NO_FIGURES)
    else:
        yield ceilings
    yield from (Prose(words=words) for words in explain_layout(view))

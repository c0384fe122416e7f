"""Make the published document of storage layouts: `pgdyno disk --layout --json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.report.sections.disk.layout import LayoutView

LAYOUT_VERSION = 1


class LayoutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno disk --layout --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-layout"
    version: int = LAYOUT_VERSION
    layouts: tuple[LayoutView, ...]


def layout_document(views: Sequence[LayoutView]) -> LayoutDocument:
    """Return layouts as a document, each ceiling with its derivation."""
    return LayoutDocument(layouts=tuple(views))

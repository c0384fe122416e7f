"""Makes the published document of storage layouts: `pgdyno disk --layout --json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.report.sections.disk.layout import LayoutView

LAYOUT_VERSION = 1


class LayoutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `pgdyno disk --layout --json` prints. Fields may be added; none is renamed without a new version."""

    format: str = "pgdyno-layout"
    version: int = LAYOUT_VERSION
    layouts: tuple[LayoutView, ...]


def layout_document(views: Sequence[LayoutView]) -> LayoutDocument:
    """Layouts for programs, in pgdyno's units, each ceiling with how it was reckoned."""
    return LayoutDocument(layouts=tuple(views))

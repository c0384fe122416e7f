"""Make the published documents of `pgdyno disk --json`: disk cards, their comparison, and storage layouts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.comparison.disk_cards import DELTA_RATIO, DiskDifference
from pgdyno.analyse.disk.card import DiskFigures
from pgdyno.analyse.disk.ceiling import StorageCeilings
from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.disk.entries import DiskFigure
from pgdyno.explain.finding import Finding
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.report.input import CardView
from pgdyno.report.sections.disk.layout import LayoutView

DISK_VERSION = 1
LAYOUT_VERSION = 1


class CardDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A disk card with everything that is derived from it."""

    file: str | None
    entries: tuple[DiskFigure, ...]
    figures: DiskFigures
    ceilings: StorageCeilings | None
    efficiencies: tuple[Efficiency, ...]
    findings: tuple[Finding, ...]
    card: DiskCard


class DiskDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno disk --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-disk"
    version: int = DISK_VERSION
    cards: tuple[CardDocument, ...]


class DiskComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno disk --compare --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-disk-comparison"
    version: int = DISK_VERSION
    delta_ratio: float = DELTA_RATIO
    """The largest difference that counts as equivalent."""
    cards: tuple[CardDocument, ...]
    differences: tuple[DiskDifference, ...]
    """The differences of each other card from the first."""


class LayoutDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno disk --layout --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-layout"
    version: int = LAYOUT_VERSION
    layouts: tuple[LayoutView, ...]


def disk_document(views: Sequence[CardView]) -> DiskDocument:
    """Return cards as a document."""
    return DiskDocument(cards=tuple(map(_card, views)))


def comparison_document(views: Sequence[CardView], differences: tuple[DiskDifference, ...]) -> DiskComparisonDocument:
    """Return a comparison of cards as a document."""
    return DiskComparisonDocument(cards=tuple(map(_card, views)), differences=differences)


def layout_document(views: Sequence[LayoutView]) -> LayoutDocument:
    """Return layouts as a document, each ceiling with its derivation."""
    return LayoutDocument(layouts=tuple(views))


def _card(view: CardView) -> CardDocument:
    return CardDocument(**{name: getattr(view, name) for name in CardDocument.__struct_fields__})

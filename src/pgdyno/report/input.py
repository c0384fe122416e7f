"""Define the one value from which every form of the report is made, so that all forms agree."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.disk.card import DiskFigures
from pgdyno.analyse.disk.ceiling import InstanceLimits, StorageCeilings
from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.disk.entries import DiskFigure
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding
from pgdyno.price.study import StudyPrice
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.record.types import StudyRecord


class CardView(msgspec.Struct, frozen=True, kw_only=True):
    """A card with everything that is derived from it."""

    card: DiskCard
    figures: DiskFigures
    entries: tuple[DiskFigure, ...]
    ceilings: StorageCeilings | None
    efficiencies: tuple[Efficiency, ...]
    findings: tuple[Finding, ...]
    limits: InstanceLimits | None = None
    """The declared limits of the machine."""
    file: str | None = None
    """The path of the card's file."""


class FurtherCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card of a disk that variants have in place of the reference's."""

    variants: tuple[str, ...]
    content: str
    """`data` or `WAL`."""
    view: CardView


class ReportInput(msgspec.Struct, frozen=True, kw_only=True):
    """A study's record, its analysis and its findings."""

    record: StudyRecord
    analysis: StudyAnalysis
    findings: tuple[Finding, ...]
    """What weakens the figures."""
    record_dir: str
    """The path of the record as the user would type it."""
    explanations: tuple[Finding, ...] = ()
    """The explanations: the limit of each load first, then events over time, then ceilings."""
    disk: CardView | None = None
    """The card of the data's disk; None where it was not measured."""
    wal: CardView | None = None
    """The card of pg_wal's own disk; None where there is none, or it was not measured."""
    further: tuple[FurtherCard, ...] = ()
    """The cards of the disks of variants that have places of their own, as far as they were measured."""
    price: StudyPrice | None = None
    """The price of the machine and its transactions; None where no price was requested."""

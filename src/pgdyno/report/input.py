"""Define the one value from which every form of the report is made, so that all forms agree."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding
from pgdyno.price.study import StudyPrice
from pgdyno.record.types import StudyRecord
from pgdyno.report.sections.disk.card import CardView


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
    price: StudyPrice | None = None
    """The price of the machine and its transactions; None where no price was requested."""

"""What every form of the report is made from: one value, so that the four forms cannot tell different stories."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.types import StudyAnalysis
from pgdyno.explain.finding import Finding
from pgdyno.price.study import StudyPrice
from pgdyno.record.types import StudyRecord
from pgdyno.report.sections.disk.card import CardView


class ReportInput(msgspec.Struct, frozen=True, kw_only=True):
    """A study's record, what analysis made of it, and what was found."""

    record: StudyRecord
    analysis: StudyAnalysis
    findings: tuple[Finding, ...]
    """What weakens the figures."""
    record_dir: str
    """As the user would type it; for the lines that say where things lie and how to repeat them."""
    explanations: tuple[Finding, ...] = ()
    """What makes the figures what they are: what limits each load first, then what happened over time, then ceilings."""
    disk: CardView | None = None
    """The card of the data's disk; None where it was not measured."""
    price: StudyPrice | None = None
    """What the machine and its transactions cost; None where nobody asked."""

"""`pgdyno explain`: what limits a record's loads, how sure that is, and what to do next."""

from __future__ import annotations

from pathlib import Path

import msgspec
from rich.console import RenderableType

from pgdyno.analyse.capacity.projection import project_disk
from pgdyno.analyse.disk.demand import DiskLimits, find_limits
from pgdyno.flow.report import compose_report, name_recorded_program
from pgdyno.flow.terminal import print_document
from pgdyno.record.device.disk_card import read_card
from pgdyno.record.store import RecordStore
from pgdyno.report.input import ReportInput


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A record's explanation, ready to be shown."""

    report: ReportInput
    change: str = ""
    """Of the machine, that was asked for."""

    def to_json(self) -> bytes:
        """One document."""
        from pgdyno.report.documents.explanation import render_explanation_json  # noqa: PLC0415 - what is shown is loaded

        return render_explanation_json(self.report)

    def to_terminal(self) -> RenderableType:
        """Return the form for the terminal."""
        from pgdyno.report.explanation import build_explanation  # noqa: PLC0415 - what is shown is loaded

        return print_document(
            build_explanation(self.report, change=self.change), recorded=name_recorded_program(self.report.record)
        )


def explain(store: RecordStore, *, disk: Path | None = None) -> Explanation:
    """Explain a record; nothing is measured or written.

    Args:
        store: Of the record.
        disk: Card of another disk, on which its loads are imagined.

    Raises:
        SpecError: The record has no trial that ended, or the card cannot be read.
    """
    report = compose_report(store).report
    if disk is None:
        return Explanation(report=report)
    wal = None if report.record.wal_disk is None else DiskLimits()
    limits, change = msgspec.structs.replace(find_limits(read_card(disk)), wal=wal), f"the disk of {disk}"
    capacities = tuple(
        msgspec.structs.replace(one, projections=(*one.projections, project_disk(one, limits, change)))
        for one in report.analysis.capacities
    )
    analysis = msgspec.structs.replace(report.analysis, capacities=capacities)
    return Explanation(report=msgspec.structs.replace(report, analysis=analysis), change=change)

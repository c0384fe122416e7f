"""Show what is declared of a disk beside what was measured of it, for cards and for every report."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.report.format import format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.disk.card import ENTRY_WORDS, show_like
from pgdyno.report.sections.disk.layout import (
    LayoutView,
    ceilings_table,
    describe_declared,
    explain_layout,
    explain_layouts,
)
from pgdyno.report.sections.disk.tables import efficiency_table, layout_of
from pgdyno.report.table import Table

_NOT_HELD = "The disk was not measured here, so nothing is compared with the declaration."


def declared_tables(report: ReportInput) -> tuple[Table, ...]:
    """Build the tables of what the declared layout allows at most, with the measured figures beside it."""
    layout = _find_layout(report)
    found = {
        "Declared limits of the data disk": None if layout is None else ceilings_table(layout),
        "Data disk, measured and declared": None if report.disk is None else efficiency_table(report.disk),
    }
    return tuple(
        msgspec.structs.replace(table, caption=caption) for caption, table in found.items() if table is not None
    )


def explain_declared(report: ReportInput) -> Iterator[str]:
    """Explain those tables: what is declared, how the measured figures compare with it, and what it costs."""
    yield from compare_with_declared(report)
    layout = _find_layout(report)
    if layout is not None:
        yield from explain_layout(layout)
        yield from explain_layouts([layout])


def compare_with_declared(report: ReportInput) -> tuple[str, ...]:
    """Compare the card with its declared limits: `random reads, 8 kB: 19,000 of 12,000 IOPS, 158 % (burst)`."""
    layout, view = _find_layout(report), report.disk
    declared = None if layout is None or layout.declared is None else describe_declared(layout.declared)
    limits = layout.limits if layout is not None else None if view is None else view.limits
    where = f", on {limits.name}" if limits is not None else ""
    held = () if view is None else view.efficiencies
    if declared is None and not held:
        return ()
    what = f"Declared of this disk: {declared or 'no volume'}{where}."
    if view is None:
        return (f"{what} {_NOT_HELD}",)
    return (what,) if not held else (what, f"Measured, sustained: {'; '.join(map(_describe, held))}.")


def _find_layout(report: ReportInput) -> LayoutView | None:
    """Return the layout of the card or, where the disk was not measured, that of the host."""
    if report.disk is not None:
        return layout_of(report.disk)
    host = report.record.study.host
    if host is None or host.disk is None:
        return None
    limits = limits_of(host) if host.disk.disk_kind == "network-ssd" else None
    ceilings = compute_ceilings(host.disk, limits, region=host.region)
    return LayoutView(title="data", declared=host.disk, limits=limits, ceilings=ceilings)


def _describe(one: Efficiency) -> str:
    measured, lasts = (
        show_like(one.key, one.measured, value) for value in (one.measured.value or 0.0, one.ceiling.value)
    )
    ratio = "" if one.ratio.value is None else f", {format_percent(one.ratio.value)}"
    return f"{ENTRY_WORDS[one.key]}: {measured} of {lasts}{ratio} ({one.standing.value})"

"""Build the sections on the statements of each load, as pg_stat_statements counted them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pgdyno.analyse.estimate import map_estimate
from pgdyno.analyse.statements import StatementUse, rank_statements
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report.document import Section
from pgdyno.report.format import format_count, format_estimate, format_number
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.table import Cell, Table, columns, number, text

_WIDTH = 48
_REMARK = (
    "Shares of the execution time of all statements, with 95 % intervals over trials. Planning, the flush of a commit's "
    "WAL, and the way to the client are not in it."
)


def build_statements(report: ReportInput) -> Iterator[Section]:
    """Yield the section of each load whose statements were counted."""
    # One table for each variant would bury the verdicts on a terminal.
    level = Level.HEADLINE if report.record.plan.experiment is None else Level.STANDARD
    for place, workload in enumerate(report.analysis.workloads, start=1):
        table = _make_table(workload, level)
        if table is not None:
            yield Section(
                title=f"Statements of {workload.name}", id=f"statements{place}", blocks=(table,), is_listed=True
            )


def _make_table(workload: WorkloadAnalysis, level: Level) -> Table | None:
    uses = rank_statements(workload.trials)
    if not uses:
        return None
    details = ("ms per call", "Calls per transaction", "Rows per call", "Pages read per call", "WAL bytes per call")
    return Table(
        caption="Statements",
        columns=columns("Statement", "Share, %", *details, numbers_from=1, details=details),
        rows=tuple(_make_row(use) for use in uses),
        remark=_REMARK,
        level=level,
        is_captioned=False,
    )


def _make_row(use: StatementUse) -> tuple[Cell, ...]:
    query = use.query
    shown = format_estimate(map_estimate(use.share, lambda ratio: ratio * 100))
    return (
        text("others") if query is None else Cell(text=textwrap.shorten(query, _WIDTH, placeholder=" …"), is_code=True),
        Cell(text=shown.value, detail=shown.interval),
        text(format_number(use.mean_ms)),
        number(use.calls_per_transaction, format_number, "the transactions were not counted"),
        text(format_number(use.rows_per_call)),
        text(format_number(use.read_pages_per_call)),
        text(format_count(use.wal_bytes_per_call)),
    )

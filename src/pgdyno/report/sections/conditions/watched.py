"""Build the table of how the machine of a given server was watched."""

from __future__ import annotations

from pgdyno.report.clock_words import format_offset
from pgdyno.report.format import format_seconds
from pgdyno.report.host_words import name_load_machine
from pgdyno.report.input import ReportInput
from pgdyno.report.table import Cell, Table, code, columns, text


def watched_table(report: ReportInput) -> Table | None:
    """Build the table of how the machine of a given server was watched; None where it was not."""
    watched = report.record.server_host
    if watched is None:
        return None
    clocks = [trial.server_clock for trial in report.analysis.trials if trial.server_clock is not None]
    is_same = watched.is_load_host and not report.record.load_hosts
    rows: list[tuple[Cell, ...]] = [
        (text("Reached by"), code(f"ssh {watched.ssh}")),
        (text("Watched with"), text(f"Python {watched.python}, which was sent there and left nothing")),
        (text("The load came from"), text("the same machine" if is_same else name_load_machine(report.record))),
    ]
    if clocks:
        worst = max(clocks, key=lambda one: one.uncertainty_s)
        rows.append((text("Its clock, ahead of the load's"), text(f"{format_offset(clocks[0])}, in the first trial")))
        rows.append((text("Largest error of its times"), text(format_seconds(worst.uncertainty_s))))
    remark = "Its samples are on its own clock in the record, and are converted when the record is read."
    return Table(caption="Watched by ssh", columns=columns("", "Value"), rows=tuple(rows), remark=remark)

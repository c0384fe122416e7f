"""Build the table of a study's preflight: all that was found before the first trial, and what could not be checked."""

from __future__ import annotations

from pgdyno.errors import with_program
from pgdyno.explain.preflight.study import list_obstacles
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.preflight import name_severity, summarise
from pgdyno.report.table import Table, columns, text


def preflight_table(report: ReportInput) -> Table | None:
    """Build the table of a study's preflight; None for records that have none."""
    facts = report.record.preflight
    if facts is None:
        return None
    findings = list_obstacles(report.record, report.analysis)
    program = next(iter(report.record.command), "pgdyno")
    rows = [
        (
            text(name_severity(finding)),
            text(finding.claim),
            text(finding.evidence),
            text(finding.why),
            text(with_program(finding.advice, program)),
        )
        for finding in findings
    ]
    rows += [(text("not checked"), text(one.what), text(one.reason), text(None), text(None)) for one in facts.unseen]
    return Table(
        caption="Preflight: state of the machine before the first trial",
        columns=columns("", "What", "Seen", "Effect", "Fix"),
        rows=tuple(rows),
        remark=f"In all: {summarise(findings)}.",
    )

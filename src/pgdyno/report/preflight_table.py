"""The preflight as a table of a study's report."""

from __future__ import annotations

from collections.abc import Sequence

from pgdyno.explain.finding import Finding
from pgdyno.record.preflight import PreflightFacts
from pgdyno.report.preflight import SEVERITY_WORDS, summarise
from pgdyno.report.table import Table, columns, text


def preflight_table(findings: Sequence[Finding], facts: PreflightFacts | None) -> Table | None:
    """What a study's preflight found and what it could not see, for a report; None where there was none.

    Args:
        findings: Of `find_obstacles` over the record's own facts.
        facts: Those of the record.
    """
    if facts is None:
        return None
    rows = [
        (
            text(SEVERITY_WORDS[finding.severity]),
            text(finding.claim),
            text(finding.evidence),
            text(finding.why),
            text(finding.advice),
        )
        for finding in findings
    ]
    rows += [(text("not seen"), text(one.what), text(one.reason), text(""), text("")) for one in facts.unseen]
    return Table(
        caption="Before the first trial",
        columns=columns("", "What", "Seen", "Why it matters", "How to mend it"),
        rows=tuple(rows),
        remark=f"In all: {summarise(findings)}.",
    )

"""Name how grave a finding of the preflight is, in the same words on the terminal, in `check` and in reports."""

from __future__ import annotations

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.given_rules import SLOW_NOTHING
from pgdyno.explain.preflight.version import UNTRIED_VERSION

SEVERITY_WORDS = {Severity.CRITICAL: "problem", Severity.WARNING: "costs speed", Severity.NOTE: "note"}
"""What a finding of each severity is for what is going to be measured; a problem invalidates it."""
NOT_TRIED = "not tried"
"""Of a PostgreSQL newer than the versions that pgdyno was tried with."""
WARNS = "warning"
"""Of a warning that is not about speed."""


def name_severity(finding: Finding) -> str:
    """Name a finding's weight in a word or two."""
    if finding.severity is Severity.WARNING and finding.rule in SLOW_NOTHING:
        return WARNS
    return NOT_TRIED if finding.rule == UNTRIED_VERSION else SEVERITY_WORDS[finding.severity]

"""The preflight as people and programs read it: `pgdyno check` on the terminal and as JSON.

The words of severity are the preflight's own: what a report calls critical would spoil a measurement, a warning costs
speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts, Unseen
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.terminal_parts import SEVERITY_STYLES

CHECK_VERSION = 1
SEVERITY_WORDS = {Severity.CRITICAL: "spoils", Severity.WARNING: "costs speed", Severity.NOTE: "note"}
MEANINGS = {Severity.CRITICAL: "spoils the figures", Severity.WARNING: "costs speed", Severity.NOTE: "worth knowing"}
"""What a finding of each severity means for what is going to be measured."""
_COUNTED = {
    Severity.CRITICAL: ("would spoil a measurement", "would spoil a measurement"),
    Severity.WARNING: ("costs speed", "cost speed"),
    Severity.NOTE: ("is worth knowing", "are worth knowing"),
}


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A finding for programs."""

    rule: str
    severity: str
    """`spoils`, `costs speed` or `note`."""
    claim: str
    seen: str
    why: str
    mend: str
    workload: str | None


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `pgdyno check --json` prints. Fields may be added; none is renamed without a new version."""

    format: str = "pgdyno-check"
    version: int = CHECK_VERSION
    subject: str
    would_spoil: bool
    findings: tuple[FindingDocument, ...]
    unseen: tuple[Unseen, ...]
    host: HostFacts
    facts: PreflightFacts


def check_document(
    subject: str, findings: Sequence[Finding], *, host: HostFacts, facts: PreflightFacts
) -> CheckDocument:
    """A preflight for programs, with all that was seen."""
    return CheckDocument(
        subject=subject,
        would_spoil=any(finding.severity is Severity.CRITICAL for finding in findings),
        findings=tuple(
            FindingDocument(
                rule=finding.rule,
                severity=SEVERITY_WORDS[finding.severity],
                claim=finding.claim,
                seen=finding.evidence,
                why=finding.why,
                mend=finding.advice,
                workload=finding.workload,
            )
            for finding in findings
        ),
        unseen=facts.unseen,
        host=host,
        facts=facts,
    )


def render_check(subject: str, findings: Sequence[Finding], facts: PreflightFacts) -> RenderableType:
    """A preflight for the terminal: the gravest first, each with what was seen, why it matters and how to mend it."""
    lines: list[RenderableType] = [Paragraph(subject, by=0), ""]
    for finding in findings:
        lines += _render_finding(finding)
    if facts.unseen:
        lines.append(Text("not seen", style="bold"))
        lines += [Paragraph(f"{one.what}: {one.reason}") for one in facts.unseen]
        lines.append("")
    took = "" if facts.took_s is None else f" (looked for {facts.took_s:.1f} s)"
    lines.append(Text(f"{summarise(findings)}{took}"))
    return Group(*lines)


def summarise(findings: Sequence[Finding]) -> str:
    """`2 would spoil a measurement, 1 costs speed, 3 are worth knowing`."""
    counts = Counter(finding.severity for finding in findings)
    parts = [
        f"{counts[severity]} {_COUNTED[severity][0 if counts[severity] == 1 else 1]}"
        for severity in Severity
        if counts[severity]
    ]
    return ", ".join(parts) or "nothing stands in the way of a measurement"


def _render_finding(finding: Finding) -> list[RenderableType]:
    of = f" ({finding.workload})" if finding.workload else ""
    head = Text.assemble(
        (f"{SEVERITY_WORDS[finding.severity]}: ", SEVERITY_STYLES[finding.severity]), finding.claim, of
    )
    parts = (("seen", finding.evidence), ("why", finding.why), ("mend", finding.advice))
    return [Paragraph(head, by=0), *(Paragraph(f"{name}: {words}") for name, words in parts if words), ""]

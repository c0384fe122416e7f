"""Make the published document of a preflight: `pgdyno check --json`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts, Unseen
from pgdyno.report.severity_words import name_severity

CHECK_VERSION = 1


class FindingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of the preflight."""

    rule: str
    severity: str
    """`spoils`, `costs speed`, `warning` of what is not about speed, `note`, or `not tried` of a PostgreSQL newer than the versions that pgdyno was tried with."""
    claim: str
    seen: str
    why: str
    mend: str
    workload: str | None


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno check --json`. Fields may be added; renaming one needs a new version."""

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
    """Return a preflight as a document, with everything that was observed."""
    return CheckDocument(
        subject=subject,
        would_spoil=would_spoil(findings),
        findings=tuple(map(describe_finding, findings)),
        unseen=facts.unseen,
        host=host,
        facts=facts,
    )


def would_spoil(findings: Sequence[Finding]) -> bool:
    """Return whether a finding would invalidate a measurement."""
    return any(finding.severity is Severity.CRITICAL for finding in findings)


def describe_finding(finding: Finding) -> FindingDocument:
    """Return a finding as documents show it."""
    return FindingDocument(
        rule=finding.rule,
        severity=name_kept_severity(finding),
        claim=finding.claim,
        seen=finding.evidence,
        why=finding.why,
        mend=finding.advice,
        workload=finding.workload,
    )


def name_kept_severity(finding: Finding) -> str:
    """Name a finding's severity as documents do, where a problem keeps its first name."""
    return "spoils" if finding.severity is Severity.CRITICAL else name_severity(finding)

"""Make the published documents of `pgdyno check --json`: of a preflight, and of a server that a connection string names."""

from __future__ import annotations

import msgspec

from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rules import should_wait
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.record.machine.host_facts import HostFacts
from pgdyno.record.machine.preflight import PreflightFacts, Unseen
from pgdyno.report.severity_words import name_severity

CHECK_VERSION = 1
GIVEN_CHECK_VERSION = 1


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


class GivenCheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno check --dsn --json`. Fields may be added; renaming one needs a new version."""

    format: str = "pgdyno-check-server"
    version: int = GIVEN_CHECK_VERSION
    subject: str
    would_spoil: bool
    findings: tuple[FindingDocument, ...]
    server: GivenServer


def check_document(
    subject: str, findings: tuple[Finding, ...], *, host: HostFacts, facts: PreflightFacts
) -> CheckDocument:
    """Return a preflight as a document, with everything that was observed."""
    return CheckDocument(
        subject=subject,
        would_spoil=should_wait(findings),
        findings=tuple(map(describe_finding, findings)),
        unseen=facts.unseen,
        host=host,
        facts=facts,
    )


def given_check_document(subject: str, findings: tuple[Finding, ...], server: GivenServer) -> GivenCheckDocument:
    """Return what was seen of a server as a document."""
    return GivenCheckDocument(
        subject=subject,
        would_spoil=should_wait(findings),
        findings=tuple(map(describe_finding, findings)),
        server=server,
    )


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

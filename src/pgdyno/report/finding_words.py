"""Findings as a report shows them: the gravest first, and a claim that several workloads share made once."""

from __future__ import annotations

import msgspec

from pgdyno.explain.finding import Finding, Severity
from pgdyno.report.input import ReportInput

_EVERYWHERE = "everywhere"
# Of one workload under every variant there are soon more than anybody would read.
_MOST_NAMED = 3
_MOST_EVIDENCE = 4


class FindingText(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, once for all workloads that it holds for; none is the whole study."""

    severity: Severity
    """The worst of theirs."""
    claim: str
    evidence: tuple[str, ...]
    """A line for all workloads, or one for each with its name before it where they differ: the first of them."""
    advice: str
    workloads: tuple[str, ...]


def list_findings(report: ReportInput) -> tuple[FindingText, ...]:
    """Findings, the gravest first; a claim that several workloads share is made once."""
    shared: dict[tuple[str, str], list[Finding]] = {}
    for severity in Severity:
        for finding in report.findings:
            if finding.severity is severity:
                shared.setdefault((finding.claim, finding.advice), []).append(finding)
    return tuple(
        FindingText(
            severity=findings[0].severity,
            claim=claim,
            evidence=_list_evidence(findings),
            advice=advice,
            workloads=_name_places(_named(findings), report),
        )
        for (claim, advice), findings in shared.items()
    )


def _named(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.workload for finding in findings if finding.workload is not None))


def _list_evidence(findings: list[Finding]) -> tuple[str, ...]:
    seen: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.evidence:
            seen.setdefault(finding.evidence, []).append(finding)
    if len(seen) <= 1:
        return tuple(seen)
    lines = [": ".join(filter(None, (_join_places(_named(of)), evidence))) for evidence, of in seen.items()]
    more = len(lines) - _MOST_EVIDENCE
    return tuple(lines) if more <= 1 else (*lines[:_MOST_EVIDENCE], f"{more} more like these are in report.json")


def _join_places(names: tuple[str, ...]) -> str:
    # The trials of single variants are called by workload and variant, with a comma.
    return "; ".join(names) if any(", " in name for name in names) else ", ".join(names)


def _name_places(names: tuple[str, ...], report: ReportInput) -> tuple[str, ...]:
    everywhere = {workload.name for workload in report.analysis.workloads}
    if len(names) > _MOST_NAMED and set(names) == everywhere:
        return (_EVERYWHERE,)
    more = len(names) - _MOST_NAMED
    return names if more <= 1 else (*names[:_MOST_NAMED], f"{more} others")

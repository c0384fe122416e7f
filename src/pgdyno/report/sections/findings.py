"""Findings as a report shows them, a claim that several workloads share made once.

Doubts, which weaken the figures, and explanations, which say what made them, are two lists; nothing is in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pgdyno.analyse.bottleneck.time_share import Certainty
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.finding import Finding, Rival, Severity
from pgdyno.report.document import Claim, Claims, Link, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.links import find_places
from pgdyno.report.shared_end import join_by_place, split_shared_end

EVERYWHERE = "everywhere"
# Of one workload under every variant there are soon more than anybody would read.
_MOST_NAMED = 3
_MOST_EVIDENCE = 4
_CLAUSE = "; "
_MOST_LEAD = 150
_CERTAINTIES = {
    Certainty.PROVEN: ("proven", "green"),
    Certainty.STRONG: ("strong", "blue"),
    Certainty.LIKELY: ("likely", "amber"),
    Certainty.UNKNOWN: ("not known", "slate"),
}


class FindingText(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, once for all workloads that it holds for; none is the whole study."""

    severity: Severity
    """The worst of theirs."""
    claim: str
    evidence: tuple[str, ...]
    """A line for all workloads, or one for each with its name before it where they differ: the first of them."""
    advice: str
    workloads: tuple[str, ...]
    rule: str
    certainty: Certainty | None
    rivals: tuple[Rival, ...]
    confirm: str
    gain: str
    gain_ratio: float | None
    is_gain_proven: bool
    places: tuple[Link, ...]
    why: str
    names: tuple[str, ...]
    """All of its workloads, by their whole names."""

    @property
    def lead(self) -> tuple[str, ...]:
        """Of all evidence what everybody reads."""
        parts, end = split_shared_end([_split(words)[0] for words in self.evidence])
        return (*parts, f"each: {end}") if end else parts

    @property
    def rest(self) -> tuple[str, ...]:
        """The rest of it, for whoever wants to know."""
        return tuple(rest for words in self.evidence if (rest := _split(words)[1]))

    @property
    def of(self) -> str:
        """The workloads as they stand beside the claim; empty for the whole study."""
        return join_places(self.workloads)

    @property
    def badge(self) -> str:
        """How sure it is; of what was counted, how much it matters."""
        return self.severity.value if self.certainty is None else _CERTAINTIES[self.certainty][0]

    @property
    def hue(self) -> str:
        """The colour of its badge."""
        return self.severity.value if self.certainty is None else _CERTAINTIES[self.certainty][1]


def list_findings(report: ReportInput) -> tuple[FindingText, ...]:
    """What weakens the figures, the gravest first."""
    order = list(Severity)
    return _tell(sorted(report.findings, key=lambda finding: order.index(finding.severity)), report)


def list_explanations(report: ReportInput) -> tuple[FindingText, ...]:
    """What makes the figures what they are: what limits each load first, then the gravest of what else was found."""
    order, told = list(Severity), {workload.name for workload in list_explained(report)}
    found = [one for one in report.explanations if one.rule != LIMITS or one.workload is None or one.workload in told]
    return _tell(sorted(found, key=lambda one: (one.rule != LIMITS, order.index(one.severity))), report)


def build_findings(report: ReportInput) -> Iterator[Section]:
    """Yield the section on what weakens the figures; nothing where nothing does."""
    findings = list_findings(report)
    if findings:
        claims = Claims(claims=tuple(make_claim(one, advice=one.advice) for one in findings))
        yield Section(title="What weakens the figures", id="findings", blocks=(claims,), is_listed=True)


def make_claim(one: FindingText, *, advice: str = "", anchor: str = "") -> Claim:
    """Return a finding as a claim.

    Args:
        one: The finding.
        advice: What to do about it, where no list of steps says it.
        anchor: The id of the claim.
    """
    return Claim(
        badge=one.badge,
        hue=one.hue,
        claim=one.claim,
        of=one.of,
        evidence=one.lead,
        detail=tuple(words for words in (*one.rest, one.why) if words),
        rivals=tuple(f"{rival.cause} ({rival.against})" for rival in one.rivals),
        settle=one.confirm,
        advice=advice,
        links=one.places,
        id=anchor,
        is_brief=one.certainty is None and one.severity is Severity.NOTE,
    )


def list_explained(report: ReportInput) -> tuple[WorkloadAnalysis, ...]:
    """The loads that are explained one by one: of a search those in a closed loop, whose limit is the server's own."""
    if report.record.plan.search is None:
        return report.analysis.workloads
    return tuple(workload for workload in report.analysis.workloads if workload.load.rate_tps is None)


def _tell(findings: Iterable[Finding], report: ReportInput) -> tuple[FindingText, ...]:
    shared: dict[tuple[str, str, Certainty | None], list[Finding]] = {}
    for finding in findings:
        shared.setdefault((finding.claim, finding.advice, finding.certainty), []).append(finding)
    return tuple(_tell_one(alike, report) for alike in shared.values())


def _tell_one(alike: list[Finding], report: ReportInput) -> FindingText:
    first = alike[0]
    rivals = {rival.cause: rival for finding in reversed(alike) for rival in reversed(finding.rivals)}
    # The charts of two trials are as many as one would compare.
    places = dict.fromkeys(place for finding in alike[:2] for place in find_places(finding, report))
    # Gains of several workloads differ: the first stands for them only where they are alike.
    gains = {finding.gain for finding in alike}
    return FindingText(
        severity=first.severity,
        claim=first.claim,
        evidence=_list_evidence(alike),
        advice=first.advice,
        workloads=name_workloads(_named(alike), report),
        rule=first.rule,
        certainty=first.certainty,
        rivals=tuple(reversed(rivals.values())),
        confirm=first.confirm,
        gain=join_by_place((one.workload or "", one.gain) for one in alike if one.gain)
        if len(gains) > 1
        else first.gain,
        gain_ratio=max((one.gain_ratio for one in alike if one.gain_ratio is not None), default=None),
        is_gain_proven=all(one.is_gain_proven for one in alike),
        places=tuple(places),
        why=first.why,
        names=_named(alike),
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
    lines = [": ".join(filter(None, (join_places(_named(of)), evidence))) for evidence, of in seen.items()]
    more = len(lines) - _MOST_EVIDENCE
    return tuple(lines) if more <= 1 else (*lines[:_MOST_EVIDENCE], f"{more} more like these are in report.json")


def join_places(names: tuple[str, ...]) -> str:
    """Workloads in a list: those of single variants have a comma of their own."""
    return "; ".join(names) if any(", " in name for name in names) else ", ".join(names)


def _split(words: str) -> tuple[str, str]:
    """The first clauses of evidence, as many as a reader takes at once, and the others."""
    first, *clauses = words.split(_CLAUSE)
    while clauses and len(first) + len(clauses[0]) <= _MOST_LEAD:
        first = f"{first}{_CLAUSE}{clauses.pop(0)}"
    return first, _CLAUSE.join(clauses)


def name_workloads(names: tuple[str, ...], report: ReportInput) -> tuple[str, ...]:
    """Names of workloads as one would read them: one name for all variants of one, a few of many."""
    by_load: dict[str, set[str]] = {}
    for workload in report.analysis.workloads:
        by_load.setdefault(workload.load.name, set()).add(workload.name)
    if len(names) > _MOST_NAMED and set(names) >= {name for of in by_load.values() for name in of}:
        return (EVERYWHERE,)
    whole = {name: load for load, of in by_load.items() if len(of) > 1 and of <= set(names) for name in of}
    names = tuple(dict.fromkeys(whole.get(name, name) for name in names))
    more = len(names) - _MOST_NAMED
    return names if more <= 1 else (*names[:_MOST_NAMED], f"{more} others")

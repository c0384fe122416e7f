"""Present findings; a claim that several workloads share appears once.

Findings that weaken the figures and findings that explain them are two separate lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.capacity import CEILING
from pgdyno.explain.finding import Finding, Rival, Severity
from pgdyno.report.document import Claim, Claims, Link, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.lists import join_by_place, split_shared_end
from pgdyno.report.sections.links import find_places

EVERYWHERE = "everywhere"
# The most workloads beside a claim: one workload under every variant would make a long list.
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
    """A finding, merged over all workloads that it holds for; no workload means the whole study."""

    severity: Severity
    """The worst severity of the merged findings."""
    claim: str
    evidence: tuple[str, ...]
    """A line for all workloads, or a line for each with its name where they differ."""
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
    """The full names of all workloads."""

    @property
    def lead(self) -> tuple[str, ...]:
        """The main part of the evidence."""
        parts, end = split_shared_end([_split(words)[0] for words in self.evidence])
        return (*parts, f"each: {end}") if end else parts

    @property
    def rest(self) -> tuple[str, ...]:
        """The rest of the evidence."""
        return tuple(rest for words in self.evidence if (rest := _split(words)[1]))

    @property
    def of(self) -> str:
        """The workloads beside the claim; empty for the whole study."""
        return join_places(self.workloads)

    @property
    def badge(self) -> str:
        """The certainty; of a count, its severity."""
        return self.severity.value if self.certainty is None else _CERTAINTIES[self.certainty][0]

    @property
    def hue(self) -> str:
        """The colour of the badge."""
        return self.severity.value if self.certainty is None else _CERTAINTIES[self.certainty][1]


def list_findings(report: ReportInput) -> tuple[FindingText, ...]:
    """Return what weakens the figures, the gravest first."""
    order = list(Severity)
    return _tell(sorted(report.findings, key=lambda finding: order.index(finding.severity)), report)


def list_explanations(report: ReportInput) -> tuple[FindingText, ...]:
    """Return what explains the figures: the limit of each load first, then the gravest of the rest, further limits last.

    A load whose limit is known may be near a bound of another resource, too: that does not stand beside its limit.
    """
    order, told = list(Severity), {workload.name for workload in list_explained_workloads(report)}
    found = [one for one in report.explanations if one.rule != LIMITS or one.workload is None or one.workload in told]
    found.sort(key=lambda one: (one.rule != LIMITS, order.index(one.severity)))
    limited = list_limited_loads(report)
    further = [one for one in found if one.rule == CEILING and one.workload in limited]
    return (*_tell([one for one in found if one not in further], report), *_tell(further, report))


def list_limited_loads(report: ReportInput) -> frozenset[str]:
    """Return the names of the loads whose limit is known, under each variant and as a whole."""
    known = {
        one.workload for one in report.explanations if one.rule == LIMITS and one.certainty is not Certainty.UNKNOWN
    }
    of = [workload for workload in list_explained_workloads(report) if workload.name in known]
    return frozenset(name for workload in of for name in (workload.name, workload.load.name))


def build_findings(report: ReportInput) -> Iterator[Section]:
    """Yield the section on what weakens the figures; nothing where there is no such finding."""
    findings = list_findings(report)
    if findings:
        claims = Claims(claims=tuple(make_claim(one, advice=one.advice) for one in findings))
        yield Section(title="Measurement quality", id="findings", blocks=(claims,), is_listed=True)


def make_claim(one: FindingText, *, advice: str = "", anchor: str = "") -> Claim:
    """Return a finding as a claim.

    Args:
        one: The finding to show.
        advice: The advice, where no list of steps contains it.
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


def list_explained_workloads(report: ReportInput) -> tuple[WorkloadAnalysis, ...]:
    """Return the loads that are explained one by one: of a search those in a closed loop, which the server limits."""
    if report.record.plan.search is None:
        return report.analysis.workloads
    return tuple(workload for workload in report.analysis.workloads if workload.load.rate_tps is None)


def _tell(findings: Iterable[Finding], report: ReportInput) -> tuple[FindingText, ...]:
    shared: dict[tuple[str, str, Certainty | None], list[Finding]] = {}
    for finding in findings:
        shared.setdefault((finding.claim, finding.advice, finding.certainty), []).append(finding)
    return tuple(_merge_findings(alike, report) for alike in shared.values())


def _merge_findings(alike: list[Finding], report: ReportInput) -> FindingText:
    first = alike[0]
    rivals = {rival.cause: rival for finding in reversed(alike) for rival in reversed(finding.rivals)}
    # A reader compares the charts of at most two trials.
    places = dict.fromkeys(place for finding in alike[:2] for place in find_places(finding, report))
    # The gains of several workloads differ: the first stands for all only where they are equal.
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
    """Join workloads in a list: names of single variants contain commas."""
    return "; ".join(names) if any(", " in name for name in names) else ", ".join(names)


def _split(words: str) -> tuple[str, str]:
    """Split evidence into its first clauses, as many as a reader takes in at once, and the rest."""
    first, *clauses = words.split(_CLAUSE)
    while clauses and len(first) + len(clauses[0]) <= _MOST_LEAD:
        first = f"{first}{_CLAUSE}{clauses.pop(0)}"
    return first, _CLAUSE.join(clauses)


def name_workloads(names: tuple[str, ...], report: ReportInput) -> tuple[str, ...]:
    """Shorten names of workloads: one name for all variants of one, a few of many."""
    by_load: dict[str, set[str]] = {}
    for workload in report.analysis.workloads:
        by_load.setdefault(workload.load.name, set()).add(workload.name)
    if len(names) > _MOST_NAMED and set(names) >= {name for of in by_load.values() for name in of}:
        return (EVERYWHERE,)
    whole = {name: load for load, of in by_load.items() if len(of) > 1 and of <= set(names) for name in of}
    names = tuple(dict.fromkeys(whole.get(name, name) for name in names))
    more = len(names) - _MOST_NAMED
    return names if more <= 1 else (*names[:_MOST_NAMED], f"{more} others")

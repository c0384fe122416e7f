"""Present findings; a claim that several workloads share appears once.

Findings that weaken the figures and findings that explain them are two separate lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.capacity import CEILING
from pgdyno.explain.finding import Finding, Rival, Severity, worst_first
from pgdyno.report.document import Claim, Claims, Link, Section
from pgdyno.report.input import ReportInput
from pgdyno.report.lists import join_by_place, split_shared_end
from pgdyno.report.sections.links import find_places

EVERYWHERE = "everywhere"
# The most workloads beside a claim: one workload under every variant would make a long list.
_MOST_NAMED = 3
_MOST_EVIDENCE = 4
_CLAUSE = "; "
# Characters of the clauses that are shown first.
_MOST_LEAD = 150
_CERTAINTIES = {
    Certainty.PROVEN: ("proven", "green"),
    Certainty.STRONG: ("strong", "blue"),
    Certainty.LIKELY: ("likely", "amber"),
    Certainty.UNKNOWN: ("not known", "slate"),
}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of some workloads."""

    place: str = ""
    """Their names; empty where nothing else was seen of others."""
    lead: str
    """The first clauses, as many as a reader takes in at once."""
    rest: tuple[str, ...]
    """The other clauses."""


class FindingText(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, merged over all workloads that it holds for; no workload means the whole study."""

    severity: Severity
    """The worst severity of the merged findings."""
    claim: str
    evidence: tuple[Evidence, ...]
    """What was seen of all workloads, or of each where that differs."""
    advice: str
    workloads: tuple[str, ...]
    rule: str
    certainty: Certainty | None
    rivals: tuple[Rival, ...]
    confirm: str
    gain: str
    gains: tuple[tuple[str, str], ...]
    """The gain on each workload that has one, with its name."""
    gain_ratio: float | None
    is_gain_proven: bool
    places: tuple[Link, ...]
    why: tuple[str, ...]
    """Its effect, of each workload where that differs."""
    names: tuple[str, ...]
    """The full names of all workloads."""

    @property
    def lead(self) -> tuple[str, ...]:
        """The main part of the evidence."""
        parts, end = split_shared_end([_name(one.place, one.lead) for one in self._told])
        left = len(self.evidence) - len(parts)
        more = (f"{left} more like these are in report.json",) if left else ()
        return (*parts, *((f"each: {end}",) if end else ()), *more)

    @property
    def rest(self) -> tuple[str, ...]:
        """The rest of the evidence: what is the same for all workloads, and then what is not."""
        told = self._told
        shared = [clause for clause in told[0].rest if all(clause in one.rest for one in told)] if len(told) > 1 else []
        own = ((one.place, [clause for clause in one.rest if clause not in shared]) for one in told)
        lines = [_name(place, _CLAUSE.join(clauses)) for place, clauses in own if clauses]
        return (f"each: {_CLAUSE.join(shared)}", *lines) if shared else tuple(lines)

    @property
    def _told(self) -> tuple[Evidence, ...]:
        """The evidence that is shown: that of many workloads would make a long list."""
        return self.evidence if len(self.evidence) <= _MOST_EVIDENCE + 1 else self.evidence[:_MOST_EVIDENCE]

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
    return _tell(worst_first(report.findings), report)


def list_explanations(report: ReportInput) -> tuple[FindingText, ...]:
    """Return what explains the figures: the limit of each load first, then the gravest of the rest, further limits last.

    A load whose limit is known may be near a bound of another resource, too: that does not stand beside its limit.
    """
    told = {workload.name for workload in list_explained_workloads(report)}
    found = [one for one in report.explanations if one.rule != LIMITS or one.workload is None or one.workload in told]
    found.sort(key=lambda one: (one.rule != LIMITS, one.severity.rank))
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
        detail=(*one.rest, *one.why),
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
    causes = dict.fromkeys(rival.cause for finding in alike for rival in finding.rivals)
    # A reader compares the charts of at most two trials.
    places = dict.fromkeys(place for finding in alike[:2] for place in find_places(finding, report))
    # The gains of several workloads differ: the first stands for all only where they are equal.
    gains = tuple((one.workload or "", one.gain) for one in alike if one.gain)
    return FindingText(
        severity=first.severity,
        claim=first.claim,
        evidence=_list_evidence(alike),
        advice=first.advice,
        workloads=name_workloads(_named(alike), report),
        rule=first.rule,
        certainty=first.certainty,
        rivals=tuple(_merge_rival(alike, cause) for cause in causes),
        confirm=next((one.confirm for one in alike if one.confirm), ""),
        gain=join_by_place(gains) if len({one.gain for one in alike}) > 1 else first.gain,
        gains=gains,
        gain_ratio=max((one.gain_ratio for one in alike if one.gain_ratio is not None), default=None),
        is_gain_proven=all(one.is_gain_proven for one in alike),
        places=tuple(places),
        why=_list_of_each(alike, lambda finding: finding.why),
        names=_named(alike),
    )


def _named(findings: list[Finding]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(finding.workload for finding in findings if finding.workload is not None))


def _list_evidence(findings: list[Finding]) -> tuple[Evidence, ...]:
    seen = _group(findings, lambda finding: finding.evidence)
    return tuple(_split(words, place=join_places(_named(of)) if len(seen) > 1 else "") for words, of in seen.items())


def _merge_rival(findings: list[Finding], cause: str) -> Rival:
    """Return a rival cause with what speaks against it, of each workload where that differs."""
    told = _list_of_each(
        findings, lambda finding: next((rival.against for rival in finding.rivals if rival.cause == cause), "")
    )
    return Rival(cause=cause, against=_CLAUSE.join(told))


def _list_of_each(findings: list[Finding], read: Callable[[Finding], str]) -> tuple[str, ...]:
    """List what findings say, with the workloads where it is not the same of all."""
    told = _group(findings, read)
    is_of_all = len(told) < 2 and all(map(read, findings))
    lines = [_name("" if is_of_all else join_places(_named(of)), words) for words, of in told.items()]
    return tuple(lines[:_MOST_EVIDENCE])


def _group(findings: list[Finding], read: Callable[[Finding], str]) -> dict[str, list[Finding]]:
    """Group findings by what they say; those that say nothing are left out."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        if words := read(finding):
            groups.setdefault(words, []).append(finding)
    return groups


def _split(words: str, *, place: str) -> Evidence:
    lead, *clauses = words.split(_CLAUSE)
    while clauses and len(lead) + len(clauses[0]) <= _MOST_LEAD:
        lead = f"{lead}{_CLAUSE}{clauses.pop(0)}"
    return Evidence(place=place, lead=lead, rest=tuple(clauses))


def _name(place: str, words: str) -> str:
    return f"{place}: {words}" if place else words


def join_places(names: tuple[str, ...]) -> str:
    """Join names of workloads, by semicolons where a name has a comma, as that of a workload under one variant does."""
    return "; ".join(names) if any(", " in name for name in names) else ", ".join(names)


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

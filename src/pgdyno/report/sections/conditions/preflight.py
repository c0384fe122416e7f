"""Build what `pgdyno check` shows on the terminal.

Its words for severity are in `severity_words`: a problem invalidates a measurement, and most warnings cost speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.machine.preflight import PreflightFacts
from pgdyno.report.document import Claim, Claims, Document, Prose, Section
from pgdyno.report.severity_words import NOT_TRIED, SEVERITY_WORDS, WARNS, name_severity

_COUNTED = {
    SEVERITY_WORDS[Severity.CRITICAL]: ("problem", "problems"),
    SEVERITY_WORDS[Severity.WARNING]: ("finding that costs speed", "findings that cost speed"),
    WARNS: ("warning", "warnings"),
    NOT_TRIED: ("version that was not tried", "versions that were not tried"),
    SEVERITY_WORDS[Severity.NOTE]: ("note", "notes"),
}


def build_check(subject: str, findings: Sequence[Finding], facts: PreflightFacts) -> Document:
    """Return the findings of a preflight, the gravest first, each with its evidence, its effect and its fix."""
    took = "" if facts.took_s is None else f" ({facts.took_s:.1f} s)"
    unseen = tuple(Prose(words=f"{one.what}: {one.reason}") for one in facts.unseen)
    claims = tuple(make_claim(finding) for finding in findings)
    return Document(
        title=subject,
        blocks=(
            Prose(words=subject),
            Claims(claims=claims),
            Section(title="Not observed", blocks=unseen),
            Prose(words=f"{summarise(findings)}{took}"),
        ),
        is_titled=False,
    )


def make_claim(finding: Finding) -> Claim:
    """Return a finding of a preflight with its evidence, its effect and its fix."""
    parts = (("observed", finding.evidence), ("why", finding.why), ("fix", finding.advice))
    return Claim(
        badge=name_severity(finding),
        hue=finding.severity.value,
        claim=finding.claim,
        of=finding.workload or "",
        evidence=tuple(f"{name}: {words}" for name, words in parts if words),
    )


def summarise(findings: Sequence[Finding]) -> str:
    """Count the findings: `2 problems, 1 finding that costs speed, 3 notes`."""
    counts = Counter(map(name_severity, findings))
    parts = [
        f"{counts[word]} {one if counts[word] == 1 else several}"
        for word, (one, several) in _COUNTED.items()
        if counts[word]
    ]
    return ", ".join(parts) or "no problem was found"

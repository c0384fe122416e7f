"""What makes a study's figures what they are: findings apart from doubts, which say what weakens them.

Each rule looks at the study and yields findings; one that lacks its evidence says so in a finding whose certainty is
unknown, or is silent. Nothing that a doubt says is said here again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgdyno.analyse.types import StudyAnalysis
from pgdyno.explain.bottleneck import find_bottlenecks
from pgdyno.explain.capacity import find_capacity_findings
from pgdyno.explain.episodes import find_episodes_beside
from pgdyno.explain.finding import Finding
from pgdyno.record.types import StudyRecord


def explain_study(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """What limits each load, what happened over time, how far from its ceiling it is: in this order, likeliest first."""
    return tuple(finding for rule in _RULES for finding in rule(record, analysis))


_RULES: tuple[Callable[[StudyRecord, StudyAnalysis], Iterable[Finding]], ...] = (
    find_bottlenecks,
    find_episodes_beside,
    find_capacity_findings,
)

"""Explain what makes a study's figures what they are; what weakens the figures is in `doubts`.

Each rule looks at the study and yields findings. A rule that lacks its evidence yields a finding of unknown certainty,
or nothing. What a doubt says is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.bottleneck import find_bottlenecks
from pgdyno.explain.capacity import find_capacity_findings
from pgdyno.explain.episodes import find_episodes_before_average
from pgdyno.explain.finding import Finding, keep_to_record
from pgdyno.explain.network import find_network_shares
from pgdyno.record.types import StudyRecord


def explain_study(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """Explain what limits each load, what happened over time, and how far it is from its ceiling, in this order."""
    return keep_to_record(record, (finding for rule in _RULES for finding in rule(record, analysis)))


_RULES: tuple[Callable[[StudyRecord, StudyAnalysis], Iterable[Finding]], ...] = (
    find_bottlenecks,
    find_network_shares,
    find_episodes_before_average,
    find_capacity_findings,
)

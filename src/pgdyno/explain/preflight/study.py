"""Apply the preflight rules to a study's record: the machine before the first trial, and the settings of its servers."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.explain.preflight.rule_input import Intent
from pgdyno.explain.preflight.rules import find_obstacles
from pgdyno.explain.preflight.version import UNTRIED_VERSION
from pgdyno.record.machine.preflight import PreflightFacts, ServerOrigin, ServerSnapshot
from pgdyno.record.types import StudyRecord

# Settings that only a running server of pgdyno's own shows. Durability is judged from the trials, variant by variant.
_SERVER_REPORTED = frozenset(
    {"huge_pages", "huge_pages_status", "shared_buffers", "shared_memory_size_in_huge_pages", "debug_assertions"}
)


def list_obstacles(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """List everything that the preflight rules find in a study's record, worst first."""
    facts = record.preflight or PreflightFacts()
    facts = msgspec.structs.replace(facts, server=_look_at_trials(record, analysis))
    dataset_bytes = record.plan.dataset_bytes if record.dataset is None else record.dataset.total_bytes
    intent = Intent(horizon_s=record.plan.predicted_s, dataset_bytes=dataset_bytes)
    # `find_version_doubts` says it, with what the trials did not find.
    return tuple(one for one in find_obstacles(record.host, facts, intent=intent) if one.rule != UNTRIED_VERSION)


def find_preflight_doubts(record: StudyRecord, analysis: StudyAnalysis) -> tuple[Finding, ...]:
    """Find the obstacles that weaken the figures, in the form of all other doubts; notes stay in the preflight's own table."""
    return tuple(
        msgspec.structs.replace(
            finding, evidence=". ".join(filter(None, [finding.evidence, finding.why.rstrip(".")])), why=""
        )
        for finding in list_obstacles(record, analysis)
        if finding.severity is not Severity.NOTE
    )


def _look_at_trials(record: StudyRecord, analysis: StudyAnalysis) -> ServerSnapshot | None:
    for workload in analysis.workloads:
        for trial in workload.trials:
            settings = {one.name: one.value for one in trial.record.settings if one.name in _SERVER_REPORTED}
            if settings:
                return ServerSnapshot(
                    origin=ServerOrigin.RUNNING,
                    major=record.server.major,
                    settings=settings,
                    has_assertions=settings.get("debug_assertions") == "on",
                )
    return None

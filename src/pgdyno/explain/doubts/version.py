"""Warn of trials on a PostgreSQL that is newer than the versions that pgdyno was tried with."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.explain.finding import Finding
from pgdyno.explain.preflight.version import find_untried
from pgdyno.record.types import LOST_COUNTERS, StudyRecord


def find_version_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Say what is not known of each such version that a study ran on, and which counters its trials did not find."""
    own = record.server.major
    variants = record.plan.experiment.variants if record.plan.experiment is not None else ()
    for major in dict.fromkeys((own, *(variant.server.version or own for variant in variants))):
        said = record.server.settings_said if major == own else None
        finding = find_untried(major, said, lost_counters=_find_lost(analysis, major))
        if finding is not None:
            yield msgspec.structs.replace(finding, evidence=f"{finding.evidence}. {finding.why.rstrip('.')}", why="")


def _find_lost(analysis: StudyAnalysis, major: int) -> tuple[str, ...]:
    """List what trials say of this version; a study may run on several."""
    trials = (trial for workload in analysis.workloads for trial in workload.trials)
    said = dict.fromkeys(gap.reason for trial in trials for gap in trial.record.gaps if gap.source == LOST_COUNTERS)
    return tuple(reason for reason in said if f"PostgreSQL {major} " in reason)

"""Find failovers that lost what the primary had confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.plan.standbys import SYNCHRONOUS_COMMIT, SYNCHRONOUS_NAMES, waits_for_standby
from pgdyno.record.types import StudyRecord


def find_failover_doubts(_: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield one finding for each load whose failovers lost confirmed writes or transactions."""
    for workload in analysis.workloads:
        losing = [trial for trial in workload.trials if _count_lost(trial)]
        if losing:
            yield _describe(workload, losing)


def _count_lost(trial: TrialAnalysis) -> int:
    failover = trial.failover
    return 0 if failover is None else failover.lost_probes + (failover.lost_transactions or 0)


def _describe(workload: WorkloadAnalysis, losing: list[TrialAnalysis]) -> Finding:
    failovers = sum(trial.failover is not None for trial in workload.trials)
    lost = [_count_lost(trial) for trial in losing]
    evidence = (
        f"At least {sum(lost):,} in {len(losing)} of {failovers} failovers, {max(lost):,} in the worst; trial"
        f"{'s' * (len(losing) > 1)} {', '.join(str(trial.record.planned.number) for trial in losing)}"
    )
    if any(_is_synchronous(trial.record.values) for trial in losing):
        return Finding(
            severity=Severity.CRITICAL,
            claim="Failovers lost transactions that were confirmed, although commits wait for a standby.",
            evidence=evidence,
            advice="The standby that took over may be one that commits did not wait for: check synchronous_standby_names.",
            workload=workload.name,
            is_result=True,
        )
    return Finding(
        severity=Severity.WARNING,
        claim="Failovers lost transactions that were confirmed: commits wait for no standby.",
        evidence=evidence,
        advice="With synchronous_standby_names = '*' and synchronous_commit = on, a commit waits until a standby has it.",
        workload=workload.name,
        is_result=True,
    )


def _is_synchronous(settings: Mapping[str, str]) -> bool:
    return waits_for_standby(settings.get(SYNCHRONOUS_NAMES, ""), settings.get(SYNCHRONOUS_COMMIT, "on"))

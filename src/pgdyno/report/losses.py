"""What a study's settings give up of durability: the words that stand beside its figures in every form."""

from __future__ import annotations

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report.arms import describe_arms, find_arm_of, shared_losses
from pgdyno.report.input import ReportInput

# Source: PostgreSQL 18 manual, 19.5 and 29.1: each of these, when off, trades committed data or the cluster for speed.
_DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")


def find_durability_given_up(report: ReportInput) -> tuple[str, ...]:
    """Settings with which a crash may lose committed transactions or the cluster, as `fsync = off`.

    In a comparison those of all variants alike; what a variant alone gives up stands beside its name.
    """
    experiment = report.record.plan.experiment
    if experiment is not None:
        shared = shared_losses(describe_arms(report.record, experiment))
        return tuple(f"{one.setting} = {one.value}" for one in shared)
    given_up: dict[str, str] = {}
    for workload in report.analysis.workloads:
        for trial in workload.trials:
            given_up |= {
                fact.name: fact.value for fact in trial.record.settings if is_durability_given_up(fact.name, fact.value)
            }
    for name, value in report.record.study.server.settings.items():
        shown = ("on" if value else "off") if isinstance(value, bool) else str(value)
        if is_durability_given_up(name, shown):
            given_up[name] = shown
    return tuple(f"{name} = {given_up[name]}" for name in _DURABILITY_SETTINGS if name in given_up)


def find_workload_losses(report: ReportInput, workload: WorkloadAnalysis) -> tuple[str, ...]:
    """What stands beside a workload's own figures: settings with which a crash may lose what was committed."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return find_durability_given_up(report)
    arm = find_arm_of(workload, describe_arms(report.record, experiment))
    return () if arm is None else tuple(f"{one.setting} = {one.value}" for one in arm.given_up if one.is_durability)


def is_durability_given_up(name: str, value: str) -> bool:
    """Whether a setting's value gives up durability."""
    return name in _DURABILITY_SETTINGS and value.lower() in {"off", "false", "no", "0"}

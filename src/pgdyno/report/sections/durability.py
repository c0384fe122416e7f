"""Find what a study's settings and mount options give up of durability, for the words beside its figures."""

from __future__ import annotations

from pgdyno.analyse.durability import find_disk_losses
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.facts.durability import GivenUp, Loss, find_given_up
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.variants import (
    VariantText,
    describe_variants,
    find_variant_of,
    shared_losses,
)


def find_durability_given_up(report: ReportInput) -> tuple[str, ...]:
    """Return the settings and mount options with which a crash may lose committed transactions or the cluster, as `fsync = off`."""
    return tuple(one.assignment for one in list_durability_given_up(report))


def list_durability_given_up(report: ReportInput) -> tuple[GivenUp, ...]:
    """Return the losses of durability by settings and mount options.

    In a comparison, return only what all variants give up; what one variant gives up is shown beside its name.
    """
    experiment = report.record.plan.experiment
    if experiment is not None:
        return shared_losses(describe_variants(report.record, experiment))
    major = report.record.server.major
    lost = dict.fromkeys(find_disk_losses(report.record))
    lost |= dict.fromkeys(find_given_up(report.record.study.server.settings, major))
    for trial in report.analysis.trials:
        lost |= dict.fromkeys(find_given_up(trial.record.values, major))
    return tuple(one for one in lost if one.kind is Loss.DURABILITY)


def find_workload_losses(report: ReportInput, workload: WorkloadAnalysis) -> tuple[str, ...]:
    """Return the same for one workload: the settings with which a crash may lose committed transactions."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return find_durability_given_up(report)
    variant = find_variant_of(workload, describe_variants(report.record, experiment))
    return () if variant is None else _show_losses(variant)


def list_variant_losses(report: ReportInput) -> dict[str, tuple[str, ...]]:
    """Return what each variant of a comparison sets that gives up durability, by its name; nothing where none are compared."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return {}
    return {name: _show_losses(one) for name, one in describe_variants(report.record, experiment).items()}


def _show_losses(variant: VariantText) -> tuple[str, ...]:
    return tuple(one.assignment for one in variant.given_up if one.is_durability)

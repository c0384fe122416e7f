"""The sweep over clients that followed a comparison, as a part of its report: told by all that tells a sweep by itself.

Its trials are left to a report of its own, which the method names: a page that charts them too would be read by nobody.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.types import ScalingStudy
from pgdyno.plan.types import Choice
from pgdyno.report.documents.described import says
from pgdyno.report.documents.experiment import ExperimentDocument, make_experiment
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.experiment import describe_experiment
from pgdyno.report.sections.comparison.method import describe_method


class ScalingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients that followed the comparison: a study of its own."""

    record_dir: Annotated[str, says("Of its own record.")]
    variant: Annotated[str | None, says("The variant whose settings it ran under.")] = msgspec.field(name="arm")
    choices: Annotated[tuple[Choice, ...], says("What was chosen for it, and why.")]
    experiment: ExperimentDocument


def scaling_report(report: ReportInput) -> ReportInput | None:
    """The sweep as a report of its own, named by its settings; None where none followed, or it has no two loads yet."""
    scaling = report.analysis.scaling
    if scaling is None or not scaling.analysis.sweeps:
        return None
    names = {one.workload: _name(one.workload, scaling) for one in scaling.analysis.comparisons}
    analysis = msgspec.structs.replace(
        scaling.analysis,
        comparisons=tuple(
            msgspec.structs.replace(one, workload=names[one.workload]) for one in scaling.analysis.comparisons
        ),
        sweeps={names[workload]: sweep for workload, sweep in scaling.analysis.sweeps.items()},
    )
    return ReportInput(
        record=scaling.record, analysis=analysis, findings=(), record_dir=_place(report), disk=report.disk
    )


def describe_scaling_method(report: ReportInput) -> tuple[str, ...]:
    """What the sweep ran under, how, and where its trials are told; a paragraph each, none without one."""
    sweep = scaling_report(report)
    if sweep is None or sweep.record.plan.experiment is None:
        return ()
    record, (workload,) = sweep.record, sweep.record.plan.workloads
    how = describe_experiment(sweep.record.plan.experiment, record.study.trials)
    chosen = next((one for one in record.plan.choices if one.name == "settings"), None)
    under = "" if chosen is None else f", with {chosen.value} settings ({chosen.reason})"
    where = f"`pgdyno report {sweep.record_dir}` writes a report of it alone, with a chart of every trial."
    return (f"Then {workload.name} by {how}{under}. {where}", *describe_method(sweep)[1:])


def make_scaling(report: ReportInput) -> ScalingDocument | None:
    """The sweep as its document; None where none followed."""
    scaling, sweep = report.analysis.scaling, scaling_report(report)
    experiment = (
        None
        if scaling is None or sweep is None
        else make_experiment(msgspec.structs.replace(sweep, analysis=scaling.analysis))
    )
    if scaling is None or experiment is None:
        return None
    return ScalingDocument(
        record_dir=_place(report), variant=scaling.variant, choices=scaling.record.plan.choices, experiment=experiment
    )


def _name(workload: str, scaling: ScalingStudy) -> str:
    return f"{workload} by clients" if scaling.variant is None else f"{workload} by clients, {scaling.variant} settings"


def _place(report: ReportInput) -> str:
    return f"{report.record_dir}/clients"

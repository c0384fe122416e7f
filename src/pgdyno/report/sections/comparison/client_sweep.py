"""The sweep over clients that followed a comparison, as a part of its report: told by all that tells a sweep by itself.

Its trials are left to a report of its own, which the method names: a page that charts them too would be read by nobody.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.types import ScalingStudy
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.experiment import describe_experiment
from pgdyno.report.sections.comparison.method import describe_method


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


def _name(workload: str, scaling: ScalingStudy) -> str:
    return f"{workload} by clients" if scaling.variant is None else f"{workload} by clients, {scaling.variant} settings"


def _place(report: ReportInput) -> str:
    return f"{report.record_dir}/clients"

"""Include the sweep over clients that followed a comparison in the comparison's report.

Its trials appear only in the sweep's own report, which the method section names: one page would be too long for both.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.study_types import ScalingStudy
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.experiment import describe_experiment
from pgdyno.report.sections.comparison.method import describe_method


def scaling_report(report: ReportInput) -> ReportInput | None:
    """Return the sweep as a report of its own, named by its settings; None without a sweep of two loads."""
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
        rounds_needed={names[workload]: of for workload, of in scaling.analysis.rounds_needed.items()},
    )
    return ReportInput(
        record=scaling.record, analysis=analysis, findings=(), record_dir=_place(report), disk=report.disk
    )


def describe_scaling_method(report: ReportInput) -> tuple[str, ...]:
    """Describe how the sweep was made and where its trials are reported; a paragraph each, none without a sweep."""
    sweep = scaling_report(report)
    if sweep is None or sweep.record.plan.experiment is None:
        return ()
    record, (workload,) = sweep.record, sweep.record.plan.workloads
    how = describe_experiment(sweep.record.plan.experiment, record.study.trials)
    chosen = next((one for one in record.plan.choices if one.name == "settings"), None)
    under = "" if chosen is None else f", with {chosen.value} settings ({chosen.reason})"
    where = f"`pgdyno report {sweep.record_dir}` writes a separate report of it, with a chart of every trial."
    design, *others = describe_method(sweep)
    # Of a given server pgdyno has chosen between two designs; on its own a sweep has one.
    told = (design, *others) if sweep.record.given is not None else others
    return (f"Afterwards {workload.name} was run with {how}{under}. {where}", *told)


def _name(workload: str, scaling: ScalingStudy) -> str:
    return f"{workload} by clients" if scaling.variant is None else f"{workload} by clients, {scaling.variant} settings"


def _place(report: ReportInput) -> str:
    return f"{report.record_dir}/clients"

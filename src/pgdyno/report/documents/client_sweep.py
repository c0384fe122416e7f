"""Make the part of report.json on the sweep over clients that followed a comparison."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.plan.types import Choice
from pgdyno.report.documents.described import says
from pgdyno.report.documents.experiment import ExperimentDocument, make_experiment
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.client_sweep import scaling_report


class ScalingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients that followed the comparison: a study of its own."""

    record_dir: Annotated[str, says("Of its own record.")]
    variant: Annotated[str | None, says("The variant whose settings it ran under.")] = msgspec.field(name="arm")
    choices: Annotated[tuple[Choice, ...], says("What was chosen for it, and why.")]
    experiment: ExperimentDocument


def make_scaling(report: ReportInput) -> ScalingDocument | None:
    """Return the sweep as a document; None where no sweep followed."""
    scaling, sweep = report.analysis.scaling, scaling_report(report)
    experiment = (
        None
        if scaling is None or sweep is None
        else make_experiment(msgspec.structs.replace(sweep, analysis=scaling.analysis))
    )
    if scaling is None or experiment is None:
        return None
    return ScalingDocument(
        record_dir=f"{report.record_dir}/clients",
        variant=scaling.variant,
        choices=scaling.record.plan.choices,
        experiment=experiment,
    )

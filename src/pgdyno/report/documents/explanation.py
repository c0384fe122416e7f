"""Make the published document of an explanation: the causes in report.json, without the figures of a report.

A field is never renamed, never changes its unit and never goes without a new `version`; fields may be added.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.capacity.types import Capacity
from pgdyno.analyse.transaction_time.shares import Bottleneck, TransactionTime
from pgdyno.explain.finding import Finding
from pgdyno.price.study import StudyPrice
from pgdyno.report.documents.health import HealthDocument, make_health
from pgdyno.report.documents.step import StepDocument, make_step
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.first_page import make_first_page
from pgdyno.report.sections.head import describe_study

EXPLANATION_VERSION = 1


class ExplainedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The limit of one load, and its evidence."""

    name: str
    bottleneck: Bottleneck | None
    time: TransactionTime | None
    """Where the time went in the trial that shows the limit."""
    health: tuple[HealthDocument, ...]


class ExplanationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `pgdyno explain --json`. Absent is null, never 0."""

    format: str = "pgdyno-explanation"
    version: int = EXPLANATION_VERSION
    record_dir: str
    summary: str
    explanations: tuple[Finding, ...]
    not_judged: tuple[str, ...]
    next_steps: tuple[StepDocument, ...]
    findings: tuple[Finding, ...]
    """The findings that weaken the figures."""
    workloads: tuple[ExplainedWorkload, ...]
    capacities: tuple[Capacity, ...]
    price: StudyPrice | None


def render_explanation_json(report: ReportInput) -> bytes:
    """Render an explanation as JSON."""
    return msgspec.json.format(msgspec.json.encode(make_explanation(report)), indent=1) + b"\n"


def make_explanation(report: ReportInput) -> ExplanationDocument:
    """Return the explanation as a document."""
    first = make_first_page(report)
    return ExplanationDocument(
        record_dir=report.record_dir,
        summary=describe_study(report),
        explanations=report.explanations,
        not_judged=first.not_judged,
        next_steps=tuple(make_step(step) for step in first.steps),
        findings=report.findings,
        workloads=tuple(
            ExplainedWorkload(
                name=workload.name,
                bottleneck=workload.bottleneck,
                time=None if workload.limit_trial is None else workload.limit_trial.time,
                health=make_health(workload),
            )
            for workload in report.analysis.workloads
        ),
        capacities=report.analysis.capacities,
        price=report.price,
    )

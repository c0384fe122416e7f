"""Make the parts of report.json on a comparison and on its sweep over clients: all variants, pairs and verdicts."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.comparison.pilot import SliceChoice
from pgdyno.analyse.comparison.plans import StatementPlans
from pgdyno.analyse.comparison.verdict import Verdict
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.facts.durability import GivenUp
from pgdyno.facts.metrics import Better, find_metric
from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.types import Choice
from pgdyno.record.types import ErrorFact
from pgdyno.report.documents.described import says
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.answers import WorkloadAnswers, answer_study
from pgdyno.report.sections.comparison.client_sweep import scaling_report
from pgdyno.report.sections.comparison.method import describe_error_rate, is_noise_loud
from pgdyno.report.sections.comparison.variants import VariantText, describe_variants
from pgdyno.spec.variant import DesignKind


class VariantDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A variant."""

    name: str
    is_reference: bool
    planned: Variant
    is_durable: Annotated[bool, says("Whether its settings surely keep what was committed.")]
    given_up: Annotated[tuple[GivenUp, ...], says("What its settings give up, the gravest first.")]
    dropped_out: Annotated[ErrorFact | None, says("Why it was left out; null when it was not.")]


class QuestionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A variant against the reference in one metric, or the reference against itself."""

    variant: str = msgspec.field(name="arm")
    is_variant_durable: bool = msgspec.field(name="is_arm_durable")
    is_reference_durable: bool
    metric: str
    unit: str
    better: Annotated[Better, says("Which way of the metric is good.")]
    verdict: Verdict
    spent_s: Annotated[float, says("What the rounds of these pairs took.")]
    at_s: Annotated[tuple[float, ...], says("When each pair ended, on the machine's monotonic clock.")]
    log_ratios: Annotated[
        tuple[float, ...], says("Of each pair in the order of running: natural logarithm of the variant over the reference.")
    ]  # fmt: skip
    bounded_log_ratios: Annotated[
        tuple[tuple[float, ...], ...],
        says(
            "The same pairs at their lowest and at their highest, where trials of one side failed more often: the verdict is one that all"
            " three have, and its interval holds all three. Empty otherwise."
        ),
    ]


class FiguresDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one variant alone. Verdicts come from pairs: two of these give none."""

    variant: str = msgspec.field(name="arm")
    is_durable: bool
    estimates: Annotated[dict[str, Estimate], says("By metric: geometric means over rounds.")]


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All answers about one workload."""

    workload: str
    parts: Annotated[
        tuple[str, ...],
        says(
            "Workloads of the comparisons of its parts, which have the verdicts on its speed; none of a load without parts."
        ),
    ]
    primary: Annotated[str, says("The metric that decides.")]
    reference: str
    sentences: Annotated[tuple[str, ...], says("The answers in words.")]
    figures: tuple[FiguresDocument, ...]
    questions: tuple[QuestionDocument, ...]
    noise: Annotated[tuple[QuestionDocument, ...], says("The reference against itself: two identical variants.")]
    is_noise_told_apart: Annotated[
        bool, says("Whether two identical variants were called different: verdicts are then not to be trusted.")
    ]
    rounds: int
    round_s: Annotated[float | None, says("What a round took.")]
    slices: Annotated[SliceChoice | None, says("How a switchback's slice length was chosen.")]
    sweep: Annotated[ClientSweep | None, says("The curve of a sweep over clients.")]
    plans: Annotated[tuple[StatementPlans, ...], says("Of each statement by EXPLAIN; empty where none were asked for.")]


class ExperimentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, how it was compared, and the answers."""

    design: DesignKind
    reason: Annotated[str, says("Why this design.")]
    alpha: Annotated[float, says("The share of false verdicts that was allowed.")]
    detect_ratio: Annotated[float, says("Variants closer than this are equivalent.")]
    budget_s: float | None
    error_rate: Annotated[str, says("What share of verdicts may be false, in words.")]
    variants: tuple[VariantDocument, ...] = msgspec.field(name="arms")
    comparisons: Annotated[tuple[ComparisonDocument, ...], says("One for each workload.")]
    part_comparisons: Annotated[
        tuple[ComparisonDocument, ...], says("One for each part of each workload that has parts, in their order.")
    ]


class ScalingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients that followed the comparison: a study of its own."""

    record_dir: Annotated[str, says("Of its own record.")]
    variant: Annotated[str | None, says("The variant whose settings it ran under.")] = msgspec.field(name="arm")
    choices: Annotated[tuple[Choice, ...], says("What was chosen for it, and why.")]
    experiment: ExperimentDocument


def make_experiment(report: ReportInput) -> ExperimentDocument | None:
    """Return the comparison as a document; None for a study that compares nothing."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return None
    variants, answered = describe_variants(report.record, experiment), answer_study(report)
    return ExperimentDocument(
        design=experiment.design,
        reason=experiment.reason,
        alpha=experiment.alpha,
        detect_ratio=experiment.detect_ratio,
        budget_s=experiment.budget_s,
        error_rate=describe_error_rate(experiment),
        variants=tuple(_make_variant(experiment, variant) for variant in variants.values()),
        comparisons=tuple(_make_comparison(report, answers) for answers in answered),
        part_comparisons=tuple(_make_comparison(report, part) for answers in answered for part in answers.parts),
    )


def make_scaling(report: ReportInput) -> ScalingDocument | None:
    """Return the sweep as a document; None where no sweep followed."""
    scaling, sweep = report.analysis.scaling, scaling_report(report)
    if scaling is None or sweep is None:
        return None
    experiment = make_experiment(msgspec.structs.replace(sweep, analysis=scaling.analysis))
    if experiment is None:
        return None
    return ScalingDocument(
        record_dir=sweep.record_dir,
        variant=scaling.variant,
        choices=scaling.record.plan.choices,
        experiment=experiment,
    )


def _make_variant(experiment: Experiment, variant: VariantText) -> VariantDocument:
    return VariantDocument(
        name=variant.name,
        is_reference=variant.is_reference,
        planned=experiment.find_variant(variant.name),
        is_durable=variant.is_durable,
        given_up=variant.given_up,
        dropped_out=variant.error,
    )


def _make_comparison(report: ReportInput, answers: WorkloadAnswers) -> ComparisonDocument:
    comparison = report.analysis.find_own_questions(answers.comparison)
    return ComparisonDocument(
        workload=comparison.workload,
        parts=tuple(part.workload for part in answers.parts),
        primary=comparison.primary,
        reference=comparison.reference,
        sentences=(*answers.curve, *(answer.sentence for part in answers.list_judged() for answer in part.answers)),
        figures=tuple(
            FiguresDocument(
                variant=one.variant, is_durable=answers.variants[one.variant].is_durable, estimates=one.estimates
            )
            for one in comparison.figures
        ),
        questions=tuple(_make_question(answers, question) for question in comparison.questions),
        noise=tuple(_make_question(answers, question) for question in comparison.noise),
        is_noise_told_apart=is_noise_loud(answers),
        rounds=comparison.rounds,
        round_s=comparison.round_s,
        slices=report.analysis.pilots.get(comparison.workload),
        sweep=answers.sweep,
        plans=answers.plans,
    )


def _make_question(answers: WorkloadAnswers, question: Question) -> QuestionDocument:
    metric = find_metric(question.metric)
    return QuestionDocument(
        variant=question.variant,
        is_variant_durable=answers.variants[question.variant].is_durable,
        is_reference_durable=answers.reference.is_durable,
        metric=question.metric,
        unit=metric.unit,
        better=metric.better,
        verdict=question.verdict,
        spent_s=question.spent_s,
        at_s=question.at_s,
        log_ratios=question.log_ratios,
        bounded_log_ratios=question.extremes,
    )

"""State the answers of a comparison: a sentence for each variant and workload.

An answer that compares a durable variant with one that is not durable always says so.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.plans import StatementPlans, compare_plans, find_missing_plans
from pgdyno.analyse.comparison.verdict import Verdict
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.facts.durability import Loss
from pgdyno.plan.experiment import Experiment, is_client_sweep, list_crossed_levels
from pgdyno.report.format import format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.curve import (
    LevelCurve,
    SweepOutlook,
    describe_curve,
    describe_levels,
    describe_sweep_outlook,
    list_levels,
)
from pgdyno.report.sections.comparison.variants import VariantText, describe_variants
from pgdyno.report.verdict_words import count_pairs, describe_change, describe_outlook, state_verdict
from pgdyno.spec.variant import DesignKind

_LONGEST_NAME = 24


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One variant against the reference on one workload."""

    variant: VariantText
    verdict: Verdict | None
    """The verdict; None for a variant that dropped out before its first pair."""
    lead: str
    """Such as `commit_delay=1000 is slower than commit_delay=0 on tpcb-like`."""
    change: str
    """Such as `TPS -22.5 % [-25.1, -19.7]`; where there is no verdict, the reason."""
    effort: str
    """Such as `41 pairs of slices, 1 min 58 s`."""
    outlook: str
    """A remark on the figures; for an undecided verdict, how much more time it needs."""
    caution: str
    """A sentence where one of the two variants is durable and the other is not."""

    @property
    def sentence(self) -> str:
        """The whole answer."""
        figures = "; ".join(filter(None, (", ".join(filter(None, (self.change, self.effort))), self.outlook)))
        return " ".join(filter(None, (f"{self.lead}: {figures}.", self.caution)))


class WorkloadAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """All answers of a study about one workload."""

    comparison: Comparison
    variants: dict[str, VariantText]
    """The variants in their order, the reference first."""
    answers: tuple[Answer, ...]
    """Of a sweep over clients and something else only those on variants with as many clients as the reference, of one over
    clients alone none: it asks how TPS follow their number, and not whether more of them are faster than the first."""
    sweep: ClientSweep | None = None
    curve: tuple[str, ...] = ()
    """The answers of a sweep over clients, in sentences; none of other comparisons."""
    outlook: SweepOutlook = SweepOutlook()
    """How much longer a sweep over clients would take to decide what is open."""
    levels: tuple[LevelCurve, ...] = ()
    """The curves of a sweep over clients and something else."""
    plans: tuple[StatementPlans, ...] = ()
    """The plans of the workload's statements under all variants; none where they were not asked for."""
    plans_missing: tuple[str, ...] = ()
    """Why the plans of a trial could not be asked for."""
    parts: tuple[WorkloadAnswers, ...] = ()
    """The answers about each part of the load; none of a load without parts."""

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.comparison.workload

    @property
    def reference(self) -> VariantText:
        """The variant that the others are compared with."""
        return self.variants[self.comparison.reference]

    @property
    def is_sweep(self) -> bool:
        """True if numbers of clients were swept: the answer is a curve, or several."""
        return bool(self.curve)

    @property
    def judged(self) -> frozenset[str]:
        """The names of the variants that have answers."""
        return frozenset(one.variant.name for one in self.answers)

    def name_choice(self, variant: VariantText) -> str:
        """Name a variant as a choice: in a sweep over clients and something else, by its level of that alone."""
        level = next((one.level for one in self.levels if variant.name in one.variants.values()), variant.name)
        return f"{level} ({variant.tag})" if variant.tag else level

    def list_judged(self) -> tuple[WorkloadAnswers, ...]:
        """Return the answers that have verdicts on speed: those of the parts of a load that has parts, else these."""
        return self.parts or (self,)


def answer_study(report: ReportInput) -> tuple[WorkloadAnswers, ...]:
    """Return the answers for each workload; none for a study that compares nothing."""
    experiment = report.record.plan.experiment
    if experiment is None:
        return ()
    variants = describe_variants(report.record, experiment)
    # The load that slices are cut from lasts longer than the pairs.
    pieces = "turns" if experiment.takes_turns else "slices"
    of = "" if experiment.design is DesignKind.PAIRED else f" of {pieces}"
    return tuple(
        _answer_workload(report, experiment, comparison, variants, of) for comparison in report.analysis.comparisons
    )


def _answer_workload(
    report: ReportInput, experiment: Experiment, comparison: Comparison, variants: dict[str, VariantText], of: str
) -> WorkloadAnswers:
    analysis, name = report.analysis, comparison.workload
    trials, sweep = analysis.list_trials(name), analysis.sweeps.get(name)
    levels = list_levels(experiment, analysis.crossed.get(name, {}))
    answers, outlook = _answer_all(comparison, variants, of), SweepOutlook()
    curve: tuple[str, ...] = ()
    if is_client_sweep(experiment):
        if sweep is not None:
            outlook = describe_sweep_outlook(sweep, analysis.rounds_needed.get(name, {}), comparison.round_s)
        answers, curve = (), (*describe_curve(sweep), *filter(None, [outlook.words]))
    elif list_crossed_levels(experiment):
        reference = variants[comparison.reference]
        answers = tuple(one for one in answers if one.variant.clients == reference.clients)
        curve = describe_levels(levels)
    return WorkloadAnswers(
        comparison=comparison,
        variants=variants,
        answers=answers,
        sweep=sweep,
        curve=curve,
        outlook=outlook,
        levels=levels,
        plans=compare_plans(trials, list(variants)),
        plans_missing=find_missing_plans(trials),
        parts=tuple(
            WorkloadAnswers(comparison=one, variants=variants, answers=_answer_all(one, variants, of))
            for one in analysis.compared_parts(name)
        ),
    )


def _answer_all(comparison: Comparison, variants: dict[str, VariantText], of: str) -> tuple[Answer, ...]:
    return tuple(
        _answer(comparison, variants, variant, of) for variant in variants.values() if not variant.is_reference
    )


def _answer(comparison: Comparison, variants: dict[str, VariantText], variant: VariantText, of: str) -> Answer:
    question = comparison.find(variant.name, comparison.primary)
    verdict = None if question is None else question.verdict
    if question is None or verdict is None or (variant.error is not None and verdict.n == 0):
        why = variant.error.fact if variant.error is not None else "it was not measured"
        return Answer(
            variant=variant,
            verdict=None,
            lead=f"{variant.title} on {comparison.workload} has no verdict",
            change=why,
            effort="",
            outlook="",
            caution="",
        )
    outlook = []
    if not verdict.is_decided:
        outlook.append(describe_outlook(verdict, round_s=comparison.round_s))
    elif verdict.reason is not None:
        outlook.append(verdict.reason)
    if variant.error is not None:
        outlook.append(f"then it dropped out: {variant.error.fact}")
    reference = variants[comparison.reference]
    return Answer(
        variant=variant,
        verdict=verdict,
        lead=state_verdict(verdict, variant=variant.title, reference=reference.title, workload=comparison.workload),
        change=describe_change(verdict),
        effort=f"{count_pairs(verdict)}{of}, {format_seconds(question.spent_s)}",
        outlook="; ".join(outlook),
        caution=warn_unequal_durability(variant, reference),
    )


def warn_unequal_durability(variant: VariantText, reference: VariantText) -> str:
    """Warn where one of two variants is durable and the other may not be; empty otherwise."""
    if variant.is_durable is reference.is_durable:
        return ""
    durable, other = (variant, reference) if variant.is_durable else (reference, variant)
    is_sure = any(one.kind is Loss.DURABILITY for one in other.given_up)
    if len(durable.name) > _LONGEST_NAME and durable is variant:
        return f"Unequal comparison: of the two, the reference {'is not' if is_sure else 'may not be'} durable."
    named = durable.name if len(durable.name) <= _LONGEST_NAME else "the reference"
    return f"Unequal comparison: of the two, only {named} is {'durable' if is_sure else 'certainly durable'}."

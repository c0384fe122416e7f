"""List the steps that follow from a study's own verdicts: to use a variant, to leave a layer out, or to stay.

What is faster on one load and slower on another is neither advised nor advised against: both are shown, to be weighed.
A variant that gives up more than the reference is a what-if: it shows what durability costs, and is never advice. The
same holds for a reference that gives up more than a variant: that it is faster is no reason to stay with it. Nobody is
told to use a variant that dropped out, however fast it was before. Trials that held too few checkpoints prove nothing
against settings that make them rarer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec

from pgdyno.analyse.comparison.derived_gain import CheckpointCycle, find_gains
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.failover import OUTAGE_METRICS
from pgdyno.record.tuned import DERIVED, STOCK, Tuned
from pgdyno.record.types import ErrorFact
from pgdyno.report.document import Link
from pgdyno.report.format import format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.lists import join_names
from pgdyno.report.sections.comparison.answers import Answer, WorkloadAnswers
from pgdyno.report.sections.comparison.variants import VariantText
from pgdyno.report.sections.step import NextStep, StepCertainty
from pgdyno.report.verdict_words import count_pairs, describe_change
from pgdyno.units import count_things

# Several variants are faster than the reference, but which of them is the fastest was not tested.
_MOST_PROVEN = 2


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on one workload, with links to it."""

    verdict: Verdict | None
    workload: str
    anchor: str
    short: CheckpointCycle | None = None
    """The checkpoint cycle that the trials were too short for; None if they were not, or it does not matter."""

    @property
    def kind(self) -> VerdictKind | None:
        return None if self.verdict is None else self.verdict.kind

    @property
    def words(self) -> str:
        if self.verdict is None:
            return ""
        return f"{describe_change(self.verdict)} on {self.workload}, {count_pairs(self.verdict)}"


class _Sides(msgspec.Struct, frozen=True, kw_only=True):
    """The variants by what they give up beside the reference, by name."""

    lossy: frozenset[str]
    """Those that give up durability which the reference keeps."""
    safer: frozenset[str]
    """Those that keep durability which the reference gives up."""

    @classmethod
    def of(cls, reference: VariantText, variants: Mapping[str, VariantText]) -> Self:
        own, given_up = _find_lost(reference), {name: _find_lost(one) for name, one in variants.items()}
        return cls(
            lossy=frozenset(name for name, lost in given_up.items() if lost - own),
            safer=frozenset(name for name, lost in given_up.items() if own - lost),
        )


def list_derived(report: ReportInput, tuned: Tuned, trusted: Mapping[str, str]) -> Iterator[NextStep]:
    """Yield the steps that follow from the verdicts on derived settings.

    Args:
        report: The report's input.
        tuned: The derived settings.
        trusted: The anchor of each workload whose verdicts may be trusted, by name.
    """
    shown: dict[str | None, list[_Shown]] = {}
    doubted = []
    for gain in find_gains(report.record, report.analysis.comparisons, report.analysis.workloads):
        one = _Shown(verdict=gain.verdict, workload=gain.workload, anchor="derived", short=gain.short)
        if gain.workload in trusted:
            shown.setdefault(gain.layer, []).append(one)
        elif gain.layer is None and gain.is_slower:
            # Nothing is proven by it, but the report warns of it, so that it speaks against an unconditional "use".
            doubted.append(one)
    whole, refused = shown.pop(None, []), report.record.refused_variants
    yield from _use(
        [*whole, *doubted], "the derived settings", STOCK, refused.get(DERIVED), use="Use the derived settings"
    )
    if not _list_of(whole, VerdictKind.FASTER) and STOCK not in refused:
        yield from _stay(whole, STOCK, is_lone=True)
    for layer in tuned.layers:
        if layer.variant not in refused:
            yield from _leave_out(layer.name, shown.get(layer.name, ()))


def list_answered(
    compared: Sequence[WorkloadAnswers], trusted: Mapping[str, str], *, without: frozenset[str]
) -> Iterator[NextStep]:
    """Yield the steps that follow from the verdicts of a comparison.

    Args:
        compared: The answers, by workload.
        trusted: The anchor of each workload whose verdicts may be trusted, by name.
        without: The variants that are no reason for a step.
    """
    variants: dict[str, VariantText] = {}
    shown: dict[str, list[_Shown]] = {}
    for answers in compared:
        if answers.workload in trusted:
            for workload, answer in _list_reasons(answers):
                if answer.variant.name in without:
                    continue
                variants[answer.variant.name] = answer.variant
                one = _Shown(verdict=answer.verdict, workload=workload, anchor=trusted[answers.workload])
                shown.setdefault(answer.variant.name, []).append(one)
    if not shown:
        return
    first = compared[0]
    reference, sides = first.reference, _Sides.of(first.reference, variants)
    yield from _list_costs_of_durability(reference, variants, shown, sides)
    # A level that was swept beside clients is proven with those of the reference, which are the fewest as a rule: nobody should stay with so few.
    where = (
        f", as proven with {count_things(reference.clients, 'client')}" if reference.clients and first.is_sweep else ""
    )
    chosen = first.name_choice(reference)
    advised = [
        step
        for name, of in shown.items()
        if name not in sides.lossy
        for choice in [first.name_choice(variants[name])]
        for step in _use(
            of, choice, f"{chosen}{where}", variants[name].error, use=f"Use {choice} rather than {chosen}{where}"
        )
    ]
    advised.sort(key=lambda step: step.rank)
    yield from advised[:_MOST_PROVEN]
    if not advised and not first.is_sweep and not sides.safer:
        fair = [of for name, of in shown.items() if name not in sides.lossy]
        yield from _stay([one for of in fair for one in of], reference.title, is_lone=len(fair) == 1)


def _list_reasons(answers: WorkloadAnswers) -> Iterator[tuple[str, Answer]]:
    """Yield the answers that may be a reason to choose a variant, each with its workload or part.

    The TPS of unlike transactions added up are none, and neither are those of more clients.
    """
    for part in answers.list_judged():
        for answer in part.answers:
            if answer.variant.clients == answers.reference.clients:
                yield part.workload, answer


def _find_lost(variant: VariantText) -> frozenset[str]:
    return frozenset(one.label for one in variant.given_up if one.is_durability)


def _list_costs_of_durability(
    reference: VariantText,
    variants: Mapping[str, VariantText],
    shown: Mapping[str, Sequence[_Shown]],
    sides: _Sides,
) -> Iterator[NextStep]:
    """Yield what durability costs, from both sides: what a variant gains by giving it up, and loses by keeping it."""
    for name, of in shown.items():
        faster = _list_of(of, VerdictKind.FASTER)
        if name in sides.lossy and faster:
            yield _make(StepCertainty.WHAT_IF, f"{variants[name].title} shows what durability costs.", faster)
        elif name in sides.safer and not faster and (told := [one for one in of if one.verdict is not None]):
            words = f"{variants[name].title} against {reference.title} shows what durability costs."
            yield _make(StepCertainty.WHAT_IF, words, told)


def _leave_out(layer: str, shown: Sequence[_Shown]) -> Iterator[NextStep]:
    """Return the step to leave out a layer that is slower on a load and faster on none; where it is faster, too, to weigh it.

    Only trials that were long enough for the layer prove a loss.
    """
    costs = _list_of(shown, VerdictKind.SLOWER)
    sound = [one for one in costs if one.short is None]
    if faster := _list_of(shown, VerdictKind.FASTER):
        if sound:
            yield _weigh(f"the layer {layer} of the derived settings", faster, sound)
    elif sound:
        words = f"Leave the layer {layer} out of the derived settings: it makes the server slower."
        yield _make(StepCertainty.PROVEN, words, sound)
    elif costs:
        words = (
            f"Leave the layer {layer} out of the derived settings for now: it made the server slower in these trials."
        )
        step = _make(StepCertainty.UNKNOWN, words, costs)
        yield msgspec.structs.replace(step, badge="undecided", caution=_say_short(costs))


def _use(
    shown: Sequence[_Shown], choice: str, reference: str, error: ErrorFact | None, *, use: str
) -> Iterator[NextStep]:
    """Return the step to use a variant that is faster, or to weigh it where it is slower elsewhere, unless it dropped out.

    Args:
        shown: The verdicts on it.
        choice: Its name.
        reference: What it is compared with.
        error: Why it dropped out.
        use: The advice to use it, without a full stop.
    """
    faster, slower = _list_of(shown, VerdictKind.FASTER), _list_of(shown, VerdictKind.SLOWER)
    if faster and error is not None:
        step = _make(StepCertainty.UNKNOWN, f"{use}, once you know why it dropped out: {error.fact}.", faster)
        yield msgspec.structs.replace(step, badge="dropped out")
    elif faster and slower:
        yield _weigh(f"{choice} against {reference}", faster, slower)
    elif faster:
        yield _make(StepCertainty.PROVEN, f"{use}.", faster)


def _weigh(what: str, faster: Sequence[_Shown], slower: Sequence[_Shown]) -> NextStep:
    """Return the step to weigh what is faster on some loads and slower on others."""
    gains, costs = (join_names([one.workload for one in of]) for of in (faster, slower))
    step = _make(StepCertainty.WEIGH, f"Weigh {what}: faster on {gains}, slower on {costs}.", faster)
    cost = f"Consider the cost: {'; '.join(one.words for one in slower)}."
    return msgspec.structs.replace(step, caution=" ".join(filter(None, (cost, _say_short(slower)))))


def _list_of(shown: Sequence[_Shown], kind: VerdictKind) -> list[_Shown]:
    return [one for one in shown if one.kind is kind]


def _stay(shown: Sequence[_Shown], reference: str, *, is_lone: bool) -> Iterator[NextStep]:
    """Return the step to keep the reference where nothing is faster.

    Args:
        shown: The verdicts on one variant or on several.
        reference: The reference's name.
        is_lone: Whether all verdicts are on one variant, which any slower workload rules out.
    """
    sound = [one for one in shown if one.short is None]
    slower = _list_slower(sound, is_lone=is_lone)
    settled = sum(one.kind in {VerdictKind.EQUIVALENT, VerdictKind.SLOWER} for one in sound)
    if shown and (slower or settled == len(shown)):
        words = f"Stay with {reference}: the variants tested are {f'slower: {slower}' if slower else 'not faster'}."
        yield NextStep(standing=StepCertainty.PROVEN, words=words)
    elif shown:
        words = f"Stay with {reference} for now: no variant is proven to be faster."
        if slower := _list_slower(shown, is_lone=is_lone):
            words = f"Stay with {reference} for now: the variants tested were slower in these trials: {slower}."
        if any(one.verdict is not None and one.verdict.metric in OUTAGE_METRICS for one in shown):
            # To stay is no advice here: the reference may be the variant that loses transactions.
            words = f"Look at what was lost before you choose: no variant is proven to be away for less time than {reference}."
        yield NextStep(standing=StepCertainty.UNKNOWN, words=words, badge="undecided", caution=_say_short(shown))


def _list_slower(shown: Sequence[_Shown], *, is_lone: bool) -> str:
    """List where a lone variant is slower; of several variants each may be slower somewhere."""
    return "; ".join(one.words for one in shown if one.kind is VerdictKind.SLOWER) if is_lone else ""


def _say_short(shown: Sequence[_Shown]) -> str:
    """Say that trials were too short for settings that make checkpoints rarer; nothing where they were not."""
    longest = max((one.short for one in shown if one.short is not None), key=lambda cycle: cycle.wanted_s, default=None)
    if longest is None:
        return ""
    return (
        f"Trials of {format_seconds(longest.duration_s)} were too short to show what is gained by checkpointing less often:"
        f" with stock settings a checkpoint starts about every {format_seconds(round(longest.cycle_s))}."
    )


def _make(standing: StepCertainty, words: str, shown: Sequence[_Shown]) -> NextStep:
    anchors = {one.anchor: one.workload for one in shown}
    return NextStep(
        standing=standing,
        words=words,
        gain="; ".join(one.words for one in shown),
        gain_ratio=max((one.verdict.effect_ratio or 0.0 for one in shown if one.verdict is not None), key=abs),
        places=tuple(
            Link(title="Derived settings" if anchor == "derived" else f"Verdicts on {workload}", anchor=anchor)
            for anchor, workload in anchors.items()
        ),
    )

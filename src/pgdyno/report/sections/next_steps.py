"""Order the next steps: what this study proved, then what is expected to help, then what to try.

A step is called proven only after a verdict of this study or of a confirmation. A step that gives up durability is a
what-if: it shows what durability costs, and is never advice.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from pgdyno.analyse.comparison.derived_gain import find_gains
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.failover import OUTAGE_METRICS
from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.capacity import CEILING
from pgdyno.record.tuned import STOCK
from pgdyno.report.document import Link
from pgdyno.report.input import ReportInput
from pgdyno.report.lists import join_by_place
from pgdyno.report.sections.comparison.answers import Answer, WorkloadAnswers, answer_study
from pgdyno.report.sections.comparison.client_sweep import scaling_report
from pgdyno.report.sections.comparison.curve import describe_missing_knee
from pgdyno.report.sections.comparison.method import is_noise_loud
from pgdyno.report.sections.comparison.variants import VariantText
from pgdyno.report.sections.findings import FindingText, join_places, name_workloads
from pgdyno.report.verdict_words import count_pairs, describe_change
from pgdyno.spec.variant import LOAD_HOSTS
from pgdyno.units import count_things

# Several variants are faster than the reference, but which of them is the fastest was not tested.
_MOST_PROVEN = 2


_HUES = {
    "proven": "green", "expected": "blue", "gain unknown": "slate", "would tell": "indigo", "what-if": "vermilion"
}  # fmt: skip


class StepCertainty(enum.Enum):
    """How certain the gain of a step is, in the order of steps."""

    PROVEN = "proven"
    EXPECTED = "expected"
    UNKNOWN = "gain unknown"
    SETTLES = "would tell"
    """An experiment, which gains knowledge."""
    WHAT_IF = "what-if"
    """A step that gives up durability: it shows the cost of durability, and is no advice."""


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """A recommended next step."""

    standing: StepCertainty
    words: str
    """The step in a sentence."""
    gain: str = ""
    """The gain with its interval; empty where it is not known."""
    caution: str = ""
    """The evidence against it, in a sentence."""
    gain_ratio: float | None = None
    """The order of steps of the same certainty."""
    workloads: tuple[str, ...] = ()
    places: tuple[Link, ...] = ()
    badge: str = ""
    """The word beside the step; empty: that of its certainty."""
    reason: int | None = None
    """The place in the list of explanations, from 1, of the evidence for it."""

    @property
    def of(self) -> str:
        """The workloads beside it; empty for the whole study."""
        return join_places(self.workloads)

    @property
    def hue(self) -> str:
        """The colour of its certainty."""
        return _HUES[self.standing.value]


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict on one workload, with links to it."""

    verdict: Verdict | None
    workload: str
    anchor: str

    @property
    def kind(self) -> VerdictKind | None:
        return None if self.verdict is None else self.verdict.kind

    @property
    def words(self) -> str:
        if self.verdict is None:
            return ""
        return f"{describe_change(self.verdict)} on {self.workload}, {count_pairs(self.verdict)}"


def list_steps(
    report: ReportInput, compared: tuple[WorkloadAnswers, ...], explained: Iterable[FindingText]
) -> tuple[NextStep, ...]:
    """Return the steps, the most certain gain first, then by size."""
    # A study in which two identical variants differ proves nothing.
    trusted = {one.workload: f"c{number}" for number, one in enumerate(compared, start=1) if not is_noise_loud(one)}
    experiment = report.record.plan.experiment
    # What more load hosts send is no gain of the server's.
    of_hosts = frozenset(() if experiment is None else (one.name for one in experiment.list_differing_in(LOAD_HOSTS)))
    proven = (
        _from_tuned(report, trusted)
        if report.record.tuned is not None
        else _from_answers(compared, trusted, without=of_hosts)
    )
    followed = scaling_report(report)
    curves = _from_curves((*compared, *(() if followed is None else answer_study(followed))))
    told = tuple(explained)
    limited = {name for one in told if one.rule == LIMITS and one.advice for name in one.names}
    advised = [
        step
        for number, one in enumerate(told, start=1)
        # The explanation of a load's limit already says what to do about its ceiling.
        if one.rule != CEILING or not limited.issuperset(one.names)
        for step in _from_finding(one, number)
    ]
    # What is not expected to gain more than a comparison would call equivalent is no step.
    least = report.record.study.experiment.detect_ratio
    worthwhile = [
        step
        for step in _merge(advised, report)
        if step.standing is not StepCertainty.EXPECTED or step.gain_ratio is None or step.gain_ratio >= least
    ]
    order = list(StepCertainty)
    ordered = sorted(
        [*proven, *curves, *worthwhile], key=lambda step: (order.index(step.standing), -abs(step.gain_ratio or 0.0))
    )
    # One experiment at a time: its answer may make the next one unnecessary.
    first = next((step for step in ordered if step.standing is StepCertainty.SETTLES), None)
    return tuple(step for step in ordered if step.standing is not StepCertainty.SETTLES or step is first)


def _merge(steps: Iterable[NextStep], report: ReportInput) -> Iterator[NextStep]:
    """Merge the same advice for several workloads."""
    alike: dict[tuple[StepCertainty, str], list[NextStep]] = {}
    for step in steps:
        alike.setdefault((step.standing, step.words), []).append(step)
    for first, *others in alike.values():
        of = (first, *others)
        gains = [(step.of, step.gain) for step in of if step.gain]
        yield msgspec.structs.replace(
            first,
            workloads=name_workloads(tuple(dict.fromkeys(name for step in of for name in step.workloads)), report),
            gain=join_by_place(gains) if others and gains else first.gain,
            gain_ratio=max((step.gain_ratio for step in of if step.gain_ratio is not None), default=None),
        )


def _from_finding(one: FindingText, number: int) -> Iterator[NextStep]:
    if one.advice:
        known = StepCertainty.PROVEN if one.is_gain_proven else StepCertainty.EXPECTED
        yield NextStep(
            standing=known if one.gain else StepCertainty.UNKNOWN,
            words=one.advice,
            gain=one.gain,
            gain_ratio=one.gain_ratio,
            workloads=one.names,
            reason=number,
        )
    if one.confirm and one.certainty not in {None, Certainty.PROVEN}:
        # The rest explains what the experiment would show.
        words = f"{one.confirm.partition('. ')[0].rstrip('.')}."
        yield NextStep(standing=StepCertainty.SETTLES, words=words, workloads=one.names[:1], reason=number)


def _from_tuned(report: ReportInput, trusted: Mapping[str, str]) -> Iterator[NextStep]:
    shown: dict[str | None, list[_Shown]] = {}
    for gain in find_gains(report.record, report.analysis.comparisons):
        if gain.workload in trusted:
            one = _Shown(verdict=gain.verdict, workload=gain.workload, anchor="derived")
            shown.setdefault(gain.layer, []).append(one)
    whole = shown.pop(None, [])
    yield from _use(whole, "Use the derived settings.")
    if not any(one.kind is VerdictKind.FASTER for one in whole):
        yield from _stay(whole, STOCK, is_lone=True)
    for layer, of in shown.items():
        costs = [one for one in of if one.kind is VerdictKind.SLOWER]
        if costs:
            yield _make(
                StepCertainty.PROVEN,
                f"Leave the layer {layer} out of the derived settings: it makes the server slower.",
                costs,
            )


def _from_answers(
    compared: Sequence[WorkloadAnswers], trusted: Mapping[str, str], *, without: frozenset[str]
) -> Iterator[NextStep]:
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
    reference, chosen = first.reference, first.name_choice(first.reference)
    # A level that was swept beside clients is proven with those of the reference, which are the fewest as a rule: nobody should stay with so few.
    where = (
        f", as proven with {count_things(reference.clients, 'client')}" if reference.clients and first.is_sweep else ""
    )
    lossy = {name for name, variant in variants.items() if reference.is_durable and not variant.is_durable}
    for name in lossy:
        faster = [one for one in shown[name] if one.kind is VerdictKind.FASTER]
        if faster:
            yield _make(StepCertainty.WHAT_IF, f"{variants[name].title} shows what durability costs.", faster)
    fair = {name: of for name, of in shown.items() if name not in lossy}
    advised = [
        step
        for name, of in fair.items()
        for step in _use(of, f"Use {first.name_choice(variants[name])} rather than {chosen}{where}.")
    ]
    advised.sort(key=lambda step: -abs(step.gain_ratio or 0.0))
    yield from advised[:_MOST_PROVEN]
    if not advised and not first.is_sweep:
        yield from _stay([one for of in fair.values() for one in of], reference.title, is_lone=len(fair) == 1)


def _list_reasons(answers: WorkloadAnswers) -> Iterator[tuple[str, Answer]]:
    """Yield the answers that may be a reason to choose a variant, each with its workload or part.

    The TPS of unlike transactions added up are none, and neither are those of more clients.
    """
    for part in answers.list_judged():
        for answer in part.answers:
            if answer.variant.clients == answers.reference.clients:
                yield part.workload, answer


def _from_curves(compared: Iterable[WorkloadAnswers]) -> Iterator[NextStep]:
    """Yield what would find the knee of each sweep over clients that has none; one that was found is explained with its pool."""
    for answers in compared:
        words = "" if answers.sweep is None else describe_missing_knee(answers.sweep, answers.outlook.words)
        if words and not is_noise_loud(answers):
            yield NextStep(
                standing=StepCertainty.UNKNOWN, words=words, workloads=(answers.workload,), badge="undecided"
            )


def _use(shown: Sequence[_Shown], words: str) -> Iterator[NextStep]:
    """Return the step to use a variant that is faster on any workload, with its cost on others."""
    faster = [one for one in shown if one.kind is VerdictKind.FASTER]
    if faster:
        slower = "; ".join(one.words for one in shown if one.kind is VerdictKind.SLOWER)
        step = _make(StepCertainty.PROVEN, words, faster)
        yield msgspec.structs.replace(step, caution=f"Consider the cost: {slower}." if slower else "")


def _stay(shown: Sequence[_Shown], reference: str, *, is_lone: bool) -> Iterator[NextStep]:
    """Return the step to keep the reference where nothing is faster.

    Args:
        shown: The verdicts on one variant or on several.
        reference: The reference's name.
        is_lone: Whether all verdicts are on one variant, which any slower workload rules out.
    """
    slower = [one for one in shown if one.kind is VerdictKind.SLOWER]
    settled = sum(one.kind is VerdictKind.EQUIVALENT for one in shown) + len(slower)
    if shown and (settled == len(shown) or (slower and is_lone)):
        why = f": {'; '.join(one.words for one in slower)}" if slower and is_lone else ""
        words = f"Stay with {reference}: the variants tested are {'slower' if why else 'not faster'}{why}."
        yield NextStep(standing=StepCertainty.PROVEN, words=words)
    elif shown:
        words = f"Stay with {reference} for now: no variant is proven to be faster."
        if any(one.verdict is not None and one.verdict.metric in OUTAGE_METRICS for one in shown):
            # To stay is no advice here: the reference may be the variant that loses transactions.
            words = f"Look at what was lost before you choose: no variant is proven to be away for less time than {reference}."
        yield NextStep(standing=StepCertainty.UNKNOWN, words=words, badge="undecided")


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

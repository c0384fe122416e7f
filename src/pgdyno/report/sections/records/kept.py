"""Read a record's report.json back, so that listing many records does not analyse each of them again.

Only the fields that a journal needs are read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.analyse.estimate import Estimate
from pgdyno.plan.experiment import Variant, differ_in_settings_alone
from pgdyno.record.types import TrialStatus
from pgdyno.report.format import format_estimate
from pgdyno.report.verdict_words import describe_change, name_verdict

_MOST_VARIANTS = 3
_NOT_SET = "not set"


class KeptTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that the report contains."""

    number: int
    status: TrialStatus


class KeptPart(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one part of a load, or of one standby that it reads from."""

    name: str
    tps: Estimate


class KeptLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A load as planned."""

    parts: tuple[Any, ...] = ()


class KeptWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's own figures."""

    name: str
    planned: KeptLoad = KeptLoad()
    tps: Estimate
    parts: tuple[KeptPart, ...] = ()
    trials: tuple[KeptTrial, ...]

    def describe_tps(self) -> tuple[str, ...]:
        """Return the TPS in words; of a load in parts those of each, because the sum of unlike transactions says nothing."""
        if self.planned.parts and self.parts:
            return tuple(f"part {one.name} of {self.name}: {_format_tps(one.tps)}" for one in self.parts)
        return (f"{self.name}: {_format_tps(self.tps)}",)


class KeptVariant(msgspec.Struct, frozen=True, kw_only=True):
    """A variant."""

    name: str
    is_durable: bool
    planned: Variant


class KeptQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A variant against the reference in one metric."""

    variant: str = msgspec.field(name="arm")
    metric: str
    verdict: Verdict


class KeptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The answers about one workload."""

    workload: str
    primary: str
    reference: str
    parts: tuple[str, ...] = ()
    """The workloads of the comparisons that judge its speed in its place; none of a load without parts."""
    sentences: tuple[str, ...]
    questions: tuple[KeptQuestion, ...]
    is_noise_told_apart: bool


class KeptExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison."""

    variants: tuple[KeptVariant, ...] = msgspec.field(name="arms")
    comparisons: tuple[KeptComparison, ...]
    part_comparisons: tuple[KeptComparison, ...] = ()

    @property
    def is_sweep(self) -> bool:
        """True if numbers of clients were swept: the first sentence on each workload is then its answer."""
        return any("clients" in variant.planned.levels for variant in self.variants)

    def list_judged(self) -> tuple[KeptComparison, ...]:
        """Return the comparisons that have verdicts on speed: of a load in parts those of its parts."""
        return tuple(one for one in (*self.comparisons, *self.part_comparisons) if not one.parts)


class KeptSearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a search on one workload."""

    workload: str
    sentences: tuple[str, ...]


class KeptSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search."""

    workloads: tuple[KeptSearchAnswer, ...]


class KeptReport(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a report.json that a journal shows."""

    version: int
    workloads: tuple[KeptWorkload, ...]
    experiment: KeptExperiment | None
    search: KeptSearch | None

    @property
    def trials(self) -> frozenset[tuple[int, TrialStatus]]:
        """The numbers of the trials that the report contains, and how they ended."""
        return frozenset((trial.number, trial.status) for one in self.workloads for trial in one.trials)


class ProvenGain(msgspec.Struct, frozen=True, kw_only=True):
    """Durable settings that a study proved to be faster than its own reference."""

    workload: str
    variant: str = msgspec.field(name="arm")
    reference: str
    settings: dict[str, str]
    verdict: Verdict


class Retest(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a study did not find faster."""

    workload: str
    settings: dict[str, str]


def parse_kept(raw: bytes) -> KeptReport:
    """Read a report.json.

    Raises:
        msgspec.DecodeError: The document is damaged or has another structure.
    """
    return msgspec.json.decode(raw, type=KeptReport)


def describe_answers(kept: KeptReport) -> tuple[str, ...]:
    """Return a study's answers, a line for each workload or part of one."""
    if kept.search is not None:
        # The first sentence names its workload.
        return tuple(sentence for one in kept.search.workloads for sentence in one.sentences[:1])
    if kept.experiment is not None and kept.experiment.is_sweep:
        return tuple(f"{one.workload}: {one.sentences[0]}" for one in kept.experiment.list_judged() if one.sentences)
    if kept.experiment is not None:
        unsafe = frozenset(variant.name for variant in kept.experiment.variants if not variant.is_durable)
        return tuple(_answer(one, unsafe) for one in kept.experiment.list_judged())
    return tuple(words for one in kept.workloads for words in one.describe_tps())


def list_gains(kept: KeptReport) -> tuple[ProvenGain, ...]:
    """Return the settings that the study proved faster and durable; none from a study whose noise is in doubt."""
    return tuple(
        ProvenGain(
            workload=comparison.workload,
            variant=variant.name,
            reference=comparison.reference,
            settings=settings,
            verdict=question.verdict,
        )
        for comparison, question, variant, settings in _list_decided(kept)
        if question.verdict.kind is VerdictKind.FASTER and variant.is_durable
    )


def list_retests(kept: KeptReport) -> tuple[Retest, ...]:
    """Return the settings that the study did not find faster."""
    return tuple(
        Retest(workload=comparison.workload, settings=settings)
        for comparison, question, _, settings in _list_decided(kept)
        if question.verdict.kind in {VerdictKind.SLOWER, VerdictKind.EQUIVALENT}
    )


def _list_decided(kept: KeptReport) -> list[tuple[KeptComparison, KeptQuestion, KeptVariant, dict[str, str]]]:
    """Return the decided questions about speed that only settings can explain, with the settings; none of a study whose noise is in doubt."""
    if kept.experiment is None:
        return []
    variants = {variant.name: variant for variant in kept.experiment.variants}
    return [
        (comparison, question, variant, settings)
        for comparison in kept.experiment.list_judged()
        if not comparison.is_noise_told_apart
        for question in comparison.questions
        if question.metric == comparison.primary and question.verdict.is_decided
        for variant in (variants[question.variant],)
        if (settings := _list_settings(variant.planned, variants[comparison.reference].planned))
    ]


def _list_settings(variant: Variant, reference: Variant) -> dict[str, str]:
    """Return the settings in which a variant differs from its reference; none if the two differ in anything else.

    What only the reference sets is part of the difference: "not set".
    """
    if not differ_in_settings_alone(variant, reference):
        return {}
    own, other = (
        {name: str(value) for name, value in {**one.server.settings, **one.sysctl}.items()}
        for one in (variant, reference)
    )
    return {name: own.get(name, _NOT_SET) for name in dict.fromkeys((*own, *other)) if own.get(name) != other.get(name)}


def _answer(comparison: KeptComparison, unsafe: frozenset[str]) -> str:
    own = [one for one in comparison.questions if one.metric == comparison.primary]
    against = f", against {comparison.reference} (not durable)" if own and comparison.reference in unsafe else ""
    names = {one.variant: f"{one.variant}{' (not durable)' if one.variant in unsafe else ''}" for one in own}
    said = [
        f"{names[one.variant]} {name_verdict(one.verdict)}, {describe_change(one.verdict)}"
        for one in own[:_MOST_VARIANTS]
    ]
    more = len(own) - len(said)
    parts = [*said, *([f"{more} more variants"] if more > 0 else [])]
    doubt = " (in doubt: a difference between identical variants was found)" if comparison.is_noise_told_apart else ""
    return f"{comparison.workload}: {'; '.join(parts) or 'no pair yet'}{against}{doubt}"


def _format_tps(tps: Estimate) -> str:
    if tps.value is None:
        return f"no TPS ({tps.reason})" if tps.reason else "no TPS"
    shown = format_estimate(tps)
    # The words for a single trial would say its number again.
    interval = "" if shown.interval.startswith(shown.n) else f" {shown.beside}"
    return f"{shown.value} TPS{interval}, {shown.n}"

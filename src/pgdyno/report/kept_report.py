"""What a record's report.json answers, read back: so that whoever lists many records need not analyse each anew.

Only what a journal shows is read; a report of another version, or of fewer or other trials than the record holds, is for
its reader to write anew.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.verdict import Verdict, VerdictKind
from pgdyno.record.types import TrialStatus
from pgdyno.report.comparison import describe_change, name_verdict
from pgdyno.report.format import format_estimate

_MOST_ARMS = 3


class KeptTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that the report knows."""

    number: int
    status: TrialStatus


class KeptWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's own figures."""

    name: str
    tps: Estimate
    trials: tuple[KeptTrial, ...]


class KeptPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """What a variant changes."""

    changed: dict[str, Any] = {}
    sysctl: dict[str, str] = {}


class KeptArm(msgspec.Struct, frozen=True, kw_only=True):
    """A variant."""

    name: str
    is_durable: bool
    planned: KeptPlanned

    @property
    def settings(self) -> dict[str, str]:
        """What it sets, as text."""
        return {name: str(value) for name, value in {**self.planned.changed, **self.planned.sysctl}.items()}


class KeptQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A variant against the reference in one metric."""

    arm: str
    metric: str
    verdict: Verdict


class KeptComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The answers about one workload."""

    workload: str
    primary: str
    reference: str
    sentences: tuple[str, ...]
    questions: tuple[KeptQuestion, ...]
    is_noise_told_apart: bool
    sweep: Any = None
    """The curve of a sweep over clients, which its first sentence sums up; None without one."""


class KeptExperiment(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison."""

    arms: tuple[KeptArm, ...]
    comparisons: tuple[KeptComparison, ...]


class KeptSearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a search on one workload."""

    workload: str
    sentences: tuple[str, ...]


class KeptSearch(msgspec.Struct, frozen=True, kw_only=True):
    """A search."""

    workloads: tuple[KeptSearchAnswer, ...]


class KeptReport(msgspec.Struct, frozen=True, kw_only=True):
    """Of a report.json what a journal shows."""

    version: int
    workloads: tuple[KeptWorkload, ...]
    experiment: KeptExperiment | None
    search: KeptSearch | None

    @property
    def trials(self) -> frozenset[tuple[int, TrialStatus]]:
        """Numbers of the trials that it knows, and how they ended."""
        return frozenset((trial.number, trial.status) for one in self.workloads for trial in one.trials)


class ProvenGain(msgspec.Struct, frozen=True, kw_only=True):
    """Durable settings that a study proved to be faster than its own reference."""

    workload: str
    arm: str
    reference: str
    settings: dict[str, str]
    verdict: Verdict


class Retest(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that a study decided not to be faster."""

    workload: str
    settings: dict[str, str]


def parse_kept(raw: bytes) -> KeptReport:
    """Read a report.json.

    Raises:
        msgspec.DecodeError: It is damaged, or of another form.
    """
    return msgspec.json.decode(raw, type=KeptReport)


def describe_answers(kept: KeptReport) -> tuple[str, ...]:
    """What a study answers, a line for each workload."""
    if kept.search is not None:
        # The first sentence names its workload.
        return tuple(sentence for one in kept.search.workloads for sentence in one.sentences[:1])
    if kept.experiment is not None:
        unsafe = frozenset(arm.name for arm in kept.experiment.arms if not arm.is_durable)
        return tuple(_answer(one, unsafe) for one in kept.experiment.comparisons)
    return tuple(f"{one.name}: {_say_tps(one.tps)}" for one in kept.workloads)


def list_gains(kept: KeptReport) -> tuple[ProvenGain, ...]:
    """What it proved to be faster and durable; nothing where it told identical variants apart."""
    return tuple(
        ProvenGain(
            workload=comparison.workload,
            arm=arm.name,
            reference=comparison.reference,
            settings=arm.settings,
            verdict=question.verdict,
        )
        for comparison, question, arm in _list_decided(kept)
        if question.verdict.kind is VerdictKind.FASTER and arm.is_durable and arm.settings
    )


def list_retests(kept: KeptReport) -> tuple[Retest, ...]:
    """What it decided not to be faster."""
    return tuple(
        Retest(workload=comparison.workload, settings=arm.settings)
        for comparison, question, arm in _list_decided(kept)
        if question.verdict.kind in {VerdictKind.SLOWER, VerdictKind.EQUIVALENT}
    )


def _list_decided(kept: KeptReport) -> list[tuple[KeptComparison, KeptQuestion, KeptArm]]:
    """Questions about speed that got an answer, of studies whose noise is not in doubt."""
    if kept.experiment is None:
        return []
    arms = {arm.name: arm for arm in kept.experiment.arms}
    return [
        (comparison, question, arms[question.arm])
        for comparison in kept.experiment.comparisons
        if not comparison.is_noise_told_apart
        for question in comparison.questions
        if question.metric == comparison.primary and question.verdict.is_decided
    ]


def _answer(comparison: KeptComparison, unsafe: frozenset[str]) -> str:
    if comparison.sweep is not None and comparison.sentences:
        return f"{comparison.workload}: {comparison.sentences[0]}"
    own = [one for one in comparison.questions if one.metric == comparison.primary]
    names = {one.arm: f"{one.arm}{' (not durable)' if one.arm in unsafe else ''}" for one in own}
    said = [f"{names[one.arm]} {name_verdict(one.verdict)}, {describe_change(one.verdict)}" for one in own[:_MOST_ARMS]]
    more = len(own) - len(said)
    parts = [*said, *([f"{more} more variants"] if more > 0 else [])]
    doubt = " (in doubt: identical variants were told apart)" if comparison.is_noise_told_apart else ""
    return f"{comparison.workload}: {'; '.join(parts) or 'no pair yet'}{doubt}"


def _say_tps(tps: Estimate) -> str:
    if tps.value is None:
        return f"no TPS ({tps.reason})" if tps.reason else "no TPS"
    shown = format_estimate(tps)
    interval = f" {shown.interval}" if shown.interval.startswith("[") else ""
    return f"{shown.value} TPS{interval}, {shown.n}"

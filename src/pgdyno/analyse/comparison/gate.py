"""Judge a comparison by the conditions of a gate: which of them are proven of which variant, and how often by chance.

A gate fails only on what is proven. A word such as `slower` asks for that verdict. A threshold asks that the whole interval
lies beyond it; an interval that touches the threshold does not fail. What is merely undecided fails only if a condition
says so.

The rate of a gate is the share of runs in which it fails although no variant changes anything. Each metric has its own
family of questions, all variants on all workloads, in which anything false is found with a probability of at most alpha
(see `verdict.py`); parts of loads are one more family. A gate that judges several families fails by chance with at most the
sum. The interval that a threshold is compared with is that at 1 - alpha/m for all m questions (Bonferroni). The narrower
intervals that Holm's step-down gives to variants that differ hold for each variant alone, and m thresholds at once would be
crossed by chance too often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pgdyno.analyse.comparison.answers import JUDGED_METRICS, Comparison, Question
from pgdyno.analyse.comparison.verdict import Verdict, VerdictKind
from pgdyno.plan.experiment import Experiment
from pgdyno.spec.gate import Condition, Threshold, VerdictWord

# Levels are computed as 1 - (1 - alpha/m).
_ROUNDING = 1e-9


class JudgedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its workload and the reference."""

    workload: str
    reference: str
    verdict: Verdict


class Failure(JudgedVerdict, frozen=True, kw_only=True):
    """A condition that holds for a variant on a workload; its verdict has the interval that the condition was judged by."""

    condition: Condition


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a gate."""

    conditions: tuple[Condition, ...]
    failures: tuple[Failure, ...]
    dropped: tuple[str, ...]
    """Variants that dropped out of the comparison. They fail every gate: a server that does not run is no pass."""
    undecided: tuple[JudgedVerdict, ...]
    """Questions that are inconclusive in the deciding metric, where no condition makes that a failure."""
    unobserved: tuple[Condition, ...]
    """Thresholds on metrics that have no figures in this comparison. They cannot fail."""
    metrics: tuple[str, ...]
    """The metrics that the conditions judge."""
    false_ratio: float
    """Largest share of gates that fail by chance if no variant changes anything; 0 if no metric is judged."""
    loud: tuple[JudgedVerdict, ...]
    """Where the reference was found to differ from itself in one of these metrics. No verdict is then to be trusted."""

    @property
    def is_failed(self) -> bool:
        """True if the gate fails."""
        return bool(self.conditions and (self.failures or self.dropped))

    def find_failures(self, workload: str, question: Question) -> tuple[Failure, ...]:
        """Return the failures of one question."""
        named = (workload, question.variant, question.metric)
        return tuple(one for one in self.failures if (one.workload, one.verdict.variant, one.verdict.metric) == named)


class _Asked(NamedTuple):
    comparison: Comparison
    question: Question


def judge_gate(
    comparisons: Sequence[Comparison],
    experiment: Experiment,
    conditions: Sequence[Condition],
    *,
    dropped: Mapping[str, object] | None = None,
    family_count: int = 1,
) -> GateResult:
    """Judge a comparison by conditions.

    Args:
        comparisons: The comparison on each workload, or on each part of one.
        experiment: The experiment; its error rate and number of variants set the level of the intervals.
        conditions: What must not be proven.
        dropped: The variants that dropped out, by name.
        family_count: Number of families of questions about each metric; each family has an alpha of its own.
    """
    gone = tuple(variant.name for variant in experiment.variants if variant.name in (dropped or {}))
    asked = [
        _Asked(comparison, question)
        for comparison in comparisons
        for question in comparison.questions
        # A variant that dropped out before its first pair fails by itself.
        if question.log_ratios or question.variant not in gone
    ]
    judged = {condition: [one for one in asked if _concerns(condition, one)] for condition in conditions}
    level = experiment.alpha / max(1, len(comparisons) * (len(experiment.variants) - 1))
    metrics = dict.fromkeys(
        one.question.metric
        for condition, of in judged.items()
        if condition is not VerdictWord.INCONCLUSIVE
        for one in of
    )
    undecided = [
        one for one in asked if _concerns(VerdictWord.INCONCLUSIVE, one) and not one.question.verdict.is_decided
    ]
    return GateResult(
        conditions=tuple(conditions),
        failures=tuple(_find_failures(judged, level)),
        dropped=gone,
        undecided=() if VerdictWord.INCONCLUSIVE in conditions else tuple(_name(one) for one in undecided),
        unobserved=tuple(condition for condition, of in judged.items() if not of),
        metrics=tuple(metrics),
        false_ratio=min(1.0, experiment.alpha * len(metrics) * family_count),
        loud=tuple(
            _name(_Asked(comparison, noise))
            for comparison in comparisons
            for noise in comparison.noise
            if noise.metric in metrics and noise.verdict.is_different
        ),
    )


def _concerns(condition: Condition, asked: _Asked) -> bool:
    """Return whether a condition judges a question."""
    metric = asked.question.metric
    if isinstance(condition, Threshold):
        return metric == condition.metric
    return metric in JUDGED_METRICS if condition is VerdictWord.WORSE else metric == asked.comparison.primary


def _find_failures(judged: Mapping[Condition, Sequence[_Asked]], level: float) -> Iterator[Failure]:
    for condition, of in judged.items():
        for asked in of:
            if isinstance(condition, Threshold):
                verdict = _at_level(asked.question, level)
                if _is_beyond(condition, verdict):
                    yield _fail(condition, asked, verdict)
            elif asked.question.verdict.kind is _KINDS[condition]:
                yield _fail(condition, asked, asked.question.verdict)


_KINDS = {
    VerdictWord.SLOWER: VerdictKind.SLOWER,
    VerdictWord.WORSE: VerdictKind.SLOWER,
    VerdictWord.INCONCLUSIVE: VerdictKind.INCONCLUSIVE,
}


def _is_beyond(threshold: Threshold, verdict: Verdict) -> bool:
    if threshold.is_upper:
        return verdict.low_ratio is not None and verdict.low_ratio > threshold.bound_ratio
    return verdict.high_ratio is not None and verdict.high_ratio < threshold.bound_ratio


def _at_level(question: Question, level: float) -> Verdict:
    """Return a question's verdict with the interval at 1 - level, where Holm's step-down gave it a narrower one."""
    verdict = question.verdict
    if 1.0 - verdict.confidence <= level * (1 + _ROUNDING):
        return verdict
    verdict = msgspec.structs.replace(verdict, confidence=1.0 - level)
    interval = question.gather(verdict).interval
    low, high = (None if end is None else math.expm1(end) for end in (interval.low, interval.high))
    return msgspec.structs.replace(verdict, low_ratio=low, high_ratio=high)


def _name(asked: _Asked) -> JudgedVerdict:
    comparison = asked.comparison
    return JudgedVerdict(workload=comparison.workload, reference=comparison.reference, verdict=asked.question.verdict)


def _fail(condition: Condition, asked: _Asked, verdict: Verdict) -> Failure:
    comparison = asked.comparison
    return Failure(condition=condition, workload=comparison.workload, reference=comparison.reference, verdict=verdict)

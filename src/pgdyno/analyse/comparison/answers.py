"""From rounds to answers: for every variant and metric the pairs, their verdict, and what two identical variants differed by.

The pair is the unit. Within a round, d = ln Y_B - (ln Y_A + ln Y_A')/2: the reference runs twice, so that every round
also says how far two identical variants differ, ln Y_A - ln Y_A', at a cost of a tenth in precision for two variants and none
for three or more. Nothing here looks at a single run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pgdyno.analyse.comparison.verdict import Verdict, decide_family
from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.facts.metrics import find_metric
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.plan import PlannedWorkload

SPEED_METRICS = ("tps", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
COUNT_METRICS = (
    "wal_bytes",
    "wal_fpi_count",
    "wal_sync_count",
    "device_flush_count",
    "blks_read_pages",
    "device_read_bytes",
    "device_write_bytes",
    "cpu_ms",
)
"""Of all that happened while a variant was in force, divided by its transactions: nearly without noise, they explain."""

Values = Mapping[str, float]
"""Metric name to a positive value; a metric that was not seen, or has no ratio, is missing."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in one round.

    `at_s` is when it ended, on the record's monotonic clock; `length_s` what it took, changes and restoring included.
    `values` has an entry for each time the variant ran: two for the reference.
    """

    trial: int
    """The number of its (first) trial."""
    at_s: float
    length_s: float
    values: dict[str, tuple[Values, ...]]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One variant against the reference in one metric."""

    variant: str
    metric: str
    at_s: tuple[float, ...]
    """When each pair ended, on the record's monotonic clock."""
    log_ratios: tuple[float, ...]
    """ln of the variant over the reference, of each pair in the order of running."""
    spent_s: float
    """What the rounds of these pairs took, changes and restoring included."""
    verdict: Verdict


class VariantFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a variant showed by itself, as geometric means over its rounds. For tables: verdicts come from pairs."""

    variant: str
    estimates: dict[str, Estimate]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All questions about one workload. Noise is the reference against itself, with a verdict like any other."""

    workload: str
    primary: str
    """The metric that decides when the experiment ends."""
    reference: str
    figures: tuple[VariantFigures, ...]
    questions: tuple[Question, ...]
    noise: tuple[Question, ...]
    round_s: float | None
    """What a round took, in seconds; None without one."""
    rounds: int
    """Those that hold both references."""

    def find(self, variant: str, metric: str) -> Question | None:
        """The question of that variant and metric; None when it was never seen."""
        return next((q for q in self.questions if q.variant == variant and q.metric == metric), None)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The variants that the primary metric has not decided yet."""
        return tuple(q.variant for q in self.questions if q.metric == self.primary and not q.verdict.is_decided)

    def find_noise(self, metric: str) -> Question | None:
        """How the reference differed from itself in that metric."""
        return next((q for q in self.noise if q.metric == metric), None)


def primary_metric(workload: PlannedWorkload) -> str:
    """What decides: TPS, or in an open loop, whose TPS is given, the tail of the latency."""
    return "tps" if workload.rate_tps is None else "latency_p95_ms"


def compare(
    rounds: Mapping[str, Sequence[Round]],
    experiment: Experiment,
    *,
    primary: Mapping[str, str],
    metrics: Sequence[str] = (*SPEED_METRICS, *COUNT_METRICS),
    noise_seed: int = 1,
) -> tuple[Comparison, ...]:
    """Answer every question of an experiment from the rounds seen so far.

    Args:
        rounds: By workload, in the order of the study.
        experiment: What is compared; its family of questions is all variants on all workloads, whether seen or not.
        primary: By workload, the metric that decides.
        metrics: Those wanted; the live decision needs only the primary one.
        noise_seed: Draws which of the two references is called the first.
    """
    variants = [variant.name for variant in experiment.variants[1:]]
    reference = experiment.reference.name
    # A round that lacks one of its references compares nothing.
    rounds = {name: [one for one in of if len(one.values.get(reference, ())) == 2] for name, of in rounds.items()}
    names = [(workload, variant) for workload in rounds for variant in variants]
    questions: dict[str, list[Question]] = {workload: [] for workload in rounds}
    noise: dict[str, list[Question]] = {workload: [] for workload in rounds}
    for metric in metrics:
        pairs = {name: _pair(rounds[name[0]], name[1], reference, metric) for name in names}
        for (workload, _), question in _decide(pairs, metric, experiment).items():
            if question.log_ratios or metric == primary[workload]:
                questions[workload].append(question)
        twins = {
            (workload, reference): _pair_twins(rounds[workload], reference, metric, noise_seed) for workload in rounds
        }
        for (workload, _), question in _decide(twins, metric, experiment).items():
            if question.log_ratios:
                noise[workload].append(question)
    return tuple(
        Comparison(
            workload=workload,
            primary=primary[workload],
            reference=reference,
            figures=tuple(_figures(seen, variant.name, metrics) for variant in experiment.variants),
            questions=tuple(questions[workload]),
            noise=tuple(noise[workload]),
            round_s=float(np.median([one.length_s for one in seen])) if seen else None,
            rounds=len(seen),
        )
        for workload, seen in rounds.items()
    )


class _Pair(NamedTuple):
    at_s: float
    length_s: float
    log_ratio: float


_Pairs = list[_Pair]


def _pair(rounds: Sequence[Round], variant: str, reference: str, metric: str) -> _Pairs:
    pairs = []
    for one in rounds:
        base = _logs(one, reference, metric)
        other = _logs(one, variant, metric)
        if len(base) == 2 and len(other) == 1:
            pairs.append(_Pair(one.at_s, one.length_s, other[0] - (base[0] + base[1]) / 2.0))
    return pairs


def _pair_twins(rounds: Sequence[Round], reference: str, metric: str, seed: int) -> _Pairs:
    # Which of the two came first must not decide the sign: a drift within rounds would look like a difference.
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=len(rounds))
    pairs = []
    for one, sign in zip(rounds, signs, strict=True):
        base = _logs(one, reference, metric)
        if len(base) == 2:
            pairs.append(_Pair(one.at_s, one.length_s, float(sign) * (base[0] - base[1])))
    return pairs


def _logs(one: Round, variant: str, metric: str) -> list[float]:
    return [math.log(values[metric]) for values in one.values.get(variant, ()) if metric in values]


def _decide(
    pairs: Mapping[tuple[str, str], _Pairs], metric: str, experiment: Experiment
) -> dict[tuple[str, str], Question]:
    verdicts = decide_family(
        # By number: names of variants and workloads joined need not differ.
        {str(number): [pair.log_ratio for pair in of] for number, of in enumerate(pairs.values())},
        metric=metric,
        better=find_metric(metric).better,
        alpha=experiment.alpha,
        delta_ratio=experiment.detect_ratio,
    )
    return {
        (workload, variant): Question(
            variant=variant,
            metric=metric,
            at_s=tuple(pair.at_s for pair in of),
            log_ratios=tuple(pair.log_ratio for pair in of),
            spent_s=sum(pair.length_s for pair in of),
            verdict=msgspec.structs.replace(verdict, variant=variant),
        )
        for ((workload, variant), of), verdict in zip(pairs.items(), verdicts, strict=True)
    }


def _figures(rounds: Sequence[Round], variant: str, metrics: Sequence[str]) -> VariantFigures:
    estimates = {}
    for metric in metrics:
        logs = [_logs(one, variant, metric) for one in rounds]
        # A round is one observation, also of the reference, which ran twice in it.
        values = [math.exp(sum(each) / len(each)) for each in logs if each]
        if values:
            estimates[metric] = estimate_geometric_mean(values, unit=find_metric(metric).unit)
    return VariantFigures(variant=variant, estimates=estimates)

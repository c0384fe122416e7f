"""Compare variants over rounds: the pairs of every variant and metric, their verdict, and the noise of the reference.

The pair is the unit. Within a round, d = ln Y_B - (ln Y_A + ln Y_A')/2. The reference runs twice, so every round also
shows how far two identical variants differ: ln Y_A - ln Y_A'. This costs a tenth of the precision with two variants and
nothing with three or more. No verdict comes from a single run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pgdyno.analyse.comparison.e_process import Evidence, gather_evidence
from pgdyno.analyse.comparison.final_look import LookPlace
from pgdyno.analyse.comparison.repeats import Repeated, find_extremes
from pgdyno.analyse.comparison.rounding import Rounding, find_pair_change
from pgdyno.analyse.comparison.verdict import Verdict, decide_family
from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.analyse.failover import OUTAGE_METRICS
from pgdyno.facts.metrics import find_metric
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.plan import PlannedWorkload

SPEED_METRICS = ("tps", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
_OPEN_LOOP_METRIC = "latency_p95_ms"
INIT_METRICS = (
    "init_s",
    "init_tables_s",
    "init_generate_s",
    "init_vacuum_s",
    "init_primary_keys_s",
    "init_foreign_keys_s",
    "init_checkpoint_s",
)
"""Seconds of loading, in whole and by its steps, where loading is the load."""
JUDGED_METRICS = (*SPEED_METRICS, *INIT_METRICS, *OUTAGE_METRICS)
"""Metrics that say by themselves whether a variant is better."""
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
"""Counts while a variant was in force, divided by its transactions: they are nearly free of noise and explain a result."""

Values = Mapping[str, float]
"""Metric name to a positive value; a metric that was not observed, or has no ratio, is missing."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The observed values of one round.

    `at_s` is the end of the round on the record's monotonic clock; `length_s` is its duration, changes and restores
    included. `values` has an entry for each time the variant ran: two for the reference.
    """

    trial: int
    """The number of its (first) trial."""
    at_s: float
    length_s: float
    values: dict[str, tuple[Values, ...]]
    rounding: Mapping[str, Rounding] = {}
    """How values are rounded, by metric; none of metrics that are hardly rounded at all."""
    repeated: tuple[str, ...] = ()
    """The variant of each value whose trial had failed before; the reference may be there twice."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One variant against the reference in one metric."""

    variant: str
    metric: str
    at_s: tuple[float, ...]
    """End of each pair, on the record's monotonic clock."""
    log_ratios: tuple[float, ...]
    """ln of the variant over the reference for each pair, in the order of running."""
    spent_s: float
    """Duration of the rounds of these pairs, changes and restores included."""
    verdict: Verdict
    last_trial: int | None = None
    """Number of the first trial in the round of the last pair; None without pairs."""
    resolution: float = 0.0
    """The most by which rounding can have changed a log ratio."""
    extremes: tuple[tuple[float, ...], ...] = ()
    """The log ratios at the lowest and at the highest that trials which failed leave possible; empty where both sides failed
    alike."""

    def gather(self, verdict: Verdict) -> Evidence:
        """Gather the evidence of the pairs at the level of a verdict: that of the question, or with another level."""
        return gather_evidence(
            self.log_ratios,
            alpha=verdict.sequential_alpha,
            looked=verdict.looked,
            resolution=self.resolution,
            extremes=self.extremes,
        )


class VariantFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A variant's own figures, as geometric means over its rounds. For tables only: verdicts come from pairs."""

    variant: str
    estimates: dict[str, Estimate]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All questions about one workload. Noise compares the reference with itself and has a verdict like any other."""

    workload: str
    primary: str
    """The metric that decides when the experiment ends."""
    reference: str
    figures: tuple[VariantFigures, ...]
    questions: tuple[Question, ...]
    noise: tuple[Question, ...]
    round_s: float | None
    """Median duration of a round; None without rounds."""
    rounds: int
    """Number of rounds that hold both runs of the reference."""

    def find(self, variant: str, metric: str) -> Question | None:
        """Return the question of a variant and metric; None if the metric was not observed."""
        return next((q for q in self.questions if q.variant == variant and q.metric == metric), None)

    def list_primary(self) -> tuple[Question, ...]:
        """Return the questions in the deciding metric."""
        return tuple(question for question in self.questions if question.metric == self.primary)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The variants that are still undecided in the primary metric."""
        return tuple(q.variant for q in self.list_primary() if not q.verdict.is_decided)

    def find_noise(self, metric: str) -> Question | None:
        """Return the comparison of the reference with itself in a metric; None if the metric was not observed."""
        return next((q for q in self.noise if q.metric == metric), None)


def primary_metric(workload: PlannedWorkload) -> str:
    """Return the deciding metric: TPS; the tail latency in an open loop; the time of loading, or without service."""
    if workload.failover is not None:
        return OUTAGE_METRICS[0]
    if workload.is_loading:
        return INIT_METRICS[0]
    return choose_speed_metric(workload.rate_tps)


def choose_speed_metric(rate_tps: float | None) -> str:
    """Choose the deciding metric of speed: TPS, or the tail latency where a rate is scheduled."""
    return SPEED_METRICS[0] if rate_tps is None else _OPEN_LOOP_METRIC


def compare(
    rounds: Mapping[str, Sequence[Round]],
    experiment: Experiment,
    *,
    primary: Mapping[str, str],
    metrics: Sequence[str] = (*JUDGED_METRICS, *COUNT_METRICS),
    final_looks: Mapping[str, int] | None = None,
    planned_rounds: Mapping[str, int] | None = None,
) -> tuple[Comparison, ...]:
    """Answer every question of an experiment from the rounds so far.

    Args:
        rounds: By workload, in the order of the study.
        experiment: The experiment; its family of questions is all variants on all workloads, observed or not.
        primary: The deciding metric, by workload.
        metrics: Metrics to compare; the live decision needs only the primary one.
        final_looks: By workload, the number of the last trial in its final look; empty while none is made.
        planned_rounds: By workload, the number of rounds that its final look will have, where it is known.
    """
    variants = [variant.name for variant in experiment.variants[1:]]
    reference = experiment.reference.name
    # What a round before the latest lacks is never made up for.
    lost = {
        (workload, variant): sum(variant not in one.values or len(one.values.get(reference, ())) < 2 for one in of[:-1])
        for workload, of in rounds.items()
        for variant in (reference, *variants)
    }
    # A round that lacks a run of its reference compares nothing.
    rounds = {name: [one for one in of if len(one.values.get(reference, ())) == 2] for name, of in rounds.items()}
    names = [(workload, variant) for workload in rounds for variant in variants]
    last_trials, planned = final_looks or {}, planned_rounds or {}
    looks = {
        (workload, variant): _Look(
            last_trials.get(workload), variant, of, max(0, planned.get(workload, 0) - lost[workload, variant])
        )
        for workload, of in rounds.items()
        for variant in (reference, *variants)
    }
    questions: dict[str, list[Question]] = {workload: [] for workload in rounds}
    noise: dict[str, list[Question]] = {workload: [] for workload in rounds}
    for metric in metrics:
        pairs = {name: _pair_with_reference(rounds[name[0]], name[1], reference, metric) for name in names}
        for (workload, _), question in _decide(pairs, metric, experiment, looks).items():
            if question.log_ratios or metric == primary[workload]:
                questions[workload].append(question)
        twins = {
            (workload, reference): _pair_reference_runs(rounds[workload], reference, metric) for workload in rounds
        }
        for (workload, _), question in _decide(twins, metric, experiment, looks).items():
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
    trial: int
    at_s: float
    length_s: float
    log_ratio: float
    resolution: float
    own_ratio: float
    """ln of one run of the reference over the other."""
    repeated: Repeated = Repeated()


_Pairs = list[_Pair]


class _Look:
    """The final look at one variant on one workload.

    A variant that was decided before gets no more rounds. It is left out of the look: log ratios, and not the plan, have
    chosen how many pairs it has. All others are in the last round of the look, whether or not a metric was observed there.

    Args:
        last_trial: Number of the last trial in the look; None before the look.
        variant: Its name.
        rounds: Of the workload.
        planned: Number of rounds planned for the look; 0 if it is not known.
    """

    def __init__(self, last_trial: int | None, variant: str, rounds: Sequence[Round], planned: int) -> None:
        self._last_trial = last_trial
        self._planned = planned
        last = next((one for one in reversed(rounds) if last_trial is not None and one.trial <= last_trial), None)
        self._is_tested = last is not None and variant in last.values

    def place(self, pairs: _Pairs) -> LookPlace:
        """Return where the look lies among the pairs in one metric."""
        if self._last_trial is None:
            return LookPlace(planned=self._planned)
        return LookPlace(looked=sum(pair.trial <= self._last_trial for pair in pairs) if self._is_tested else 0)


def _pair_with_reference(rounds: Sequence[Round], variant: str, reference: str, metric: str) -> _Pairs:
    pairs = []
    for one in rounds:
        base, other = _values(one, reference, metric), _values(one, variant, metric)
        if len(base) == 2 and len(other) == 1:
            log_ratio = math.log(other[0]) - sum(map(math.log, base)) / 2.0
            resolution = find_pair_change(one.rounding.get(metric), base, other)
            own_ratio = math.log(base[0]) - math.log(base[1])
            repeated = Repeated(*map(one.repeated.count, (variant, reference)))
            pairs.append(_Pair(one.trial, one.at_s, one.length_s, log_ratio, resolution, own_ratio, repeated))
    return pairs


def _pair_reference_runs(rounds: Sequence[Round], reference: str, metric: str) -> _Pairs:
    # The order of the two runs must not set the sign, or a drift within rounds would look like a difference. A fixed
    # seed draws the same signs in every report.
    signs = np.random.default_rng(1).choice((-1.0, 1.0), size=len(rounds))
    pairs = []
    for one, sign in zip(rounds, signs, strict=True):
        base = _values(one, reference, metric)
        if len(base) == 2:
            log_ratio = float(sign) * (math.log(base[0]) - math.log(base[1]))
            resolution = find_pair_change(one.rounding.get(metric), base[:1], base[1:])
            # The reference fails as it does itself.
            pairs.append(_Pair(one.trial, one.at_s, one.length_s, log_ratio, resolution, log_ratio))
    return pairs


def _values(one: Round, variant: str, metric: str) -> list[float]:
    return [values[metric] for values in one.values.get(variant, ()) if metric in values]


def _decide(
    pairs: Mapping[tuple[str, str], _Pairs],
    metric: str,
    experiment: Experiment,
    looks: Mapping[tuple[str, str], _Look],
) -> dict[tuple[str, str], Question]:
    resolutions = [max((pair.resolution for pair in of), default=0.0) for of in pairs.values()]
    extremes = [
        find_extremes([pair.log_ratio for pair in of], [pair.own_ratio for pair in of], [pair.repeated for pair in of])
        for of in pairs.values()
    ]
    verdicts = decide_family(
        # Keyed by number, because joined names of variants and workloads may not be unique.
        {str(number): [pair.log_ratio for pair in of] for number, of in enumerate(pairs.values())},
        metric=metric,
        better=find_metric(metric).better,
        alpha=experiment.alpha,
        delta_ratio=experiment.detect_ratio,
        places={str(number): looks[name].place(of) for number, (name, of) in enumerate(pairs.items())}
        if experiment.final_look
        else None,
        resolutions={str(number): resolution for number, resolution in enumerate(resolutions)},
        extremes={str(number): of for number, of in enumerate(extremes)},
    )
    return {
        (workload, variant): Question(
            variant=variant,
            metric=metric,
            at_s=tuple(pair.at_s for pair in of),
            log_ratios=tuple(pair.log_ratio for pair in of),
            spent_s=sum(pair.length_s for pair in of),
            verdict=msgspec.structs.replace(verdict, variant=variant),
            last_trial=of[-1].trial if of else None,
            resolution=resolution,
            extremes=of_pairs,
        )
        for ((workload, variant), of), verdict, resolution, of_pairs in zip(
            pairs.items(), verdicts, resolutions, extremes, strict=True
        )
    }


def _figures(rounds: Sequence[Round], variant: str, metrics: Sequence[str]) -> VariantFigures:
    estimates = {}
    for metric in metrics:
        seen = [_values(one, variant, metric) for one in rounds]
        # A round is one observation, even of the reference, which ran twice in it.
        values = [math.exp(sum(map(math.log, each)) / len(each)) for each in seen if each]
        if values:
            steps = [one.rounding[metric] for one in rounds if metric in one.rounding]
            estimates[metric] = estimate_geometric_mean(
                values,
                unit=find_metric(metric).unit,
                resolution_ratio=max((step.find_step_ratio(min(values)) for step in steps), default=0.0),
            )
    return VariantFigures(variant=variant, estimates=estimates)

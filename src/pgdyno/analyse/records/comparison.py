"""Compare records side by side: their differences, figures of each with intervals, and ratios where they have a meaning.

Before any figure of one record is divided by one of another, every rule looks at both and yields their differences, in
one of three kinds. *Refused*: the figures answer different questions, so there is no ratio. *To be declared*: the ratio
is meaningful only beside this difference. *Free*: it is what a DBA compares machines, versions or settings for, or
cannot matter. If a rule lacks evidence, it declares that.

There is never a verdict between records. Their trials did not alternate, so every change from one hour or machine to
the other is part of their difference, and no number of trials removes it. A ratio's interval shows only how well each
record repeated itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from pgdyno.analyse.comparison.welch import ratio_of
from pgdyno.analyse.estimate import Estimate, absent_estimate, estimate_over_trials, map_estimate
from pgdyno.analyse.records import context, questions
from pgdyno.analyse.records.difference import DifferenceGravity, RecordDifference
from pgdyno.analyse.records.sides import Side, pair_sides
from pgdyno.facts.metrics import find_metric

TPS_PER_CPU = "tps_per_cpu"
LIMIT = "limit_tps"
_LATENCIES = ("mean", "p50", "p95", "p99")
# Counts per transaction, which are nearly free of noise and explain a result.
_COUNTS = ("wal_bytes", "wal_fpi_count", "blks_read_pages")


class RecordFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of both sides, and its ratio."""

    metric: str
    """`tps`, `tps_per_cpu`, `limit_tps`, `latency_mean_ms`, `latency_p50_ms` …, or a counter, then per transaction."""
    first: Estimate
    other: Estimate
    ratio: Estimate | None
    """The other side's figure over the first one's; None after a refusal."""


class PairComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A load of the first record compared with that of another record."""

    first: Side
    other: Side
    differences: tuple[RecordDifference, ...]
    figures: tuple[RecordFigure, ...]

    @property
    def refusals(self) -> tuple[RecordDifference, ...]:
        """Why the two may not be compared; empty if they may."""
        return tuple(one for one in self.differences if one.standing is DifferenceGravity.REFUSED)


class RecordComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A record compared with the first one."""

    place: int
    """Index of the record among those named; the first is 0."""
    pairs: tuple[PairComparison, ...]
    only_first: tuple[str, ...]
    """Loads that only the first record has."""
    only_other: tuple[str, ...]

    @property
    def is_refused(self) -> bool:
        """True if a requested comparison has no answer."""
        return not self.pairs or any(pair.refusals for pair in self.pairs)


def compare_records(records: Sequence[Sequence[Side]]) -> tuple[RecordComparison, ...]:
    """Compare each other record with the first.

    Args:
        records: The sides of each record.
    """
    return tuple(_compare(records[0], other, place) for place, other in enumerate(records[1:], start=1))


def list_differences(first: Side, other: Side) -> tuple[RecordDifference, ...]:
    """List all differences between two sides, refusals first; without a refusal they may be compared."""
    found = [difference for rule in _RULES for difference in rule(first, other)]
    order = list(DifferenceGravity)
    return tuple(sorted(found, key=lambda one: order.index(one.standing)))


def ask_alike(first: Side, other: Side) -> bool:
    """Return whether two sides ask the same question, whatever the answers are and however far they may be trusted.

    If their trials were meant to last about as long, checkpoints and cliffs that only one has are part of the answer;
    otherwise, of the question.
    """
    rules = _ASKED if questions.last_alike(first, other) else _QUESTIONS
    return not any(one.standing is DifferenceGravity.REFUSED for rule in rules for one in rule(first, other))


_Rules = tuple[Callable[[Side, Side], Iterator[RecordDifference]], ...]
_ASKED: _Rules = (
    questions.load,
    questions.data,
    questions.durability,
    questions.state,
)
_QUESTIONS: _Rules = (
    *_ASKED,
    questions.length,
    questions.course,
)
_RULES: _Rules = (
    *_QUESTIONS,
    context.validity,
    context.trials,
    context.software,
    context.machine,
)


def _compare(first: Sequence[Side], other: Sequence[Side], place: int) -> RecordComparison:
    found = pair_sides(first, other)
    return RecordComparison(
        place=place,
        pairs=tuple(_compare_pair(*pair) for pair in found.pairs),
        only_first=found.only_first,
        only_other=found.only_other,
    )


def _compare_pair(first: Side, other: Side) -> PairComparison:
    differences = list_differences(first, other)
    is_refused = any(one.standing is DifferenceGravity.REFUSED for one in differences)
    has_one_limit = first.limit == other.limit
    ours, theirs = (dict(_list_estimates(side)) for side in (first, other))
    return PairComparison(
        first=first,
        other=other,
        differences=differences,
        figures=tuple(
            RecordFigure(
                metric=metric,
                first=ours[metric],
                other=theirs[metric],
                ratio=None if is_refused else _ratio(metric, ours[metric], theirs[metric]),
            )
            for metric in ours
            if metric in theirs and (metric != LIMIT or has_one_limit)
        ),
    )


def _list_estimates(side: Side) -> Iterator[tuple[str, Estimate]]:
    cpu_count = side.record.usable_cpu_count
    yield "tps", side.workload.tps
    # All parts use the CPUs, and what is counted is of all of them.
    if side.part is None:
        per_cpu = absent_estimate("the server's CPUs were not seen", unit="tps")
        if cpu_count is not None:
            per_cpu = map_estimate(side.workload.tps, lambda at: at / cpu_count)
        yield TPS_PER_CPU, per_cpu
    if side.limit_tps is not None:
        yield LIMIT, side.limit_tps
    for name in _LATENCIES:
        if name in side.workload.latency_ms:
            yield f"latency_{name}_ms", side.workload.latency_ms[name]
    for name in _COUNTS if side.part is None else ():
        values = [trial.counts_per_transaction.get(name) for trial in side.trials]
        if any(values):
            unit, rounds = find_metric(name).unit, [trial.record.planned.round for trial in side.trials]
            yield name, estimate_over_trials(values, unit=unit, missing="not counted", rounds=rounds)


def _ratio(metric: str, first: Estimate, other: Estimate) -> Estimate:
    ratio = ratio_of(first, other)
    if metric != LIMIT:
        return ratio
    # A search's interval does not come from trials, so Welch's formula does not apply.
    return msgspec.structs.replace(ratio, low=None, high=None, reason="two searches have no common interval")

"""What may be said of variants compared with one reference: faster, slower, equivalent, or not decided and what it takes.

A family is all variants of one question on one metric. Two kinds of false verdict are kept apart, and each happens to any
variant of the family with a probability of at most alpha, however often one looks and whenever one stops:

- A variant that changes nothing is called faster or slower. The largest e-value so far has a p-value valid at any time,
  1 / max E_n, and these go through Holm's step-down: the smallest against alpha/m, the next against alpha/(m-1), and so
  on. For a variant that changes nothing to be called first, its p-value must be below alpha/m0, where m0 is the number of
  such variants, because all variants before it do change something; one of m0 does that with probability alpha at most.
- A variant that changes more than delta is called equivalent. Its interval at 1 - alpha/m must then have missed the truth,
  which happens to one of m with probability alpha at most (Bonferroni). Holm's larger levels are not for this: they are
  earned by variants that differ, and a rejection of "no difference" does not make another variant's interval surer.

Both together are at most 2 alpha by these arguments; the measured rates are in docs/how-we-know.md. m counts every variant
that was planned, also one that gave no pair, so that leaving out a failure cannot make the rest look surer.

Bounds of equivalence are symmetric in logarithms, ln(1 + delta) to either side: A against B then says what B against A
says. Below, a delta of 3 % is -2.9 %.

`equivalent` comes before faster and slower: a difference that is surely there and surely smaller than delta is called
equivalent, and its interval, which may leave out 0, stands beside it. Never "no difference".

Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, jstor.org/stable/4615733;
Schuirmann 1987, doi:10.1007/BF01068419, for equivalence by an interval inside the bounds.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.comparison.e_process import (
    Evidence,
    Floats,
    IntervalKind,
    confidence_sequence,
    count_pairs_until,
    gather_evidence,
    log_e_values,
    smallest_shown_effect,
)
from pgdyno.facts.metrics import Better


class VerdictKind(enum.Enum):
    """The answer. MORE and LESS are for counts, where neither is good by itself."""

    FASTER = "faster"
    SLOWER = "slower"
    MORE = "more"
    LESS = "less"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of one variant against the reference on one metric.

    Effects are ratios less one: 0.05 is 5 % more than the reference. `low` and `high` hold the interval that the verdict
    rests on; None where it is unbounded, and `reason` says why.
    """

    kind: VerdictKind
    variant: str = msgspec.field(name="arm")
    metric: str
    n: int
    """Pairs."""
    effect_ratio: float | None
    """Geometric mean of the pairs, or the end of the interval nearest to it, should it lie outside; None without pairs."""
    low_ratio: float | None
    high_ratio: float | None
    confidence: float
    """Of the interval: 1 - alpha/m, or as far as Holm's step-down came for a variant that differs."""
    delta_ratio: float
    log10_e_value: float
    """The largest against "no difference"."""
    pairs_needed: int | None
    """How many more would settle it if mean and spread stay as they are: 0 when settled, None when there is no spread
    yet, no affordable number would do, or the effect changes."""
    detectable_ratio: float | None
    """The smallest effect that so many pairs would have shown four times in five; None if they can show nothing."""
    reason: str | None = None

    @property
    def is_decided(self) -> bool:
        """Whether more pairs are no longer needed."""
        return self.kind is not VerdictKind.INCONCLUSIVE


class RatioOutcome(enum.IntEnum):
    """A verdict before it is put in words: where the ratio lies."""

    LOWER = -1
    OPEN = 0
    HIGHER = 1
    EQUIVALENT = 2


class FamilyState(NamedTuple):
    """Where the variants of a family stand; any leading axes (looks, repetitions) and the variants along the last but one.

    The last axis of `low` and `high` is the level of the interval: alpha/m, alpha/(m-1), up to alpha.
    """

    log_p: Floats
    """Logarithm of the p-value valid at any time; without that last axis."""
    low: Floats
    high: Floats


class Judgement(NamedTuple):
    """The outcome of each variant, and by how many steps of Holm's its level is larger than alpha/m."""

    outcome: NDArray[np.int8]
    step: NDArray[np.intp]


_WORDS = {
    Better.HIGHER: {RatioOutcome.HIGHER: VerdictKind.FASTER, RatioOutcome.LOWER: VerdictKind.SLOWER},
    Better.LOWER: {RatioOutcome.HIGHER: VerdictKind.SLOWER, RatioOutcome.LOWER: VerdictKind.FASTER},
    Better.NONE: {RatioOutcome.HIGHER: VerdictKind.MORE, RatioOutcome.LOWER: VerdictKind.LESS},
}


def decide_family(
    log_ratios: Mapping[str, Sequence[float]], *, metric: str, better: Better, alpha: float, delta_ratio: float
) -> tuple[Verdict, ...]:
    """The verdicts of all planned variants of one question on one metric, in their order.

    Args:
        log_ratios: For each planned variant the log ratios of its pairs against the reference, in the order they were
            measured; empty for a variant that gave none. Numbers of pairs may differ.
        metric: Its name.
        better: Which way is good: higher for TPS, lower for latency, NONE for counts per transaction.
        alpha: The error rate of the family, in (0, 1).
        delta_ratio: The largest difference that does not matter, as a share; positive.

    Raises:
        ValueError: A log ratio is not finite, alpha not inside (0, 1), or delta not positive.
    """
    if not log_ratios:
        return ()
    size = len(log_ratios)
    standings = [_stand_last(np.asarray(values, dtype=np.float64), alpha, size) for values in log_ratios.values()]
    family = FamilyState(*(np.stack(part) for part in zip(*standings, strict=True)))
    outcomes, steps = judge(family, alpha=alpha, delta_ratio=delta_ratio)
    return tuple(
        _make_verdict(
            gather_evidence(values, alpha=alpha / (size - step)),
            variant=variant,
            metric=metric,
            kind=_WORDS[better].get(outcome) or _OTHER_WORDS[outcome],
            delta_ratio=delta_ratio,
        )
        for (variant, values), outcome, step in zip(
            log_ratios.items(), map(RatioOutcome, outcomes.tolist()), steps.tolist(), strict=True
        )
    )


def stand(log_ratios: Floats, *, alpha: float, size: int) -> FamilyState:
    """Where a variant of a family of `size` stands after every pair.

    Args:
        log_ratios: Pairs along the last axis, at least one; any leading axes.
        alpha: Of the family.
        size: Variants that were planned.

    Returns:
        With the looks in place of the pairs.
    """
    log_p = -np.maximum(np.maximum.accumulate(log_e_values(log_ratios), axis=-1), 0.0)
    sequence = confidence_sequence(log_ratios[..., None, :], _levels(alpha, size)[:, None])
    return FamilyState(log_p, np.moveaxis(sequence.low, -2, -1), np.moveaxis(sequence.high, -2, -1))


def judge(family: FamilyState, *, alpha: float, delta_ratio: float) -> Judgement:
    """Holm's step-down for differences, intervals at alpha/m for equivalence, equivalence first.

    Raises:
        ValueError: delta is not positive.
    """
    if not delta_ratio > 0:
        raise ValueError("delta must be positive: nothing is ever exactly equal")
    rejected, rank = _step_down(family.log_p, alpha)
    # A variant that is called equivalent, or nothing yet, shows the interval that this rests on.
    bound = math.log1p(delta_ratio)
    is_equivalent = (family.low[..., 0] >= -bound) & (family.high[..., 0] <= bound)
    step = np.where(rejected & ~is_equivalent, rank, 0)
    low, high = (np.take_along_axis(end, step[..., None], axis=-1)[..., 0] for end in (family.low, family.high))
    # A variant may be rejected and still hold 0, if its effect changed sign on the way; nothing is said of it.
    conditions = [is_equivalent, rejected & (low > 0), rejected & (high < 0)]
    choices = [RatioOutcome.EQUIVALENT, RatioOutcome.HIGHER, RatioOutcome.LOWER]
    outcome = np.select(conditions, [np.int8(choice) for choice in choices], np.int8(RatioOutcome.OPEN))
    return Judgement(outcome, np.where(outcome == RatioOutcome.OPEN, 0, step))


_OTHER_WORDS = {RatioOutcome.EQUIVALENT: VerdictKind.EQUIVALENT, RatioOutcome.OPEN: VerdictKind.INCONCLUSIVE}


def _levels(alpha: float, size: int) -> Floats:
    return alpha / np.arange(size, 0, -1.0)


def _step_down(log_p: Floats, alpha: float) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Which variants Holm rejects, and the place of each in order of its p-value, along the last axis."""
    order = np.argsort(log_p, axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    passed = np.take_along_axis(log_p, order, axis=-1) <= np.log(_levels(alpha, log_p.shape[-1]))
    return np.take_along_axis(np.logical_and.accumulate(passed, axis=-1), rank, axis=-1), rank


def _stand_last(values: Floats, alpha: float, size: int) -> FamilyState:
    if not len(values):
        return FamilyState(np.array(0.0), np.full(size, -np.inf), np.full(size, np.inf))
    looks = stand(values, alpha=alpha, size=size)
    return FamilyState(looks.log_p[-1], looks.low[-1], looks.high[-1])


def _make_verdict(evidence: Evidence, *, variant: str, metric: str, kind: VerdictKind, delta_ratio: float) -> Verdict:
    interval = evidence.interval
    effect = evidence.mean
    if effect is not None and interval.low is not None and interval.high is not None:
        effect = min(max(effect, interval.low), interval.high)
    detectable = None if evidence.sd is None else smallest_shown_effect(evidence.n, evidence.sd, alpha=evidence.alpha)
    return Verdict(
        kind=kind,
        variant=variant,
        metric=metric,
        n=evidence.n,
        effect_ratio=_to_ratio(effect),
        low_ratio=_to_ratio(interval.low),
        high_ratio=_to_ratio(interval.high),
        confidence=1.0 - evidence.alpha,
        delta_ratio=delta_ratio,
        log10_e_value=evidence.strongest_log10_e,
        pairs_needed=_count_needed(evidence, delta_ratio) if kind is VerdictKind.INCONCLUSIVE else 0,
        detectable_ratio=_to_ratio(detectable),
        reason=interval.reason,
    )


def _count_needed(evidence: Evidence, delta_ratio: float) -> int | None:
    """Pairs until the interval leaves out 0 or lies inside the bounds, whichever comes first, at the level alpha/m.

    A variant that Holm's step-down would let pass at a larger level needs a little less.
    """
    if evidence.mean is None or evidence.sd is None or evidence.interval.kind is IntervalKind.DRIFTED:
        return None
    distance = abs(evidence.mean)
    widths = (distance, math.log1p(delta_ratio) - distance)
    counts = [count_pairs_until(width, sd=evidence.sd, alpha=evidence.alpha, after=evidence.n) for width in widths]
    return min((count for count in counts if count is not None), default=None)


def _to_ratio(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else math.expm1(log_ratio)

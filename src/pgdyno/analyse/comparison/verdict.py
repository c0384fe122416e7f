"""Decide the verdict on each variant against the reference: faster, slower, equivalent, or inconclusive.

A family is all variants of one question on one metric. Half of its error rate, beta = alpha/2, belongs to the e-process,
which may look after every pair; the other half to one t-test, made once at a final look that no log ratio has placed
(ADR 16). Experiments of before have no final look: beta is alpha, and belongs to the e-process.

There are two kinds of false verdict. Each happens to any variant of the family with a probability of at most alpha,
however often the data are inspected and whenever the experiment stops:

- A variant that changes nothing is called faster or slower. The largest e-value so far gives an anytime-valid p-value,
  1 / max E_n; from the final look on, the t-test gives another, and the smaller of the two counts. These p-values go
  through Holm's step-down: the smallest is compared with beta/m, the next with beta/(m-1), and so on. Let m0 be the
  number of variants that change nothing. For the first of them to be called, one of its two p-values must be below
  beta/m0, because all variants called before it do change something; the probability that any of the 2 m0 gets there is
  at most 2 beta = alpha.
- A variant that changes more than delta is called equivalent. One of its two intervals at 1 - beta/m must then have
  missed the truth, which happens to any of 2 m with a probability of at most alpha (Bonferroni). Holm's larger levels do
  not apply here: only rejected variants earn them, and rejecting "no difference" for one variant says nothing about
  another's interval.

The interval that is shown is the intersection of the two. A variant that was decided before the final look is left out of
it, because log ratios have chosen the number of its pairs; its p-value of the t-test is 1.

Where trials of one side failed more often before they were run again, some pairs may not be what they would have been (`repeats.py`): the
p-value is then the largest, and the interval the hull, of those as they are, at their lowest, and at their highest.

By these arguments the two error rates add up to at most 2 alpha; docs/how-we-know.md has the measured rates. m counts
every planned variant, also one without a pair, so that a failed variant does not make the others look more certain.

The equivalence bounds are symmetric in logarithms, ln(1 + delta) to either side, so A against B and B against A get the
same verdict. On the lower side, a delta of 3 % is -2.9 %.

`equivalent` takes precedence over faster and slower: a difference that is certain and certainly smaller than delta is
called equivalent. Its interval, which may exclude 0, is shown with it. The verdict is never "no difference".

Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6,
jstor.org/stable/4615733; Schuirmann 1987, doi:10.1007/BF01068419, for equivalence by an interval inside the bounds.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

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
from pgdyno.analyse.comparison.final_look import FinalLook, LookPlace, describe_look, is_after_look, log_t_test
from pgdyno.facts.metrics import Better
from pgdyno.plan.experiment import least_pairs


class VerdictKind(enum.Enum):
    """The kinds of verdict. MORE and LESS are for counts, where neither is good by itself."""

    FASTER = "faster"
    SLOWER = "slower"
    MORE = "more"
    LESS = "less"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one variant against the reference on one metric.

    Effects are ratios minus one: 0.05 is 5 % more than the reference. `low_ratio` and `high_ratio` are the ends of the
    interval that the verdict rests on; they are None if it is unbounded, and `reason` says why.
    """

    kind: VerdictKind
    variant: str = msgspec.field(name="arm")
    metric: str
    n: int
    """Number of pairs."""
    effect_ratio: float | None
    """Geometric mean of the pairs, or the nearer end of the interval if the mean lies outside it; None without pairs."""
    low_ratio: float | None
    high_ratio: float | None
    confidence: float
    """Confidence level of the intervals of all looks together: 1 - alpha/m, or the level that Holm's step-down reached for
    a variant that differs."""
    delta_ratio: float
    log10_e_value: float
    """Largest e-value against "no difference", as log10."""
    pairs_needed: int | None
    """Pairs still needed for a decision if mean and spread stay the same: 0 once decided; None if there is no spread
    yet, if no affordable number is enough, or if the effect changes."""
    detectable_ratio: float | None
    """The smallest effect that this many pairs would have shown four times in five; None if they can show nothing."""
    reason: str | None = None
    final_look: FinalLook | msgspec.UnsetType = msgspec.UNSET
    """The final look; absent where the whole error rate belongs to the e-process, as in records of before."""

    @property
    def sequential_alpha(self) -> float:
        """One minus the confidence level of the e-process, and of the t-test at the final look."""
        return (1.0 - self.confidence) / (1.0 if self.final_look is msgspec.UNSET else 2.0)

    @property
    def looked(self) -> int:
        """Number of pairs that the final look tested; 0 without one."""
        look = self.final_look
        return 0 if look is msgspec.UNSET or not look.is_made else look.n or 0

    @property
    def is_decided(self) -> bool:
        """True if the verdict needs no more pairs."""
        return self.kind is not VerdictKind.INCONCLUSIVE

    @property
    def is_different(self) -> bool:
        """True if the variant was found to differ from the reference."""
        return self.kind not in {VerdictKind.EQUIVALENT, VerdictKind.INCONCLUSIVE}


class RatioOutcome(enum.IntEnum):
    """Where a ratio lies, before the metric's better direction turns it into a verdict."""

    LOWER = -1
    OPEN = 0
    HIGHER = 1
    EQUIVALENT = 2


class FamilyState(NamedTuple):
    """P-values and intervals of a family's variants. Axes: optional ones (looks, repetitions), variants, levels.

    Levels are those of the intervals `low` and `high`: beta/m, beta/(m-1), up to beta.
    """

    log_p: Floats
    """Logarithm of the p-value: the anytime-valid one, from the final look on the smaller of the two; no level axis."""
    low: Floats
    high: Floats


class Judgement(NamedTuple):
    """The outcome of each variant, and how many of Holm's steps its level lies above beta/m."""

    outcome: NDArray[np.int8]
    step: NDArray[np.intp]


_VERDICTS = {
    Better.HIGHER: {RatioOutcome.HIGHER: VerdictKind.FASTER, RatioOutcome.LOWER: VerdictKind.SLOWER},
    Better.LOWER: {RatioOutcome.HIGHER: VerdictKind.SLOWER, RatioOutcome.LOWER: VerdictKind.FASTER},
    Better.NONE: {RatioOutcome.HIGHER: VerdictKind.MORE, RatioOutcome.LOWER: VerdictKind.LESS},
}


def decide_family(
    log_ratios: Mapping[str, Sequence[float]],
    *,
    metric: str,
    better: Better,
    alpha: float,
    delta_ratio: float,
    places: Mapping[str, LookPlace] | None = None,
    resolutions: Mapping[str, float] | None = None,
    extremes: Mapping[str, Sequence[Sequence[float]]] | None = None,
) -> tuple[Verdict, ...]:
    """Decide the verdicts of all planned variants of one question on one metric, in their order.

    Args:
        log_ratios: For each planned variant, the log ratios of its pairs against the reference, in the order of
            measurement; empty for a variant without pairs. The numbers of pairs may differ.
        metric: Name of the metric.
        better: Which direction is better: higher for TPS, lower for latency, NONE for counts per transaction.
        alpha: The error rate of the family, in (0, 1).
        delta_ratio: The largest difference that does not matter, as a share; positive.
        places: Each variant's final look; None if the whole error rate belongs to the e-process.
        resolutions: The most by which rounding can have changed each variant's log ratios; None: by nothing.
        extremes: What each variant's log ratios may have been otherwise, if anything; None: nothing else.

    Raises:
        ValueError: A log ratio is not finite, alpha is not inside (0, 1), or delta is not positive.
    """
    if not log_ratios:
        return ()
    size, beta = len(log_ratios), alpha if places is None else alpha / 2
    looked = {variant: 0 if places is None else places[variant].looked for variant in log_ratios}
    resolutions = resolutions or dict.fromkeys(log_ratios, 0.0)
    others = extremes or dict.fromkeys(log_ratios, ())
    rows = {variant: np.array([of, *others[variant]], dtype=np.float64) for variant, of in log_ratios.items()}
    states = [
        _compute_final_state(values, beta, size, looked[variant], resolutions[variant])
        for variant, values in rows.items()
    ]
    family = FamilyState(*(np.stack(part) for part in zip(*states, strict=True)))
    outcomes, steps = judge_family(family, beta=beta, delta_ratio=delta_ratio)
    return tuple(
        _make_verdict(
            gather_evidence(
                values,
                alpha=beta / (size - step),
                looked=looked[variant],
                resolution=resolutions[variant],
                extremes=others[variant],
            ),
            variant=variant,
            metric=metric,
            kind=_VERDICTS[better].get(outcome) or _COMMON_VERDICTS[outcome],
            delta_ratio=delta_ratio,
            rows=rows[variant],
            place=None if places is None else places[variant],
        )
        for (variant, values), outcome, step in zip(
            log_ratios.items(), map(RatioOutcome, outcomes.tolist()), steps.tolist(), strict=True
        )
    )


def compute_states(
    log_ratios: Floats, *, beta: float, size: int, looked: ArrayLike = 0, resolution: float = 0.0
) -> FamilyState:
    """Compute the p-value and intervals of a variant after every pair, in a family of `size` variants.

    Args:
        log_ratios: Pairs along the last axis, at least one; any leading axes.
        beta: Error rate of each procedure: the e-process, and the t-test at the final look.
        size: Number of planned variants.
        looked: Number of pairs that were there at the final look, for each sequence; 0 without a look.
        resolution: The most by which rounding can have changed a log ratio.

    Returns:
        The state with the looks in place of the pairs.
    """
    log_p = -np.maximum(np.maximum.accumulate(log_e_values(log_ratios), axis=-1), 0.0)
    counts = np.asarray(looked)
    if counts.any():
        tested = log_t_test(log_ratios, counts)[..., None]
        log_p = np.minimum(log_p, np.where(is_after_look(log_ratios, counts), tested, 0.0))
    levels = _levels(beta, size)[:, None]
    sequence = confidence_sequence(log_ratios[..., None, :], levels, counts[..., None], resolution)
    return FamilyState(log_p, np.moveaxis(sequence.low, -2, -1), np.moveaxis(sequence.high, -2, -1))


def judge_family(family: FamilyState, *, beta: float, delta_ratio: float) -> Judgement:
    """Judge differences by Holm's step-down and equivalence by intervals at beta/m; equivalence takes precedence.

    Raises:
        ValueError: delta is not positive.
    """
    if not delta_ratio > 0:
        raise ValueError("delta must be positive: nothing is ever exactly equal")
    rejected, rank = _step_down(family.log_p, beta)
    # A variant that is equivalent or undecided shows the interval at beta/m, which its outcome rests on.
    bound = math.log1p(delta_ratio)
    is_equivalent = (family.low[..., 0] >= -bound) & (family.high[..., 0] <= bound)
    step = np.where(rejected & ~is_equivalent, rank, 0)
    low, high = (np.take_along_axis(end, step[..., None], axis=-1)[..., 0] for end in (family.low, family.high))
    # If a variant's effect changed sign, it may be rejected while its interval still holds 0; it then stays open.
    conditions = [is_equivalent, rejected & (low > 0), rejected & (high < 0)]
    choices = [RatioOutcome.EQUIVALENT, RatioOutcome.HIGHER, RatioOutcome.LOWER]
    outcome = np.select(conditions, [np.int8(choice) for choice in choices], np.int8(RatioOutcome.OPEN))
    return Judgement(outcome, np.where(outcome == RatioOutcome.OPEN, 0, step))


_COMMON_VERDICTS = {RatioOutcome.EQUIVALENT: VerdictKind.EQUIVALENT, RatioOutcome.OPEN: VerdictKind.INCONCLUSIVE}


def _levels(beta: float, size: int) -> Floats:
    return beta / np.arange(size, 0, -1.0)


def _step_down(log_p: Floats, beta: float) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return which variants Holm's procedure rejects, and the rank of each by its p-value, along the last axis."""
    order = np.argsort(log_p, axis=-1, kind="stable")
    rank = np.argsort(order, axis=-1, kind="stable")
    passed = np.take_along_axis(log_p, order, axis=-1) <= np.log(_levels(beta, log_p.shape[-1]))
    return np.take_along_axis(np.logical_and.accumulate(passed, axis=-1), rank, axis=-1), rank


def _compute_final_state(values: Floats, beta: float, size: int, looked: int, resolution: float) -> FamilyState:
    """Compute the state after all pairs; each row of values is what the pairs may have been."""
    if not values.size:
        return FamilyState(np.array(0.0), np.full(size, -np.inf), np.full(size, np.inf))
    looks = compute_states(values, beta=beta, size=size, looked=looked, resolution=resolution)
    return FamilyState(looks.log_p[:, -1].max(axis=0), looks.low[:, -1].min(axis=0), looks.high[:, -1].max(axis=0))


def _make_verdict(
    evidence: Evidence,
    *,
    variant: str,
    metric: str,
    kind: VerdictKind,
    delta_ratio: float,
    rows: Floats,
    place: LookPlace | None,
) -> Verdict:
    interval = evidence.interval
    effect = evidence.mean
    if effect is not None and interval.low is not None and interval.high is not None:
        effect = min(max(effect, interval.low), interval.high)
    shown = None if evidence.sd is None else smallest_shown_effect(evidence.n, evidence.sd, alpha=evidence.alpha)
    shown = None if shown is None else max(shown, evidence.resolution)
    look = (
        None
        if place is None
        else describe_look(rows, place, alpha=evidence.alpha, sd=evidence.sd, resolution=evidence.resolution)
    )
    tested = look.detectable_ratio if look is not None and look.is_made else None
    return Verdict(
        kind=kind,
        variant=variant,
        metric=metric,
        n=evidence.n,
        effect_ratio=_to_ratio(effect),
        low_ratio=_to_ratio(interval.low),
        high_ratio=_to_ratio(interval.high),
        confidence=1.0 - evidence.alpha * (1.0 if place is None else 2.0),
        delta_ratio=delta_ratio,
        log10_e_value=evidence.strongest_log10_e,
        pairs_needed=_count_needed(evidence, delta_ratio) if kind is VerdictKind.INCONCLUSIVE else 0,
        detectable_ratio=min((each for each in (_to_ratio(shown), tested) if each is not None), default=None),
        reason=_describe_lack(evidence, place) or interval.reason,
        final_look=msgspec.UNSET if look is None else look,
    )


def _describe_lack(evidence: Evidence, place: LookPlace | None) -> str | None:
    """Say after how many pairs the final look gives the first interval; None where the e-process gives one sooner."""
    planned = 0 if place is None else place.planned
    if evidence.interval.kind is IntervalKind.UNBOUNDED and evidence.n < planned < least_pairs(evidence.alpha):
        return f"{evidence.n} of {planned} planned pairs"
    return None


def _count_needed(evidence: Evidence, delta_ratio: float) -> int | None:
    """Count the further pairs that decide: the e-process's interval at 1 - beta/m then excludes 0 or lies inside the bounds.

    Slightly fewer are enough where Holm's step-down tests at a larger level, or where a final look is to come.
    """
    if evidence.mean is None or evidence.sd is None or evidence.interval.kind is IntervalKind.DRIFTED:
        return None
    distance = abs(evidence.mean)
    widths = (distance, math.log1p(delta_ratio) - distance)
    counts = [
        count_pairs_until(width, sd=evidence.sd, alpha=evidence.alpha, after=evidence.n)
        for width in widths
        if width >= evidence.resolution
    ]
    return min((count for count in counts if count is not None), default=None)


def _to_ratio(log_ratio: float | None) -> float | None:
    return None if log_ratio is None else math.expm1(log_ratio)

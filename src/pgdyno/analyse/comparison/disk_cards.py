"""Compare disk cards, entry by entry, with the first one.

Ratios of geometric means have Welch's test and intervals, because rounds of two cards are independent. Three rounds do
not say which card's spread counts: if one disk is much steadier than the other, up to twice as many verdicts as promised
would be false. Each question is therefore tested at a share of its level, chosen by simulation so that no two spreads
of two cards exceed it (`_share_of`). The verdicts of a whole table form one family. Intervals hold for the minutes in
which each card was measured, and do not include changes from hour to hour. There is no verdict on figures that were
measured fewer than three times or only declared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from pgdyno.analyse.comparison.e_process import Floats
from pgdyno.analyse.comparison.verdict import FamilyState, RatioOutcome, VerdictKind, judge_family
from pgdyno.analyse.comparison.welch import difference_of_logs
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.analyse.estimate import Estimate
from pgdyno.facts.metrics import Better

DELTA_RATIO = 0.10
"""Largest difference that does not matter: two volumes of one kind differ by this much, and one volume from day to day."""
ALPHA = 0.05
"""Error rate of a whole table."""
# Logarithms of ratios beyond this carry no information.
_MAX_LOG = 100.0


class DiskDifference(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a card compared with that of the first card."""

    key: DiskFigureKey
    card: int
    """Index of the card among those compared; the first is 0."""
    kind: VerdictKind
    ratio: Estimate
    """Ratio of its figure to the first card's, with the interval that the verdict rests on."""


def compare_entries(cards: Sequence[Sequence[DiskFigure]]) -> tuple[DiskDifference, ...]:
    """Compare every entry of every other card that the first card has, too, as one family of verdicts.

    Args:
        cards: Entries of each card; the first card is the reference.
    """
    reference = {entry.key: entry.estimate for entry in cards[0]}
    pairs = [
        _Pair(place, reference[entry.key], entry)
        for place, entries in enumerate(cards[1:], start=1)
        for entry in entries
        if entry.key in reference
    ]
    # A figure that was measured once or twice, or only declared, can have no verdict, so it is not part of the family.
    tested = [pair for pair in pairs if min(pair.first.n, pair.entry.estimate.n) > 2]
    judged = _judge(tested)
    return tuple(judged.get((pair.card, pair.entry.key)) or _leave_open(pair) for pair in pairs)


class _Pair(NamedTuple):
    card: int
    first: Estimate
    entry: DiskFigure


def _judge(pairs: Sequence[_Pair]) -> dict[tuple[int, DiskFigureKey], DiskDifference]:
    """Judge a family of pairs, by card and entry."""
    if not pairs:
        return {}
    levels = ALPHA / np.arange(len(pairs), 0, -1.0)
    states = [_test_pair(pair, levels) for pair in pairs]
    family = FamilyState(*(np.stack(part) for part in zip(*states, strict=True)))
    outcomes, steps = judge_family(family, beta=ALPHA, delta_ratio=DELTA_RATIO)
    return {
        (pair.card, pair.entry.key): DiskDifference(
            key=pair.entry.key,
            card=pair.card,
            kind=_name_verdict(RatioOutcome(outcome), pair.entry.better),
            ratio=_ratio(pair, state, step, confidence=1 - float(levels[step])),
        )
        for pair, state, outcome, step in zip(pairs, states, outcomes.tolist(), steps.tolist(), strict=True)
    }


def _leave_open(pair: _Pair) -> DiskDifference:
    first, other = pair.first, pair.entry.estimate
    ratio = Estimate(
        value=None if not first.value or other.value is None else other.value / first.value,
        low=None,
        high=None,
        n=min(first.n, other.n),
        unit="ratio",
        reason="one of the two was measured fewer than three times, or only declared",
    )
    return DiskDifference(key=pair.entry.key, card=pair.card, kind=VerdictKind.INCONCLUSIVE, ratio=ratio)


def _share_of(rounds_count: int) -> float:
    """Return the share of its level at which a question is tested.

    Source: 2 million pairs of normal rounds for each of 3, 4 and 6 rounds and each spread from 1:1 to 1:25. In families of
    1 and of 14 questions, which are two cards, none exceeds its level; with four cards it is exceeded by up to 44 %.
    """
    return 1.0 - 2.4 / rounds_count


def _test_pair(pair: _Pair, levels: Floats) -> FamilyState:
    """Test two geometric means, and compute the interval of their ratio at each level."""
    from scipy.special import stdtr, stdtrit  # noqa: PLC0415 - only comparisons need it

    found = difference_of_logs(pair.first, pair.entry.estimate)
    share = _share_of(min(pair.first.n, pair.entry.estimate.n))
    p_value = 2 * float(stdtr(found.degrees, -abs(found.value) / found.error)) / share
    width = np.asarray(stdtrit(found.degrees, 1 - levels * share / 2) * found.error, dtype=np.float64)
    return FamilyState(np.array(math.log(max(p_value, 1e-300))), found.value - width, found.value + width)


def _ratio(pair: _Pair, state: FamilyState, step: int, *, confidence: float) -> Estimate:
    low, high = float(state.low[step]), float(state.high[step])
    is_bounded = high < _MAX_LOG
    return msgspec.structs.replace(
        _leave_open(pair).ratio,
        low=math.exp(low) if is_bounded else None,
        high=math.exp(high) if is_bounded else None,
        confidence=confidence,
        reason=None if is_bounded else "too few rounds of one of the two",
    )


def _name_verdict(outcome: RatioOutcome, better: Better) -> VerdictKind:
    if outcome is RatioOutcome.EQUIVALENT:
        return VerdictKind.EQUIVALENT
    if outcome is RatioOutcome.OPEN:
        return VerdictKind.INCONCLUSIVE
    is_good = (outcome is RatioOutcome.HIGHER) == (better is Better.HIGHER)
    return VerdictKind.FASTER if is_good else VerdictKind.SLOWER

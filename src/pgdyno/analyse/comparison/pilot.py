"""Choose the slice length of a switchback from its pilot: short slices of one unchanged variant.

Short slices follow a drifting machine closely; long slices waste less time on changes and hold whole stalls instead of
splitting them. Which is better depends on the machine, so it is measured: for each candidate length the pilot's slices
are joined, and the score is how much a round's difference would still vary after a minute of rounds.

The candidate with the smallest score wins without a further test. On simulated white, autocorrelated, drifting,
stepping, cycling and stalling loads, intervals were then 4 % wider than the best candidate's in the mean and 32 % in
the worst case. Requiring that a longer candidate be clearly better, over disjoint joins, gave 13 % and 84 %; always
0.25 s gave 112 % and ten times. Source: the loads of tests/analyse/test_pilot.py and a dozen more, 150 pilots each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.plan.order import PILOT_S
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase
from pgdyno.spec.variant import LONGEST_SLICE_S

PILOT_SLICE_S = 0.25
PILOT_SLICES = round(PILOT_S / PILOT_SLICE_S)
CANDIDATES_S = (0.25, 0.5, 1.0, 2.0)
# A round of two variants. With more variants the choice hardly differs: 4 % wider than the best, 3 % if joined by their
# number.
_SLOTS = 3
# The p95 of a slice needs 100 (analyse/comparison/rounds.py), and few slices should lack it.
_MIN_TRANSACTIONS = 150
_MIN_COUNTED_RATIO = 0.5
# A pilot slice whose change took long is extended until this much of it counts: see run/switchback.py.
_MIN_COUNTED_S = _MIN_COUNTED_RATIO * PILOT_SLICE_S


class SliceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice length and the reason for it."""

    slice_s: float
    reason: str
    half_width_ratio: dict[str, float]
    """Expected half-width of the interval after a minute, as a share, for each candidate length in seconds."""


def choose_from_slices(slices: Sequence[Slice], loads: Sequence[SliceLoad]) -> SliceChoice | None:
    """Choose a slice length from the pilot slices at the beginning of a block; None while there are too few of them.

    It looks at no more of them than it takes: those that ran until the choice was made are in the record, too.

    Args:
        slices: Slices of the block, in their order.
        loads: The transactions of each slice, as far as they are known.
    """
    pilot = [(s, load) for s, load in zip(slices, loads, strict=False) if s.phase is SlicePhase.PILOT][:PILOT_SLICES]
    # The slices of a slow load take longer, and the pilot must leave time for the block's rounds.
    until_s = pilot[0][0].begin_monotonic_s + PILOT_S if pilot else math.inf
    lasted = next((n for n, (s, _) in enumerate(pilot, start=1) if s.end_monotonic_s >= until_s), PILOT_SLICES)
    if len(pilot) < lasted:
        return None
    seen = pilot[:lasted]
    lost_s = float(np.median([s.settled_monotonic_s - s.begin_monotonic_s for s, _ in seen]))
    tps = [load.ok_count / s.counted_s for s, load in seen]
    return choose_slice(tps, lost_s=lost_s)


def choose_slice(tps: Sequence[float], *, lost_s: float) -> SliceChoice:
    """Choose a slice length from the TPS of the pilot's slices.

    Args:
        tps: TPS of logged transactions in each pilot slice of PILOT_SLICE_S, in order; all of one variant.
        lost_s: Time that a change and its washout take from each slice.

    Returns:
        The candidate with the narrowest interval; if no candidate holds enough transactions, the shortest length that
        does.
    """
    seen = np.asarray(tps, dtype=np.float64)
    mean_tps = float(seen.mean()) if len(seen) else 0.0
    period_s = max(PILOT_SLICE_S, lost_s + _MIN_COUNTED_S)
    least_s = _find_least_s(mean_tps, lost_s)
    widths = {
        length_s: width
        for length_s in CANDIDATES_S
        if length_s >= least_s and (width := _half_width(seen, length_s, period_s)) is not None
    }
    shown = {f"{length_s:g}": width for length_s, width in widths.items()}
    if widths:
        chosen = min(widths, key=lambda length_s: widths[length_s])
        reason = f"a minute of them shows about ±{widths[chosen] * 100:.1f} % on this machine"
        return SliceChoice(slice_s=chosen, reason=reason, half_width_ratio=shown)
    # Rounded up to half a second, for a readable figure.
    slice_s = max(CANDIDATES_S[-1], math.ceil(2.0 * least_s) / 2.0)
    reason = "the pilot was too short, or slices of it held no transaction"
    if least_s > CANDIDATES_S[-1]:
        reason = f"{mean_tps:,.0f} logged transactions a second, and {lost_s:.2g} s lost at each change, take so long a slice"
    return SliceChoice(slice_s=slice_s, reason=reason, half_width_ratio=shown)


def _find_least_s(mean_tps: float, lost_s: float) -> float:
    """Return the shortest slice that holds enough transactions and of which enough time counts."""
    if mean_tps <= 0:
        return LONGEST_SLICE_S
    return min(LONGEST_SLICE_S, max(lost_s / (1.0 - _MIN_COUNTED_RATIO), lost_s + _MIN_TRANSACTIONS / mean_tps))


def _half_width(seen: NDArray[np.float64], length_s: float, period_s: float) -> float | None:
    """Compute the half-width of the interval after a minute of rounds of such slices; None if the pilot is too short."""
    size = max(1, round(length_s / period_s))
    rounds = len(seen) - _SLOTS * size + 1
    if rounds < 1:
        return None
    # Rounds that begin at every pilot slice: they overlap, and together use all of the pilot's data.
    joined = np.lib.stride_tricks.sliding_window_view(seen, size).mean(axis=1)
    if (joined <= 0).any():
        return None
    slots = np.stack([np.log(joined[place * size :][:rounds]) for place in range(_SLOTS)])
    variance = float(slots.var(axis=0, ddof=1).mean())
    # In a round in random order, d = ln B - (ln A + ln A')/2 has 1.5 times the variance of its slices.
    return 1.96 * math.sqrt(1.5 * variance * _SLOTS * length_s / 60.0)

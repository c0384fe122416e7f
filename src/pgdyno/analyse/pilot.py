"""Chooses a switchback's slice length from its pilot: short slices in which nothing but the clock changed.

Short slices follow a drifting machine closely; long ones waste less on changes and hold more transactions. Which wins
is this machine's business, so it is measured: for each candidate the pilot's slices are joined, and what counts is how
much a difference of two neighbours would still vary after a minute of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

PILOT_SLICE_S = 0.25
PILOT_SLICES = 72
CANDIDATES_S = (0.25, 0.5, 1.0, 2.0)
# A candidate's variance rests on few joined slices: a longer one must be better by more than their noise.
_LEAST_GAIN_RATIO = 0.8
_LEAST_GROUPS = 8
# Counting noise of a slice is 1/sqrt(transactions): 6 % here.
_LEAST_TRANSACTIONS = 300
_WASHOUT_SHARE = 0.5


class SliceChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice length and why."""

    slice_s: float
    reason: str
    half_width_ratio: dict[str, float]
    """For each candidate length in seconds: about how wide ± an interval is after a minute, as a share."""


def choose_slice(tps: Sequence[float], *, lost_s: float) -> SliceChoice:
    """Choose from the pilot.

    Args:
        tps: Of each pilot slice of PILOT_SLICE_S, in their order; all of one arm.
        lost_s: What a change and its washout take of each slice.

    Returns:
        The shortest candidate that no longer one beats clearly.
    """
    seen = np.asarray(tps, dtype=np.float64)
    mean_tps = float(seen.mean()) if len(seen) else 0.0
    widths: dict[float, float] = {}
    for length_s in CANDIDATES_S:
        joined = _join(seen, round(length_s / PILOT_SLICE_S))
        if len(joined) < _LEAST_GROUPS or (joined <= 0).any():
            continue
        counted_s = length_s - lost_s
        if counted_s < _WASHOUT_SHARE * length_s or counted_s * mean_tps < _LEAST_TRANSACTIONS:
            continue
        variance = float(np.mean(np.diff(np.log(joined)) ** 2)) / 2.0
        # d = ln B - (ln A + ln A')/2 varies by 1.5 slices, and a round takes three.
        widths[length_s] = 1.96 * float(np.sqrt(1.5 * variance * 3.0 * length_s / 60.0))
    shown = {f"{length_s:g}": width for length_s, width in widths.items()}
    if not widths:
        length_s = CANDIDATES_S[-1]
        reason = f"{mean_tps:,.0f} tps leave too few transactions to a shorter slice"
        if mean_tps * length_s < _LEAST_TRANSACTIONS and mean_tps > 0:
            length_s = float(min(10.0, np.ceil(_LEAST_TRANSACTIONS / mean_tps)))
        return SliceChoice(slice_s=length_s, reason=reason, half_width_ratio=shown)
    chosen = min(widths)
    for length_s, width in sorted(widths.items()):
        if width < _LEAST_GAIN_RATIO * widths[chosen]:
            chosen = length_s
    reason = f"a minute of them shows about ±{widths[chosen] * 100:.1f} % on this machine"
    return SliceChoice(slice_s=chosen, reason=reason, half_width_ratio=shown)


def _join(seen: np.ndarray, size: int) -> np.ndarray:
    whole = len(seen) // size * size
    joined: np.ndarray = seen[:whole].reshape(-1, size).mean(axis=1)
    return joined

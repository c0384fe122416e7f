"""Find stalls, second by second, and take them out of a series.

A stall is measured against the level outside of it. A median around each second is such a level only while the stall is
the smaller part of what the median sees, so seconds in which hardly anything was done are left out of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.episodes.types import AGAIN_RATIO, NOTHING_RATIO, Episode, EpisodeKind

Floats = NDArray[np.float64]

MAD = 1.4826
"""A median absolute deviation times this is a normal distribution's standard deviation."""
MIN_COUNT = 20.0
"""With fewer transactions per observation, counting noise is neither small nor uniform."""
_STALL_RATIO = 0.3
_STALL_SPREADS = 4.5
_LEVEL_S = 15.0
_MIN_AROUND = 8
# Share of the usual level up to which an observation says nothing about the level around it.
_HARDLY_RATIO = 0.1
# A trial may stand still for up to three quarters of its time.
_USUAL_QUANTILE = 0.75


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Evenly spaced values, some of them cut out; the first observation begins at `first_s`."""

    metric: str
    first_s: float
    step_s: float
    values: Floats
    numbers: NDArray[np.int64]
    """The number of each observation among those of the trial."""

    def at_s(self, index: float) -> float:
        """Return the time at which an observation begins; `index` counts only those that are there."""
        edges = np.append(self.numbers, self.numbers[-1] + 1)
        return self.first_s + float(np.interp(index, np.arange(len(edges)), edges)) * self.step_s


def find_stalls(line: Line) -> Iterator[Episode]:
    """Find runs of observations far below the level around them, followed by a return.

    Values near zero always count; a share of the level counts only if the usual spread does not reach down to it.
    """
    values = line.values
    level, usual = _measure_level(line)
    spread = MAD * float(np.median(np.abs(values[usual] / np.maximum(level[usual], 1e-9) - 1)))
    limit = level * np.clip(1 - _STALL_SPREADS * spread, NOTHING_RATIO, _STALL_RATIO)
    low = (values <= limit) & (level * line.step_s >= MIN_COUNT)
    for start, stop in find_runs(low):
        if start == 0 or stop == len(values):
            continue
        again = np.flatnonzero(values[stop:] >= AGAIN_RATIO * level[stop])
        mean = float(values[start:stop].mean())
        yield Episode(
            kind=EpisodeKind.STALL,
            metric=line.metric,
            from_s=line.at_s(start),
            until_s=line.at_s(stop),
            before=float(level[start]),
            after=mean,
            change_ratio=mean / float(level[start]) - 1,
            recovery_s=None if not len(again) else float(stop + again[0] - start) * line.step_s,
        )


def cut_out(line: Line, stalls: Sequence[Episode]) -> Line:
    """Cut out stalls and the observations that they touch on either side: stalls are reported already.

    Anything put in their place would be smoother than the noise around it, and make that look like a change.
    """
    begin_s = line.first_s + line.numbers * line.step_s
    touched = np.zeros(len(begin_s), dtype=bool)
    for stall in stalls:
        touched |= (begin_s + 1.5 * line.step_s > stall.from_s) & (
            begin_s < (stall.until_s or math.inf) + line.step_s / 2
        )
    return msgspec.structs.replace(line, values=line.values[~touched], numbers=line.numbers[~touched])


def find_runs(chosen: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the first index of each run of True, and the index after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def take_medians(values: Floats, half: int) -> Floats:
    """Return the median of each value and up to `half` values on either side; fewer at the ends."""
    padded = np.pad(values, half, constant_values=np.nan)
    return np.asarray(np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1))


def _measure_level(line: Line) -> tuple[Floats, NDArray[np.bool_]]:
    """Measure the level around each observation, and return which observations it is measured by."""
    values, half = line.values, max(round(_LEVEL_S / line.step_s), _MIN_AROUND)
    usual = np.ones(len(values), dtype=bool)
    for start, stop in find_runs(values <= _HARDLY_RATIO * np.quantile(values, _USUAL_QUANTILE)):
        # What lasts from the beginning or to the end is a level of its own.
        if start > 0 and stop < len(values):
            usual[start:stop] = False
    at = np.arange(len(values))
    return np.interp(at, at[usual], take_medians(values[usual], half)), usual

"""Find stalls, second by second, and take them out of a series.

A stall is measured against the median around each second. A standstill of more than 15 s, or several close together, fill that
median with their own seconds; they are measured against the level without all seconds in which hardly anything was done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.episodes.fit import MIN_OBSERVATIONS, Floats
from pgdyno.analyse.episodes.types import AGAIN_RATIO, NOTHING_RATIO, Episode, EpisodeKind

MAD = 1.4826
"""A median absolute deviation times this is a normal distribution's standard deviation."""
MIN_COUNT = 20.0
"""With fewer transactions per observation, counting noise is neither small nor uniform."""
STALL_RATIO = 0.3
_STALL_SPREADS = 4.5
_LEVEL_S = 15.0
# Share of the usual level up to which hardly anything is done.
_HARDLY_RATIO = 0.1
# More than this share is most of it.
_MOSTLY = 0.5
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


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """Observations far below the level, from `start` up to `stop`."""

    start: int
    stop: int
    level: Floats


def find_stalls(line: Line) -> Iterator[Episode]:
    """Find runs of observations far below the level around them, followed by a return, by time.

    Values near zero always count; a share of the level counts only if the usual spread does not reach down to it. For
    more than 15 s, a tenth of the level always counts.
    """
    values = line.values
    for run in sorted(_find_low_runs(line), key=lambda one: one.start):
        again = np.flatnonzero(values[run.stop :] >= AGAIN_RATIO * run.level[run.stop])
        before, mean = float(run.level[run.start]), float(values[run.start : run.stop].mean())
        yield Episode(
            kind=EpisodeKind.STALL,
            metric=line.metric,
            from_s=line.at_s(run.start),
            until_s=line.at_s(run.stop),
            before=before,
            after=mean,
            change_ratio=mean / before - 1,
            recovery_s=None if not len(again) else float(run.stop + again[0] - run.start) * line.step_s,
        )


def is_long(stall: Episode, line: Line) -> bool:
    """Return whether a stall is longer than the surroundings of an observation, on one side of it."""
    return (stall.until_s or math.inf) - stall.from_s > (_count_around(line) + 0.5) * line.step_s


def bridge(line: Line, stalls: Sequence[Episode]) -> Line:
    """Interpolate over stalls and the observations that they touch on either side: stalls are reported already."""
    touched, at = _find_touched(line, stalls), np.arange(len(line.values))
    if touched.all():
        return line
    return msgspec.structs.replace(line, values=np.interp(at, at[~touched], line.values[~touched]))


def cut_out(line: Line, stalls: Sequence[Episode]) -> Line:
    """Cut out stalls and the observations that they touch on either side."""
    touched = _find_touched(line, stalls)
    return msgspec.structs.replace(line, values=line.values[~touched], numbers=line.numbers[~touched])


def _find_touched(line: Line, stalls: Sequence[Episode]) -> NDArray[np.bool_]:
    begin_s = line.first_s + line.numbers * line.step_s
    touched = np.zeros(len(begin_s), dtype=bool)
    for stall in stalls:
        until_s = stall.until_s or math.inf
        touched |= (begin_s + 1.5 * line.step_s > stall.from_s) & (begin_s < until_s + line.step_s / 2)
    return touched


def find_runs(chosen: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield the first index of each run of True, and the index after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], chosen, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def take_medians(values: Floats, half: int) -> Floats:
    """Return the median of each value and up to `half` values on either side; fewer at the ends."""
    padded = np.pad(values, half, constant_values=np.nan)
    # Of short rows, nanmedian takes several times as long. NaN comes last.
    around = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    counts = (~np.isnan(around)).sum(axis=1)
    at = np.arange(len(values))
    return np.asarray((around[at, (counts - 1) // 2] + around[at, counts // 2]) / 2)


def _find_low_runs(line: Line) -> Iterator[_Run]:
    """Find long runs and standstills below the level outside of them, and beside them short runs below the level around them."""
    values, half = line.values, _count_around(line)
    usual = _find_usual(values)
    at, is_taken = np.arange(len(values)), np.zeros(len(values), dtype=bool)
    outside = np.interp(at, at[usual], take_medians(values[usual], half))
    is_still = values <= NOTHING_RATIO * outside
    # Where nothing is done for most of the time, transactions are as long as the gaps between their ends.
    is_still &= is_still.mean() < _MOSTLY
    for start, stop in _find_inner_runs(line, outside, usual, least=_HARDLY_RATIO):
        if stop - start > half or is_still[start:stop].mean() > _MOSTLY:
            is_taken[start:stop] = True
            yield _Run(start=start, stop=stop, level=outside)
    around = take_medians(values, half)
    for start, stop in _find_inner_runs(line, around, np.ones_like(usual), least=NOTHING_RATIO):
        if not is_taken[start:stop].any():
            yield _Run(start=start, stop=stop, level=around)


def _find_inner_runs(line: Line, level: Floats, usual: NDArray[np.bool_], *, least: float) -> Iterator[tuple[int, int]]:
    """Find runs far below a level; what lasts from the beginning or to the end is a level of its own."""
    spread = MAD * float(np.median(np.abs(line.values[usual] / np.maximum(level[usual], 1e-9) - 1)))
    limit = level * np.clip(1 - _STALL_SPREADS * spread, least, STALL_RATIO)
    low = (line.values <= limit) & (level * line.step_s >= MIN_COUNT)
    return ((start, stop) for start, stop in find_runs(low) if start > 0 and stop < len(low))


def _find_usual(values: Floats) -> NDArray[np.bool_]:
    """Find the observations outside of runs in which hardly anything was done, unless such a run is at either end."""
    usual = np.ones(len(values), dtype=bool)
    for start, stop in find_runs(values <= _HARDLY_RATIO * np.quantile(values, _USUAL_QUANTILE)):
        if start > 0 and stop < len(values):
            usual[start:stop] = False
    return usual


def _count_around(line: Line) -> int:
    """Return how many observations on either side of one are its surroundings."""
    return max(round(_LEVEL_S / line.step_s), MIN_OBSERVATIONS)

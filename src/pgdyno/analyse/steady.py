"""Where the steady part of a trial begins, and whether it stays on one level.

Two questions, in this order. MSER-5 says how much of the beginning to leave out: as much as makes the mean of the rest
most certain, at most half of the trial. Then a guard looks for level shifts in the rest (a checkpoint that began, a
cache that filled, a neighbour that came) and reports each with its time and size: a mean over two levels is a number
that never was.

Seconds of throughput follow each other, and plain change-point methods take that for shifts. The guard therefore
works on the innovations of a first-order autoregression. Simulated with the whole of `find_steady_part`, 1000 series of
AR(1) noise for the false alarms; 200 with a coefficient of variation of 5 % and a step down by 20 %, once for good
after two thirds, once for the middle third only:

    seconds  lag-1 correlation  false alarms  step seen  dent seen
         30                 .5         1.5 %       51 %       19 %
         30                 .9         3.2 %       23 %       20 %
         60                  0         0.0 %        all       99 %
         60                 .5         0.7 %       90 %       39 %
         60                 .7         1.3 %       59 %       20 %
         60                 .9         2.9 %       21 %        4 %
        120                 .5         0.5 %        all       94 %
        120                 .7         0.8 %       95 %       40 %

It refuses to judge fewer than 20 seconds, and says so; it never corrects a level.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.types import Event

_BATCH = 5
_LEAST_BATCHES = 10
_LEAST_OBSERVATIONS = 20
_EDGE_RATIO = 0.1
_LEAST_EDGE = 5
_MOST_CORRELATION = 0.97


class _Critical(msgspec.Struct, frozen=True, kw_only=True):
    """The critical value base + slope / m for so many shifts, where m is the effective number of observations.

    Source of `base`: Andrews 1993, Econometrica 61, doi:10.2307/2951764, Table I (near 10 for one shift), and Bai &
    Perron 2003, Econometrics Journal 6, doi:10.1111/1368-423X.00102 (16 for two). That it must grow as 1 / m, because
    the correlation is itself estimated, and how fast, was found by simulation; so was the rest of the second base.
    """

    shifts: int
    base: float
    slope: float


_CRITICAL = (_Critical(shifts=1, base=10.0, slope=300.0), _Critical(shifts=2, base=20.0, slope=1500.0))


class LevelShift(msgspec.Struct, frozen=True, kw_only=True):
    """The series changed its level: `at` is the index of its first observation on the new one."""

    at: int
    before: float
    after: float

    @property
    def size_ratio(self) -> float:
        """The new level's excess over the old one, as a share of it."""
        return self.after / self.before - 1.0


class SteadyPart(msgspec.Struct, frozen=True, kw_only=True):
    """The observations [start, stop) to average over, and the level shifts left in them.

    `shifts` is None, with the reason, when the rest is too short to be judged.
    """

    start: int
    stop: int
    shifts: tuple[LevelShift, ...] | None
    reason: str | None = None


def find_steady_part(values: NDArray[np.float64]) -> SteadyPart:
    """Truncate the beginning of a trial by MSER-5 and guard the rest against level shifts.

    Args:
        values: Evenly spaced observations, such as TPS of whole seconds; shape (n,), finite. Leave out seconds that
            lie only partly inside the trial.

    Raises:
        ValueError: A value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError("a steady part is sought among finite values only")
    start = truncation_point(values)
    rest = values[start:]
    if len(rest) < _LEAST_OBSERVATIONS:
        reason = f"{len(rest)} seconds are too few to tell a level shift from noise"
        return SteadyPart(start=start, stop=len(values), shifts=None, reason=reason)
    edges = [0, *_find_edges(rest, 0), len(rest)]
    means = [float(rest[a:b].mean()) for a, b in itertools.pairwise(edges)]
    shifts = tuple(
        LevelShift(at=start + at, before=before, after=after)
        for at, (before, after) in zip(edges[1:-1], itertools.pairwise(means), strict=True)
    )
    return SteadyPart(start=start, stop=len(values), shifts=shifts)


def describe_shifts(steady: SteadyPart, t_s: NDArray[np.float64]) -> tuple[Event, ...]:
    """The level shifts as events on the trial's clock; `t_s` are the times of the observations."""
    return tuple(
        Event(
            kind="level shift",
            t_s=float(t_s[shift.at]),
            until_s=None,
            text=f"{shift.before:.4g} to {shift.after:.4g} TPS ({shift.size_ratio * 100:+.1f} %) at {t_s[shift.at]:.0f} s",
        )
        for shift in steady.shifts or ()
    )


def truncation_point(values: NDArray[np.float64]) -> int:
    """How many observations to leave out at the beginning: MSER-5, at most half.

    Batches of five, or of fewer when there would be less than ten; below ten observations nothing is left out.

    Source: White 1997, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
    doi:10.1177/003754979706900601; Franklin & White 2008, "Stationarity tests and MSER-5", WSC, for the batches.
    """
    batch = max(1, min(_BATCH, len(values) // _LEAST_BATCHES))
    count = len(values) // batch
    if count < _LEAST_BATCHES:
        return 0
    means = values[: count * batch].reshape(count, batch).mean(axis=1)
    errors = [float(np.square(means[d:] - means[d:].mean()).sum()) / (count - d) ** 2 for d in range(count // 2 + 1)]
    return int(np.argmin(errors)) * batch


def _find_edges(values: NDArray[np.float64], offset: int) -> list[int]:
    """First indexes of new levels, by binary segmentation: the strongest shift, then what lies on either side.

    Two shifts at once are tried where one alone is not seen: a step down and up again (a checkpoint, a neighbour)
    looks like correlated noise to any single split.
    """
    if len(values) < _LEAST_OBSERVATIONS or not np.ptp(values):
        return []
    for critical in _CRITICAL:
        found = _test_shifts(values, critical)
        if found:
            edges = [0, *found, len(values)]
            within = [_find_edges(values[a:b], offset + a) for a, b in itertools.pairwise(edges)]
            return sorted([*(offset + at for at in found), *itertools.chain(*within)])
    return []


def _test_shifts(values: NDArray[np.float64], critical: _Critical) -> list[int]:
    """Where the mean shifts `critical.shifts` times; nothing when AR(1) noise explains the series.

    The lag-1 correlation is estimated around the means of the best split, because a shift would inflate it, and
    corrected for the bias of that. The innovations x_t - phi x_{t-1} are then white, and shifts in them are tested by
    their F statistic, maximised over the split.

    Sources: Shi, Gallagher, Lund & Killick 2022, "A comparison of single and multiple changepoint techniques for time
    series data", CSDA 170, doi:10.1016/j.csda.2022.107433, for testing innovations; Kendall 1954, Biometrika 41,
    doi:10.1093/biomet/41.3-4.403, for the bias, (1 + 3 phi) / n for each mean.
    """
    n, levels = len(values), critical.shifts + 1
    edge = max(_LEAST_EDGE, int(_EDGE_RATIO * n))
    around = _around_means(values, _best_split(values, edge, critical.shifts))
    variance = float(np.square(around).sum())
    raw = float((around[1:] * around[:-1]).sum()) / variance if variance else 0.0
    phi = min(max((n * raw + levels) / (n - 3 * levels), 0.0), _MOST_CORRELATION)
    innovations = values[1:] - phi * values[:-1]
    split = _best_split(innovations, edge, critical.shifts)
    within = float(np.square(_around_means(innovations, split)).sum())
    between = float(np.square(innovations - innovations.mean()).sum()) - within
    effective = n * (1 - phi) / (1 + phi)
    is_seen = between * (n - 1 - levels) > (critical.base + critical.slope / effective) * within
    return [at + 1 for at in split] if is_seen else []


def _best_split(values: NDArray[np.float64], edge: int, shifts: int) -> list[int]:
    import ruptures  # noqa: PLC0415  # half a second, and only some commands analyse

    search = ruptures.Binseg(model="l2", min_size=edge, jump=1).fit(values)
    return [int(at) for at in search.predict(n_bkps=shifts)[:-1]]


def _around_means(values: NDArray[np.float64], split: list[int]) -> NDArray[np.float64]:
    parts = np.split(values, split)
    return np.concatenate([part - part.mean() for part in parts])

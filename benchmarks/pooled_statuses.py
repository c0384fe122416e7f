"""Give loads of a sweep the statuses that they may have by intervals for all pairs together, from one noise pooled over all loads.

The rule that `knees.py` compares the present one with: it was pgdyno's own before loads were compared by their own differences.
"""

from __future__ import annotations

import functools
import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.sweep.client_trials import Floats, SweepTrials, contrast_loads
from pgdyno.analyse.sweep.statuses import COLLAPSE_RATIO, LINEAR_RATIO, LoadStatus


class PooledContrasts(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between loads: ln TPS of row minus column, with simultaneous half-widths."""

    log_ratio: Floats
    half: Floats

    @property
    def candidates(self) -> list[int]:
        """The loads that may be the best: those that no other load is shown to beat."""
        return [int(i) for i in np.flatnonzero((self.log_ratio + self.half >= 0).all(axis=1))]


def contrast_pooled(sweep: SweepTrials) -> PooledContrasts:
    """Compute all differences between loads, which rounds link, with their half-widths.

    Source: Hayter 1984, "A proof of the conjecture that the Tukey-Kramer multiple comparisons procedure is conservative",
    Annals of Statistics 12, doi:10.1214/aos/1176346392.
    """
    compared, count = contrast_loads(sweep), len(sweep.loads)
    inverse = np.linalg.pinv(np.hstack([np.eye(count)[sweep.of_load], sweep.blocks]))
    spread = (inverse @ inverse.T)[:count, :count]
    noise = compared.rss / compared.degrees
    variance = np.maximum(np.diag(spread)[:, None] + np.diag(spread) - 2 * spread, 0.0) * noise
    half = _find_range_quantile(count, compared.degrees, sweep.confidence) / math.sqrt(2) * np.sqrt(variance)
    np.fill_diagonal(half, 0.0)
    return PooledContrasts(log_ratio=compared.log_ratio, half=half)


@functools.lru_cache
def _find_range_quantile(count: int, degrees: int, probability: float) -> float:
    from scipy.stats import studentized_range  # a second to load

    return float(studentized_range.ppf(probability, count, degrees))


class _Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of ln TPS against the best: `low` of row minus column, if the column is the best; `high` for any best."""

    low: Floats
    high: Floats
    is_linear: NDArray[np.bool_]
    floor: float
    """The smallest log ratio that is within delta."""

    def statuses(self, i: int, best: int) -> set[LoadStatus]:
        """Return the statuses that load `i` may have if `best` is the best load."""
        last = len(self.low) - 1
        low, high = self.low[i, best], self.high[i]
        if best == last and self.is_linear[last] and self.is_linear[i]:
            return {LoadStatus.LINEAR}
        if i == best == last:
            # The best load is no peak while the curve still climbs to it: the load before it must be as good.
            low, high = self.low[last - 1, last], self.high[last - 1]
        collapse = min(math.log(COLLAPSE_RATIO), self.floor)
        possible = {LoadStatus.PEAK} if high >= self.floor else set()
        if low < self.floor and i <= best:
            possible.add(LoadStatus.LINEAR if self.is_linear[i] else LoadStatus.UNDER_USED)
        if low < self.floor and i > best and high >= collapse and collapse < self.floor:
            possible.add(LoadStatus.CONTENDED)
        if low < collapse and i > best:
            possible.add(LoadStatus.COLLAPSE)
        return possible


def list_pooled_statuses(sweep: SweepTrials, compared: PooledContrasts) -> list[tuple[LoadStatus, ...]]:
    """Return all statuses that each load may have, over all loads that may be the best."""
    low, high = compared.log_ratio - compared.half, (compared.log_ratio + compared.half).min(axis=1)
    has_alone = sweep.loads[0] == 1
    ratios = _Ratios(
        low=low,
        high=high,
        is_linear=has_alone & (low[:, 0] - np.log(sweep.loads) >= math.log(LINEAR_RATIO)),
        floor=math.log1p(-sweep.delta_ratio),
    )
    found = [
        set[LoadStatus]().union(*(ratios.statuses(i, best) for best in compared.candidates))
        for i in range(len(sweep.loads))
    ]
    return [tuple(status for status in LoadStatus if status in statuses) for statuses in found]

"""Compare loads of a sweep two at a time, by their differences inside the rounds that have both, with their own spread.

TPS of few clients may scatter several times as much as those of many do: a spread that is pooled over loads is then too small
for some pairs and too large for others. No test here divides an error rate: `knee` and `statuses` do, and say how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import t_quantile
from pgdyno.analyse.sweep.client_trials import Floats, SweepTrials


class LoadPairs(msgspec.Struct, frozen=True, kw_only=True):
    """All pairs of loads: ln TPS of the column minus that of the row, averaged over the rounds that have both.

    `errors` are standard errors, infinite where fewer than two rounds have both; `rounds` counts those.
    """

    means: Floats
    errors: Floats
    rounds: NDArray[np.intp]

    @property
    def last(self) -> int:
        """The index of the largest load."""
        return len(self.means) - 1

    def find_least(self, load: int, other: int, alpha: float) -> float:
        """Return the lower end of how much `other` exceeds `load`, with the error rate `alpha`; minus infinity where it is not known."""
        return float(self.means[load, other]) - self._find_half(load, other, alpha)

    def find_most(self, load: int, other: int, alpha: float) -> float:
        """Return the upper end, likewise."""
        return float(self.means[load, other]) + self._find_half(load, other, alpha)

    def is_exceeded(self, load: int, by: Sequence[int], limit: float, alpha: float, *, least_shares: int = 1) -> bool:
        """Return whether one of the loads in `by` is shown to exceed `load` by more than a limit.

        They share the error rate equally (Bonferroni), and none gets more than 1 / `least_shares` of it. False if `by` is empty.
        """
        return any(self.find_least(load, other, alpha / max(len(by), least_shares)) > limit for other in by)

    def is_near_best(self, load: int, limit: float, alpha: float) -> bool:
        """Return whether no other load exceeds `load` by more than a limit: all must be shown not to, each at the full error rate.

        Source: Berger 1982, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24,
        doi:10.1080/00401706.1982.10487790.
        """
        others = (other for other in range(self.last + 1) if other != load)
        return all(self.find_most(load, other, alpha) <= limit for other in others)

    def count_exceeded(self, limit: float, alpha: float, *, least_shares: int = 1) -> int:
        """Count the loads from the smallest up of which each is shown to be exceeded by a larger one by more than a limit.

        The tests have a fixed order, and each is made only if the one before it succeeded: none divides the error rate.
        """
        loads = range(self.last)
        is_shown = (
            self.is_exceeded(load, range(load + 1, self.last + 1), limit, alpha, least_shares=least_shares)
            for load in loads
        )
        return next((load for load, shown in zip(loads, is_shown, strict=True) if not shown), self.last)

    def count_exceeded_from_last(self, limit: float, alpha: float, *, least_shares: int = 1) -> int:
        """Count the loads from the largest down of which each is shown to be exceeded by a smaller one, likewise."""
        turned = LoadPairs(means=self.means[::-1, ::-1], errors=self.errors[::-1, ::-1], rounds=self.rounds[::-1, ::-1])
        return turned.count_exceeded(limit, alpha, least_shares=least_shares)

    def _find_half(self, load: int, other: int, alpha: float) -> float:
        error = float(self.errors[load, other])
        return error if math.isinf(error) else error * t_quantile(int(self.rounds[load, other]) - 1, 1.0 - alpha)


def pair_loads(sweep: SweepTrials) -> LoadPairs:
    """Compare all loads in their common rounds; a load that ran more than once in a round counts with its mean."""
    levels = sweep.average_in_rounds()
    differences = levels[:, None, :] - levels[:, :, None]
    seen = np.isfinite(differences)
    rounds = seen.sum(axis=0)
    means = np.where(seen, differences, 0.0).sum(axis=0) / np.maximum(rounds, 1)
    squares = np.square(np.where(seen, differences - means, 0.0)).sum(axis=0)
    errors = np.where(rounds > 1, np.sqrt(squares / np.maximum(rounds - 1, 1) / np.maximum(rounds, 1)), math.inf)
    return LoadPairs(means=means, errors=errors, rounds=rounds)

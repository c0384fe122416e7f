"""Arrange the trials of a sweep over clients for least squares, and find how loads differ without a model of the curve.

Noise is multiplicative, so all computations use ln TPS, one number for each trial. A round that was slow as a whole is
not a difference between loads: rounds are blocks, and loads that only some rounds repeated are compared inside those.

`pairs` compares two loads at a time with their own noise, `statuses` gives loads their status, and `usl` fits the curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import Estimate, t_quantile

Floats = NDArray[np.float64]

ONE_ROUND = "one round says nothing of others"
NO_NOISE = "too few loads were repeated in common rounds: noise cannot be told from scaling"
# The fewest degrees of freedom that noise is estimated from: those of four pairs, the fewest that decide a question. A
# reference that ran twice in one round gives one, and if both trials happen to count as many transactions, there would
# seem to be no noise.
_MIN_DEGREES = 3


class ClientTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of a sweep: its number of clients, its round and its TPS."""

    clients: int
    round_index: int
    tps: float


class SweepTrials(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of a sweep as arrays, with the delta and confidence of the analysis.

    `of_load` and `of_round` hold each trial's index among the sorted loads and rounds.
    """

    loads: Floats
    of_load: NDArray[np.intp]
    of_round: NDArray[np.intp]
    log_tps: Floats
    blocks: Floats
    """An orthonormal basis of the round effects that add up to zero; shape (trials, rounds - 1)."""
    delta_ratio: float
    confidence: float

    @property
    def trials_count(self) -> int:
        """The number of trials of all loads together."""
        return len(self.log_tps)

    @property
    def rounds_count(self) -> int:
        """The number of rounds that hold a trial."""
        return int(self.blocks.shape[1]) + 1

    @property
    def clients(self) -> Floats:
        """The number of clients of each trial."""
        return self.loads[self.of_load]

    def average_in_rounds(self) -> Floats:
        """Return the mean ln TPS of each load in each round, shape (rounds, loads); NaN where a round lacks a load."""
        shape = (self.rounds_count, len(self.loads))
        cells, count = self.of_round * shape[1] + self.of_load, math.prod(shape)
        sums, trials = np.bincount(cells, self.log_tps, count), np.bincount(cells, minlength=count)
        result: Floats = np.divide(sums, trials, out=np.full(count, np.nan), where=trials > 0)
        return result.reshape(shape)

    def within_rounds(self, values: Floats) -> Floats:
        """Remove the rounds' effects from `values`, shape (..., trials), by least squares."""
        result: Floats = values - values @ self.blocks @ self.blocks.T
        return result

    def find_round_variance(self, expected: Floats, noise: float) -> float:
        """Return the variance of ln TPS between rounds beyond the noise of their trials; for two rounds or more.

        Args:
            expected: What each trial's ln TPS would be but for its round, up to a constant.
            noise: Variance of a trial's ln TPS.
        """
        per_round = np.bincount(self.of_round)
        levels = np.bincount(self.of_round, self.log_tps - expected) / per_round
        return max(float(levels.var(ddof=1)) - noise * float((1 / per_round).mean()), 0.0)

    def widen_by_rounds(self, half: float, variance: float, rounds: int) -> float:
        """Widen a half-width of ln TPS by the variance between rounds, for a level that rests on so many of them.

        Source: Zou & Donner 2008, "Construction of confidence limits about effect measures", Statistics in Medicine 27,
        doi:10.1002/sim.3095 (MOVER): half-widths of independent parts add in quadrature.
        """
        quantile = t_quantile(self.rounds_count - 1, (1 + self.confidence) / 2)
        return math.hypot(half, quantile * math.sqrt(variance / rounds))

    def unknown(self, unit: str, reason: str) -> Estimate:
        """Return an estimate without a value, with the reason."""
        return self.estimate(None, None, None, unit, reason)

    def estimate(
        self, value: float | None, low: float | None, high: float | None, unit: str, reason: str | None
    ) -> Estimate:
        """Return an estimate from all trials of the sweep."""
        return Estimate(
            value=value,
            low=low,
            high=high,
            n=self.trials_count,
            unit=unit,
            confidence=self.confidence,
            reason=reason,
        )


class LoadContrasts(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between loads: ln TPS of row minus column.

    A ratio is meaningless if no chain of rounds links two loads. `rss` is the residual sum of squares of the model of loads plus
    rounds, with `degrees` degrees of freedom.
    """

    log_ratio: Floats
    is_linked: NDArray[np.bool_]
    degrees: int
    rss: float

    @property
    def is_noise_known(self) -> bool:
        """True if enough trials were repeated to tell noise from differences between loads."""
        return self.degrees >= _MIN_DEGREES

    @property
    def why_no_interval(self) -> str:
        """Why nothing is said of other rounds, where one round or too few trials were run."""
        return ONE_ROUND if self.is_noise_known else NO_NOISE

    @property
    def best(self) -> int:
        """The index of the load with the highest TPS, with differences between rounds removed."""
        return int(np.argmax(self.log_ratio[:, 0]))


def arrange_trials(trials: Sequence[ClientTrial], delta_ratio: float, confidence: float) -> SweepTrials:
    """Arrange the trials of a sweep as arrays.

    Raises:
        ValueError: There are no trials, a TPS is not positive and finite, clients are fewer than one, or delta is out
            of range.
    """
    if not trials:
        raise ValueError("a sweep without trials has no curve")
    if not 0 < delta_ratio < 1:
        raise ValueError(f"delta must lie between 0 and 1, not at {delta_ratio:g}")
    wrong = [t for t in trials if not (t.clients >= 1 and t.tps > 0 and math.isfinite(t.tps))]
    if wrong:
        raise ValueError(f"a trial needs a client and a positive finite TPS, not {wrong[0]}")
    loads, of_load = np.unique([float(trial.clients) for trial in trials], return_inverse=True)
    rounds, of_round = np.unique([trial.round_index for trial in trials], return_inverse=True)
    is_in = np.eye(len(rounds))[of_round]
    return SweepTrials(
        loads=loads,
        of_load=of_load,
        of_round=of_round,
        log_tps=np.log([trial.tps for trial in trials]),
        blocks=np.linalg.qr(is_in[:, :-1] - is_in[:, -1:])[0],
        delta_ratio=delta_ratio,
        confidence=confidence,
    )


def contrast_loads(sweep: SweepTrials) -> LoadContrasts:
    """Fit ln TPS by loads plus rounds with least squares, and compute all differences between loads.

    Source: Scheffe 1959, The Analysis of Variance, 5.2, for incomplete blocks.
    """
    count = len(sweep.loads)
    design = np.hstack([np.eye(count)[sweep.of_load], sweep.blocks])
    left, sizes, right = np.linalg.svd(design, full_matrices=False)
    # The tolerance of numpy's matrix_rank: what is smaller is a rounding error.
    rank = int((sizes > sizes[0] * max(design.shape) * np.finfo(float).eps).sum())
    left, sizes, right = left[:, :rank], sizes[:rank], right[:rank]
    seen = sweep.log_tps @ left
    effects = (seen / sizes) @ right
    rss = float(np.square(sweep.log_tps - left @ seen).sum())
    degrees = sweep.trials_count - rank
    unseen = np.eye(count, len(effects)) - right[:, :count].T @ right
    is_linked = np.abs(unseen[:, None] - unseen).max(axis=2) < 1e-9
    log_ratio = effects[:count, None] - effects[:count]
    return LoadContrasts(log_ratio=log_ratio, is_linked=is_linked, degrees=degrees, rss=rss)

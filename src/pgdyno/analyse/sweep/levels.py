"""Estimate the TPS of each load of a sweep, with the noise of its trials and the variation of rounds, which all loads share."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from pgdyno.analyse.estimate import Estimate, estimate_geometric_means, t_quantile
from pgdyno.analyse.sweep.client_trials import NO_NOISE, LoadContrasts, SweepTrials


def estimate_levels(sweep: SweepTrials, compared: LoadContrasts) -> tuple[Estimate, ...]:
    """Estimate the TPS of each load, in the order of the loads; without intervals if the noise is not known.

    Each interval holds for its load alone. After a single round it says nothing of other rounds.
    """
    trials_of_loads = [np.exp(sweep.log_tps[sweep.of_load == i]).tolist() for i in range(len(sweep.loads))]
    levels = estimate_geometric_means(trials_of_loads, unit="tps", confidence=sweep.confidence)
    if not compared.is_noise_known:
        return tuple(msgspec.structs.replace(one, low=None, high=None, reason=NO_NOISE) for one in levels)
    if sweep.rounds_count < 2:
        return levels
    noise = compared.rss / compared.degrees
    variance = sweep.find_round_variance(compared.log_ratio[sweep.of_load, 0], noise)
    quantile = t_quantile(compared.degrees, (1 + sweep.confidence) / 2)
    widened = []
    for i, level in enumerate(levels):
        assert level.value is not None  # noqa: S101 - each load has a trial
        rounds = len(np.unique(sweep.of_round[sweep.of_load == i]))
        half = quantile * math.sqrt(noise / level.n)
        ratio = math.exp(sweep.widen_by_rounds(half, variance, rounds))
        widened.append(msgspec.structs.replace(level, low=level.value / ratio, high=level.value * ratio, reason=None))
    return tuple(widened)

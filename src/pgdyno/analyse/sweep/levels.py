"""Estimate the TPS of each load of a sweep from its rounds: what they share, and the load's own noise, is in their spread."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from pgdyno.analyse.estimate import Estimate, estimate_geometric_means, exponentiate, t_quantile
from pgdyno.analyse.sweep.client_trials import NO_NOISE, Floats, LoadContrasts, SweepTrials

_ONE_ROUND = "one round has this load: its spread is not known"


def estimate_levels(sweep: SweepTrials, compared: LoadContrasts) -> tuple[Estimate, ...]:
    """Estimate the TPS of each load, in the order of the loads; without intervals if the noise is not known.

    Each interval holds for its load alone, and is a t interval over its rounds: TPS of few clients scatter several times as
    much as those of many do, so that a noise pooled over loads would be too small for some. After a single round it says
    nothing of other rounds.
    """
    trials_of_loads = [np.exp(sweep.log_tps[sweep.of_load == i]).tolist() for i in range(len(sweep.loads))]
    levels = estimate_geometric_means(trials_of_loads, confidence=sweep.confidence)
    if not compared.is_noise_known:
        return tuple(msgspec.structs.replace(one, low=None, high=None, reason=NO_NOISE) for one in levels)
    if sweep.rounds_count < 2:
        return levels
    of_rounds = sweep.average_in_rounds()
    return tuple(
        _widen(level, column[np.isfinite(column)], sweep.confidence)
        for level, column in zip(levels, of_rounds.T, strict=True)
    )


def _widen(level: Estimate, of_rounds: Floats, confidence: float) -> Estimate:
    rounds = len(of_rounds)
    if rounds < 2:
        return msgspec.structs.replace(level, low=None, high=None, reason=_ONE_ROUND)
    quantile = t_quantile(rounds - 1, (1 + confidence) / 2)
    middle, half = float(of_rounds.mean()), float(quantile * of_rounds.std(ddof=1) / math.sqrt(rounds))
    of_log = msgspec.structs.replace(level, value=middle, low=middle - half, high=middle + half, reason=None)
    return exponentiate(of_log)

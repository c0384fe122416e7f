"""Estimate the TPS of each load of a sweep from its rounds: what they share, and the load's own noise, is in their spread."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.estimate import Estimate, estimate_geometric_means, estimate_mean_of_trials, exponentiate
from pgdyno.analyse.sweep.client_trials import NO_NOISE, LoadContrasts, SweepTrials

_ONE_ROUND = "one round has this load: its spread is not known"


def estimate_levels(sweep: SweepTrials, compared: LoadContrasts) -> tuple[Estimate, ...]:
    """Estimate the TPS of each load, in the order of the loads; without intervals if the noise is not known.

    Each interval holds for its load alone, and is a t interval over its rounds: TPS of few clients scatter several times as
    much as those of many do, so that a noise pooled over loads would be too small for some. After a single round it says
    nothing of other rounds.
    """
    if compared.is_noise_known and sweep.rounds_count > 1:
        of_loads = zip(sweep.average_in_rounds().T.tolist(), np.bincount(sweep.of_load).tolist(), strict=True)
        return tuple(_estimate_level(of_rounds, trials, sweep.confidence) for of_rounds, trials in of_loads)
    trials_of_loads = [np.exp(sweep.log_tps[sweep.of_load == i]).tolist() for i in range(len(sweep.loads))]
    levels = estimate_geometric_means(trials_of_loads, confidence=sweep.confidence)
    if compared.is_noise_known:
        return levels
    return tuple(msgspec.structs.replace(one, low=None, high=None, reason=NO_NOISE) for one in levels)


def _estimate_level(of_rounds: Sequence[float], trials: int, confidence: float) -> Estimate:
    """Estimate the TPS of a load from its mean ln TPS in each round, NaN where a round lacks it."""
    seen = [value for value in of_rounds if math.isfinite(value)]
    of_log = estimate_mean_of_trials(seen, unit="tps", confidence=confidence)
    reason = _ONE_ROUND if len(seen) < 2 else None
    return exponentiate(msgspec.structs.replace(of_log, n=trials, reason=reason))

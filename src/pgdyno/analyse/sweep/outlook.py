"""Predict how many more rounds decide the loads of a sweep over clients, if TPS and noise stay as they are.

A further round has the loads that are open and the best one once, and the reference twice. The half-widths after it follow
from the numbers of trials alone, by the same least squares as those of the trials so far, and the same rules give the
statuses.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from pgdyno.analyse.sweep.client_trials import (
    ClientTrial,
    Floats,
    LoadContrasts,
    SweepTrials,
    arrange_trials,
    contrast_loads,
    range_quantile,
)
from pgdyno.analyse.sweep.scaling import list_possible_statuses

MOST_ROUNDS = 10_000
"""Upper limit of the number of rounds that is ever predicted."""


def predict_rounds(
    trials: Sequence[ClientTrial], *, delta_ratio: float, confidence: float, reference_clients: int | None
) -> dict[int, int | None]:
    """Predict the further rounds that decide each undecided load, by clients; None where not even MOST_ROUNDS would.

    Args:
        trials: The finished trials, in any order.
        delta_ratio: As for `analyse_client_sweep`.
        confidence: Likewise.
        reference_clients: The load that runs twice in a round; None if it is not among these.

    Returns:
        Nothing where no load is open, and where the noise is not known yet.
    """
    if len({one.clients for one in trials}) < 2:
        return {}
    sweep = arrange_trials(trials, delta_ratio, confidence)
    compared = contrast_loads(sweep)
    if not compared.is_noise_known or not compared.is_linked.all():
        return {}
    opens = [place for place, of in enumerate(list_possible_statuses(sweep, compared)) if len(of) > 1]
    added = np.zeros(len(sweep.loads))
    added[[*opens, compared.best]] = 1.0
    added[sweep.loads == reference_clients] = 2.0

    @functools.cache
    def count_statuses(rounds: int) -> list[int]:
        return [len(of) for of in list_possible_statuses(sweep, narrow_contrasts(sweep, compared, added, rounds))]

    def find_rounds(place: int) -> int | None:
        counts = range(1, MOST_ROUNDS + 1)
        # Narrower intervals allow fewer statuses.
        index = bisect.bisect_left(counts, -1, key=lambda rounds: -count_statuses(rounds)[place])
        return counts[index] if index < len(counts) else None

    return {int(sweep.loads[place]): find_rounds(place) for place in opens}


def narrow_contrasts(sweep: SweepTrials, compared: LoadContrasts, added: Floats, rounds: int) -> LoadContrasts:
    """Return the contrasts with their half-widths after more rounds, each with `added` trials of each load.

    Source: as for `contrast_loads`, Scheffe 1959, 5.2: the reduced normal equations of incomplete blocks.
    """
    counts = np.zeros((sweep.rounds_count, len(sweep.loads)))
    np.add.at(counts, (sweep.of_round, sweep.of_load), 1.0)
    information = sum((_inform(of_round) for of_round in counts), start=rounds * _inform(added))
    spread = np.linalg.pinv(information)
    variance = (
        np.maximum(np.diag(spread)[:, None] + np.diag(spread) - 2 * spread, 0.0) * compared.rss / compared.degrees
    )
    degrees = compared.degrees + rounds * (added.sum() - 1)
    # The quantile is nearly a straight line over the reciprocal of the degrees, and slow to compute.
    now, ever = (range_quantile(len(sweep.loads), of, sweep.confidence) for of in (compared.degrees, math.inf))
    quantile = ever + (now - ever) * compared.degrees / degrees
    half = quantile / math.sqrt(2) * np.sqrt(variance)
    return msgspec.structs.replace(compared, half=half, degrees=int(degrees))


def _inform(counts: Floats) -> Floats:
    """Compute the information of a round on the differences of loads, from the number of its trials of each."""
    result: Floats = np.diag(counts) - np.outer(counts, counts) / counts.sum()
    return result

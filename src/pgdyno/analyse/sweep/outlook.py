"""Predict how many more rounds decide the loads of a sweep over clients, if TPS and noise stay as they are.

A further round has the loads that are open, the best one and the reference. Pairs of these are then compared in more rounds, by
the same differences and spread, and the same rules give the statuses.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.sweep.client_trials import ClientTrial, arrange_trials, contrast_loads
from pgdyno.analyse.sweep.pairs import LoadPairs, pair_loads
from pgdyno.analyse.sweep.statuses import list_possible_statuses

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
    if not compared.is_noise_known or not compared.is_linked.all() or sweep.rounds_count < 2:
        return {}
    pairs = pair_loads(sweep)
    opens = [place for place, of in enumerate(list_possible_statuses(sweep, pairs, compared.best)) if len(of) > 1]
    is_repeated = sweep.loads == reference_clients
    is_repeated[[*opens, compared.best]] = True

    @functools.cache
    def count_statuses(rounds: int) -> list[int]:
        narrowed = narrow_pairs(pairs, is_repeated, rounds)
        return [len(of) for of in list_possible_statuses(sweep, narrowed, compared.best)]

    def find_rounds(place: int) -> int | None:
        counts = range(1, MOST_ROUNDS + 1)
        # Narrower intervals allow fewer statuses.
        index = bisect.bisect_left(counts, -1, key=lambda rounds: -count_statuses(rounds)[place])
        return counts[index] if index < len(counts) else None

    return {int(sweep.loads[place]): find_rounds(place) for place in opens}


def narrow_pairs(pairs: LoadPairs, is_repeated: NDArray[np.bool_], rounds: int) -> LoadPairs:
    """Return the pairs after more rounds of the loads that are repeated, with the same means and spread."""
    then = pairs.rounds + rounds * np.outer(is_repeated, is_repeated)
    errors = pairs.errors * np.sqrt(np.maximum(pairs.rounds, 1) / np.maximum(then, 1))
    return msgspec.structs.replace(pairs, errors=errors, rounds=then)

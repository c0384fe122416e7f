"""Bound what pairs may have been whose trials failed and were run again: failing may have to do with how fast a trial was.

A variant that fails where it is slow leaves only its fast trials, and would look faster than it is; one that fails where it is
fast, slower. How fast a trial would have been that failed is not known. So as many pairs as one side failed more often than the
other count three times: as they are, as the lowest, and as the highest that the others make likely. A verdict must be the
same each time. Where both sides fail as often, they are taken to fail alike: what is left of them is then alike, too, and nothing
is bounded.

If the pairs that the first tries would have made lie within the bounds, they have the same verdict, and theirs is false as seldom
as any. That is sure where all of them lie equally far between the bounds, because the pairs for which a t-test finds an effect to
one side are a convex set. Pairs at unlike places have more spread: as long as at most half of the pairs failed, that would have reopened 1
of 1,050 simulated verdicts. It is not so where a variant fails only in trials that are far slower than any that finished.

The bounds are those of all pairs of the variant, and at least as far from their median as the reference was from itself in the
same rounds: a variant that loses all its slow trials has a narrow spread of its own, and the reference still shows that of the
machine. `benchmarks/unusual_verdicts.py` has the rates, and the power that it costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Repeated(NamedTuple):
    """How many trials of a pair had failed before: at most one of the variant, and two of the reference."""

    variant: int = 0
    reference: int = 0


def find_extremes(
    log_ratios: Sequence[float], own_ratios: Sequence[float], repeated: Sequence[Repeated]
) -> tuple[tuple[float, ...], ...]:
    """Return the log ratios with those of the side that failed more often at their lowest, and at their highest.

    Args:
        log_ratios: Of a variant over the reference, one for each pair.
        own_ratios: Log ratios of the reference's two runs, of the same rounds.
        repeated: What had failed in each pair.

    Returns:
        Two times all log ratios; nothing where neither side failed a whole time more often. The failures of the reference, which
        runs twice, count half.
    """
    more = sum(one.variant - one.reference / 2 for one in repeated)
    count = math.floor(abs(more))
    if count == 0:
        return ()
    values, middle = np.asarray(log_ratios), float(np.median(log_ratios))
    places = np.flatnonzero([one.variant if more > 0 else one.reference for one in repeated])
    places = places[np.argsort(values[places], kind="stable")]
    reach = float(np.abs(own_ratios).max())
    lowest, highest = values.copy(), values.copy()
    lowest[places[-count:]] = min(values.min(), middle - reach)
    highest[places[:count]] = max(values.max(), middle + reach)
    return tuple(lowest.tolist()), tuple(highest.tolist())

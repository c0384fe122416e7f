"""Estimate how many trials a useful interval would need. Nothing here changes an estimate."""

from __future__ import annotations

import math

from pgdyno.analyse.estimate import Estimate, smallest_detectable_effect

WANTED_RATIO = 0.1
"""Half the width of an interval that most questions need, as a share of the value."""
# Beyond this number, more trials are not the remedy.
_MOST_TRIALS = 1000


def count_trials_needed(estimate: Estimate) -> int | None:
    """Return how many trials would narrow a geometric mean's interval to about ±10 %.

    None without an interval, and where more than a thousand would be needed.
    """
    if not estimate.low or estimate.high is None:
        return None
    half_width = math.log(estimate.high / estimate.low) / 2
    sd = half_width / (_half_width(estimate.n, 1.0, estimate.confidence) or math.inf)
    wanted = math.log1p(WANTED_RATIO)
    return next(
        (n for n in range(2, _MOST_TRIALS + 1) if (_half_width(n, sd, estimate.confidence) or 0.0) <= wanted), None
    )


def _half_width(n: int, sd: float, confidence: float) -> float | None:
    # At a power of one half the second quantile is 0, and half of Student's interval remains.
    return smallest_detectable_effect(n, sd, confidence=confidence, power=0.5)

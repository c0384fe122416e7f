"""Find where the steady part of a trial begins: MSER-5 leaves out the part that makes the mean of the rest most precise.

It leaves out at most half of the trial. It does not check that the rest stays on one level; `episodes` does.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

_BATCH = 5
_MIN_BATCHES = 10


class SteadyPart(msgspec.Struct, frozen=True, kw_only=True):
    """The range [start, stop) of the observations to average over."""

    start: int
    stop: int


def find_steady_part(values: NDArray[np.float64]) -> SteadyPart:
    """Truncate the beginning of a trial by MSER-5.

    Args:
        values: Evenly spaced observations, such as TPS of whole seconds; shape (n,), finite. Leave out seconds that
            lie only partly inside the trial.

    Raises:
        ValueError: A value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError("a steady part is sought among finite values only")
    return SteadyPart(start=truncation_point(values), stop=len(values))


def truncation_point(values: NDArray[np.float64]) -> int:
    """Return how many observations to leave out at the beginning by MSER-5: at most half of them.

    It uses batches of five, or smaller ones if there would be fewer than ten. Below ten observations nothing is left
    out.

    Source: White 1997, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
    doi:10.1177/003754979706900601; Franklin & White 2008, "Stationarity tests and MSER-5", WSC, for the batches.
    """
    batch = max(1, min(_BATCH, len(values) // _MIN_BATCHES))
    count = len(values) // batch
    if count < _MIN_BATCHES:
        return 0
    means = values[: count * batch].reshape(count, batch).mean(axis=1)
    errors = [float(np.square(means[d:] - means[d:].mean()).sum()) / (count - d) ** 2 for d in range(count // 2 + 1)]
    return int(np.argmin(errors)) * batch

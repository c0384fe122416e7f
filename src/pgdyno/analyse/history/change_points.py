"""Find where the level of a series of results changed, with a known rate of false alarms.

The largest t-statistic over all splits of the series is compared with its distribution over random orders of the same values
(a permutation test). Where nothing changed, every order is equally likely, so that the test is exact for any distribution
of the noise. Where it rejects, both parts are searched in the same way (binary segmentation): a series without a change is
still called changed at most at the rate of the first test.

The test takes the results for exchangeable: what drifts for weeks, such as a neighbour's load, is a change to it.

Sources: Worsley 1979, "On the likelihood ratio test for a shift in location of normal populations",
doi:10.2307/2286338; Matteson & James 2014, "A nonparametric approach for multiple change point analysis",
doi:10.1080/01621459.2013.849605 (permutations and bisection).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_RESULTS = 9
"""Fewer cannot reject at 2.5 %: of 8 values, one order in 35 separates the four smallest from the others."""
_LEAST_PART = 2
_ORDERS = 1999
# The same series always has the same answer.
_SEED = 20260101


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the level."""

    place: int
    """Index of the first result after it."""
    p_value: float
    """Of the test that found it."""


def find_change_points(values: Sequence[float], *, alpha: float = 0.05) -> tuple[ChangePoint, ...]:
    """Find the changes of level in a series, in order.

    Args:
        values: The results by time, as logarithms where ratios are meant; all finite.
        alpha: The highest share of series without a change in which one is found.
    """
    import numpy as np  # noqa: PLC0415 - only histories need it

    series = np.asarray(values, dtype=float)
    return tuple(sorted(_bisect(series, 0, alpha, np.random.default_rng(_SEED)), key=lambda one: one.place))


def _bisect(series: NDArray[Any], begin: int, alpha: float, random: Any) -> Iterator[ChangePoint]:
    if len(series) < LEAST_RESULTS:
        return
    orders = random.permuted(series[None, :].repeat(_ORDERS, axis=0), axis=1)
    (observed,), (split,) = _largest(series[None, :])
    others, _ = _largest(orders)
    # Rounding must not let an order that gives the same parts count as smaller.
    p_value = (1 + int((others >= observed * (1 - 1e-9)).sum())) / (1 + _ORDERS)
    if observed == 0.0 or p_value > alpha:
        return
    yield ChangePoint(place=begin + int(split), p_value=p_value)
    yield from _bisect(series[:split], begin, alpha, random)
    yield from _bisect(series[split:], begin + int(split), alpha, random)


def _largest(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return for each row the largest statistic over all splits, and the length of its first part.

    The share of the sum of squares that a split explains grows with the t-statistic, and is cheaper.
    """
    import numpy as np  # noqa: PLC0415 - as above

    length = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    squares = (centred**2).sum(axis=1, keepdims=True)
    counts = np.arange(_LEAST_PART, length - _LEAST_PART + 1)
    sums = centred.cumsum(axis=1)[:, counts - 1]
    explained = sums**2 * (length / (counts * (length - counts)))
    shares = np.divide(explained, squares, out=np.zeros_like(explained), where=squares > 0)
    best = shares.argmax(axis=1)
    return shares[np.arange(len(rows)), best], counts[best]

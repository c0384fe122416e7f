"""Find where the level of a series of results changed, with a known rate of false alarms.

The largest t-statistic over all splits of the series is compared with its distribution over random orders of the same values
(a permutation test). Where nothing changed, every order is equally likely, so that the test is exact for any distribution
of the noise. Where it rejects, both parts are searched in the same way (binary segmentation): a series without a change is
still called changed at most at the rate of the first test.

The test takes the results for exchangeable: what drifts for weeks, such as a neighbour's load, is a change to it.

The split that is found is the one at which the difference seems largest, and small changes are found where chance adds to them.
A change's interval allows for both: it is Student's for this split alone, at the level at which its t-test is as strict as the
search. It takes the spread for the same on both sides. Its rate is measured in docs/how-we-know.md. A change without others
excludes 0 as the search does. Beside others, the interval rests on the results between them and not on all that were searched: it
reaches 0 for about one change in a hundred.

Sources: Worsley 1979, "On the likelihood ratio test for a shift in location of normal populations",
doi:10.2307/2286338; Matteson & James 2014, "A nonparametric approach for multiple change point analysis",
doi:10.1080/01621459.2013.849605 (permutations and bisection).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pgdyno.analyse.estimate import Estimate, pool_noise, t_quantile

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
    step: Estimate
    """By how much the level rises, from the results between the changes on both sides. The interval allows for the search."""


class _Split(NamedTuple):
    place: int
    p_value: float
    alpha: float
    """The level at which a t-test of this split alone is as strict as the search over all of them."""


def find_change_points(values: Sequence[float], *, alpha: float = 0.05) -> tuple[ChangePoint, ...]:
    """Find the changes of level in a series, in order.

    Args:
        values: The results by time, as logarithms where ratios are meant; all finite.
        alpha: The highest share of series without a change in which one is found.
    """
    import numpy as np  # noqa: PLC0415 - only histories need it

    series = np.asarray(values, dtype=float)
    found = sorted(_bisect(series, 0, alpha, np.random.default_rng(_SEED)))
    edges = [0, *(one.place for one in found), len(series)]
    return tuple(
        ChangePoint(
            place=one.place,
            p_value=one.p_value,
            step=_estimate_step(series[begin : one.place].tolist(), series[one.place : end].tolist(), alpha=one.alpha),
        )
        for begin, one, end in zip(edges, found, edges[2:], strict=False)
    )


def _estimate_step(before: list[float], after: list[float], *, alpha: float) -> Estimate:
    noise = pool_noise([before, after])
    assert noise is not None  # noqa: S101 - each part has two results or more
    error = noise.sd * math.sqrt(1 / len(before) + 1 / len(after))
    half = t_quantile(noise.degrees, 1 - alpha / 2) * error
    value = statistics.fmean(after) - statistics.fmean(before)
    n = min(len(before), len(after))
    return Estimate(value=value, low=value - half, high=value + half, n=n, unit="", confidence=1 - alpha)


def _bisect(series: NDArray[Any], begin: int, alpha: float, random: Any) -> Iterator[_Split]:
    if len(series) < LEAST_RESULTS:
        return
    orders = random.permuted(series[None, :].repeat(_ORDERS, axis=0), axis=1)
    (observed,), (split,) = _largest(series[None, :])
    others, _ = _largest(orders)
    # Rounding must not let an order that gives the same parts count as smaller.
    p_value = (1 + int((others >= observed * (1 - 1e-9)).sum())) / (1 + _ORDERS)
    if observed == 0.0 or p_value > alpha:
        return
    # What is explained by the order that the observed one must surpass.
    share = float(sorted(others)[-math.floor(alpha * (1 + _ORDERS))])
    yield _Split(place=begin + int(split), p_value=p_value, alpha=_find_p_of_split(share, len(series)))
    yield from _bisect(series[:split], begin, alpha, random)
    yield from _bisect(series[split:], begin + int(split), alpha, random)


def _find_p_of_split(share: float, length: int) -> float:
    """Return the p-value of the t-test of a split that explains this share of the sum of squares."""
    from scipy.special import stdtr  # noqa: PLC0415 - only histories need it

    degrees = length - 2
    return 2 * float(stdtr(degrees, -math.sqrt(degrees * share / (1 - share))))


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

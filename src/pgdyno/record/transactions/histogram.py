"""Count latencies in a histogram that takes a million transactions in a few hundredths of a second.

Reason for our own implementation: the pure Python libraries record one value per call (`hdrhistogram` 0.10.8 took 480
ns for each, this module 2 ns, on a 2-core virtual machine), and a transaction log holds hundreds of millions of values.
The buckets are log-linear, as in HdrHistogram. The bucket of a value is the top of its IEEE-754 double: exponent and
the first seven bits of the mantissa, so that numpy finds the buckets of a million values with one shift.

Memory is bounded (5249 counters). Histograms of parts merge into the histogram of the whole without loss. Count,
sum, minimum and maximum are exact.

A quantile with too few values beyond it is None with the reason, because it would merely be the maximum. No confidence
interval is computed for a quantile: latencies within one trial are autocorrelated, so that the unit of analysis is the
trial (see `analyse.trial.latency`).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 7
_SHIFT = 52 - _MANTISSA_BITS
_ONE = 1023 << _MANTISSA_BITS
_OCTAVES = 41
_BUCKETS = (_OCTAVES << _MANTISSA_BITS) + 1

RESOLUTION_RATIO = 2.0**-_MANTISSA_BITS
"""The width of a bucket as a share of its values, at most: quantiles come in steps of this size."""

LIMIT_US = 1 << _OCTAVES
"""Values at or above this limit (25 days) are refused: no transaction takes that long."""

MIN_BEYOND_COUNT = 10
"""Least number of values expected beyond a quantile, n (1 - q): p99 needs 1000 values, p99.9 needs 10 000.

Source: the rule for the normal approximation to a binomial count, n p >= 10 (Moore & McCabe, Introduction to the
Practice of Statistics, 5.2). It is stricter than the existence of a distribution-free 95 % interval, q^n <= 0.025,
which asks for n (1 - q) >= 3.7 independent values (Le Boudec 2010, Performance Evaluation, 2.2), because latencies
in a row are not independent.
"""

_HEADER = struct.Struct("<BBIQQQ")
_VERSION = 1
_COUNT_TYPES: dict[int, np.dtype[Any]] = {size: np.dtype(f"<u{size}") for size in (1, 2, 4, 8)}


class Quantile(msgspec.Struct, frozen=True, kw_only=True):
    """A quantile of the latencies of `count` transactions, or the reason why there is none."""

    q: float
    value_us: float | None
    count: int
    reason: str | None = None
    unsupported_us: float | None = None
    """What too few transactions give; None beside a value, and without any transaction."""


def _bucket_middles() -> NDArray[np.float64]:
    """Return the middle of the whole numbers in each bucket. Below 128 us, empty buckets keep their lower bound."""
    bits = (np.arange(_BUCKETS, dtype=np.int64) + _ONE) << _SHIFT
    bounds = np.ceil(bits.view(np.float64))
    lower, upper = bounds[:-1], bounds[1:]
    return np.concatenate(([0.0], lower + np.maximum(upper - 1 - lower, 0) / 2))


_MIDDLES_US = _bucket_middles()


def why_too_few(q: float, count: int) -> str | None:
    """Say why `count` transactions are too few for a quantile between 0 and 1; None if they are enough."""
    needed = math.ceil(round(MIN_BEYOND_COUNT / min(q, 1.0 - q), 6))
    return f"too few transactions for p{100 * q:g}: {count} of the {needed} it needs" if count < needed else None


class LatencyHistogram:
    """Counts of latencies in whole microseconds, from 0 to 25 days, in log-linear buckets."""

    __slots__ = ("_counts", "_max_us", "_min_us", "_sum_us")

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, dtype=np.int64)
        self._sum_us = 0
        self._min_us = LIMIT_US
        self._max_us = -1

    @property
    def count(self) -> int:
        """Number of recorded values."""
        return int(self._counts.sum())

    @property
    def min_us(self) -> int | None:
        """Exact minimum; None without values."""
        return self._min_us if self._max_us >= 0 else None

    @property
    def max_us(self) -> int | None:
        """Exact maximum; None without values."""
        return self._max_us if self._max_us >= 0 else None

    @property
    def mean_us(self) -> float | None:
        """Exact mean; None without values."""
        count = self.count
        return self._sum_us / count if count else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatencyHistogram):
            return NotImplemented
        mine = (self._sum_us, self._min_us, self._max_us)
        theirs = (other._sum_us, other._min_us, other._max_us)
        return mine == theirs and bool(np.array_equal(self._counts, other._counts))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LatencyHistogram(count={self.count}, min_us={self.min_us}, max_us={self.max_us})"

    def count_at_most(self, us: int) -> int:
        """Count the values of at most `us` microseconds; above 255 us, the whole bucket of `us` counts."""
        if us < 0:
            return 0
        bucket = int(np.float64(us).view(np.int64)) >> _SHIFT
        return int(self._counts[: max(bucket - (_ONE - 1), 0) + 1].sum())

    def add(self, values_us: NDArray[np.integer]) -> None:
        """Record whole microseconds.

        Args:
            values_us: Integers of any width, shape (n,), each in [0, LIMIT_US).

        Raises:
            ValueError: A value is negative, or at or above LIMIT_US; nothing is recorded.
        """
        if not len(values_us):
            return
        low, high = int(values_us.min()), int(values_us.max())
        if low < 0 or high >= LIMIT_US:
            raise ValueError(f"latencies from {low} to {high} us are outside [0, {LIMIT_US})")
        buckets = values_us.astype(np.float64).view(np.int64)
        buckets >>= _SHIFT
        buckets -= _ONE - 1
        if low == 0:  # the bits of 0.0 lie far below those of 1.0
            np.maximum(buckets, 0, out=buckets)
        self._counts += np.bincount(buckets, minlength=_BUCKETS)
        self._sum_us += int(values_us.sum(dtype=np.int64))
        self._min_us = min(self._min_us, low)
        self._max_us = max(self._max_us, high)

    def merge(self, other: LatencyHistogram) -> None:
        """Add all values of `other`."""
        self._counts += other._counts
        self._sum_us += other._sum_us
        self._min_us = min(self._min_us, other._min_us)
        self._max_us = max(self._max_us, other._max_us)

    @classmethod
    def merged(cls, parts: Iterable[LatencyHistogram]) -> Self:
        """Return the histogram of all values in `parts`."""
        whole = cls()
        for part in parts:
            whole.merge(part)
        return whole

    def quantile(self, q: float) -> Quantile:
        """Return the value of rank ceil(q n), within 0.39 %, exact below 256 us; q = 0 and q = 1 are exact minimum and maximum.

        `value_us` is None, with the reason, if fewer than MIN_BEYOND_COUNT values are expected on either side.

        Args:
            q: In [0, 1].

        Raises:
            ValueError: `q` lies outside [0, 1].
        """
        return self.quantiles((q,))[0]

    def quantiles(self, qs: Iterable[float]) -> tuple[Quantile, ...]:
        """Return the `quantile` of each of `qs`, with one pass over the buckets.

        Raises:
            ValueError: A `q` lies outside [0, 1].
        """
        cumulative = np.cumsum(self._counts)
        return tuple(self._quantile(q, cumulative) for q in qs)

    def _quantile(self, q: float, cumulative: NDArray[np.int64]) -> Quantile:
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"quantile {q} is outside [0, 1]")
        count = int(cumulative[-1])
        if not count:
            return Quantile(q=q, value_us=None, count=0, reason="no transactions")
        if q in {0.0, 1.0}:
            return Quantile(q=q, value_us=float(self._max_us if q else self._min_us), count=count)
        rank = max(1, math.ceil(round(q * count, 6)))
        middle = float(_MIDDLES_US[np.searchsorted(cumulative, rank)])
        value_us = min(max(middle, float(self._min_us)), float(self._max_us))
        if (reason := why_too_few(q, count)) is not None:
            return Quantile(q=q, value_us=None, count=count, reason=reason, unsupported_us=value_us)
        return Quantile(q=q, value_us=value_us, count=count)

    def to_bytes(self) -> bytes:
        """Return a compact form for the record: a header, then the used buckets as steps and counts, deflated."""
        used = np.flatnonzero(self._counts)
        counts = self._counts[used]
        width = next(size for size in _COUNT_TYPES if not len(counts) or int(counts.max()) < 1 << 8 * size)
        steps = np.diff(used, prepend=0).astype("<u2")
        header = _HEADER.pack(_VERSION, width, len(used), self._min_us, self._max_us + 1, self._sum_us)
        return header + zlib.compress(steps.tobytes() + counts.astype(_COUNT_TYPES[width]).tobytes(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the histogram that `to_bytes` encoded.

        Raises:
            ValueError: The bytes are cut off, damaged, or of an unknown version.
        """
        if len(data) < _HEADER.size:
            raise ValueError(f"a latency histogram of {len(data)} bytes is cut")
        version, width, used_count, low, high, total = _HEADER.unpack_from(data)
        if version != _VERSION or width not in _COUNT_TYPES:
            raise ValueError(f"a latency histogram of version {version} and width {width} is unknown")
        try:
            body = zlib.decompress(data[_HEADER.size :])
        except zlib.error as exc:
            raise ValueError(f"a latency histogram is damaged: {exc}") from exc
        if len(body) != used_count * (2 + width):
            raise ValueError("a latency histogram is damaged: its length does not fit its header")
        used = np.cumsum(np.frombuffer(body, "<u2", used_count), dtype=np.int64)
        if used_count and used[-1] >= _BUCKETS:
            raise ValueError("a latency histogram is damaged: a bucket is out of range")
        histogram = cls()
        histogram._counts[used] = np.frombuffer(body, _COUNT_TYPES[width], used_count, 2 * used_count)
        histogram._min_us, histogram._max_us, histogram._sum_us = low, high - 1, total
        return histogram

"""Bound what rounding does to pairs: pgbench prints steps of loading to 10 ms and logs latencies in whole microseconds.

Where the noise is smaller than a step, values that differ are rounded alike, and pairs without spread would have an interval
without width. Such an interval is wrong by up to what rounding can do to a pair, so it reaches at least as far to either side.
Where the noise is larger than half a step, rounding averages out, and intervals are wider than that by themselves: they
stay. `tests/analyse/test_rounding.py` has the rates.

The width follows from the step and the values alone, and not from their difference. Variants that change nothing are
rounded alike, so that the e-value and the t-test against "no difference" stay as they are.

Source: Widrow, Kollar & Liu 1996, "Statistical theory of quantization", IEEE Trans. Instrum. Meas. 45, doi:10.1109/19.492748.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pgdyno.record.transactions.histogram import RESOLUTION_RATIO


class Rounding(msgspec.Struct, frozen=True, kw_only=True):
    """How a metric's values are rounded: to multiples of `step`, or by a step of `ratio` of them, whichever is coarser."""

    step: float
    ratio: float = 0.0

    def find_step_ratio(self, value: float) -> float:
        """Return the step at a value as a share of it."""
        return max(self.step / value, self.ratio)

    def find_change(self, value: float) -> float:
        """Return the most by which rounding can have changed the logarithm of a value: half a step."""
        return -math.log1p(-min(self.find_step_ratio(value), 1.0) / 2)


LOGGED = Rounding(step=0.001)
"""Latencies in ms as pgbench logs them: in whole microseconds."""
COUNTED = Rounding(step=LOGGED.step, ratio=RESOLUTION_RATIO)
"""The same from histograms of the logs."""


def find_pair_change(rounding: Rounding | None, *sides: Sequence[float]) -> float:
    """Return the most by which rounding can have changed a pair, whose sides are means of the values' logarithms."""
    if rounding is None:
        return 0.0
    return sum(sum(map(rounding.find_change, values)) / len(values) for values in sides)

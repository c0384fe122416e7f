"""Make series of counters and gauges, each value at its true time.

A rate is a difference divided by the measured time between two samples, placed at the middle of the interval. What was
not observed is NaN. A counter that went backwards (after a restart or a reset) gives NaN for that interval. A source
that was never available is absent, with the reason. Nothing is smoothed, resampled or filled in.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import numpy.typing as npt

from pgdyno.facts.metrics import find_metric
from pgdyno.record.frames import pl

Floats = npt.NDArray[np.float64]


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over time.

    `metric` is its name in facts/metrics.toml; `label` identifies one of several series of that metric. `monotonic_s`
    (seconds on CLOCK_MONOTONIC) and `values` have one element for each sample or interval; NaN means not observed. If
    `absent` gives a reason, both are empty.
    """

    metric: str
    label: str
    monotonic_s: Floats
    values: Floats
    steps_s: Floats | None = None
    """Seconds of each value's interval, by which a mean weights it; None for gauges, which are of an instant."""
    weights: Floats | None = None
    """Weights in place of these: the number of requests, for the mean time of a request; None for all others."""
    absent: str | None = None

    @property
    def unit(self) -> str:
        """Unit from facts/metrics.toml."""
        return find_metric(self.metric).unit

    def find_within(self, start_s: float, end_s: float) -> npt.NDArray[np.bool_]:
        """Return which values are of the time between two instants: those whose whole interval lies there.

        If nothing was observed in such an interval, those count whose middle lies there.
        """
        half_s = 0.0 if self.steps_s is None else self.steps_s / 2
        whole = (self.monotonic_s - half_s >= start_s) & (self.monotonic_s + half_s <= end_s)
        if np.isfinite(self.values[whole]).any():
            return whole
        return (self.monotonic_s >= start_s) & (self.monotonic_s <= end_s)


def absent_series(metric: str, label: str, reason: str) -> Sampled:
    """Return an empty series for a metric that could not be observed."""
    return Sampled(metric=metric, label=label, monotonic_s=np.empty(0), values=np.empty(0), absent=reason)


def difference(frame: pl.DataFrame, column: str) -> Floats:
    """Return the growth of a cumulative counter in each interval; NaN where it is absent or went backwards."""
    counter = frame.get_column(column, default=None)
    return np.full(max(0, frame.height - 1), np.nan) if counter is None else growth(counter)


def growth(counter: pl.Series) -> Floats:
    """Return the growth of a cumulative counter from each value to the next; NaN where it went backwards."""
    # Subtract before casting: as floats, counters above 2**53 would lose their last digits. In numpy, because in polars
    # each difference is a query, which takes ten times as long.
    if counter.dtype == pl.Float64 or not counter.null_count():
        grown = np.diff(counter.to_numpy()).astype(np.float64)
    else:
        pairs = itertools.pairwise(counter.to_list())
        grown = np.array([np.nan if None in pair else float(pair[1] - pair[0]) for pair in pairs])
    grown[grown < 0] = np.nan
    return grown


def gauge(frame: pl.DataFrame, column: str) -> Floats:
    """Return the raw values of a column, NaN where absent."""
    seen = frame.get_column(column, default=None)
    return np.full(frame.height, np.nan) if seen is None else seen.cast(pl.Float64).to_numpy()


def intervals(times_s: Floats) -> tuple[Floats, Floats]:
    """Return the middle and the length of each interval between samples."""
    return (times_s[1:] + times_s[:-1]) / 2, np.diff(times_s)

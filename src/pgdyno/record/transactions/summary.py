"""Define the summary of a transaction log: counts, a latency histogram for each script, and every second of the run.

A histogram for each second, instead of percentiles, lets the percentiles of any period (the steady part, a slice,
five-second bins) be computed later: histograms can be merged, percentiles cannot.

Counts are lines of the log; where a rate is scaled up because pgbench logged only a sample, its docstring says so.
"""

from __future__ import annotations

import functools
import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.transactions.parse import LogColumns

SUMMARY_VERSION = 1


class ScriptSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions of one script, by its number on pgbench's command line from 0. Counts are lines of the log.

    `late_count` is the part of `ok_count` above the latency limit; None without a limit.
    """

    script: int
    ok_count: int
    failed_count: int
    serialization_count: int
    deadlock_count: int
    skipped_count: int
    late_count: int | None
    histogram: bytes


class SecondSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions that ended in one second of the wall clock. Counts are lines of the log."""

    epoch_s: int
    failed_count: int
    skipped_count: int
    late_count: int | None
    histogram: bytes


class SecondSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The run over time in columns of equal length, one row for each second; NaN where a second has no such value.

    The first and the last second are partly outside the run, so that their rates are too low. `tps`, `failed_per_s` and
    `skipped_per_s` are scaled up by 1 / sampling rate. A second without transactions has 0 TPS and no
    latency. A percentile is also NaN where the second has too few transactions for it (`LatencyHistogram.quantile`).
    """

    epoch_s: NDArray[np.int64]
    tps: NDArray[np.float64]
    failed_per_s: NDArray[np.float64]
    skipped_per_s: NDArray[np.float64]
    mean_us: NDArray[np.float64]
    p50_us: NDArray[np.float64]
    p95_us: NDArray[np.float64]
    p99_us: NDArray[np.float64]
    max_us: NDArray[np.float64]

    def find_rows(self, seconds: range) -> slice:
        """Return the rows of these seconds since the epoch, all of which lie within the run."""
        first = int(self.epoch_s[0]) if len(self.epoch_s) else 0
        return slice(seconds.start - first, seconds.stop - first)


class TransactionSummary(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Contents of the transaction logs of one run. Counts are lines of the log, even if pgbench logged only a sample.

    `retried_count` (transactions) and `retries_count` (tries after the first) are None if pgbench did not log them. The
    stamps are the ends of the first and the last transaction in microseconds since the Unix epoch; None if nothing was
    logged. `cut_lines_count` counts last lines without an end, left by a writer that was stopped. `early_count`
    transactions succeeded, but began before all clients of the load were let go: nothing else counts them.
    """

    version: int
    columns: LogColumns
    sampling_rate: float
    latency_limit_us: int | None
    first_stamp_us: int | None
    last_stamp_us: int | None
    retried_count: int | None
    retries_count: int | None
    malformed_lines_count: int
    first_malformed_line: str | None
    cut_lines_count: int
    scripts: tuple[ScriptSummary, ...]
    seconds: tuple[SecondSummary, ...]
    early_count: int = 0

    @property
    def ok_count(self) -> int:
        """Logged transactions that succeeded."""
        return sum(script.ok_count for script in self.scripts)

    @property
    def failed_count(self) -> int:
        """Logged transactions that failed for any reason."""
        return sum(s.failed_count + s.serialization_count + s.deadlock_count for s in self.scripts)

    @property
    def skipped_count(self) -> int:
        """Logged transactions that were not started because they were already too late."""
        return sum(script.skipped_count for script in self.scripts)

    @property
    def span_s(self) -> float | None:
        """Seconds from the end of the first transaction to the end of the last; None with fewer than two."""
        if self.first_stamp_us is None or self.last_stamp_us is None or self.first_stamp_us == self.last_stamp_us:
            return None
        return (self.last_stamp_us - self.first_stamp_us) / 1e6

    def latency(self) -> LatencyHistogram:
        """Return the latencies of all scripts."""
        return LatencyHistogram.merged(LatencyHistogram.from_bytes(s.histogram) for s in self.scripts)

    def window(self, from_epoch_s: int, until_epoch_s: int | None) -> LatencyHistogram:
        """Return the latencies of transactions that ended in [from, until), in whole seconds since the Unix epoch; None: to the last."""
        last_s = math.inf if until_epoch_s is None else until_epoch_s
        chosen = (s for s in self.seconds if from_epoch_s <= s.epoch_s < last_s)
        return LatencyHistogram.merged(LatencyHistogram.from_bytes(s.histogram) for s in chosen)

    @functools.cached_property
    def series(self) -> SecondSeries:
        """The run over time by second, from the first to the last without gaps."""
        first = self.seconds[0].epoch_s if self.seconds else 0
        last = self.seconds[-1].epoch_s if self.seconds else -1
        rows = np.full((last + 1 - first, 8), np.nan)
        rows[:, :3] = 0.0
        for second in self.seconds:
            rows[second.epoch_s - first] = np.array(_make_row(second), dtype=np.float64)
        scale = 1.0 / self.sampling_rate
        tps, failed, skipped, mean, p50, p95, p99, most = rows.T
        return SecondSeries(
            epoch_s=first + np.arange(len(rows), dtype=np.int64),
            tps=tps * scale,
            failed_per_s=failed * scale,
            skipped_per_s=skipped * scale,
            mean_us=mean,
            p50_us=p50,
            p95_us=p95,
            p99_us=p99,
            max_us=most,
        )


def _make_row(second: SecondSummary) -> list[float | None]:
    histogram = LatencyHistogram.from_bytes(second.histogram)
    return [
        histogram.count,
        second.failed_count,
        second.skipped_count,
        histogram.mean_us,
        *(found.value_us for found in histogram.quantiles((0.5, 0.95, 0.99))),
        histogram.max_us,
    ]

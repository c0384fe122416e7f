"""Read when transactions ran, and how much of each lies within a stretch of time.

The clients of a load begin together and, while their transactions take about as long, end them in waves. If transactions are
long, only a few waves fit into a load, and the number that ends within it is off by up to one per client, by as much in every
trial. So each counts by the share of its time that lies within. pgbench lets the transactions end that run when its time is over, and logs
them, so that those under way at the end of a load are in its log, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.record.transactions.pack import find_parts, read_ok

LONG_RATIO = 0.01
"""From this ratio of mean latency to the length of the load on, transactions are long. Below it many waves soon blur."""


class TransactionTimes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """When the logged transactions that succeeded ended, ascending, and how long each took."""

    end_us: NDArray[np.int64]
    latency_us: NDArray[np.int64]

    @classmethod
    def joined(cls, times: Sequence[Self]) -> Self:
        """Join the transactions of several logs."""
        end_us, latency_us = (
            np.concatenate(columns) for columns in zip(*((one.end_us, one.latency_us) for one in times), strict=True)
        )
        order = np.argsort(end_us, kind="stable")
        return cls(end_us=end_us[order], latency_us=latency_us[order])

    def find_shares(self, from_us: float, until_us: float) -> NDArray[np.float64]:
        """Return the share of each transaction's time that lies within a stretch of time."""
        within_us = np.minimum(self.end_us, until_us) - np.maximum(self.end_us - self.latency_us, from_us)
        # The clock of a latency has microseconds.
        shares: NDArray[np.float64] = np.clip(within_us / np.maximum(self.latency_us, 1), 0.0, 1.0)
        return shares


class LongLoad(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The long transactions of a load or of a part of it, and the time in which its clients went on to begin them."""

    times: TransactionTimes
    from_epoch_s: float
    until_epoch_s: float

    def count(self, from_epoch_s: float, until_epoch_s: float) -> float:
        """Return the number of logged transactions within a stretch of time, each by its share."""
        return float(self.times.find_shares(1e6 * from_epoch_s, 1e6 * until_epoch_s).sum())

    def count_by_second(self, first_epoch_s: int, stop_epoch_s: int) -> NDArray[np.float64]:
        """Return the number within each second of [first, stop), as `count` does for one stretch of time."""
        zero_us = first_epoch_s * 1_000_000
        edges_us = np.arange(stop_epoch_s - first_epoch_s + 1) * 1e6
        ends_us, took_us = self.times.end_us - zero_us, np.maximum(self.times.latency_us, 1)
        begins_us = ends_us - took_us
        # Until a time, a transaction has done 0 of itself before its begin and 1 after its end, and between them (time - begin) / took.
        done = np.searchsorted(ends_us, edges_us, side="right").astype(np.float64)
        for stamps_us, sign in ((begins_us, 1.0), (ends_us, -1.0)):
            order = np.argsort(stamps_us, kind="stable")
            passed = np.searchsorted(stamps_us[order], edges_us, side="right")
            rates, offsets = 1.0 / took_us[order], begins_us[order] / took_us[order]
            sums = [np.concatenate(([0.0], np.cumsum(each)))[passed] for each in (rates, offsets)]
            done += sign * (edges_us * sums[0] - sums[1])
        grown: NDArray[np.float64] = np.diff(done)
        return grown

    def measure_mean_us(self, from_epoch_s: float, until_epoch_s: float) -> float | None:
        """Return the mean latency of the transactions within a stretch of time, each weighed by its share; None without any."""
        shares = self.times.find_shares(1e6 * from_epoch_s, 1e6 * until_epoch_s)
        return float(np.average(self.times.latency_us, weights=shares)) if shares.any() else None


def read_times(transactions: Path) -> TransactionTimes:
    """Read the transactions of one log.

    Args:
        transactions: The folder of the packed transactions.

    Raises:
        FileNotFoundError: The folder contains no part.
        OSError: A part cannot be read.
        ValueError: A part is damaged.
    """
    parts = [read_ok(path) for path in find_parts(transactions)]
    if not parts:
        raise FileNotFoundError(f"no packed transactions in {transactions}")
    return TransactionTimes.joined([TransactionTimes(end_us=end, latency_us=latency) for end, latency in parts])


def read_long_load(logs: Sequence[tuple[Path, float]], *, from_epoch_s: float, until_epoch_s: float) -> LongLoad | None:
    """Read the transactions of a load; None if none ran while its clients began them.

    Args:
        logs: The folder of packed transactions of each pgbench, and the seconds by which its stamps are behind the times below.
        from_epoch_s: Until then no client had begun.
        until_epoch_s: Until then, at least, all clients went on.

    Raises:
        OSError, ValueError: As for `read_times`.
    """
    read = [(read_times(folder), round(1e6 * behind_s)) for folder, behind_s in logs]
    times = TransactionTimes.joined(
        [msgspec.structs.replace(one, end_us=one.end_us + behind_us) for one, behind_us in read]
    )
    if not len(times.end_us):
        return None
    from_epoch_s = max(from_epoch_s, float((times.end_us - times.latency_us).min()) / 1e6)
    until_epoch_s = min(until_epoch_s, float(times.end_us[-1]) / 1e6)
    if until_epoch_s <= from_epoch_s:
        return None
    return LongLoad(times=times, from_epoch_s=from_epoch_s, until_epoch_s=until_epoch_s)

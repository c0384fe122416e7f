"""Measure a trial whose load ran in slices: one of a live round. Between them it was frozen, or others had their turns.

A turn cuts nothing: each transaction counts, and weighs, by the share of its time in the counted part; see
`record.transactions.slices.read_turn_loads`.

Of other slices, TPS counts the transactions that ended in the counted part. A transaction that was under way when its server
was frozen has a latency that holds frozen time. It is left out of the latencies, and long ones are left out more often.
So each that is left weighs one over its chance to be whole. A slice counts from `settled` to `end`, and a transaction of
length L that ends at a random moment of that time began within the slice with the chance

    1 if L <= settled - begin, else (end - begin - L) / (end - settled)

Source: Horvitz & Thompson 1952, "A generalization of sampling without replacement from a finite universe",
doi:10.1080/01621459.1952.10483446.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.trial.latency import PERCENTILES
from pgdyno.analyse.types import Percentile
from pgdyno.record.transactions.histogram import why_too_few
from pgdyno.record.transactions.slices import Slice, SliceLoad


class SlicedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a trial that ran in slices; None where no transaction ended in them.

    Attributes:
        tps: Transactions per second of counted time.
        latency_mean_ms: Weighted mean of the whole transactions.
        percentiles: Weighted percentiles of the whole transactions.
        counts_per_transaction: Counters of the machine per transaction, by metric.
    """

    tps: float | None
    latency_mean_ms: float | None
    percentiles: tuple[Percentile, ...]
    counts_per_transaction: Mapping[str, float | None]


# The counter of a slice that each metric is made from, and its unit in that of the metric.
_COUNTERS = {
    "cpu_ms": ("cpu_s", 1e3),
    "device_flush_count": ("device_flush_count", 1.0),
    "device_read_bytes": ("device_read_bytes", 1.0),
    "device_write_bytes": ("device_write_bytes", 1.0),
}
# A latency above this share of a slice rests on the few transactions that began early enough in it.
_LONGEST_RATIO = 0.5


def measure_slices(slices: Sequence[Slice], loads: Sequence[SliceLoad], *, sampling_rate: float) -> SlicedTrial:
    """Measure TPS, latencies and the machine's counters of a trial's slices.

    Args:
        slices: Of the trial, at least one.
        loads: The load of each.
        sampling_rate: pgbench's `--sampling-rate`.
    """
    counted_s = sum(one.counted_s for one in slices)
    count = sum(load.ok_count for load in loads)
    latency_us, weights = _weigh_whole(slices, loads)
    return SlicedTrial(
        tps=count / sampling_rate / counted_s if counted_s > 0 else None,
        latency_mean_ms=float(np.average(latency_us, weights=weights)) / 1e3 if len(latency_us) else None,
        percentiles=tuple(
            _measure_percentiles(
                latency_us, weights, is_cut=len(latency_us) < count, longest_us=_longest_us(slices, loads)
            )
        ),
        counts_per_transaction=_count_per_transaction(slices, loads, sampling_rate),
    )


def _weigh_whole(slices: Sequence[Slice], loads: Sequence[SliceLoad]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the latencies of the transactions that no slice cut, ascending, and their weights."""
    latencies, weights = [], []
    for one, load in zip(slices, loads, strict=True):
        if load.shares is not None:
            latencies.append(load.latency_us)
            weights.append(load.shares)
            continue
        whole = load.latency_us[load.latency_us <= load.end_s * 1e6]
        chance = np.minimum(1.0, (one.length_s - whole / 1e6) / one.counted_s)
        # One that fills its slice to the last microsecond would weigh without limit.
        weights.append(1.0 / np.maximum(chance, 1.0 / max(1, load.ok_count)))
        latencies.append(whole)
    joined, of = np.concatenate(latencies), np.concatenate(weights)
    order = np.argsort(joined, kind="stable")
    return joined[order], of[order]


def _longest_us(slices: Sequence[Slice], loads: Sequence[SliceLoad]) -> float:
    return min(
        (_LONGEST_RATIO * one.length_s * 1e6 for one, load in zip(slices, loads, strict=True) if load.shares is None),
        default=math.inf,
    )


def _measure_percentiles(
    latency_us: NDArray[np.int64], weights: NDArray[np.float64], *, is_cut: bool, longest_us: float
) -> Iterator[Percentile]:
    cumulative = np.cumsum(weights)
    for name, q in PERCENTILES.items():
        if not len(latency_us):
            yield Percentile(name=name, value_ms=None, reason="no transaction was whole within a slice")
            continue
        if q == 1.0 and is_cut:
            why = "the slowest may be among the transactions that a slice cut"
            yield Percentile(name=name, value_ms=None, reason=why)
            continue
        value_ms = float(latency_us[np.searchsorted(cumulative, q * cumulative[-1])]) / 1e3
        reason = None if q == 1.0 else why_too_few(q, len(latency_us))
        if reason is None and value_ms * 1e3 > longest_us:
            reason = (
                f"too long for what it ran in: of transactions above {longest_us / 1e3:.0f} ms, most did not fit in"
            )
        known, unsupported = (value_ms, msgspec.UNSET) if reason is None else (None, value_ms)
        yield Percentile(name=name, value_ms=known, reason=reason, unsupported_ms=unsupported)


def _count_per_transaction(
    slices: Sequence[Slice], loads: Sequence[SliceLoad], sampling_rate: float
) -> dict[str, float | None]:
    """Return the counters of the machine per transaction, of those slices that have them: a turn that began late has none."""
    per_transaction: dict[str, float | None] = {}
    for metric, (counter, unit) in _COUNTERS.items():
        known = [
            (value, load.ok_count / sampling_rate)
            for one, load in zip(slices, loads, strict=True)
            if (value := one.counts.get(counter)) is not None
        ]
        count = sum(ended for _, ended in known)
        per_transaction[metric] = sum(value for value, _ in known) * unit / count if count else None
    return per_transaction

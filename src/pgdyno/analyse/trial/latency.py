"""Estimate latency percentiles of a trial's steady part and over trials.

A percentile of one trial has no interval of its own. Consecutive latencies depend on each other (one checkpoint slows
thousands), so the binomial interval for a quantile would be far too narrow. The trial is the unit: its percentile is
one observation, and the interval comes from several trials.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pgdyno.analyse.comparison.rounding import COUNTED, LOGGED
from pgdyno.analyse.estimate import Estimate, estimate_over_trials
from pgdyno.analyse.types import Percentile
from pgdyno.record.transactions.histogram import LatencyHistogram

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
"""Quantile of each percentile, by its name in reports."""


def measure_percentiles(latency: LatencyHistogram) -> tuple[Percentile, ...]:
    """Measure the percentiles of one trial, in the order of PERCENTILES; None with a reason if it has too few transactions.

    The maximum is the slowest logged transaction: under sampling, a slower one may have gone unlogged.
    """
    found = latency.quantiles(PERCENTILES.values())
    return tuple(
        Percentile(
            name=name,
            value_ms=None if q.value_us is None else q.value_us / 1e3,
            reason=q.reason,
            unsupported_ms=msgspec.UNSET if q.unsupported_us is None else q.unsupported_us / 1e3,
        )
        for name, q in zip(PERCENTILES, found, strict=True)
    )


def measure_mean_ms(latency: LatencyHistogram) -> float | None:
    """Return the exact mean of one trial; None without transactions."""
    return None if latency.mean_us is None else latency.mean_us / 1e3


def estimate_latencies(
    percentiles: Sequence[Sequence[Percentile]], means_ms: Sequence[float | None], *, rounds: Sequence[int] = ()
) -> dict[str, Estimate]:
    """Estimate the mean and every percentile over trials, each as a geometric mean of the trials' own values.

    A percentile that some trials lack is estimated from the others, and its reason says how many lack it and why.

    Args:
        percentiles: The result of `measure_percentiles` for each trial.
        means_ms: The result of `measure_mean_ms` for each trial.
        rounds: As for `estimate_over_trials`.
    """
    by_name = {name: [next(p for p in trial if p.name == name) for trial in percentiles] for name in PERCENTILES}
    reasons = {
        name: next((p.reason for p in of_trials if p.reason is not None), "no number")
        for name, of_trials in by_name.items()
    }
    # A mean needs one transaction, as the maximum does.
    estimates = {"mean": estimate_over_trials(means_ms, unit="ms", missing=reasons["max"], rounds=rounds)}
    for name, of_trials in by_name.items():
        values = [p.value_ms for p in of_trials]
        # The maximum is of no histogram.
        rounding = LOGGED if name == "max" else COUNTED
        step = rounding.find_step_ratio(min(filter(None, values), default=rounding.step))
        estimates[name] = estimate_over_trials(
            values, unit="ms", missing=reasons[name], resolution_ratio=step, rounds=rounds
        )
    return estimates

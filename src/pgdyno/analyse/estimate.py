"""Estimate a quantity over trials, with a confidence interval, and define the doubts that a trial's checks raise.

The unit of every estimate is the trial. The seconds of one trial are not a sample: one-second TPS values are so
strongly autocorrelated that a t-test on them calls 26 to 76 % of identical pairs different. So no function here takes
seconds.

A single trial gets no interval, and no function here rounds a number or adjusts an interval.
"""

from __future__ import annotations

import enum
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

CONFIDENCE = 0.95
USEFUL_FACTOR = 3.0
"""An interval whose upper end is more than this factor above its lower end is too wide to be useful."""
# The logarithms of the largest and the smallest number of full precision are 709 and -708.
_LARGEST_LOG = 700.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An estimated value over `n` trials with its confidence interval at `confidence`.

    `value` is None without trials, `low` and `high` with fewer than two; `reason` says why.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    unit: str
    confidence: float = CONFIDENCE
    reason: str | None = None


def is_too_wide(estimate: Estimate) -> bool:
    """Return whether an interval is so wide that it only shows that there are too few trials; one that begins at 0 is.

    Differences, which may be below 0, are never called too wide.
    """
    if estimate.low is None or estimate.high is None or estimate.low < 0:
        return False
    return estimate.high > USEFUL_FACTOR * estimate.low


class DoubtKind(enum.Enum):
    """The kinds of failed checks of a trial."""

    NO_LOG = "no log"
    """The transaction log is missing: TPS is pgbench's own over the whole load, and there are no latencies."""
    STALE_CLOCK = "stale clock"
    """Transactions take less time than a round trip needs: pgbench read its clock before the answer came."""
    LITTLES_LAW = "littles law"
    """The number of clients is not TPS times latency: some time belongs to no transaction, or a clock or count is wrong."""
    COUNT_MISMATCH = "count mismatch"
    """The log and pgbench count different numbers of transactions."""
    TPS_MISMATCH = "tps mismatch"
    """The log's time stamps and pgbench give different TPS."""


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A failed check: the observed value, the expected value, and the tolerance between them (a share of `expected`)."""

    kind: DoubtKind
    observed: float
    expected: float
    tolerance_ratio: float
    text: str

    @property
    def excess_ratio(self) -> float:
        """The share by which the observed value lies above the expected one; negative below."""
        return self.observed / self.expected - 1.0


class Noise(NamedTuple):
    """The standard deviation of one trial, and its degrees of freedom."""

    sd: float
    degrees: int


def estimate_mean_of_trials(
    values: Sequence[float],
    *,
    unit: str,
    confidence: float = CONFIDENCE,
    resolution: float = 0.0,
    rounds: Sequence[int] = (),
) -> Estimate:
    """Estimate the mean over trials with Student's t interval.

    Args:
        values: One finite number for each trial.
        unit: Unit of the values.
        confidence: Confidence level of the interval, in (0, 1).
        resolution: Width of the steps that values are rounded to, in their unit; see `estimate_geometric_mean`.
        rounds: As for `estimate_over_trials`.

    Source: Student 1908, "The probable error of a mean", Biometrika 6, doi:10.1093/biomet/6.1.1.
    """
    counted = _join_rounds(values, rounds, _mean) if rounds else values
    return _estimate_with_t(counted, unit=unit, confidence=confidence, least_sd=resolution / math.sqrt(12))


def estimate_geometric_mean(
    values: Sequence[float],
    *,
    unit: str,
    resolution_ratio: float = 0.0,
    noise: Noise | None = None,
) -> Estimate:
    """Estimate the geometric mean over trials, with Student's t interval on logarithms: for rates and latencies.

    The noise of a load is multiplicative (a neighbour takes a share, not a number of transactions), and the ratio of
    two geometric means is the geometric mean of the ratios. The interval stays above 0 and is not symmetric.

    Args:
        values: One positive finite number for each trial.
        unit: Unit of the values.
        resolution_ratio: Width of the steps that values are rounded to, as a share of a value. Values within one step
            show no spread, so the spread counts as at least that of values spread evenly over a step.
        noise: Of the logarithm of one value, where more than the values tells it; None: that of the values.

    Raises:
        ValueError: A value is not positive.

    Source: JCGM 100:2008, Guide to the expression of uncertainty in measurement, F.2.2.1: a step's standard deviation is
    its width / sqrt(12).
    """
    least_sd = resolution_ratio / math.sqrt(12)
    logs = _logarithms(values)
    of_logs = _estimate_with_t(logs, unit=unit, confidence=CONFIDENCE, noise=noise, least_sd=least_sd)
    return exponentiate(of_logs)


def estimate_geometric_means(
    groups: Sequence[Sequence[float]], *, confidence: float = CONFIDENCE
) -> tuple[Estimate, ...]:
    """Estimate the geometric mean TPS of each group of trials with a spread that is pooled over all groups.

    Use it for groups whose noise is alike and that have only two or three trials each. A group of one trial has an
    interval too.

    Args:
        groups: Positive finite TPS, one for each trial; no group is empty.
        confidence: Confidence level of each interval by itself, in (0, 1).

    Raises:
        ValueError: A value is not positive.

    Source: Scheffe 1959, The Analysis of Variance, 3.1 and 3.2: the one-way layout and its error mean square.
    """
    logs = [_logarithms(values) for values in groups]
    noise = pool_noise(logs)
    return tuple(
        exponentiate(_estimate_with_t(values, unit="tps", confidence=confidence, noise=noise)) for values in logs
    )


def estimate_over_trials(
    trials: Sequence[float | None],
    *,
    unit: str,
    missing: str = "no number",
    resolution_ratio: float = 0.0,
    rounds: Sequence[int] = (),
) -> Estimate:
    """Estimate a geometric mean over the trials that have a number; an arithmetic mean if a number is 0.

    Args:
        trials: One value for each trial, not below 0; None where it has none.
        unit: Unit of the values.
        missing: What trials without a value lack, for the reason.
        resolution_ratio: As for `estimate_geometric_mean`.
        rounds: The round of each trial. The reference of a comparison runs twice in a round, and shares with itself what
            disturbs that round: its trials of one round count as one. Empty: each trial counts.
    """
    known = [value for value in trials if value is not None]
    reasons = []
    if len(known) < len(trials):
        reasons.append(f"{len(trials) - len(known)} of {len(trials)} trials: {missing}")
    is_geometric = all(known)
    counted = _join_rounds(trials, rounds, statistics.geometric_mean if is_geometric else _mean) if rounds else known
    if is_geometric:
        estimate = estimate_geometric_mean(counted, unit=unit, resolution_ratio=resolution_ratio)
    else:
        estimate = keep_above_0(estimate_mean_of_trials(counted, unit=unit))
        reasons.append("a trial has 0, which has no geometric mean: this is the arithmetic one")
    # Trials that all lack a number have said why: to call them no trials would be untrue.
    if estimate.reason is not None and (known or not trials):
        reasons.append(estimate.reason)
    return msgspec.structs.replace(estimate, reason="; ".join(reasons) or None)


def _join_rounds(
    trials: Sequence[float | None], rounds: Sequence[int], join: Callable[[Sequence[float]], float]
) -> list[float]:
    """Return the mean of the known values of each round, as `join` computes it."""
    of_rounds: dict[int, list[float]] = {}
    for number, value in zip(rounds, trials, strict=True):
        if value is not None:
            of_rounds.setdefault(number, []).append(value)
    return [join(values) for values in of_rounds.values()]


def pool_noise(groups: Sequence[Sequence[float]]) -> Noise | None:
    """Pool the spread of the groups, each around its own mean; None if no group has two values."""
    degrees = sum(len(values) - 1 for values in groups)
    return Noise(math.sqrt(math.fsum(map(_sum_of_squares, groups)) / degrees), degrees) if degrees else None


def absent_estimate(reason: str, *, unit: str, n: int = 0) -> Estimate:
    """Return an estimate without a value, and with the reason why it is absent."""
    return Estimate(value=None, low=None, high=None, n=n, unit=unit, reason=reason)


def exact_estimate(value: float, *, unit: str) -> Estimate:
    """Return a known number, such as a count of CPUs, as an estimate whose interval has no width."""
    return Estimate(value=value, low=value, high=value, n=0, unit=unit)


def divide_estimates(part: Estimate, whole: Estimate, *, unit: str) -> Estimate:
    """Estimate the ratio of two independent estimates of positive numbers from the half-widths of their logarithms.

    `n` is that of `part`, unless `part` is known exactly. The ratio has no interval if one of the two has none, or one
    that reaches 0.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures", Statistics in Medicine 27,
    doi:10.1002/sim.3095 (MOVER): half-widths of independent parts add in quadrature.
    """
    n, confidence = part.n or whole.n, min(part.confidence, whole.confidence)
    if part.value is None or whole.value is None or part.value <= 0 or whole.value <= 0:
        reason = part.reason if part.value is None else whole.reason
        return Estimate(
            value=None, low=None, high=None, n=n, unit=unit, confidence=confidence, reason=reason or "it is not above 0"
        )
    value, reason = part.value / whole.value, part.reason or whole.reason
    ends = [end for end in (part.low, part.high, whole.low, whole.high) if end is not None and end > 0]
    if len(ends) < 4:
        reason = reason or "an interval reaches to 0"
        return Estimate(value=value, low=None, high=None, n=n, unit=unit, confidence=confidence, reason=reason)
    part_low, part_high, whole_low, whole_high = ends
    below = math.hypot(math.log(part.value / part_low), math.log(whole_high / whole.value))
    above = math.hypot(math.log(part_high / part.value), math.log(whole.value / whole_low))
    return Estimate(
        value=value,
        low=value * math.exp(-below),
        high=value * math.exp(above),
        n=n,
        unit=unit,
        confidence=confidence,
        reason=reason,
    )


def scale_estimate(estimate: Estimate, factor: float, *, unit: str | None = None) -> Estimate:
    """Multiply an estimate by a known positive number."""
    return map_estimate(estimate, lambda at: at * factor, unit=unit)


def keep_above_0(estimate: Estimate) -> Estimate:
    """Return the estimate of what is never below 0, with an interval that is not, either."""
    return estimate if estimate.low is None else msgspec.structs.replace(estimate, low=max(0.0, estimate.low))


def exponentiate(estimate: Estimate) -> Estimate:
    """Return an estimate of a quantity from that of its natural logarithm; without an interval where no number can hold an end.

    Two values that differ a little, or of which one is of a trial that stalled, give such ends at a high confidence.
    """
    if estimate.low is not None and estimate.high is not None and max(-estimate.low, estimate.high) > _LARGEST_LOG:
        why = "the trials differ too much for an interval"
        estimate = msgspec.structs.replace(estimate, low=None, high=None, reason=why)
    return map_estimate(estimate, math.exp)


def map_estimate(estimate: Estimate, rising: Callable[[float], float], *, unit: str | None = None) -> Estimate:
    """Apply an increasing function to an estimate: to its value and to both ends of its interval, where it has them."""
    ends = {end: None if (at := getattr(estimate, end)) is None else rising(at) for end in ("value", "low", "high")}
    return msgspec.structs.replace(estimate, unit=unit or estimate.unit, **ends)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    return _mean(known) if known else None


# Pure Python, because there are as few values as trials, and importing numpy would delay every command that shows an
# estimate.
def _logarithms(values: Sequence[float]) -> list[float]:
    if any(value <= 0 for value in values):
        raise ValueError(f"a geometric mean needs positive values, not {min(values):g}")
    return [math.log(value) for value in values]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sum_of_squares(values: Sequence[float]) -> float:
    """Sum the squared distances of the values from their mean."""
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _estimate_with_t(
    values: Sequence[float], *, unit: str, confidence: float, noise: Noise | None = None, least_sd: float = 0.0
) -> Estimate:
    if not all(map(math.isfinite, values)):
        raise ValueError("an estimate needs finite values; leave out trials without one")
    n = len(values)
    if n == 0:
        return Estimate(value=None, low=None, high=None, n=0, unit=unit, confidence=confidence, reason="no trials")
    mean = _mean(values)
    noise = pool_noise([values]) if noise is None else noise
    if noise is None:
        reason = "one trial has no interval"
        return Estimate(value=mean, low=None, high=None, n=1, unit=unit, confidence=confidence, reason=reason)
    half_width = t_quantile(noise.degrees, (1 + confidence) / 2) * max(noise.sd, least_sd) / math.sqrt(n)
    return Estimate(value=mean, low=mean - half_width, high=mean + half_width, n=n, unit=unit, confidence=confidence)


@functools.lru_cache(maxsize=1024)
def t_quantile(degrees: float, probability: float) -> float:
    """Return the quantile of Student's t distribution."""
    # scipy.special loads in a fraction of the time of scipy.stats; it is imported only when an interval is computed.
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(degrees, probability))

"""Measure TPS of a trial's steady part from the transactions' own time stamps, and check that the trial's numbers agree.

Four checks each raise a typed doubt and never correct a number: the log holds exactly the transactions that pgbench
counted; both give the same TPS over the whole run; no transaction is faster than a round trip can be; in a closed loop
the number of clients equals TPS times latency (Little's law). Without a log, TPS is pgbench's own, with a doubt and
without latencies.

Only whole seconds count: see `TrialData.whole_seconds`. A run with too few of them has no steady part; all of it counts,
over its exact span. Latencies are also those of the transactions that were under way when the load's time was over: without
them slow ones would be too few.

A transaction counts in the second in which it ended. Where transactions take long, each counts in every second by the share of
its time that lies there: see `record.transactions.times`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from pgdyno.analyse.estimate import Doubt, DoubtKind
from pgdyno.record.transactions.histogram import LatencyHistogram
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.times import LongLoad

_TOLERANCE_RATIO = 0.01
# With fewer whole seconds, more than half of the run lies outside them.
_MIN_SECONDS = 3
_TOO_SHORT = f"fewer than {_MIN_SECONDS} whole seconds: all of the run counts"
# Batches of MSER-5, and how many there must be.
_BATCH, _MIN_BATCHES = 5, 10
_SAMPLING_SIGMAS = 3.0
# Source: our ADR 0006: stale stamps come 0 to 2 us after the beginning; at 3 to 7 us there is next to nothing.
_STALE_US = 2
_STALE_RATIO = 0.01


class PgbenchClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Pgbench's own summary of the run, and the load that it was asked to generate."""

    clients: int
    is_closed_loop: bool
    """True if each client starts its next transaction when the last one ends (no `--rate`)."""
    tps: float | None
    transactions_count: int | None


class TrialThroughput(msgspec.Struct, frozen=True, kw_only=True):
    """TPS of one trial.

    `from_epoch_s` and `until_epoch_s` bound the steady part, in whole seconds since the Unix epoch; `latency` holds its
    transactions, and those that ended after it: until `latency_until_epoch_s`, or to the end if that is None. The bounds are
    None, with a reason, if the run is too short for a steady part: `tps` and `latency` then cover the whole run. `tps` is
    scaled up by the sampling rate; it is None if the run holds fewer than two transactions.
    """

    tps: float | None
    from_epoch_s: int | None = None
    until_epoch_s: int | None = None
    latency_until_epoch_s: int | None = None
    latency: LatencyHistogram | None = None
    doubts: tuple[Doubt, ...] = ()
    reason: str | None = None


def measure_throughput(
    summary: TransactionSummary, claim: PgbenchClaim, whole_seconds: range, long_load: LongLoad | None = None
) -> TrialThroughput:
    """Measure TPS of the steady part and run the checks; a run of two or three seconds is measured as a whole.

    Args:
        summary: Of the transactions that were logged.
        claim: What pgbench says of them.
        whole_seconds: Seconds since the epoch throughout which the load ran.
        long_load: When each of them ran, in a closed loop where they take long.
    """
    checks = [_check_count(summary, claim), _check_tps(summary, claim)]
    if long_load is not None:
        return _measure_long_load(summary, claim, long_load, checks)
    if len(whole_seconds) < _MIN_SECONDS:
        return _measure_span(summary, claim, checks)
    series = summary.series
    counted = series.find_rows(whole_seconds)
    skipped = truncation_point(series.tps[counted])
    start, stop = whole_seconds.start + skipped, whole_seconds.stop
    # All but the last second of the log, which is a part of one.
    latency_until = max(stop, int(series.epoch_s[-1]))
    latency = summary.window(start, latency_until)
    mean_tps = float(series.tps[counted][skipped:].mean())
    checks.append(check_clock(latency))
    is_complete = not series.failed_per_s[counted].any() and not series.skipped_per_s[counted].any()
    if claim.is_closed_loop and is_complete:
        checks.append(_check_clients(summary, claim, start, stop, tps=mean_tps))
    return TrialThroughput(
        tps=mean_tps,
        from_epoch_s=start,
        until_epoch_s=stop,
        latency_until_epoch_s=latency_until,
        latency=latency,
        doubts=_drop_none(checks),
    )


def _measure_long_load(
    summary: TransactionSummary, claim: PgbenchClaim, load: LongLoad, checks: Sequence[Doubt | None]
) -> TrialThroughput:
    """Measure a load of long transactions, each of which counts by the share of its time; see `measure_throughput`."""
    first, stop = math.ceil(load.from_epoch_s), math.floor(load.until_epoch_s)
    seconds = load.count_by_second(first, stop) if first < stop else np.empty(0)
    has_steady_part = len(seconds) >= _MIN_SECONDS
    skipped = truncation_point(seconds) if has_steady_part else 0
    from_s, until_s = (first + skipped, stop) if has_steady_part else (load.from_epoch_s, load.until_epoch_s)
    tps = load.count(from_s, until_s) / summary.sampling_rate / (until_s - from_s)
    mean_us = load.measure_mean_us(from_s, until_s)
    latency = summary.window(first + skipped, None) if skipped else summary.latency()
    if mean_us is not None and not summary.failed_count:
        law = check_littles_law(
            clients=claim.clients,
            tps=tps,
            latency_mean_us=mean_us,
            seen_count=latency.count,
            sampling_rate=summary.sampling_rate,
        )
        checks = [*checks, law]
    return TrialThroughput(
        tps=tps,
        from_epoch_s=first + skipped if has_steady_part else None,
        until_epoch_s=stop if has_steady_part else None,
        latency=latency,
        doubts=_drop_none([*checks, check_clock(latency)]),
        reason=None if has_steady_part else _TOO_SHORT,
    )


def _measure_span(summary: TransactionSummary, claim: PgbenchClaim, checks: Sequence[Doubt | None]) -> TrialThroughput:
    """Measure from the end of the first transaction to the end of the last, without Little's law: clients fall idle at both ends."""
    tps = _tps_of_span(summary)
    if tps is None:
        return TrialThroughput(tps=None, reason="the log holds fewer than two transactions", doubts=_drop_none(checks))
    latency = summary.latency()
    if claim.is_closed_loop and 1e6 * (summary.span_s or 0.0) < (latency.mean_us or 0.0):
        # The first transactions of clients that began together end within moments; pgbench divides by the whole time.
        tps = claim.tps
    return TrialThroughput(
        tps=tps,
        latency=latency,
        doubts=_drop_none([*checks, check_clock(latency)]),
        reason=_TOO_SHORT,
    )


def truncation_point(values: NDArray[np.float64]) -> int:
    """Return how many observations to leave out at the beginning by MSER-5, so that the mean of the rest is most precise.

    At most half of them are left out. It uses batches of five, or smaller ones if there would be fewer than ten. Below
    ten observations nothing is left out. It does not check that the rest stays on one level; `episodes` does.

    Args:
        values: Evenly spaced observations, such as TPS of whole seconds; shape (n,), finite. Leave out seconds that
            lie only partly inside the trial.

    Raises:
        ValueError: A value is not finite.

    Source: White 1997, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
    doi:10.1177/003754979706900601; Franklin & White 2008, "Stationarity tests and MSER-5", WSC, for the batches.
    """
    if not np.isfinite(values).all():
        raise ValueError("a steady part is sought among finite values only")
    batch = max(1, min(_BATCH, len(values) // _MIN_BATCHES))
    count = len(values) // batch
    if count < _MIN_BATCHES:
        return 0
    means = values[: count * batch].reshape(count, batch).mean(axis=1)
    errors = [float(np.square(means[d:] - means[d:].mean()).sum()) / (count - d) ** 2 for d in range(count // 2 + 1)]
    return int(np.argmin(errors)) * batch


def throughput_from_claim(claim: PgbenchClaim) -> TrialThroughput | None:
    """Return pgbench's own TPS for a trial whose transaction log is missing; None if pgbench printed none."""
    if claim.tps is None:
        return None
    text = "the transaction log is missing: TPS is pgbench's own over the whole load, latencies are absent"
    doubt = Doubt(
        kind=DoubtKind.NO_LOG,
        observed=0.0,
        expected=float(claim.transactions_count or 1),
        tolerance_ratio=0.0,
        text=text,
    )
    return TrialThroughput(tps=claim.tps, doubts=(doubt,))


def check_clock(latency: LatencyHistogram) -> Doubt | None:
    """Check that at most 1 % of the transactions took 0 to 2 us, which no round trip through a socket can.

    This finds only a transaction whose last time stamp came right after its first. A transaction with several
    statements loses the time of its last statement, and no data show that.

    Source: PostgreSQL, pgbench.c, advanceConnectionState: the clock is read once a call, and the call goes on to the
    end of the transaction when the answer is there already.
    """
    if not latency.count:
        return None
    stale_ratio = latency.count_at_most(_STALE_US) / latency.count
    if stale_ratio <= _STALE_RATIO:
        return None
    text = (
        f"pgbench timed {stale_ratio * 100:.0f} % of the transactions as 0 to {_STALE_US} us: it reads its clock before the "
        "answer comes when the answer is quick; means and low percentiles are too low, TPS is right"
    )
    return Doubt(
        kind=DoubtKind.STALE_CLOCK, observed=stale_ratio, expected=_STALE_RATIO, tolerance_ratio=0.0, text=text
    )


def check_littles_law(
    *,
    clients: int,
    tps: float,
    latency_mean_us: float,
    seen_count: int,
    sampling_rate: float,
    edge_ratio: float = 0.0,
) -> Doubt | None:
    """Check Little's law: in a closed loop every client is always inside a transaction, so clients = TPS x latency, within 1 %.

    It does not apply if transactions failed, because the log lacks their time, nor in an open loop. A sampled log adds
    its sampling noise to the tolerance, and transactions across an end of the steady part add the time that they may have taken.

    Args:
        clients: pgbench's `--client`.
        tps: TPS of the steady part.
        latency_mean_us: Mean latency of the same transactions.
        seen_count: Number of them that were logged.
        sampling_rate: Share of transactions that were logged.
        edge_ratio: The most of the clients' time that transactions across an end of the steady part may add or take away.

    Source: Little 1961, "A proof for the queuing formula L = lambda W", Operations Research 9,
    doi:10.1287/opre.9.3.383.
    """
    busy = tps * latency_mean_us / 1e6
    tolerance = _TOLERANCE_RATIO + edge_ratio + _sampling_noise(seen_count, sampling_rate)
    if abs(busy / clients - 1) <= tolerance:
        return None
    if busy < clients:
        text = (
            f"{(1 - busy / clients) * 100:.1f} % of the clients' time belongs to no transaction: pgbench was busy or "
            "waited for a CPU between transactions, or read its clock before an answer came"
        )
    else:
        text = f"the log holds {(busy / clients - 1) * 100:.1f} % more time than the clients had: a clock or a count is wrong"
    return Doubt(
        kind=DoubtKind.LITTLES_LAW, observed=busy, expected=float(clients), tolerance_ratio=tolerance, text=text
    )


def _check_clients(
    summary: TransactionSummary, claim: PgbenchClaim, start: int, stop: int, *, tps: float
) -> Doubt | None:
    """Check Little's law with the transactions that ended in the steady part [start, stop).

    Each client may bring one into it that began before, and leave one that ended later, for at most as long as that took.
    """
    ended, late = summary.window(start, stop), summary.window(stop + 1, None)
    if ended.mean_us is None:
        return None
    longest_s = np.nan_to_num(summary.series.max_us / 1e6)
    first, last = start - int(summary.series.epoch_s[0]), stop - int(summary.series.epoch_s[0])
    brought_s = float(np.max(longest_s[first:] - np.arange(len(longest_s) - first), initial=0.0)) * claim.clients
    late_s = late.count * (late.mean_us or 0.0) / summary.sampling_rate / 1e6
    left_s = float(longest_s[last : last + 1].sum()) * claim.clients + late_s
    return check_littles_law(
        clients=claim.clients,
        tps=tps,
        latency_mean_us=ended.mean_us,
        seen_count=ended.count,
        sampling_rate=summary.sampling_rate,
        edge_ratio=max(brought_s, left_s) / (stop - start) / claim.clients,
    )


def _check_count(summary: TransactionSummary, claim: PgbenchClaim) -> Doubt | None:
    """Check that an unsampled log holds every transaction."""
    expected, held = claim.transactions_count, summary.ok_count + summary.early_count
    if summary.sampling_rate < 1 or not expected or held == expected:
        return None
    damage = summary.malformed_lines_count + summary.cut_lines_count
    text = f"the log holds {held} transactions, pgbench counted {expected}; {damage} lines were unreadable"
    return Doubt(
        kind=DoubtKind.COUNT_MISMATCH,
        observed=float(held),
        expected=float(expected),
        tolerance_ratio=0.0,
        text=text,
    )


def _check_tps(summary: TransactionSummary, claim: PgbenchClaim) -> Doubt | None:
    """Check that both clocks give the same TPS, apart from transactions under way at either end and sampling noise.

    The span begins where the first transaction ends. That one may take far longer than the mean: it reads the catalogue
    into a new session. It is in the first second that holds any.
    """
    seen = _tps_of_span(summary)
    if seen is None or summary.span_s is None or not claim.tps:
        return None
    mean_us = summary.latency().mean_us or 0.0
    first_us = float(np.nan_to_num(summary.series.max_us[0]))
    ends = (max(first_us, mean_us) + mean_us) / 1e6 / summary.span_s
    tolerance = _TOLERANCE_RATIO + ends + _sampling_noise(summary.ok_count, summary.sampling_rate)
    if abs(seen / claim.tps - 1) <= tolerance:
        return None
    text = f"the log's time stamps give {seen:.6g} TPS, pgbench reported {claim.tps:.6g}"
    return Doubt(kind=DoubtKind.TPS_MISMATCH, observed=seen, expected=claim.tps, tolerance_ratio=tolerance, text=text)


def _tps_of_span(summary: TransactionSummary) -> float | None:
    """Compute TPS over the log's span; the first transaction ends where the span begins, and is not counted."""
    if summary.span_s is None or summary.ok_count < 2:
        return None
    return (summary.ok_count - 1) / summary.sampling_rate / summary.span_s


def _sampling_noise(seen_count: int, sampling_rate: float) -> float:
    """Compute three relative standard errors of a total scaled up from a sample, with the values' mean as their spread.

    Source: Horvitz-Thompson estimator under Bernoulli sampling: relative variance (1-p)/n (1 + cv^2), with cv = 1.
    """
    if not seen_count:
        return math.inf
    return _SAMPLING_SIGMAS * float(np.sqrt(2 * (1 - sampling_rate) / seen_count))


def _drop_none(checks: Sequence[Doubt | None]) -> tuple[Doubt, ...]:
    return tuple(doubt for doubt in checks if doubt is not None)

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.estimate import DoubtKind, estimate_over_trials
from pgdyno.analyse.throughput import (
    PgbenchClaim,
    TrialThroughput,
    check_clock,
    check_littles_law,
    measure_throughput,
    throughput_from_claim,
    truncation_point,
)
from pgdyno.analyse.trial.latency import PERCENTILES, estimate_latencies, measure_mean_ms, measure_percentiles
from pgdyno.analyse.types import Percentile
from pgdyno.record.transactions.histogram import RESOLUTION_RATIO, LatencyHistogram
from pgdyno.record.transactions.parse import LogColumns, TransactionBatch, TransactionOutcome
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally
from tests.transactions import summarise_logs

DATA = Path(__file__).parent.parent / "data" / "txlog"


def closed_loop(
    *,
    clients: int = 4,
    seconds: int = 60,
    latency_us: int = 2000,
    gap_us: int = 0,
    sampling_rate: float = 1.0,
    failed_ratio: float = 0.0,
    seed: int = 11,
) -> TransactionSummary:
    """Clients that start their next transaction `gap_us` after the last one ended, as pgbench would log them."""
    random = np.random.default_rng(seed)
    tally = TransactionTally(columns=LogColumns.PLAIN, sampling_rate=sampling_rate)
    for client in range(clients):
        count = int(seconds * 1e6 / (latency_us + gap_us) * 1.5)
        latency = np.maximum(random.exponential(latency_us, count).astype(np.int64), 1)
        stamps = np.cumsum(latency + gap_us)
        kept = (stamps < seconds * 1e6) & (random.random(count) < sampling_rate)
        outcome = np.where(
            random.random(count) < failed_ratio, TransactionOutcome.FAILED, TransactionOutcome.OK
        ).astype(np.uint8)
        n = int(kept.sum())
        tally.add(
            TransactionBatch(
                client=np.full(n, client),
                number=np.flatnonzero(kept),
                latency_us=np.where(outcome == TransactionOutcome.OK, latency, 0)[kept],
                outcome=outcome[kept],
                script=np.zeros(n, dtype=np.int64),
                stamp_us=1_700_000_000_400_000 + stamps[kept],
            )
        )
    return tally.summary()


def measure(summary: TransactionSummary, claimed: PgbenchClaim) -> TrialThroughput:
    """Measure a load whose time was over when its last transaction ended."""
    first_us, last_us = summary.first_stamp_us or 0, summary.last_stamp_us or 0
    return measure_throughput(summary, claimed, range(-(-first_us // 1_000_000), last_us // 1_000_000))


def claim(*, clients: int = 4, tps: float | None = None, count: int | None = None, closed: bool = True) -> PgbenchClaim:
    return PgbenchClaim(clients=clients, is_closed_loop=closed, tps=tps, transactions_count=count)


def kinds(found: object) -> list[DoubtKind]:
    return [doubt.kind for doubt in found.doubts]  # type: ignore[attr-defined]


def test_sound_closed_loop_has_no_doubts() -> None:
    summary = closed_loop()
    found = measure(summary, claim(tps=2000.0, count=summary.ok_count))
    assert found.doubts == ()
    assert found.tps == pytest.approx(2000, rel=0.02)
    assert found.latency is not None
    assert found.latency.mean_us == pytest.approx(2000, rel=0.02)


def test_only_whole_seconds_of_the_steady_part_count() -> None:
    summary = closed_loop()
    found = measure(summary, claim())
    assert (found.from_epoch_s, found.until_epoch_s) == (
        1_700_000_001 + truncation_point(summary.series.tps[1:-1]),
        1_700_000_060,
    )
    window = summary.window(found.from_epoch_s, found.until_epoch_s)
    assert found.latency == window
    assert found.tps == pytest.approx(window.count / (found.until_epoch_s - found.from_epoch_s))


def test_time_between_transactions_breaks_littles_law() -> None:
    found = measure(closed_loop(gap_us=100), claim())
    (doubt,) = found.doubts
    assert doubt.kind is DoubtKind.LITTLES_LAW
    assert doubt.excess_ratio == pytest.approx(-0.048, abs=0.005)
    assert "between transactions" in doubt.text
    assert kinds(measure(closed_loop(gap_us=10), claim())) == []


def test_littles_law_is_not_asked_in_an_open_loop_or_after_failures() -> None:
    assert kinds(measure(closed_loop(gap_us=500), claim(closed=False))) == []
    assert kinds(measure(closed_loop(failed_ratio=0.1), claim())) == []


def test_more_time_than_the_clients_had_is_said() -> None:
    doubt = check_littles_law(clients=4, tps=2000, latency_mean_us=2100, seen_count=100_000, sampling_rate=1.0)
    assert doubt is not None
    assert "more time than the clients had" in doubt.text
    assert check_littles_law(clients=4, tps=2000, latency_mean_us=2019, seen_count=9, sampling_rate=1.0) is None
    assert check_littles_law(clients=4, tps=2000, latency_mean_us=1979, seen_count=9, sampling_rate=1.0) is not None


@pytest.mark.parametrize(("clients", "latency_us"), [(1, 40_000), (8, 40_000), (2, 300_000)])
def test_transactions_across_the_ends_of_a_short_load_do_not_break_littles_law(clients: int, latency_us: int) -> None:
    for seed in range(100):
        summary = closed_loop(clients=clients, seconds=6, latency_us=latency_us, seed=seed)
        assert kinds(measure(summary, claim(clients=clients))) == []
    # What they cannot explain is still told.
    assert kinds(measure(closed_loop(clients=8, seconds=6), claim(clients=7))) == [DoubtKind.LITTLES_LAW]


def test_sampling_scales_tps_and_widens_the_tolerance() -> None:
    summary = closed_loop(sampling_rate=0.1)
    found = measure(summary, claim(tps=2000.0, count=120_000))
    assert found.doubts == ()
    assert found.tps == pytest.approx(2000, rel=0.05)
    noisy = check_littles_law(clients=4, tps=2000, latency_mean_us=2060, seen_count=5000, sampling_rate=0.1)
    assert noisy is None
    assert check_littles_law(clients=4, tps=2000, latency_mean_us=2060, seen_count=5000, sampling_rate=1.0) is not None


def test_sampling_rarely_breaks_littles_law_by_itself() -> None:
    random = np.random.default_rng(12)
    latency = random.exponential(2000, 20_000)
    span_s = latency.sum() / 4 / 1e6
    broken = 0
    for _ in range(300):
        kept = latency[random.random(len(latency)) < 0.05]
        broken += (
            check_littles_law(
                clients=4,
                tps=len(kept) / 0.05 / span_s,
                latency_mean_us=float(kept.mean()),
                seen_count=len(kept),
                sampling_rate=0.05,
            )
            is not None
        )
    assert broken <= 3


def test_counts_and_clocks_are_compared_with_pgbench() -> None:
    summary = closed_loop()
    assert kinds(measure(summary, claim(count=summary.ok_count + 1))) == [DoubtKind.COUNT_MISMATCH]
    # One that began before the clients were let go is in the log, too.
    early = msgspec.structs.replace(summary, early_count=1)
    assert kinds(measure(early, claim(count=summary.ok_count + 1))) == []
    assert kinds(measure(summary, claim(tps=2100.0))) == [DoubtKind.TPS_MISMATCH]


def test_a_slow_first_transaction_is_no_doubt_about_the_clocks() -> None:
    """Of a new session on a new copy of the data: 276 ms of a trial of 3 s, as a busy server took."""
    tally = TransactionTally(columns=LogColumns.PLAIN, sampling_rate=1.0)
    latency = np.array([276_000, *[4_000] * 680])
    n = len(latency)
    tally.add(
        TransactionBatch(
            client=np.zeros(n, dtype=np.int64),
            number=np.arange(n),
            latency_us=latency,
            outcome=np.full(n, TransactionOutcome.OK, dtype=np.uint8),
            script=np.zeros(n, dtype=np.int64),
            stamp_us=1_700_000_000_400_000 + np.cumsum(latency),
        )
    )
    tps = n / (latency.sum() / 1e6)
    assert kinds(measure(tally.summary(), claim(clients=1, tps=tps, count=n))) == []
    assert kinds(measure(tally.summary(), claim(clients=1, tps=tps * 0.95, count=n))) == [DoubtKind.TPS_MISMATCH]


@pytest.mark.parametrize("version", ["15", "18"])
def test_real_run_of_less_than_a_second_counts_as_a_whole(version: str) -> None:
    summary = summarise_logs([DATA / version / "plain.log"], columns=LogColumns.PLAIN)
    found = measure(summary, claim(clients=2, count=120))
    assert summary.span_s is not None
    assert found.tps == pytest.approx(119 / summary.span_s)
    assert found.latency is not None
    assert (found.latency.count, found.from_epoch_s, found.doubts) == (120, None, ())
    assert found.reason == "fewer than 3 whole seconds: all of the run counts"


@pytest.mark.parametrize("seconds", [1, 2, 3])
def test_tps_of_a_short_run_is_that_of_a_long_one(seconds: int) -> None:
    found = measure(closed_loop(seconds=seconds), claim())
    # Three standard errors of so many transactions.
    assert found.tps == pytest.approx(2000, rel=3 / (2000 * seconds) ** 0.5)


@pytest.mark.parametrize("failed_ratio", [0.0, 1.0])
def test_run_without_two_transactions_has_no_throughput(failed_ratio: float) -> None:
    empty = TransactionTally(columns=LogColumns.PLAIN).summary()
    summary = closed_loop(seconds=1, failed_ratio=failed_ratio) if failed_ratio else empty
    found = measure(summary, claim(tps=0.0, count=0))
    assert (found.tps, found.latency, found.reason) == (None, None, "the log holds fewer than two transactions")


def test_transactions_that_all_ended_within_moments_have_no_span_of_their_own() -> None:
    tally = TransactionTally(columns=LogColumns.PLAIN, sampling_rate=1.0)
    tally.add(
        TransactionBatch(
            client=np.arange(4),
            number=np.zeros(4, dtype=np.int64),
            latency_us=np.full(4, 5_000_000),
            outcome=np.zeros(4, dtype=np.uint8),
            script=np.zeros(4, dtype=np.int64),
            stamp_us=1_700_000_000_400_000 + np.arange(4) * 430,
        )
    )
    for tps in (0.799, None):
        assert measure(tally.summary(), claim(tps=tps, count=4)).tps == tps


def test_tps_over_trials_is_a_geometric_mean_that_names_what_is_missing() -> None:
    whole = estimate_over_trials([100.0, 400.0], unit="tps")
    assert (whole.value, whole.n, whole.unit, whole.reason) == (pytest.approx(200), 2, "tps", None)
    partly = estimate_over_trials([100.0, None, 400.0], unit="tps")
    assert (partly.value, partly.n, partly.reason) == (pytest.approx(200), 2, "1 of 3 trials: no number")
    assert estimate_over_trials([None], unit="tps").reason == "1 of 1 trials: no number"
    assert estimate_over_trials([], unit="tps").reason == "no trials"
    zero = estimate_over_trials([100.0, 0.0, None], unit="tps")
    assert (zero.value, zero.n, zero.unit) == (50.0, 2, "tps")
    assert zero.high == pytest.approx(50 + 12.7062 * 50)
    assert zero.reason == (
        "1 of 3 trials: no number; a trial has 0, which has no geometric mean: this is the arithmetic one"
    )


def histogram_of(values: np.ndarray) -> LatencyHistogram:
    histogram = LatencyHistogram()
    histogram.add(values)
    return histogram


def test_percentiles_are_those_of_numpy_in_milliseconds() -> None:
    values = np.random.default_rng(3).integers(100, 50_000, 40_000)
    found = measure_percentiles(histogram_of(values))
    assert [p.name for p in found] == list(PERCENTILES)
    for percentile, q in zip(found, PERCENTILES.values(), strict=True):
        expected = np.quantile(values, q, method="inverted_cdf") / 1000
        assert percentile.value_ms == pytest.approx(expected, rel=0.004)
    assert measure_mean_ms(histogram_of(values)) == pytest.approx(values.mean() / 1000)


def test_percentile_with_too_few_transactions_says_so() -> None:
    found = {p.name: p for p in measure_percentiles(histogram_of(np.arange(500)))}
    assert found["p99.9"].value_ms is None
    assert found["p99.9"].reason == "too few transactions for p99.9: 500 of the 10000 it needs"
    assert found["p99.9"].own_ms == pytest.approx(0.499, rel=0.01)
    assert found["p50"].own_ms == found["p50"].value_ms
    assert found["max"].value_ms == pytest.approx(0.499)
    assert measure_mean_ms(LatencyHistogram()) is None


def test_latencies_over_trials_rest_on_the_trials_that_have_them() -> None:
    few, many = histogram_of(np.arange(1, 5001)), histogram_of(np.arange(1, 20_001))
    trials = [few, many, many]
    found = estimate_latencies([measure_percentiles(t) for t in trials], [measure_mean_ms(t) for t in trials])
    assert list(found) == ["mean", *PERCENTILES]
    assert found["p99.9"].n == 2
    assert found["p99.9"].reason == "1 of 3 trials: too few transactions for p99.9: 5000 of the 10000 it needs"
    assert found["p99.9"].value == pytest.approx(20, rel=0.01)
    assert found["max"].value == pytest.approx((5 * 20 * 20) ** (1 / 3), rel=0.01)
    assert found["mean"].low is not None


@pytest.mark.parametrize(("latency_us", "step_ratio"), [(51, 1 / 51), (20_000, RESOLUTION_RATIO)])
def test_percentiles_that_are_rounded_alike_have_an_interval(latency_us: int, step_ratio: float) -> None:
    """By pgbench's whole microseconds, or by the buckets of histograms. The maximum is in no bucket."""
    alike = histogram_of(np.full(5000, latency_us))
    found = estimate_latencies([measure_percentiles(alike)] * 3, [measure_mean_ms(alike)] * 3)
    for name, ratio in (("p50", step_ratio), ("p99", step_ratio), ("max", 1 / latency_us)):
        low, high = found[name].low, found[name].high
        assert low is not None
        assert high is not None
        # Student's quantile of two degrees of freedom.
        assert math.log(high / low) / 2 == pytest.approx(4.303 * ratio / math.sqrt(12) / math.sqrt(3), rel=0.01)


def test_latencies_that_no_trial_has_are_absent_for_its_reason() -> None:
    few = measure_percentiles(histogram_of(np.arange(1, 500)))
    found = estimate_latencies([few] * 6, [0.25] * 6)
    assert found["p99.9"].reason == "6 of 6 trials: too few transactions for p99.9: 499 of the 10000 it needs"
    lost = tuple(Percentile(name=name, value_ms=None, reason="the log was lost") for name in PERCENTILES)
    for trials, reason in (
        ([(lost, None)], "1 of 1 trials: the log was lost"),
        ([(few, 0.25), (few, 0.25), (lost, None)], "1 of 3 trials: the log was lost"),
        ([(measure_percentiles(LatencyHistogram()), None)], "1 of 1 trials: no transactions"),
    ):
        found = estimate_latencies([one for one, _ in trials], [mean for _, mean in trials])
        assert found["mean"].reason == found["max"].reason == reason


def test_transactions_faster_than_an_answer_can_be_are_told() -> None:
    real = np.random.default_rng(4).integers(20, 90, 1000)
    quick = histogram_of(np.concatenate([real, np.resize([0, 1, 2], 250)]))
    doubt = check_clock(quick)
    assert doubt is not None
    assert doubt.kind is DoubtKind.STALE_CLOCK
    assert doubt.observed == pytest.approx(0.2)
    assert doubt.excess_ratio > 0
    assert doubt.text.startswith("pgbench timed 20 % of the transactions as 0 to 2 us: ")
    assert check_clock(histogram_of(np.concatenate([real, np.zeros(10, dtype=np.int64)]))) is None
    assert check_clock(histogram_of(np.concatenate([real, np.full(250, 3)]))) is None
    assert check_clock(LatencyHistogram()) is None


def test_stale_stamps_are_a_doubt_of_the_trial() -> None:
    found = measure(closed_loop(latency_us=60, seconds=5, clients=1), claim(clients=1))
    # An exponential distribution of this mean has 4 % at or below 2 us.
    assert DoubtKind.STALE_CLOCK in kinds(found)
    assert DoubtKind.STALE_CLOCK not in kinds(measure(closed_loop(), claim()))


def test_a_percentile_of_0_is_a_value() -> None:
    stale = histogram_of(np.concatenate([np.zeros(900, dtype=np.int64), np.arange(1, 101)]))
    found = estimate_latencies([measure_percentiles(stale)] * 3, [measure_mean_ms(stale)] * 3)
    assert (found["p50"].value, found["p50"].low, found["p50"].high, found["p50"].n) == (0.0, 0.0, 0.0, 3)
    assert found["mean"].value == pytest.approx(0.00505)


def test_without_a_log_there_is_pgbenchs_own_tps() -> None:
    found = throughput_from_claim(claim(tps=812.0, count=9000))
    assert found is not None
    assert (found.tps, found.latency) == (812.0, None)
    assert kinds(found) == [DoubtKind.NO_LOG]
    assert found.doubts[0].excess_ratio == -1.0
    assert throughput_from_claim(claim()) is None

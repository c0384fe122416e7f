from __future__ import annotations

import math

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.record.transactions.histogram import LIMIT_US, MIN_BEYOND_COUNT, LatencyHistogram

# Of a quantile, by the number of bits that a bucket keeps.
RELATIVE_ERROR = 2.0**-8

QS = (0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)
latencies = st.lists(st.integers(0, LIMIT_US - 1) | st.integers(0, 1000), min_size=0, max_size=300)


def histogram_of(values: object) -> LatencyHistogram:
    histogram = LatencyHistogram()
    histogram.add(np.asarray(values, dtype=np.int64))
    return histogram


def skewed(count: int, seed: int = 7) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.exp(random.normal(7, 1.5, count)).astype(np.int64)


def test_quantiles_are_those_of_numpy_within_the_stated_error() -> None:
    values = skewed(200_000)
    histogram = histogram_of(values)
    for q in QS:
        expected = np.quantile(values, q, method="inverted_cdf")
        assert histogram.quantile(q).value_us == pytest.approx(expected, rel=RELATIVE_ERROR)


def test_stated_error_is_below_half_a_percent_and_is_reached() -> None:
    # One value per bucket boundary: the worst that can happen to a middle.
    worst = 0.0
    for power in range(8, 41):
        for value in (1 << power, (1 << power) + (1 << (power - 7)) - 1):
            histogram = histogram_of([value] * 20 + [0] * 40 + [LIMIT_US - 1] * 40)
            found = histogram.quantile(0.5).value_us
            assert found is not None
            worst = max(worst, abs(found - value) / value)
    assert 0.8 * RELATIVE_ERROR < worst <= RELATIVE_ERROR < 0.005


def test_whole_microseconds_below_256_are_exact() -> None:
    for value in range(256):
        assert histogram_of([value] * 20 + [1000] * 20).quantile(0.5).value_us == value


def test_agrees_with_hdrhistogram() -> None:
    values = skewed(20_000, seed=3)
    theirs = HdrHistogram(1, LIMIT_US, 3)
    for value in values.tolist():
        theirs.record_value(value)
    ours = histogram_of(values)
    assert ours.count == theirs.get_total_count()
    assert ours.max_us == pytest.approx(theirs.get_max_value(), rel=1e-3)
    for q in (0.5, 0.9, 0.95, 0.99, 0.999):
        assert ours.quantile(q).value_us == pytest.approx(theirs.get_value_at_percentile(100 * q), rel=0.006)


@given(latencies)
def test_count_sum_minimum_and_maximum_are_exact(values: list[int]) -> None:
    histogram = histogram_of(values)
    assert (histogram.count, histogram._sum_us) == (len(values), sum(values))
    assert histogram.min_us == (min(values) if values else None)
    assert histogram.max_us == (max(values) if values else None)
    assert histogram.mean_us == (pytest.approx(sum(values) / len(values)) if values else None)


@given(latencies, latencies)
def test_merging_is_recording_both(first: list[int], second: list[int]) -> None:
    whole = histogram_of(first + second)
    assert LatencyHistogram.merged([histogram_of(first), histogram_of(second)]) == whole
    assert LatencyHistogram.merged([histogram_of(second), histogram_of(first)]) == whole


@given(latencies)
def test_bytes_give_the_same_histogram_back(values: list[int]) -> None:
    histogram = histogram_of(values)
    assert LatencyHistogram.from_bytes(histogram.to_bytes()) == histogram


@given(st.lists(st.integers(0, 10**9), min_size=40, max_size=200))
def test_quantiles_never_fall(values: list[int]) -> None:
    found = [q.value_us for q in histogram_of(values * 10).quantiles(QS) if q.value_us is not None]
    assert found == sorted(found)


@given(st.lists(st.integers(1, 10**6), min_size=20, max_size=100), st.integers(1, 1000))
def test_scaling_the_values_scales_the_quantiles(values: list[int], factor: int) -> None:
    plain = histogram_of(values).quantile(0.5).value_us
    scaled = histogram_of([factor * value for value in values]).quantile(0.5).value_us
    assert plain is not None
    assert scaled == pytest.approx(factor * plain, rel=2.1 * RELATIVE_ERROR)


@given(st.lists(st.integers(0, 10**9), min_size=20, max_size=100), st.integers(2, 9))
def test_repeating_every_value_changes_no_quantile(values: list[int], times: int) -> None:
    assert histogram_of(values * times).quantile(0.5).value_us == histogram_of(values).quantile(0.5).value_us


def test_order_does_not_matter() -> None:
    values = skewed(5000)
    assert histogram_of(values) == histogram_of(np.sort(values)[::-1])


@pytest.mark.parametrize(("q", "needed"), [(0.5, 20), (0.9, 100), (0.99, 1000), (0.999, 10_000), (0.01, 1000)])
def test_quantile_with_too_few_values_beyond_is_refused(q: float, needed: int) -> None:
    refused = histogram_of(range(needed - 1)).quantile(q)
    assert refused.value_us is None
    assert refused.reason is not None
    assert f"{needed - 1} of the {needed}" in refused.reason
    found = histogram_of(range(needed)).quantile(q)
    assert found.value_us is not None
    assert found.unsupported_us is None
    # What there is of it is a number nevertheless.
    assert refused.unsupported_us == pytest.approx(found.value_us, abs=1 + 0.01 * found.value_us)
    # An interval for it exists by then even without any assumption on the distribution.
    assert math.pow(max(q, 1 - q), needed) < 0.025
    assert needed * min(q, 1 - q) == pytest.approx(MIN_BEYOND_COUNT)


def test_p999_of_500_transactions_is_refused_but_its_maximum_is_not() -> None:
    histogram = histogram_of(range(500))
    assert histogram.quantile(0.999).reason == "too few transactions for p99.9: 500 of the 10000 it needs"
    assert histogram.quantile(1.0).value_us == 499


def test_no_transactions_have_no_latency() -> None:
    empty = LatencyHistogram()
    assert empty.quantile(0.5).reason == "no transactions"
    assert (empty.min_us, empty.max_us, empty.mean_us, empty.count) == (None, None, None, 0)


@pytest.mark.parametrize("values", [[5, -1], [5, LIMIT_US]])
def test_impossible_latencies_are_refused_whole(values: list[int]) -> None:
    histogram = LatencyHistogram()
    with pytest.raises(ValueError, match="outside"):
        histogram.add(np.array(values))
    assert histogram == LatencyHistogram()


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_impossible_quantiles_are_refused(q: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        histogram_of([1]).quantile(q)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint16, np.int64])
def test_any_width_of_integer_is_taken(dtype: type) -> None:
    histogram = LatencyHistogram()
    histogram.add(np.arange(1000).astype(dtype))
    assert histogram == histogram_of(range(1000))


def test_damaged_bytes_are_refused() -> None:
    data = histogram_of(skewed(1000)).to_bytes()
    for damaged in (
        b"",
        data[:10],
        data[:-1],
        b"\x09" + data[1:],
        data[:1] + b"\x03" + data[2:],
        data[:-9] + b"123456789",
    ):
        with pytest.raises(ValueError, match="latency histogram"):
            LatencyHistogram.from_bytes(damaged)


def test_one_second_of_the_record_is_small() -> None:
    assert len(histogram_of(skewed(20_000)).to_bytes()) < 2500


@given(st.lists(st.integers(0, 5000), max_size=200), st.integers(-1, 255))
def test_count_at_most_is_exact_where_values_are(values: list[int], us: int) -> None:
    histogram = LatencyHistogram()
    histogram.add(np.array(values, dtype=np.int64))
    assert histogram.count_at_most(us) == sum(value <= us for value in values)


def test_count_at_most_counts_whole_buckets_above() -> None:
    histogram = LatencyHistogram()
    histogram.add(np.array([256, 257, 258, 1000]))
    assert [histogram.count_at_most(us) for us in (255, 256, 258, 2**41 - 1)] == [0, 2, 3, 4]

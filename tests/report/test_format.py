"""Rounding: never more digits than the doubt allows, never a number that was not measured."""

from __future__ import annotations

import math

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.report.format import (
    format_bytes,
    format_count,
    format_estimate,
    format_number,
    format_p,
    format_percent,
    format_seconds,
    format_share_exactly,
    format_value,
)
from pgdyno.report.sections.head import count_trials_needed


def _estimate(
    value: float | None, low: float | None, high: float | None, n: int = 3, reason: str | None = None
) -> Estimate:
    return Estimate(value=value, low=low, high=high, n=n, unit="tps", reason=reason)


def _read(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (3412.3, "3,410"), (48_321.0, "48,300"), (2.14159, "2.14"), (0.012345, "0.0123"), (9.996, "10.0"),
        (999.6, "1,000"), (-3412.3, "-3,410"), (1e-7, "0.000000100"), (math.nan, "—"),
    ],
)  # fmt: skip
def test_a_lone_number_has_three_digits(value: float, shown: str) -> None:
    assert format_number(value) == shown


def test_a_p_value_ends_where_its_digits_say_nothing() -> None:
    assert [format_p(value) for value in (0.0251, 0.0001, 1.63e-15)] == ["p = 0.025", "p = 0.00010", "p < 0.0001"]


@pytest.mark.parametrize(
    ("value", "low", "high", "shown", "interval"),
    [
        (3412.3, 3099.0, 3746.0, "3,410", "[3,100 – 3,750]"),
        (3412.34, 3412.11, 3412.57, "3,412.34", "[3,412.11 – 3,412.57]"),
        (2.14159, 2.0, 2.3, "2.14", "[2.00 – 2.30]"),
        (6.1, 3.49, 10.1, "6.1", "[3.5 – 10.1]"),
        (12.0, -3.0, 27.0, "12", "[-3.0 – 27]"),
        (500.0, 500.0, 500.0, "500", "[500 – 500]"),
    ],
)
def test_the_interval_decides_the_digits(value: float, low: float, high: float, shown: str, interval: str) -> None:
    text = format_estimate(_estimate(value, low, high))
    assert (text.value, text.interval, text.n) == (shown, interval, "n = 3")


@pytest.mark.parametrize(
    ("value", "low", "high", "shown", "words"),
    [
        (35.2, 0.39, 3_120.0, "35", "no useful interval"),
        (35.2, 1.2e-19, 1.03e22, "35", "no useful interval"),
        (4312.0, 2000.0, 9300.0, "4,300", "2,000 – 9,300: too wide"),
        (0.002, 0.0, 0.0045, "0.0020", "0 – 0.0045: too wide"),
    ],
)
def test_an_interval_that_says_nothing_is_replaced_by_words(
    value: float, low: float, high: float, shown: str, words: str
) -> None:
    text = format_estimate(_estimate(value, low, high))
    assert (text.value, text.interval) == (shown, words)


def test_the_trials_needed_give_the_interval_that_was_asked_for() -> None:
    log_sd = 0.2
    seen = estimate_geometric_mean([math.exp(one * log_sd) for one in (-1.0, 0.0, 1.0)], unit="tps")
    needed = count_trials_needed(seen)
    assert needed is not None
    half_widths = [_half_width(n, log_sd) for n in (needed - 1, needed)]
    assert half_widths[1] <= math.log(1.1) < half_widths[0]


def test_no_number_of_trials_is_named_where_none_would_do() -> None:
    assert count_trials_needed(_estimate(35.2, 1.2e-19, 1.03e22)) is None
    assert count_trials_needed(_estimate(35.2, None, None, n=1)) is None


def _half_width(n: int, log_sd: float) -> float:
    low, high = scipy.stats.t.interval(0.95, n - 1, scale=log_sd / math.sqrt(n))
    return float(high - low) / 2


def test_one_trial_has_no_interval_and_says_so() -> None:
    text = format_estimate(_estimate(3412.3, None, None, n=1, reason="one trial has no interval"))
    assert (text.value, text.interval) == ("3,410", "n = 1: no interval")


def test_an_absent_estimate_is_a_dash_with_its_reason() -> None:
    text = format_estimate(_estimate(None, None, None, n=0, reason="no trials"))
    assert (text.value, text.interval, text.reason) == ("—", "", "no trials")


@given(st.floats(1e-6, 1e9), st.floats(1e-6, 0.49))
def test_an_interval_is_moved_by_less_than_a_twentieth_of_its_width(value: float, ratio: float) -> None:
    half_width = value * ratio
    text = format_estimate(_estimate(value, value - half_width, value + half_width))
    low, high = (_read(bound) for bound in text.interval.strip("[]").split(" – "))
    assert _read(text.value) == pytest.approx(value, abs=half_width / 19)
    assert (low, high) == pytest.approx((value - half_width, value + half_width), abs=half_width / 19)


@given(st.floats(1e-6, 1e9), st.floats(1.0001, 1.7))
def test_a_positive_bound_is_never_shown_as_zero(value: float, factor: float) -> None:
    text = format_estimate(_estimate(value, value / factor, value * factor))
    assert _read(text.interval.strip("[]").split(" – ")[0]) > 0


@given(st.floats(1e-6, 1e12))
def test_a_number_keeps_its_size(value: float) -> None:
    assert _read(format_number(value)) == pytest.approx(value, rel=0.0051)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(24 * 1024**3), "24 GB"),
        (format_bytes(1.5 * 1024**2), "1.50 MB"),
        (format_bytes(0), "0 B"),
        (format_bytes(1023), "1,023 B"),
        (format_seconds(60.0), "60 s"),
        (format_seconds(0.00045), "0.450 ms"),
        (format_seconds(14.21), "14.2 s"),
        (format_seconds(720), "12 min"),
        (format_seconds(725.4), "12 min 5 s"),
        (format_seconds(5399), "89 min 59 s"),
        (format_seconds(5400), "1 h 30 min"),
        (format_seconds(6070), "1 h 41 min"),
        (format_seconds(7500), "2 h 5 min"),
        (format_seconds(0), "0 s"),
        (format_percent(0.123456), "12.3 %"),
        (format_percent(0.84), "84.0 %"),
        (format_percent(0.000049), "<0.01 %"),
        (format_percent(0.00006), "0.01 %"),
        (format_percent(0.9994), "99.9 %"),
        (format_percent(0.9996), ">99.9 %"),
        (format_percent(sum([0.1] * 10)), "100 %"),
        (format_percent(0.0), "0 %"),
        (format_percent(1.0), "100 %"),
        (format_percent(2.0), "200 %"),
        (format_share_exactly(0.01), "1 %"),
        (format_share_exactly(round((100 - 99.875) / 100, 9)), "0.125 %"),
        (format_count(204_812), "204,812"),
        (format_value(1_640.0, "bytes"), "1.60 kB"),
        (format_value(0.31, "bytes"), "0.310 B"),
        (format_value(0.31, "count"), "0.310"),
        (format_value(22.8, "pages"), "22.8 pages"),
        (format_value(0.95, "ratio"), "95.0 %"),
    ],
)
def test_units(shown: str, expected: str) -> None:
    assert shown == expected

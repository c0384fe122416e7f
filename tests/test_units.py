from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.units import format_bytes, format_bytes_per_s, parse_in_unit, parse_seconds, show_in_unit, unit_size
from tests.rows import each_row


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90.0), ("5min", 300.0), ("250ms", 0.25), ("1.5h", 5400.0), ("2d", 172_800.0), ("-3s", -3.0)],
)
def test_seconds(text: str, expected: float) -> None:
    assert parse_seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["30", "", "s", "3 parsecs", "3kb", "3 MB MB", "1e", "--1s", "3m"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match=r"us, ms, s, min, h, d"):
        parse_seconds(text)


@pytest.mark.parametrize("text", ["1e400ms", "-1e400s", "1e306s"])
def test_a_time_without_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is too long"):
        parse_seconds(text)


@given(st.integers(0, 1 << 40), st.sampled_from(["us", "ms", "s", "min", "h", "d"]))
def test_units_are_multiples_of_one_another(number: int, unit: str) -> None:
    factor = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86_400}[unit]
    assert parse_seconds(f"{number}{unit}") == pytest.approx(number * factor)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 kB"),
        (1536, "1.50 kB"),
        (1_234_567, "1.18 MB"),
        (9_996_000, "9.53 MB"),
        (128 << 20, "128 MB"),
        (1_072_693_248, "1,023 MB"),
        (1_073_000_000, "1,020 MB"),
        (80_000_000_000, "74.5 GB"),
        (5 << 40, "5 TB"),
        (5000 << 40, "5,000 TB"),
    ],
)
def test_sizes_are_said_in_powers_of_1024(value: int, expected: str) -> None:
    assert format_bytes(value) == expected


@each_row(
    [
        (0, "0 B/s"),
        (999, "999 B/s"),
        (1_500, "1.50 kB/s"),
        (125 << 20, "131 MB/s"),
        (312_500_000, "312 MB/s"),
        (2_345_678_901, "2,350 MB/s"),
    ]
)
def test_rates_are_said_in_powers_of_10_as_data_sheets_do(value: int, expected: str) -> None:
    assert format_bytes_per_s(value) == expected


@given(st.integers(1, 2**60))
def test_a_size_that_is_read_back_is_the_same_but_for_its_digits(value: int) -> None:
    assert parse_in_unit(format_bytes(value).replace(",", ""), "B", is_integer=False) == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(
    ("unit", "expected"), [(None, 1.0), ("kB", 1024), ("8kB", 8192), ("ms", 0.001), ("s", 1.0), ("min", 60.0)]
)
def test_a_settings_own_unit_in_bytes_or_seconds(unit: str | None, expected: float) -> None:
    assert unit_size(unit) == expected


@pytest.mark.parametrize(
    ("text", "unit", "shown"),
    [
        ("16384", "8kB", "128MB"), ("157952", "8kB", "1234MB"), ("158400", "8kB", "1267200kB"), ("1024", "MB", "1GB"),
        ("65536", "B", "64kB"), ("300", "s", "5min"), ("301", "s", "301s"), ("1500", "ms", "1500ms"), ("1440", "min", "1d"),
        ("2", "ms", "2ms"), ("0.5", "ms", "500us"), ("1.5", "ms", "1500us"), ("1.234", "us", "1.234us"),
        ("0", "s", "0"), ("-1", "8kB", "-1"), ("4MB", "kB", "4MB"),
        ("100", None, "100"), ("on", None, "on"), ("", "ms", ""),
    ],
)  # fmt: skip
def test_a_settings_number_is_shown_as_a_server_does(text: str, unit: str | None, shown: str) -> None:
    assert show_in_unit(text, unit) == shown

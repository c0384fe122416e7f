from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.units import parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "expected"), [("8192B", 8192), ("4GB", 4 << 30), (" 1.5 MB ", 1_572_864), ("0kB", 0), ("1TB", 1 << 40)]
)
def test_bytes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90.0), ("5min", 300.0), ("250ms", 0.25), ("1.5h", 5400.0), ("2d", 172_800.0), ("-3s", -3.0)],
)
def test_seconds(text: str, expected: float) -> None:
    assert parse_seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["30", "", "s", "3 parsecs", "3kb", "3 MB MB", "1e", "--1s", "3m"])
def test_what_is_no_quantity(text: str) -> None:
    for parse in (parse_bytes, parse_seconds):
        with pytest.raises(ValueError, match=r"B, kB, MB, GB, TB|us, ms, s, min, h, d"):
            parse(text)


@given(st.integers(0, 1 << 40), st.sampled_from(["B", "kB", "MB", "GB"]))
def test_a_unit_is_1024_of_the_one_before(number: int, unit: str) -> None:
    factor = 1024 ** ["B", "kB", "MB", "GB"].index(unit)
    assert parse_bytes(f"{number}{unit}") == number * factor

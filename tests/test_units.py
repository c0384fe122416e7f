from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.units import parse_seconds


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


@given(st.integers(0, 1 << 40), st.sampled_from(["us", "ms", "s", "min", "h", "d"]))
def test_units_are_multiples_of_one_another(number: int, unit: str) -> None:
    factor = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86_400}[unit]
    assert parse_seconds(f"{number}{unit}") == pytest.approx(number * factor)

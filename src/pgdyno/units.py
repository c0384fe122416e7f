"""Unit names, and PostgreSQL's own notation for quantities. Imports nothing of pgdyno.

Inside pgdyno a quantity's unit ends its name (`_s`, `_ms`, `_us`, `_bytes`, `_tps`, `_ratio`, `_count`);
display units exist only in `report/`.
"""

from __future__ import annotations

import re

# Source: PostgreSQL 18 manual, section 19.1.1 "Parameter Names and Values": multipliers are 1024, names case-sensitive.
_MEMORY_BYTES = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_TIME_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Parse a memory quantity in PostgreSQL's notation, such as `4GB` or `8192B`, into bytes.

    Raises:
        ValueError: No number, no unit, or a unit that is not one of B, kB, MB, GB, TB.
    """
    return round(_parse(text, _MEMORY_BYTES))


def parse_seconds(text: str) -> float:
    """Parse a time in PostgreSQL's notation, such as `90s`, `5min` or `250ms`, into seconds.

    Raises:
        ValueError: No number, no unit, or a unit that is not one of us, ms, s, min, h, d.
    """
    return _parse(text, _TIME_S)


def _parse(text: str, units: dict[str, float] | dict[str, int]) -> float:
    names = ", ".join(units)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit ({names})")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{text!r} has no unit; write one of {names}")
    if unit not in units:
        raise ValueError(f"{text!r} has the unit {unit!r}, which is not one of {names}")
    return float(number) * units[unit]

"""Parse and format quantities in PostgreSQL's notation.

Inside pgdyno, the name of a quantity ends in its unit (`_s`, `_ms`, `_us`, `_bytes`, `_tps`, `_ratio`, `_count`).
Display units are used only in `report/`, except for sizes, counts and shares, which errors, plans, listings and findings
format as reports do.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Sequence
from typing import TypeVar

# Source: PostgreSQL 18 manual, block_size: the value with which every distribution builds.
PAGE_BYTES = 8192
# Source: PostgreSQL 18 manual, section 19.1.1 "Parameter Names and Values": multipliers are 1024, names case-sensitive.
_MEMORY_BYTES = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_TIME_US = {"us": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}
_TIME_S = {name: us / 1e6 for name, us in _TIME_US.items()}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")

# Accepted by strtol() with base 0, and by strtod() without hexadecimal fractions.
_INTEGER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_DOUBLE = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]{1,200}|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)
_BASE_UNIT = re.compile(r"(?P<factor>\d*)(?P<name>[A-Za-z]+)")
_Number = TypeVar("_Number", int, float)


def parse_seconds(text: str) -> float:
    """Parse a time in PostgreSQL's notation, such as `90s`, `5min` or `250ms`, into seconds.

    Raises:
        ValueError: No number, no unit, a unit that is not one of us, ms, s, min, h, d, or more than a float holds.
    """
    names = ", ".join(_TIME_S)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit ({names})")
    number, unit = match.groups()
    if not unit:
        raise ValueError(f"{text!r} has no unit; write one of {names}")
    if unit not in _TIME_S:
        raise ValueError(f"{text!r} has the unit {unit!r}, which is not one of {names}")
    seconds = float(number) * _TIME_S[unit]
    # Users of it convert it into smaller units.
    if not math.isfinite(seconds / _TIME_S["us"]):
        raise ValueError(f"{text!r} is too long")
    return seconds


def format_cpus(count: float) -> str:
    """Format a number of CPUs, which a control group may limit to a fraction."""
    return f"{count:g} {'CPU' if count == 1 else 'CPUs'}"


def count_things(count: int, noun: str) -> str:
    """Count things: `1 trial`, `2,000 trials`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sum_if_known(values: Sequence[_Number | None]) -> _Number | None:
    """Add up values; None if one of them is not known."""
    return None if None in values else sum(filter(None, values))


def with_capital(words: str) -> str:
    """Begin words with a capital, as a sentence does; the others stay as they are."""
    return words[:1].upper() + words[1:]


def count_subject(count: int, noun: str) -> str:
    """Count things of which something is said: `1 trial is`, `2,000 trials are`."""
    return f"{count_things(count, noun)} {'is' if count == 1 else 'are'}"


def format_share(ratio: float | None) -> str:
    """Format a share in whole percent; `?` if it is not known."""
    return "?" if ratio is None else f"{ratio * 100:.0f} %"


def format_bytes(value: float) -> str:
    """Format a size in PostgreSQL's notation, where a kB is 1024 bytes: 1234567 is `1.18 MB`."""
    name, size = next(((n, s) for n, s in reversed(_MEMORY_BYTES.items()) if abs(value) >= s), ("B", 1))
    return f"{round_to_three(value / size)} {name}"


def format_bytes_per_s(value: float) -> str:
    """Format a rate as data sheets and tools for disks do, where a MB is 10^6 bytes: 131072000 is `131 MB/s`."""
    name, size = next(((n, s) for n, s in (("MB", 1e6), ("kB", 1e3)) if abs(value) >= s), ("B", 1.0))
    return f"{round_to_three(value / size)} {name}/s"


def round_to_three(count: float) -> str:
    """Round to three significant digits, counted after rounding; whole numbers are exact."""
    if count == round(count):
        return f"{count:,.0f}"
    decimals = 2 - int(f"{count:.2e}".partition("e")[2])
    return f"{round(count, decimals):,.{max(0, decimals)}f}"


def describe_minutes(minutes: float) -> str:
    """Return minutes as the subject of a sentence: `1 minute is`, `2.5 minutes are`."""
    return "1 minute is" if minutes == 1 else f"{minutes:g} minutes are"


# Deriving settings reads the same few values tens of thousands of times.
@functools.lru_cache(maxsize=4096)
def parse_in_unit(text: str, unit: str | None, *, is_integer: bool) -> float:
    """Parse the number of a setting as the server does, into multiples of the setting's unit.

    Args:
        text: Text such as `1.5GB`, `90 s`, `0x10`, `100`; a number without a unit is in `unit`.
        unit: Unit from pg_settings.unit, such as `8kB`, `ms` or `MB`; None accepts no unit.
        is_integer: Whether the setting is an integer: octal and hexadecimal are accepted, fractions are rounded.

    Raises:
        ValueError: The text is no number, has a wrong unit, or exceeds the range of the server's integers.

    Source: PostgreSQL 18 src/backend/utils/misc/guc.c, parse_int(), parse_real(), convert_to_base_unit().
    """
    number, rest = _scan_number(text, is_integer=is_integer)
    given = rest.strip()
    if given:
        number = _convert(number, given, unit, text)
    if not is_integer:
        return number
    if not -(2**31) <= round(number) < 2**31:
        raise ValueError(f"{text!r} is more than an integer of 32 bits holds")
    return round(number)


def parse_sheet_bytes(text: str) -> float:
    """Parse a size as data sheets of disks have it, where a GB is 10^9 bytes; `text` is one that `parse_in_unit` takes."""
    number, unit = _scan_number(text, is_integer=False)
    return number * 1000.0 ** list(_MEMORY_BYTES).index(unit.strip())


def show_in_unit(text: str, unit: str | None) -> str:
    """Show the number of a setting as SHOW does, in the largest unit that leaves it whole: 16384 of `8kB` is `128MB`.

    Args:
        text: Value from pg_settings.setting; what is no number above 0, or has a unit of its own, stays as it is.
        unit: Unit from pg_settings.unit; None without one.

    Source: PostgreSQL 18 src/backend/utils/misc/guc.c, convert_int_from_base_unit(), convert_real_from_base_unit().
    """
    base = _BASE_UNIT.fullmatch(unit or "")
    if base is None or not re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII) or float(text) == 0:
        return text
    sizes = _TIME_US if is_time_unit(base["name"]) else _MEMORY_BYTES
    total = (int(text) if text.isdecimal() else float(text)) * int(base["factor"] or 1) * sizes[base["name"]]
    if not math.isclose(total, round(total), rel_tol=1e-8):
        return f"{total:g}{next(iter(sizes))}"
    return next(f"{round(total) // size}{name}" for name, size in reversed(sizes.items()) if round(total) % size == 0)


def is_time_unit(unit: str) -> bool:
    """Return whether a setting's unit, from pg_settings.unit, is a unit of time."""
    return unit in _TIME_S


@functools.cache
def unit_size(unit: str | None) -> float:
    """Return the size of a setting's unit, such as `8kB` or `min`, in bytes or s; 1 without a unit."""
    base = _BASE_UNIT.fullmatch(unit or "")
    if base is None:
        return 1.0
    return int(base["factor"] or 1) * (_MEMORY_BYTES | _TIME_S)[base["name"]]


def _scan_number(text: str, *, is_integer: bool) -> tuple[float, str]:
    """Parse the number at the beginning, and return it with the remaining text."""
    match = _INTEGER.match(text) if is_integer else None
    end = match.end() if match else 0
    if match and text[end : end + 1] not in {".", "e", "E"}:
        sign, digits = match.groups()
        base = 16 if digits[:2] in {"0x", "0X"} else 8 if digits[0] == "0" else 10
        integer = int(sign + digits, base)
        if -(2**63) <= integer < 2**63:
            return float(integer), text[end:]
    match = _DOUBLE.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number")
    if "x" in match[0].lower():
        return float.fromhex(match[0]), text[match.end() :]
    number = float(match[0])
    # strtod() reports overflow and underflow of a double.
    if math.isinf(number) or (abs(number) < sys.float_info.min and re.search("[1-9]", match[0].lower().split("e")[0])):
        raise ValueError(f"{text!r} is more than a double holds")
    return number, text[match.end() :]


def _convert(number: float, given: str, unit: str | None, text: str) -> float:
    """Convert a number from unit `given` to multiples of `unit`; a fraction is rounded to the next smaller unit."""
    base = _BASE_UNIT.fullmatch(unit or "")
    if base is None:
        raise ValueError(f"{text!r} has a unit, and the setting has none")
    sizes = _MEMORY_BYTES if base["name"] in _MEMORY_BYTES else _TIME_US
    names = list(sizes)
    if given not in sizes:
        raise ValueError(f"{text!r} has the unit {given!r}, which is not one of {', '.join(names)}")
    base_size = int(base["factor"] or 1) * sizes[base["name"]]
    number *= sizes[given] / base_size
    if given == names[0]:
        return number
    smaller = sizes[names[names.index(given) - 1]] / base_size
    if math.isinf(number / smaller):
        raise ValueError(f"{text!r} is more than a double holds")
    return round(number / smaller) * smaller

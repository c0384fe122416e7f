"""Thin series for display without losing their extremes. Charts only: estimates never use thinned data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pgdyno.analyse.series import Series

Values = Sequence[float | None]
# More digits than a chart's height can show, in a fifth of the bytes of a full float.
_DIGITS = 4


def to_columns(
    series: Sequence[Series], *, factor: float, points: int | None, is_stacked: bool
) -> tuple[tuple[dict[str, list[float | None]], ...], int]:
    """Put series into columns, one group for each set of sampling times, thinned to at most `points` rows each.

    Lines keep the lowest and the highest value of each step, so that neither a stall nor a spike can vanish; in a
    stack only means add up. A step without any observation stays a gap.

    Returns:
        The groups (`t` and `s0`, `s1`, ... by the series' positions), and the longest step in samples (1: nothing
        was thinned).
    """
    groups: dict[tuple[float, ...], dict[str, list[float | None]]] = {}
    longest = 1
    for index, one in enumerate(series):
        count = len(one.t_s)
        rows_per_step = 1 if is_stacked else 2
        step = 1 if points is None or count <= points else math.ceil(count * rows_per_step / points)
        longest = max(longest, step)
        if one.t_s not in groups:
            groups[one.t_s] = {"t": list(_thin_times(one.t_s, step, rows_per_step))}
        scaled = [None if value is None else value * factor for value in one.values]
        thinned = scaled if step == 1 else _thin_means(scaled, step) if is_stacked else _thin_extremes(scaled, step)
        groups[one.t_s][f"s{index}"] = [None if value is None else shorten(value) for value in thinned]
    return tuple(groups.values()), longest


def list_lone(columns: Sequence[Mapping[str, Values]], fields: Sequence[str]) -> list[dict[str, Any]]:
    """List the points of lines that stand alone, one a row: a line needs two points to be drawn."""
    rows = []
    for group in columns:
        for field in fields:
            around = [None, *group.get(field, ()), None]
            rows += [
                {"t": t, "field": field, "value": value}
                for t, before, value, after in zip(group["t"], around, around[1:], around[2:], strict=False)
                if value is not None and before is None and after is None
            ]
    return rows


def _thin_times(t_s: Sequence[float], step: int, rows_per_step: int) -> list[float]:
    if step == 1:
        return [round(t, 2) for t in t_s]
    times = []
    for start in range(0, len(t_s), step):
        bucket = t_s[start : start + step]
        width = bucket[-1] - bucket[0]
        times += [round(bucket[0] + width * (row + 0.5) / rows_per_step, 2) for row in range(rows_per_step)]
    return times


def _thin_means(values: Values, step: int) -> list[float | None]:
    means: list[float | None] = []
    for start in range(0, len(values), step):
        seen = [value for value in values[start : start + step] if value is not None]
        means.append(math.fsum(seen) / len(seen) if seen else None)
    return means


def _thin_extremes(values: Values, step: int) -> list[float | None]:
    extremes: list[float | None] = []
    for start in range(0, len(values), step):
        seen = [(value, at) for at, value in enumerate(values[start : start + step]) if value is not None]
        if not seen:
            extremes += [None, None]
            continue
        lowest, highest = min(seen), max(seen)
        in_order = (lowest, highest) if lowest[1] <= highest[1] else (highest, lowest)
        extremes += [value for value, _ in in_order]
    return extremes


def shorten(value: float) -> float:
    """Round a value to the digits that a chart can show."""
    return float(f"{value:.{_DIGITS}g}")

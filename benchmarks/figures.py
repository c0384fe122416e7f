"""How a benchmark says its figures: one JSON object a line, at the end."""

from __future__ import annotations

import json
import operator
import re

_COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def say(
    figure: str,
    value: float,
    *,
    unit: str,
    n: int,
    low: float | None = None,
    high: float | None = None,
    target: str | None = None,
    holds: bool | None = None,
) -> None:
    """Print one figure.

    Args:
        figure: Its dotted name.
        value: What was measured.
        unit: Of value, low and high.
        n: How many observations it rests on.
        low: Of the 95 % interval; None without one.
        high: Likewise.
        target: Such as `<= 0.01`; `holds` follows from it unless it is given.
        holds: Whether the target is met; None without a target.
    """
    if holds is None and target is not None:
        match = re.fullmatch(r"(<=|>=|<|>) (\S+)", target)
        if match is not None:
            holds = _COMPARE[match[1]](value, float(match[2]))
    line = {"figure": figure, "value": value, "low": low, "high": high, "n": n, "unit": unit, "target": target}
    print(json.dumps({**line, "holds": holds}), flush=True)

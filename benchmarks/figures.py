"""How a benchmark says its figures: one JSON object a line, at the end."""

from __future__ import annotations

import json
import math
import operator
import re
import statistics
from collections.abc import Sequence

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


def say_share(figure: str, happened: Sequence[bool], *, target: str | None = None) -> None:
    """Print the share of what happened, with its interval; nothing where nothing was asked."""
    if happened:
        count, n = sum(happened), len(happened)
        low, high = find_wilson(count, n)
        say(figure, count / n, low=low, high=high, unit="ratio", n=n, target=target)


def find_wilson(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, count of n.

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953.
    """
    z = statistics.NormalDist().inv_cdf(0.975)
    share, weight = count / n, z**2 / n
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / n + weight / (4 * n))
    # Rounding may put an end of 0 or 1 a little inside.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))

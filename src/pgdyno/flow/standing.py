"""How a comparison stands, in a line that a person reads while it runs."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pgdyno.analyse.comparison import Comparison
from pgdyno.flow.referee import describe_standing

_LONGEST_NAME = 32


def describe_progress(comparison: Comparison, *, without: Collection[str] = ()) -> str:
    """The arms' verdicts so far.

    Args:
        comparison: Of one workload.
        without: Arms of which nothing more is to be said.
    """
    asked = [q for q in comparison.questions if q.metric == comparison.primary and q.arm not in without]
    shown = tuple(msgspec.structs.replace(question, arm=shorten(question.arm)) for question in asked)
    return describe_standing(msgspec.structs.replace(comparison, questions=shown))


def shorten(name: str, length: int = _LONGEST_NAME) -> str:
    """A name without its middle, where it is long: names made of settings differ at either end."""
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    return f"{name[:head]}…{name[head + 1 - length :]}"

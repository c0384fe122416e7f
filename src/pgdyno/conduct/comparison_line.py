"""Describe the state of a comparison in a line that a person reads while it runs."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.comparison.verdict import Verdict

_LONGEST_NAME = 32
# More than these do not fit into a line.
_MOST_TOLD = 4
# The fewest pairs that decide a question. The spread of fewer says little: two pairs that are alike would promise ±0 %.
_LEAST_PAIRS = 4


def describe_progress(comparison: Comparison, *, without: Collection[str] = ()) -> str:
    """Describe the state of every variant in the deciding metric; of many variants only how many are undecided.

    Args:
        comparison: Of one workload.
        without: Variants that are left out.
    """
    asked = [q for q in comparison.questions if q.metric == comparison.primary and q.variant not in without]
    if len(asked) > _MOST_TOLD:
        undecided = sum(not question.verdict.is_decided for question in asked)
        return f"{undecided} of {len(asked)} variants undecided after {comparison.rounds} rounds"
    names = [comparison.reference, *(question.variant for question in comparison.questions)]
    return "; ".join(
        f"{shorten(each.variant, names)} {each.verdict.kind.value} {_show_interval(each.verdict)}" for each in asked
    )


def describe_loads(open_count: int, loads_count: int) -> str:
    """Describe the state of a sweep over clients: how many of its numbers of clients need more rounds."""
    if not open_count:
        return "no number of clients needs more rounds"
    return f"{open_count} of {loads_count} numbers of clients need more rounds"


def _show_planned(verdict: Verdict) -> str:
    """Describe the smallest effect that the planned pairs would show, as far as the spread tells so far."""
    look = verdict.final_look
    if verdict.is_decided or verdict.n < _LEAST_PAIRS:
        return ""
    if look is msgspec.UNSET or look.is_made or look.detectable_ratio is None:
        return ""
    return f"; {look.n} would show ±{look.detectable_ratio * 100:.0f} %"


def shorten(name: str, among: Collection[str] = ()) -> str:
    """Shorten a long name by its middle: names made of settings differ at either end.

    Folders often differ in the middle only: where two of `among` would look alike, what all have in common at their ends is left out.
    """
    alike = [each for each in among if each != name and _cut(each) == _cut(name)]
    if not alike:
        return _cut(name)
    own, *others = (each.split("/") for each in (name, *alike))
    depth = min(map(len, (own, *others)))
    begin = next((at for at in range(depth) if any(one[at] != own[at] for one in others)), 0)
    end = next((at for at in range(depth) if any(one[-1 - at] != own[-1 - at] for one in others)), 0)
    middle = "/".join(own[begin : max(begin + 1, len(own) - end)])
    return _cut(f"{'…' * bool(begin)}{middle}{'…' * bool(end)}")


def _cut(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    head = (_LONGEST_NAME - 1) // 2
    return f"{name[:head]}…{name[head + 1 - _LONGEST_NAME :]}"


def _show_interval(verdict: Verdict) -> str:
    pairs = f"{verdict.n} {'pair' if verdict.n == 1 else 'pairs'}{_show_planned(verdict)}"
    if verdict.effect_ratio is None or verdict.low_ratio is None or verdict.high_ratio is None:
        return f"({pairs})"
    low, high = verdict.low_ratio * 100, verdict.high_ratio * 100
    return f"{verdict.effect_ratio * 100:+.1f} % [{low:+.1f}, {high:+.1f}] ({pairs})"

"""Sort results of many records into histories, each of one question to one machine, and find the changes in each.

A history goes on as long as a record asks the same as the one before it. Version, settings and kernel may differ: they are what
a change is put beside. Another machine begins a history of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

import msgspec

from pgdyno.analyse.estimate import Estimate, map_estimate
from pgdyno.analyse.history.change_points import LEAST_RESULTS, find_change_points
from pgdyno.analyse.records.comparison import ask_alike, list_differences
from pgdyno.analyse.records.difference import RecordDifference
from pgdyno.analyse.records.sides import Side, look_alike

ALPHA = 0.05
"""Of 100 histories without a change at most 5 are said to have one, by TPS and p99 together."""
METRICS = ("tps", "latency_p99_ms")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one record answered."""

    path: str
    began: datetime
    side: Side

    def find(self, metric: str) -> Estimate | None:
        """Return a metric's estimate over the record's trials; None if it was not observed."""
        if metric == "tps":
            return self.side.workload.tps
        return self.side.workload.latency_ms.get(metric.removeprefix("latency_").removesuffix("_ms"))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a metric between two results of a history."""

    metric: str
    place: int
    """Index of the first result after it."""
    p_value: float
    ratio: Estimate
    """The level after it over the level before it; see `ChangePoint.step`."""
    differences: tuple[RecordDifference, ...]
    """How the record after it differs from the one before it."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of another machine to a history's question, before the first of the history."""

    last: Result
    """That answer."""
    differences: tuple[RecordDifference, ...]
    """How the history's first record differs from its record."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one question to one machine, by time."""

    results: tuple[Result, ...]
    changes: tuple[Change, ...] = ()
    move: Move | None = None
    """None if no machine that is known to be another one was asked the same before."""

    @property
    def latest(self) -> Result:
        """The newest result."""
        return self.results[-1]

    @property
    def is_long_enough(self) -> bool:
        """True if there are enough results to show a change."""
        return len(self.results) >= LEAST_RESULTS


def collect_histories(results: Sequence[Result], *, ending_in: Collection[str] | None = None) -> tuple[History, ...]:
    """Sort results into histories, the longest first, and find the changes in each.

    Args:
        results: In any order.
        ending_in: Paths of records; only histories that end with a result of theirs are returned. None: all are.
    """
    histories: list[list[Result]] = []
    for result in sorted(results, key=lambda one: one.began):
        of = next((one for one in histories if _goes_on(one, result.side)), None)
        if of is None:
            histories.append([result])
        else:
            of.append(result)
    ordered = sorted(histories, key=lambda one: -len(one))
    return tuple(
        History(results=tuple(one), changes=tuple(_find_changes(one)), move=_find_move(one[0], ordered))
        for one in ordered
        if ending_in is None or one[-1].path in ending_in
    )


def _goes_on(history: Sequence[Result], side: Side) -> bool:
    sides = [one.side for one in reversed(history)]
    # An older record does not name its Arm cores, so that it is like one of any: the one before it tells.
    named = next(
        (one for one in sides if one.record.host is not None and one.record.host.cpu_core is not None), sides[0]
    )
    return all(_has_same_machine(one, side) is True for one in (sides[0], named)) and _asks_same(sides[0], side)


def _asks_same(one: Side, other: Side) -> bool:
    names = [None if side.variant is None else side.variant.name for side in (one, other)]
    return one.load_name == other.load_name and names[0] == names[1] and ask_alike(one, other)


def _find_move(first: Result, histories: Sequence[Sequence[Result]]) -> Move | None:
    """Find the last result that another machine gave to the same question before a history's first one."""
    before = [
        last
        for one in histories
        if (last := next((result for result in reversed(one) if result.began < first.began), None)) is not None
        and _has_same_machine(last.side, first.side) is False
        and _asks_same(last.side, first.side)
    ]
    if not before:
        return None
    last = max(before, key=lambda one: one.began)
    return Move(last=last, differences=tuple(_list_unlike(last, first)))


def _list_unlike(first: Result, other: Result) -> Iterator[RecordDifference]:
    """List how two results' records differ; what weakens both alike explains nothing."""
    yield from (one for one in list_differences(first.side, other.side) if one.first != one.other)


def _has_same_machine(one: Side, other: Side) -> bool | None:
    """Return whether two sides are of one machine, by its facts or, where neither record has any, by address; None if nobody knows."""
    first, second = one.record, other.record
    if first.host is not None and second.host is not None:
        return look_alike(first.host, second.host)
    if first.host is not None or second.host is not None or first.given is None or second.given is None:
        return None
    return first.given.address == second.given.address


def _find_changes(results: Sequence[Result]) -> Iterator[Change]:
    for metric in METRICS:
        seen = [(place, one.value) for place, result in enumerate(results) if (one := result.find(metric)) is not None]
        known = [(place, value) for place, value in seen if value is not None and value > 0]
        logs = [math.log(value) for _, value in known]
        for point in find_change_points(logs, alpha=ALPHA / len(METRICS)):
            place = known[point.place][0]
            yield Change(
                metric=metric,
                place=place,
                p_value=point.p_value,
                ratio=map_estimate(point.step, math.exp, unit="ratio"),
                differences=tuple(_list_unlike(results[place - 1], results[place])),
            )

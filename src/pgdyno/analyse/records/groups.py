"""Sort the loads of many records into groups within which they may be compared, and say how far each varied between its trials."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from pgdyno.analyse.records.comparison import list_differences
from pgdyno.analyse.records.difference import DifferenceGravity, RecordDifference
from pgdyno.analyse.records.sides import Side


class GroupedSide(msgspec.Struct, frozen=True, kw_only=True):
    """A load of a record, in a group."""

    place: int
    """Index of the record among those given."""
    side: Side
    declared: tuple[RecordDifference, ...]
    """What must be stated beside a comparison with the first of the group; empty for the first."""

    @property
    def spread_ratio(self) -> float | None:
        """The standard deviation of TPS over trials, by their mean; None below two trials."""
        values = [trial.tps for trial in self.side.trials if trial.tps is not None]
        return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 and any(values) else None


def group_sides(records: Sequence[Sequence[Side]]) -> tuple[tuple[GroupedSide, ...], ...]:
    """Return groups of loads that answer one question, the largest first.

    Each load stands in the first group whose first load it may be compared with.

    Args:
        records: The sides of each record.
    """
    groups: list[list[GroupedSide]] = []
    for place, sides in enumerate(records):
        for side in sides:
            _join(groups, place, side)
    return tuple(tuple(group) for group in sorted(groups, key=len, reverse=True))


def _join(groups: list[list[GroupedSide]], place: int, side: Side) -> None:
    for group in groups:
        first = group[0].side
        if first.load_name != side.load_name or first.limit != side.limit:
            continue
        differences = list_differences(first, side)
        if all(one.standing is not DifferenceGravity.REFUSED for one in differences):
            declared = tuple(one for one in differences if one.standing is DifferenceGravity.DECLARED)
            group.append(GroupedSide(place=place, side=side, declared=declared))
            return
    groups.append([GroupedSide(place=place, side=side, declared=())])

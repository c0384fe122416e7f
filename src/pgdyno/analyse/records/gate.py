"""Decide whether two records may be compared at all, before any figure of one is divided by one of the other.

Every rule looks at both records and yields their differences, in one of three kinds. *Refused*: the figures answer different
questions, so their ratio answers none. *To be declared*: the ratio is meaningful only beside this difference. *Free*: it is what
a DBA compares machines, versions or settings for, or cannot matter. If a rule lacks evidence, it declares that.

There is never a verdict between records. Their trials did not alternate, so every change from one hour or machine to the other
is part of their difference, and no number of trials removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pgdyno.analyse.records import context as around
from pgdyno.analyse.records import questions as asked
from pgdyno.analyse.records.difference import DifferenceGravity, RecordDifference
from pgdyno.analyse.records.sides import Side


def pass_gate(first: Side, other: Side) -> tuple[RecordDifference, ...]:
    """List all differences between two sides, refusals first; without a refusal they may be compared."""
    found = [difference for rule in _RULES for difference in rule(first, other)]
    order = list(DifferenceGravity)
    return tuple(sorted(found, key=lambda one: order.index(one.standing)))


_RULES: tuple[Callable[[Side, Side], Iterator[RecordDifference]], ...] = (
    asked.load,
    asked.data,
    asked.durability,
    asked.state,
    asked.length,
    asked.course,
    around.validity,
    around.trials,
    around.software,
    around.machine,
)

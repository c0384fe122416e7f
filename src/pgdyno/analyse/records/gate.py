"""Whether two records may be compared at all, before any figure of one is divided by one of the other.

Every rule looks at both and yields what differs, in one of three kinds. *Refused*: the figures answer different questions,
so their ratio answers none. *To be declared*: the ratio means something only beside this. *Free*: it is what one compares
machines, versions or settings for, or cannot matter. What a rule lacks evidence of it does not wave through: it declares it.

Nothing is ever decided here between records. Their trials did not alternate, so whatever changed from one hour to the
other, or from one machine to the other, is in their difference, and no number of trials takes it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pgdyno.analyse.records import context as around
from pgdyno.analyse.records import questions as asked
from pgdyno.analyse.records.difference import DifferenceGravity, RecordDifference
from pgdyno.analyse.records.sides import Side


def pass_gate(first: Side, other: Side) -> tuple[RecordDifference, ...]:
    """All in which two sides differ, refusals first; without a refusal they may be compared."""
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

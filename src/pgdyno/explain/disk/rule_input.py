"""Define the input of the rules about a disk card."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.disk.card import DiskFigures
from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.explain.finding import Finding
from pgdyno.record.device.disk_card import DiskCard


class DiskRuleInput(msgspec.Struct, frozen=True, kw_only=True):
    """A disk card with everything that is known about it."""

    card: DiskCard
    figures: DiskFigures
    entries: tuple[DiskFigure, ...]
    efficiencies: tuple[Efficiency, ...] = ()
    beside: tuple[DiskCard, ...] = ()
    """Cards of the other paths that were measured at the same time."""

    def find(self, key: DiskFigureKey) -> float | None:
        """Return the figure of a name; None if it was not measured."""
        return next((one.estimate.value for one in self.entries if one.key is key), None)


Rule = Callable[[DiskRuleInput], Iterator[Finding]]

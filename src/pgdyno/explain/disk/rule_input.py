"""What the rules about a disk card look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.disk.card import DiskFigures
from pgdyno.analyse.disk.efficiency import Efficiency
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.explain.finding import Finding
from pgdyno.record.device.disk_card import DiskCard


class DiskRuleInput(msgspec.Struct, frozen=True, kw_only=True):
    """A card with all that is known of it."""

    card: DiskCard
    figures: DiskFigures
    entries: tuple[DiskFigure, ...]
    efficiencies: tuple[Efficiency, ...] = ()
    beside: tuple[DiskCard, ...] = ()
    """Of the other paths that were measured at the same time."""

    def find(self, key: DiskFigureKey) -> float | None:
        """The figure of that name; None where it was not measured."""
        return next((one.estimate.value for one in self.entries if one.key is key), None)


Rule = Callable[[DiskRuleInput], Iterator[Finding]]

"""What the rules about a disk card look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from pgdyno.analyse.disk_card import DiskFigures
from pgdyno.analyse.disk_efficiency import Efficiency
from pgdyno.analyse.disk_entries import Entry, EntryKey
from pgdyno.explain.finding import Finding
from pgdyno.record.disk_card import DiskCard


class DiskScene(msgspec.Struct, frozen=True, kw_only=True):
    """A card with all that is known of it."""

    card: DiskCard
    figures: DiskFigures
    entries: tuple[Entry, ...]
    efficiencies: tuple[Efficiency, ...] = ()
    beside: tuple[DiskCard, ...] = ()
    """Of the other paths that were measured at the same time."""

    def find(self, key: EntryKey) -> float | None:
        """The figure of that name; None where it was not measured."""
        return next((one.estimate.value for one in self.entries if one.key is key), None)


Rule = Callable[[DiskScene], Iterator[Finding]]

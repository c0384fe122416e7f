"""A disk with what its card has measured: measured figures stand before declared ones, and those before its class's.

The card decides nothing else: of what kind a disk is, what it is made of and how much is free are seen at the moment.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.entries import DiskFigureKey, list_entries
from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.tune.disk.classes import TITLES
from pgdyno.tune.types import Disk, Known

_ENTRIES = {
    DiskFigureKey.FLUSHES: "flush_s",
    DiskFigureKey.RANDOM_READ: "random_read_iops",
    DiskFigureKey.RANDOM_WRITE: "random_write_iops",
    DiskFigureKey.SEQUENTIAL_READ: "read_bytes_per_s",
    DiskFigureKey.SEQUENTIAL_WRITE: "write_bytes_per_s",
}


def with_card(disk: Disk, card: DiskCard, *, file: str) -> Disk:
    """A disk with the figures of its card in place of what was taken for them.

    Args:
        disk: As it was seen or declared.
        card: What was measured of it; what it has not measured stays.
        file: Where the card lies.
    """
    figures = estimate_card(card)
    faded = ", which fell meanwhile: less may last" if figures.fades else ""
    source = _name(card, file)
    measured = {}
    for entry in list_entries(card, figures):
        name = _ENTRIES.get(entry.key)
        value = entry.estimate.value
        if name is not None and value:
            title, unit = TITLES[name]
            how = f"{source}, {entry.how}{faded}"
            measured[name] = Known.measured(title, 1 / value if name == "flush_s" else value, unit, how)
    reads = figures.find(Pattern.RANDOM_READ)
    mean_us = None if reads is None or reads.read is None else reads.read.mean_us.value
    if mean_us:
        how = f"{source}, mean of one at a time{faded}"
        measured["read_s"] = Known.measured("random read latency", mean_us * 1e-6, "s", how)
    return msgspec.structs.replace(disk, card=source, **measured) if measured else disk


def clock_of(card: DiskCard, *, file: str) -> Known | None:
    """What reading the clock of the card's machine costs; None where pg_test_timing was not run."""
    if card.clock is None:
        return None
    return Known.measured("reading the clock", card.clock.read_ns * 1e-9, "s", f"pg_test_timing, {_name(card, file)}")


def _name(card: DiskCard, file: str) -> str:
    return f"disk card of {card.made_at:%Y-%m-%d}, {file}"

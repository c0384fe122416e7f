"""Apply the measured figures of a disk card to a disk; they take precedence over declared and assumed ones.

The card provides only figures: the kind of a disk, its devices and its free space are observed at the time of tuning.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.disk.card import estimate_card
from pgdyno.analyse.disk.entries import DiskFigureKey, list_entries
from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import DiskCard
from pgdyno.tune.disk.classes import TITLES, raise_bandwidths
from pgdyno.tune.types import Disk, Known

_ENTRIES = {
    DiskFigureKey.FLUSHES: "flush_s",
    DiskFigureKey.RANDOM_READ: "random_read_iops",
    DiskFigureKey.RANDOM_WRITE: "random_write_iops",
    DiskFigureKey.SEQUENTIAL_READ: "read_bytes_per_s",
    DiskFigureKey.SEQUENTIAL_WRITE: "write_bytes_per_s",
}


def with_card(disk: Disk, card: DiskCard, *, file: str) -> Disk:
    """Return a disk with the figures of its card.

    Args:
        disk: The disk as observed or declared.
        card: Its card; figures that the card lacks stay unchanged.
        file: Path of the card.
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
    return raise_bandwidths(msgspec.structs.replace(disk, card=source, **measured)) if measured else disk


def clock_of(card: DiskCard, *, file: str) -> Known | None:
    """Return the time of one clock reading on the card's machine; None if pg_test_timing was not run."""
    if card.clock is None:
        return None
    return Known.measured("reading the clock", card.clock.read_ns * 1e-9, "s", f"pg_test_timing, {_name(card, file)}")


def _name(card: DiskCard, file: str) -> str:
    return f"disk card of {card.made_at:%Y-%m-%d}, {file}"

"""Find the space that data leave to WAL, once all of them have come to lie on their disk."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.tune.checkpoints import wal_disk
from pgdyno.tune.types import Origin, TuningSubject
from pgdyno.units import format_bytes


def data_to_come_bytes(subject: TuningSubject) -> float:
    """Return how much of the data is not on the disk yet; 0 if their size is only assumed, since they may be there already."""
    if subject.to_come_bytes is not None:
        return subject.to_come_bytes
    if subject.dataset.origin is Origin.ASSUMED:
        return 0.0
    return max(0.0, subject.dataset.value - subject.held_bytes)


def fits_data(subject: TuningSubject) -> bool:
    """Return whether the disk has room for the data that are still to come."""
    return data_to_come_bytes(subject) <= subject.disk.free_bytes.value


def wal_room_bytes(subject: TuningSubject) -> float:
    """Return the space on the disk of the WAL that the data leave: none if they do not fit there."""
    free = wal_disk(subject).free_bytes.value
    return max(0.0, free - data_to_come_bytes(subject)) if subject.wal_disk is None else free


def describe_shortage(subject: TuningSubject) -> Iterator[str]:
    """Say that the data do not fit on their disk; nothing if they do."""
    if fits_data(subject):
        return
    free = subject.disk.free_bytes
    more = " more" if subject.held_bytes else ""
    advice = "give it more space, or take another" if subject.is_here else "declare a larger one in a host file"
    yield (
        f"{format_bytes(data_to_come_bytes(subject))}{more} of data do not fit on the disk, which has"
        f" {format_bytes(free.value)} ({free.how}): {advice}."
    )

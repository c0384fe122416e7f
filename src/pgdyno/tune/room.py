"""Find the space that data leave to WAL, once all of them have come to lie on their disk."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.wal_room import find_wal_room
from pgdyno.tune.checkpoints import wal_disk
from pgdyno.tune.draft import GB, Draft
from pgdyno.tune.types import Origin, TuningSubject
from pgdyno.units import format_bytes

STOCK_MAX_WAL_BYTES = 1 * GB
"""Built-in max_wal_size."""
_KEPT = "wal_keep_size"


def data_to_come_bytes(subject: TuningSubject) -> float:
    """Return how much of the data is not on the disk yet; 0 if their size is only assumed, since they may be there already."""
    # A bench knows what it brings, and has refused data that do not fit.
    if subject.dataset.origin is Origin.ASSUMED or subject.to_come_bytes is not None:
        return 0.0
    return max(0.0, subject.dataset.value - subject.held_bytes)


def beside_wal_bytes(subject: TuningSubject) -> float:
    """Return what is still to come to the disk of pg_wal beside the WAL: the data, if they share the disk."""
    if subject.to_come_bytes is not None:
        return subject.to_come_bytes
    return data_to_come_bytes(subject) if subject.wal_disk is None else 0.0


def wal_room_bytes(subject: TuningSubject) -> float:
    """Return the space on the disk of the WAL that all else leaves: none if that does not fit there."""
    return max(0.0, wal_disk(subject).free_bytes.value - beside_wal_bytes(subject))


def left_bytes(draft: Draft) -> float:
    """Return the space on the disk of the WAL that wal_keep_size and all else leave to max_wal_size."""
    return max(0.0, wal_room_bytes(draft.subject) - draft.number(_KEPT))


def share_of_left_bytes(draft: Draft) -> float:
    """Return how much of what is left max_wal_size may have."""
    return find_wal_room(left_bytes(draft), is_shared=draft.subject.wal_disk is None)


def checkpoints_room_bytes(draft: Draft) -> float:
    """Return the most that max_wal_size may be on its disk: a share of what is left.

    If data that are still to come leave too little, the disk or their size is wrong, which frequent checkpoints do not mend. The most
    is then the built-in value, or the same share of the space without these data if that is less. Space that is short without
    them is another matter: a larger max_wal_size would fill it.
    """
    subject = draft.subject
    free = max(0.0, wal_disk(subject).free_bytes.value - draft.number(_KEPT))
    least = min(STOCK_MAX_WAL_BYTES, find_wal_room(free, is_shared=subject.wal_disk is None))
    return max(least, share_of_left_bytes(draft))


def list_takers(draft: Draft) -> Iterator[str]:
    """Yield, each in a clause, what takes space on the disk of the WAL beside max_wal_size."""
    subject, kept = draft.subject, draft.number(_KEPT)
    come = format_bytes(beside_wal_bytes(subject))
    if subject.to_come_bytes is not None:
        yield f"loaded data, their copies and other servers' WAL take {come}"
    elif beside_wal_bytes(subject):
        yield f"{come}{' more' if subject.held_bytes else ''} of data are still to come"
    if kept:
        yield f"{_KEPT} takes {format_bytes(kept)}"


def describe_shortage(draft: Draft, max_wal_bytes: float) -> Iterator[str]:
    """Say that the disk is too small for data and WAL, by how much and what to do; nothing if it is not.

    Args:
        draft: Subject and settings so far.
        max_wal_bytes: The max_wal_size that the disk should have room for.
    """
    subject, free = draft.subject, wal_disk(draft.subject).free_bytes
    is_shared = subject.wal_disk is None
    # What WAL needs by itself: the growth of data is not counted.
    wanted = max_wal_bytes / find_wal_room(1.0, is_shared=False)
    short = beside_wal_bytes(subject) + draft.number(_KEPT) + wanted - free.value
    if short <= 0:
        return
    built_in = "the built-in " if max_wal_bytes == STOCK_MAX_WAL_BYTES else ""
    needs = (
        f"{built_in}max_wal_size of {format_bytes(max_wal_bytes)} needs {format_bytes(wanted)}, as it is no hard limit"
    )
    takes = ", ".join([*list_takers(draft), needs])
    end = f": free some space, or use another disk with {'--home' if is_shared else '--wal-home'}."
    if subject.to_come_bytes is None:
        own = ", or add a disk for pg_wal" if is_shared and beside_wal_bytes(subject) <= free.value else ""
        end = (
            ". No max_wal_size is right here: a larger one fills the disk sooner, which stops the server, and a smaller one only brings"
            f" more checkpoints; {'give it' if subject.is_here else 'declare'} {format_bytes(short)} more{own}."
        )
    yield (
        f"the disk {'is too small for data and WAL' if is_shared else 'of pg_wal is too small'}, {format_bytes(short)} short:"
        f" {takes}, and {format_bytes(free.value)} are free ({free.how}){end}"
    )


def describe_unfit_data(subject: TuningSubject) -> Iterator[str]:
    """Say that the data do not fit on a disk that they do not share with WAL; nothing if they do."""
    free, come = subject.disk.free_bytes, data_to_come_bytes(subject)
    if subject.wal_disk is None or come <= free.value:
        return
    more = " more" if subject.held_bytes else ""
    advice = "give it more space, or take another" if subject.is_here else "declare a larger one in a host file"
    yield f"{format_bytes(come)}{more} of data do not fit on the disk, which has {format_bytes(free.value)} ({free.how}): {advice}."

"""Find the disk cards that settings are derived with: those that the user names, else the newest that the home keeps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from pgdyno.conduct.cards.measure import describe_machine
from pgdyno.errors import SpecError
from pgdyno.record.device.disk_card import MAX_AGE, CardMachine, DiskCard, find_kept_card, read_card
from pgdyno.record.machine.tunables import StorageStack, Tunables
from pgdyno.run.cluster.home import homes_to_read
from pgdyno.run.device.scratch import ignores_direct
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.tree import Tree
from pgdyno.tune.disk.card import clock_of, with_card
from pgdyno.tune.types import TuningSubject

_Found = tuple[DiskCard, Path]


class DiskCards(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of the data's disk and of the WAL's, each with its file; None where there is none."""

    data: _Found | None = None
    wal: _Found | None = None


def read_cards(files: Sequence[Path]) -> DiskCards:
    """Read the cards that a user names, of the data's disk first.

    Raises:
        SpecError: More than two, or one of them is no card that was measured.
    """
    if len(files) > 2:
        raise SpecError(
            f"{len(files)} disk cards are named", hint="name one for the data's disk, and one for the WAL's"
        )
    cards = [(read_card(file), file) for file in files]
    for card, file in cards:
        if not card.runs and not card.flush_tests:
            raise SpecError(f"the disk card {file} has measured nothing", hint="measure: `pgdyno disk PATH`")
    return DiskCards(data=cards[0] if cards else None, wal=cards[1] if len(cards) > 1 else None)


def find_cards(home: Path, machine: Tunables) -> DiskCards:
    """Find the newest cards that a home keeps of a server's disks; root's home counts, too, where the user named none."""
    now, homes = local_now(), homes_to_read(home)
    here, wal = describe_machine(machine.host), machine.wal_disk
    return DiskCards(
        data=find_card_here(homes, machine.disk, here, now=now),
        wal=None if wal is None else find_card_here(homes, wal, here, now=now),
    )


def find_card_here(
    homes: Iterable[Path],
    look: StorageStack,
    machine: CardMachine,
    *,
    now: dt.datetime,
    max_age: dt.timedelta = MAX_AGE,
) -> _Found | None:
    """Find the best card that homes keep for a file system of this machine, as `find_kept_card` does."""
    is_ignored = ignores_direct(look.facts.filesystem, Tree())
    return find_kept_card(homes, look, machine, now=now, max_age=max_age, is_direct_ignored=is_ignored)


def with_cards(subject: TuningSubject, cards: DiskCards, *, is_here: bool) -> TuningSubject:
    """Add what its disks' cards have measured to a subject.

    Args:
        subject: As it was observed or declared.
        cards: Of its disks.
        is_here: Whether it is the machine whose clock was measured with them.

    Raises:
        SpecError: A card is of a disk for WAL, which lies with the data.
    """
    if cards.data is not None:
        card, file = cards.data
        subject = msgspec.structs.replace(subject, disk=with_card(subject.disk, card, file=str(file)))
        clock = clock_of(card, file=str(file)) if is_here else None
        if clock is not None:
            subject = msgspec.structs.replace(subject, clock_read_s=clock)
    if cards.wal is not None:
        if subject.wal_disk is None:
            raise SpecError("the second disk card is for a disk of the WAL's own", hint="the WAL lies with the data")
        card, file = cards.wal
        subject = msgspec.structs.replace(subject, wal_disk=with_card(subject.wal_disk, card, file=str(file)))
    return subject

"""The card of the disk that a study's data lie on: the home's of the last 24 hours, else a quick one measured now.

A whole card of today is better than a quick one; without fio, one of flushes alone is as much as could be measured again.

A study never fails for want of a card: what it needs the card for is then left out of its report, with the reason.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pgdyno.conduct.cards.known import find_card_here
from pgdyno.conduct.cards.measure import DiskJobs, describe_machine, take_card
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, PgdynoError
from pgdyno.plan.disk import FLUSH_TESTS, make_disk_plan
from pgdyno.plan.variants import list_places
from pgdyno.record.device.disk_card import (
    CardScope,
    ClockTest,
    DiskCard,
    add_declared_disk,
    keep_card,
    write_card,
)
from pgdyno.record.store import RecordStore
from pgdyno.record.types import StudyRecord
from pgdyno.run.cluster.home import Home, find_existing_folder
from pgdyno.run.device.disk_bench import DiskTools
from pgdyno.run.device.fio import find_fio
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.tunables import find_room_bytes, read_tunables
from pgdyno.run.postgres.installation import Installation
from pgdyno.spec.host import HostSpec
from pgdyno.spec.study import Study

# What others do to a cloud's disk, and its tokens, change from day to day.
_FRESH = dt.timedelta(days=1)
# Of each of pg_test_fsync's tests, where there is no fio to tell what a flush takes.
_FLUSH_TEST_S = 1.0


class StudyCard(msgspec.Struct, frozen=True, kw_only=True):
    """The card of a study's disk, or how it is going to be measured."""

    kept: DiskCard | None
    """A fresh card that the home keeps, or that was measured now; None before it is measured and where that failed."""
    jobs: DiskJobs
    tools: DiskTools
    missing: str
    """Why a part of it cannot be measured; empty where all can."""
    wal: StudyCard | None = None
    """The card of pg_wal's own disk; None if it lies with the data."""
    others: tuple[StudyCard, ...] = ()
    """The cards of further disks, where variants have places of their own."""
    is_done: bool = False
    """True if nothing is left to be measured or said of the disk."""

    @property
    def expected_s(self) -> float:
        """Return the seconds that measuring it, and that of pg_wal's own disk, takes."""
        own_s = 0.0 if self.is_done or self.kept is not None else self.jobs.expected_s
        return own_s + sum(card.expected_s for card in self.further)

    @property
    def further(self) -> tuple[StudyCard, ...]:
        """The cards of all other disks."""
        return (*(() if self.wal is None else (self.wal,)), *self.others)

    @property
    def device(self) -> str:
        """The device of the disk, by its name in the mount table."""
        return self.jobs.machine.disk.facts.device


def plan_study_card(home: Home, installation: Installation, *, clock: ClockTest | None = None) -> StudyCard:
    """Look for a card of the home's disk and of that of pg_wal, if it is another one, and plan those that are not there.

    Args:
        home: The home.
        installation: The server whose programs measure flushes and the clock.
        clock: The test of the clock, if it was run before.
    """
    homes = (home, *home.places.values())
    folders = [(there.root, None if there.wal is None else there.wal.parent) for there in homes]
    return _plan_cards(folders, home.root, installation.bindir, clock)


def predict_study_cards_s(study: Study, home: Path, bindir: Path) -> float:
    """Predict the seconds that `plan_study_card` takes once a study runs, from what is there before its home is.

    Args:
        study: What is going to run on pgdyno's own server.
        home: The home of variants that name none.
        bindir: The programs of its server.
    """
    if study.host is not None and study.is_emulated:
        # Emulated disks are made anew, without a card.
        card = _plan_card(find_existing_folder(home), home, bindir, None)
        return card.jobs.expected_s * (1 if study.host.wal_disk is None else 2)
    folders = [
        (
            find_existing_folder(home if place.home is None else Path(place.home)),
            None if place.wal_home is None else Path(place.wal_home),
        )
        for place in list_places(study)
    ]
    return _plan_cards(folders, home, bindir, None).expected_s


def _plan_cards(
    folders: Sequence[tuple[Path, Path | None]], home: Path, bindir: Path, clock: ClockTest | None
) -> StudyCard:
    """Plan the cards of folders of data, each with its own folder of pg_wal or None; the reference's come first."""
    root, wal_dir = folders[0]
    card = _plan_card(root, home, bindir, clock)
    if wal_dir is not None and read_tunables(root, wal_dir).wal_disk is not None:
        card = msgspec.structs.replace(card, wal=_plan_card(wal_dir, home, bindir, clock))
    planned = {one.device: one for one in (card, *card.further)}
    for folder in filter(None, itertools.chain(*folders[1:])):
        if (device := read_disk_facts(folder).device) not in planned:
            planned[device] = _plan_card(folder, home, bindir, clock)
    return msgspec.structs.replace(card, others=tuple(planned.values())[1 + len(card.further) :])


def _plan_card(folder: Path, home: Path, bindir: Path, clock: ClockTest | None) -> StudyCard:
    machine = read_tunables(folder)
    fio, missing = None, ""
    try:
        fio = find_fio()
    except HostError as error:
        missing = f"{error.fact}; {error.hint}"
    plan = make_disk_plan(
        is_quick=True,
        free_bytes=find_room_bytes(machine),
        seed=int(local_now().timestamp()),
        wants_fio=fio is not None,
        cpu_count=int(machine.host.usable_cpu_count),
    )
    if fio is None:
        seconds = plan.expected_s + FLUSH_TESTS * _FLUSH_TEST_S
        plan = msgspec.structs.replace(plan, flush_test_s=_FLUSH_TEST_S, expected_s=seconds)
    here = describe_machine(machine.host)
    kept = find_card_here([home], machine.disk, here, now=local_now(), max_age=_FRESH)
    # A card of flushes alone is measured again once fio is installed.
    is_enough = kept is not None and (fio is None or kept[0].scope > CardScope.FLUSHES)
    return StudyCard(
        kept=kept[0] if kept is not None and is_enough else None,
        jobs=DiskJobs(path=folder, machine=machine, plan=plan, clock=clock),
        tools=DiskTools(fio=fio, bindir=bindir),
        missing=missing,
    )


def study_card_step(wanted: StudyCard | None, *, host: HostSpec | None, store: RecordStore, home: Home, ui: Ui) -> None:
    """Put the card into the record, with what the study declares of the disk; do nothing where it wants none."""
    if wanted is None:
        return
    measured = wanted if wanted.is_done else measure_study_card(wanted, home=home, ui=ui)
    for place, (one, path) in enumerate(zip((measured, measured.wal), store.card_paths(0), strict=True)):
        if one is not None and one.kept is not None:
            write_card(add_declared_disk(one.kept, host, place, data=measured.jobs.machine.disk), path)
    if home.places:
        known = {one.device: one.kept for one in (measured, *measured.further) if one.kept is not None}
        for device, path in _list_further_cards(store, store.read_record()):
            if device in known:
                write_card(known[device], path)


def has_all_cards(store: RecordStore, record: StudyRecord) -> bool:
    """Return whether a record has a card of each disk that its clusters lie on."""
    paths = [store.card_path, *([] if record.wal_disk is None else [store.card_paths(0)[1]])]
    return all(path.exists() for path in (*paths, *(path for _, path in _list_further_cards(store, record))))


def _list_further_cards(store: RecordStore, record: StudyRecord) -> Iterator[tuple[str, Path]]:
    """Yield the disks of the places after the first, each with the file of its card."""
    for number, place in list(enumerate(record.places))[1:]:
        data_path, wal_path = store.card_paths(number)
        yield place.data_disk.device, data_path
        if place.wal.device != place.data_disk.device:
            yield place.wal.device, wal_path


def measure_study_card(disk: StudyCard, *, home: Home, ui: Ui) -> StudyCard:
    """Take the card that the home keeps, or measure one now and keep it in the home; say so where that fails.

    The same goes for the cards of pg_wal's own disk, and of those where variants have places of their own.
    """
    done = _measure(disk, home=home, ui=ui, name="disk")
    wal = None if disk.wal is None else _measure(disk.wal, home=home, ui=ui, name="WAL disk")
    others = tuple(_measure(other, home=home, ui=ui, name=f"disk of {other.jobs.path}") for other in disk.others)
    return msgspec.structs.replace(done, wal=wal, others=others)


def _measure(disk: StudyCard, *, home: Home, ui: Ui, name: str) -> StudyCard:
    done = msgspec.structs.replace(disk, is_done=True)
    if disk.kept is not None:
        only = f", of flushes alone ({disk.missing})" if disk.kept.scope is CardScope.FLUSHES else ""
        when = f"{disk.kept.made_at:%Y-%m-%d %H:%M}{only}"
        ui.say(f"the {name} card of {when} is used; `pgdyno disk` measures a new one")
        return done
    if disk.missing:
        ui.say(f"{disk.missing}: of this {name} only its flushes are measured")
    try:
        card = take_card(disk.jobs, disk.tools, ui=ui, now=local_now())
        if card.runs or card.flush_tests:
            keep_card(card, home.root)
    except PgdynoError as error:
        ui.say(f"what this {name} can do is not measured: {error.reason}")
        return done
    return msgspec.structs.replace(done, kept=card)

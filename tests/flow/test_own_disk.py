"""How a study gets the card of its disk: from the home, by measuring, or not at all."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.analyse.disk.efficiency import ceilings_of
from pgdyno.conduct.cards.limits import read_limits
from pgdyno.conduct.cards.study import has_all_cards, plan_study_card, study_card_step
from pgdyno.explain.disk.doubts import list_disk_doubts
from pgdyno.explain.finding import Finding, Severity
from pgdyno.flow.disk_view import view_further_cards
from pgdyno.plan.places import Place
from pgdyno.record.device.disk_card import CardScope, keep_card, read_card, write_card
from pgdyno.record.store import RecordStore
from pgdyno.record.types import PlaceFacts
from pgdyno.report.lists import join_names
from pgdyno.report.sections.disk.uses import card_tables
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.facts import read_disk_facts
from pgdyno.run.host.tunables import find_room_bytes, read_tunables
from pgdyno.spec.host import HostSpec
from tests.disk_cards import JOBS, make_card, make_runs, seen_here
from tests.homes import installation_of, some_home
from tests.loops import mounted_loop
from tests.records import copy_record
from tests.report.build_comparison import build_paired
from tests.shared import reachable_folder


class Listening:
    """A `flow.ui.Ui` that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: None


@pytest.fixture
def home() -> Iterator[Home]:
    with some_home() as made:
        yield made


def keep(home: Home, *, age: dt.timedelta) -> None:
    now = local_now().astimezone(dt.UTC)
    keep_card(make_card(**seen_here(home.root), made_at=now - age), home.root)


def test_a_card_of_today_costs_nothing(home: Home, tmp_path: Path) -> None:
    keep(home, age=dt.timedelta(hours=3))
    disk = plan_study_card(home, installation_of(18, home))
    assert disk.expected_s == 0.0
    store, ui = RecordStore(tmp_path), Listening()
    study_card_step(disk, host=None, store=store, home=home, ui=ui)
    assert read_card(store.card_path) == disk.kept
    assert "the disk card of " in ui.said[0]


def test_what_a_study_declares_is_in_the_records_card(home: Home, tmp_path: Path) -> None:
    keep(home, age=dt.timedelta(hours=3))
    store, host = RecordStore(tmp_path), HostSpec(instance="c7g.2xlarge")
    study_card_step(plan_study_card(home, installation_of(18, home)), host=host, store=store, home=home, ui=Listening())
    card = read_card(store.card_path)
    assert (card.host, card.instance) == (host, "c7g.2xlarge")
    ceilings = ceilings_of(card)
    assert ceilings is not None
    assert ceilings.random_read_iops is not None
    assert ceilings.random_read_iops.value == 12_000


def test_each_place_of_a_comparison_gets_the_card_of_its_disk(home: Home, tmp_path: Path) -> None:
    with (
        reachable_folder() as folder,
        mounted_loop(folder, "xfs", 400 << 20) if os.geteuid() == 0 else contextlib.nullcontext() as loop,
        open_home((folder if loop is None else loop.folder) / "other", home.user) as other,
    ):
        homes = {Place(): home, Place(str(other.root)): other}
        home.places = homes
        now = local_now().astimezone(dt.UTC)
        for one in [home] if loop is None else homes.values():
            keep_card(
                make_card(name=str(one.root), path=str(one.root), **seen_here(one.root), made_at=now),
                home.root,
            )
        disk = plan_study_card(home, installation_of(18, home))
        assert len(disk.others) == (0 if loop is None else 1), "one card for each disk"
        assert disk.expected_s == 0.0
        store = RecordStore(copy_record(tmp_path / "record"))
        facts = [read_disk_facts(one.root) for one in homes.values()]
        places = tuple(PlaceFacts(place=at, data_disk=on, wal=on) for at, on in zip(homes, facts, strict=True))
        record = msgspec.structs.replace(store.read_record(), places=places, wants_card=True)
        store.write_record(record)
        assert not has_all_cards(store, record)
        study_card_step(disk, host=None, store=store, home=home, ui=Listening())
        assert has_all_cards(store, record)
        assert [read_card(store.card_paths(n)[0]).name for n in (0, 1)] == [
            str(home.root),
            str(home.root if loop is None else other.root),
        ]
        assert None not in read_limits(store)


def test_a_card_of_yesterday_is_made_anew(home: Home) -> None:
    keep(home, age=dt.timedelta(hours=25))
    disk = plan_study_card(home, installation_of(18, home))
    assert disk.kept is None
    assert 0 < disk.expected_s <= 40


def test_without_fio_flushes_and_clock_are_left(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = installation_of(18, home)
    monkeypatch.setenv("PATH", str(tmp_path))
    disk = plan_study_card(home, installation)
    assert (disk.tools.fio, disk.jobs.plan.rounds) == (None, ())
    assert (disk.jobs.plan.flush_test_s, disk.jobs.plan.clock_test_s) == (1.0, 1.0)
    # The longer half of it is another test's: here, only what is said and kept.
    plan = msgspec.structs.replace(disk.jobs.plan, flush_test_s=0.0)
    disk = msgspec.structs.replace(disk, jobs=msgspec.structs.replace(disk.jobs, plan=plan))
    store, ui = RecordStore(tmp_path), Listening()
    study_card_step(disk, host=None, store=store, home=home, ui=ui)
    assert "fio is missing" in ui.said[0]
    assert "apt-get install fio" in ui.said[0]
    card = read_card(store.card_path)
    assert (card.runs, card.clock is not None) == ((), True)
    # A clock alone is nothing to be kept for others.
    assert plan_study_card(home, installation).kept is None


def test_without_fio_flushes_are_measured_once_a_day(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_at = local_now().astimezone(dt.UTC) - dt.timedelta(hours=3)
    keep_card(make_card(**seen_here(home.root), made_at=made_at, runs=()), home.root)
    installation = installation_of(18, home)
    assert plan_study_card(home, installation).kept is None, "with fio there is more to be had"
    monkeypatch.setenv("PATH", str(tmp_path))
    disk = plan_study_card(home, installation)
    assert disk.kept
    assert disk.expected_s == 0.0
    store, ui = RecordStore(tmp_path), Listening()
    study_card_step(disk, host=None, store=store, home=home, ui=ui)
    assert read_card(store.card_path) == disk.kept
    assert "of flushes alone (fio is missing" in ui.said[0]


def test_a_whole_card_of_today_is_better_than_a_quick_one(home: Home) -> None:
    keep(home, age=dt.timedelta(hours=3))
    made_at = local_now().astimezone(dt.UTC) - dt.timedelta(hours=1)
    quick = make_card(
        **seen_here(home.root), made_at=made_at, runs=make_runs(jobs=[one for one in JOBS if one.depth == 1])
    )
    keep_card(quick, home.root)
    disk = plan_study_card(home, installation_of(18, home))
    assert disk.kept
    assert disk.kept.scope is CardScope.WHOLE


def test_room_in_memory_is_what_memory_has_left(home: Home) -> None:
    machine = read_tunables(home.root)
    facts = msgspec.structs.replace(machine.disk.facts, filesystem="tmpfs", free_bytes=2**50)
    roomy = msgspec.structs.replace(machine, disk=msgspec.structs.replace(machine.disk, facts=facts))
    assert find_room_bytes(roomy) == min(machine.memory.available_bytes or 0, machine.host.usable_memory_bytes)
    small = msgspec.structs.replace(facts, free_bytes=2**20)
    tight = msgspec.structs.replace(machine, disk=msgspec.structs.replace(machine.disk, facts=small))
    assert find_room_bytes(tight) == 2**20
    assert find_room_bytes(machine) == machine.disk.facts.free_bytes


def test_a_disk_that_cannot_be_measured_ends_no_study(home: Home, tmp_path: Path) -> None:
    disk = plan_study_card(home, installation_of(18, home))
    gone = msgspec.structs.replace(disk.jobs, path=tmp_path / "gone")
    store, ui = RecordStore(tmp_path), Listening()
    study_card_step(msgspec.structs.replace(disk, jobs=gone), host=None, store=store, home=home, ui=ui)
    assert not store.card_path.exists()
    assert "what this disk can do is not measured" in ui.said[-1]


def test_a_report_has_the_card_of_each_disk_and_names_its_variants(tmp_path: Path) -> None:
    report = build_paired()
    experiment, host = report.record.plan.experiment, report.record.host
    assert experiment is not None
    assert host is not None
    first, *others = experiment.variants
    fast = Place("/mnt/fast", "/mnt/wal")
    apart = tuple(msgspec.structs.replace(one, home=fast.home, wal_home=fast.wal_home) for one in others)
    disks = [msgspec.structs.replace(host.data_disk, device=f"/dev/vd{letter}1") for letter in "abc"]
    record = msgspec.structs.replace(
        report.record,
        plan=msgspec.structs.replace(
            report.record.plan, experiment=msgspec.structs.replace(experiment, variants=(first, *apart))
        ),
        places=(
            PlaceFacts(place=Place(), data_disk=disks[0], wal=disks[0]),
            PlaceFacts(place=fast, data_disk=disks[1], wal=disks[2]),
        ),
    )
    store = RecordStore(tmp_path)
    assert list(view_further_cards(store, record)) == [], "none was measured"
    for path, name in zip(store.card_paths(1), ("/mnt/fast", "/mnt/wal"), strict=True):
        write_card(make_card(name=name, path=name, runs=make_runs()), path)
    further = tuple(view_further_cards(store, record))
    tables = list(card_tables(msgspec.structs.replace(report, record=record, disk=None, further=further)))
    names = join_names([one.name for one in apart])
    assert [(one.caption, one.remark.split(":")[0]) for one in tables] == [
        (f"Data disk of {names}", "/mnt/fast"),
        (f"WAL disk of {names}", "/mnt/wal"),
    ]
    (doubt,) = list_disk_doubts(
        [Finding(severity=Severity.WARNING, claim="It fades.", evidence="")], of=further[0].variants
    )
    assert doubt.claim.startswith(f"Disk card of {', '.join(further[0].variants)}: it fades")

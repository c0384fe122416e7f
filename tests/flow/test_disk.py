"""Which folders, cards and declarations `pgdyno disk` and `tune` take, and which cards settings are derived with."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.comparison.disk_cards import compare_entries
from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.conduct.cards.known import DiskCards, find_cards, read_cards, with_cards
from pgdyno.errors import SpecError
from pgdyno.flow.disk import check_paths
from pgdyno.flow.disk_view import compare_cards, read_declared, show_cards, view_card
from pgdyno.record.device.disk_card import FORMAT, ClockTest, DiskCard, add_declared_disk, keep_card, write_card
from pgdyno.record.machine.tunables import StorageStack
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.tunables import read_tunables
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.tune.types import Origin
from tests.disk_cards import make_card, make_look, seen_here
from tests.report.build_tuning import build_subject

CLOCK = ClockTest(read_ns=30.0, counts={}, unit="us")


@pytest.fixture
def card(tmp_path: Path) -> Path:
    path = tmp_path / "card.json"
    write_card(make_card(), path)
    return path


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    assert check_paths([tmp_path]) == [tmp_path.resolve()]
    for paths, words in (
        ([tmp_path / "nowhere"], "there is no folder"),
        ([tmp_path / "file"], "is no folder"),
        ([tmp_path, tmp_path / "link"], "is named twice"),
    ):
        with pytest.raises(SpecError, match=words):
            check_paths(paths)


def test_what_cannot_be_compared(tmp_path: Path, card: Path) -> None:
    (tmp_path / "newer.json").write_bytes(b'{"format": %d, "runs": []}' % (FORMAT + 1))
    (tmp_path / "no.json").write_text("[]")
    for names, words in (
        (["card.json"], "two disk cards or more"),
        (["card.json", "no.json"], "no.json is no disk card"),
        (["card.json", "newer.json"], "has the newer format"),
        (["card.json", "missing.json"], "cannot read the disk card"),
    ):
        with pytest.raises(SpecError, match=words):
            compare_cards([tmp_path / name for name in names])
    assert len(compare_cards([card, card]).views) == 2


def test_a_card_beside_what_is_planned(tmp_path: Path, card: Path) -> None:
    planned, empty = tmp_path / "planned.toml", tmp_path / "empty.toml"
    planned.write_text('instance = "c7g.2xlarge"\n[disk]\nvolume = "gp3"\nsize = "100GB"\nvolume_iops = 6000\n')
    empty.write_text('cpus = 2\nmemory = "4GB"\n')
    comparison = compare_cards([card, planned])
    (_, declared) = comparison.views
    assert {entry.key for entry in declared.entries} < {entry.key for entry in comparison.views[0].entries}
    (reads, *_) = compare_entries([view.entries for view in comparison.views])
    assert (reads.kind, reads.ratio.n, reads.ratio.low) == (VerdictKind.INCONCLUSIVE, 0, None)
    assert reads.ratio.value == pytest.approx(0.5, rel=0.05)
    with pytest.raises(SpecError, match=r"empty.toml"):
        compare_cards([card, empty])
    (_, shipped) = compare_cards([card, Path("hosts/c7g.2xlarge-gp3-raid10")]).views
    assert shipped.card.name == "c7g.2xlarge, gp3 in RAID 10"


def test_a_card_is_shown_beside_what_is_declared_later(card: Path) -> None:
    assert show_cards([card], host=None).views[0].ceilings is None
    (view,) = show_cards([card], host="c7g.2xlarge").views
    assert view.ceilings
    assert view.card.instance == "c7g.2xlarge"
    for paths, host, words in (([], None, "no disk card is named"), ([card], "c7g.3xlarge", "no instance is known")):
        with pytest.raises(SpecError, match=words):
            show_cards(paths, host=host)


def test_a_host_file_that_a_study_emulates_makes_no_disk_an_emulated_one(tmp_path: Path, card: Path) -> None:
    emulated = tmp_path / "emulated.json"
    disk = DiskSpec(volume="gp3", size="50GB", count=8, raid=10)
    host = HostSpec(cpus=2, memory="4GB", disk=disk, emulate=True)
    write_card(add_declared_disk(make_card(), host, 0), emulated)
    plain, asked = (tmp_path / name for name in ("plain.toml", "emulate.toml"))
    text = 'cpus = 2\nmemory = "4GB"\n[disk]\nvolume = "gp3"\nsize = "50GB"\ncount = 8\nraid = 10\n'
    plain.write_text(text)
    asked.write_text(f"emulate = true\n{text}")
    (expected,), (view,) = (show_cards([card], host=str(file)).views for file in (plain, asked))
    assert [one.rule for one in expected.findings] == ["below-ceiling"]
    assert (view.findings, view.ceilings) == (expected.findings, expected.ceilings)
    assert [view.entries for view in compare_cards([card, asked]).views] == [
        view.entries for view in compare_cards([card, plain]).views
    ]
    # The disk that an emulation has made stays one.
    for file in (plain, asked):
        (view,) = show_cards([emulated], host=str(file)).views
        assert view.card.is_emulated
        assert view.findings == ()


def stack(*names: str) -> StorageStack:
    look = make_look()
    return msgspec.structs.replace(
        look, devices=tuple(msgspec.structs.replace(look.devices[0], name=name) for name in names)
    )


def test_the_second_path_is_the_wals() -> None:
    host = HostSpec(
        instance="c7g.2xlarge", disk=DiskSpec(kind="local-ssd"), wal_disk=DiskSpec(volume="gp3", size="30GB")
    )
    data, wal, last = (add_declared_disk(make_card(), host, place) for place in range(3))
    assert data.declared == host.disk
    assert wal.declared == last.declared == host.wal_disk
    assert add_declared_disk(make_card(), None, 0) == make_card()
    # pg_wal's disk is the data's, unless it is seen apart.
    one = HostSpec(disk=host.disk)
    apart, volume = (make_card(look=stack(*names)) for names in (["sdb"], ["dm-1", "nvme0n1"]))
    for card, data, declared in (
        (apart, None, host.disk),
        (apart, stack("nvme0n1"), None),
        (volume, stack("dm-0", "nvme0n1"), host.disk),
        # Neither memory nor a disk of another machine has a device here.
        (make_card(look=stack()), stack("nvme0n1"), host.disk),
    ):
        assert add_declared_disk(card, one, 1, data=data).declared == declared
    assert add_declared_disk(apart, host, 1, data=stack("nvme0n1")).declared == host.wal_disk


def test_a_host_file_or_an_instance(tmp_path: Path) -> None:
    file = tmp_path / "host.toml"
    file.write_text('cpus = 2\nmemory = "4GB"\n[disk]\nkind = "local-ssd"\n')
    assert read_declared(str(file)) == HostSpec(cpus=2, memory="4GB", disk=DiskSpec(kind="local-ssd"))
    assert read_declared("C7G.2xlarge") == HostSpec(instance="c7g.2xlarge")
    assert read_declared(None) is None


def test_what_is_critical_makes_the_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    write_card(make_card(look=make_look(filesystem="tmpfs", block_device=None)), path)
    assert show_cards([path], host=None).exit_code == 1
    assert [one.rule for one in view_card(make_card()).findings] == []


def test_cards_that_are_named(tmp_path: Path, card: Path) -> None:
    assert read_cards([]) == DiskCards()
    assert read_cards([card]).data == (make_card(), card)
    assert read_cards([card, card]).wal == (make_card(), card)
    empty = tmp_path / "empty.json"
    write_card(make_card(runs=(), flush_tests=()), empty)
    for files, words in (([card] * 3, "3 disk cards are named"), ([empty], "has measured nothing")):
        with pytest.raises(SpecError, match=words):
            read_cards(files)


def test_the_card_of_this_disk_is_found(tmp_path: Path) -> None:
    machine = read_tunables(tmp_path)
    assert find_cards(tmp_path, machine) == DiskCards()

    def keep(made_at: dt.datetime) -> DiskCard:
        card = make_card(**seen_here(tmp_path), made_at=made_at)
        keep_card(card, tmp_path)
        return card

    keep(local_now() - dt.timedelta(days=31))
    assert find_cards(tmp_path, machine) == DiskCards()
    card = keep(local_now() - dt.timedelta(days=29))
    found = find_cards(tmp_path, machine)
    assert found.data
    assert found.data[0].made_at == card.made_at
    assert found.wal is None


def test_settings_are_derived_with_what_was_measured() -> None:
    card = make_card(clock=CLOCK)
    subject = with_cards(build_subject(), DiskCards(data=(card, Path("a.json"))), is_here=True)
    assert subject.disk.flush_s.origin is Origin.MEASURED
    assert subject.clock_read_s
    assert subject.clock_read_s.value == pytest.approx(30e-9)
    assert with_cards(build_subject(), DiskCards(data=(card, Path("a.json"))), is_here=False).clock_read_s is None
    assert with_cards(build_subject(), DiskCards(), is_here=True) == build_subject()
    with pytest.raises(SpecError, match="a disk of the WAL's own"):
        with_cards(build_subject(), DiskCards(wal=(card, Path("a.json"))), is_here=True)
    apart = msgspec.structs.replace(build_subject(), wal_disk=build_subject().disk)
    subject = with_cards(apart, DiskCards(wal=(card, Path("a.json"))), is_here=True)
    assert subject.wal_disk
    assert subject.wal_disk.flush_s.origin is Origin.MEASURED
    assert subject.disk == apart.disk

"""Disk cards on disk: what is written is read, and nothing else is taken for one."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.plan.disk import Pattern
from pgdyno.record.device.disk_card import (
    FORMAT,
    CardScope,
    find_kept_card,
    keep_card,
    name_card,
    read_card,
    write_card,
)
from tests.disk_cards import GB, JOBS, MADE_AT, PAGE, make_card, make_look, make_machine, make_runs


def test_what_is_written_is_read(tmp_path: Path) -> None:
    card = make_card()
    path = tmp_path / "pgdyno-disks" / name_card(made_at=MADE_AT, hostname="db1.example", name="/data")
    assert path.name == "20261121-093000-db1-data.json"
    write_card(card, path)
    assert read_card(path) == card
    assert [one.name for one in path.parent.iterdir()] == [path.name], "nothing half-written beside it"


ALIKE = ("/mnt/data", "/mnt-data", "/mnt/-data", "/mnt/data.", "/mnt/数据", "/mnt/日志", "/mnt", "/", "/root")
"""Paths that differ in punctuation or in non-Latin letters alone."""


def test_each_path_has_a_file_name_of_its_own(tmp_path: Path) -> None:
    names = [name_card(made_at=MADE_AT, hostname="db1", name=path) for path in ALIKE]
    assert len(set(names)) == len(ALIKE)
    assert [names[0], names[6]] == ["20261121-093000-db1-mnt-data.json", "20261121-093000-db1-mnt.json"]
    for path in ALIKE:
        keep_card(make_card(path=path, look=make_look(device=path)), tmp_path)
    for path in ALIKE:
        found = find_kept_card([tmp_path], make_look(device=path), make_machine(), now=MADE_AT)
        assert found is not None
        assert found[0].path == path


def test_a_card_by_the_name_of_earlier_versions_is_found(tmp_path: Path) -> None:
    old, other = make_card(path="/mnt-data"), make_card(path="/mnt/data", look=make_look(device="/dev/nvme2n1"))
    write_card(old, tmp_path / "disks/mnt-data.json")
    assert find_kept_card([tmp_path], make_look(), make_machine(), now=MADE_AT) == (
        old,
        tmp_path / "disks/mnt-data.json",
    )
    new = make_card(path="/mnt-data", made_at=MADE_AT + dt.timedelta(days=1))
    keep_card(new, tmp_path)
    keep_card(other, tmp_path)
    found = find_kept_card([tmp_path], make_look(), make_machine(), now=new.made_at)
    assert found is not None
    assert found[0] == new


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "is no disk card"),
        (b"\xff\xfe", "is no disk card"),
        (b'{"format": "pgdyno-check", "version": 1}', "is no disk card"),
        (b'{"format": 1, "runs": 3}', "is damaged"),
        (b'{"format": 99, "runs": "told otherwise"}', "has the newer format 99"),
    ],
)
def test_what_is_no_card(tmp_path: Path, content: bytes, fact: str) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=fact):
        read_card(path)


def test_a_half_of_a_card_is_none(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(msgspec.json.encode(make_card())[:-500])
    with pytest.raises(SpecError, match="is no disk card"):
        read_card(path)


def test_no_card_there(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(SpecError, match="cannot read the disk card"):
            read_card(path)


def test_a_place_that_takes_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StepFailedError, match="cannot write"):
        write_card(make_card(), tmp_path / "file" / "card.json")


def test_the_newest_card_of_a_file_system_is_found(tmp_path: Path) -> None:
    now = MADE_AT + dt.timedelta(days=2)
    assert find_kept_card([tmp_path], make_look(), make_machine(), now=now) is None
    old, new = make_card(made_at=MADE_AT - dt.timedelta(days=3)), make_card()
    keep_card(old, tmp_path)
    keep_card(new, tmp_path)
    keep_card(msgspec.structs.replace(old, path="/data/pg_wal"), tmp_path)
    keep_card(make_card(path="/other", look=make_look(device="/dev/nvme2n1"), made_at=now), tmp_path)
    keep_card(make_card(path="/declared", runs=(), flush_tests=(), made_at=now), tmp_path)
    (tmp_path / "disks/newer.json").write_bytes(b'{"format": %d, "runs": []}' % (FORMAT + 1))
    card, path = find_kept_card([tmp_path], make_look(path="/data/pgdata"), make_machine(), now=now) or (None, None)
    assert card == new
    assert path == tmp_path / "disks/data.json"


def test_a_card_never_takes_the_place_of_one_that_measured_more(tmp_path: Path) -> None:
    depths = [one for one in JOBS if one.depth in {1, 64} and one.block_bytes == PAGE]
    whole, quick, flushes = (
        make_card(),
        make_card(runs=make_runs(jobs=depths), made_at=MADE_AT + dt.timedelta(hours=1)),
        make_card(runs=(), made_at=MADE_AT + dt.timedelta(hours=2)),
    )
    assert [one.scope for one in (whole, quick, flushes)] == [CardScope.WHOLE, CardScope.QUICK, CardScope.FLUSHES]
    for card, best in ((flushes, flushes), (quick, quick), (flushes, quick), (whole, whole), (quick, whole)):
        keep_card(card, tmp_path)
        found = find_kept_card([tmp_path], make_look(), make_machine(), now=MADE_AT + dt.timedelta(days=2))
        assert found is not None
        assert found[0] == best
    # When the whole one is too old, what is left is better than nothing.
    at = MADE_AT + dt.timedelta(days=30, minutes=30)
    found = find_kept_card([tmp_path], make_look(), make_machine(), now=at)
    assert found is not None
    assert found[0] == quick
    assert find_kept_card([tmp_path], make_look(), make_machine(), now=at + dt.timedelta(hours=2)) is None


def test_a_card_of_last_month_or_of_tomorrow_is_left_alone(tmp_path: Path) -> None:
    keep_card(make_card(), tmp_path)
    for days in (31, -1):
        assert find_kept_card([tmp_path], make_look(), make_machine(), now=MADE_AT + dt.timedelta(days=days)) is None
    assert find_kept_card([tmp_path], make_look(size_bytes=7), make_machine(), now=MADE_AT) is None, "it was made anew"


@pytest.mark.parametrize(
    ("machine", "is_same"),
    [
        # A kernel update, which leaves a little less memory.
        ({"boot_id": "2c5f", "kernel": "6.12.0", "memory_bytes": int(0.995 * 16 * GB)}, True),
        ({"boot_id": "2c5f", "memory_bytes": 32 * GB}, False),
        ({"boot_id": "2c5f", "cpu_model": "another CPU"}, False),
        ({"boot_id": "2c5f", "hostname": "db2.example"}, False),
        ({"boot_id": None, "hostname": "db2.example"}, False),
        # A container that was made again, and may use other CPUs.
        ({"hostname": "5b0c62f7a1de", "cpu_count": 2}, True),
        ({"boot_id": "2c5f", "cpu_count": 2}, True),
    ],
)
def test_a_card_of_another_machine_is_left_alone(tmp_path: Path, machine: dict[str, Any], is_same: bool) -> None:
    keep_card(make_card(), tmp_path)
    here = make_machine(**machine)
    assert (find_kept_card([tmp_path], make_look(), here, now=MADE_AT) is not None) is is_same


def test_the_size_of_a_zfs_changes_with_what_the_pool_holds(tmp_path: Path) -> None:
    zfs = {"device": "tank/data", "filesystem": "zfs", "block_device": None}
    keep_card(make_card(look=make_look(**zfs)), tmp_path)
    assert find_kept_card([tmp_path], make_look(size_bytes=7, **zfs), make_machine(), now=MADE_AT)


def test_a_card_of_reads_that_its_file_system_answers_from_memory_is_left_alone(tmp_path: Path) -> None:
    look = make_look(device="tank/data", filesystem="zfs", block_device=None)
    wal_runs = [run for run in make_runs() if run.job.pattern is Pattern.WAL]
    assert wal_runs
    of_memory = make_card(look=look)
    flushes = make_card(look=look, runs=tuple(wal_runs), made_at=MADE_AT + dt.timedelta(hours=1))
    for card in (of_memory, flushes):
        keep_card(card, tmp_path)
    for is_ignored, best in ((False, of_memory), (True, flushes)):
        found = find_kept_card(
            [tmp_path], look, make_machine(), now=MADE_AT + dt.timedelta(days=1), is_direct_ignored=is_ignored
        )
        assert found is not None
        assert found[0] == best

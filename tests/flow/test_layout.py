"""`pgdyno disk --layout` without its command line: declared, found on a disk of one's own, and slowed down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pgdyno.analyse.disk.ceiling import Limit
from pgdyno.analyse.disk.sold import tell_unsold
from pgdyno.flow.layout import show_layouts
from pgdyno.spec.host import DiskSpec, HostSpec
from pgdyno.tune.hosts import make_shape
from tests.cli.program import run_here
from tests.loops import mounted, mounted_loop, needs_root, throttled
from tests.rows import each_row

MIB = 2**20
HOST = HostSpec(instance="c7g.2xlarge", disk=DiskSpec(volume="gp3", size="50GB"))


def test_only_what_is_declared() -> None:
    result = show_layouts([], HOST)
    (data,) = result.views
    assert (data.title, data.look, data.declared) == ("data", None, HOST.disk)
    assert json.loads(result.to_json())["layouts"][0]["title"] == "data"
    alone = show_layouts([], HostSpec(instance="c7g.2xlarge")).views[0]
    assert alone.ceilings.random_read_iops is not None
    assert alone.ceilings.random_read_iops.binds is Limit.INSTANCE


def test_data_and_wal(tmp_path: Path) -> None:
    both = HostSpec(instance="c7g.2xlarge", disk=HOST.disk, wal_disk=DiskSpec(volume="gp3", size="30GB"))
    assert [view.declared for view in show_layouts([], both).views] == [both.disk, both.wal_disk]
    seen = show_layouts([tmp_path, tmp_path], both).views
    assert [view.declared for view in seen] == [both.disk, both.wal_disk]
    assert {view.title for view in seen} == {str(tmp_path)}
    # A path of which nothing is said lies where the data lie.
    assert [view.declared for view in show_layouts([tmp_path, tmp_path], HOST).views] == [HOST.disk] * 2


@needs_root
def test_what_is_declared_of_the_data_does_not_hold_for_a_disk_apart(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("data", "wal")]
    for place in places:
        place.mkdir()
    with mounted_loop(places[0], "ext4", 64 * MIB) as data, mounted_loop(places[1], "ext4", 64 * MIB) as wal:
        views = show_layouts([data.folder, wal.folder], HOST).views
        assert [view.declared for view in views] == [HOST.disk, None]


@each_row(
    [
        ("c7g.2xlarge", "gp3", ""),
        ("i4i.large", "local-nvme", ""),
        (
            "c7g.2xlarge",
            "essd-pl1",
            "No such pair is sold: essd-pl1 is a volume of Alibaba Cloud, and c7g.2xlarge an instance of AWS.",
        ),
        (
            "c7g.2xlarge",
            "local-nvme",
            "No such pair is sold: c7g.2xlarge has no local disks, and local-nvme is one.",
        ),
    ]
)
def test_a_pair_that_nobody_sells_is_computed_and_told(instance: str, volume: str, words: str) -> None:
    host = HostSpec(instance=instance, disk=DiskSpec(volume=volume, size="100GB"))
    (view,) = show_layouts([], host).views
    assert view.unsold == words
    assert view.ceilings.random_read_iops is not None
    assert list(make_shape(host).remarks) == [words] * bool(words)


def test_more_local_disks_than_the_instance_has_are_not_sold() -> None:
    for instance, size, count, words in (
        ("i4i.large", "9000GB", 1, "the local disks of i4i.large have 468 GB in all by its data sheet, and 9,000 GB"),
        ("i4i.8xlarge", "3750GB", 3, "have 7,500 GB in all by its data sheet, and 11,250 GB are declared"),
        ("i4i.8xlarge", "3750GB", 2, ""),
        # 1,788 GiB each, eight of which were rounded together.
        ("ecs.i2.16xlarge", "1920GB", 8, ""),
    ):
        disk = DiskSpec(volume="local-nvme", size=size, count=count, raid=0 if count > 1 else None)
        said = tell_unsold(instance, disk)
        assert words in said
        assert bool(words) == bool(said)


@each_row(
    [
        # All disks of an array without a copy, whatever they are; of LVM, also those beyond the first set of stripes.
        (None, {"kind": "hdd", "count": 4, "raid": 0}, ("None of the 4 disks may fail",)),
        (
            "c7g.2xlarge",
            {"volume": "gp3", "size": "50GB", "count": 8, "lvm_stripes": 4},
            ("None of the 8 disks may fail",),
        ),
        ("c7g.2xlarge", {"volume": "gp3", "size": "50GB", "count": 8, "raid": 10}, ()),
        ("c7g.2xlarge", {"volume": "gp3", "size": "50GB"}, ()),
        ("i4i.large", {"kind": "local-ssd"}, ("of i4i.large are lost if it is stopped or its machine fails,",)),
        (
            "ecs.i2.16xlarge",
            {"volume": "local-nvme", "size": "1920GB", "count": 8, "raid": 0},
            ("None of the 8 disks may fail", "of ecs.i2.16xlarge are lost if its machine fails,"),
        ),
        # A mirror within the machine does not survive it.
        ("ecs.i2.16xlarge", {"kind": "local-ssd", "count": 2, "raid": 1}, ("are lost if its machine fails,",)),
        # The disks of one's own machine outlive it.
        (None, {"kind": "local-ssd"}, ()),
        ("c7g.2xlarge", {"kind": "local-ssd"}, ()),
    ]
)
def test_single_failures_that_lose_all_data_are_told(
    instance: str | None, declared: dict[str, Any], words: tuple[str, ...]
) -> None:
    (view,) = show_layouts([], HostSpec(instance=instance, disk=DiskSpec(**declared))).views
    assert len(view.losses) == len(words)
    for said, part in zip(view.losses, words, strict=True):
        assert part in said
    assert not show_layouts([], HostSpec(instance=instance)).views[0].losses


def test_such_a_pair_is_told_of_where_a_layout_and_a_price_are_shown(tmp_path: Path) -> None:
    host = tmp_path / "host.toml"
    host.write_text('instance = "c7g.2xlarge"\n[disk]\nvolume = "essd-pl1"\nsize = "100GB"\n')
    for command in (("disk", "--layout"), ("price",)):
        done = run_here([*command, "--host", str(host)], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "No such pair is sold: essd-pl1 is a volume of Alibaba Cloud" in done.stdout


def test_prices_of_one_region_are_not_shown_for_another(tmp_path: Path) -> None:
    elsewhere = HostSpec(instance="c7g.2xlarge", region="eu-central-1", disk=HOST.disk, wal_disk=HOST.disk)
    for view in (*show_layouts([], elsewhere).views, *show_layouts([tmp_path], elsewhere).views):
        assert view.ceilings.price is None
        assert view.ceilings.absent["price"] == "no source says what gp3 costs in eu-central-1"
    assert b"$" not in show_layouts([], elsewhere).to_json()
    (here,) = show_layouts([], HOST).views
    assert here.ceilings.price is not None
    assert here.ceilings.price.how.endswith("in us-east-1")


@needs_root
def test_an_instance_lets_nothing_through_to_memory(tmp_path: Path) -> None:
    with (
        mounted_loop(tmp_path, "ext4", 64 * MIB) as disk,
        mounted("none", tmp_path / "memory", "-t", "tmpfs") as memory,
    ):
        inside, through = show_layouts([memory, disk.folder], HostSpec(instance="c7g.2xlarge")).views
        assert (inside.limits, inside.ceilings.random_read_iops) == (None, None)
        assert through.ceilings.random_read_iops is not None
        # What somebody declares of it is believed.
        (declared,) = show_layouts([memory], HOST).views
        assert declared.ceilings.random_read_iops is not None


@needs_root
@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_disk_that_is_slowed_down(tmp_path: Path, kind: str) -> None:
    with mounted_loop(tmp_path, kind, 300 * MIB) as loop:
        (free,) = show_layouts([loop.folder], None).views
        assert free.look is not None
        assert (free.look.facts.filesystem, free.look.devices[0].name) == (kind, loop.name)
        assert free.ceilings.random_read_iops is None
        with throttled(loop, read_iops=700, write_bps=30 * MIB):
            (slow,) = show_layouts([loop.folder], None).views
            reads, writes = slow.ceilings.random_read_iops, slow.ceilings.write_bytes_per_s
            assert reads is not None
            assert writes is not None
            assert (reads.value, reads.binds, writes.value) == (700, Limit.CONTROL_GROUP, 30 * MIB)
            (declared,) = show_layouts([loop.folder], HOST).views
            assert declared.ceilings.random_read_iops is not None
            assert declared.ceilings.random_read_iops.value == 700
            assert declared.ceilings.random_write_iops is not None
            assert declared.ceilings.random_write_iops.value == 3_000

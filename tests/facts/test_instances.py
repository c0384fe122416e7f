"""Instances and volumes: the rows are whole, and volumes follow the arithmetic that their providers publish."""

from __future__ import annotations

import importlib.resources
import itertools

import pytest

from pgdyno.errors import ExitCode, SpecError
from pgdyno.facts.instances import Instance, find_instance, list_instances, list_larger
from pgdyno.facts.volumes import Volume, ability_of, find_volume, list_volumes, price_of
from tests.rows import each_row

MIB = 2**20


@each_row(list_instances())
def test_every_row_can_be(instance: Instance) -> None:
    assert instance.provider in {"aws", "alibaba"}
    assert instance.architecture in {"x86_64", "arm64"}
    # The families here have 2, 4 or 8 GiB for each CPU, and the largest of g6 a little less.
    assert any(instance.memory_bytes / instance.cpu_count / 2**30 == pytest.approx(gib, rel=0.08) for gib in (2, 4, 8))
    iops, rate = (
        (instance.disk_iops, instance.disk_burst_iops),
        (instance.disk_bytes_per_s, instance.disk_burst_bytes_per_s),
    )
    for lasts, burst in (iops, rate):
        # Of i2 no source says what lasts.
        assert (lasts is None) == (burst is None) == instance.name.startswith("ecs.i2.")
        assert lasts is None or 0 < lasts <= (burst or 0)
    assert instance.source
    assert (instance.usd_per_hour is None) == (instance.price_date is None)
    assert (instance.price_date or instance.date) <= instance.date
    assert (instance.local_bytes is not None) == instance.name.startswith(("i", "ecs.i"))


def test_why_a_row_has_no_price_is_said() -> None:
    text = importlib.resources.files("pgdyno.facts").joinpath("instances.csv").read_text(encoding="utf-8")
    assert {instance.provider for instance in list_instances() if instance.usd_per_hour is None} == {"alibaba"}
    assert "# No price of Alibaba Cloud's is quoted: " in text


def test_names_are_said_once_and_found_in_any_case() -> None:
    names = [instance.name for instance in list_instances()]
    assert len(set(names)) == len(names)
    found = find_instance("R8G.2xlarge")
    assert (found.cpu_count, found.memory_bytes, found.architecture) == (8, 64 * 2**30, "arm64")
    # The sustained limit that a published array of volumes on this instance was credited beyond.
    small = find_instance("c7g.2xlarge")
    assert (small.disk_iops, small.disk_bytes_per_s) == (12_000, 312.5e6)


def test_a_larger_size_of_a_family_is_not_less() -> None:
    families: dict[str, list[Instance]] = {}
    for instance in list_instances():
        families.setdefault(instance.name.rpartition(".")[0], []).append(instance)
    for sizes in families.values():
        ordered = sorted(sizes, key=lambda one: one.cpu_count)
        for smaller, larger in itertools.pairwise(ordered):
            assert smaller.memory_bytes < larger.memory_bytes
            assert (smaller.disk_iops or 0) <= (larger.disk_iops or 0)
            assert (smaller.disk_bytes_per_s or 0) <= (larger.disk_bytes_per_s or 0)
            assert (smaller.usd_per_hour or 0) <= (larger.usd_per_hour or 0)


def test_larger_instances_of_a_family_are_listed_by_size() -> None:
    assert [one.name for one in list_larger("C7g.8xlarge")] == ["c7g.12xlarge", "c7g.16xlarge"]
    assert not list_larger("c7g.16xlarge")
    # A machine of one's own has a name, too.
    assert not list_larger("db1")


def test_a_name_that_is_not_known_suggests_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"no instance is known as r8g\.2xlrge") as caught:
        find_instance("r8g.2xlrge")
    assert caught.value.exit_code is ExitCode.SPEC
    assert "r8g.2xlarge" in caught.value.hint
    with pytest.raises(SpecError) as caught:
        find_instance("????")
    assert "host file" in caught.value.hint
    with pytest.raises(SpecError, match="no volume is known as gp4") as caught:
        find_volume("gp4")
    assert caught.value.hint == "did you mean gp3?"


@each_row(
    [
        ("gp3", 50, {}, 3_000, 125),
        ("gp3", 500, {"iops": 16_000, "mb_s": 1_000}, 16_000, 1_000),
        ("gp3", 32, {"iops": 16_000}, 16_000, 125),
        ("gp2", 20, {}, 100, 25),
        ("gp2", 100, {}, 300, 75),
        ("gp2", 334, {}, 1_002, 250),
        ("gp2", 16_000, {}, 16_000, 250),
        ("io2", 100, {"iops": 1_000}, 1_000, 250),
        ("io2", 1_000, {"iops": 100_000}, 100_000, 4_000),
        ("essd-pl0", 40, {}, 2_280, 110),
        ("essd-pl1", 100, {}, 6_800, 170),
        ("essd-pl1", 1_000, {}, 50_000, 350),
        ("essd-pl2", 1_000, {}, 51_800, 620),
        ("essd-pl3", 32_768, {}, 1_000_000, 4_000),
    ]
)
def test_what_a_volume_can_do(name: str, size_gib: float, bought: dict[str, float], iops: float, mb: float) -> None:
    volume = find_volume(name)
    ability = ability_of(volume, size_gib, **bought)
    assert (ability.read_iops, ability.write_iops) == (iops, iops)
    assert ability.bytes_per_s == mb * volume.megabyte_bytes


@each_row(
    [
        ("gp2", 1, 25, 128),
        ("gp2", 170, 127.5, 128),
        ("gp2", 171, 128.25, 250),
        ("gp2", 333, 249.75, 250),
        ("gp2", 334, 250, None),
        ("gp2", 16_384, 250, None),
        ("gp3", 100, 125, None),
    ]
)
def test_a_volume_with_burst_credits_has_a_larger_bandwidth(
    name: str, size_gib: float, lasting_mb: float, burst_mb: float | None
) -> None:
    """Source: Amazon EBS user guide, General Purpose SSD volumes: gp2 throughput by size."""
    volume = find_volume(name)
    ability, mb = ability_of(volume, size_gib), volume.megabyte_bytes
    assert (ability.bytes_per_s, ability.burst_bytes_per_s) == (lasting_mb * mb, burst_mb and burst_mb * mb)


@pytest.mark.parametrize(
    ("name", "size_gib", "bought", "usd"),
    [
        ("gp3", 50, {}, 4.0),
        ("gp3", 100, {"iops": 3_000, "mb_s": 125}, 8.0),
        ("gp3", 100, {"iops": 16_000, "mb_s": 1_000}, 8.0 + 13_000 * 0.005 + 875 * 0.04),
        ("gp2", 100, {}, 10.0),
        ("io2", 100, {"iops": 1_000}, 12.5 + 65.0),
        ("io2", 1_000, {"iops": 32_000}, 125 + 2_080),
        ("io2", 1_000, {"iops": 40_000}, 125 + 2_080 + 8_000 * 0.046),
        ("io2", 1_000, {"iops": 100_000}, 125 + 2_080 + 32_000 * 0.046 + 36_000 * 0.032),
    ],
)
def test_what_a_volume_costs(name: str, size_gib: float, bought: dict[str, float], usd: float) -> None:
    assert price_of(find_volume(name), size_gib, **bought) == pytest.approx(usd)


def test_what_no_source_says_has_no_price() -> None:
    with pytest.raises(ValueError, match="what a GiB costs"):
        price_of(find_volume("essd-pl1"), 1_000)


def test_local_disks_write_fewer_than_they_read_and_publish_no_bandwidth() -> None:
    ability = ability_of(find_volume("local-nvme"), 436)
    assert ability.read_iops == pytest.approx(50_000, rel=0.01)
    assert ability.write_iops == pytest.approx(27_500, rel=0.01)
    assert ability.bytes_per_s is None


@each_row(
    [
        ("gp3", 0.5, {}, "are not within 1 to"),
        ("essd-pl3", 1_000, {}, "are not within 1261 to 32,768"),
        ("gp3", 100, {"iops": 50_001}, "more than the 50,000"),
        ("gp3", 100, {"mb_s": 751}, "more than the 750"),
        ("gp3", 100, {"iops": 2_999}, "2,999 IOPS are fewer than the 3,000 that it has at least"),
        ("io2", 100, {"iops": 99}, "99 IOPS are fewer than the 100 that it has at least"),
        ("gp3", 100, {"mb_s": 124}, "124 MB/s are fewer than the 125"),
        ("gp2", 100, {"iops": 301}, "cannot be provisioned"),
        ("io2", 100, {"iops": 1_000, "mb_s": 300}, "or on its IOPS"),
        ("io2", 100, {}, "only provisioned IOPS"),
        ("io2", 100, {"iops": 256_000}, "more than the 100,000"),
    ]
)
def test_there_is_no_such_volume(name: str, size_gib: float, bought: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ability_of(find_volume(name), size_gib, **bought)


@each_row(list_volumes())
def test_every_volume_has_its_sources(volume: Volume) -> None:
    assert volume.source
    assert volume.latency
    priced = {volume.usd_per_gib_month is None, volume.price_date is None, volume.price_source is None}
    assert len(priced) == 1
    # What can be bought has a price where the volume has one.
    assert (volume.usd_per_iops_month is not None) == (volume.bought_iops is not None)
    assert (volume.usd_per_mb_month is not None) == (volume.bought_mb is not None)
    assert volume.least_gib < volume.most_gib
    assert volume.megabyte_bytes in {MIB, 10**6}

"""Alternatives do no less than what is there, keep what a mirror keeps, and cost what their price list says."""

from __future__ import annotations

import pytest

from pgdyno.analyse.disk.ceiling import TRANSFERS
from pgdyno.analyse.disk.layout_ceiling import compute_ceilings, limits_of
from pgdyno.price.alternatives import Alternatives, OtherVolumes, find_alternatives
from pgdyno.price.book import PriceBook
from pgdyno.price.cost import price_host
from pgdyno.spec.host import HostSpec, parse_host

RAID10 = 'volume = "gp3"\ncount = 8\nsize = "50GB"\nraid = 10\nvolume_latency_ms = 1.85'
LAYOUTS = [
    RAID10,
    'volume = "gp3"\nsize = "500GB"',
    'volume = "gp3"\ncount = 4\nsize = "100GB"\nraid = 0',
    'volume = "gp3"\ncount = 2\nsize = "100GB"\nraid = 1\nvolume_iops = 9_000\nvolume_mb_s = 500',
    'volume = "gp2"\nsize = "3TB"',
    'volume = "io2"\nsize = "100GB"\nvolume_iops = 20_000',
    'volume = "gp3"\ncount = 4\nsize = "100GB"\nlvm_stripes = 4',
]


def host_of(disk: str, *, instance: str = "c7g.2xlarge") -> HostSpec:
    return parse_host(f'instance = "{instance}"\n[disk]\n{disk}\n', source="h")


def alternatives(host: HostSpec) -> Alternatives:
    book = PriceBook()
    return find_alternatives(host, price_host(host, book), book, price=lambda one: price_host(one, book))


def by_name(disk: str) -> dict[tuple[int, str], OtherVolumes]:
    return {(one.count, one.volume): one for one in alternatives(host_of(disk)).volumes}


@pytest.mark.parametrize("disk", LAYOUTS)
@pytest.mark.parametrize("instance", ["c7g.2xlarge", "r8g.16xlarge"])
def test_none_does_less(disk: str, instance: str) -> None:
    host = host_of(disk, instance=instance)
    assert host.disk is not None
    now = compute_ceilings(host.disk, limits_of(host))
    found = alternatives(host).volumes
    assert found
    for one in found:
        if one.disk is None:
            assert one.reason
            continue
        then = compute_ceilings(one.disk, limits_of(host))
        for name in (*TRANSFERS, "capacity_bytes"):
            assert getattr(then, name).value >= getattr(now, name).value * (1 - 1e-9), (one, name)
        assert one.now_flush_s is None or (one.flush_s is not None and one.flush_s <= one.now_flush_s)
        assert one.per_month is not None


@pytest.mark.parametrize(
    ("array", "mirror"),
    [("count = 4\nraid = 5", 2), ("count = 4\nraid = 6", 3), ("count = 4\nraid = 10", 2), ("count = 3\nraid = 1", 3)],
)
def test_a_mirror_is_as_durable_if_as_many_of_it_may_fail(array: str, mirror: int) -> None:
    found = alternatives(host_of(f'volume = "gp3"\nsize = "100GB"\n{array}', instance="r8g.16xlarge")).volumes
    assert {one.count: one.is_as_durable for one in found} == {1: False, mirror: True}
    laid_out = [one.disk for one in found if one.disk is not None and one.count > 1]
    assert {(disk.count, disk.raid) for disk in laid_out} == {(mirror, 1)}


def test_of_stripes_no_disk_may_fail() -> None:
    found = by_name('volume = "gp3"\nsize = "100GB"\ncount = 4\nraid = 0')
    assert {count: one.is_as_durable for (count, _), one in found.items()} == {1: True}


def test_io2_in_place_of_an_array_of_gp3() -> None:
    found = by_name(RAID10)
    pair, single = found[2, "io2"], found[1, "io2"]
    # The instance lasts 12,000 reads and 6,000 mirrored writes a second: two mirrors of 6,000 IOPS do as much.
    assert pair.disk is not None
    assert (pair.disk.size, pair.disk.volume_iops, pair.disk.raid) == ("200GB", 6_000, 1)
    assert pair.per_month == pytest.approx(2 * (200 * 0.125 + 6_000 * 0.065))
    assert (pair.flush_s, pair.now_flush_s) == (0.0005, pytest.approx(0.00185))
    assert (pair.is_as_durable, single.is_as_durable) == (True, False)
    assert single.per_month == pytest.approx(200 * 0.125 + 12_000 * 0.065)
    assert pair.now_per_month == single.now_per_month == pytest.approx(32.0)
    # Of gp3 what was said of each volume's latency holds for one as well.
    assert (found[1, "gp3"].flush_s, found[1, "gp3"].reason) == (pytest.approx(0.00185), None)
    gp3 = found[1, "gp3"].disk
    assert gp3 is not None
    assert (gp3.volume_iops, gp3.volume_mb_s) == (12_000, 299)


def test_a_wal_of_its_own_needs_streams_and_flushes() -> None:
    host = parse_host(f'instance = "c7g.2xlarge"\n[disk]\n{RAID10}\n[wal_disk]\n{RAID10}\n', source="h")
    found = {(one.what, one.count, one.volume): one for one in alternatives(host).volumes}
    io2, gp3 = found["WAL", 1, "io2"].disk, found["WAL", 1, "gp3"].disk
    assert io2 is not None
    assert gp3 is not None
    # A flush each 0.5 ms is 2,000 a second, and 299 MB/s come with 1,196 IOPS.
    assert (io2.volume_iops, io2.volume_mb_s) == (2_000, None)
    # Of gp3 3,000 IOPS come with it: more than one flush each 1.85 ms.
    assert (gp3.volume_iops, gp3.volume_mb_s) == (None, 299)
    wanted = compute_ceilings(host.wal_disk, limits_of(host)) if host.wal_disk is not None else None
    then = compute_ceilings(io2, limits_of(host))
    assert wanted is not None
    assert None not in (then.flushes_per_s, wanted.flushes_per_s, then.write_bytes_per_s, wanted.write_bytes_per_s)
    assert then.flushes_per_s.value >= wanted.flushes_per_s.value  # type: ignore[union-attr]
    assert then.write_bytes_per_s.value >= wanted.write_bytes_per_s.value  # type: ignore[union-attr]


def test_a_flush_that_is_slower_or_unknown_is_no_alternative() -> None:
    fast = by_name('volume = "gp3"\ncount = 2\nraid = 0\nsize = "100GB"\nflush_ms = 0.2')
    assert fast[1, "io2"].disk is None
    assert fast[1, "io2"].reason == "a flush takes 0.5 ms, and 0.2 ms now"
    assert fast[1, "gp3"].reason == "no source states how long a flush takes on gp3"
    assert {one.per_month for one in fast.values()} == {None}
    unknown = by_name('volume = "gp3"\ncount = 2\nraid = 0\nsize = "100GB"')
    assert (unknown[1, "gp3"].now_flush_s, unknown[1, "gp3"].reason) == (None, None)


@pytest.mark.parametrize("flush", ["", "volume_latency_ms = 1.2", "flush_ms = 1.2"])
def test_iops_beyond_what_the_instance_lets_through_are_not_bought_again(flush: str) -> None:
    bought = 'volume = "GP3"\nsize = "500GB"\nvolume_iops = 16_000\nvolume_mb_s = 1_000\n'
    found = {one.volume: one for one in alternatives(host_of(bought + flush, instance="r8g.large")).volumes}
    same = found["gp3"]
    assert same.disk is not None
    assert (same.disk.size, same.disk.volume_iops, same.disk.volume_mb_s) == ("500GB", 3_600, None)
    assert (same.now_per_month, same.per_month) == pytest.approx((140.0, 500 * 0.08 + 600 * 0.005))
    assert same.flush_s == same.now_flush_s == (0.0012 if flush else None)
    assert (found["io2"].per_month or 0.0) > 140.0


def test_many_iops_cost_less_beyond_a_number() -> None:
    found = alternatives(
        host_of('volume = "gp3"\nsize = "500GB"\nvolume_iops = 60_000\nvolume_mb_s = 2_000', instance="r8g.48xlarge")
    )
    (io2,) = found.volumes
    assert io2.per_month == pytest.approx(500 * 0.125 + 32_000 * 0.065 + 28_000 * 0.046)


@pytest.mark.parametrize(
    "disk", ['kind = "local-ssd"', 'volume = "local-nvme"\nsize = "500GB"', 'volume = "essd-pl1"\nsize = "500GB"']
)
def test_disks_without_a_price_have_no_alternative(disk: str) -> None:
    assert alternatives(host_of(disk)).volumes == ()


def test_fewest_iops_that_can_be_bought() -> None:
    tiny = by_name('volume = "gp2"\nsize = "4GB"')
    assert tiny[1, "io2"].disk is not None
    assert tiny[1, "io2"].disk.volume_iops is not None
    assert tiny[1, "io2"].disk.volume_iops >= 100


def test_the_next_size_up() -> None:
    larger = alternatives(host_of(RAID10)).next_size
    assert larger is not None
    assert (larger.instance, larger.cpu_count, larger.memory_bytes) == ("c7g.4xlarge", 16, 32 * 2**30)
    # The volumes stay: twice the instance is less than twice the machine.
    assert larger.per_month == pytest.approx(0.58 * 730 + 32)
    assert larger.times == pytest.approx((0.58 * 730 + 32) / (0.29 * 730 + 32))
    assert alternatives(host_of(RAID10, instance="c7g.16xlarge")).next_size is None
    assert alternatives(HostSpec()).next_size is None
    assert alternatives(HostSpec(instance="ecs.g8i.large")).next_size is None

"""Ceilings of declared layouts: the textbook's arithmetic, what the instance lets through, bursts, prices, what is absent."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pgdyno.analyse.disk.ceiling import TRANSFERS, Ceiling, Limit, StorageCeilings
from pgdyno.analyse.disk.efficiency import Attainment, compare_with_ceilings
from pgdyno.analyse.disk.entries import DiskFigure, DiskFigureKey
from pgdyno.analyse.disk.layout_ceiling import ceilings_of_instance, compute_ceilings, limits_of, usual_limits
from pgdyno.analyse.disk.raid import array_times, count_copies
from pgdyno.analyse.disk.throttle import apply_throttles, find_throttle
from pgdyno.analyse.estimate import Estimate
from pgdyno.facts.instances import list_instances
from pgdyno.record.machine.disk_facts import DiskFacts
from pgdyno.record.machine.preflight import BlockDevice, CgroupLimit, LimitKind
from pgdyno.record.machine.tunables import StorageStack, Stripe
from pgdyno.spec.host import HostSpec, parse_host, read_host
from tests.disk_cards import make_look, raid_of
from tests.rows import each_row

TOP = Path(__file__).parents[2]
PUBLISHED = tomllib.loads((TOP / "tests/data/published_storage.toml").read_text(encoding="utf-8"))["layout"]
MIB, GIB = 2**20, 2**30
OWN = 'cpus = 4\nmemory = "16GB"'


def ceilings(disk: str, *, head: str = OWN) -> StorageCeilings:
    host = parse_host(f"{head}\n[disk]\n{disk}\n", source="h")
    assert host.disk is not None
    return compute_ceilings(host.disk, limits_of(host))


def transfers(found: StorageCeilings) -> list[Ceiling]:
    return [ceiling for name in TRANSFERS if (ceiling := getattr(found, name)) is not None]


def values(found: StorageCeilings) -> list[float]:
    return [ceiling.value for ceiling in transfers(found)]


@each_row(
    [
        ("raid0", 8, 8, 8, 8),
        ("raid1", 2, 2, 1, 1),
        ("raid10", 8, 8, 4, 4),
        ("raid5", 8, 8, 2, 7),
        ("raid6", 12, 12, 2, 10),
        # With few disks the rest of the stripe is read: 3 I/Os, 4 and 5.
        ("raid5", 3, 3, 1, 2),
        ("raid6", 4, 4, 1, 2),
        ("raid6", 5, 5, 1, 3),
        # The parity disk is read and written for each write; of up to four disks it is only written.
        ("raid4", 8, 7, 0.5, 7),
        ("raid4", 4, 3, 1, 3),
        # All disks of an unknown level read, and one writes.
        ("raid7", 4, 4, 1, 1),
        ("raid0", 1, 1, 1, 1),
    ]
)
def test_arrays(level: str, count: int, reads: float, writes: float, data: float) -> None:
    times = array_times(level, count)
    assert (times.reads, times.data) == (reads, data)
    assert times.of(TRANSFERS["random_read_iops"]) == reads
    assert times.of(TRANSFERS["random_write_iops"]) == pytest.approx(writes)
    assert times.of(TRANSFERS["write_bytes_per_s"]) == data
    assert times.of(TRANSFERS["read_bytes_per_s"]) == reads
    assert times.copies_of(TRANSFERS["random_read_iops"]) == 1
    assert times.copies_of(TRANSFERS["random_write_iops"]) == (4 if level == "raid4" else count / writes)


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["source"])
def test_a_published_table_follows_from_the_declaration_alone(case: dict[str, Any]) -> None:
    host, computed = read_host(TOP / case["host"]), case["computed"]
    assert host.disk is not None
    found = compute_ceilings(host.disk, limits_of(host))
    reads, writes, rates, written = transfers(found)
    assert (reads.array_value, writes.array_value) == (computed["read_iops"], computed["write_iops"])
    assert written.array_value == computed["throughput_mb_s"] * MIB
    assert rates.array_value == 2 * written.array_value
    assert found.flushes_per_s is not None
    assert found.flushes_per_s.value == pytest.approx(computed["flushes_per_s"], rel=0.005)
    assert found.flushes_per_s.value == 1000 / computed["flush_ms"]
    # What the write-up does not say: the instance binds, and a mirror's write counts twice on it.
    assert (reads.value, reads.binds, rates.value, rates.binds) == (12_000, Limit.INSTANCE, 312.5e6, Limit.INSTANCE)
    assert (writes.value, writes.binds, writes.burst_value) == (6_000, Limit.INSTANCE, 12_000)


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["source"])
def test_what_was_measured_there_was_burst(case: dict[str, Any]) -> None:
    host, measured = read_host(TOP / case["host"]), case["measured"]
    assert host.disk is not None
    found = {
        DiskFigureKey.RANDOM_READ: measured["read_iops"],
        DiskFigureKey.RANDOM_WRITE: measured["write_iops"],
        DiskFigureKey.SEQUENTIAL_READ: measured["long_reads_mib_s"] * MIB,
    }
    entries = [
        DiskFigure(key=key, estimate=Estimate(value=value, low=None, high=None, n=1, unit="", reason="one run"), how="")
        for key, value in found.items()
    ]
    reads, writes, rates = compare_with_ceilings(entries, compute_ceilings(host.disk, limits_of(host)))
    assert (reads.standing, reads.ratio.value) == (Attainment.BURST, pytest.approx(19 / 12))
    assert writes.standing is Attainment.BURST
    # All eight volumes, mirrors too: more than four have between them.
    assert rates.standing is Attainment.BURST
    assert rates.ceiling.burst_value == 8 * 125 * MIB


def test_a_limit_is_reached_only_where_the_whole_interval_is_near_it() -> None:
    found = ceilings('volume = "gp2"\nsize = "2TB"')
    for low, high, standing in (
        (0.81, 1.5, Attainment.REACHED),
        (0.1, 9.0, Attainment.UNDECIDED),
        (0.79, 1.0, Attainment.UNDECIDED),
        (0.1, 0.79, Attainment.BELOW),
        (1.06, 2.0, Attainment.IMPOSSIBLE),
    ):
        reads = Estimate(value=6_144 * (low + high) / 2, low=6_144 * low, high=6_144 * high, n=3, unit="/s")
        (one,) = compare_with_ceilings([DiskFigure(key=DiskFigureKey.RANDOM_READ, estimate=reads, how="")], found)
        assert one.standing is standing


def test_disks_that_spin_read_one_stream_no_faster_for_what_they_leave_out() -> None:
    spans = {"raid10": 4, "raid4": 7, "raid5": 7, "raid6": 6}
    assert {level: array_times(level, 8, can_seek=False).long_reads for level in spans} == spans


@each_row(
    [
        # A read takes half as long as a write: 2 reads and 2 writes take as long as 3 writes.
        ("raid5", 8, 8 / 3),
        ("raid6", 12, 12 / 4.5),
        ("raid5", 3, 3 / 2.5),
        ("raid6", 4, 4 / 3.5),
        ("raid6", 5, 5 / 4),
        ("raid10", 8, 4),
        ("raid0", 8, 8),
        ("raid4", 8, 2 / 3),
    ]
)
def test_reads_before_a_write_take_the_time_of_reads(level: str, count: int, writes: float) -> None:
    times = array_times(level, count)
    assert times.of(TRANSFERS["random_write_iops"], write_ratio=0.5) == pytest.approx(writes)
    # As many I/Os go to the disks all the same.
    alone = times.of(TRANSFERS["random_write_iops"])
    assert times.copies_of(TRANSFERS["random_write_iops"]) == (4 if level == "raid4" else pytest.approx(count / alone))


def test_parity_on_disks_that_read_faster_than_they_write() -> None:
    # Per write 2 reads, each of 0.55 writes' time, and 2 writes.
    local = ceilings('volume = "local-nvme"\nsize = "468GB"\ncount = 4\nraid = 5').random_write_iops
    assert local is not None
    assert local.volume_value is not None
    assert local.value == pytest.approx(4 * local.volume_value / 3.1)


def test_a_file_of_a_linear_array_lies_on_one_disk() -> None:
    assert array_times("linear", 4) == array_times("raid0", 1)


def test_a_volume_by_itself_and_with_what_is_bought() -> None:
    alone = ceilings('volume = "gp3"\nsize = "50GB"')
    assert values(alone) == [3_000, 3_000, 125 * MIB, 125 * MIB]
    assert {one.binds for one in transfers(alone)} == {Limit.VOLUME}
    assert {one.burst_value for one in transfers(alone)} == {None}
    assert alone.capacity_bytes is not None
    assert (alone.capacity_bytes.value, alone.capacity_bytes.binds) == (50 * GIB, Limit.VOLUME)
    bought = ceilings('volume = "gp3"\nsize = "500GB"\nvolume_iops = 6_000\nvolume_mb_s = 250')
    assert values(bought) == [6_000, 6_000, 250 * MIB, 250 * MIB]
    # 500 GiB, 3,000 IOPS and 125 MB/s beyond those that come with it.
    assert bought.price is not None
    assert bought.price.usd_per_month == pytest.approx(500 * 0.08 + 3_000 * 0.005 + 125 * 0.04)
    assert isinstance(bought.price.date, dt.date)
    assert "us-east-1" in bought.price.how


def test_bandwidth_binds_where_there_are_more_iops_than_it_has_pages_for() -> None:
    found = ceilings('volume = "gp3"\nsize = "500GB"\nvolume_iops = 20_000')
    assert found.random_read_iops is not None
    assert found.random_read_iops.value == 125 * MIB / 8192
    assert "cannot fill with 8 kB" in found.random_read_iops.how


def test_stripes_of_lvm() -> None:
    whole = ceilings('volume = "gp3"\nsize = "50GB"\ncount = 4\nlvm_stripes = 4\nchunk = "64kB"')
    assert values(whole) == [12_000, 12_000, 500 * MIB, 500 * MIB]
    assert whole.random_read_iops is not None
    assert whole.random_read_iops.how == (
        "4 × gp3 of 50GB, striped by LVM over 4; what the machine lets through is not known, and often binds first"
    )
    assert whole.random_read_iops.is_machine_unknown
    # Two pairs, one behind the other: no place is faster than a pair, and all have room.
    pairs = ceilings('volume = "gp3"\nsize = "50GB"\ncount = 4\nlvm_stripes = 2')
    assert values(pairs) == [6_000, 6_000, 250 * MIB, 250 * MIB]
    assert whole.capacity_bytes is not None
    assert pairs.capacity_bytes is not None
    assert whole.capacity_bytes.value == pairs.capacity_bytes.value == 200 * GIB


def test_limits_that_are_declared_stand_before_the_data_sheet() -> None:
    disk = 'volume = "gp3"\nsize = "50GB"\ncount = 4\nraid = 0'
    own = ceilings(disk, head=f'{OWN}\nname = "ours"\ninstance_iops = 5_000\ninstance_mb_s = 200')
    assert values(own) == [5_000, 5_000, 200e6, 200e6]
    assert {one.burst_value for one in transfers(own)} == {None}
    assert own.random_read_iops is not None
    assert own.random_read_iops.how.startswith("ours lets 5,000 a second through to all of its volumes, which binds")
    only_rate = ceilings(disk, head=f"{OWN}\ninstance_mb_s = 20")
    assert only_rate.random_read_iops is not None
    assert only_rate.random_read_iops.value == 20e6 / 8192
    sheet = ceilings(disk, head='instance = "c7g.2xlarge"\ninstance_iops = 100_000')
    assert values(sheet) == [12_000, 12_000, 312.5e6, 312.5e6]
    assert limits_of(parse_host(f'{OWN}\n[disk]\nkind = "hdd"', source="h")) is None


def test_bursts_of_volumes_and_of_instances() -> None:
    small = ceilings('volume = "gp2"\nsize = "100GB"')
    assert small.random_read_iops is not None
    assert (small.random_read_iops.value, small.random_read_iops.burst_value) == (300, 3_000)
    large = ceilings('volume = "gp2"\nsize = "2TB"')
    assert large.random_read_iops is not None
    assert (large.random_read_iops.value, large.random_read_iops.burst_value) == (6_144, None)
    stream = Estimate(value=128 * MIB, low=None, high=None, n=1, unit="bytes/s", reason="one run")
    entry = DiskFigure(key=DiskFigureKey.SEQUENTIAL_READ, estimate=stream, how="")
    for found, standing in ((small, Attainment.BURST), (large, Attainment.BELOW)):
        assert [one.standing for one in compare_with_ceilings([entry], found)] == [standing]
    assert [one.burst_value for one in (small.read_bytes_per_s, small.write_bytes_per_s) if one] == [128 * MIB] * 2
    assert large.read_bytes_per_s is not None
    assert (large.read_bytes_per_s.value, large.read_bytes_per_s.burst_value) == (250 * MIB, None)
    # Two of them on an instance that lets fewer through, even for a while.
    held = ceilings('volume = "gp2"\nsize = "100GB"\ncount = 2\nraid = 0', head=f"{OWN}\ninstance_iops = 4_000")
    assert held.random_read_iops is not None
    assert (held.random_read_iops.value, held.random_read_iops.burst_value) == (600, 4_000)


@each_row([("raid = 5\ncount = 4", 4, 3 * 100), ("raid = 6\ncount = 6", 6, 4 * 100), ("raid = 5\ncount = 3", 3, 200)])
def test_parity_costs_writes_of_the_instance_and_hides_the_flush(array: str, ios: int, gib: int) -> None:
    # Its latency is published, and a disk's latency of a write is not that of the reads that come before it.
    disk = f'volume = "io2"\nsize = "100GB"\nvolume_iops = 16_000\n{array}'
    found = ceilings(disk, head='instance = "c7g.2xlarge"')
    assert found.random_write_iops is not None
    assert (found.random_write_iops.value, found.random_write_iops.binds) == (12_000 / ios, Limit.INSTANCE)
    assert found.capacity_bytes is not None
    assert found.capacity_bytes.value == gib * GIB
    assert found.flushes_per_s is None
    assert "declare flush_ms" in found.absent["flushes_per_s"]
    whole = ceilings(f"{disk}\nflush_ms = 2")
    assert whole.flushes_per_s is not None
    assert whole.flushes_per_s.value == 500


def test_figures_of_the_whole_path() -> None:
    found = ceilings('kind = "local-ssd"\nrandom_read_iops = 900_000\nwrite_mb_s = 1_900\nflush_ms = 0.05')
    assert [one.value for one in transfers(found)] == [900_000, 1.9e9]
    assert {one.binds for one in transfers(found)} == {Limit.PATH}
    assert found.flushes_per_s is not None
    assert (found.flushes_per_s.value, found.flushes_per_s.binds) == (20_000, Limit.PATH)
    assert set(found.absent) == {"random_write_iops", "read_bytes_per_s", "capacity_bytes", "price"}
    network = ceilings('kind = "network-ssd"\nrandom_read_iops = 90_000', head='instance = "c7g.2xlarge"')
    assert network.random_read_iops is not None
    assert (network.random_read_iops.value, network.random_read_iops.burst_value) == (12_000, 40_000)


@pytest.mark.parametrize(
    ("disk", "name", "reason"),
    [
        ('volume = "gp3"\nsize = "50GB"', "flushes_per_s", "no source says how long a flush takes"),
        ('volume = "local-nvme"\nsize = "500GB"', "read_bytes_per_s", "no source says it of local-nvme"),
        ('volume = "local-nvme"\nsize = "500GB"', "price", "a local disk is part of its machine's"),
        ('kind = "network-ssd"\nsize = "1TB"\nrandom_read_iops = 5_000', "price", "no volume of a cloud is named"),
        ('volume = "essd-pl1"\nsize = "500GB"', "price", "no source says what a GiB costs"),
        ('kind = "hdd"', "capacity_bytes", "no size is declared"),
    ],
)
def test_what_nobody_says_is_absent_with_the_reason(disk: str, name: str, reason: str) -> None:
    found = ceilings(disk)
    assert getattr(found, name) is None
    assert reason in found.absent[name]
    assert {key for key in StorageCeilings.__struct_fields__ if getattr(found, key) is None} == set(found.absent)


def test_published_latencies_are_those_of_one_volume() -> None:
    found = ceilings('volume = "essd-pl1"\nsize = "500GB"\ncount = 2\nraid = 0')
    assert found.flushes_per_s is not None
    assert (found.flushes_per_s.value, found.flushes_per_s.binds) == (5_000, Limit.VOLUME)


def test_there_are_no_more_flushes_than_writes() -> None:
    slow = ceilings('volume = "gp2"\nsize = "100GB"\nvolume_latency_ms = 0.5').flushes_per_s
    assert slow is not None
    assert (slow.value, slow.burst_value, slow.binds) == (300, 2_000, Limit.VOLUME)
    assert "300 a second; without that limit one each 0.5 ms" in slow.how
    declared = ceilings('kind = "local-ssd"\nrandom_write_iops = 250\nflush_ms = 1').flushes_per_s
    assert declared is not None
    assert (declared.value, declared.burst_value, declared.binds) == (250, None, Limit.PATH)


@each_row([one for one in list_instances() if one.disk_iops is not None])
def test_no_ceiling_is_above_what_it_is_made_of(instance: Any) -> None:
    disk = 'volume = "gp3"\nsize = "100GB"\ncount = 8\nraid = 10\nvolume_iops = 16_000\nvolume_mb_s = 500'
    for one in transfers(ceilings(disk, head=f'instance = "{instance.name}"')):
        assert one.array_value is not None
        assert one.instance_value is not None
        assert one.value == min(one.array_value, one.instance_value)
        assert one.binds is (Limit.INSTANCE if one.instance_value < one.array_value else Limit.ARRAY)
        assert one.burst_value is None or one.value < one.burst_value <= one.array_value


def test_a_machine_of_no_known_limit_is_assumed_to_be_a_usual_one() -> None:
    usual = usual_limits(8, "aws")
    own = [one for one in list_instances() if (one.provider, one.cpu_count) == ("aws", 8)]
    assert usual.iops == median(one.disk_iops or 0 for one in own)
    assert usual.bytes_per_s == median(one.disk_bytes_per_s or 0 for one in own)
    assert usual.name == f"a usual instance with 8 CPUs (median of {len(own)})"
    assert usual_limits(9, "aws") == usual
    # The largest that is known, and all providers' where one has none.
    assert "with 104 CPUs" in usual_limits(5000, "alibaba").name
    assert usual_limits(8, "nobody").name != usual.name
    assert limits_of(HostSpec(instance="ecs.i2.xlarge")) is None


@pytest.mark.parametrize(
    ("disk", "head", "is_unknown"),
    [
        ('volume = "gp3"\nsize = "50GB"', OWN, [True] * 4),
        ('volume = "gp3"\nsize = "50GB"', f"{OWN}\ninstance_iops = 9_000", [False, False, True, True]),
        ('volume = "gp3"\nsize = "50GB"', 'instance = "c7g.large"', [False] * 4),
        ('volume = "local-nvme"\nsize = "500GB"', OWN, [False] * 2),
        # Figures of the whole path were seen on the machine.
        ('kind = "network-ssd"\nrandom_read_iops = 9_000\nread_mb_s = 90', OWN, [False] * 2),
    ],
)
def test_a_network_volume_on_a_machine_of_no_known_limit(disk: str, head: str, is_unknown: list[bool]) -> None:
    found = transfers(ceilings(disk, head=head))
    assert [one.is_machine_unknown for one in found] == is_unknown
    assert ["often binds first" in one.how for one in found] == is_unknown


@pytest.mark.parametrize(
    ("level", "random", "sequential"),
    [("raid0", 1.0, 1.0), ("raid1", 4.0, 4.0), ("raid10", 2.0, 2.0), ("raid5", 4.0, 4 / 3), ("linear", 1.0, 1.0)],
)
def test_writes_to_a_detected_array(level: str, random: float, sequential: float) -> None:
    look = raid_of(4, level)
    assert count_copies(look, TRANSFERS["random_write_iops"]) == pytest.approx(random)
    assert count_copies(look, TRANSFERS["write_bytes_per_s"]) == pytest.approx(sequential)
    assert count_copies(look, TRANSFERS["random_read_iops"]) == 1.0
    assert count_copies(make_look(), TRANSFERS["random_write_iops"]) == 1.0


def test_disks_that_nobody_declared() -> None:
    found = ceilings_of_instance(limits_of(HostSpec(instance="c7g.2xlarge")))
    assert values(found) == [12_000, 12_000, 312.5e6, 312.5e6]
    assert [one.burst_value for one in transfers(found)] == [40_000, 40_000, 1.25e9, 1.25e9]
    # Of eight disks in RAID 10, each write goes to two; the layout is seen, though nobody declared it.
    mirrored = ceilings_of_instance(limits_of(HostSpec(instance="c7g.2xlarge")), raid_of(8, "raid10"))
    assert values(mirrored) == [12_000, 6_000, 312.5e6, 156.25e6]
    assert [one.burst_value for one in transfers(mirrored)] == [40_000, 20_000, 1.25e9, 625e6]
    assert "312.5 MB/s through to all of its network volumes, 2 for each that is written" in transfers(mirrored)[3].how
    nothing = ceilings_of_instance(None)
    assert set(nothing.absent) == set(StorageCeilings.__struct_fields__) - {"absent"}


def test_control_groups_bind_too() -> None:
    limits = (
        CgroupLimit(kind=LimitKind.READ_COUNT, group="/pg", value=1_000, device="nvme1n1"),
        CgroupLimit(kind=LimitKind.WRITE_COUNT, group="/pg", value=1e9, device="nvme1n1"),
        CgroupLimit(kind=LimitKind.READ_BYTES, group="/pg", value=1, device="sdz"),
        CgroupLimit(kind=LimitKind.WRITE_BYTES, group="/", value=50e6),
    )
    device = BlockDevice(
        name="nvme1n1", kind="disk", is_rotational=False, scheduler=None, schedulers=(), read_ahead_kb=None
    )
    facts = DiskFacts(
        path="/d",
        device="/dev/nvme1n1",
        block_device="nvme1n1",
        filesystem="xfs",
        mount_options="rw",
        size_bytes=1,
        free_bytes=1,
    )
    look = StorageStack(facts=facts, devices=(device,))
    held = apply_throttles(ceilings('volume = "gp3"\nsize = "50GB"'), look, limits)
    assert values(held) == [1_000, 3_000, 125 * MIB, 50e6]
    assert [one.binds for one in transfers(held)] == [
        *(Limit.CONTROL_GROUP, Limit.VOLUME, Limit.VOLUME, Limit.CONTROL_GROUP)
    ]
    unknown = apply_throttles(ceilings_of_instance(None), look, limits)
    # What may be written in bytes bounds the I/Os of 8 kB, too.
    assert values(unknown) == [1_000, 50e6 / 8192, 50e6]
    assert unknown.random_write_iops is not None
    assert unknown.random_write_iops.how == "limit of the control group /, of 50 MB/s in 8 kB"
    assert "random_read_iops" not in unknown.absent
    # A burst is not beyond them either.
    small = apply_throttles(
        ceilings('volume = "gp2"\nsize = "100GB"'),
        look,
        [CgroupLimit(kind=LimitKind.READ_COUNT, group="/pg", value=one, device="nvme1n1") for one in (1_000, 2_000)],
    )
    assert small.random_read_iops is not None
    assert (small.random_read_iops.value, small.random_read_iops.burst_value) == (300, 1_000)


@pytest.mark.parametrize(
    ("level", "limited", "expected"),
    [
        # Reads, writes, bytes read, bytes written of four disks, each of which may do 100 I/Os and 10 MB a second.
        ("raid0", "abcd", [400, 400, 40e6, 40e6]),
        ("raid10", "abcd", [400, 200, 40e6, 20e6]),
        ("raid1", "abcd", [400, 100, 40e6, 10e6]),
        # One that is held back holds back all stripes; of mirrors another one is read.
        ("raid0", "c", [400, 400, 40e6, 40e6]),
        ("raid10", "c", [None, 200, None, 20e6]),
        ("raid1", "c", [None, 100, None, 10e6]),
        # A small write reads two of the four and writes two, and only the disk with the data is read.
        ("raid5", "abcd", [400, 200, 40e6, 30e6]),
        ("raid5", "c", [400, 200, 40e6, 30e6]),
        # It reads one, the rest of the stripe, and writes three.
        ("raid6", "abcd", [400, 400 / 3, 40e6, 20e6]),
        # The parity disk writes one page for each.
        ("raid4", "abcd", [300, 100, 30e6, 30e6]),
        # A volume of LVM's without stripes may lie on any of them.
        (None, "c", [100, 100, 10e6, 10e6]),
    ],
)
def test_a_limit_of_one_disk_is_none_of_its_array(
    level: str | None, limited: str, expected: list[float | None]
) -> None:
    limits = [
        CgroupLimit(kind=kind, group="/pg", value=value, device=f"sd{letter}")
        for letter in limited
        for kind, value in (
            *((kind, 100) for kind in (LimitKind.READ_COUNT, LimitKind.WRITE_COUNT)),
            *((kind, 10e6) for kind in (LimitKind.READ_BYTES, LimitKind.WRITE_BYTES)),
        )
    ]
    look = array_of("abcd", level)
    found = [find_throttle(name, look, limits) for name in TRANSFERS]
    assert [None if one is None else pytest.approx(one.value) for one in found] == expected
    # A limit of the array itself is one of the path, and the tighter of both counts.
    tight = CgroupLimit(kind=LimitKind.WRITE_COUNT, group="/pg", value=50, device="md0")
    held = find_throttle("random_write_iops", look, [*limits, tight])
    assert held
    assert held.value == 50


@pytest.mark.parametrize(
    ("level", "writes"), [("raid5", 8 * 100 / 2), ("raid6", 8 * 100 / 3), ("raid4", 100), ("raid10", None)]
)
def test_a_limit_of_reads_holds_what_parity_reads_first(level: str, writes: float | None) -> None:
    limits = [CgroupLimit(kind=LimitKind.READ_COUNT, group="/pg", value=100, device=f"sd{one}") for one in "abcdefgh"]
    held = find_throttle("random_write_iops", array_of("abcdefgh", level), limits)
    assert (None if held is None else held.value) == (None if writes is None else pytest.approx(writes))


def test_how_a_limit_of_disks_became_one_of_the_array_is_said() -> None:
    limits = [CgroupLimit(kind=LimitKind.WRITE_COUNT, group="/pg", value=100, device=f"sd{one}") for one in "abcd"]
    held = find_throttle("random_write_iops", array_of("abcd", "raid10"), limits)
    assert held
    assert held.how == "2 × 100, limit of the control group /pg, of raid10 of 4"


def array_of(letters: str, level: str | None) -> StorageStack:
    """An encrypted array, whose disks are called sda and so on."""
    names = tuple(f"sd{letter}" for letter in letters)

    def device(name: str, kind: str, *below: str) -> BlockDevice:
        facts = {"is_rotational": False, "scheduler": None, "schedulers": (), "read_ahead_kb": None}
        return BlockDevice(name=name, kind=kind, below=below, **facts)

    stripes = {} if level is None else {"md0": Stripe(level=level, disk_count=len(names), chunk_bytes=None)}
    devices = (device("dm-0", "crypt", "md0"), device("md0", "raid", *names), *(device(one, "disk") for one in names))
    return StorageStack(facts=make_look().facts, devices=devices, stripes=stripes)

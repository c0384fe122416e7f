"""Machines that one does not have: array arithmetic, what the instance lets through, and what is assumed."""

from __future__ import annotations

import typing

import msgspec
import pytest

from pgdyno.analyse.disk.layout_ceiling import usual_limits
from pgdyno.facts.instances import find_instance, list_instances
from pgdyno.facts.volumes import DiskKindName
from pgdyno.spec.host import parse_host
from pgdyno.tune.disk.classes import ASSUMED
from pgdyno.tune.hosts import MachineShape, make_shape
from pgdyno.tune.types import Disk, DiskKind, Known, Origin
from tests.rows import each_row

MIB = 2**20


def shape(disk: str, *, head: str = 'cpus = 4\nmemory = "16GB"') -> MachineShape:
    return make_shape(parse_host(f"{head}\n[disk]\n{disk}\n", source="h"))


def figures(disk: Disk) -> tuple[float, float, float, float]:
    return (
        disk.random_read_iops.value,
        disk.random_write_iops.value,
        disk.read_bytes_per_s.value,
        disk.write_bytes_per_s.value,
    )


def knowns(disk: Disk) -> list[Known]:
    return [value for value in msgspec.structs.asdict(disk).values() if isinstance(value, Known)]


def test_the_spec_and_the_settings_mean_the_same_kinds() -> None:
    assert set(typing.get_args(DiskKindName)) == {kind.value for kind in DiskKind} == {kind.value for kind in ASSUMED}


@pytest.mark.parametrize(
    ("array", "times", "gib"),
    [
        ("", (1, 1, 1, 1), 50),
        ("count = 8\nraid = 0", (8, 8, 8, 8), 400),
        ("count = 2\nraid = 1", (2, 1, 2, 1), 50),
        ("count = 8\nraid = 10", (8, 4, 8, 4), 200),
        # A small write with parity is four I/Os, and six with two; with few disks it is one of each.
        ("count = 8\nraid = 5", (8, 2, 8, 7), 350),
        ("count = 12\nraid = 6", (12, 2, 12, 10), 500),
        ("count = 3\nraid = 5", (3, 1, 3, 2), 100),
    ],
)
def test_arrays(array: str, times: tuple[int, ...], gib: int) -> None:
    head = 'cpus = 4\nmemory = "16GB"\ninstance_iops = 99_000\ninstance_mb_s = 9_000'
    disk = shape(f'volume = "gp3"\nsize = "50GB"\n{array}', head=head).disk
    each = (3_000, 3_000, 125 * MIB, 125 * MIB)
    assert figures(disk) == tuple(one * n for one, n in zip(each, times, strict=True))
    assert disk.free_bytes.value == gib * 2**30
    assert disk.random_read_iops.origin is Origin.DECLARED


def test_assumed_disks_read_faster_than_they_write_before_they_write_parity() -> None:
    disk = shape('kind = "local-ssd"\ncount = 6\nraid = 6').disk
    assert figures(disk)[:2] == pytest.approx((6 * 50_000, 6 * 27_500 / (3 * 0.55 + 3)))


def test_the_instance_binds_and_how_says_so() -> None:
    # The array of the published case study is credited with 19,000 reads a second and 600 MB/s on this instance, which
    # counts both mirrors' writes.
    disk = shape('volume = "gp3"\nsize = "50GB"\ncount = 8\nraid = 10', head='instance = "c7g.2xlarge"').disk
    assert figures(disk) == (12_000, 6_000, 312.5e6, 156.25e6)
    assert "c7g.2xlarge lets 12,000 a second through" in disk.random_read_iops.how
    assert "could 24,000 a second" in disk.random_read_iops.how
    assert "12,000 a second through (2 for each that is written)" in disk.random_write_iops.how
    larger = shape('volume = "gp3"\nsize = "50GB"\ncount = 8\nraid = 10', head='instance = "c7g.8xlarge"').disk
    assert "so the disks bind" in larger.random_write_iops.how
    declared = shape('kind = "network-ssd"\nrandom_read_iops = 19_000', head='instance = "c7g.2xlarge"').disk
    assert declared.random_read_iops.value == 12_000


def test_a_machine_of_no_known_limit_lets_through_what_a_usual_one_does() -> None:
    head, array = 'cpus = 104\nmemory = "384GB"', 'volume = "essd-pl3"\nsize = "3000GB"\ncount = 8\nlvm_stripes = 8'
    usual = usual_limits(104, "alibaba")
    disk = shape(array, head=head).disk
    for known, value in ((disk.random_read_iops, usual.iops), (disk.write_bytes_per_s, usual.bytes_per_s)):
        assert known.value <= (value or 0)
        assert known.origin is Origin.ASSUMED
        assert "the machine's own limit is not known; by another's: a usual instance with 104 CPUs" in known.how
    # What was seen of the whole path has the machine's limit in it.
    whole = shape('kind = "network-ssd"\nwrite_mb_s = 9_000', head=head).disk.write_bytes_per_s
    assert (whole.value, whole.origin) == (9e9, Origin.DECLARED)
    # A limit that is half declared is declared as far as it goes.
    half = shape(array, head=f"{head}\ninstance_iops = 7_000").disk
    assert (half.random_read_iops.value, half.random_read_iops.origin) == (7_000, Origin.DECLARED)
    assert half.write_bytes_per_s == disk.write_bytes_per_s


def test_mount_options_that_lose_data_are_told() -> None:
    declared = shape('kind = "hdd"\nmount_options = "noatime,nobarrier,data=writeback"')
    (remark,) = declared.remarks
    assert remark.startswith("nobarrier is declared: the file system of the data does not flush the disk's cache")
    assert shape('kind = "hdd"\nmount_options = "noatime"').remarks == ()


def test_local_disks_are_not_held_against_the_limit_to_network_volumes() -> None:
    disk = shape('kind = "local-ssd"\nrandom_read_iops = 900_000', head='instance = "c7g.2xlarge"').disk
    assert disk.random_read_iops.value == 900_000


def test_what_is_declared_is_believed_and_the_rest_assumed() -> None:
    disk = shape('kind = "hdd"\nflush_ms = 4\nwrite_mb_s = 90').disk
    assert (disk.flush_s.value, disk.flush_s.origin) == (0.004, Origin.DECLARED)
    assert (disk.write_bytes_per_s.value, disk.write_bytes_per_s.origin) == (90e6, Origin.DECLARED)
    assert (disk.random_read_iops.value, disk.random_read_iops.origin) == (80, Origin.ASSUMED)
    assert disk.free_bytes.origin is Origin.ASSUMED
    # A published write latency is better than the kind's.
    essd = shape('volume = "essd-pl1"\nsize = "100GB"').disk
    assert (essd.flush_s.value, essd.flush_s.origin) == (0.0002, Origin.DECLARED)


@each_row(
    [
        ('kind = "local-ssd"\nrandom_write_iops = 400_000', (500e6, 400_000 * 8192)),
        ('kind = "local-ssd"\nrandom_write_iops = 400_000\nwrite_mb_s = 300', (500e6, 300e6)),
        ('volume = "local-nvme"\nsize = "15TB"', (15e12 / 2**30 * 114 * 8192, 15e12 / 2**30 * 62.7 * 8192)),
        ('kind = "network-ssd"\nrandom_read_iops = 90_000', (625e6, 125 * MIB)),
    ]
)
def test_a_disk_is_not_slower_in_sequence_than_page_by_page(disk: str, bytes_per_s: tuple[float, float]) -> None:
    made = shape(disk, head='cpus = 4\nmemory = "16GB"\ninstance_mb_s = 625').disk
    assert (made.read_bytes_per_s.value, made.write_bytes_per_s.value) == pytest.approx(bytes_per_s, rel=1e-6)
    raised = [one for one in (made.read_bytes_per_s, made.write_bytes_per_s) if "of 8 kB a second take" in one.how]
    assert all(one.origin is Origin.ASSUMED for one in raised)


def test_a_declared_chunk_is_that_of_an_array() -> None:
    disk = shape('volume = "gp3"\nsize = "50GB"\ncount = 8\nraid = 10\nchunk = "64kB"\nfilesystem = "ext4"').disk
    (array,) = disk.devices
    assert (disk.filesystem, array.kind, array.chunk_kb, array.data_disks) == ("ext4", "raid", 64, 4)
    stripe = shape('volume = "gp3"\nsize = "50GB"\ncount = 4\nlvm_stripes = 2\nchunk = "1MB"').disk.devices[0]
    assert (stripe.kind, stripe.chunk_kb, stripe.data_disks) == ("lvm", 1024, 2)
    (bare,) = shape('volume = "gp3"\nsize = "50GB"\ncount = 8\nraid = 10').disk.devices
    assert (bare.chunk_kb, bare.data_disks) == (None, 4)
    assert shape('volume = "gp3"\nsize = "50GB"').disk.devices == ()


def test_the_file_is_believed_before_the_instance() -> None:
    known = make_shape(parse_host('instance = "r8g.2xlarge"\ncpus = 6\nmemory = "60GB"\nname = "ours"', source="h"))
    assert (known.name, known.architecture) == ("ours", "arm64")
    assert (known.cpus.value, known.memory.value) == (6, 60 * 2**30)
    assert known.cpus.how == "the host file"


@each_row([instance.name for instance in list_instances()])
def test_an_instance_alone_has_an_assumed_disk(name: str) -> None:
    instance = find_instance(name)
    known = make_shape(instance)
    assert (known.cpus.value, known.memory.value) == (instance.cpu_count, instance.memory_bytes)
    assert {known.cpus.origin, known.memory.origin} == {Origin.DECLARED}
    assert known.disk.kind is (DiskKind.LOCAL_SSD if instance.local_bytes else DiskKind.NETWORK_SSD)
    assert {one.origin for one in knowns(known.disk)} == {Origin.ASSUMED}
    assert all(one.how.startswith("no disk is declared") and one.value > 0 for one in knowns(known.disk))
    assert len(knowns(known.disk)) == 6
    assert known.disk.free_bytes.value == (instance.local_bytes or 500 * 2**30)
    assert known.wal_disk is None


@each_row(
    [
        ("c7g.2xlarge", None, 500, "the usual one: 500GB, empty"),
        ("c7g.2xlarge", 200 * 2**30, 500, "the usual one: 500GB, empty"),
        ("c7g.2xlarge", 2 * 2**40, 4100, "the usual one, with room for 2 TB of data and their WAL: 4100GB, empty"),
        ("ecs.c8i.xlarge", 300 * 2**30, 600, "the usual one, with room for 300 GB of data and their WAL: 600GB, empty"),
    ]
)
def test_an_assumed_volume_has_room_for_the_data_and_their_wal(
    name: str, dataset: float | None, gib: int, how: str
) -> None:
    known = make_shape(find_instance(name), dataset_bytes=dataset)
    assert known.disk.free_bytes.value == gib * 2**30
    assert how in known.disk.free_bytes.how
    assert known.remarks == ()

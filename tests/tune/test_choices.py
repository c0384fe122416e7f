"""Values worked out by hand, from the formulas and from what is published."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.tune.checkpoints import (
    change_wal_bytes,
    limit_changes,
    page_write_s,
    recovery_s,
    wal_by_recovery_bytes,
    wal_distance_bytes,
    wal_rate,
)
from pgdyno.tune.derive import derive, with_huge_pages
from pgdyno.tune.draft import Draft, round_down, round_up, size
from pgdyno.tune.memory import server_bytes, sum_memory
from pgdyno.tune.room import checkpoints_room_bytes
from pgdyno.tune.rules.memory import choose_buffers
from pgdyno.tune.types import (
    Derived,
    DerivedSettings,
    Device,
    Disk,
    DiskKind,
    Kernel,
    Origin,
    Target,
    TuningSubject,
    WorkloadClass,
)
from tests.rows import each_row
from tests.tune.subjects import GB, MB, known, make_disk, make_subject


def found(tuning: DerivedSettings, name: str) -> Derived:
    return next(one for one in tuning.settings if one.name == name)


def value(subject: TuningSubject, name: str, **fixed: str) -> str | None:
    settings = {one.name: one.value for one in derive(subject, fixed=fixed).settings}
    return settings.get(name)


def test_sizes_are_chosen_and_written_as_people_do() -> None:
    assert [size(each) for each in (4 * GB, 1536 * MB, 65 * 1024)] == ["4GB", "1536MB", "65kB"]
    assert (round_down(1000), round_up(1000)) == (960, 1024)
    assert round_down(15) == round_up(15) == 15


# 24 GB of memory, of which 1.5 GB are reserved and 0.23 GB the sessions': 22.27 GB could be cached.
@each_row(
    [
        (0.05, 1 * GB),  # room to grow, but not a quarter of the memory for nothing
        (3, 6 * GB),  # a quarter of the memory holds it, and more
        (2, 4 * GB),  # room to double
        (10, 11 * GB),  # 10 × 1.1
        (16, 4.5 * GB),  # 22.27 - 16 × 1.1 = 4.67
        (20, 1.25 * GB),  # 22.27 - 20 × 1.1 = 0.27 is less than 20 / 16
        (24, 1.5 * GB),  # 24 / 16
        (96, 6 * GB),  # 96 / 16
        (1000, 6 * GB),  # no more than a quarter
    ]
)
def test_data_lie_whole_in_the_one_cache_or_the_other(data_gb: float, expected: float) -> None:
    assert choose_buffers(make_subject(dataset=data_gb * GB))[0] == expected


def test_a_quarter_of_the_memory_while_the_data_are_not_known() -> None:
    assert choose_buffers(make_subject())[0] == 6 * GB


def test_analytic_data_gain_nothing_from_lying_in_it_whole() -> None:
    assert choose_buffers(make_subject(dataset=10 * GB, workload=WorkloadClass.ANALYTIC))[0] == 6 * GB


def test_the_distance_between_checkpoints_is_the_servers_own() -> None:
    # 1 GB is 64 segments: 64 / 1.9 = 33.7, of which CalculateCheckpointSegments() takes 33.
    assert wal_distance_bytes(make_subject(), 1 * GB, 0.9) == 33 * 16 * MB
    assert wal_distance_bytes(make_subject(wal_segment_bytes=64 * MB), 1 * GB, 0.9) == 8 * 64 * MB


def test_max_wal_size_is_rate_times_time_and_the_room_that_a_spread_checkpoint_takes() -> None:
    subject = make_subject(wal_bytes_per_s=10e6, recovery_s=7200, dataset=3 * GB, disk=make_disk(free=1e12))
    tuning = derive(subject)
    assert found(tuning, "checkpoint_timeout").value == "30min"
    # 10 MB/s × 1800 s × 1.9 × 1.25 = 42.75e9 = 39.8 GiB, rounded up.
    assert found(tuning, "max_wal_size").value == "40GB"
    # 10 MB/s × 300 s = 2861 MB, rounded down.
    assert found(tuning, "min_wal_size").value == "2816MB"
    interval = next(one for one in tuning.estimates if one.what == "checkpoint interval")
    assert interval.value == 1800


def test_recovery_in_time_bounds_the_wal() -> None:
    subject = make_subject(wal_bytes_per_s=50e6, recovery_s=60, dataset=3 * GB)
    # 3 GB at 150 MB/s are 21 s, which leaves 39 s of reading.
    most = wal_by_recovery_bytes(subject, "off")
    assert recovery_s(subject, most, "off") <= 60 < recovery_s(subject, most + 16 * MB, "off")
    assert "recovery in 60 s" in found(derive(subject), "max_wal_size").reason
    assert value(subject, "checkpoint_timeout") is None, "5 min are built in"


def test_compressed_wal_changes_more_pages() -> None:
    subject = make_subject(dataset=400 * GB, held_bytes=400.0 * GB, recovery_s=known(300, "s"))
    # 4 GB at 100 MB/s, and the images of 8.2 GB of pages, nearly each a write of its own: p (1 - p) of 400 GB, p = 2 %.
    assert recovery_s(subject, 4 * GB, "lz4") == pytest.approx(43 + 1_070_000 * 0.98 / 3000, rel=0.01)
    longest = [recovery_s(subject, 4 * GB, each) for each in ("off", "pglz", "lz4", "zstd")]
    assert longest == sorted(longest)
    most = [wal_by_recovery_bytes(subject, each) for each in ("off", "pglz", "lz4", "zstd")]
    assert most == sorted(most, reverse=True)
    sets = {each: derive(subject, fixed={"wal_compression": each}) for each in ("off", "on", "lz4")}
    assert found(sets["lz4"], "max_wal_size").value != found(sets["off"], "max_wal_size").value
    for tuning in sets.values():
        recovery = next(one for one in tuning.estimates if one.what == "recovery after a crash")
        assert 240 < recovery.value <= 300


def test_a_slow_disk_has_no_less_wal_than_an_untuned_server_unless_somebody_asks_for_a_quick_recovery() -> None:
    slow = make_subject(disk=make_disk(DiskKind.HDD), dataset=100 * GB, recovery_s=30)
    assert found(derive(slow), "max_wal_size").value == "32MB", "two segments, which the server needs"
    assumed = msgspec.structs.replace(slow, recovery_s=known(30, "s", origin=Origin.ASSUMED))
    stock = found(derive(assumed), "max_wal_size")
    assert (stock.value, stock.reason.split(",")[0]) == ("1GB", "it is what is built in")
    assert any("may even so take longer than the 30 s that are assumed: say" in note for note in derive(assumed).notes)


def test_a_recovery_that_nobody_asked_for_is_told_with_what_it_costs() -> None:
    assumed = known(300, "s", origin=Origin.ASSUMED)
    subject = make_subject(recovery_s=assumed, wal_bytes_per_s=40e6, disk=make_disk(free=1e13))
    tuning = derive(subject)
    (note,) = (note for note in tuning.notes if note.startswith("max_wal_size is only"))
    assert f"only {found(tuning, 'max_wal_size').value}, which takes a checkpoint every " in note
    minutes = int(note.split("; ")[-1].split("min")[0])
    asked = derive(msgspec.structs.replace(subject, recovery_s=known(60 * minutes, "s")))
    assert "so that the clock starts checkpoints" in found(asked, "max_wal_size").reason
    assert not any("max_wal_size" in note for note in asked.notes)


@pytest.mark.parametrize("rate", [None, 2e9])
def test_a_recovery_time_that_is_only_assumed_brings_no_checkpoints_that_the_server_warns_of(
    rate: float | None,
) -> None:
    # 192 CPUs that change rows anywhere in 6 TB: recovery in 5 min allows the WAL of some seconds.
    large = make_subject(
        "large",
        dataset=6000 * GB,
        held_bytes=6000.0 * GB,
        wal_bytes_per_s=rate,
        disk=make_disk(free=1e14, iops=240_000, bytes_per_s=5e9),
        recovery_s=known(300, "s", origin=Origin.ASSUMED),
    )
    tuning = derive(large)
    every_s = next(one.value for one in tuning.estimates if one.what == "checkpoint interval")
    assert 30 <= every_s < 36
    assert "checkpoints are 30 s apart, below which the server warns of them" in found(tuning, "max_wal_size").reason
    # Whoever asks for it gets it.
    asked = derive(msgspec.structs.replace(large, recovery_s=known(300, "s")))
    assert next(one.value for one in asked.estimates if one.what == "checkpoint interval") < 30
    assert any("so that recovery after a crash ends within 5 min: a longer" in note for note in asked.notes)


def test_checkpoints_that_come_often_are_told_whatever_bounds_the_wal() -> None:
    quick = {"wal_bytes_per_s": 40e6, "disk": make_disk(DiskKind.HDD, free=1e13), "dataset": 400 * GB}
    declared = derive(make_subject(recovery_s=60, **quick))
    assert found(declared, "max_wal_size").value == "64MB"
    (note,) = (note for note in declared.notes if "max_wal_size" in note)
    assert note.startswith(
        "max_wal_size is only 64MB, which takes a checkpoint every 0.8 s, so that recovery after a crash ends within 60 s: a"
    )
    small = derive(make_subject(wal_bytes_per_s=40e6, wal_disk=make_disk(free=4 * GB), recovery_s=7200))
    (note,) = (note for note in small.notes if "max_wal_size" in note)
    assert note == (
        "max_wal_size is only 2304MB, which takes a checkpoint every 31 s, as its disk has no room for more: give pg_wal a larger one."
    )
    fixed = derive(make_subject(recovery_s=60, **quick), fixed={"max_wal_size": "40GB"})
    assert not any("max_wal_size" in note for note in fixed.notes), "the user chose"


@each_row(
    [
        (60, Origin.DECLARED, "it is the most that recovery in 60 s allows;"),
        (
            10,
            Origin.DECLARED,
            "it is the least that the server takes, and recovery after a crash takes up to 28 s even so;",
        ),
        (
            0.001,
            Origin.DECLARED,
            "it is the least that the server takes, and recovery after a crash takes up to 28 s even so;",
        ),
        (
            300,
            Origin.ASSUMED,
            "it is the least with which checkpoints are 30 s apart, below which the server warns of them, and recovery after a crash takes up to 33 min even so;",
        ),
    ]
)
def test_the_reason_of_max_wal_size_says_how_long_recovery_takes_where_nothing_shortens_it(
    recovery_s: float, origin: Origin, reason: str
) -> None:
    disk = make_disk(DiskKind.HDD, free=1e13)
    recovery = known(recovery_s, "s", origin=origin)
    tuning = derive(make_subject(wal_bytes_per_s=40e6, disk=disk, dataset=400 * GB, recovery_s=recovery))
    assert found(tuning, "max_wal_size").reason.startswith(reason)


def test_a_recovery_of_hours_is_no_advice() -> None:
    assumed = known(300, "s", origin=Origin.ASSUMED)
    disk = make_disk(DiskKind.HDD, free=1e13)
    notes = derive(make_subject(recovery_s=assumed, wal_bytes_per_s=40e6, dataset=400 * GB, disk=disk)).notes
    (note,) = (note for note in notes if "max_wal_size" in note)
    assert "say with --recovery how long it may take" in note
    # A quarter of 400 GB / 8 kB runs, 150 in a second.
    assert note.endswith("; recovery from all the WAL that load and disk can take would last 24 h.")


def test_the_disk_bounds_the_wal() -> None:
    subject = make_subject(disk=make_disk(free=8 * GB), dataset=GB / 8, wal_bytes_per_s=10e6)
    assert found(derive(subject), "max_wal_size").value == "1920MB", "a quarter of what data leave"
    own = msgspec.structs.replace(subject, wal_disk=make_disk(free=10 * GB))
    assert found(derive(own), "max_wal_size").value == "6GB"


def test_inputs_say_which_disk_they_are_of() -> None:
    subject = make_subject(
        disk=make_disk(DiskKind.HDD), wal_disk=make_disk(DiskKind.LOCAL_SSD), workload=WorkloadClass.OLTP_WRITE
    )
    inputs = {one.name: one.value for setting in derive(subject).settings for one in setting.inputs}
    assert (inputs["sequential writes"], inputs["sequential writes of pg_wal"]) == (150e6, 2e9)
    assert "free space of pg_wal" in inputs


# Of 100 GB that are free, a quarter of what the data leave.
@each_row(
    [
        ({"dataset": 92 * GB}, "2GB", ""),
        ({"dataset": 92 * GB, "held_bytes": 92.0 * GB}, "24GB", ""),  # its files take no more space
        ({"dataset": 150 * GB, "held_bytes": 58.0 * GB}, "2GB", ""),
        ({"dataset": 92 * GB, "wal_disk": make_disk(free=40 * GB)}, "24GB", ""),
        ({"dataset": known(92 * GB, "bytes", origin=Origin.MEASURED)}, "2GB", ""),  # of a record
        ({"dataset": known(92 * GB, "bytes", origin=Origin.ASSUMED)}, "24GB", ""),
        ({"dataset": 92 * GB, "to_come_bytes": 0.0}, "24GB", ""),  # loaded, as a bench knows
        ({"dataset": 46 * GB, "to_come_bytes": 92.0 * GB}, "2GB", ""),  # and a working copy
        ({"dataset": 92 * GB, "settings": {"wal_keep_size": "2048"}}, "1536MB", ""),  # 2 GB, which are kept in any case
        ({"dataset": 96 * GB}, "1GB", ""),
        ({"dataset": 99 * GB}, "1GB", "the disk is too small for data and WAL, 683 MB short: 99 GB of data are still"),
        (
            {"dataset": 300 * GB},
            "1GB",
            "the disk is too small for data and WAL, 202 GB short: 300 GB of data are still",
        ),
        (
            {"dataset": 300 * GB, "held_bytes": 1.0 * GB},
            "1GB",
            "the disk is too small for data and WAL, 201 GB short: 299 GB more",
        ),
        (
            {"dataset": 300 * GB, "wal_disk": make_disk(free=40 * GB)},
            "24GB",
            "300 GB of data do not fit on the disk, which has 100 GB",
        ),
    ]
)
def test_wal_has_the_room_that_data_leave_which_are_still_to_come(
    changes: dict[str, object], wanted: str, note: str
) -> None:
    disk = make_disk(free=100 * GB, iops=1e6, bytes_per_s=3e9)
    subject = make_subject(disk=disk, wal_bytes_per_s=50e6, recovery_s=7200, **changes)
    tuning = derive(subject)
    assert found(tuning, "max_wal_size").value == wanted
    told = [one for one in tuning.notes if "do not fit" in one or "too small" in one]
    assert [one.startswith(note) for one in told] == [True] * bool(note)


@each_row([(99, "give it 683 MB more, or add a disk for pg_wal."), (101, "give it 2.67 GB more.")])
def test_a_disk_that_is_too_small_is_told_with_what_it_lacks_and_what_to_do(data_gb: int, end: str) -> None:
    tuning = derive(make_subject(disk=make_disk(free=100 * GB), dataset=data_gb * GB))
    (note,) = (one for one in tuning.notes if "max_wal_size" in one)
    assert "the built-in max_wal_size of 1 GB needs 1.67 GB, as it is no hard limit, and" in note
    assert "No max_wal_size is right here: a larger one fills the disk sooner, which stops the server" in note
    assert note.endswith(end)
    assert "data leave no room for more, and it is what is built in" in found(tuning, "max_wal_size").reason


def test_space_that_is_there_and_short_gives_wal_no_more_than_its_share() -> None:
    # A larger max_wal_size could fill a disk whose data are there; one whose data are a wish needs another disk.
    for wish in ({}, {"dataset": 1.9 * GB}):
        held = derive(make_subject(disk=make_disk(free=1.5 * GB), **{"dataset": GB, "held_bytes": 1.0 * GB, **wish}))
        assert found(held, "max_wal_size").value == "384MB"
        (note,) = (one for one in held.notes if "max_wal_size" in one)
        assert note.startswith("the disk is too small for data and WAL, ")
    own = derive(make_subject(wal_disk=make_disk(free=GB)))
    assert found(own, "max_wal_size").value == "576MB", "0.6 of a disk that holds nothing else"
    assert any(one.startswith("the disk of pg_wal is too small, 683 MB short: the built-in") for one in own.notes)


def test_max_wal_size_has_no_jump_where_data_and_wal_hardly_fit() -> None:
    def most(free_gb: float, data_gb: float) -> float:
        return checkpoints_room_bytes(Draft(make_subject(disk=make_disk(free=free_gb * GB), dataset=data_gb * GB), {}))

    step_gb = 0.25
    for fixed_gb in (0.5, 2, 3, 4, 8, 100):
        by_data = [most(fixed_gb, step_gb * n) for n in range(500)]
        by_space = [most(step_gb * n, fixed_gb) for n in range(500)]
        assert by_data == sorted(by_data, reverse=True)
        assert by_space == sorted(by_space)
        for values in (by_data, by_space):
            assert max(abs(one - other) for one, other in itertools.pairwise(values)) <= step_gb * GB / 4


def test_a_max_wal_size_beyond_the_room_that_data_leave_is_refused() -> None:
    # 300 GB of data do not fit themselves.
    for data_gb in (92, 300):
        with pytest.raises(SpecError, match="max_wal_size of 10 GB does not fit") as refused:
            derive(make_subject(disk=make_disk(free=100 * GB), dataset=data_gb * GB), fixed={"max_wal_size": "10GB"})
        assert refused.value.detail == f"100 GB are free (said so), and {data_gb} GB of data are still to come"


def test_scattered_pages_take_as_many_writes_as_there_are_runs() -> None:
    disk = make_disk(iops=1000, bytes_per_s=100e6)
    # Half of 8 GB: a quarter of a million runs for each GB of the data's million pages.
    assert page_write_s(disk, 4 * 8192e6 / 8, 8192e6) == pytest.approx(0.25 * 1e6 / 1000)
    # All of them: no faster, and as long as the bandwidth takes where that is more.
    assert page_write_s(disk, 8192e6, 8192e6) == pytest.approx(250)
    assert page_write_s(make_disk(iops=1e6, bytes_per_s=100e6), 8192e6, 8192e6) == pytest.approx(81.92)


@pytest.mark.parametrize(
    ("cpus", "bytes_per_s", "missing", "expected"),
    [
        (2, 150e6, (), "lz4"),  # 2 × 4.5 / 2 + 0.49 × 54.6 = 31 µs against 54.6
        (2, 150e6, ("lz4", "zstd"), "off"),  # pglz: 2 × 74 / 2 + 27 = 101
        (16, 150e6, ("lz4", "zstd"), "pglz"),  # 9 + 27 = 37
        (2, 150e6, ("lz4",), "zstd"),  # 33 + 18 = 51
        (2, 3e9, (), "off"),  # 4.5 + 1.3 = 5.8 against 2.7
    ],
)
def test_page_images_are_compressed_where_that_spares_more_than_it_takes(
    cpus: int, bytes_per_s: float, missing: tuple[str, ...], expected: str
) -> None:
    disk = make_disk(bytes_per_s=bytes_per_s)
    rate = bytes_per_s / 2
    subject = make_subject(cpus=cpus, disk=disk, missing_values={"wal_compression": missing}, wal_bytes_per_s=rate)
    tuning = derive(subject)
    compression = found(tuning, "wal_compression")
    assert compression.value == expected
    assert ("this build lacks " + " and ".join(missing) in compression.reason) == bool(missing)
    assert any("wal_compression would be" in note for note in tuning.notes) == bool(missing)


def test_data_beyond_memory_leave_no_time_for_compression() -> None:
    # 74 + 27 = 101 µs against 54.6, as with data in memory.
    missing = {"wal_compression": ("lz4", "zstd")}
    subject = make_subject(dataset=24 * GB, missing_values=missing, wal_bytes_per_s=75e6)
    assert value(subject, "wal_compression") == "off"


@pytest.mark.parametrize(("rate", "expected"), [(49e6, "off"), (51e6, "lz4")])
def test_nothing_is_compressed_where_the_cpus_bind_and_not_the_disk(rate: float, expected: str) -> None:
    subject = make_subject(disk=make_disk(bytes_per_s=150e6), wal_bytes_per_s=rate)
    compression = found(derive(subject), "wal_compression")
    assert compression.value == expected
    assert ("three times the WAL" in compression.reason) == (expected == "off")


@pytest.mark.parametrize(("measured_under", "expected"), [("off", "off"), ("lz4", "lz4")])
def test_a_rate_measured_with_compression_does_not_switch_it_off(measured_under: str, expected: str) -> None:
    # 30 MB/s of compressed images may be 61 MB/s without, more than a third of 150.
    subject = make_subject(disk=make_disk(bytes_per_s=150e6), wal_bytes_per_s=30e6)
    subject = msgspec.structs.replace(subject, wal_compression=measured_under)
    assert found(derive(subject), "wal_compression").value == expected


# PostgreSQL 18, pgbench -s 100, prepared, 8 clients, one checkpoint before: transactions, page images and bytes for each.
@pytest.mark.parametrize(
    ("transactions", "images", "measured_bytes"),
    [(5_000, 1.905, 15_353), (30_000, 1.519, 12_420), (120_000, 0.934, 7_920), (240_000, 0.639, 5_574)],
)
def test_the_wal_of_a_transaction_is_what_was_measured(transactions: int, images: float, measured_bytes: int) -> None:
    data_bytes = (163_935 + 27_422) * 8192
    bare = change_wal_bytes(data_bytes, transactions, 0.0)
    assert (change_wal_bytes(data_bytes, transactions, 1.0) - bare) / 8192 == pytest.approx(images, rel=0.02)
    # Pages of an index are not quite full, and a page's hole is not written.
    assert change_wal_bytes(data_bytes, transactions, 1.0) == pytest.approx(measured_bytes, rel=0.08)


def test_an_assumed_wal_rate_is_told_with_its_range() -> None:
    subject = make_subject(cpus=8, dataset=50 * GB, disk=make_disk(iops=10_000))
    rate = wal_rate(subject, "off", timeout_s=1800)
    # 8 CPUs change 14.4 million rows in 30 min, on 5.6 million pages.
    assert rate.value == pytest.approx(8_000 * 3_983, rel=0.001)
    assert "of 3.89 kB of WAL" in rate.how
    low, high = (float(part.split(" MB/s")[0]) for part in rate.how.split("; ")[1].split(" to "))
    assert low < rate.value / MB < high
    assert wal_rate(subject, "lz4", timeout_s=1800).value == pytest.approx(8_000 * (500 + 0.49 * 3_483), rel=0.001)
    slow = make_subject(cpus=8, dataset=50 * GB, disk=make_disk(bytes_per_s=60e6, iops=10_000))
    assert wal_rate(slow, "off", timeout_s=1800).value == 20e6
    # The disk bounds the rate and the ends of its range, and not what a transaction writes.
    assert wal_rate(slow, "off", timeout_s=1800).how.startswith(rate.how.split("; ")[0])
    assert wal_rate(slow, "off", timeout_s=1800).how.endswith(
        "; half as many already write a third of what the disk writes, and no more is assumed"
    )
    faster = make_subject(cpus=8, dataset=50 * GB, disk=make_disk(bytes_per_s=75e6, iops=10_000))
    assert " MB/s to 25 MB/s for half and twice as many; at most" in wal_rate(faster, "off", timeout_s=1800).how
    assert wal_rate(make_subject(wal_bytes_per_s=7e6), "lz4", timeout_s=1800).value == 7e6


def test_a_load_changes_no_more_pages_than_its_disk_writes() -> None:
    data_bytes, every_s, iops = 50.0 * GB, 600.0, 300
    pages = data_bytes / 8192
    disk = make_disk(iops=iops)
    found = limit_changes(disk, data_bytes, 1e9, every_s)
    hit = sum(part * pages * (1 - math.exp(-found / (part * pages))) for part in (6 / 7, 1 / 7))
    assert hit == pytest.approx(every_s * iops, rel=1e-4)
    assert limit_changes(disk, data_bytes, found / 2, every_s) == found / 2, "the CPUs do no more"
    # However many changes, there are no more pages than these: a disk that writes all of them does not bind.
    assert limit_changes(disk, data_bytes, 1e9, 2 * pages / iops) == 1e9
    assert limit_changes(make_disk(iops=1e6, bytes_per_s=300 * 8192), data_bytes, 1e9, every_s) == found


def test_the_wal_rate_of_disks_that_seek_is_what_their_writes_of_pages_let_through() -> None:
    # 12 disks in RAID 10, 480 writes a second: 16 CPUs would change 16,000 rows, each on two pages.
    seeking = make_disk(DiskKind.HDD, iops=480, bytes_per_s=900e6, free=1e13)
    subject = make_subject("middle", disk=seeking, dataset=500 * GB, recovery_s=known(300, "s", origin=Origin.ASSUMED))
    rate = wal_rate(subject, "off", timeout_s=300)
    assert rate.value == pytest.approx(480 * 8192 + 240 * 500, rel=0.01)
    assert (
        ": 1,000 changes a second for each, but in all no more than the 241 whose pages the disk writes, of 16.5 kB"
        in rate.how
    )
    assert "; half as many already change more pages than the disk writes; at most a third" in rate.how
    tuning = derive(subject)
    assert not any(one.name == "pg_wal" for one in tuning.settings)
    interval = next(one for one in tuning.estimates if one.what == "checkpoint interval")
    assert interval.value > 120, "and not 2 s, as 264 MB/s would need"


def test_words_of_a_machine_with_one_cpu_and_little_memory_count_it_right() -> None:
    tuning = derive(make_subject("tiny", connections=20))
    assert any("connections on 1 CPU: use" in note for note in tuning.notes)
    assert any(" 1 work area of " in share.how for share in tuning.memory)
    work_mem = found(tuning, "work_mem")
    assert work_mem.value == "1664kB"
    assert work_mem.reason.endswith("so that each has as much of the built-in 4 MB as there is.")


def test_random_page_cost_is_the_manuals_where_its_suppositions_hold() -> None:
    # Forty times as slow, nine of ten cached: 4.
    forty = make_disk(DiskKind.HDD, iops=100, bytes_per_s=40 * 100 * 8192)
    assert value(make_subject(disk=forty), "random_page_cost") is None
    assert value(make_subject(dataset=3 * GB), "random_page_cost") == "1.1"
    assert value(make_subject(dataset=48 * GB), "random_page_cost") == "1.1", "0.1 × 6.1"
    # 150 MB/s are 18311 pages a second, 6.1 for each of 3000; of 48 GB the larger cache holds 22.27 - 3.
    scans = make_subject(dataset=48 * GB, workload=WorkloadClass.ANALYTIC)
    assert value(scans, "random_page_cost") == "3.7"


def test_reads_under_way_follow_littles_law() -> None:
    # Eight gp3 volumes in RAID 10: 24000 reads a second × 0.7 ms = 16.8.
    name = "effective_io_concurrency"
    subject = make_subject(major=15, disk=make_disk(iops=24_000))
    assert value(subject, name) == "17"
    assert "which is what this disk needs" in found(derive(subject), name).reason
    assert value(make_subject(major=18), name) is None, "16 is built in"
    # 3000 × 0.7 ms = 2.1.
    few = found(derive(make_subject(major=17)), name)
    assert (few.value, few.reason.split(", ")[-1]) == ("16", "while 3 would keep this disk busy.")
    # The same volumes, of which a read was measured to take longer.
    slower = make_disk(iops=24_000, read_s=known(0.0015, "s", name="random read latency"))
    assert value(make_subject(major=17, disk=slower), name) == "36"


FAST = make_disk(DiskKind.LOCAL_SSD, iops=3e6)


# Each worker reads one thing at a time, for all sessions: 24000 × 0.7 ms = 16.8, 300000 × 0.1 ms = 30, 3e6 × 0.1 ms = 300.
@each_row(
    [
        (make_disk(), {}, None, None),
        (make_disk(iops=24_000), {}, "17", "17"),
        (make_disk(DiskKind.LOCAL_SSD), {}, "30", "30"),
        (FAST, {}, "32", "32"),
        (FAST, {"io_workers": "20"}, "20", "20"),
        (FAST, {"io_workers": "5"}, "5", None),
        (FAST, {"io_max_concurrency": "24"}, "32", "24"),
        (FAST, {"io_method": "io_uring"}, None, "64"),
        (FAST, {"io_method": "io_uring", "io_max_concurrency": "500"}, None, "256"),
        (FAST, {"io_method": "sync"}, None, "256"),
    ]
)
def test_reads_of_version_18_are_what_its_io_method_does_at_once(
    disk: Disk, fixed: dict[str, str], workers: str | None, reads: str | None
) -> None:
    values = derive(make_subject(disk=disk), fixed=fixed).values_of(Target.POSTGRESQL)
    assert values.get("io_workers") == workers
    assert {values.get(f"{kind}_io_concurrency") for kind in ("effective", "maintenance")} == {reads}


@each_row(
    [
        (make_disk(), {}, "8", "16"),
        (FAST, {}, "32", "32"),
        (FAST, {"io_max_workers": "20"}, "20", "20"),
        (FAST, {"io_method": "sync"}, None, "256"),
    ]
)
def test_reads_of_version_19_are_what_its_pool_of_workers_grows_to(
    disk: Disk, fixed: dict[str, str], workers: str | None, reads: str
) -> None:
    tuning = derive(make_subject(major=19, disk=disk), fixed=fixed)
    values = tuning.values_of(Target.POSTGRESQL)
    assert (values.get("io_max_workers"), values["effective_io_concurrency"]) == (workers, reads)
    assert "io_workers" not in values
    assert workers != "20" or "at most the 20 of io_max_workers" in found(tuning, "effective_io_concurrency").formula


def test_what_limits_the_reads_of_version_18_is_told() -> None:
    tuning = derive(make_subject(disk=FAST))
    reads = found(tuning, "effective_io_concurrency")
    assert reads.reason == "one query's scan asks for this many reads at once, while 300 would keep this disk busy."
    assert "at most the 32 of io_workers" in reads.formula
    assert "each does one at a time" in found(tuning, "io_workers").reason
    assert "the sessions of four CPUs" in found(derive(make_subject("large")), "io_workers").reason


def test_the_background_writer_may_write_what_the_disk_takes_anywhere() -> None:
    name = "bgwriter_lru_maxpages"
    # In 50 ms: 150 of 3000 writes a second; 916 pages of 150 MB/s; of 150 writes a second 7.5, and 100 are built in.
    assert value(make_subject(), name) == "150"
    assert value(make_subject(disk=make_disk(iops=1e6)), name) == "916"
    assert value(make_subject(disk=make_disk(DiskKind.HDD)), name) is None


def test_vacuum_may_take_a_quarter_of_what_the_disk_writes() -> None:
    # 2 GB/s / 4 / 8 kB × 20 × 0.002 = 2441.
    assert value(make_subject(disk=make_disk(DiskKind.LOCAL_SSD)), "autovacuum_vacuum_cost_limit") == "2400"
    assert value(make_subject(), "autovacuum_vacuum_cost_limit") is None


def test_dirty_memory_follows_the_disk_and_not_the_memory() -> None:
    tuning = derive(make_subject("large", stall_s=2, disk=make_disk(bytes_per_s=128 * MB)))
    assert found(tuning, "vm.dirty_background_bytes").value == str(256 * MB)
    assert found(tuning, "vm.dirty_bytes").value == str(1024 * MB)
    stall = next(one for one in tuning.estimates if one.what.startswith("wait of a flush"))
    assert stall.value == pytest.approx(2)


def test_pages_that_piled_up_cost_a_disk_that_spins_a_seek_each() -> None:
    array = derive(make_subject(stall_s=2, disk=make_disk(DiskKind.HDD, iops=160, bytes_per_s=1500e6)))
    background = found(array, "vm.dirty_background_bytes")
    assert (background.value, found(array, "vm.dirty_bytes").value) == (str(64 * MB), str(256 * MB))
    assert "random write IOPS" in background.formula
    wait, longest = (one for one in array.estimates if "vm.dirty" in one.how)
    assert (wait.value, longest.value) == pytest.approx((64 * MB / 8192 / 160, 256 * MB / 8192 / 160))
    # A controller with a cache of its own writes more, as its card or the declaration has it.
    cached = derive(make_subject(stall_s=2, disk=make_disk(DiskKind.HDD, iops=8192, bytes_per_s=1500e6)))
    assert found(cached, "vm.dirty_background_bytes").value == str(128 * MB)


def test_dirty_memory_is_never_more_than_the_kernels_own() -> None:
    quick = make_disk(bytes_per_s=4 * GB)
    tuning = derive(make_subject(disk=quick))
    assert "vm.dirty_bytes" not in tuning.values_of(Target.SYSCTL)
    assert any("vm.dirty_background_bytes and vm.dirty_bytes are left alone" in note for note in tuning.notes)
    for name, now in (("vm.dirty_ratio", "80"), ("vm.dirty_background_bytes", str(8 * GB))):
        seen = {"vm.dirty_bytes": "0", "vm.dirty_background_bytes": "0", name: now}
        subject = make_subject(disk=quick, kernel=Kernel(sysctls=seen))
        values = derive(subject).values_of(Target.SYSCTL)
        assert int(values["vm.dirty_background_bytes"]) == pytest.approx(subject.memory.value / 10, rel=0.1)
        assert int(values["vm.dirty_bytes"]) == pytest.approx(subject.memory.value / 5, rel=0.1)


def test_swappiness_is_the_kernels_own_formula() -> None:
    # 2 × 6.1 = 12.2: 200 / 13.2.
    assert value(make_subject(kernel=Kernel(swap_bytes=GB)), "vm.swappiness") == "15"
    assert value(make_subject(), "vm.swappiness") is None


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (GB, "2"),
        (9 * GB, None),  # twice 9 of 16.9 GB
        (23 * GB, None),
        (None, None),  # not to be seen, or a machine that one does not have
    ],
)
def test_no_limit_on_promises_below_what_is_promised(committed: int | None, expected: str | None) -> None:
    tuning = derive(make_subject(kernel=Kernel(committed_bytes=committed)))
    settings = {one.name: one for one in tuning.settings}
    assert any("vm.overcommit_memory" in note for note in tuning.notes) == (expected is None)
    if expected is None:
        assert not {"vm.overcommit_memory", "vm.overcommit_ratio"} & settings.keys()
        return
    assert settings["vm.overcommit_memory"].value == expected
    assert [one.value for one in settings["vm.overcommit_memory"].inputs if one.name == "Committed_AS"] == [committed]
    names = list(settings)
    assert names.index("vm.overcommit_ratio") < names.index("vm.overcommit_memory")


@pytest.mark.parametrize("memory_gb", [8, 64, 2048])
def test_a_limit_on_promises_is_checked_in_the_whole_percents_that_it_has(memory_gb: int) -> None:
    def find(committed: float) -> DerivedSettings:
        return derive(make_subject("middle", memory=memory_gb * GB, kernel=Kernel(committed_bytes=round(committed))))

    low, high = 0.0, memory_gb * GB
    for _ in range(30):
        middle = (low + high) / 2
        is_limited = "vm.overcommit_memory" in find(middle).values_of(Target.SYSCTL)
        low, high = (middle, high) if is_limited else (low, middle)
    # The most that may be promised already.
    tuning = find(low)
    ratio, pages = (int(found(tuning, f"vm.{name}").value) for name in ("overcommit_ratio", "nr_hugepages"))
    in_pool = {"shared_buffers", "other shared memory", "rest of the last huge page"}
    ours = server_bytes(tuning.subject, [share for share in tuning.memory if share.what not in in_pool])
    assert 2 * low + ours == pytest.approx((memory_gb * GB - pages * 2 * MB) * ratio / 100, rel=1e-6)


def test_what_nobody_can_see_of_a_machine_elsewhere_is_told() -> None:
    there = msgspec.structs.replace(make_disk(), path="")
    told = [note for note in derive(make_subject(disk=there)).notes if {"vm.swappiness", "NUMA"} <= set(note.split())]
    assert len(told) == 1
    assert not any("vm.swappiness" in note for note in derive(make_subject()).notes)


def test_the_pool_of_huge_pages_is_large_enough_for_others_and_no_ordinary_memory() -> None:
    kernel = Kernel(committed_bytes=GB, sysctls={"vm.nr_hugepages": "0", "vm.overcommit_ratio": "50"})
    alone = derive(make_subject(kernel=kernel))
    shared = derive(make_subject(kernel=msgspec.structs.replace(kernel, others_huge_pages=1024)))
    pages = [int(found(each, "vm.nr_hugepages").value) for each in (alone, shared)]
    # The memory that others hold is not shared out: a quarter of 22 GB is for shared_buffers, and not of 24 GB.
    assert 1024 + 22 / 24 * pages[0] == pytest.approx(pages[1], rel=0.01)
    inputs = [one.value for one in found(shared, "vm.nr_hugepages").inputs if one.name == "huge pages of others"]
    assert inputs == [1024]
    assert found(with_huge_pages(shared, 3000), "vm.nr_hugepages").value == "4024"
    # 24 GB, of which 1.504 are reserved: half of that is not to be had, of what the pool leaves.
    for tuning, count in zip((alone, shared), pages, strict=True):
        ordinary = 24 * GB - count * 2 * MB
        expected = int(100 * (1 - (64 * MB + 0.06 * 24 * GB) / 2 / ordinary))
        assert found(tuning, "vm.overcommit_ratio").value == str(expected)


@each_row([("on", True), ("try", False), ("off", False)])
def test_few_shared_buffers_have_huge_pages_where_the_server_does_not_start_without(asked: str, is_on: bool) -> None:
    for settings, fixed in (({}, {"huge_pages": asked}), ({"huge_pages": asked}, {})):
        tuning = derive(make_subject("tiny", settings=settings), fixed=fixed)
        assert found(tuning, "shared_buffers").value == "128MB"
        pages = tuning.values_of(Target.SYSCTL).get("vm.nr_hugepages")
        assert (pages is not None and int(pages) > 64) == is_on


@pytest.mark.parametrize(("now", "is_told"), [("0", False), ("8192", True)])
def test_a_pool_that_becomes_smaller_is_told(now: str, is_told: bool) -> None:
    notes = derive(make_subject(kernel=Kernel(sysctls={"vm.nr_hugepages": now}))).notes
    assert any("vm.nr_hugepages is 8192 now" in note for note in notes) == is_told


def test_nothing_is_set_that_the_kernel_lacks() -> None:
    seen = {"vm.dirty_bytes": "0", "vm.dirty_background_bytes": "0"}
    tuning = derive(make_subject(kernel=Kernel(sysctls=seen, numa_nodes=2, swap_bytes=GB)))
    names = {one.name for one in tuning.settings}
    assert seen.keys() <= names
    assert not {"kernel.numa_balancing", "vm.swappiness", "kernel/mm/transparent_hugepage/enabled"} & names


def test_timing_waits_for_a_clock_that_was_measured() -> None:
    assert value(make_subject(), "track_io_timing") is None
    assert value(make_subject(clock_read_s=known(30e-9, "s")), "track_io_timing") == "on"
    slow = derive(make_subject(clock_read_s=known(2e-6, "s")))
    assert any("reading this clock is slow" in note for note in slow.notes)


def test_stripes_reach_file_system_and_read_ahead() -> None:
    array = Device(
        name="md0", kind="raid", scheduler=None, schedulers=(), read_ahead_kb=128, chunk_kb=256, data_disks=4
    )
    leaf = Device(
        name="nvme1n1", kind="disk", scheduler="mq-deadline", schedulers=("none", "mq-deadline"), read_ahead_kb=128
    )
    disk = make_disk(DiskKind.LOCAL_SSD, bytes_per_s=150e6, filesystem="xfs", devices=(array, leaf))
    subject = make_subject(disk=disk, workload=WorkloadClass.ANALYTIC)
    assert value(subject, "mkfs.xfs options of data") == "-d su=256k,sw=4"
    assert value(subject, "chunk of data") is None
    assert value(subject, "block/md0/queue/read_ahead_kb") == "2048"
    assert value(subject, "block/nvme1n1/queue/scheduler") == "none"
    network = msgspec.structs.replace(subject, disk=msgspec.structs.replace(disk, kind=DiskKind.NETWORK_SSD))
    assert value(network, "block/nvme1n1/queue/scheduler") is None
    ext4 = msgspec.structs.replace(subject, disk=msgspec.structs.replace(disk, filesystem="ext4"))
    assert value(ext4, "mkfs.ext4 options of data") == "-E stride=64,stripe_width=256"


@pytest.mark.parametrize(
    ("path", "chunk_kb", "trades"),
    [("/data", 64, "the array must be created again"), ("", 64, "the array must be created again"), ("", None, "")],
)
def test_a_chunk_is_chosen_before_what_is_aligned_with_it(path: str, chunk_kb: int | None, trades: str) -> None:
    array = Device(
        name="the array",
        kind="raid",
        scheduler=None,
        schedulers=(),
        read_ahead_kb=None,
        chunk_kb=chunk_kb,
        data_disks=4,
    )
    disk = msgspec.structs.replace(make_disk(devices=(array,)), path=path)
    tuning = derive(make_subject(disk=disk, workload=WorkloadClass.ANALYTIC))
    assert (found(tuning, "chunk of data").value, found(tuning, "chunk of data").trades) == ("128K", trades)
    assert found(tuning, "mkfs.xfs options of data").value == "-d su=128k,sw=4"
    # Of a machine that one does not have, it is advice.
    names = [one.name for one in tuning.settings if "read" in one.name and "ahead" in one.name]
    assert names == ([] if path else ["read-ahead of data"])
    assert path or found(tuning, "read-ahead of data").value == "1024 kB"


def test_read_ahead_is_what_is_under_way_in_one_reads_time() -> None:
    device = Device(name="sda", kind="disk", scheduler=None, schedulers=(), read_ahead_kb=128)
    # A slow flush says nothing of reads: 2 × 2 GB/s × 0.1 ms = 391 kB, in 4 binary digits.
    disk = make_disk(DiskKind.LOCAL_SSD, flush_s=5e-3, read_s=known(1e-4, "s"), devices=(device,))
    subject = make_subject(disk=disk, workload=WorkloadClass.MIXED)
    assert value(subject, "block/sda/queue/read_ahead_kb") == "384"
    unknown = msgspec.structs.replace(subject, disk=msgspec.structs.replace(disk, read_s=None))
    assert value(unknown, "block/sda/queue/read_ahead_kb") == "384", "0.1 ms are the kind's"
    btrfs = make_subject(disk=msgspec.structs.replace(subject.disk, filesystem="btrfs"), workload=subject.workload)
    assert value(btrfs, "block/sda/queue/read_ahead_kb") is None, "it has its own"


@pytest.mark.parametrize(
    ("data", "wal", "workload", "advised"),
    [
        ("sda", "sdb", WorkloadClass.OLTP_WRITE, {"sdb": "recovery"}),
        ("sda", "sdb", WorkloadClass.MIXED, {"sda": "table scan", "sdb": "recovery"}),
        ("sda", "sda", WorkloadClass.OLTP_WRITE, {}),
        ("sda", "sda", WorkloadClass.MIXED, {"sda": "table scan"}),
    ],
)
def test_wal_on_a_disk_of_its_own_is_read_in_sequence_by_recovery(
    data: str, wal: str, workload: WorkloadClass, advised: dict[str, str]
) -> None:
    disks = [
        make_disk(
            read_s=known(1e-3, "s"),
            devices=(Device(name=name, kind="disk", scheduler=None, schedulers=(), read_ahead_kb=128),),
        )
        for name in (data, wal)
    ]
    tuning = derive(make_subject(disk=disks[0], wal_disk=disks[1], workload=workload))
    seen = {one.name.split("/")[1]: one.reason for one in tuning.settings if one.name.endswith("read_ahead_kb")}
    assert seen.keys() == advised.keys()
    assert all(word in seen[name] for name, word in advised.items())
    declared = derive(
        make_subject(
            disk=msgspec.structs.replace(disks[0], path=""),
            wal_disk=msgspec.structs.replace(disks[1], path=""),
            workload=workload,
        )
    )
    assert "recovery" in found(declared, "read-ahead of pg_wal").reason


def test_files_that_are_never_overwritten_need_no_zeros() -> None:
    subject = make_subject(disk=make_disk(filesystem="btrfs"))
    assert (value(subject, "wal_init_zero"), value(subject, "wal_recycle")) == ("off", "off")
    assert value(make_subject(), "wal_init_zero") is None


def test_the_sum_by_hand() -> None:
    subject = make_subject("small", workload=WorkloadClass.ANALYTIC, kernel=Kernel(is_container=True))
    settings = {
        "shared_buffers": "1GB", "max_connections": "40", "work_mem": "10MB", "hash_mem_multiplier": "1.5",
        "max_parallel_workers": "4", "max_parallel_workers_per_gather": "2", "autovacuum_work_mem": "32MB",
        "maintenance_work_mem": "100MB", "wal_level": "logical", "max_wal_senders": "2",
    }  # fmt: skip
    shares = {share.what: share.bytes / MB for share in sum_memory(subject, settings)}
    # 10 of 40 at work; 4 areas of 10 MB × 1.5 for each; the OS: 64 MB and 6 % of 4 GB.
    assert shares.pop("other shared memory") == pytest.approx(16 + 4.8 * 0.9537 + 0.023 * 1024 + 3 * 2 + 16, abs=1)
    assert shares == {
        "shared_buffers": 1024,
        "connections": 80,
        "page tables": 40 * 2,
        "caches of sessions at work": 40,
        "sorts and hashes": 600,
        "parallel workers": 4 * (6 + 60),
        "temporary tables": 80,
        "autovacuum": 96,
        "maintenance": 100,
        "logical decoding": 128,
        "background processes": 24,
        "operating system": pytest.approx(64 + 0.06 * 4096),
    }


def test_connections_that_are_only_assumed_are_as_many_as_the_memory_bears() -> None:
    assumed = known(100, name="connections", origin=Origin.ASSUMED)
    # 512 / 16 = 32, in tens; where queries sort, half of it.
    assert value(make_subject("tiny", connections=assumed), "max_connections") == "40"
    for workload in WorkloadClass:
        tiny = make_subject("tiny", connections=assumed, workload=workload)
        assert value(tiny, "shared_buffers") == "128MB", "no less than an untuned server has"
    assert value(tiny, "max_connections") == "20"
    load = make_subject("small", memory=2 * GB, connections=assumed, active=75, workload=WorkloadClass.MIXED)
    assert value(load, "max_connections") == "80", "no fewer than are at work"
    guessed = msgspec.structs.replace(load, active=known(75, origin=Origin.ASSUMED))
    assert value(guessed, "max_connections") == "70"
    assert value(make_subject("vm", connections=assumed), "max_connections") == "100"


def test_workers_are_no_more_than_the_memory_bears() -> None:
    many = make_subject("small", cpus=64, memory=2 * GB, workload=WorkloadClass.ANALYTIC)
    assert value(many, "max_parallel_workers") == "16"


def test_a_pooler_is_advised_where_connections_outnumber_cpus() -> None:
    assert any("pooler" in note for note in derive(make_subject("vm")).notes)
    assert not any("pooler" in note for note in derive(make_subject("large")).notes)


def test_near_the_size_of_the_memory_no_byte_of_data_turns_the_cache_upside_down() -> None:
    """From half of the memory on, where the kernel's cache holds the data, as far as it does and beyond."""
    sizes = [choose_buffers(make_subject(dataset=tenths * GB / 10))[0] for tenths in range(110, 1200)]
    assert all(one / other < 1.4 for pair in itertools.pairwise(sizes) for one, other in (pair, pair[::-1]))
    assert min(sizes) > GB
    settings = {one.name: one for one in derive(make_subject(dataset=20 * GB)).settings}
    assert "has room for all data" in settings["shared_buffers"].reason
    assert "all of them should find a cache" in settings["random_page_cost"].reason


def test_what_the_user_insists_on_is_warned_of() -> None:
    notes = derive(make_subject(), fixed={"fsync": "off", "shared_buffers": "15GB"}).notes
    assert notes[0].startswith("fsync = off, which you set, gives up durability")
    assert any("leaves less than half of the memory" in note for note in notes)
    assert not any("you set" in note for note in derive(make_subject(), fixed={"shared_buffers": "2GB"}).notes)


@pytest.mark.parametrize(("available", "is_warned"), [(6 * GB, True), (20 * GB, False), (None, False)])
def test_a_machine_that_others_use_is_warned_of(available: int | None, is_warned: bool) -> None:
    notes = derive(make_subject(kernel=Kernel(available_bytes=available))).notes
    assert any("of the memory are free now" in note for note in notes) == is_warned


@each_row(
    [
        ("log_checkpoints", "off", "on"),
        ("autovacuum_max_workers", "3", "3"),  # set, wherever: a new file must not let an older one come through
        ("autovacuum_max_workers", "30", "3"),
        ("autovacuum_vacuum_cost_limit", "10", "-1"),
        ("checkpoint_timeout", "60", "5min"),
        ("io_workers", "1", "3"),
        ("random_page_cost", "1", "4.0"),
        ("huge_pages", "off", "try"),
        ("huge_pages", "on", "on"),
        ("max_worker_processes", "64", "64"),
        ("max_worker_processes", "2", "8"),
        ("temp_buffers", "2048", None),
        ("synchronous_commit", "off", None),
    ]
)
def test_what_the_server_has_is_put_back_where_a_rule_wants_it_and_else_stays(
    name: str, now: str, expected: str | None
) -> None:
    disk = make_disk(DiskKind.HDD, iops=100, bytes_per_s=40 * 100 * 8192)
    tuned = make_subject(disk=disk, settings={name: now})
    assert value(tuned, name) == expected
    if name != "huge_pages":
        assert value(make_subject(disk=disk), name) is None


@pytest.mark.parametrize("given", [{"is_left": True}, {"is_container": True}])
@pytest.mark.parametrize(("pages", "expected"), [("9000", None), ("8200", "try"), ("0", "try")])
def test_huge_pages_are_not_insisted_on_where_the_pool_stays_too_small(
    given: dict[str, bool], pages: str, expected: str | None
) -> None:
    kernel = Kernel(**given, sysctls={"vm.nr_hugepages": pages, "vm.swappiness": "60"}, transparent_huge_pages="always")
    subject = make_subject("middle", kernel=kernel, settings={"huge_pages": "on"})
    tuning = derive(subject)
    assert value(subject, "shared_buffers") == "16GB"
    assert value(subject, "huge_pages") == expected
    assert any(share.what == "page tables" for share in tuning.memory) is (expected == "try")
    assert not tuning.of(Target.SYSCTL) + tuning.of(Target.SYSFS)
    assert value(subject, "huge_pages", huge_pages="on") == "on"
    assert value(msgspec.structs.replace(subject, settings={}), "huge_pages") is None


def test_what_stays_as_the_server_has_it_counts_in_the_sum() -> None:
    plain = make_subject("middle", workload=WorkloadClass.MIXED)
    own = {"temp_buffers": "131072", "hash_mem_multiplier": "100", "wal_buffers": "16384", "max_wal_senders": "90"}
    counted = msgspec.structs.replace(plain, settings=own)
    before, after = (
        {share.what: share.bytes for share in sum_memory(each, {"max_connections": "40"})} for each in (plain, counted)
    )
    assert after["temporary tables"] == before["temporary tables"] * 128
    assert after["sorts and hashes"] == before["sorts and hashes"] * 50
    assert after["other shared memory"] == before["other shared memory"] + 128 * MB - 4 * MB
    # 85 at work: 85 GB of 64.
    with pytest.raises(SpecError, match="in the worst case") as caught:
        derive(counted)
    assert "temporary tables: 85 × 1 GB" in caught.value.detail
    assert "the server's own temp_buffers = 1GB, hash_mem_multiplier = 100 counts" in caught.value.hint
    with pytest.raises(SpecError) as caught:
        derive(counted, fixed={"temp_buffers": "2GB"})
    assert "the server's own hash_mem_multiplier = 100 counts" in caught.value.hint
    fits = derive(counted, fixed={"temp_buffers": "8MB"})
    assert sum(share.bytes for share in fits.memory) <= 64 * GB
    assert found(fits, "work_mem").value < found(derive(plain), "work_mem").value
    assert any(note.startswith("the server's own hash_mem_multiplier = 100 makes") for note in fits.notes)
    assert not any("server's own" in note for note in derive(plain).notes)


def test_what_a_vacuum_may_do_is_not_what_somebody_set_for_all() -> None:
    assert value(make_subject(settings={"vacuum_cost_limit": "10"}), "autovacuum_vacuum_cost_limit") == "200"


def test_what_the_server_gives_up_is_told_and_kept() -> None:
    tuning = derive(make_subject(settings={"synchronous_commit": "off", "fsync": "on"}))
    assert tuning.notes[0].startswith("synchronous_commit = off, which the server keeps unless you --set it, gives up")
    assert "synchronous_commit" not in {one.name for one in (*tuning.settings, *tuning.what_ifs)}
    right = derive(tuning.subject, fixed={"synchronous_commit": "on"})
    assert not any("synchronous_commit" in note for note in right.notes)
    assert found(right, "synchronous_commit").value == "on"


def test_a_server_keeps_its_connections() -> None:
    own = known(57, name="connections", origin=Origin.MEASURED)
    assert value(make_subject(connections=own), "max_connections") == "57"

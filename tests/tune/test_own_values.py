"""What the server's own values, other programs and the limits of settings change in what is derived."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.tune.derive import derive
from pgdyno.tune.memory import total_bytes
from pgdyno.tune.types import DerivedSettings, Kernel, Origin, WorkloadClass
from tests.rows import each_row
from tests.tune.subjects import GB, MB, known, make_disk, make_pooling, make_subject


def value(tuning: DerivedSettings, name: str) -> str | None:
    return next((one.value for one in tuning.settings if one.name == name), None)


@pytest.mark.parametrize(("major", "most"), [(15, "120"), (16, "140"), (18, "140")])
def test_reserved_connections_are_added_where_the_version_has_them(major: int, most: str) -> None:
    settings = {"reserved_connections": "20"} if major >= 16 else {}
    tuning = derive(make_subject(major=major, settings=settings))
    assert value(tuning, "max_connections") == most


def test_reserved_connections_are_added_to_a_pool() -> None:
    pooling = make_pooling(500, size=known(60, name="pool size"))
    tuning = derive(make_subject(connections=500, pooling=pooling, settings={"reserved_connections": "30"}))
    assert value(tuning, "max_connections") == "100", "60, 6 to spare, 3 and 30 reserved, in tens"


@pytest.mark.parametrize(
    ("segment_mb", "least", "most"), [(16, "80MB", "1GB"), (64, "128MB", "1GB"), (1024, "2GB", "2GB")]
)
def test_wal_holds_two_segments_of_the_servers_size(segment_mb: int, least: str, most: str) -> None:
    subject = make_subject(
        "small", workload=WorkloadClass.OLTP_READ, dataset=100 * MB, wal_segment_bytes=segment_mb * MB, settings={"min_wal_size": "320"}
    )  # fmt: skip
    tuning = derive(subject)
    assert (value(tuning, "min_wal_size"), value(tuning, "max_wal_size")) == (least, most)
    for name in ("min_wal_size", "max_wal_size"):
        with pytest.raises(SpecError, match=f"{name} = {2 * segment_mb - 1}MB does not start"):
            derive(subject, fixed={name: f"{2 * segment_mb - 1}MB"})


def test_wal_buffers_are_a_segment_of_the_servers_size_by_themselves() -> None:
    subject = make_subject("middle", wal_bytes_per_s=150e6)
    assert value(derive(subject), "wal_buffers") == "28MB"
    assert value(derive(msgspec.structs.replace(subject, wal_segment_bytes=64 * MB)), "wal_buffers") is None


@pytest.mark.parametrize("data_tb", [None, 1, 10, 100])
@pytest.mark.parametrize("memory_tb", [17, 32, 33, 64])
@pytest.mark.parametrize("workload", [WorkloadClass.OLTP_WRITE, WorkloadClass.ANALYTIC])
def test_sizes_stay_within_what_the_server_takes(workload: WorkloadClass, memory_tb: int, data_tb: int | None) -> None:
    data = {} if data_tb is None else {"dataset": data_tb * 1024 * GB}
    tuning = derive(make_subject("large", memory=memory_tb * 1024 * GB, workload=workload, **data))
    buffers = value(tuning, "shared_buffers")
    if memory_tb >= 32 and data_tb is None:
        assert buffers == "7680GB", "the most of 4 binary digits below 8 TB"
    assert value(tuning, "effective_cache_size") == "15360GB"


@pytest.mark.parametrize(
    ("name", "shown", "words"),
    [
        ("huge_pages", "off", ("no", "false", "0", "OFF")),
        ("huge_pages", "on", ("yes", "true", "ON", "1")),
        ("track_io_timing", "on", ("true", "yes", "1", "T")),
        ("wal_level", "logical", ("Logical", "LOGICAL")),
    ],
)
def test_a_fixed_value_counts_in_any_spelling(name: str, shown: str, words: tuple[str, ...]) -> None:
    subject = make_subject(clock_read_s=known(30e-9, "s", name="reading the clock"), standbys=known(1))
    expected = derive(subject, fixed={name: shown})
    assert all(derive(subject, fixed={name: word}) == expected for word in words)
    assert (value(expected, "vm.nr_hugepages") is None) == (shown == "off")


def test_the_pool_has_pages_of_the_size_that_the_server_asks_for() -> None:
    subject, own = make_subject(), {"huge_page_size": "1GB"}
    away = msgspec.structs.replace(subject, disk=msgspec.structs.replace(subject.disk, path=""))
    usual, large, here = derive(away), derive(away, fixed=own), derive(subject, fixed=own)
    assert value(derive(subject, fixed={"huge_page_size": "2MB"}), "vm.nr_hugepages") == value(usual, "vm.nr_hugepages")
    assert value(large, "vm.nr_hugepages") == str(-(-int(value(usual, "vm.nr_hugepages") or 0) // 512))
    assert any(note.startswith("vm.nr_hugepages counts pages of 1 GB, which must be") for note in large.notes)
    # Here the kernel's own pages have 2 MB, and vm.nr_hugepages makes none of another size.
    assert value(here, "vm.nr_hugepages") is None
    assert any("/hugepages-1048576kB/nr_hugepages" in note for note in here.notes)
    assert not any("vm.nr_hugepages" in note for note in usual.notes)


def test_huge_pages_of_other_programs_are_not_shared_out() -> None:
    kernel = Kernel(others_huge_pages=14_000)
    tuning = derive(make_subject(memory=32 * GB, kernel=kernel))
    assert int(value(tuning, "vm.nr_hugepages") or 0) * 2 * MB < 32 * GB
    shares = {share.what: share.bytes for share in tuning.memory}
    assert shares["huge pages of other programs"] == 14_000 * 2 * MB
    assert total_bytes(tuning.memory) <= 32 * GB
    assert value(tuning, "shared_buffers") == "1GB", "a quarter of what is left"
    inside = derive(make_subject(memory=32 * GB, kernel=Kernel(is_container=True, others_huge_pages=14_000)))
    assert value(inside, "shared_buffers") == "8GB", "they are outside of its memory"


def test_huge_pages_of_other_programs_count_once_against_overcommit() -> None:
    def ratio(others: int, committed: int) -> str | None:
        kernel = Kernel(others_huge_pages=others, committed_bytes=committed)
        return value(derive(make_subject(memory=64 * GB, kernel=kernel)), "vm.overcommit_ratio")

    # Subtracted twice, 24 GB of them would leave nothing that a limit could be for.
    assert ratio(12_000, 2 * GB) is not None
    assert ratio(12_000, 30 * GB) is None


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({}, "200"),
        ({"autovacuum_vacuum_cost_delay": "20"}, "1800"),
        ({"autovacuum_vacuum_cost_delay": "-1", "vacuum_cost_delay": "10"}, "900"),
        ({"vacuum_cost_page_dirty": "200"}, "1800"),
        ({"autovacuum_vacuum_cost_delay": "0"}, None),
        ({"autovacuum_vacuum_cost_delay": "-1"}, None),
    ],
)
def test_the_cost_limit_follows_the_costs_in_force(settings: dict[str, str], limit: str | None) -> None:
    tuning = derive(make_subject(settings=settings))
    assert value(tuning, "autovacuum_vacuum_cost_limit") == (None if limit == "200" else limit)
    is_left = any("autovacuum_vacuum_cost_limit is left alone" in note for note in tuning.notes)
    assert is_left == (limit is None)


@pytest.mark.parametrize(
    ("bytes_per_s", "delay_ms", "words"),
    [
        (2e9, 2, "vacuum may use a quarter of"),
        (2e9, 20, "the most that the server takes, and less than a quarter"),
        (50e6, 2, "the built-in limit, and more than a quarter"),
    ],
)
def test_the_reason_for_the_cost_limit_says_where_it_is_no_quarter(
    bytes_per_s: float, delay_ms: int, words: str
) -> None:
    settings = {"autovacuum_vacuum_cost_limit": "777", "autovacuum_vacuum_cost_delay": str(delay_ms)}
    tuning = derive(make_subject(disk=make_disk(bytes_per_s=bytes_per_s), settings=settings))
    (limit,) = (one for one in tuning.settings if one.name == "autovacuum_vacuum_cost_limit")
    assert words in limit.reason


def test_any_of_many_standbys_keeps_commits_only_if_the_furthest_one_takes_over() -> None:
    for count in (1, 2):
        tuning = derive(make_subject(standbys=known(count, name="standbys")))
        (note,) = (one for one in tuning.notes if "synchronous_standby_names" in one)
        assert ("if the standby that has most of the WAL takes over" in note) == (count > 1)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (100e6, "max_wal_size is full sooner"),
        # It is full after 311 s, and the clock starts checkpoints after 300 s.
        (10e6, "max_wal_size lasts this long, except in a busier hour"),
        (1e5, "max_wal_size lasts this long."),
    ],
)
def test_the_reason_for_a_timeout_says_what_starts_checkpoints(rate: float, words: str) -> None:
    tuning = derive(make_subject(wal_bytes_per_s=rate, settings={"checkpoint_timeout": "1200"}))
    (timeout,) = (one for one in tuning.settings if one.name == "checkpoint_timeout")
    assert words in timeout.reason


@each_row(
    [
        ({}, ("36", "32", "8", "4")),
        ({"max_worker_processes": "4"}, ("4", "4", "4", "4")),
        ({"max_parallel_workers": "2"}, (None, "2", None, None)),  # 2 are built in
        ({"max_parallel_workers": "40"}, ("44", "40", "8", "4")),
        ({"max_parallel_workers_per_gather": "1"}, ("36", "32", "1", "4")),
    ]
)
def test_workers_are_no_more_than_the_user_allows(fixed: dict[str, str], wanted: tuple[str | None, ...]) -> None:
    tuning = derive(make_subject("middle", cpus=64, workload=WorkloadClass.MIXED), fixed=fixed)
    names = ("max_worker_processes", "max_parallel_workers", "max_parallel_workers_per_gather")
    assert tuple(value(tuning, name) for name in (*names, "max_parallel_maintenance_workers")) == wanted


def test_autovacuum_has_no_more_workers_than_slots() -> None:
    large = make_subject("large")
    assert value(derive(large), "autovacuum_max_workers") == "10"
    assert value(derive(large, fixed={"autovacuum_worker_slots": "4"}), "autovacuum_max_workers") == "4"
    own = msgspec.structs.replace(large, settings={"autovacuum_worker_slots": "5"})
    assert value(derive(own), "autovacuum_max_workers") == "5"


ASSUMED = {
    "connections": known(100, name="connections", origin=Origin.ASSUMED),
    "active": known(64, name="active sessions", origin=Origin.ASSUMED),
}


@each_row(
    [
        (ASSUMED, "3000", (3000, 64)),
        (ASSUMED, "20", (20, 20)),
        (ASSUMED | {"connections": known(100, origin=Origin.MEASURED)}, "300", (300, 64)),
        ({"connections": 500, "active": 400}, "300", (300, 300)),
        ({"connections": 100, "active": 8}, "300", (100, 8)),  # the user says that there are fewer
    ]
)
def test_all_is_derived_for_the_connections_that_the_user_lets_in(
    said: dict[str, Any], fixed: str, wanted: tuple[float, float]
) -> None:
    tuning = derive(make_subject("middle", **said), fixed={"max_connections": fixed})
    assert (tuning.subject.connections.value, tuning.subject.active.value) == wanted
    work_mem = next(one for one in tuning.settings if one.name == "work_mem")
    assert [one.value for one in work_mem.inputs[1:]] == [*wanted]
    assert any("connections on 16 CPUs" in note for note in tuning.notes) == (wanted[0] > 256)
    asked = derive(make_subject("middle", connections=wanted[0], active=wanted[1]))
    assert value(tuning, "effective_cache_size") == value(asked, "effective_cache_size")


def test_a_pooler_is_told_the_connections_that_the_user_lets_in() -> None:
    subject = make_subject(connections=500, pooling=make_pooling(500))
    notes = derive(subject, fixed={"max_connections": "200"}).notes
    assert [note[:21] for note in notes if note.startswith("max_connections = ")] == ["max_connections = 200"]

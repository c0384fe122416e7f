from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, SpecError
from pgdyno.plan.plan import BYTES_PER_SCALE, Machine, Plan, plan_study
from pgdyno.report.restore_words import describe_between
from pgdyno.spec.read import make_study

DISK = {"read_bytes_per_s": 200e6, "write_bytes_per_s": 100e6}
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=200_000_000_000, **DISK)
LARGE, SMALL = 2000, 20
LOADED_WAL = 4_300_000_000
# What memory has kept of data that it cannot hold.
KEPT = 0.7 * 0.7 * (8 << 30)
COMMAND = {"restore": "command", "restore_command": "true"}


def plan_for(
    data: dict[str, object], *, workload: str = "tpcb-like", machine: Machine = MACHINE, **tables: object
) -> Plan:
    raw = {"workload": [{"name": workload}], "data": data, **tables}
    return plan_study(make_study(raw, source="test", folder=Path()), machine)


def test_the_time_between_trials_of_each_policy() -> None:
    size = LARGE * BYTES_PER_SCALE
    read_s, write_s = size / 200e6, size / 100e6
    compared_s, warmed_s = (2 * size - KEPT) / 200e6, (size - KEPT) / 200e6
    changed_s = 3000 * 8192 * 35 / 100e6
    # Only the first copy brings the WAL that loading left.
    wal_s = LOADED_WAL / 100e6 + LOADED_WAL / 200e6
    rows = [
        # Policy, load, restoring, warming, and what only the first trial takes.
        ({}, "tpcb-like", changed_s + compared_s, warmed_s, write_s + read_s - compared_s - changed_s + wal_s),
        ({}, "select-only", 0.0, warmed_s, write_s + read_s + wal_s),
        ({"restore": "none"}, "tpcb-like", changed_s, warmed_s, write_s + read_s + wal_s),
        ({"restore": "none"}, "select-only", 0.0, warmed_s, write_s + read_s + wal_s),
        (COMMAND, "tpcb-like", 0.0, warmed_s, 0.0),
    ]
    for data, workload, restore_s, warm_s, first_s in rows:
        plan = plan_for({"scale": LARGE, **data}, workload=workload)
        between = plan.between
        assert between is not None
        found = (between.restore_s, between.warm_s, between.first_s)
        assert found == pytest.approx((restore_s, warm_s, first_s)), (data, workload)
        first, second, third = (step.predicted_s for step in plan.steps if step.trial is not None)
        assert second == third == pytest.approx(restore_s + warm_s + 2 + 35)
        assert first - second == pytest.approx(first_s)


def test_pages_here_and_there_and_comparing_them_take_their_own_time() -> None:
    size = LARGE * BYTES_PER_SCALE
    changed_pages, compared_s = 3000 * 35, (2 * size - KEPT) / 200e6
    rows = [
        ("a disk of few writes", {"random_write_iops": 1500.0}, changed_pages / 1500 + compared_s),
        ("fewer than it takes to write all", {"random_write_iops": 10.0}, size / 100e6 + compared_s),
        ("a disk that waits for CPUs", {"read_bytes_per_s": 8e9}, changed_pages * 8192 / 100e6 + 2 * size / 3.8e9),
        ("one CPU", {"read_bytes_per_s": 8e9, "cpu_count": 1}, changed_pages * 8192 / 100e6 + 2 * size / 1.9e9),
    ]
    for name, changes, restore_s in rows:
        between = plan_for({"scale": LARGE}, machine=msgspec.structs.replace(MACHINE, **changes)).between
        assert between is not None
        assert between.restore_s == pytest.approx(restore_s), name


def test_warming_waits_for_the_disk_or_for_the_cpus_of_those_who_read() -> None:
    large, small = LARGE * BYTES_PER_SCALE, SMALL * BYTES_PER_SCALE
    fast = {"read_bytes_per_s": 8e9}
    # What one CPU takes for what memory has kept, and for the rest.
    one_cpu_s = KEPT / 2.2e9 + (large - KEPT) / 0.9e9
    rows = [
        ("the disk", LARGE, {}, {}, (large - KEPT) / 200e6),
        ("both CPUs", LARGE, fast, {}, one_cpu_s / 2),
        ("three processes that read", LARGE, {**fast, "cpu_count": 8}, {}, one_cpu_s / 3),
        ("the session reads by itself", LARGE, {**fast, "version_major": 17}, {}, one_cpu_s),
        ("memory holds it", SMALL, {}, {}, small / 4.4e9),
        ("nothing is warmed", LARGE, {}, {"cache": "cold"}, 0.0),
        ("nothing is warmed", LARGE, {}, {"cache": "asis"}, 0.0),
    ]
    for name, scale, changes, trials, warm_s in rows:
        machine = msgspec.structs.replace(MACHINE, **changes)
        between = plan_for({"scale": scale}, machine=machine, trials=trials).between
        assert between is not None
        assert between.warm_s == pytest.approx(warm_s), name


def test_scripts_and_caches_of_variants_count_as_those_of_the_study() -> None:
    writes = plan_for({"scale": LARGE}).between
    reads = plan_for({"scale": LARGE}, workload="select-only").between
    cold = plan_for({"scale": LARGE}, trials={"cache": "cold"}).between
    both = [{"name": "r", "scripts": ["select-only"]}, {"name": "w", "scripts": ["tpcb-like"]}]
    reading = [{"name": "a", "scripts": ["select-only"]}, {"name": "b", "scripts": ["select-only@2"]}]
    paired = {"design": "paired"}
    rows = [
        ("select-only", "warm", both, writes),
        ("tpcb-like", "warm", both, writes),
        ("tpcb-like", "warm", reading, reads),
        ("select-only", "warm", [{"name": "as it is"}, both[1]], writes),
        ("tpcb-like", "warm", [{"name": "as it is"}, both[0]], writes),
        ("tpcb-like", "cold", [{"name": "c"}, {"name": "w", "cache": "warm"}], writes),
        ("tpcb-like", "warm", [{"name": "c", "cache": "cold"}, {"name": "a", "cache": "asis"}], cold),
    ]
    for workload, cache, variants, expected in rows:
        trials = {"cache": cache}
        plan = plan_for({"scale": LARGE}, workload=workload, trials=trials, variant=variants, experiment=paired)
        assert plan.between == expected, (workload, cache, variants)


def test_a_copy_of_data_that_memory_holds_goes_at_the_rate_of_writing() -> None:
    small = plan_for({"scale": SMALL}).between
    assert small is not None
    # Loading leaves about as much WAL as there are data, if these are few.
    each_s = pytest.approx(SMALL * BYTES_PER_SCALE / 100e6)
    assert (small.restore_s, small.first_s) == (each_s, each_s)


def test_the_words_of_each_policy() -> None:
    rows = [
        (
            {},
            "restore the copy 5 min 2 s, warm the caches 2 min 16 s, stop and start 2 s, before the first trial 3 min 54 s",
        ),
        ({"restore": "none"}, "no restoring, but write what a trial has changed 8.60 s, warm"),
        (COMMAND, "the restore command, whose time is not known, warm the caches"),
    ]
    for data, said in rows:
        plan = plan_for({"scale": LARGE, **data})
        assert plan.between is not None
        assert describe_between(plan.between).startswith(said)
    reads = plan_for({"scale": LARGE, "restore": "none"}, workload="select-only").between
    assert reads is not None
    assert describe_between(reads).startswith("no restoring, warm")


def test_a_snapshot_needs_no_room_for_a_copy() -> None:
    tight = msgspec.structs.replace(MACHINE, disk_free_bytes=round(1.5 * LARGE * BYTES_PER_SCALE))
    with pytest.raises(HostError, match="does not fit"):
        plan_for({"scale": LARGE}, machine=tight)
    plan_for({"scale": LARGE, **COMMAND}, machine=tight)
    full = msgspec.structs.replace(tight, disk_free_bytes=10**9, loaded_scales=frozenset({LARGE}))
    with pytest.raises(HostError) as caught:
        plan_for({"scale": LARGE, **COMMAND}, machine=full)
    assert "working copy" not in caught.value.detail


def test_variants_that_need_data_of_their_own_are_restored() -> None:
    same = [{"settings": {"work_mem": "4MB"}}, {"settings": {"shared_buffers": "1GB"}}]
    plan_for({"scale": SMALL, "restore": "none"}, variant=same)
    for variants in ([{"scale": 10}, {"scale": 20}], [{"server": "embedded"}, {"server": 15}]):
        with pytest.raises(SpecError, match="need their data restored"):
            plan_for({"scale": SMALL, "restore": "none"}, variant=variants)
    with pytest.raises(SpecError, match="cannot be compared live") as caught:
        plan_for({"scale": SMALL, "restore": "none"}, variant=same, experiment={"design": "live"})
    assert "restore = none" in caught.value.detail

"""What holds for every derived set, whatever it is derived for."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pgdyno.tune
from pgdyno.errors import HostError, SpecError
from pgdyno.facts.durability import find_given_up
from pgdyno.facts.famous_lines import famous_names
from pgdyno.facts.gucs import ChangeCost, change_cost, find_guc, read_value, same_value
from pgdyno.tune.checkpoints import wal_distance_bytes
from pgdyno.tune.derive import derive, leave_out, with_huge_pages
from pgdyno.tune.draft import KB, round_up
from pgdyno.tune.layers import choose_trial_set
from pgdyno.tune.memory import sum_memory, total_bytes
from pgdyno.tune.types import DerivedSettings, DiskKind, Kernel, Origin, Target, TuningSubject, WorkloadClass
from pgdyno.units import parse_in_unit
from tests.examples import TIMES
from tests.tune.subjects import GB, MACHINES, MB, grid, known, make_disk, make_subject


def postgresql(tuning: DerivedSettings) -> dict[str, str]:
    return {one.name: one.value for one in tuning.of(Target.POSTGRESQL)}


def in_units(tuning: DerivedSettings, name: str) -> float:
    """A number in the setting's own unit; what is built in where it is not derived."""
    major = tuning.subject.major
    guc = find_guc(name, major)
    assert guc is not None
    return float(read_value(guc, postgresql(tuning).get(name, guc.boot or "")))


@pytest.fixture(scope="module")
def tunings() -> list[DerivedSettings]:
    return [derive(subject) for subject in grid()]


def test_every_value_says_why_from_what_and_by_whom(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        for one in (*tuning.settings, *tuning.what_ifs):
            assert one.value, one.name
            assert one.reason[0].islower(), one
            assert one.reason.endswith("."), one
            assert ". " not in one.reason, f"more than one sentence: {one.reason}"
            assert one.source, one.name
            assert one.formula, one.name
            assert one.inputs or one.formula.startswith("no input: "), one.name
            assert all(each.how and each.name for each in one.inputs), one.name
            assert (one.change is None) == (one.target is Target.STORAGE), one.name
            assert not one.trades.endswith("."), one.trades


def test_each_setting_is_in_one_layer_or_left_out_with_a_reason(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        chosen = choose_trial_set(tuning, fixed={}, refused={})
        tried = [one.name for layer in chosen.layers for one in layer.settings]
        assert sorted([*tried, *chosen.left_out]) == sorted(one.name for one in tuning.settings)
        assert all(chosen.left_out.values())
        assert all(layer.settings for layer in chosen.layers)


def test_every_name_that_layers_decide_arises(tunings: list[DerivedSettings]) -> None:
    arisen = {one.name for tuning in tunings for one in tuning.settings}
    decided = read_decided_names()
    assert len(decided) >= 40
    assert decided <= arisen
    devices = {re.sub("(md0|nvme1n1)", "DEVICE", name) for name in arisen if "/" in name or " " in name}
    assert devices == {
        "kernel/mm/transparent_hugepage/enabled", "block/DEVICE/queue/scheduler", "block/DEVICE/queue/read_ahead_kb",
        "read-ahead of data", "chunk of data", "mkfs.xfs options of data", "mount options of data", "mount options of pg_wal",
    }  # fmt: skip


def read_decided_names() -> set[str]:
    """PostgreSQL's and the kernel's settings that the layers name, but for those that they only ask for."""
    named: set[str] = set()
    for path in Path(pgdyno.tune.__path__[0], "rules").glob("[a-z]*.py"):
        tree = ast.parse(path.read_text())
        asked = {
            id(part)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and re.search(r"\b(number|text|guc|get|is_fixed)$", ast.unparse(call.func))
            for argument in call.args
            for part in ast.walk(argument)
        }
        named |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in asked
        }
    return {name for name in named if re.fullmatch(r"(vm|kernel|net\.core)\.(?!rst)\w+", name) or find_guc(name, 18)}


def test_what_costs_nothing_is_known_to(tunings: list[DerivedSettings]) -> None:
    dear = {one.name for tuning in tunings for one in tuning.settings if one.trades}
    free = {one.name for tuning in tunings for one in tuning.settings} - dear
    assert free == {
        "commit_delay", "effective_cache_size", "net.core.somaxconn", "LimitNOFILE", "PG_OOM_ADJUST_FILE",
        "vm.overcommit_ratio",
    }  # fmt: skip


def test_postgresql_takes_every_value(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        major = tuning.subject.major
        for name, value in postgresql(tuning).items():
            guc = find_guc(name, major)
            assert guc is not None, f"{major} has no {name}"
            read = read_value(guc, value)
            assert read not in tuning.subject.missing_values.get(name, ()), name
            assert change_cost(name, major) not in {ChangeCost.FIXED, ChangeCost.INITDB}


def test_the_sum_fits_the_memory(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        assert total_bytes(tuning.memory) <= tuning.subject.memory.value
        assert {"shared_buffers", "connections", "operating system"} <= {share.what for share in tuning.memory}
        # And no less so where the kernel has no huge pages, of which `try` says nothing.
        without = sum_memory(tuning.subject, {**postgresql(tuning), "huge_pages": "off"})
        assert total_bytes(without) <= tuning.subject.memory.value


def test_sorts_and_hashes_take_what_formula_and_reason_say(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        work_mem = next(one for one in tuning.settings if one.name == "work_mem")
        lines = {share.what: share for share in tuning.memory}
        at_work = int(lines["sorts and hashes"].how.split()[0])
        workers = int(lines["parallel workers"].how.split()[0]) if "parallel workers" in lines else 0
        value = in_units(tuning, "work_mem") * KB
        each = lines["sorts and hashes"].bytes / at_work
        sorts = (at_work + workers) * each
        memory = tuning.subject.memory.value - total_bytes(tuning.memory) + sorts
        left = memory / ((at_work + workers) * each / value)
        share = float(work_mem.formula.split("left × ")[1].split()[0])
        most = parse_in_unit(work_mem.formula.rsplit(" to ", 1)[1], "kB", is_integer=False) * KB
        expected = max(64 * KB, min(most, max(left * share, min(left, 4 * MB))))
        # Which is rounded down to four binary digits.
        assert value <= expected < value * 9 / 8 + KB, work_mem
        if f"at most {share:.0%}" in work_mem.reason:
            assert sorts <= share * memory
        else:
            assert sorts <= (float(work_mem.reason.split(" take ")[1].split("%")[0]) / 100 + 0.005) * memory


def test_durability_is_never_given_up_and_what_would_is_told_apart(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        major = tuning.subject.major
        assert not find_given_up(postgresql(tuning), major)
        for one in tuning.what_ifs:
            (loss,) = find_given_up({one.name: one.value}, major)
            assert loss.is_durability
            assert one.trades == loss.label
        names = {one.name for one in tuning.what_ifs}
        assert names == (
            set()
            if tuning.subject.workload is WorkloadClass.OLTP_READ
            else {"fsync", "full_page_writes", "synchronous_commit"}
        )


def test_no_name_is_set_twice(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        names = [(one.target, one.name) for one in tuning.settings]
        assert len(names) == len(set(names))


def test_a_container_and_who_wants_none_are_given_nothing_of_the_kernel(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        kernel = tuning.of(Target.SYSCTL) + tuning.of(Target.SYSFS)
        assert bool(kernel) is not tuning.subject.kernel.is_unchangeable


def test_wal_fits_the_disk_and_the_time_for_recovery(tunings: list[DerivedSettings]) -> None:
    for tuning in tunings:
        subject = tuning.subject
        free = (subject.wal_disk or subject.disk).free_bytes.value
        assert in_units(tuning, "max_wal_size") * MB <= free
        assert in_units(tuning, "min_wal_size") <= in_units(tuning, "max_wal_size")
        recovery = next(one for one in tuning.estimates if one.what == "recovery after a crash")
        assert recovery.value <= subject.recovery_s.value
        assert all(math.isfinite(one.value) and one.value > 0 for one in tuning.estimates)


SUBJECTS = st.builds(
    make_subject,
    st.sampled_from(sorted(MACHINES)),
    major=st.sampled_from([15, 16, 17, 18]),
    workload=st.sampled_from(WorkloadClass),
    memory=st.integers(512, 2_000_000).map(lambda mb: mb * MB),
    cpus=st.integers(1, 256),
    connections=st.integers(1, 3000),
    active=st.integers(1, 600),
    dataset=st.floats(1e6, 1e14),
    disk=st.builds(make_disk, iops=st.floats(50, 2e6), bytes_per_s=st.floats(2e7, 2e10), free=st.floats(1e9, 1e14)),
    kernel=st.builds(Kernel, is_container=st.booleans(), page_bytes=st.sampled_from([4096, 65536])),
    recovery_s=st.floats(5, 7200),
    stall_s=st.floats(0.05, 30),
)


@given(SUBJECTS)
@settings(max_examples=120 * TIMES, deadline=None)
def test_a_set_fits_and_is_legal_or_the_sum_is_told(subject: TuningSubject) -> None:
    try:
        tuning = derive(subject)
    except SpecError as error:
        told = error
    else:
        told = None
    if told is not None:
        assert "in the worst case" in told.fact
        assert "connections: " in told.detail
        assert "shared_buffers" in told.detail
        return
    assert total_bytes(tuning.memory) <= subject.memory.value
    for name, value in postgresql(tuning).items():
        guc = find_guc(name, subject.major)
        assert guc is not None
        read_value(guc, value)


@given(SUBJECTS)
@settings(max_examples=60 * TIMES, deadline=None)
def test_what_was_derived_stands_when_it_is_fixed(subject: TuningSubject) -> None:
    try:
        first = derive(subject)
    except SpecError:
        return
    again = derive(subject, fixed=postgresql(first))
    assert postgresql(again) == postgresql(first)
    assert again.memory == first.memory
    assert again.estimates == first.estimates
    assert [(one.name, one.value) for one in again.settings] == [(one.name, one.value) for one in first.settings]


@pytest.mark.parametrize("name", ["shared_buffers", "work_mem", "maintenance_work_mem", "autovacuum_work_mem"])
def test_who_fixes_a_size_is_told_what_it_would_be(name: str) -> None:
    subject = make_subject("vm")
    derived = postgresql(derive(subject))[name]
    (told,) = [one.reason for one in derive(subject, fixed={name: "65MB"}).settings if one.name == name]
    assert told.startswith(f"you set it; derived, it would be {derived}: ")


def test_who_fixes_what_is_left_alone_is_told_why() -> None:
    subject = make_subject("vm")
    wanted = {
        "bgwriter_lru_multiplier": "4",
        "wal_buffers": "256MB",
        "max_prepared_transactions": "9",
        "seq_page_cost": "2",
    }
    told = {one.name: one for one in derive(subject, fixed=wanted).settings if one.name in wanted}
    line, one = (names["bgwriter_lru_multiplier"] for names in (famous_names(), told))
    assert (one.reason, one.source) == (
        f"you set it; else it is left alone. {line.why}",
        f"the user; {line.source}",
    )
    assert told["wal_buffers"].reason.startswith("you set it; else it is derived where it matters. By itself ")
    assert told["max_prepared_transactions"].reason.startswith("you set it; one case needs that. Only for ")
    assert told["seq_page_cost"].reason == "you set it; nothing is derived for it."
    # A rule's own words are about this machine.
    measured = derive(make_subject("middle", wal_bytes_per_s=150e6), fixed={"wal_buffers": "1MB"}).settings
    assert next(one.reason for one in measured if one.name == "wal_buffers").startswith("you set it; derived, it ")


# Rounding shared_buffers leaves much of the memory here, and little of twice as much.
MANY_CONNECTIONS = make_subject(
    "small",
    workload=WorkloadClass.OLTP_READ,
    memory=83672 * MB,
    cpus=8,
    connections=1861,
    active=1,
    dataset=1e12,
    disk=make_disk(iops=50.0, bytes_per_s=2e7, free=1e9),
    recovery_s=5.0,
)
# Twice the memory has seven vacuums in place of three, each of twice the size.
FEW_WORKERS = make_subject(
    "crowded",
    major=15,
    workload=WorkloadClass.ANALYTIC,
    memory=991 * MB,
    cpus=56,
    connections=1,
    active=1,
    disk=make_disk(iops=50.0, bytes_per_s=2e7, free=1e9),
    kernel=Kernel(is_container=False, page_bytes=65536),
    recovery_s=5.0,
)
WORKERS = {
    *("autovacuum_max_workers", "max_worker_processes", "max_parallel_workers", "max_parallel_workers_per_gather"),
    "max_parallel_maintenance_workers",
}
SHARES = ["shared_buffers", "work_mem", "maintenance_work_mem", "autovacuum_work_mem", "effective_cache_size"]


@example(MANY_CONNECTIONS, "maintenance_work_mem")
@example(MANY_CONNECTIONS, "autovacuum_work_mem")
@example(FEW_WORKERS, "work_mem")
@given(SUBJECTS, st.sampled_from(SHARES))
@settings(max_examples=60 * TIMES, deadline=None)
def test_twice_the_memory_never_lowers_a_share_of_it(subject: TuningSubject, name: str) -> None:
    # Data of a known size may move from one cache to the other; of an unknown one nothing is supposed.
    data = known(1e12, "bytes", origin=Origin.ASSUMED)
    single = msgspec.structs.replace(subject, dataset=data)
    double = msgspec.structs.replace(single, memory=known(2 * subject.memory.value, "bytes"))
    try:
        tuning = derive(single)
        # More memory brings more workers, which share it: as many of them have no less each.
        more = derive(double, fixed={name: value for name, value in postgresql(tuning).items() if name in WORKERS})
    except SpecError:
        return
    # Where shared_buffers are limited by the page tables of many connections, sorts have what rounding leaves.
    reasons = [one.reason for each in (tuning, more) for one in each.settings if one.name == "shared_buffers"]
    if name == "work_mem" and any("in the worst case" in reason for reason in reasons):
        return
    assert in_units(more, name) >= in_units(tuning, name)


@given(st.integers(64, 256), st.sampled_from(["shared_buffers", "work_mem", "max_wal_size"]))
@settings(max_examples=30 * TIMES, deadline=None)
def test_a_fixed_size_is_the_same_in_any_unit(megabytes: int, name: str) -> None:
    subject = make_subject("middle")
    one, other = (derive(subject, fixed={name: text}) for text in (f"{megabytes}MB", f"{megabytes * 1024}kB"))
    assert postgresql(one) | {name: ""} == postgresql(other) | {name: ""}
    assert one.memory == other.memory


@given(SUBJECTS)
@settings(max_examples=40 * TIMES, deadline=None)
def test_a_server_that_has_the_set_keeps_it(subject: TuningSubject) -> None:
    kept = msgspec.structs.replace(subject.connections, origin=Origin.MEASURED)
    subject = msgspec.structs.replace(subject, connections=kept)
    try:
        first = derive(subject)
    except SpecError:
        return
    own = postgresql(first)
    again = derive(msgspec.structs.replace(subject, settings=own))
    assert own.items() <= postgresql(again).items()
    assert again.memory == first.memory


def test_huge_pages_that_are_certain_leave_more_for_the_buffers() -> None:
    crowded = make_subject("crowded")
    tuning, certain = derive(crowded), derive(crowded, fixed={"huge_pages": "on"})
    assert "page tables" in {share.what for share in tuning.memory}
    assert "page tables" not in {share.what for share in certain.memory}
    assert in_units(certain, "shared_buffers") > 4 * in_units(tuning, "shared_buffers")
    reason = next(one.reason for one in tuning.settings if one.name == "shared_buffers")
    assert reason.startswith("connections with their page tables, ")


def test_what_is_fixed_stands_and_says_what_would_be() -> None:
    subject = make_subject(dataset=3 * GB)
    own = derive(subject)
    tuning = derive(subject, fixed={"shared_buffers": "2GB", "temp_buffers": "64MB", "deadlock_timeout": "2s"})
    found = {one.name: one for one in tuning.settings}
    assert found["shared_buffers"].value == "2GB"
    assert f"it would be {postgresql(own)['shared_buffers']}" in found["shared_buffers"].reason
    assert found["shared_buffers"].inputs[-1].origin is Origin.DECLARED
    assert found["temp_buffers"].value == "64MB"
    assert any(share.what == "temporary tables" for share in tuning.memory)
    assert found["deadlock_timeout"].value == "2s"
    assert int(found["vm.nr_hugepages"].value) < int({one.name: one for one in own.settings}["vm.nr_hugepages"].value)


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"shared_bufers": "1GB"}, "did you mean shared_buffers"),
        ({"work_mem": "1XB"}, "work_mem cannot be 1XB"),
        ({"wal_compression": "lz4"}, "this build of PostgreSQL lacks it"),
        ({"max_wal_size": "600GB"}, "max_wal_size of 600 GB does not fit the disk"),
    ],
)
def test_what_cannot_be_is_refused(fixed: dict[str, str], words: str) -> None:
    subject = make_subject(missing_values={"wal_compression": ("lz4", "zstd")})
    with pytest.raises(SpecError) as caught:
        derive(subject, fixed=fixed)
    assert words in f"{caught.value.fact} {caught.value.detail} {caught.value.hint}"


@pytest.mark.parametrize("timeout_min", [None, 1, 2.5, 10, 60])
@pytest.mark.parametrize("wal_bytes_per_s", [1e4, 1e6, 7.3e6])
def test_the_formula_of_max_wal_size_gives_its_value(timeout_min: float | None, wal_bytes_per_s: float) -> None:
    fixed = {} if timeout_min is None else {"checkpoint_timeout": f"{timeout_min * 60:g}s"}
    subject = make_subject(recovery_s=1e6, wal_bytes_per_s=wal_bytes_per_s, disk=make_disk(free=1e14))
    (one,) = [one for one in derive(subject, fixed=fixed).settings if one.name == "max_wal_size"]
    factors, least, _ = one.formula.split(", ", maxsplit=2)
    rate, minutes, target, headroom = factors.split(" × ")
    assert rate == "WAL rate"
    assert minutes == f"{timeout_min or 30:g} min"
    assert target == "(1 + checkpoint_completion_target)"
    assert least == "at least the built-in 1 GB and two segments"
    wal_bytes = max(wal_bytes_per_s * float(minutes.split()[0]) * 60 * 1.9 * float(headroom), GB)
    assert parse_in_unit(one.value, "B", is_integer=False) == round_up(wal_bytes) // MB * MB


@pytest.mark.parametrize("fixed", [{}, {"max_wal_size": "8GB"}, {"checkpoint_timeout": "2min"}])
@pytest.mark.parametrize("workload", WorkloadClass)
@pytest.mark.parametrize("data_gb", [1, 10, 20, 100])
def test_the_assumed_wal_rate_is_that_of_the_checkpoints_which_it_brings_about(
    data_gb: int, workload: WorkloadClass, fixed: dict[str, str]
) -> None:
    tuning = derive(make_fast(data_gb, workload=workload), fixed=fixed)
    every_s = next(one.value for one in tuning.estimates if one.what == "checkpoint interval")
    (rate,) = (known for one in tuning.settings if one.name == "min_wal_size" for known in one.inputs)
    distance = wal_distance_bytes(tuning.subject, in_units(tuning, "max_wal_size") * MB, 0.9)
    timeout_s = in_units(tuning, "checkpoint_timeout")
    assert min(every_s, timeout_s) * rate.value <= distance * 1.000001
    assert every_s == timeout_s or every_s * rate.value == pytest.approx(distance)
    often = f"{every_s:.0f} s" if every_s < 300 else f"{every_s / 60:.0f} min"
    assert f"a checkpoint every {often};" in rate.how or workload is WorkloadClass.ANALYTIC


def test_checkpoints_that_the_recovery_time_makes_frequent_are_told_with_what_they_cost() -> None:
    # Every 90 s there are 138 MB/s; 30 min apart, of which max_wal_size allows none, there were 20.
    tuning = derive(make_fast(20))
    assert any("is only 22GB, which takes a checkpoint every 90 s," in note for note in tuning.notes)
    assert "pg_wal" in tuning.values_of(Target.STORAGE)
    # Images of 100 GB of data take more than a third of what the disk writes.
    assert postgresql(derive(make_fast(100), fixed={"max_wal_size": "20GB"}))["wal_compression"] == "lz4"
    hour = derive(msgspec.structs.replace(make_fast(20), recovery_s=known(3600, "s")))
    assert "pg_wal" not in hour.values_of(Target.STORAGE)


def make_fast(data_gb: int, **changes: Any) -> TuningSubject:
    """A machine whose recovery time allows less WAL than its CPUs write in 30 min."""
    disk = msgspec.structs.replace(
        make_disk(DiskKind.LOCAL_SSD, free=1e12, iops=50_000, bytes_per_s=500e6),
        random_write_iops=known(27_500, "1/s"),
    )
    recovery = known(300, "s", origin=Origin.ASSUMED)
    return make_subject("middle", disk=disk, dataset=data_gb * GB, recovery_s=recovery, **changes)


def test_buffers_larger_than_the_memory_are_refused_with_the_sum_line_by_line() -> None:
    with pytest.raises(SpecError) as caught:
        derive(make_subject(memory=16 * GB), fixed={"shared_buffers": "20GB"})
    error = caught.value
    assert "there are 16 GB" in error.fact
    assert error.detail.splitlines()[0].split() == ["20", "GB", "shared_buffers:", "as", "set"]
    assert "autovacuum: 3 workers × " in error.detail
    assert error.detail.splitlines()[-1].endswith("in all")
    assert error.hint.startswith("the largest part is shared_buffers")


def test_a_version_is_given_only_what_it_has() -> None:
    writes = {"wal_bytes_per_s": 100e6}
    old, new = (postgresql(derive(make_subject("large", major=major, **writes))) for major in (15, 18))
    assert "io_workers" in new
    assert "io_workers" not in old
    assert old["wal_compression"] == "zstd"
    lacking = make_subject("large", major=15, missing_values={"wal_compression": ("lz4", "zstd")}, **writes)
    assert postgresql(derive(lacking))["wal_compression"] == "pglz"


def test_the_servers_own_count_of_huge_pages_replaces_the_estimate() -> None:
    tuning = derive(make_subject(dataset=3 * GB))
    exact = with_huge_pages(tuning, 3141)
    (pages,) = (one for one in exact.settings if one.name == "vm.nr_hugepages")
    assert pages.value == "3141"
    assert "estimated" not in pages.formula
    changed = [one.name for one, other in zip(exact.settings, tuning.settings, strict=True) if one != other]
    assert changed == ["vm.nr_hugepages"]
    none = derive(make_subject(kernel=Kernel(is_container=True)))
    assert with_huge_pages(none, 5) == none


@pytest.mark.parametrize("workload", WorkloadClass)
@pytest.mark.parametrize(
    ("memory_gb", "page_mb"), [(1.26, 1024), (2, 512), (4, 512), (4, 1024), (8, 512), (16, 1024), (24, 2)]
)
def test_whole_huge_pages_fit_the_memory(memory_gb: float, page_mb: int, workload: WorkloadClass) -> None:
    kernel, memory, page_bytes = Kernel(huge_page_bytes=page_mb * MB), memory_gb * GB, page_mb * MB
    subject = make_subject(
        "small", memory=memory, active=8, workload=workload, dataset=0.4 * memory, connections=50, kernel=kernel
    )
    for own in ({}, {"huge_pages": "on"}):
        try:
            tuning = derive(msgspec.structs.replace(subject, settings=own))
        except SpecError:
            assert own, "with huge_pages = on the pages must be there"
            continue
        shares = {share.what: share.bytes for share in tuning.memory}
        shared = shares["shared_buffers"] + shares["other shared memory"]
        reserved = int(tuning.values_of(Target.SYSCTL).get("vm.nr_hugepages", "0")) * page_bytes
        assert total_bytes(tuning.memory) - shared - shares.get("rest of the last huge page", 0) + reserved <= memory
        is_told = any(note.startswith("vm.nr_hugepages is left alone: in huge pages of") for note in tuning.notes)
        if own:
            assert (reserved >= shared, is_told) == (shares["shared_buffers"] >= 256 * MB, False)
        elif shares["shared_buffers"] >= 256 * MB:
            assert (reserved == 0) == (-shared % page_bytes > memory / 10) == is_told
            assert (postgresql(tuning).get("huge_pages") is None) == is_told


def test_settings_that_are_left_alone_on_purpose(tunings: list[DerivedSettings]) -> None:
    """The famous ones that no evidence supports; docs/derivation.md says why."""
    alone = {
        "wal_writer_delay", "bgwriter_lru_multiplier", "checkpoint_completion_target", "checkpoint_flush_after",
        "wal_sync_method", "autovacuum_naptime", "seq_page_cost", "cpu_tuple_cost", "fsync", "full_page_writes",
        "synchronous_commit", "vm.dirty_expire_centisecs", "vm.dirty_writeback_centisecs", "LimitMEMLOCK",
    }  # fmt: skip
    for tuning in tunings:
        assert not alone & {one.name for one in tuning.settings}
        assert same_value("commit_delay", "0", postgresql(tuning).get("commit_delay", "0"), tuning.subject.major)


def test_for_a_version_that_was_not_tried_no_default_is_taken_for_known() -> None:
    subject = make_subject()
    known, newer = derive(subject), derive(msgspec.structs.replace(subject, major=99))
    assert postgresql(known).keys() < postgresql(newer).keys()
    assert postgresql(newer).items() >= postgresql(known).items()
    assert newer.notes[0].startswith(
        "PostgreSQL 99 is newer than the versions that this pgdyno was tried with (15 to 18)"
    )
    assert not any("newer than all" in note for note in known.notes)


def test_what_a_newer_server_lacks_or_refuses_is_left_out_and_told() -> None:
    subject = msgspec.structs.replace(make_subject(), major=99, lacking=frozenset({"wal_compression", "commit_delay"}))
    tuning = derive(subject, fixed={"quantum_buffers": "7 cats"})
    values = postgresql(tuning)
    assert values["quantum_buffers"] == "7 cats"
    assert not subject.lacking & values.keys()
    less = leave_out(tuning, {"work_mem": "it is gone"})
    assert postgresql(less) == {name: value for name, value in values.items() if name != "work_mem"}
    assert less.notes[0] == f"work_mem = {values['work_mem']} is left out: this PostgreSQL 99 refuses it (it is gone)."
    with pytest.raises(HostError, match="this PostgreSQL 99 has no max_wal_size"):
        derive(msgspec.structs.replace(subject, lacking=frozenset({"max_wal_size"})))

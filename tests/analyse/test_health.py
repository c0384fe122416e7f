"""Counters that DBAs watch, from records of real servers, and from the same with parts taken away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

from pgdyno.analyse.disk.demand import DiskDemand, DiskUse, UseKind
from pgdyno.analyse.health.assessment import assess_health
from pgdyno.analyse.health.load_checks import variation_of
from pgdyno.analyse.health.types import HealthRow, summarise_health
from pgdyno.analyse.throughput import PgbenchClaim, measure_throughput
from pgdyno.analyse.trial.analysis import measure_trial
from pgdyno.facts.health import Level, health_checks
from pgdyno.facts.versions import TRIED_MAJORS
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import Gap, SettingFact, StudyRecord, TableState, TrialRecord, TrialStatus
from tests.analyse.joined import UNLOGGED
from tests.analyse.timed import FLUSH, RUNNING, make_timed

RECORDS = Path(__file__).parents[1] / "data" / "records"


def read(name: str, number: int = 1) -> tuple[StudyRecord, TrialData]:
    store = RecordStore(RECORDS / name)
    trial = next(trial for trial in store.read_trials() if trial.planned.number == number)
    return store.read_record(), read_trial_data(store.trial_dir(number), trial)


def assess(record: StudyRecord, data: TrialData, disk: DiskDemand | None = None) -> dict[str, HealthRow]:
    claim = PgbenchClaim(clients=4, is_closed_loop=True, tps=None, transactions_count=None)
    throughput = None if data.transactions is None else measure_throughput(data.transactions, claim, data.whole_seconds)
    shares = measure_trial(record, record.plan.find_load(data.record.planned), data).shares
    return {row.check: row for row in assess_health(record, data, shares=shares, throughput=throughput, disk=disk)}


def with_counts(data: TrialData, **grown: float | None) -> TrialData:
    """The trial with these counters grown by so much, from 1,000."""
    before = {**data.record.counters_before, **dict.fromkeys(grown, 1000.0)}
    after = {
        **data.record.counters_after,
        **{name: None if by is None else 1000.0 + by for name, by in grown.items()},
    }
    return with_record(data, counters_before=before, counters_after=after)


def with_record(data: TrialData, **changed: Any) -> TrialData:
    return msgspec.structs.replace(data, record=msgspec.structs.replace(data.record, **changed))


def raw_growth(name: str) -> dict[str, float]:
    trial = json.loads((RECORDS / name / "trials" / "0001" / "trial.json").read_text())
    before, after = trial["counters_before"], trial["counters_after"]
    return {key: after[key] - before[key] for key in after if after[key] is not None}


def test_shares_of_a_real_record_are_those_of_its_counters() -> None:
    rows, raw = assess(*read("v1-pg18")), raw_growth("v1-pg18")
    assert rows["rollback_ratio"].value == 0
    hits, misses = raw["blks_hit_pages"], raw["blks_read_pages"]
    assert rows["cache_hit_ratio"].value == pytest.approx(hits / (hits + misses))
    assert rows["checkpoints_requested_ratio"].value == 1.0
    assert rows["checkpoints_requested_ratio"].evidence == "9 requested, 0 timed"
    assert rows["checkpoints_requested_ratio"].level is Level.CRITICAL
    # max_wal_size was 64MB: a checkpoint about every second.
    distance = rows["checkpoint_distance_s"]
    assert distance.value is not None
    assert 0.3 < distance.value < 2
    assert distance.level is Level.CRITICAL
    assert rows["wal_bytes_per_s"].value == pytest.approx(raw["wal_insert_lsn_bytes"] / 8.0477, rel=1e-3)
    assert (rows["wal_bytes_per_s"].level, rows["wal_bytes_per_s"].reason) == (
        None,
        health_checks()["wal_bytes_per_s"].unbounded,
    )


def test_what_sessions_wrote_is_counted_without_what_they_added_to_files_where_the_version_tells() -> None:
    record, data = read("v1-pg18")
    row = assess(record, data)["backend_written_ratio"]
    assert (row.value, row.level) == (0.0, Level.GOOD)
    assert data.server is not None
    column = "io/client backend/relation/normal/io_write_bytes"
    rising = pl.Series(column, range(0, data.server.frame.height * 8_192_000, 8_192_000))
    frame = data.server.frame.with_columns(rising)
    seen = msgspec.structs.replace(data, server=msgspec.structs.replace(data.server, frame=frame))
    rows = assess(record, seen)
    # A thousand pages a second beside what checkpoints wrote.
    checkpoints = raw_growth("v1-pg18")["checkpointer_written_pages"]
    own = 1000 * 8.0477
    assert rows["backend_written_ratio"].value == pytest.approx(own / (own + checkpoints), rel=0.05)
    assert rows["backend_written_ratio"].level is Level.WARNING
    assert (rows["bgwriter_cleaned_ratio"].value, rows["bgwriter_cleaned_ratio"].level) == (0.0, Level.CRITICAL)


def test_before_16_only_a_share_that_is_good_with_added_pages_is_judged() -> None:
    record, data = read("v1-pg15")
    assert assess(record, data)["backend_written_ratio"].reason == "no page was written"
    few = with_counts(data, checkpointer_written_pages=10_000, bgwriter_written_pages=0, backend_written_pages=100)
    row = assess(record, few)["backend_written_ratio"]
    assert (row.level, row.reason) == (Level.GOOD, None)
    many = with_counts(data, checkpointer_written_pages=10_000, bgwriter_written_pages=0, backend_written_pages=9_000)
    row = assess(record, many)["backend_written_ratio"]
    assert row.value == pytest.approx(9 / 19)
    assert row.level is None
    assert "before 16" in (row.reason or "")


def test_a_share_of_next_to_nothing_is_shown_and_not_judged() -> None:
    record, data = read("v1-pg15")
    rows = assess(record, with_counts(data, checkpoints_requested_count=1, checkpoints_timed_count=0))
    assert rows["checkpoints_requested_ratio"].value == 1.0
    assert rows["checkpoints_requested_ratio"].level is None
    # Some 300 transactions a second for six seconds leave few looks at sessions at work.
    assert all(rows[f"wait_{kind}_ratio"].level is None for kind in ("lock", "lwlock", "io"))
    assert rows["tps_variation_ratio"].reason == "the rate was scheduled"
    assert not [row for row in rows.values() if row.level is Level.CRITICAL]


def test_without_checkpoints_nothing_is_said_of_who_writes() -> None:
    record, data = read("v1-pg15")
    counts = with_counts(data, checkpointer_written_pages=0, bgwriter_written_pages=50, backend_written_pages=5_000)
    row = assess(record, counts)["backend_written_ratio"]
    assert row.level is None
    assert "no checkpoint" in (row.reason or "")


def test_without_samplers_what_they_see_is_absent_with_their_reason() -> None:
    record, data = read("v1-pg18")
    gaps = (Gap(source="os sampler", reason="it was killed"), Gap(source="server sampler", reason="it was refused"))
    rows = assess(record, msgspec.structs.replace(data, os=None, server=None, gaps=gaps))
    assert (rows["dirty_memory_ratio"].value, rows["dirty_memory_ratio"].reason) == (None, "it was killed")
    assert (rows["wait_io_ratio"].value, rows["wait_io_ratio"].reason) == (None, "it was refused")
    assert (rows["backend_written_ratio"].value, rows["backend_written_ratio"].reason) == (None, "it was refused")
    assert rows["cache_hit_ratio"].value is not None


def test_without_a_log_of_transactions_or_of_the_server_only_their_rows_are_absent() -> None:
    record, data = read("v1-pg18")
    rows = assess(record, msgspec.structs.replace(data, transactions=None, log=()))
    unlogged = assess(record, with_record(data, settings=(*data.record.settings, UNLOGGED)))["checkpoint_distance_s"]
    assert (unlogged.value, unlogged.reason) == (None, "log_checkpoints was off")
    missing = {name for name, row in rows.items() if row.value is None}
    known = {name for name, row in assess(record, data).items() if row.value is None}
    assert missing - known == {"tps_variation_ratio", "latency_tail_ratio", "checkpoint_distance_s"}


def test_a_counter_that_is_absent_or_was_reset_is_not_0() -> None:
    record, data = read("v1-pg18")
    rows = assess(record, with_counts(data, deadlocks_count=None, temp_bytes=-1.0, xact_rollback_count=0))
    assert (rows["deadlocks_per_min"].value, rows["deadlocks_per_min"].reason) == (
        None,
        "this record does not hold the counter",
    )
    assert rows["temp_bytes_per_s"].value is None
    assert "reset" in (rows["temp_bytes_per_s"].reason or "")
    bare = assess(record, with_record(data, counters_before={}, counters_after={}))
    assert all(bare[name].value is None for name in ("cache_hit_ratio", "rollback_ratio", "bgwriter_stopped_ratio"))
    assert all(row.reason for row in bare.values() if row.value is None)


def test_counts_become_rates_of_the_load() -> None:
    record, data = read("v1-pg18")
    bad = with_counts(
        data, deadlocks_count=4, temp_bytes=80_477_000, xact_rollback_count=50, xact_commit_count=950,
        blks_hit_pages=850, blks_read_pages=150, bgwriter_stopped_count=30,
    )  # fmt: skip
    rows = assess(record, bad)
    assert rows["deadlocks_per_min"].value == pytest.approx(4 * 60 / 8.0477, rel=1e-3)
    assert rows["deadlocks_per_min"].level is Level.CRITICAL
    assert rows["temp_bytes_per_s"].value == pytest.approx(1e7, rel=1e-3)
    assert rows["temp_bytes_per_s"].level is Level.WARNING
    assert (rows["rollback_ratio"].value, rows["rollback_ratio"].level) == (0.05, Level.WARNING)
    assert (rows["cache_hit_ratio"].value, rows["cache_hit_ratio"].level) == (0.85, Level.CRITICAL)
    assert rows["bgwriter_stopped_ratio"].level is Level.CRITICAL
    slow = SettingFact(name="bgwriter_delay", value="1000", unit="ms", boot_value="200", source="configuration file")
    quicker = with_record(bad, settings=(*bad.record.settings, slow))
    assert assess(record, quicker)["bgwriter_stopped_ratio"].value == 1.0


def table(name: str, *, live: int, dead: int, updated: int | None = None, hot: int | None = None) -> TableState:
    return TableState(name=name, bytes=1, live_rows=live, dead_rows=dead, updated_count=updated, hot_updated_count=hot)


def test_the_table_that_is_worst_counts_unless_it_hardly_matters() -> None:
    record, data = read("v1-pg18")
    before = (
        table("accounts", live=10_000, dead=0, updated=500, hot=100),
        table("anew", live=3, dead=0, updated=50, hot=3),
    )
    after = (
        table("accounts", live=10_000, dead=12_000, updated=10_500, hot=4_100),
        table("branches", live=10, dead=990, updated=10_000, hot=9_990),
        table("odd", live=2_000, dead=100, updated=10, hot=0),
        # Dropped and created again by the load.
        table("anew", live=3, dead=0, updated=3, hot=3),
    )
    rows = assess(record, with_record(data, tables_before=before, tables_after=after))
    assert rows["hot_update_ratio"].value == pytest.approx(0.4)
    assert rows["hot_update_ratio"].evidence == "accounts: 4,000 of 10,000"
    assert rows["hot_update_ratio"].level is Level.CRITICAL
    assert rows["dead_rows_ratio"].value == pytest.approx(12 / 22)
    assert rows["dead_rows_ratio"].evidence == "accounts: 12,000 of 22,000"
    assert rows["dead_rows_ratio"].level is Level.CRITICAL
    fresh = (table("accounts", live=1_000_000, dead=0, updated=10_500, hot=4_100),)
    row = assess(record, with_record(data, tables_before=before, tables_after=fresh))["hot_update_ratio"]
    assert (row.value, row.level) == (0.4, None)
    assert "have no room yet" in (row.reason or "")
    old = with_record(data, tables_after=(table("accounts", live=5_000, dead=0),))
    assert assess(record, old)["hot_update_ratio"].value is None
    assert assess(record, old)["dead_rows_ratio"].value == 0.0


def test_updates_are_not_counted_over_a_reset() -> None:
    record, data = read("v1-pg18")
    before = (table("accounts", live=10_000, dead=0, updated=20_000, hot=100),)
    # Since the reset, accounts has more HOT updates than before.
    after = (table("accounts", live=10_000, dead=0, updated=10_500, hot=4_100),)
    row = assess(record, with_record(data, tables_before=before, tables_after=after))["hot_update_ratio"]
    assert (row.value, row.reason) == (None, "statistics were reset while the load ran")


def test_partitions_are_one_table_and_many_tables_alike_all_count() -> None:
    record, data = read("v1-pg18")
    parts = [table(f"pgbench_accounts_{i}", live=500, dead=0, updated=900 + i, hot=800) for i in range(1, 12)]
    row = assess(record, with_record(data, tables_before=(), tables_after=tuple(parts)))["hot_update_ratio"]
    assert (row.evidence, row.level) == ("pgbench_accounts: 8,800 of 9,966", Level.WARNING)
    alike = [table(f"mine_{i}", live=500, dead=0, updated=2_000, hot=2_000 - i) for i in range(20)]
    row = assess(record, with_record(data, tables_before=(), tables_after=tuple(alike)))["hot_update_ratio"]
    assert (row.evidence, row.level) == ("mine_19: 1,981 of 2,000", Level.GOOD)


@pytest.mark.parametrize(
    ("live", "dead", "level"),
    [
        (200, 2_019, None),
        (200, 12_000, Level.CRITICAL),
        (100_000, 1_000, Level.GOOD),
        # Autovacuum, as built in, comes at 20,000.
        (100_000, 21_000, Level.WARNING),
        (100_000, 45_000, Level.CRITICAL),
    ],
)
def test_dead_rows_are_judged_where_they_are_many(live: int, dead: int, level: Level | None) -> None:
    record, data = read("v1-pg18")
    tables = (table("t", live=live, dead=dead), table("other", live=5_000, dead=10))
    row = assess(record, with_record(data, tables_after=tables))["dead_rows_ratio"]
    assert (row.value, row.level) == (pytest.approx(dead / (live + dead)), level)
    assert row.reason == (None if level else "no table has 10,000 dead rows")


def test_dirty_memory_is_held_against_where_the_kernel_slows_writers_down() -> None:
    record, data = read("v1-pg18")
    assert data.os is not None
    frame = data.os.frame.with_columns(
        pl.lit(1000).alias("vm/nr_dirty_background_threshold"), pl.lit(3000).alias("vm/nr_dirty_threshold"),
        pl.lit(4 * 1600).alias("mem/Dirty"), pl.lit(4 * 100).alias("mem/Writeback"),
    )  # fmt: skip
    seen = msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=frame))
    row = assess(record, seen)["dirty_memory_ratio"]
    assert row.value == pytest.approx(0.85)
    assert row.level is Level.WARNING
    without = data.os.frame.drop("vm/nr_dirty_threshold")
    seen = msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=without))
    assert assess(record, seen)["dirty_memory_ratio"].reason == "the kernel's thresholds are not recorded"


def test_on_full_cpus_waits_that_may_be_queues_are_not_judged() -> None:
    record, data = read("v1-pg18")
    assert data.os is not None
    idle = [pl.lit(0).alias(name) for name in data.os.frame.columns if name.endswith(("/idle", "/iowait"))]
    full = msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=data.os.frame.with_columns(idle)))
    rows = assess(record, full)
    assert "CPUs were 100 % busy" in (rows["wait_lwlock_ratio"].reason or "")
    assert rows["wait_io_ratio"].level is None
    # Who waits for a row waits for it whatever the CPUs do.
    assert rows["wait_lock_ratio"].level is not None


def test_under_a_quota_that_is_used_up_waits_are_not_judged_however_idle_the_machine_is() -> None:
    record, _ = read("v1-pg18")
    data = make_timed({FLUSH: 6.0, RUNNING: 2.0}, cpu_share=0.48)
    for limit, is_judged in ((None, True), (1.0, False), (1.5, True)):
        host = msgspec.structs.replace(record.host, cpu_count=2, cpu_limit=limit)
        row = assess(msgspec.structs.replace(record, host=host), data)["wait_io_ratio"]
        assert (row.level is not None) == is_judged
    host = msgspec.structs.replace(record.host, cpu_count=2, cpu_limit=1.0)
    reason = assess(msgspec.structs.replace(record, host=host), data)["wait_io_ratio"].reason
    assert reason == "96 % of the CPU quota was used: such waits may be queues for a CPU"


LEFT = "with what the hypervisor left of them"


def test_cpus_of_which_some_time_is_stolen_are_full_before_they_are_all_busy() -> None:
    record, _ = read("v1-pg18")
    data = make_timed({FLUSH: 6.0, RUNNING: 2.0}, cpu_share=0.88)
    assert assess(record, data)["wait_io_ratio"].level is not None
    row = assess(record, with_steal(data, 0.1))["wait_io_ratio"]
    assert (row.level, row.reason) == (None, f"the CPUs were 98 % busy {LEFT}: such waits may be queues for one")


def with_steal(data: TrialData, stolen: float) -> TrialData:
    """The trial with so much of the CPUs' time stolen instead of idle."""
    assert data.os is not None
    frame = data.os.frame
    ticks = 100 * (frame["t_s"] - frame["t_s"][0])
    columns = []
    for cpu in ("cpu0", "cpu1"):
        columns += [
            (stolen * ticks).alias(f"{cpu}/steal"),
            (frame[f"{cpu}/idle"] - stolen * ticks).alias(f"{cpu}/idle"),
        ]
    return msgspec.structs.replace(data, os=msgspec.structs.replace(data.os, frame=frame.with_columns(columns)))


def test_checkpoints_that_only_their_time_makes_are_no_warning() -> None:
    # What they really are apart is a bit less than 5min, or more.
    assert health_checks()["checkpoint_distance_s"].judge(299.9) is Level.GOOD


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_an_undisturbed_load_is_called_even_and_one_with_stalls_is_not(correlation: float) -> None:
    check, draw = health_checks()["tps_variation_ratio"], np.random.default_rng(11)
    called = {"even": 0, "stalled": 0}
    for _ in range(500):
        noise = np.empty(60)
        noise[0] = draw.normal()
        for second in range(1, 60):
            noise[second] = correlation * noise[second - 1] + np.sqrt(1 - correlation**2) * draw.normal()
        # Seconds of an undisturbed load differ by some percent.
        tps = 4000 * (1 + 0.08 * noise)
        called["even"] += check.judge(variation_of(tps)) is not Level.GOOD
        stalled = tps * (draw.random(60) > 0.1)
        called["stalled"] += check.judge(variation_of(stalled)) is not Level.GOOD
    assert called["even"] == 0
    assert called["stalled"] > 475


def test_wal_is_held_against_what_lasts_of_the_disk() -> None:
    use = DiskUse(kind=UseKind.WAL, used=60.0, limit=200.0, unit="bytes/s", how="sequential write", lasts=100.0)
    disk = DiskDemand(
        device="vda", busy_ratio=None, read_await_ms=None, write_await_ms=None, flush_await_ms=None,
        missed_blocks_per_s=None, uses=(use,),
    )  # fmt: skip
    row = assess(*read("v1-pg18"), disk)["wal_disk_ratio"]
    assert (row.value, row.level) == (0.6, Level.WARNING)


@pytest.mark.parametrize("major", TRIED_MAJORS)
def test_each_version_has_a_value_or_a_reason_for_every_check(major: int) -> None:
    record, data = read("v1-pg15" if major == 15 else "v1-pg18")
    assert data.server is not None
    assert data.server.header is not None
    header = msgspec.structs.replace(data.server.header, version_num=major * 10_000)
    whole = msgspec.structs.replace(data, server=msgspec.structs.replace(data.server, header=header))
    bare = msgspec.structs.replace(data, server=None, os=None, transactions=None, log=(), pgbench=None)
    server = msgspec.structs.replace(record.server, version_num=major * 10_000)
    for seen in (whole, bare, with_record(bare, counters_before={}, counters_after={}, settings=())):
        rows = assess(msgspec.structs.replace(record, server=server), seen)
        assert list(rows) == list(health_checks())
        assert all(row.reason for row in rows.values() if row.value is None)
        assert all(row.level is None for row in rows.values() if row.value is None)


def test_failed_trials_and_mixtures_have_none() -> None:
    record, data = read("v1-pg18")
    assert not assess(record, with_record(data, status=TrialStatus.FAILED))
    planned = msgspec.structs.replace(data.record.planned, variants=("a", "b"))
    assert not assess(record, with_record(data, planned=planned))
    assert summarise_health([(), ()]) == ()


def test_a_trial_cut_short_before_its_load_says_so_and_divides_by_nothing() -> None:
    record, data = read("v1-pg18")
    rows = assess(record, with_record(data, load_start_monotonic_s=None, load_end_monotonic_s=None))
    assert rows["deadlocks_per_min"].value is None
    assert rows["wait_io_ratio"].value is None
    assert all(row.reason for row in rows.values() if row.value is None)


def rows_of(*values: float | None, judged: bool = True) -> list[tuple[HealthRow, ...]]:
    check = health_checks()["cache_hit_ratio"]
    return [
        (
            HealthRow(
                check=check.name, value=value, level=check.judge(value) if judged and value is not None else None,
                evidence=f"{value}", reason=None if judged and value is not None else "too little",
            ),
        )
        for value in values
    ]  # fmt: skip


def test_trials_are_summed_up_by_their_median_and_their_span() -> None:
    (one,) = summarise_health(rows_of(0.999, 0.95, 0.97, None))
    assert (one.value, one.low, one.high, one.n) == (0.97, 0.95, 0.999, 3)
    assert (one.level, one.evidence, one.reason) == (Level.WARNING, "0.97", None)
    # Of two in the middle the worse, with its own figures.
    (even,) = summarise_health(rows_of(0.999, 0.985, 0.97, 0.9))
    assert (even.value, even.level, even.evidence) == (0.97, Level.WARNING, "0.97")
    (none,) = summarise_health(rows_of(None, None))
    assert (none.value, none.n, none.level, none.reason) == (None, 0, None, "too little")
    (unjudged,) = summarise_health(rows_of(0.5, judged=False))
    assert (unjudged.value, unjudged.level, unjudged.reason) == (0.5, None, "too little")
    # One that saw too little does not move those that saw enough.
    (mixed,) = summarise_health([*rows_of(0.999, 0.999), *rows_of(0.1, judged=False)])
    assert (mixed.value, mixed.low, mixed.level) == (0.999, 0.1, Level.GOOD)


def test_old_records_have_no_counts_of_updates_and_new_ones_read_back() -> None:
    old = msgspec.convert({"name": "t", "bytes": 1, "live_rows": 1, "dead_rows": 0}, TableState)
    assert old.updated_count is None
    _, data = read("v1-pg18")
    new = with_record(data, tables_after=(table("t", live=1, dead=0, updated=5, hot=3),)).record
    assert msgspec.json.decode(msgspec.json.encode(new), type=TrialRecord) == new

"""What samples show of standbys: for which variant they count, which part of a standby commits wait for, and how it is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl
import pytest

from pgdyno.analyse.bottleneck.agreement import judge_workload
from pgdyno.analyse.standbys import Stage, join_lags, join_waits, measure_standbys
from pgdyno.analyse.transaction_time.shares import Bottleneck, Resource
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.facts.views import STANDBY_DIMENSIONS, standby_columns
from pgdyno.record.samples.files import ServerSamples
from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import Slice, SlicePhase
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import SettingFact, StudyRecord
from tests.analyse.joined import START_S, make_workload
from tests.analyse.timed import IDLE, RUNNING, make_timed

RECORDS = Path(__file__).parents[1] / "data" / "records"
LOAD = make_workload("tpcb-like", clients=8)
SYNC = ("active", "IPC", "SyncRep")


def with_standby(
    data: TrialData, lags_ms: tuple[float | None, ...], *, sync_state: str = "sync", replaying: float = 0.1
) -> TrialData:
    """The trial with a standby that is written, flushed and replayed so late, whose startup process uses so much of a CPU."""
    assert data.server is not None
    assert data.server.header is not None
    assert data.os is not None
    assert data.os.header is not None
    names = (*STANDBY_DIMENSIONS, *(column.name for column in standby_columns(18)))
    header = msgspec.structs.replace(data.server.header, standbys=names)
    columns = [
        pl.lit("streaming").alias("standby/standby1/state"),
        pl.lit(sync_state).alias("standby/standby1/sync_state"),
    ]
    for stage, ms in zip(Stage, lags_ms, strict=True):
        columns += [
            pl.lit(ms, dtype=pl.Float64).alias(f"standby/standby1/{stage.value}_lag_ms"),
            pl.lit(1000).alias(f"standby/standby1/{stage.value}_lag_bytes"),
        ]
    server = ServerSamples(header=header, frame=data.server.frame.with_columns(columns), end="asked to", torn="")
    ticks = (data.os.frame["t_s"] - data.os.frame["t_s"][0]) * data.os.header.clk_tck
    used = {
        "tree.standby1": replaying + 0.2,
        "process.standby1_startup": replaying,
        "process.standby1_walreceiver": 0.1,
    }
    cpu = [(ticks * rate).alias(f"{name}/utime") for name, rate in used.items()]
    cpu += [(ticks * 0.0).alias(f"{name}/stime") for name in used]
    return msgspec.structs.replace(
        data, server=server, os=msgspec.structs.replace(data.os, frame=data.os.frame.with_columns(cpu))
    )


def with_settings(data: TrialData, **settings: str) -> TrialData:
    facts = tuple(
        SettingFact(name=name, value=value, unit=None, boot_value="", source="configuration file")
        for name, value in settings.items()
    )
    return msgspec.structs.replace(data, record=msgspec.structs.replace(data.record, settings=facts))


def make_record() -> StudyRecord:
    record = open_record(RECORDS / "v1-pg18").read_record()
    server = msgspec.structs.replace(record.study.server, standbys=1)
    plan = msgspec.structs.replace(record.plan, scale=50)
    return msgspec.structs.replace(record, study=msgspec.structs.replace(record.study, server=server), plan=plan)


def judge(data: TrialData) -> Bottleneck:
    found = judge_workload(make_record(), LOAD, [analyse_trial(make_record(), LOAD, data)])
    assert found is not None
    return found


def test_the_part_of_a_standby_that_commits_wait_for_longest_is_named() -> None:
    waiting = make_timed(
        {SYNC: 6.5, RUNNING: 1.0, IDLE: 0.5}, backends=(0.9, 0.1), threads=[(0.1, 0.05)], cpu_share=0.1
    )
    rows = [
        ("remote_write", (5.0, 9.0, 20.0), "the way of WAL to standby1"),
        ("on", (1.0, 9.0, 20.0), "the WAL flush of standby1"),
        ("on", (6.0, 9.0, 20.0), "the way of WAL to standby1"),
        ("remote_apply", (1.0, 4.0, 20.0), "the replay of WAL by standby1"),
        ("remote_apply", (1.0, 9.0, 12.0), "the WAL flush of standby1"),
    ]
    for mode, lags_ms, part in rows:
        data = with_settings(with_standby(waiting, lags_ms), synchronous_commit=mode, synchronous_standby_names="*")
        found = judge(data)
        assert (found.resource, found.part) == (Resource.STANDBY, part), (mode, lags_ms)
        last_ms = lags_ms[["remote_write", "on", "remote_apply"].index(mode)]
        # Of all WAL: where commits alone are replayed late, each of them takes longer than that.
        said = f"standby1 usually confirmed WAL after {last_ms:.3g} ms, by pg_stat_replication: "
        assert any(words.startswith(said) for words in found.evidence), mode
        assert any("standby1 used 0.3 CPUs of this machine" in words for words in found.evidence), mode


@pytest.mark.parametrize(
    ("sessions", "mode", "replayed_ms", "part", "shares"),
    [
        # Three other sessions keep the standby flushing, so that nearly all WAL that comes waits for that first.
        (
            4.0,
            "on",
            30.0,
            "the WAL flush of standby1",
            "1 for sending and writing, 28 for its flush (up to 14 of it before the WAL was written",
        ),
        (1.0, "on", 30.0, "the way of WAL to standby1", "15 for sending and writing, 14 for its flush"),
        # Of the time in which sessions wait for the replay, the standby flushes nothing for them.
        (4.0, "remote_apply", 54.0, "the replay of WAL by standby1", "4.1 for sending and writing, 25 for its flush"),
        (4.0, "remote_write", 30.0, "the way of WAL to standby1", "15 for sending and writing"),
    ],
)
def test_wal_that_waits_for_the_flush_of_earlier_wal_waits_for_the_flush(
    sessions: float, mode: str, replayed_ms: float, part: str, shares: str
) -> None:
    waiting = make_timed(
        {SYNC: 6.5, RUNNING: 1.0, IDLE: 0.5}, backends=(0.9, 0.1), threads=[(0.1, 0.05)], cpu_share=0.1
    )
    data = with_standby(waiting, (15.0, 29.0, replayed_ms))
    assert data.server is not None
    looks = data.server.frame.with_columns(pl.lit(sessions).alias("look/active/IPC/SyncRep"))
    data = msgspec.structs.replace(
        data, server=ServerSamples(header=data.server.header, frame=looks, end="asked to", torn="")
    )
    found = judge(with_settings(data, synchronous_commit=mode, synchronous_standby_names="*"))
    assert found.part == part
    assert any(f"by pg_stat_replication: {shares}" in words for words in found.evidence), found.evidence


@pytest.mark.parametrize("samples", [10, 6])
def test_one_sample_of_a_process_that_waited_for_a_cpu_does_not_name_a_part(samples: int) -> None:
    waiting = make_timed(
        {SYNC: 6.5, RUNNING: 1.0, IDLE: 0.5}, backends=(0.9, 0.1), threads=[(0.1, 0.05)], cpu_share=0.1
    )
    data = with_standby(waiting, (1.0, 16.0, 20.0))
    assert data.server is not None
    seconds = pl.int_range(pl.len())
    # Lags are NULL where nothing was written.
    late = [
        pl.when(seconds % 12 == 3).then(400.0).when(seconds < samples).then(pl.col(name)).alias(name)
        for name in ("standby/standby1/write_lag_ms", "standby/standby1/flush_lag_ms")
    ]
    frame = data.server.frame.with_columns(late)
    data = msgspec.structs.replace(
        data, server=ServerSamples(header=data.server.header, frame=frame, end="asked to", torn="")
    )
    figures = measure_standbys(with_settings(data, synchronous_commit="on", synchronous_standby_names="*"), count=1)
    assert figures is not None
    lag_ms = figures.lags[0].lag_ms
    assert lag_ms[Stage.WRITE].mean > lag_ms[Stage.FLUSH].mean - lag_ms[Stage.WRITE].mean, "the mean is misled"
    found = judge(with_settings(data, synchronous_commit="on", synchronous_standby_names="*"))
    assert found.part == "the WAL flush of standby1"


def test_a_startup_process_without_time_left_is_evidence_for_the_replay() -> None:
    waiting = make_timed(
        {SYNC: 6.5, RUNNING: 1.0, IDLE: 0.5}, backends=(0.9, 0.1), threads=[(0.1, 0.05)], cpu_share=0.1
    )
    settings = {"synchronous_commit": "remote_apply", "synchronous_standby_names": "*"}
    for replaying, expected in ((0.97, 1), (0.3, 0)):
        found = judge(with_settings(with_standby(waiting, (1.0, 2.0, 20.0), replaying=replaying), **settings))
        assert sum("which alone replays" in words for words in found.evidence) == expected


def test_nothing_is_said_of_a_standby_that_no_commit_waits_for() -> None:
    quiet = make_timed({RUNNING: 5.0, IDLE: 3.0}, backends=(4.0, 1.0), threads=[(0.1, 0.05)])
    data = with_settings(with_standby(quiet, (1.0, 2.0, 3.0), sync_state="async"), synchronous_commit="on")
    figures = measure_standbys(data, count=1)
    assert figures is not None
    assert figures.waited == ()
    assert judge(data).part == "the speed of one CPU", "no standby"
    assert measure_standbys(data, count=0) is None
    assert measure_standbys(quiet, count=1) is None, "nothing was sampled of it"


def test_the_study_s_use_of_the_cpus_is_divided_between_standbys_and_all_else() -> None:
    busy = make_timed({RUNNING: 5.0, IDLE: 3.0}, backends=(4.0, 1.0), threads=[(0.1, 0.05)], cpu_share=0.5)
    trial = analyse_trial(make_record(), LOAD, with_standby(busy, (1.0, 2.0, 3.0)))
    shares = trial.shares
    assert trial.cpus_seen_count is not None
    assert shares["cpu_standbys_ratio"] == pytest.approx(0.3 / trial.cpus_seen_count, rel=0.05)
    parts = [shares[f"cpu_{name}_ratio"] for name in ("server", "standbys", "others")]
    assert sum(filter(None, parts)) == pytest.approx(shares["cpu_busy_ratio"])
    assert "cpu_standbys_ratio" not in analyse_trial(make_record(), LOAD, busy).shares


def test_samples_of_a_block_count_for_the_variant_in_force() -> None:
    seconds = 12
    data = with_standby(make_timed({RUNNING: 2.0, IDLE: 6.0}, seconds=seconds), (1.0, 2.0, None))
    assert data.server is not None
    frame = data.server.frame
    bytes_of = [100.0 * n for n in range(frame.height)]
    sync = [float(n % 2) for n in range(frame.height)]
    frame = frame.with_columns(
        pl.Series("standby/standby1/replay_lag_bytes", bytes_of),
        pl.Series("look/active/IPC/SyncRep", sync),
        pl.Series("look/active//", [1.0] * frame.height),
    )
    slices = tuple(
        Slice(
            phase=SlicePhase.ROUND,
            round=n // 2 + 1,
            position=n % 2,
            variant="ab"[n % 2],
            begin_monotonic_s=START_S + n - 0.4,
            settled_monotonic_s=START_S + n - 0.2,
            end_monotonic_s=START_S + n + 0.5,
            counts={},
        )
        for n in range(seconds)
    )
    planned = msgspec.structs.replace(data.record.planned, variants=("a", "b"))
    data = msgspec.structs.replace(
        data,
        server=msgspec.structs.replace(data.server, frame=frame),
        slices=slices,
        record=msgspec.structs.replace(data.record, planned=planned),
    )
    figures = measure_standbys(data, count=1)
    assert figures is not None
    a, b = figures.lags
    assert (a.variant, b.variant) == ("a", "b")
    assert (a.lag_bytes[Stage.REPLAY].n, a.lag_bytes[Stage.REPLAY].mean, a.lag_bytes[Stage.REPLAY].largest) == (
        6,
        500,
        1000,
    )
    assert (b.lag_bytes[Stage.REPLAY].n, b.lag_bytes[Stage.REPLAY].mean, b.lag_bytes[Stage.REPLAY].largest) == (
        6,
        600,
        1100,
    )
    assert Stage.REPLAY not in a.lag_ms, "the server had forgotten it"
    assert a.parts_ms == {Stage.WRITE: 1.0, Stage.FLUSH: 1.0}
    waits_a, waits_b = figures.waits
    assert waits_a.ratios == {Resource.CPU: 1.0}
    assert waits_b.ratios == {Resource.STANDBY: 0.5, Resource.CPU: 0.5}
    assert (waits_b.looks, waits_b.sessions) == (6, 2.0)
    joined = join_waits([waits_a, waits_b])
    assert joined.looks == 12
    assert joined.ratios[Resource.STANDBY] == pytest.approx(1 / 3)
    assert join_lags([a, b]).lag_bytes[Stage.REPLAY].mean == pytest.approx(550)
    assert join_lags([a, b]).lag_bytes[Stage.REPLAY].largest == 1100

"""Which seconds belong to a load: pgbench logs transactions that end long after the load's time, and its clients are idle then."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from pgdyno.analyse.episodes.detection import find_trial_episodes
from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.trial.charts import chart_trial
from pgdyno.record.generators.parts import CLOCK_FILE, LOADS_DIR
from pgdyno.record.samples import os_series as series
from pgdyno.record.samples.clock import ClockExchange, append_exchanges
from pgdyno.record.transactions.parse import TransactionBatch
from pgdyno.record.trial_data import TrialData, read_trial_data
from tests.analyse.joined import make_data
from tests.long_loads import (
    CLIENTS,
    EPOCH_S,
    START_S,
    about,
    add_part,
    analyse,
    make_part,
    make_trial,
    run_clients,
    summarise,
    write_log,
)

SECONDS = 30


def read_load(folder: Path, batch: TransactionBatch) -> TrialData:
    write_log(folder, batch, summarise(batch))
    data = read_trial_data(folder, make_trial(SECONDS))
    assert data.long_load is None
    return data


def let_wait(batch: TransactionBatch, **waits_s: float) -> TransactionBatch:
    """Let the last transactions of these clients wait."""
    latency_us, stamp_us = batch.latency_us.copy(), batch.stamp_us.copy()
    for client, wait_s in waits_s.items():
        last = int(np.flatnonzero(batch.client == int(client.removeprefix("client")))[-1])
        latency_us[last] += round(wait_s * 1e6)
        stamp_us[last] += round(wait_s * 1e6)
    order = np.argsort(stamp_us, kind="stable")
    late = msgspec.structs.replace(batch, latency_us=latency_us, stamp_us=stamp_us)
    return msgspec.structs.replace(
        late,
        **{
            name: getattr(late, name)[order]
            for name in ("client", "number", "script", "latency_us", "outcome", "stamp_us")
        },
    )


def list_tps(data: TrialData) -> tuple[float | None, ...]:
    (tps,) = chart_trial(data, disk=None)[ChartKind.TPS]
    return tps.values


def test_seconds_after_the_time_of_a_load_are_none_of_it(tmp_path: Path) -> None:
    batch = run_clients(about(0.02, 0.002), SECONDS, seed=1)
    plain = read_load(tmp_path / "plain", batch)
    late = read_load(tmp_path / "late", let_wait(batch, client3=20.0, client5=30.0))
    assert late.whole_seconds == plain.whole_seconds == range(int(EPOCH_S) + 1, int(EPOCH_S) + SECONDS)
    assert analyse(late).tps == analyse(plain).tps == pytest.approx(CLIENTS / 0.02, rel=0.01)
    assert analyse(late).doubts == ()
    assert list_tps(late) == list_tps(plain)
    # What was under way then was slow, and counts.
    slowest = {one.name: one.value_ms for one in analyse(late).percentiles}["max"]
    assert slowest == pytest.approx(20_000.0, rel=0.01)


def test_now_and_then_a_slow_transaction_is_no_episode_at_the_end(tmp_path: Path) -> None:
    """Of 16 clients one transaction in 2,000 takes 3 s: some of these are always under way when the load's time is over."""

    def draw_latencies(draw: np.random.Generator, count: int) -> np.ndarray:
        return np.where(draw.random(count) < 1 / 2000, 3.0, draw.normal(0.01, 0.001, count))

    for seed in range(4):
        batch = run_clients(draw_latencies, SECONDS, seed=seed, clients=16)
        data = read_load(tmp_path / f"{seed}", batch)
        found = analyse(data, clients=16)
        assert found.tps == pytest.approx(16 / (0.01 + 3.0 / 2000), rel=0.1)
        assert found.doubts == ()
        charts = chart_trial(data, disk=None)
        assert find_trial_episodes(charts, is_mixed=False, is_scheduled=False).episodes == ()


def test_a_query_under_way_at_the_end_makes_no_partial_second_of_another_part_a_whole_one(tmp_path: Path) -> None:
    parts = (
        add_part(tmp_path, make_part("oltp", endpoint="primary"), run_clients(about(0.02, 0.002), SECONDS, seed=1)),
        add_part(
            tmp_path, make_part("reports", endpoint="primary"), run_clients(about(3.5), SECONDS, seed=2, clients=1)
        ),
    )
    data = read_trial_data(tmp_path, make_trial(SECONDS, generators=parts))
    assert np.array(list_tps(data)) == pytest.approx(CLIENTS / 0.02, rel=0.05)
    whole, of_parts = analyse(data, clients=CLIENTS + 1), analyse(data, clients=CLIENTS + 1).parts
    assert sum(one.tps or 0.0 for one in of_parts) == pytest.approx(whole.tps, rel=1e-4)


def test_parts_of_a_load_without_three_whole_seconds_add_up_to_it(tmp_path: Path) -> None:
    parts = tuple(
        add_part(tmp_path, make_part(name, endpoint="primary"), run_clients(about(mean_s, mean_s / 10), 2, seed=1))
        for name, mean_s in (("readers", 0.004), ("writers", 0.008))
    )
    found = analyse(read_trial_data(tmp_path, make_trial(2, generators=parts)), clients=2 * CLIENTS)
    assert found.steady_from_s is None
    assert found.tps == pytest.approx(CLIENTS / 0.004 + CLIENTS / 0.008, rel=0.01)
    assert sum(one.tps or 0.0 for one in found.parts) == pytest.approx(found.tps)


@pytest.mark.parametrize("ends_s", [(), (90.0,), (20.0,), (20.0, 24.0), (29.0, 58.0)])
def test_seconds_in_which_no_query_of_a_part_ended_are_seconds_of_the_load(
    tmp_path: Path, ends_s: tuple[float, ...]
) -> None:
    short = run_clients(about(0.02, 0.002), SECONDS, seed=1)
    begins_s = (0.0, *ends_s[:-1])
    job = msgspec.structs.replace(
        run_clients(about(0.02, 0.002), SECONDS, seed=1, clients=1),
        client=np.zeros(len(ends_s), dtype=np.int64),
        number=np.arange(len(ends_s)),
        script=np.zeros(len(ends_s), dtype=np.int64),
        latency_us=np.array(
            [1e6 * (end - begin) for begin, end in zip(begins_s, ends_s, strict=False)], dtype=np.int64
        ),
        outcome=np.zeros(len(ends_s), dtype=np.uint8),
        stamp_us=np.array([1e6 * (EPOCH_S + end) for end in ends_s], dtype=np.int64),
    )
    alone = read_load(tmp_path / "alone", short)
    folder = tmp_path / "both"
    parts = tuple(
        add_part(folder, make_part(name, endpoint="primary"), batch) for name, batch in (("job", job), ("oltp", short))
    )
    data = read_trial_data(folder, make_trial(SECONDS, generators=parts))
    assert data.whole_seconds == alone.whole_seconds
    assert sum(data.whole_seconds) > 0
    found = analyse(data, clients=CLIENTS + 1)
    assert found.tps == pytest.approx(analyse(alone).tps, rel=0.001)
    assert found.steady_from_s == analyse(alone).steady_from_s
    assert len(list_tps(data)) == len(list_tps(alone))


@pytest.mark.parametrize(("later_s", "ahead_s"), [(0.5, 0.45), (-0.3, -0.45), (-0.3, 3600.55)])
def test_seconds_of_load_hosts_count_where_each_of_them_ran_throughout(
    tmp_path: Path, later_s: float, ahead_s: float
) -> None:
    """Of another machine a second is the nearest one of the first machine, which may begin before the load or end after it."""
    parts = []
    for name, wall_s in (("one", 0.0), ("other", ahead_s)):
        part = make_part(name, epoch_offset_s=EPOCH_S - START_S + wall_s)
        batch = run_clients(about(0.02, 0.002), SECONDS, seed=len(parts), epoch_s=EPOCH_S + later_s + wall_s)
        parts.append(add_part(tmp_path, part, batch))
        exchanges = [ClockExchange(0, START_S, START_S + 0.0001, START_S + 0.0002)]
        append_exchanges(tmp_path / LOADS_DIR / name / CLOCK_FILE, exchanges)
    trial = make_trial(SECONDS, generators=tuple(parts))
    data = read_trial_data(tmp_path, msgspec.structs.replace(trial, load_start_monotonic_s=START_S + later_s))
    assert np.array(list_tps(data)) == pytest.approx(2 * CLIENTS / 0.02, rel=0.05)
    assert len(list_tps(data)) == SECONDS - 2


@pytest.mark.parametrize("ahead_s", [0.0, -0.3, 3600.4])
def test_parts_on_load_hosts_add_up_to_the_whole_whatever_the_clocks_there_say(tmp_path: Path, ahead_s: float) -> None:
    parts = []
    for name, mean_s in (("reads", 0.01), ("writes", 0.04)):
        for host, wall_s in (("load1", 0.0), ("load2", ahead_s)):
            made = make_part(name, endpoint="primary", epoch_offset_s=EPOCH_S - START_S + wall_s)
            part = msgspec.structs.replace(made, host=host, folder=f"{name}+{host}")
            batch = run_clients(about(mean_s, mean_s / 10), SECONDS, seed=len(parts), epoch_s=EPOCH_S + wall_s)
            parts.append(add_part(tmp_path, part, batch))
            exchanges = [ClockExchange(0, START_S, START_S + 0.0001, START_S + 0.0002)]
            append_exchanges(tmp_path / LOADS_DIR / part.folder / CLOCK_FILE, exchanges)
    data = read_trial_data(tmp_path, make_trial(SECONDS, generators=tuple(parts)))
    found = analyse(data, clients=4 * CLIENTS)
    assert [(one.name, one.endpoints, one.clients) for one in found.parts] == [
        ("reads", ("primary",), 2 * CLIENTS),
        ("writes", ("primary",), 2 * CLIENTS),
    ]
    tps = [one.tps or 0.0 for one in found.parts]
    assert tps == pytest.approx([2 * CLIENTS / 0.01, 2 * CLIENTS / 0.04], rel=0.05)
    assert sum(tps) == pytest.approx(found.tps)
    # Percentiles are of both hosts, too.
    assert all(one.percentiles[0].value_ms for one in found.parts)
    assert [(one.host, one.clients) for one in found.generators] == [("load1", 2 * CLIENTS), ("load2", 2 * CLIENTS)]


def test_a_load_that_ended_early_has_no_seconds_after_its_last_transaction(tmp_path: Path) -> None:
    """Its process may end long after that, as where the server went away."""
    batch = run_clients(about(0.02, 0.002), SECONDS / 2, seed=1)
    data = read_load(tmp_path, batch)
    assert data.whole_seconds.stop == int(EPOCH_S) + SECONDS / 2
    assert analyse(data).tps == pytest.approx(CLIENTS / 0.02, rel=0.01)


@pytest.mark.parametrize("offset_s", [0.0, 0.3, 0.45, 0.8])
@pytest.mark.parametrize(("seconds", "every_s"), [(10, 1.0), (5, 1.0), (2, 1.9)])
def test_samples_of_intervals_that_reach_out_of_the_load_are_not_those_of_the_load(
    seconds: int, every_s: float, offset_s: float
) -> None:
    """Of CPUs that are full within the load and idle around it."""
    data = make_data(seconds=float(seconds))
    assert data.os is not None
    start_s = data.record.load_start_monotonic_s
    assert start_s is not None
    times_s = start_s - 5 * every_s + offset_s + every_s * np.arange(20)
    busy_s = np.clip(times_s - start_s, 0.0, seconds)
    columns = {"t_s": times_s}
    for cpu in ("cpu0", "cpu1"):
        columns |= {f"{cpu}/{kind}": np.zeros(20) for kind in series.CPU_KINDS}
        columns |= {f"{cpu}/user": 100 * busy_s, f"{cpu}/idle": 100 * (times_s - times_s[0] - busy_s)}
    samples = msgspec.structs.replace(data.os, frame=pl.DataFrame(columns))
    line = series.cpu_busy(samples)
    has_whole_interval = any((times_s[:-1] >= start_s) & (times_s[1:] <= start_s + seconds))
    assert has_whole_interval or every_s > 1.0
    # Without a whole interval within the load, one that is mostly within it says more than none.
    least = 1.0 if has_whole_interval else 0.5
    assert least <= (data.mean_within_load(line) or 0.0) <= 1.0 + 1e-9
    (drawn, *_) = chart_trial(msgspec.structs.replace(data, os=samples), disk=None)[ChartKind.CPU]
    assert min(value for value in drawn.values if value is not None) >= least - 1e-9

"""TPS of transactions that take seconds: clients that begin together end them in waves, of which few fit into a trial."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.comparison.welch import ratio_of
from pgdyno.analyse.estimate import DoubtKind, estimate_over_trials
from pgdyno.analyse.throughput import PgbenchClaim, measure_throughput
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.generators.parts import CLOCK_FILE, LOADS_DIR
from pgdyno.record.samples.clock import ClockExchange, append_exchanges
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.transactions.times import LONG_RATIO
from pgdyno.record.trial_data import read_trial_data
from tests.long_loads import (
    CLIENTS,
    CONNECTING_S,
    EPOCH_S,
    START_S,
    DrawLatencies,
    about,
    add_part,
    analyse,
    make_part,
    make_trial,
    run_clients,
    summarise,
    write_log,
)


def measure(
    folder: Path, latencies: DrawLatencies, seconds: float, *, seed: int, failed_ratio: float = 0.0, rate: float = 1.0
) -> TrialAnalysis:
    """Measure a trial under eight clients as its record is read."""
    batch = run_clients(latencies, seconds, seed=seed, failed_ratio=failed_ratio, sampling_rate=rate)
    place = folder / f"{seed}"
    write_log(place, batch, summarise(batch, sampling_rate=rate))
    found = analyse(read_trial_data(place, make_trial(seconds, log_sampling_rate=rate)))
    shutil.rmtree(place)
    return found


def differing(mean_s: float, sd_ratio: float) -> DrawLatencies:
    """Latencies of queries that differ: log-normal."""
    sigma = np.sqrt(np.log(1.0 + sd_ratio**2))
    return lambda draw, count: mean_s * np.exp(draw.normal(-(sigma**2) / 2.0, sigma, count))


@pytest.mark.parametrize("sd_s", [0.05, 0.1])
@pytest.mark.parametrize(
    ("mean_s", "seconds"), [(5.0, 20), (3.0, 20), (9.0, 60), (4.0, 30), (0.7, 20), (9.0, 20), (2.0, 4)]
)
def test_waves_of_clients_do_not_bias_tps(tmp_path: Path, mean_s: float, seconds: int, sd_s: float) -> None:
    found = [measure(tmp_path, about(mean_s, sd_s), seconds, seed=seed) for seed in range(12)]
    assert np.mean([one.tps for one in found]) == pytest.approx(CLIENTS / mean_s, rel=0.005)
    # The mean of the transactions that were under way at the end is no other.
    assert np.mean([one.latency_mean_ms for one in found]) == pytest.approx(1000.0 * mean_s, rel=0.005)
    assert not [doubt for one in found for doubt in one.doubts]


def test_queries_that_differ_are_not_biased_either(tmp_path: Path) -> None:
    found = [measure(tmp_path, differing(2.0, 0.5), 40, seed=seed).tps for seed in range(60)]
    assert np.mean(found) == pytest.approx(CLIENTS / 2.0, rel=0.02)


def test_a_true_ratio_lies_in_its_interval(tmp_path: Path) -> None:
    """Of 4 and 3.5 s in trials of 30 s; whole seconds alone gave 1.21 [1.18, 1.25]."""
    true, held = 4.0 / 3.5, 0
    for pair in range(30):
        sides = [
            estimate_over_trials(
                [measure(tmp_path, about(mean_s), 30, seed=10 * pair + one).tps for one in places], unit="tps"
            )
            for mean_s, places in ((4.0, range(5)), (3.5, range(5, 10)))
        ]
        ratio = ratio_of(*sides)
        assert ratio.value == pytest.approx(true, rel=0.02)
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= true <= ratio.high
    # Of 30 intervals of 95 %, fewer hold it with a chance of 1 in 1,000.
    assert held >= 25


def test_failed_and_unlogged_transactions_leave_the_others_right(tmp_path: Path) -> None:
    failing = [measure(tmp_path, about(1.0), 20, seed=seed, failed_ratio=0.25).tps for seed in range(12)]
    assert np.mean(failing) == pytest.approx(0.75 * CLIENTS, rel=0.04)
    sampled = [measure(tmp_path, about(1.0), 20, seed=seed, rate=0.5).tps for seed in range(40)]
    assert np.mean(sampled) == pytest.approx(CLIENTS, rel=0.05)


def test_time_between_long_transactions_is_a_doubt(tmp_path: Path) -> None:
    """As in `check_littles_law`."""
    batch = run_clients(about(2.1), 30, seed=1)
    late = msgspec.structs.replace(batch, latency_us=batch.latency_us - 100_000)
    write_log(tmp_path / "1", late, summarise(late))
    found = analyse(read_trial_data(tmp_path / "1", make_trial(30)))
    assert [doubt.kind for doubt in found.doubts] == [DoubtKind.LITTLES_LAW]
    assert found.tps == pytest.approx(CLIENTS / 2.1, rel=0.01)


@pytest.mark.parametrize("is_long", [False, True])
def test_short_transactions_are_measured_as_ever(tmp_path: Path, is_long: bool) -> None:
    seconds = 20
    batch = run_clients(about(LONG_RATIO * seconds * (1.02 if is_long else 0.98), 0.001), seconds, seed=3)
    summary = summarise(batch)
    write_log(tmp_path / "1", batch, summary)
    data = read_trial_data(tmp_path / "1", make_trial(seconds))
    assert (data.long_load is None) is not is_long
    whole_seconds = measure_throughput(
        summary,
        PgbenchClaim(clients=CLIENTS, is_closed_loop=True, tps=None, transactions_count=None),
        data.whole_seconds,
    )
    assert (analyse(data).tps == whole_seconds.tps) is not is_long


def test_where_shares_say_nothing_ends_count(tmp_path: Path) -> None:
    batch = run_clients(about(3.0), 20, seed=4)
    plain, scheduled = summarise(batch), summarise(batch, columns=LogColumns.LAG)
    write_log(tmp_path / "plain", batch, plain)
    data = read_trial_data(tmp_path / "plain", make_trial(20))
    assert data.long_load is not None
    # A latency counts from the schedule; the client may have begun later.
    write_log(tmp_path / "scheduled", batch, scheduled)
    assert read_trial_data(tmp_path / "scheduled", make_trial(20)).long_load is None
    ends = PgbenchClaim(clients=CLIENTS, is_closed_loop=False, tps=None, transactions_count=None)
    assert analyse(data, rate_tps=2.0).tps == measure_throughput(plain, ends, data.whole_seconds).tps
    # Slices and turns have their own shares.
    assert read_trial_data(tmp_path / "plain", make_trial(20, slice_s=0.5)).long_load is None


def test_a_part_of_long_queries_has_its_own_tps_beside_short_ones(tmp_path: Path) -> None:
    short = run_clients(about(0.02, 0.002), 60, seed=5)
    long = run_clients(about(20.0), 60, seed=6, clients=1)
    parts = (
        add_part(tmp_path, make_part("oltp", endpoint="primary"), short),
        add_part(tmp_path, make_part("reports", endpoint="primary"), long),
    )
    data = read_trial_data(tmp_path, make_trial(60, generators=parts))
    assert data.long_load is None
    oltp, reports = analyse(data, clients=CLIENTS + 1).parts
    assert reports.tps == pytest.approx(0.05, rel=0.01)
    assert reports.latency_mean_ms == pytest.approx(20_000.0, rel=0.01)
    (member,) = [one for one in data.generators if one.part.host == "oltp"]
    assert member.long_load is None
    assert member.transactions is not None
    assert oltp.tps == pytest.approx(CLIENTS / 0.02, rel=0.01)


def test_long_transactions_of_load_hosts_add_up_whatever_their_clocks_say(tmp_path: Path) -> None:
    parts = []
    for name, ahead_s in (("zeta", 0.0), ("alpha", 3600.0)):
        part = make_part(name, epoch_offset_s=EPOCH_S - START_S + ahead_s)
        batch = run_clients(about(5.0), 20, seed=len(parts), epoch_s=EPOCH_S + ahead_s)
        parts.append(add_part(tmp_path, part, batch))
        exchanges = [ClockExchange(0, START_S, START_S + 0.0001, START_S + 0.0002)]
        append_exchanges(tmp_path / LOADS_DIR / name / CLOCK_FILE, exchanges)
    data = read_trial_data(tmp_path, make_trial(20, generators=tuple(parts)))
    assert data.long_load is not None
    assert data.long_load.from_epoch_s == pytest.approx(EPOCH_S + CONNECTING_S, abs=0.001)
    assert data.long_load.until_epoch_s == pytest.approx(EPOCH_S + 20.0, abs=0.001)
    assert analyse(data, clients=2 * CLIENTS).tps == pytest.approx(2 * CLIENTS / 5.0, rel=0.01)

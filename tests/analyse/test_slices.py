from __future__ import annotations

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from pgdyno.analyse.series import ChartKind
from pgdyno.analyse.trial.analysis import measure_trial
from pgdyno.analyse.trial.charts import chart_slices
from pgdyno.analyse.trial.slices import SlicedTrial, measure_slices
from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase
from pgdyno.record.trial_data import read_trial_data
from tests.records import RECORDS

SLICE_S, WASHOUT_S, FROZEN_S = 0.5, 0.005, 1.0
CLIENTS = 8


def make_slice(number: int, *, settled_s: float = WASHOUT_S, cpu_s: float | None = None) -> Slice:
    begin_s = number * (SLICE_S + FROZEN_S)
    return Slice(
        phase=SlicePhase.ROUND,
        round=number + 1,
        position=0,
        variant="stock",
        begin_monotonic_s=begin_s,
        settled_monotonic_s=begin_s + settled_s,
        end_monotonic_s=begin_s + SLICE_S,
        counts={"cpu_s": cpu_s},
    )


def run_clients(draw: np.random.Generator, slices_count: int) -> tuple[NDArray[np.float64], list[SliceLoad]]:
    """Run clients in a closed loop on a server that is frozen between slices; every client's latencies, and the slices' loads.

    One transaction in fifty takes 20 times as long as the others do, so that many of the long ones are cut.
    """
    all_s, ends_s, seen_s = [], [], []
    for _ in range(CLIENTS):
        count = round(3 * slices_count * SLICE_S / 0.005)
        latency_s = draw.exponential(0.004, size=count) * np.where(draw.random(count) < 0.02, 20.0, 1.0)
        end_s = np.cumsum(latency_s)
        # Time that passes while the clients run is cut into slices; that of the wall clock has the frozen time, too.
        begin_s = end_s - latency_s
        frozen_s = (np.floor(end_s / SLICE_S) - np.floor(begin_s / SLICE_S)) * FROZEN_S
        all_s.append(latency_s)
        ends_s.append(end_s)
        seen_s.append(latency_s + frozen_s)
    end_s, latency_s = np.concatenate(ends_s), np.concatenate(seen_s)
    loads = []
    for number in range(slices_count):
        own_s = end_s - number * SLICE_S
        counted = (own_s >= WASHOUT_S) & (own_s < SLICE_S)
        latency_us = np.round(latency_s[counted] * 1e6).astype(np.int64)
        loads.append(SliceLoad(ok_count=int(counted.sum()), latency_us=latency_us, end_s=own_s[counted]))
    return np.concatenate(all_s), loads


def percentile_of(measured: SlicedTrial, name: str) -> float:
    (found,) = (one.value_ms for one in measured.percentiles if one.name == name)
    assert found is not None
    return found


class TestMeasureSlices:
    def test_latencies_are_those_of_a_load_that_was_never_frozen(self) -> None:
        truth_s, loads = run_clients(np.random.default_rng(11), 400)
        slices = [make_slice(number) for number in range(400)]
        measured = measure_slices(slices, loads, sampling_rate=1.0)
        kept_us = np.concatenate([load.latency_us[load.latency_us <= load.end_s * 1e6] for load in loads])
        assert 0.97 < len(kept_us) / sum(load.ok_count for load in loads) < 0.997
        assert measured.latency_mean_ms == pytest.approx(truth_s.mean() * 1e3, rel=0.03)
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert percentile_of(measured, name) == pytest.approx(np.quantile(truth_s, q) * 1e3, rel=0.06), name
        # Without weights, the transactions that take long are missing.
        assert np.quantile(kept_us, 0.99) / 1e3 < 0.8 * np.quantile(truth_s, 0.99) * 1e3
        # In a closed loop, clients = TPS x latency.
        assert measured.tps == pytest.approx(CLIENTS / truth_s.mean(), rel=0.03)

    def test_without_cuts_it_counts_every_transaction_alike(self) -> None:
        latency_us = np.arange(1, 2001, dtype=np.int64)
        load = SliceLoad(ok_count=2000, latency_us=latency_us, end_s=np.linspace(WASHOUT_S, SLICE_S, 2000))
        measured = measure_slices([make_slice(0)], [load], sampling_rate=0.5)
        assert measured.tps == pytest.approx(2 * 2000 / (SLICE_S - WASHOUT_S))
        assert measured.latency_mean_ms == pytest.approx(latency_us.mean() / 1e3)
        assert percentile_of(measured, "p50") == 1.0
        assert percentile_of(measured, "max") == 2.0
        reasons = {one.name: one.reason for one in measured.percentiles if one.value_ms is None}
        assert reasons == {"p99.9": "too few transactions for p99.9: 2000 of the 10000 it needs"}

    def test_transactions_of_a_turn_weigh_by_their_shares_and_none_is_cut(self) -> None:
        latency_us = np.array([900_000] * 3000 + [100_000] * 1000)
        load = SliceLoad(ok_count=2000.0, latency_us=latency_us, end_s=np.full(4000, 9.0), shares=np.full(4000, 0.5))
        measured = measure_slices([make_slice(0)], [load], sampling_rate=1.0)
        assert measured.tps == pytest.approx(2000 / (SLICE_S - WASHOUT_S))
        assert measured.latency_mean_ms == pytest.approx(700.0)
        assert percentile_of(measured, "p50") == percentile_of(measured, "max") == 900.0

    def test_what_slices_are_too_short_for_is_absent_with_the_reason(self) -> None:
        latency_us = np.full(4000, 300_000, dtype=np.int64)
        load = SliceLoad(ok_count=4000, latency_us=latency_us, end_s=np.full(4000, 0.4))
        measured = measure_slices([make_slice(0)], [load], sampling_rate=1.0)
        of = [one for one in measured.percentiles if one.name in {"p50", "p95", "p99"}]
        reasons = {one.reason for one in of}
        assert {(one.value_ms, one.own_ms) for one in of} == {(None, 300.0)}
        assert reasons == {"too long for what it ran in: of transactions above 250 ms, most did not fit in"}

    def test_the_slowest_is_unknown_where_slices_cut(self) -> None:
        load = SliceLoad(ok_count=3, latency_us=np.array([1000, 2000, 900_000]), end_s=np.array([0.1, 0.2, 0.3]))
        measured = measure_slices([make_slice(0)], [load], sampling_rate=1.0)
        (slowest,) = (one for one in measured.percentiles if one.name == "max")
        assert slowest.value_ms is None
        assert slowest.reason == "the slowest may be among the transactions that a slice cut"

    def test_a_trial_in_which_nothing_ended(self) -> None:
        load = SliceLoad(ok_count=0, latency_us=np.empty(0, dtype=np.int64), end_s=np.empty(0))
        measured = measure_slices([make_slice(0)], [load], sampling_rate=1.0)
        assert (measured.tps, measured.latency_mean_ms) == (0.0, None)
        assert {one.reason for one in measured.percentiles} == {"no transaction was whole within a slice"}

    def test_counters_of_the_machine(self) -> None:
        load = SliceLoad(ok_count=100, latency_us=np.full(100, 1000), end_s=np.full(100, 0.3))
        slices = [make_slice(0, cpu_s=0.2), make_slice(1, cpu_s=0.3)]
        assert measure_slices(slices, [load, load], sampling_rate=0.5).counts_per_transaction["cpu_ms"] == 500 / 400
        # Of a turn that began late they are not known: its transactions are left out as well.
        slices[1] = make_slice(1)
        assert measure_slices(slices, [load, load], sampling_rate=0.5).counts_per_transaction["cpu_ms"] == 200 / 200
        slices[0] = make_slice(0)
        assert measure_slices(slices, [load, load], sampling_rate=0.5).counts_per_transaction["cpu_ms"] is None


def test_no_time_that_the_server_counted_is_one_of_a_trial_in_slices() -> None:
    store = open_record(RECORDS / "v1-pg18")
    record, trial = store.read_record(), store.read_trials()[0]
    whole = read_trial_data(store.trial_dir(trial.planned.number), trial)
    load = SliceLoad(ok_count=99, latency_us=np.full(99, 1000), end_s=np.full(99, 0.3))
    frozen = msgspec.structs.replace(whole, slices=(make_slice(0, cpu_s=0.1),), slice_loads=(load,))
    planned = record.plan.find_load(trial.planned)
    counted = measure_trial(record, planned, whole).counts_per_transaction
    times = {name for name in counted if name.endswith("_ms")}
    assert {"wal_sync_ms", "blk_write_ms", "checkpoint_write_ms", "active_ms"} <= times
    own = measure_trial(record, planned, frozen).counts_per_transaction
    # What the processes did is of the slices alone.
    assert {name for name in own if name.endswith("_ms")} == {"cpu_ms"}
    assert {name: own[name] for name in counted if name not in times} == {
        name: count for name, count in counted.items() if name not in times
    }


def test_the_chart_has_slices_where_they_were_and_no_rate_where_no_time_of_one_counts() -> None:
    store = open_record(RECORDS / "v1-pg18")
    trial = store.read_trials()[0]
    load = SliceLoad(ok_count=99, latency_us=np.full(99, 1000), end_s=np.full(99, 0.3))
    nothing = SliceLoad(ok_count=0, latency_us=np.empty(0, dtype=np.int64), end_s=np.empty(0))
    data = msgspec.structs.replace(
        read_trial_data(store.trial_dir(trial.planned.number), trial),
        record=msgspec.structs.replace(trial, load_start_monotonic_s=-2.0),
        slices=(make_slice(0, settled_s=SLICE_S), make_slice(1)),
        slice_loads=(nothing, load),
    )
    (tps,) = chart_slices(data)[ChartKind.TPS]
    # The time between them has passed, too: exports name each moment by the wall clock.
    middle_s = (WASHOUT_S + SLICE_S) / 2
    assert tps.t_s == pytest.approx((2.0 + SLICE_S, 2.0 + SLICE_S + FROZEN_S + middle_s))
    assert tps.values == (None, pytest.approx(99 / (SLICE_S - WASHOUT_S)))

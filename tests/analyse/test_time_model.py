from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.analyse.transaction_time.shares import Resource, TransactionTime
from pgdyno.analyse.transaction_time.theory import count_clients_at_thread
from pgdyno.analyse.trial.quoted import list_waiting_sessions
from pgdyno.plan.plan import PlannedWorkload
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus
from tests.analyse.joined import COUNT, make_workload
from tests.analyse.timed import FLUSH, FOLLOW, IDLE, READ, ROW, RUNNING, make_timed, without_samples
from tests.rows import each_row

CLIENTS = 8
LOAD = make_workload("tpcb-like", clients=CLIENTS)


def measure(data: TrialData, load: PlannedWorkload = LOAD) -> TransactionTime:
    time = measure_time(data, load)
    assert time is not None
    return time


def shares_of(data: TrialData, load: PlannedWorkload = LOAD) -> dict[Resource, float]:
    return {share.resource: share.ratio for share in measure(data, load).shares}


def test_all_shares_together_are_the_clients_time() -> None:
    time = measure(make_timed({RUNNING: 2.5, FLUSH: 1.0, FOLLOW: 3.0, IDLE: 1.5}))
    assert sum(share.ratio for share in time.shares) == pytest.approx(1.0)
    # Little's law: 8 clients, 10,000 transactions in 10 s.
    assert time.transaction_ms == pytest.approx(8.0)
    assert sum(share.ms for share in time.shares) == pytest.approx(8.0)
    assert time.observed_count == 100
    assert [share.resource for share in time.shares] == [Resource.WAL_FLUSH, Resource.CPU, Resource.CLIENT]


def test_a_late_sample_counts_for_as_long_as_the_backends_were_watched_until_then() -> None:
    data = make_timed({FLUSH: [8.0] * 4 + [0.0] * 6, RUNNING: [0.0] * 4 + [8.0] * 6})
    assert data.server is not None
    frame = without_samples(data.server.frame, before_s=4.0)
    data = msgspec.structs.replace(data, server=msgspec.structs.replace(data.server, frame=frame))
    assert shares_of(data)[Resource.WAL_FLUSH] == pytest.approx(0.4)
    sessions = {one.event: one.sessions for one in list_waiting_sessions(data)}
    assert sessions == pytest.approx({"IO: WalSync": 3.2, "CPU": 4.8})


@each_row(
    [
        (15, "IO", "WALSync", Resource.WAL_FLUSH),
        (16, "IO", "WALSync", Resource.WAL_FLUSH),
        (17, "IO", "WalSync", Resource.WAL_FLUSH),
        (18, "IO", "WalSync", Resource.WAL_FLUSH),
        (15, "IPC", "BufferIO", Resource.DATA_READ),
        (18, "IPC", "BufferIo", Resource.DATA_READ),
        (18, "IO", "AioIoCompletion", Resource.DATA_READ),
        (15, "LWLock", "WALInsert", Resource.WAL_LOCK),
        (18, "LWLock", "BufferContent", Resource.LIGHTWEIGHT_LOCK),
        (18, "IO", "DataFileExtend", Resource.DATA_WRITE),
        (16, "IO", "BufFileRead", Resource.TEMP_FILE),
        (17, "IO", "BuffileWrite", Resource.TEMP_FILE),
        (18, "IPC", "SyncRep", Resource.STANDBY),
        (18, "Client", "ClientWrite", Resource.CLIENT),
        # Of another version, of nobody's, and of an extension.
        (15, "IO", "WalSync", Resource.UNKNOWN),
        (18, "Timeout", "PgSleep", Resource.UNKNOWN),
        (18, "Extension", "Extension", Resource.UNKNOWN),
    ]
)
def test_a_wait_is_for_what_its_version_says(major: int, kind: str, event: str, resource: Resource) -> None:
    shares = shares_of(make_timed({RUNNING: 4.0, ("active", kind, event): 4.0}, major=major))
    assert shares[resource] == pytest.approx(0.5)


def test_queueing_for_a_cpu_is_found_in_waits() -> None:
    """Of 6 that seem to wait, 3 have been woken and have no CPU: the kernel counted 5 ready where 2 seemed to run."""
    waits = {RUNNING: 2.0, FLUSH: 1.0, FOLLOW: 2.0, ROW: 3.0}
    shares = shares_of(make_timed(waits, backends=(1.0, 4.0)))
    assert shares[Resource.CPU] == pytest.approx(5 / 8)
    assert shares[Resource.WAL_FLUSH] == pytest.approx(1.5 / 8)
    assert shares[Resource.LOCK] == pytest.approx(1.5 / 8)
    time = measure(make_timed(waits, backends=(1.0, 4.0)))
    assert time.queueing_ratio == pytest.approx(0.8)
    assert time.running_ms == pytest.approx(1.0)
    assert time.transaction_ms == pytest.approx(8.0)


def test_who_runs_without_a_cpu_waits_for_what_nobody_tells() -> None:
    shares = shares_of(make_timed({RUNNING: 6.0, FLUSH: 2.0}, backends=(1.0, 1.0)))
    assert shares[Resource.CPU] == pytest.approx(2 / 8)
    assert shares[Resource.UNKNOWN] == pytest.approx(4 / 8)


def test_clients_in_a_thread_that_is_always_busy_are_pgbenchs() -> None:
    shares = shares_of(make_timed({RUNNING: 1.0, IDLE: 7.0}, backends=(1.0, 0.0), threads=[(1.0, 0.0)]))
    assert shares[Resource.LOAD_GENERATOR] == pytest.approx(7 / 8)
    assert Resource.CLIENT not in shares


def test_clients_of_threads_that_sleep_think() -> None:
    shares = shares_of(make_timed({RUNNING: 1.0, IDLE: 7.0}, backends=(1.0, 0.0), threads=[(0.1, 0.0), (0.1, 0.0)]))
    with_pgbench = 2 * count_clients_at_thread(0.1, 4)
    assert shares[Resource.LOAD_GENERATOR] == pytest.approx(with_pgbench / 8)
    assert shares[Resource.CLIENT] == pytest.approx((7 - with_pgbench) / 8)


def test_one_client_is_with_its_thread_for_as_long_as_that_is_busy() -> None:
    load = make_workload("select-only", clients=1)
    data = make_timed({RUNNING: 0.4, IDLE: 0.6}, backends=(0.4, 0.0), threads=[(0.3, 0.0)])
    assert shares_of(data, load)[Resource.LOAD_GENERATOR] == pytest.approx(0.3)


def test_pgbench_that_waits_for_a_cpu_as_backends_do_is_a_matter_of_cpus() -> None:
    shares = shares_of(make_timed({RUNNING: 4.0, IDLE: 4.0}, backends=(1.0, 3.0), threads=[(0.3, 0.7)]))
    assert shares[Resource.CPU] == pytest.approx((4 + 0.7 * 4) / 8)
    assert shares[Resource.LOAD_GENERATOR] == pytest.approx(0.3 * 4 / 8)


def test_pgbench_that_waits_for_a_cpu_alone_is_kept_short() -> None:
    time = measure(make_timed({RUNNING: 1.0, IDLE: 7.0}, backends=(1.0, 0.02), threads=[(0.05, 0.95)]))
    assert time.find(Resource.LOAD_GENERATOR).ratio == pytest.approx(7 / 8, rel=0.01)  # type: ignore[union-attr]
    assert time.generator_ratio == pytest.approx(1.0)


def test_a_client_without_time_to_think_takes_none_where_cpus_are_short() -> None:
    """Looks that come late see many who were just woken: 4 of 8 seem to wait for a pgbench that sleeps."""
    data = make_timed({FLUSH: 3.0, RUNNING: 1.0, IDLE: 4.0}, backends=(0.2, 0.8), threads=[(0.02, 0.08)])
    time = measure(data)
    assert time.find(Resource.CLIENT) is None
    assert "cannot be told" in time.absent[Resource.CLIENT.value]
    with_pgbench = count_clients_at_thread(0.1, 8)
    assert time.find(Resource.WAL_FLUSH).ratio == pytest.approx(3 / (4 + with_pgbench))  # type: ignore[union-attr]
    assert time.transaction_ms == pytest.approx(8.0)
    thinking = msgspec.structs.replace(LOAD, scripts=(("/tmp/mine.sql", 1),))
    assert shares_of(data, thinking)[Resource.CLIENT] == pytest.approx((4 - with_pgbench) / 8)


def test_sessions_that_are_no_clients_do_not_count() -> None:
    shares = shares_of(make_timed({RUNNING: 4.0, FLUSH: 2.0, IDLE: 5.0}))
    assert shares[Resource.CLIENT] == pytest.approx(2 / 8)


def test_waiting_for_a_schedule_is_no_part_of_a_transaction() -> None:
    load = make_workload("tpcb-like", clients=CLIENTS, rate_tps=1000.0)
    time = measure(make_timed({RUNNING: 1.0, FLUSH: 1.0, IDLE: 6.0}), load)
    assert time.find(Resource.CLIENT) is None
    assert time.transaction_ms == pytest.approx(2.0)


def test_what_was_not_counted_is_absent_with_its_reason() -> None:
    data = make_timed({RUNNING: 4.0, IDLE: 4.0})
    time = measure(data)
    assert (time.running_ms, time.queueing_ratio, time.generator_ratio) == (None, None, None)
    assert set(time.absent) == {"running_ms", "load generator"}
    alone = measure(msgspec.structs.replace(data, os=None))
    assert [share.ratio for share in alone.shares] == [0.5, 0.5]
    assert set(alone.absent.values()) == {"the machine was not sampled"}


def test_a_kernel_that_counts_nothing_gives_nothing() -> None:
    time = measure(make_timed({RUNNING: 4.0, IDLE: 4.0}, backends=(0.0, 0.0)))
    assert time.running_ms is None
    assert time.absent["running_ms"] == "this kernel does not count it"


@pytest.mark.parametrize("what", ["failed", "no server", "no load", "no count", "too short", "none of the clients"])
def test_nothing_is_said_of_a_trial_that_nobody_looked_at(what: str) -> None:
    data = make_timed({RUNNING: 4.0, IDLE: 4.0}, seconds=1 if what == "too short" else 10)
    changes = {
        "failed": {"record": msgspec.structs.replace(data.record, status=TrialStatus.FAILED)},
        "no server": {"server": None},
        "no load": {"record": msgspec.structs.replace(data.record, load_start_monotonic_s=None)},
        "no count": {"pgbench": None},
        "none of the clients": {"server": make_timed({}).server},
    }
    assert measure_time(msgspec.structs.replace(data, **changes.get(what, {})), LOAD) is None


def test_of_two_seconds_only_more_trials_tell_how_far_a_share_varies() -> None:
    short, longer = (measure(make_timed({RUNNING: 4.0, IDLE: 4.0}, seconds=seconds)) for seconds in (2, 3))
    assert [(share.ratio, share.low_ratio, share.high_ratio) for share in short.shares] == [(0.5, None, None)] * 2
    assert all(share.low_ratio is not None and share.high_ratio is not None for share in longer.shares)


@given(
    waits=st.dictionaries(
        st.sampled_from([RUNNING, FLUSH, FOLLOW, ROW, READ, IDLE, ("active", "?", "?")]),
        st.floats(0.01, 4.0),
        min_size=1,
    ),
    backends=st.none() | st.tuples(st.floats(0.001, 4.0), st.floats(0.0, 8.0)),
    threads=st.none() | st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=3),
)
def test_whatever_was_seen_no_share_is_negative_and_nothing_is_lost(
    waits: dict[tuple[str, str, str], float],
    backends: tuple[float, float] | None,
    threads: list[tuple[float, float]] | None,
) -> None:
    time = measure_time(make_timed(waits, seconds=4, backends=backends, threads=threads), LOAD)
    assert time is not None
    assert sum(share.ratio for share in time.shares) == pytest.approx(1.0)
    assert all(share.ratio > 0.0 for share in time.shares)
    assert all(
        share.low_ratio is None or share.low_ratio <= share.ratio <= (share.high_ratio or 0.0) for share in time.shares
    )


@pytest.mark.parametrize(("lag_one", "least"), [(0.0, 0.92), (0.5, 0.9), (0.9, 0.87)])
def test_intervals_hold_what_they_promise_where_seconds_follow_each_other(lag_one: float, least: float) -> None:
    draw = np.random.default_rng(1)
    seconds, count, held = 60, 200, 0
    for _ in range(count):
        noise = draw.normal(0.0, 0.3, seconds + 50)
        for i in range(1, len(noise)):
            noise[i] = lag_one * noise[i - 1] + noise[i] * np.sqrt(1 - lag_one**2)
        flushing = 3.0 + noise[50:]
        data = make_timed({FLUSH: flushing.tolist(), RUNNING: (CLIENTS - flushing).tolist()}, seconds=seconds)
        share = measure(data).find(Resource.WAL_FLUSH)
        assert share is not None
        assert share.low_ratio is not None
        assert share.high_ratio is not None
        held += share.low_ratio <= 3.0 / CLIENTS <= share.high_ratio
    assert held / count >= least


def test_transactions_are_counted_and_not_guessed() -> None:
    assert measure(make_timed({RUNNING: 8.0})).transaction_ms == pytest.approx(8.0 * 10.0 / COUNT * 1000.0)

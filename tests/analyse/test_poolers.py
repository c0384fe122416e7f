"""A trial through a pooler: where clients are that have no backend, and which of pooler, pool and CPUs limits the load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest

from pgdyno.analyse.bottleneck.agreement import judge_workload
from pgdyno.analyse.poolers import PoolerFigures, measure_pooler
from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.analyse.transaction_time.pooling import split_off_pooler
from pgdyno.analyse.transaction_time.shares import Bottleneck, Resource
from pgdyno.analyse.transaction_time.theory import count_clients_at_thread
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.plan.types import PlannedPooler
from pgdyno.record.samples.files import OS_FILE, read_os_samples
from pgdyno.record.samples.pooler import PoolerSample, PoolerSamples
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import StudyRecord
from pgdyno.spec.pooler import PoolMode
from tests.analyse.joined import COUNT, START_S, make_workload
from tests.analyse.timed import FLUSH, IDLE, RUNNING, make_timed, with_late_sample
from tests.given import RECORDS

SAMPLES = Path(__file__).parents[1] / "data" / "samples" / "pg18"
SIZE, CLIENTS = 4, 16
POOLER = PlannedPooler(name="pool", mode=PoolMode.TRANSACTION, size=SIZE, most_clients=CLIENTS)
LOAD = msgspec.structs.replace(make_workload("tpcb-like", clients=CLIENTS), endpoint="pool")


def with_pooler(
    data: TrialData, *, waiting: float, in_use: float = SIZE, thread: tuple[float, float] = (0.2, 0.0)
) -> TrialData:
    """Add what a pooler says once a second, and the schedstat of its thread."""
    seconds = range(12)
    samples = tuple(
        PoolerSample(
            t_s=START_S - 0.5 + n,
            transactions=COUNT / 10 * n,
            queries=3 * COUNT / 10 * n,
            wait_us=waiting * 1e6 * n,
            waiting_clients=waiting,
            active_servers=in_use,
        )
        for n in seconds
    )
    assert data.os is not None
    frame = data.os.frame
    passed_s = frame["t_s"].to_numpy() - frame["t_s"][0]
    columns = {
        f"thread.pooler.1/{name}": np.round(share * 1e9 * passed_s).astype(int)
        for name, share in zip(("run_ns", "wait_ns"), thread, strict=True)
    }
    os = msgspec.structs.replace(data.os, frame=frame.with_columns(**{k: pl.Series(v) for k, v in columns.items()}))
    return msgspec.structs.replace(data, os=os, pooler=PoolerSamples(version="PgBouncer 1.18.0", samples=samples))


def make_record() -> StudyRecord:
    record = open_record(RECORDS / "v1-pg18").read_record()
    return msgspec.structs.replace(record, plan=msgspec.structs.replace(record.plan, scale=50, poolers=(POOLER,)))


def judge(data: TrialData) -> Bottleneck:
    found = judge_workload(make_record(), LOAD, [analyse_trial(make_record(), LOAD, data)])
    assert found is not None
    return found


def measure(data: TrialData) -> PoolerFigures:
    figures = measure_pooler(data, POOLER)
    assert figures is not None
    return figures


def test_without_a_sample_of_the_machine_the_pooler_s_thread_is_not_known(tmp_path: Path) -> None:
    """The sampler ended after its header."""
    header = (SAMPLES / OS_FILE).read_text().splitlines(keepends=True)[0]
    (tmp_path / OS_FILE).write_text(header)
    data = with_pooler(make_timed({RUNNING: 1.0}), waiting=3.0)
    figures = measure(msgspec.structs.replace(data, os=read_os_samples(tmp_path)))
    assert (figures.thread, figures.samples) == (None, 10)


def test_a_pooler_is_measured_by_its_own_counters() -> None:
    figures = measure(with_pooler(make_timed({RUNNING: 1.0}), waiting=3.0, thread=(0.25, 0.5)))
    assert figures.samples == 10
    assert figures.queries_per_s == pytest.approx(3000.0)
    assert figures.transactions_per_s == pytest.approx(1000.0)
    assert figures.waiting_count == pytest.approx(3.0)
    # Little's law: 3 clients wait at 1000 transactions a second.
    assert figures.wait_ms == pytest.approx(3.0)
    assert figures.waiting_by_s == pytest.approx((3.0,) * 9)
    assert figures.thread is not None
    assert (figures.thread.running_ratio, figures.thread.waiting_ratio) == pytest.approx((0.25, 0.5))
    assert (figures.waiting_clients, figures.active_servers) != (None, None)


def test_a_late_sample_counts_for_as_long_as_the_thread_worked_until_then() -> None:
    data = make_timed({RUNNING: 1.0})
    assert data.os is not None
    thread = measure(msgspec.structs.replace(data, os=with_late_sample(data.os, "pooler", busy_s=4.0))).thread
    assert thread is not None
    assert thread.running_ratio == pytest.approx(0.4)


def test_what_a_pooler_does_not_say_is_none_and_never_zero() -> None:
    data = make_timed({RUNNING: 1.0})
    assert measure_pooler(data, None) is None
    silent = measure(data)
    assert (silent.samples, silent.version, silent.waiting_count, silent.thread) == (0, "", None, None)
    pooled = with_pooler(data, waiting=3.0)
    assert pooled.pooler is not None
    without = tuple(msgspec.structs.replace(one, wait_us=None, waiting_clients=None) for one in pooled.pooler.samples)
    figures = measure(msgspec.structs.replace(pooled, pooler=PoolerSamples(version="PgCat", samples=without)))
    assert (figures.wait_ms, figures.waiting_count, figures.waiting_clients) == (None, None, None)
    assert figures.queries_per_s == pytest.approx(3000.0)
    assert figures.mode == "transaction"
    said = msgspec.structs.replace(pooled.pooler, mode="session")
    assert measure(msgspec.structs.replace(pooled, pooler=said)).mode == "session"
    # One that was restarted counts from 0 again.
    first, *others = pooled.pooler.samples
    restarted = (*others[:5], msgspec.structs.replace(first, t_s=others[5].t_s), *others[6:9])
    fallen = msgspec.structs.replace(others[9], transactions=1.0, queries=1.0, wait_us=1.0)
    figures = measure(msgspec.structs.replace(pooled, pooler=PoolerSamples(version="", samples=(*restarted, fallen))))
    assert (figures.queries_per_s, figures.wait_ms) == (None, None)
    assert all(value >= 0 for value in figures.waiting_by_s)


def test_clients_without_a_backend_wait_for_one_or_are_in_the_pooler_or_elsewhere() -> None:
    data = with_pooler(make_timed({RUNNING: 1.0, FLUSH: 1.5, IDLE: 1.5}, backends=(1.0, 0.0)), waiting=5.0)
    time = analyse_trial(make_record(), LOAD, data).time
    assert time is not None
    # All 16 clients, although 4 backends were seen.
    assert time.transaction_ms == pytest.approx(16.0)
    shares = {share.resource: share.ratio for share in time.shares}
    at_thread = count_clients_at_thread(0.2, CLIENTS)
    assert shares[Resource.POOL] == pytest.approx(5 / 16)
    assert shares[Resource.WAL_FLUSH] == pytest.approx(1.5 / 16)
    assert shares[Resource.POOLER] == pytest.approx(at_thread / 16, rel=0.01)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_at_a_rate_waits_for_the_schedule_are_no_time_of_a_transaction_through_a_pooler() -> None:
    load = msgspec.structs.replace(LOAD, rate_tps=1000.0)
    # Also where CPUs are short, which lets the other shares stand for that of the clients.
    for backends, threads in (((0.5, 0.0), None), ((0.3, 0.2), ((0.1, 0.1),))):
        data = make_timed({RUNNING: 0.5, FLUSH: 0.5}, backends=backends, threads=threads)
        time = measure_time(data, load, None, measure(with_pooler(data, waiting=0.0, thread=(0.0, 0.0))))
        assert time is not None
        shares = {share.resource: share.ms for share in time.shares}
        assert shares[Resource.WAL_FLUSH] == pytest.approx(0.5)
        assert shares[Resource.CPU] == pytest.approx(0.5, abs=0.15)
        assert time.find(Resource.CLIENT) is None
        assert "wait for their schedule" in time.absent[Resource.CLIENT.value]


def split(figures: Mapping[Resource, float], thread: tuple[float, float], **more: object) -> dict[Resource, float]:
    parts = {Resource.CPU: 0.0, Resource.CLIENT: 0.0, **figures}
    seen = measure(with_pooler(make_timed({RUNNING: 1.0}), waiting=0.0, thread=thread))
    split_off_pooler(parts, seen, more.get("backends"), CLIENTS, CLIENTS)  # type: ignore[arg-type]
    return parts


def test_a_pooler_that_waits_for_a_cpu_as_backends_do_is_a_matter_of_cpus() -> None:
    alone = split({Resource.CPU: 1.0}, (0.2, 0.8), backends=(1.0, 0.0))
    assert alone[Resource.POOLER] == pytest.approx(15.0, rel=0.01)
    shared = split({Resource.CPU: 1.0}, (0.2, 0.8), backends=(1.0, 4.0))
    assert shared[Resource.POOLER] == pytest.approx(15.0 * 0.2, rel=0.01)
    assert shared[Resource.CPU] == pytest.approx(1.0 + 15.0 * 0.8, rel=0.01)
    assert sum(shared.values()) == pytest.approx(CLIENTS)


def test_the_limit_is_the_thread_the_pool_or_what_the_connections_wait_for() -> None:
    quiet = make_timed({RUNNING: 0.4, FLUSH: 2.6, IDLE: 1.0}, backends=(0.4, 0.0), threads=[(0.1, 0.0)])
    short = make_timed({RUNNING: 3.8, IDLE: 0.2}, backends=(1.8, 2.0), threads=[(0.1, 0.1)], cpu_share=0.5)
    idle = make_timed({RUNNING: 0.4, IDLE: 3.6}, backends=(0.4, 0.0), threads=[(0.1, 0.0)])
    row_locks = make_timed(
        {RUNNING: 0.2, ("active", "Lock", "transactionid"): 3.8}, backends=(0.2, 0.0), threads=[(0.1, 0.0)]
    )
    rows = [
        ("few connections that flush", with_pooler(quiet, waiting=11.0), Resource.POOL),
        ("no CPU left", with_pooler(short, waiting=11.0), Resource.CPU),
        ("row locks", with_pooler(row_locks, waiting=11.0), Resource.LOCK),
        ("a full thread", with_pooler(idle, waiting=6.0, in_use=4.0, thread=(0.98, 0.01)), Resource.POOLER),
        ("a thread held short", with_pooler(idle, waiting=6.0, in_use=4.0, thread=(0.05, 0.93)), Resource.POOLER),
    ]
    for what, data, resource in rows:
        assert judge(data).resource is resource, what
    found = judge(rows[-1][1])
    assert found.part == "the one thread of the pooler pool"
    assert any("had a CPU 5 % of the time, and waited for one 93 %" in words for words in found.evidence)
    assert any("the pooler's thread serves them late" in words for words in found.symptoms)
    pool = judge(rows[0][1])
    assert pool.part == "the number of server connections of the pooler pool"
    assert any("4 of 4 server connections were in use on average, and 11 clients waited" in w for w in pool.evidence)
    assert any("a transaction waited 11 ms" in words for words in pool.evidence)

"""The network's share of a transaction: exchanges counted, times the quickest ping, over the mean latency."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.transaction_time.exchanges import UncountableError, count_exchanges, count_in_script
from pgdyno.analyse.transaction_time.model import measure_time
from pgdyno.analyse.transaction_time.network import NetworkTime, estimate_network, measure_network
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.plan.types import PlannedPart
from pgdyno.record.pgbench.output import PgbenchSummary, ScriptResult, StatementResult
from pgdyno.record.samples.pings import Pings
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import Gap
from tests.analyse.joined import START_S, make_data, make_workload
from tests.analyse.timed import FLUSH, IDLE, RUNNING, make_timed
from tests.given import give
from tests.rows import each_row

LOAD = make_workload("tpcb-like", clients=8)


@each_row(
    [
        (["\\set id 1", "BEGIN;", "UPDATE t SET n = :id", "END;"], 3),
        (["\\startpipeline", "SELECT 1;", "SELECT 2;", "\\syncpipeline", "SELECT 3;", "\\endpipeline", "SELECT 4;"], 2),
        (["\\if :x", "\\set y 1", "\\endif", "SELECT :y;"], 1),
        (["\\sleep 1 ms"], 0),
        ([], 0),
    ]
)
def test_an_sql_command_is_an_exchange_and_so_is_a_pipeline(commands: list[str], count: int) -> None:
    assert count_in_script(commands) == count


@each_row([["\\if :x", "SELECT 1;", "\\endif"], ["\\if :x", "\\startpipeline", "\\endpipeline", "\\endif"]])
def test_what_ran_of_a_branch_is_not_known(commands: list[str]) -> None:
    with pytest.raises(UncountableError, match=r"depends on its \\if"):
        count_in_script(commands)


def statements(*commands: str) -> tuple[StatementResult, ...]:
    return tuple(
        StatementResult(text=one, latency_average_ms=1.0, failure_count=0, retry_count=None) for one in commands
    )


def test_scripts_count_by_how_often_each_ran() -> None:
    load = msgspec.structs.replace(LOAD, scripts=(("tpcb-like", 1), ("/my.sql", 1)))
    listed = [
        ScriptResult(number=1, name="<builtin>"),
        ScriptResult(number=2, name="/my.sql", statements=statements("A;")),
    ]
    ran = [msgspec.structs.replace(one, transaction_count=n) for one, n in zip(listed, (100, 300), strict=True)]
    warm_up = PgbenchSummary(scripts=tuple(listed))
    assert count_exchanges(load, warm_up, None) == 4.0
    assert count_exchanges(load, warm_up, PgbenchSummary(scripts=tuple(ran))) == 2.5
    with pytest.raises(UncountableError, match="no warm-up"):
        count_exchanges(load, None, None)


def test_scripts_of_a_part_are_those_of_its_own_place_among_all() -> None:
    own = {"threads": 1, "endpoint": "primary"}
    parts = (
        PlannedPart(name="writes", scripts=(("/my.sql", 1),), clients=1, **own),
        PlannedPart(name="reads", scripts=(("/my.sql", 1), ("select-only", 1)), clients=1, **own),
    )
    scripts = tuple(script for part in parts for script in part.scripts)
    load = msgspec.structs.replace(LOAD, parts=parts, scripts=scripts)
    listed = [("A;", "B;", "C;"), ("D;", "E;"), ()]
    warm_up = PgbenchSummary(
        scripts=tuple(
            ScriptResult(number=number, name="", statements=statements(*commands))
            for number, commands in enumerate(listed, start=1)
        )
    )
    assert count_exchanges(load, warm_up, None, part="writes") == 3.0
    ran = [ScriptResult(number=number, name="", transaction_count=count) for number, count in ((1, 300), (2, 100))]
    assert count_exchanges(load, warm_up, PgbenchSummary(scripts=tuple(ran)), part="reads") == 1.75
    assert count_exchanges(load, warm_up, None) == 2.0
    # Of a part in which no transaction ended, pgbench lists no scripts: those after it keep their numbers.
    later = msgspec.structs.replace(warm_up, scripts=warm_up.scripts[1:])
    assert count_exchanges(load, later, None, part="reads") == 1.5
    with pytest.raises(UncountableError, match="listed no commands"):
        count_exchanges(load, later, None, part="writes")
    only = msgspec.structs.replace(ran[0], number=2)
    assert count_exchanges(load, warm_up, PgbenchSummary(scripts=(only,))) == 2.0
    assert count_exchanges(load, warm_up, PgbenchSummary(scripts=(msgspec.structs.replace(only, number=3),))) == 1.0


def test_commands_of_a_single_script_stand_in_the_summary_itself() -> None:
    load = msgspec.structs.replace(LOAD, scripts=(("/my.sql", 1),))
    assert count_exchanges(load, PgbenchSummary(statements=statements("A;", "\\set b 1", "B;")), None) == 2.0
    with pytest.raises(UncountableError, match="listed no commands"):
        count_exchanges(load, PgbenchSummary(), None)


def with_pings(data: TrialData, *round_trips_ms: float) -> TrialData:
    """Ping in each second of the load, and sooner just before it."""
    began_s = START_S + np.arange(-1.0, len(round_trips_ms)) + 0.5
    return msgspec.structs.replace(
        data, pings=Pings(began_s=began_s, round_trip_s=np.array([0.001, *round_trips_ms]) / 1e3)
    )


def measure(data: TrialData, *, latency_ms: float | None = 10.0, is_local: bool = False) -> NetworkTime:
    network = measure_network(data, LOAD, latency_ms=latency_ms, is_local=is_local)
    assert network is not None
    return network


def test_the_share_is_that_of_the_quickest_ping_beside_the_load() -> None:
    network = measure(with_pings(make_data(), 0.9, 0.5, 3.0))
    assert (network.exchanges_count, network.pings_count) == (7, 3)
    assert (network.ping_ms, network.median_ping_ms) == (pytest.approx(0.5), pytest.approx(0.9))
    assert (network.ratio, network.ms) == (pytest.approx(0.35), pytest.approx(3.5))
    assert network.is_far
    # Latencies that were not all logged may be a little too short.
    assert measure(with_pings(make_data(), 2.0)).ratio == 1.0


def test_what_is_not_known_has_a_reason() -> None:
    data = make_data()
    assert measure(data).absent == "no ping ran beside the load"
    failed = msgspec.structs.replace(data, gaps=(Gap(source="ping", reason="too many clients"),))
    assert measure(failed).absent == "too many clients"
    assert measure(with_pings(data, 0.5), latency_ms=None).absent == "the mean latency is not known"
    at_once = measure(with_pings(data, 0.5), latency_ms=0.0)
    assert (at_once.ratio, at_once.absent) == (None, "pgbench printed no more latency than lag behind the schedule")
    unknown = msgspec.structs.replace(LOAD, scripts=(("/my.sql", 1),))
    network = measure_network(with_pings(data, 0.5), unknown, latency_ms=10.0, is_local=False)
    assert network is not None
    assert "no warm-up" in (network.absent or "")
    assert (network.ratio, network.ms, network.ping_ms) == (None, None, pytest.approx(0.5))


def test_a_schedule_that_was_late_before_the_steady_part_takes_no_more_from_the_latency_than_is_in_it(
    tmp_path: Path,
) -> None:
    """Pgbench prints mean and lag of the whole load; transactions of the steady part took less than the lag of all."""
    store = give("v1-pg15", tmp_path)
    (trial,) = store.read_trials()
    record, data = store.read_record(), read_trial_data(store.trial_dir(trial.planned.number), trial)
    assert data.pgbench is not None
    late = msgspec.structs.replace(data.pgbench, latency_average_ms=7.0, schedule_lag_average_ms=6.0)
    figures = analyse_trial(record, record.plan.workloads[0], msgspec.structs.replace(data, pgbench=late))
    assert figures.latency_mean_ms is not None
    assert figures.latency_mean_ms < 6.0
    assert figures.network is not None
    assert figures.network.ratio == pytest.approx(figures.network.ms)


def test_a_machines_own_server_has_no_network_unless_something_delays_the_way() -> None:
    assert measure_network(make_data(), LOAD, latency_ms=10.0, is_local=True) is None
    assert measure_network(with_pings(make_data(), 0.06, 0.5), LOAD, latency_ms=10.0, is_local=True) is None
    tunnel = measure(with_pings(make_data(), 1.2), is_local=True)
    assert (tunnel.ratio, tunnel.is_local, tunnel.is_far) == (pytest.approx(0.84), False, True)


def test_a_busy_machine_has_no_network_either() -> None:
    """Its server answers late because both ends wait for a CPU."""
    data = with_pings(make_timed({RUNNING: 1.0, FLUSH: 1.0, IDLE: 6.0}), 0.33)
    busy = measure(data, is_local=True)
    assert (busy.ratio, busy.is_local, busy.is_far) == (pytest.approx(0.231), True, False)
    found = estimate_network([busy])
    assert found is not None
    assert (found.is_local, found.is_far) == (True, False)
    time = measure_time(data, LOAD, busy)
    assert time is not None
    assert (time.find(Resource.NETWORK), time.absent["network"]) == (None, "client and server are on one machine")


def test_it_is_taken_out_of_the_waits_for_clients() -> None:
    """Of 8 clients, 6 are away: a transaction takes 8 ms, of which 3.5 in exchanges."""
    data = with_pings(make_timed({RUNNING: 1.0, FLUSH: 1.0, IDLE: 6.0}), 0.5)
    time = measure_time(data, LOAD, measure(data, latency_ms=8.0))
    assert time is not None
    ms = {share.resource: share.ms for share in time.shares}
    assert ms[Resource.NETWORK] == pytest.approx(3.5)
    assert ms[Resource.CLIENT] == pytest.approx(2.5)
    assert sum(ms.values()) == pytest.approx(8.0)
    # Its interval is not that of samples.
    assert time.find(Resource.NETWORK).low_ratio is None  # type: ignore[union-attr]
    assert (time.absent.get("network"), time.absent["load generator"]) == (None, "pgbench was not sampled")


def test_no_more_is_taken_out_than_was_waited() -> None:
    data = with_pings(make_timed({RUNNING: 7.0, IDLE: 1.0}), 0.5)
    time = measure_time(data, LOAD, measure(data, latency_ms=8.0))
    assert time is not None
    assert {share.resource: share.ms for share in time.shares} == {
        Resource.CPU: pytest.approx(7.0),
        Resource.NETWORK: pytest.approx(1.0),
    }


@each_row([(0.06, "work of both ends"), (None, "no ping ran")])
def test_a_network_that_cannot_be_told_stays_with_the_client(ping_ms: float | None, reason: str) -> None:
    data = make_timed({RUNNING: 1.0, IDLE: 7.0})
    network = measure(data if ping_ms is None else with_pings(data, ping_ms))
    time = measure_time(data, LOAD, network)
    assert time is not None
    assert time.find(Resource.NETWORK) is None
    assert reason in time.absent["network"]


def test_over_trials() -> None:
    assert estimate_network([None, None]) is None
    trials = [measure(with_pings(make_data(), one, 2.0 * one, 3.0 * one)) for one in (0.4, 0.5, 0.6)]
    found = estimate_network([*trials, None])
    assert found is not None
    assert (found.exchanges_count, found.ratio.n, found.is_far) == (7, 3, True)
    assert found.ratio.low is not None
    assert found.ratio.value is not None
    assert found.ratio.low < found.ratio.value == pytest.approx(0.345, abs=0.001)
    assert found.median_ratio.value == pytest.approx(2.0 * found.ratio.value)
    wild = [measure(with_pings(make_data(), one)) for one in (0.2, 1.4)]
    assert estimate_network(wild).ratio.high == 1.0  # type: ignore[union-attr]

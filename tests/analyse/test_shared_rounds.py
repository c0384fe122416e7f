"""The reference of a comparison runs twice in a round: its trials of one round share what disturbs it, and count as one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.statements import rank_statements
from pgdyno.analyse.study import find_capacities
from pgdyno.analyse.transaction_time.network import NetworkTime, estimate_network
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.trial.latency import PERCENTILES
from pgdyno.analyse.trial.parts import estimate_parts
from pgdyno.analyse.types import PartFigures, Percentile, TrialAnalysis
from tests.analyse.experiments import in_round, in_rounds
from tests.analyse.loads import draw_limits, draw_load, make_analysis
from tests.analyse.test_bottleneck import FLUSHING, analyse, judge
from tests.analyse.test_capacity import WRITING
from tests.analyse.test_statements import TRIAL, count, count_in
from tests.analyse.timed import FLUSH, ROW, RUNNING, make_timed


def with_part(level: float) -> TrialAnalysis:
    part = PartFigures(
        name="readers",
        endpoints=("primary",),
        clients=4,
        tps=1000.0 * level,
        latency_mean_ms=1.0 * level,
        percentiles=tuple(Percentile(name=name, value_ms=2.0 * level) for name in PERCENTILES),
        failed_count=0,
    )
    return msgspec.structs.replace(TRIAL, parts=(part,))


def holds(estimate: Estimate, truth: float) -> bool:
    assert estimate.n == 5
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


def test_intervals_of_parts_and_of_the_network_hold_the_truth_as_often_as_they_say() -> None:
    """Rounds differ by 5 %, trials of one round by 1 %."""
    draw, held = np.random.default_rng(6), []
    for _ in range(1000):
        levels = np.exp(np.repeat(draw.normal(0, 0.05, 5), 2) + draw.normal(0, 0.01, 10)).tolist()
        rounds = [1 + place // 2 for place in range(10)]
        (part,) = estimate_parts(
            [in_round(with_part(level), number) for level, number in zip(levels, rounds, strict=True)]
        )
        network = estimate_network([make_network(level) for level in levels], rounds=rounds)
        assert network is not None
        held.append(
            [
                holds(part.tps, 1000.0),
                holds(part.latency_ms["mean"], 1.0),
                holds(part.latency_ms["p99"], 2.0),
                holds(network.ratio, 0.1),
                holds(network.ping_ms, 1.0),
            ]
        )
    assert np.mean(held, axis=0) == pytest.approx([0.95] * 5, abs=0.03)


def make_network(level: float) -> NetworkTime:
    return NetworkTime(
        ratio=0.1 * level,
        exchanges_count=7.0,
        ping_ms=level,
        median_ping_ms=2.0 * level,
        pings_count=60,
        is_local=False,
    )


def test_a_network_that_some_trials_lack_leaves_their_rounds_out() -> None:
    found = estimate_network([make_network(1.0), None, make_network(1.1), make_network(1.2)], rounds=[1, 1, 2, 2])
    assert found is not None
    assert found.ratio.n == 2


def test_the_share_of_a_bottleneck_has_the_interval_of_its_rounds() -> None:
    trials = [
        analyse(make_timed({ROW: waiting, RUNNING: 1.0, FLUSH: 7.0 - waiting}, **FLUSHING), scale=1)
        for waiting in (5.8, 6.2, 6.0)
    ]
    once, twice = (judge(in_rounds(trials, each=each), scale=1).share for each in (1, 2))
    assert once is not None
    assert twice is not None
    assert once.low_ratio is not None
    assert (twice.low_ratio, twice.high_ratio) == pytest.approx((once.low_ratio, once.high_ratio))
    # Two trials of one round show no spread: the share has the interval of its samples.
    alone, pair = (judge([in_round(trials[0], 1)] * each, scale=1).share for each in (1, 2))
    assert alone is not None
    assert alone == pair


def find_intervals(trials: Sequence[TrialAnalysis]) -> dict[str, tuple[int, float | None, float | None]]:
    limits = draw_limits(WRITING, sd=0.02)
    record, workload = draw_load(WRITING, limits=limits)
    workload = msgspec.structs.replace(workload, trials=tuple(trials))
    (capacity,) = find_capacities(record, make_analysis(workload), limits)
    found = {f"{one.kind.value} {name}": getattr(one, name) for one in capacity.bounds for name in ("tps", "used")}
    assert capacity.next is not None
    found["gain"] = capacity.next.gain_at_clients
    return {name: (one.n, one.low, one.high) for name, one in found.items()}


def test_bounds_and_gains_have_the_interval_of_their_rounds() -> None:
    nature = msgspec.structs.replace(WRITING, tps=1900.0, shares={Resource.CPU: 0.5})
    _, workload = draw_load(nature, sd=0.02, limits=draw_limits(WRITING, sd=0.02))
    once, twice = (find_intervals(in_rounds(workload.trials, each=each)) for each in (1, 2))
    assert {n for n, _, _ in once.values()} == {4}
    assert once == {name: pytest.approx(interval) for name, interval in twice.items()}


def test_the_share_of_a_statement_has_the_interval_of_its_rounds() -> None:
    trials = [count_in(count("a", ms), count("b", 1.0)) for ms in (5.0, 6.0, 7.0)]
    (once, *_), (twice, *_) = (rank_statements(in_rounds(trials, each=each)) for each in (1, 2))
    assert (once.share.n, once.share.low, once.share.high) == pytest.approx(
        (twice.share.n, twice.share.low, twice.share.high)
    )

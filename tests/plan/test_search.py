"""What a search plans: closed-loop trials, as many at rates as there is time for, and rates that can be told apart."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgdyno.errors import SpecError
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.search import (
    CAPACITY_ROUNDS,
    LEAST_MISSES,
    Search,
    choose_duration_s,
    count_least_rounds,
    list_rates,
)
from pgdyno.spec.read import make_study, parse_study

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 << 30, disk_free_bytes=80_000_000_000)
SEARCH = Search(limit_ms=20.0, percentile=99.0, resolution_ratio=0.1, alpha=0.05, budget_s=600.0)


def plan_of(latency: str = "20ms", workloads: tuple[str, ...] = ("tpcb-like",), **tables: object) -> Plan:
    raw = {"workload": [{"name": name} for name in workloads], "search": {"latency": latency}, **tables}
    return plan_study(make_study(raw, source="test", folder=Path()), MACHINE)


def test_what_is_not_said_is_chosen_with_a_reason() -> None:
    plan = plan_of()
    assert plan.search is not None
    assert plan.experiment is None
    assert plan.search.budget_s is not None
    assert plan.predicted_s == pytest.approx(plan.search.budget_s, abs=60)
    (minutes,) = [choice for choice in plan.choices if choice.name == "minutes"]
    assert "40 trials at scheduled rates" in minutes.reason
    assert {workload.latency_limit_ms for workload in plan.workloads} == {20.0}
    assert {trial.rate_tps for trial in plan.trials} == {None}


def test_a_trial_at_a_rate_is_an_open_loop_and_any_other_a_closed_one() -> None:
    plan = plan_of()
    probe = msgspec.structs.replace(plan.trials[-1], rate_tps=120.0)
    assert plan.find_load(probe).rate_tps == 120.0
    assert plan.find_load(plan.trials[0]).rate_tps is None


def test_all_workloads_together_keep_the_confidence() -> None:
    plan = plan_of(workloads=("tpcb-like", "select-only"))
    assert plan.search is not None
    assert plan.search.alpha == pytest.approx(0.025)
    rounds = itertools.groupby(plan.trials, key=lambda trial: trial.round)
    assert all(sorted(t.workload for t in of) == ["select-only", "tpcb-like"] for _, of in rounds)


def test_a_large_limit_takes_long_trials() -> None:
    plan = plan_of("2s", trials={"duration": "10s"})
    assert {trial.duration_s for trial in plan.trials} == {40.0}
    (duration,) = [choice for choice in plan.choices if choice.name == "duration"]
    assert "2000 ms within a trial" in duration.reason


def test_too_little_time_says_how_much_would_do() -> None:
    with pytest.raises(SpecError, match="2 minutes are too few for an answer") as caught:
        plan_of(experiment={"minutes": 2})
    minutes = int(caught.value.hint.split()[1].rstrip(","))
    plan = plan_of(experiment={"minutes": minutes})
    assert len(plan.trials) >= count_least_rounds(SEARCH)


def test_a_pinned_search_is_the_same_on_another_machine() -> None:
    raw = {"workload": [{"name": "tpcb-like"}], "search": {"latency": "2s", "percentile": 99.9}}
    asked = make_study(raw, source="test", folder=Path())
    plan = plan_study(asked, MACHINE)
    again = parse_study(format_pinned(asked, plan, scripts={}), source="study.toml", folder=Path())
    elsewhere = msgspec.structs.replace(MACHINE, cpu_count=64, memory_bytes=512 << 30)
    assert plan_study(again, elsewhere).search == plan.search
    assert plan_study(again, elsewhere).trials == plan.trials


@pytest.mark.parametrize("restore", ["copy", "none"])
def test_prolonged_trials_are_restored_by_their_length(restore: str) -> None:
    machine = msgspec.structs.replace(MACHINE, disk_free_bytes=10**12)
    loads = [{"name": name, "clients": 8} for name in ("tpcb-like", "simple-update")]
    raw = {"workload": loads, "search": {"latency": "2s"}, "data": {"scale": 1000, "restore": restore}}
    asked = make_study(raw, source="test", folder=Path())
    plan = plan_study(asked, machine)
    assert [choice.value for choice in plan.choices if choice.name == "duration"] == ["40 s"]
    again = parse_study(format_pinned(asked, plan, scripts={}), source="study.toml", folder=Path())
    planned = plan_study(again, machine)
    assert (planned.between, planned.steps) == (plan.between, plan.steps)
    as_long = plan_study(make_study({**raw, "trials": {"duration": "40s"}}, source="test", folder=Path()), machine)
    assert (as_long.between, as_long.steps) == (plan.between, plan.steps)


@example(capacity=1.0, percentile=50.0, resolution=0.48046875)
@given(
    capacity=st.floats(1.0, 1e6), percentile=st.sampled_from([50.0, 90.0, 99.0, 99.9]), resolution=st.floats(0.02, 0.5)
)  # fmt: skip
def test_rates_reach_from_what_a_trial_can_tell_to_above_the_capacity(
    capacity: float, percentile: float, resolution: float
) -> None:
    search = msgspec.structs.replace(SEARCH, percentile=percentile, resolution_ratio=resolution)
    duration_s = choose_duration_s(search, capacity, planned_s=10.0)
    rates = list_rates(search, capacity, duration_s=duration_s)
    assert duration_s >= 10.0
    assert rates == tuple(sorted(set(rates)))
    assert rates[-1] == pytest.approx(1.2 * capacity, rel=0.01)
    # A quarter of the capacity can be told of; the lowest step above it is half the resolution away. Rates are rounded
    # so that they can be said.
    assert rates[0] <= 0.25 * math.sqrt(1 + resolution) * capacity * 1.01
    # At the lowest rate, as many may miss the limit as it takes to be no chance.
    assert rates[0] * duration_s * search.allowed_ratio >= 0.98 * LEAST_MISSES
    steps = [math.log(b / a) for a, b in itertools.pairwise(rates)]
    assert max(steps) <= math.log1p(resolution) / 2 + 0.012


def test_the_fewest_rounds_are_those_of_bets_that_are_all_won() -> None:
    assert count_least_rounds(SEARCH) == CAPACITY_ROUNDS + 12
    assert count_least_rounds(msgspec.structs.replace(SEARCH, alpha=0.5)) == CAPACITY_ROUNDS + 4

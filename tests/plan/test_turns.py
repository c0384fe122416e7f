"""Which loads take turns on one server, what that takes, and that a study repeats it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.cli.terminal.display import describe_plan
from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.live import choose_observed_s, predict_turns_s
from pgdyno.plan.minutes import describe_missing_pairs
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Machine, Plan, count_planned_rounds, plan_study
from pgdyno.plan.types import PoolerProgram, StepKind
from pgdyno.spec.read import make_study, parse_study
from pgdyno.spec.variant import DesignKind
from tests.rows import check_rows

MACHINE = Machine(
    version_major=18,
    cpu_count=2,
    memory_bytes=8 << 30,
    disk_free_bytes=10**11,
    pooler=PoolerProgram(path="/x", version=(1, 25, 0)),
)
BY_CLIENTS = ({"clients": 1}, {"clients": 8})
CLIENTS = [1, 2, 4, 8, 16, 32, 64]
TPCB = {"name": "tpcb-like"}


def plan_of(*variants: dict[str, Any], **tables: Any) -> Plan:
    raw = {"data": {"scale": 10}, "workload": [TPCB], "variant": list(variants), **tables}
    return plan_study(make_study(raw, source="a test", folder=Path()), MACHINE)


def experiment_of(plan: Plan) -> Experiment:
    assert plan.experiment is not None
    return plan.experiment


TAKE_TURNS: list[tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = [
    (BY_CLIENTS, {}),
    (({"mode": "simple"}, {"mode": "prepared"}), {}),
    (({"clients": 8, "threads": 1}, {"clients": 8, "threads": 2}), {}),
    ((), {"sweep": [{"name": "clients", "levels": [1, 8]}, {"name": "mode", "levels": ["simple", "prepared"]}]}),
    # What all of them have is no difference.
    (tuple({**one, "settings": {"commit_delay": 9}, "sysctl": {"vm.swappiness": "9"}} for one in BY_CLIENTS), {}),
    (tuple({**one, "cache": "asis"} for one in BY_CLIENTS), {}),
    (BY_CLIENTS, {"workload": [TPCB, {"name": "select-only", "mode": "prepared"}]}),
    (BY_CLIENTS, {"workload": [{**TPCB, "endpoint": "primary"}], "server": {"port": 5499}}),
    (BY_CLIENTS, {"data": {"scale": 10, "restore": "none"}}),
    (BY_CLIENTS, {"experiment": {"design": "live"}}),
]
IN_PAIRS: list[tuple[tuple[dict[str, Any], ...], dict[str, Any]]] = [
    (BY_CLIENTS, {"experiment": {"design": "paired"}}),
    (({"clients": 1}, {"clients": 8, "settings": {"commit_delay": 9}}), {}),
    (({"clients": 1}, {"clients": 8, "sysctl": {"vm.swappiness": "9"}}), {}),
    (({"clients": 1}, {"clients": 8, "scale": 20}), {}),
    (({"clients": 1}, {"clients": 8, "server": 15}), {}),
    (({"clients": 1}, {"clients": 8, "home": "/b"}), {}),
    (({"clients": 1}, {"clients": 8, "scripts": ["select-only"]}), {}),
    (({"clients": 1}, {"clients": 8, "cache": "asis"}), {}),
    (BY_CLIENTS, {"trials": {"cache": "cold"}}),
    (tuple({**one, "cache": "cold"} for one in BY_CLIENTS), {}),
    (BY_CLIENTS, {"workload": [TPCB, {"name": "select-only", "rate_tps": 100}]}),
    (BY_CLIENTS, {"server": {"standbys": 1}}),
    (BY_CLIENTS, {"workload": [{**TPCB, "endpoint": "pool"}], "poolers": {"pool": {}}}),
    (tuple({**one, "endpoint": "pool"} for one in BY_CLIENTS), {"poolers": {"pool": {}}}),
    (BY_CLIENTS, {"hosts": {"load1": {"ssh": "load1", "role": "load"}}}),
]


def test_loads_take_turns_where_nothing_else_differs_or_runs_beside_them() -> None:
    def takes(row: tuple[tuple[dict[str, Any], ...], dict[str, Any]]) -> None:
        variants, tables = row
        experiment = experiment_of(plan_of(*variants, **tables))
        assert (experiment.design, experiment.takes_turns) == (DesignKind.LIVE, True)

    def pairs(row: tuple[tuple[dict[str, Any], ...], dict[str, Any]]) -> None:
        variants, tables = row
        experiment = experiment_of(plan_of(*variants, **tables))
        assert (experiment.design, experiment.takes_turns) == (DesignKind.PAIRED, False)

    check_rows(TAKE_TURNS, takes)
    check_rows(IN_PAIRS, pairs)


def test_identical_variants_alternate_under_one_load_and_live_ones_have_servers_of_their_own() -> None:
    same = ({"name": "a", "clients": 4}, {"name": "b", "clients": 4})
    assert experiment_of(plan_of(*same)).design is DesignKind.SWITCHBACK
    for variants in (same, ({"clients": 1}, {"clients": 8, "settings": {"shared_buffers": "1GB"}})):
        live = experiment_of(plan_of(*variants, experiment={"design": "live"}))
        assert (live.design, live.takes_turns) == (DesignKind.LIVE, False)
    with pytest.raises(SpecError, match="cannot be compared live"):
        plan_of(*BY_CLIENTS, experiment={"design": "live"}, trials={"cache": "cold"})


def test_what_a_round_of_turns_takes() -> None:
    sweep = [{"name": "clients", "levels": CLIENTS}]
    for minutes, duration_s in ((None, 10.0), (15, 10.0), (60, 10.0), (20, 1.0)):
        wishes = {} if minutes is None else {"experiment": {"minutes": minutes}}
        trials = {"duration": f"{duration_s:g}s", "warm_up": "6s"}
        plan = plan_of(sweep=sweep, trials=trials, **wishes)
        experiment = experiment_of(plan)
        assert plan.predicted_s == pytest.approx(sum(step.predicted_s for step in plan.steps))
        assert experiment.budget_s is not None
        assert plan.predicted_s <= experiment.budget_s
        steps = [step for step in plan.steps if step.kind is StepKind.TRIAL and step.trial is not None]
        rounds = {step.trial.round for step in steps if step.trial is not None} - {0}
        # Another round would not fit.
        of_round_s = sum(step.predicted_s for step in steps if step.trial is not None and step.trial.round == 1)
        assert plan.predicted_s + of_round_s > experiment.budget_s
        observed_s = choose_observed_s(duration_s, takes_turns=True)
        observed = [trial for trial in plan.trials if trial.is_observed]
        assert [(one.warm_up_s, one.duration_s) for one in observed] == [(6.0, observed_s)] * len(CLIENTS)
        in_turns = [trial for trial in plan.trials if not trial.is_observed]
        # All loads warm up the one server, the reference's twice.
        assert {(one.warm_up_s, one.duration_s) for one in in_turns} == {(1.0, duration_s)}
        assert len(in_turns) == len(rounds) * (1 + len(CLIENTS))
        alone_s = next(step.predicted_s for step in steps if step.trial in observed and step.trial.number > 1)
        of_turns_s = (1 + len(CLIENTS)) * (1.0 + predict_turns_s(duration_s))
        assert of_round_s == pytest.approx(alone_s - 6.0 - observed_s + of_turns_s)


@pytest.mark.parametrize("card_s", [0.0, 40.0])
def test_too_few_rounds_for_the_noise_of_a_sweep_are_told_with_the_minutes_that_are_enough(card_s: float) -> None:
    tables = {"sweep": [{"name": "clients", "levels": CLIENTS[:5]}], "trials": {"duration": "4s"}}

    def plan_in(minutes: float) -> Plan:
        raw = {"data": {"scale": 10}, "workload": [TPCB], **tables, "experiment": {"minutes": minutes}}
        machine = msgspec.structs.replace(MACHINE, disk_card_s=card_s)
        return plan_study(make_study(raw, source="a test", folder=Path()), machine)

    short = plan_in(3)
    said = describe_missing_pairs(short)
    assert said is not None
    assert said.startswith(f"{count_planned_rounds(short)['tpcb-like']} rounds are too few to compare the reference")
    assert "\n  note: " + said in "\n".join(describe_plan(short))
    minutes = int(said.partition("--minutes ")[2].partition("`")[0])
    assert describe_missing_pairs(plan_in(minutes)) is None
    assert describe_missing_pairs(plan_in(minutes - 1)) is not None
    # Verdicts take as many rounds, so that a comparison has them or is refused.
    assert describe_missing_pairs(plan_of({"mode": "simple"}, {"mode": "prepared"})) is None


def test_a_turn_has_two_seconds_at_least() -> None:
    assert predict_turns_s(1.0) == predict_turns_s(2.0) == pytest.approx(2.1)


def test_a_sweep_is_repeated_as_it_was_planned() -> None:
    raw = {"workload": [TPCB], "sweep": [{"name": "clients", "levels": CLIENTS}]}
    asked = make_study(raw, source="a test", folder=Path())
    plan = plan_study(asked, MACHINE)
    assert experiment_of(plan).takes_turns
    again = plan_study(parse_study(format_pinned(asked, plan, scripts={}), source="study.toml", folder=Path()), MACHINE)
    for name in ("variants", "design", "takes_turns", "budget_s", "slice_s", "final_look", "extra_rounds"):
        assert getattr(again.experiment, name) == getattr(plan.experiment, name)
    assert (again.trials, again.scale) == (plan.trials, plan.scale)
    # As a record has it.
    kept = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    assert kept == plan


def test_a_plan_of_before_has_a_server_for_each_load() -> None:
    plan = plan_of(*BY_CLIENTS, experiment={"design": "live"})
    raw = msgspec.json.decode(msgspec.json.encode(plan))
    del raw["experiment"]["takes_turns"]
    older = experiment_of(msgspec.convert(raw, Plan))
    assert (older.design, older.takes_turns) == (DesignKind.LIVE, False)

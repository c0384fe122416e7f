"""What `pgdyno bench` asks: goals, workloads, variants of a derived set, and the minutes that they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.flow.bench import Goal, choose_goal, compose_study
from pgdyno.flow.proving import classify_load, describe_tuned, make_variants, with_minutes
from pgdyno.plan.experiment import count_least_rounds
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.spec.read import format_study, parse_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import VariantSpec
from pgdyno.tune.derive import derive
from pgdyno.tune.layers import TrialSet, choose_trial_set
from pgdyno.tune.types import Kernel, Tuning, WorkloadClass
from tests.tune.subjects import make_subject

GB = 1024**3
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 * GB, disk_free_bytes=90 * GB)


def compose(*workloads: str, goal: Goal = Goal.DERIVED, **tables: dict[str, object]) -> Study:
    return compose_study(
        workloads=list(workloads),
        load={},
        tables={"server": {}, "data": {}, "trials": {}, "experiment": {}, **tables},
        goal=goal,
        folder=Path("/"),
    )


def choose() -> tuple[Tuning, TrialSet]:
    tuning = derive(make_subject(kernel=Kernel(sysctls={"vm.dirty_bytes": "0", "vm.nr_hugepages": "0"})))
    return tuning, choose_trial_set(tuning, fixed={}, refused={})


def with_variants(study: Study, *, is_layered: bool = False) -> Study:
    return msgspec.structs.replace(study, variant=make_variants(choose()[1], is_layered=is_layered))


def budget(study: Study, *, rounds: int | None = None, minutes: float = 15.0) -> Study:
    return with_minutes(study, MACHINE, rounds=rounds, minutes=minutes, load_budget_s=10.0)


def goal_of(**options: Any) -> Goal:
    asked = {"is_quick": False, "is_stock_only": False, "is_layered": False, "minutes": None, "rounds": None}
    return choose_goal(**{**asked, **options})


def test_goals() -> None:
    assert goal_of() is Goal.DERIVED
    assert goal_of(is_quick=True) is Goal.QUICK
    assert goal_of(is_stock_only=True, rounds=3) is Goal.STOCK
    assert goal_of(is_layered=True, minutes=20.0) is Goal.LAYERS


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"is_quick": True, "is_layered": True}, "--quick and --layers exclude each other"),
        ({"is_quick": True, "is_stock_only": True}, "--quick and --stock-only exclude each other"),
        ({"is_quick": True, "minutes": 3.0}, "--quick compares nothing"),
        ({"is_stock_only": True, "minutes": 3.0}, "--stock-only compares nothing"),
        ({"minutes": 3.0, "rounds": 3}, "--minutes and --rounds exclude each other"),
    ],
)
def test_what_excludes_each_other(options: dict[str, Any], fact: str) -> None:
    with pytest.raises(SpecError, match=fact) as caught:
        goal_of(**options)
    assert caught.value.hint


@pytest.mark.parametrize(("goal", "most_s"), [(Goal.QUICK, 180.0), (Goal.STOCK, 720.0)])
def test_benches_that_compare_nothing_are_as_long_as_they_say(goal: Goal, most_s: float) -> None:
    plan = plan_study(compose(goal=goal), MACHINE, load_budget_s=10.0 if goal is Goal.QUICK else 20.0)
    assert plan.experiment is None
    assert plan.predicted_s <= most_s


@pytest.mark.parametrize(
    ("scripts", "expected"),
    [
        ((), WorkloadClass.MIXED),
        (("tpcb-like", "simple-update"), WorkloadClass.OLTP_WRITE),
        (("select-only",), WorkloadClass.OLTP_READ),
        (("select-only@3", "tpcb-like@1"), WorkloadClass.MIXED),
        ((__file__,), WorkloadClass.MIXED),
    ],
)
def test_settings_are_derived_for_the_load(scripts: tuple[str, ...], expected: WorkloadClass) -> None:
    assert classify_load(plan_study(compose(*scripts), MACHINE)) is expected


def test_stock_is_the_reference_and_derived_sets_what_is_tried() -> None:
    _, chosen = choose()
    stock, derived = make_variants(chosen, is_layered=False)
    assert (stock.name, stock.settings, stock.sysctl) == ("stock", {}, {})
    assert (derived.name, derived.settings, derived.sysctl) == ("derived", chosen.settings(), chosen.sysctls())


def test_layers_are_taken_out_of_the_set_in_turn() -> None:
    _, chosen = choose()
    derived, stock, *without = make_variants(chosen, is_layered=True)
    assert (derived.name, stock.name) == ("derived", "stock")
    assert [variant.name for variant in without] == [f"without {layer.name}" for layer in chosen.layers]
    for variant, layer in zip(without, chosen.layers, strict=True):
        names = {one.name for one in layer.settings}
        assert names <= derived.settings.keys() | derived.sysctl.keys()
        assert not names & (variant.settings.keys() | variant.sysctl.keys())
    # A lone layer taken out leaves stock: that is asked already.
    lone = TrialSet(layers=chosen.layers[:1], left_out={})
    assert [variant.name for variant in make_variants(lone, is_layered=True)] == ["stock", "derived"]


@pytest.mark.parametrize("is_layered", [False, True])
def test_what_the_record_keeps_is_the_whole_set(is_layered: bool) -> None:
    tuning, chosen = choose()
    tuned = describe_tuned(tuning, chosen, plan_study(compose(), MACHINE), is_layered=is_layered)
    assert [setting.name for setting in tuned.settings] == [one.name for one in tuning.settings]
    assert all(setting.reason and setting.source for setting in tuned.settings)
    assert {setting.name for setting in tuned.settings if setting.left_out} == set(chosen.left_out)
    assert tuned.is_layered is is_layered
    names = {variant.name for variant in make_variants(chosen, is_layered=is_layered)}
    assert all(layer.arm is None or layer.arm in names for layer in tuned.layers)
    assert msgspec.json.decode(msgspec.json.encode(tuned), type=type(tuned)) == tuned


@pytest.mark.parametrize(
    ("goal", "workloads", "most_minutes"),
    [(Goal.DERIVED, (), 15.0), (Goal.DERIVED, ("tpcb-like",), 15.0), (Goal.LAYERS, ("tpcb-like",), 60.0)],
)
def test_the_default_budget_can_decide_and_is_kept(goal: Goal, workloads: tuple[str, ...], most_minutes: float) -> None:
    study = with_variants(compose(*workloads, goal=goal), is_layered=goal is Goal.LAYERS)
    study = budget(study, minutes=60.0 if goal is Goal.LAYERS else 15.0)
    assert study.experiment.minutes is not None
    assert study.experiment.minutes <= most_minutes
    plan = plan_study(study, MACHINE, load_budget_s=10.0)
    assert plan.experiment is not None
    # Two more than the fewest, whose intervals are too wide for all but the largest differences.
    assert plan.trials[-1].round >= count_least_rounds(plan.experiment, len(plan.workloads)) + 2
    assert plan.predicted_s <= study.experiment.minutes * 60.0


def test_longer_trials_get_the_minutes_that_a_verdict_takes() -> None:
    study = with_variants(compose("tpcb-like", trials={"duration": "300s"}))
    minutes = budget(study).experiment.minutes
    assert minutes is not None
    assert 7 * 3 * 5 <= minutes < 7 * 3 * 5.5


def test_rounds_are_kept_and_too_few_are_refused() -> None:
    study = with_variants(compose("tpcb-like", data={"scale": 2}))
    planned = plan_study(budget(study, rounds=7), MACHINE)
    assert planned.trials[-1].round == 7
    with pytest.raises(SpecError, match="4 rounds are too few for a verdict") as caught:
        budget(study, rounds=4)
    assert "--rounds 5" in caught.value.hint


def test_a_set_that_a_reload_does_for_is_tried_in_rounds_too() -> None:
    derived = VariantSpec(name="derived", settings={"commit_delay": 50})
    study = msgspec.structs.replace(compose("tpcb-like"), variant=(VariantSpec(name="stock"), derived))
    assert plan_study(budget(study, rounds=6), MACHINE, load_budget_s=10.0).trials[-1].round == 6


def test_minutes_that_were_given_stay() -> None:
    study = with_variants(compose(experiment={"minutes": 33.0}))
    assert budget(study) == study


def test_it_survives_as_a_study_file(tmp_path: Path) -> None:
    study = with_variants(compose("tpcb-like"), is_layered=True)
    assert parse_study(format_study(study), source="again", folder=tmp_path) == study

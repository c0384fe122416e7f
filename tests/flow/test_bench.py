"""What `pgdyno bench` asks: goals, workloads, variants of a derived set, the sweep, and the minutes that they get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.conduct.derived_variants import (
    choose_design,
    classify_load,
    describe_tuned,
    list_fixed,
    make_variants,
    with_scaling,
)
from pgdyno.conduct.study import PlannedStudy, draft_record
from pgdyno.errors import HostError, SpecError
from pgdyno.flow.compose_bench import Goal, choose_goal, compose_study
from pgdyno.plan.disk import make_disk_plan
from pgdyno.plan.live import find_sysctl_obstacle
from pgdyno.plan.minutes import Budget, split_minutes
from pgdyno.plan.parts import find_least_rounds
from pgdyno.plan.plan import Machine, Plan, PlannedSweep, plan_study
from pgdyno.plan.scaling import make_client_sweep, plan_scaling, plan_sweep
from pgdyno.plan.size import count_live_copies, predict_beside_wal
from pgdyno.record.types import ServerFacts
from pgdyno.spec.read import format_study, parse_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind, ExperimentSpec, VariantSpec
from pgdyno.tune.derive import derive
from pgdyno.tune.layers import TrialSet, choose_trial_set
from pgdyno.tune.types import DerivedSettings, Kernel, WorkloadClass
from tests.tune.subjects import make_disk, make_subject

GB = 1024**3
CARD_S = make_disk_plan(is_quick=True, free_bytes=90 * GB, seed=1).expected_s
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 * GB, disk_free_bytes=90 * GB)


def compose(*workloads: str, goal: Goal = Goal.DERIVED, **tables: dict[str, object]) -> Study:
    return compose_study(
        workloads=list(workloads),
        load={},
        tables={"server": {}, "data": {}, "trials": {}, "experiment": {}, **tables},
        goal=goal,
        folder=Path("/"),
    )


def choose() -> tuple[DerivedSettings, TrialSet]:
    tuning = derive(make_subject(kernel=Kernel(sysctls={"vm.dirty_bytes": "0", "vm.nr_hugepages": "0"})))
    return tuning, choose_trial_set(tuning, fixed={}, refused={})


def with_variants(study: Study, *, is_layered: bool = False) -> Study:
    return msgspec.structs.replace(study, variant=make_variants(choose()[1], is_layered=is_layered))


def with_live_variants(study: Study) -> Study:
    """As the bench compares them by default: without what cannot be compared live."""
    tuning, whole = choose()
    slow = {name: why for name in whole.sysctls() if (why := find_sysctl_obstacle(name))}
    variants = make_variants(choose_trial_set(tuning, fixed={}, refused=slow), is_layered=False)
    experiment = msgspec.structs.replace(study.experiment, design=DesignKind.LIVE)
    return msgspec.structs.replace(study, variant=variants, experiment=experiment)


def with_sweep(study: Study) -> Study:
    planned = plan_study(msgspec.structs.replace(study, variant=()), MACHINE, load_budget_s=10.0)
    return with_scaling(study, planned)


def budget(
    study: Study, *, rounds: int | None = None, minutes: float = 15.0, more_rounds: int = 2, machine: Machine = MACHINE
) -> Study:
    asked = Budget(minutes=minutes, rounds=rounds, more_rounds=more_rounds, load_s=10.0)
    return split_minutes(study, machine, asked)


def plan_whole(study: Study, machine: Machine = MACHINE) -> tuple[Plan, Plan]:
    plan = plan_study(study, machine, load_budget_s=10.0)
    scaling = plan_scaling(study, plan, machine)
    assert scaling is not None
    return plan, scaling


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
        ({"is_quick": True, "minutes": 3.0}, "--quick and --minutes exclude each other"),
        ({"is_stock_only": True, "minutes": 3.0}, "--stock-only compares nothing"),
        ({"minutes": 3.0, "rounds": 3}, "--minutes and --rounds exclude each other"),
    ],
)
def test_what_excludes_each_other(options: dict[str, Any], fact: str) -> None:
    with pytest.raises(SpecError, match=fact) as caught:
        goal_of(**options)
    assert caught.value.hint


def test_a_bench_that_compares_nothing_is_as_long_as_it_says() -> None:
    plan = plan_study(compose(goal=Goal.STOCK), MACHINE, load_budget_s=20.0)
    assert plan.experiment is None
    assert plan.predicted_s <= 720.0


def test_quick_is_about_the_workload_that_writes_most() -> None:
    assert [workload.name for workload in compose(goal=Goal.QUICK).workload] == ["tpcb-like"]
    assert [workload.name for workload in compose("select-only", goal=Goal.QUICK).workload] == ["select-only"]
    assert len(compose(goal=Goal.DERIVED).workload) == 3


@pytest.mark.parametrize(
    ("scripts", "expected"),
    [
        ((), WorkloadClass.OLTP_WRITE),
        (("tpcb-like", "simple-update"), WorkloadClass.OLTP_WRITE),
        (("select-only",), WorkloadClass.OLTP_READ),
        (("select-only@3", "tpcb-like@1"), WorkloadClass.OLTP_WRITE),
        ((__file__,), WorkloadClass.MIXED),
        ((__file__, "tpcb-like"), WorkloadClass.MIXED),
    ],
)
def test_settings_are_derived_for_the_load(scripts: tuple[str, ...], expected: WorkloadClass) -> None:
    assert classify_load(plan_study(compose(*scripts), MACHINE)) is expected


def test_a_setting_of_the_users_is_not_tried_in_whatever_case_they_write_it() -> None:
    fixed = list_fixed(compose(server={"settings": {"Shared_Buffers": "256MB"}}), 18)
    chosen = choose_trial_set(derive(make_subject(), fixed=fixed), fixed=fixed, refused={})
    assert "shared_buffers" not in chosen.settings()
    assert "--set" in chosen.left_out["shared_buffers"]


@pytest.mark.parametrize(
    ("changes", "loaded", "copies", "data", "wal"),
    [
        ({}, frozenset(), 1, 2, 1),  # what is loaded with the WAL that loading leaves, and the working copy
        ({}, frozenset({50}), 1, 1, 0),
        ({}, frozenset({50}), 4, 4, 3),  # live: stock runs twice, and each alone in one more
        ({"data": {"restore": "command", "restore_command": "true"}}, frozenset({50}), 1, 0, 0),
        ({"server": {"standbys": 2}}, frozenset({50}), 1, 3, 2),
    ],
)
def test_what_comes_to_the_disk_beside_the_wal_of_the_derived_server(
    changes: dict[str, dict[str, object]], loaded: frozenset[int], copies: int, data: int, wal: int
) -> None:
    study = compose("tpcb-like", **{**changes, "data": {"scale": 50, **changes.get("data", {})}})
    machine = msgspec.structs.replace(MACHINE, loaded_scales=loaded)
    planned = plan_study(study, machine)
    data_bytes = planned.dataset_bytes or 0
    found = predict_beside_wal(study, planned, machine, copies=copies, is_wal_apart=False)
    servers = copies - 1 + study.server.standbys
    kept = 2_200_000_000 if study.server.standbys else 0
    assert found == (data + wal) * data_bytes + servers * 1_100_000_000 + kept
    of_wal = predict_beside_wal(study, planned, machine, copies=copies, is_wal_apart=True)
    assert of_wal == servers * (1_100_000_000 + data_bytes) + kept


def test_derived_wal_fits_beside_all_servers_on_the_smallest_disk_that_takes_a_live_bench() -> None:
    study = with_live_variants(compose("tpcb-like", data={"scale": 100}))

    def has_room(free_bytes: int) -> bool:
        try:
            plan_study(study, msgspec.structs.replace(MACHINE, disk_free_bytes=free_bytes))
        except (SpecError, HostError):
            return False
        return True

    least = next(free for free in range(10**9, 10**11, 10**8) if has_room(free))
    alone = msgspec.structs.replace(study, variant=(), experiment=ExperimentSpec())
    planned = plan_study(alone, MACHINE)
    data_bytes = planned.dataset_bytes or 0
    beside = predict_beside_wal(alone, planned, MACHINE, copies=count_live_copies(2), is_wal_apart=False)
    subject = make_subject(
        disk=make_disk(free=least), dataset=data_bytes, to_come_bytes=float(beside), recovery_s=36000
    )
    tuning = derive(subject)
    (max_wal,) = (one for one in tuning.settings if one.name == "max_wal_size")
    assert max_wal.value == "1GB"
    # What the plan has reckoned for it: as much as for each other server, and the WAL that loading leaves.
    assert 1_100_000_000 + data_bytes <= least - beside < 1_200_000_000 + data_bytes
    assert max_wal.reason.startswith("data leave no room for more, and it is what is built in; the load could use ")
    assert not any("too small" in note for note in tuning.notes)
    (note,) = (
        one
        for one in derive(msgspec.structs.replace(subject, to_come_bytes=float(least - GB))).notes
        if "too small" in one
    )
    assert ", 683 MB short: loaded data, their copies and other servers' WAL take " in note
    assert note.endswith("): free some space, or use another disk with --home.")
    apart = derive(make_subject(wal_disk=make_disk(free=3 * GB), to_come_bytes=2.0 * GB))
    (note,) = (one for one in apart.notes if "too small" in one)
    assert note.endswith("): free some space, or use another disk with --wal-home.")


def test_stock_is_the_reference_and_derived_sets_what_is_tried() -> None:
    _, chosen = choose()
    stock, derived = make_variants(chosen, is_layered=False)
    assert (stock.name, stock.settings, stock.sysctl) == ("stock", {}, {})
    assert (derived.name, derived.settings, derived.sysctl) == ("derived", chosen.settings(), chosen.sysctls())


def test_stock_and_derived_are_compared_live_where_that_can_be() -> None:
    tuning, whole = choose()
    slow = {name: why for name in whole.sysctls() if (why := find_sysctl_obstacle(name))}
    assert "vm.dirty_bytes" in slow
    chosen = choose_trial_set(tuning, fixed={}, refused=slow)
    asked = Budget(minutes=15.0, more_rounds=2, load_s=10.0)
    small = msgspec.structs.replace(MACHINE, memory_bytes=GB // 2)
    for study, is_layered, machine, expected, why in (
        (compose(), False, MACHINE, DesignKind.LIVE, None),
        (compose(), True, MACHINE, DesignKind.PAIRED, None),
        (compose(experiment={"design": "paired"}), False, MACHINE, DesignKind.PAIRED, None),
        (compose(trials={"duration": "60s"}), False, MACHINE, DesignKind.PAIRED, "trials this long"),
        (compose(trials={"cache": "cold"}), False, MACHINE, DesignKind.PAIRED, "a cold cache"),
        (compose(data={"scale": 20}), False, small, DesignKind.PAIRED, "of memory at once"),
    ):
        design, reason = choose_design(study, chosen, is_layered=is_layered, budget=asked, machine=machine)
        assert design is expected
        assert reason is None if why is None else why in (reason or "")


def test_long_trials_of_a_bench_have_the_most_minutes_of_a_study_or_are_refused() -> None:
    study = with_sweep(with_variants(compose("tpcb-like", trials={"duration": "16h"})))
    chosen = budget(study, more_rounds=10)
    assert chosen.experiment.minutes == 20160
    plan, sweep = plan_whole(chosen)
    assert plan.predicted_s <= 14 * 86_400 >= sweep.predicted_s
    with pytest.raises(SpecError, match="20 rounds take more than 14 days") as caught:
        budget(study, rounds=20)
    most = int(caught.value.hint.removeprefix("--rounds ").partition(",")[0])
    assert plan_whole(budget(study, rounds=most))[0].experiment
    with pytest.raises(SpecError, match="20160 minutes are too few"):
        budget(with_variants(compose("tpcb-like", trials={"duration": "7d"})))


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
    assert all(layer.variant is None or layer.variant in names for layer in tuned.layers)
    assert msgspec.json.decode(msgspec.json.encode(tuned), type=type(tuned)) == tuned


@pytest.mark.parametrize("card_s", [0.0, CARD_S])
@pytest.mark.parametrize(
    ("goal", "workloads", "most_minutes", "more_rounds", "is_live"),
    [
        (Goal.QUICK, (), 5.0, 1, True),
        (Goal.QUICK, (), 5.0, 1, False),
        (Goal.DERIVED, (), 15.0, 2, True),
        (Goal.DERIVED, (), 15.0, 2, False),
        (Goal.DERIVED, ("tpcb-like",), 15.0, 2, True),
        (Goal.LAYERS, ("tpcb-like",), 60.0, 2, False),
    ],
)
def test_the_whole_job_can_decide_within_its_minutes(
    *, goal: Goal, workloads: tuple[str, ...], most_minutes: float, more_rounds: int, is_live: bool, card_s: float
) -> None:
    machine = msgspec.structs.replace(MACHINE, disk_card_s=card_s)
    study = compose(*workloads, goal=goal)
    study = with_live_variants(study) if is_live else with_variants(study, is_layered=goal is Goal.LAYERS)
    study = budget(with_sweep(study), minutes=most_minutes, more_rounds=more_rounds, machine=machine)
    plan, scaling = plan_whole(study, machine)
    assert any(trial.is_observed for trial in plan.trials) is is_live
    assert plan.experiment is not None
    # Two more than the fewest, whose intervals are too wide for all but the largest differences.
    assert plan.trials[-1].round >= find_least_rounds(plan.experiment, plan.workloads) + more_rounds
    assert scaling.trials[-1].round >= 2
    assert scaling.experiment is not None
    assert len({variant.clients for variant in scaling.experiment.variants}) >= 6
    assert plan.predicted_s + scaling.predicted_s <= most_minutes * 60.0
    # What wins is known when it begins; by then its data are loaded, and it takes no longer.
    for variant in study.variant:
        begun = plan_sweep(make_client_sweep(study, plan, scripts={}, variant=variant), plan, machine)
        assert begun.predicted_s == scaling.predicted_s


def test_what_nobody_needs_of_the_minutes_goes_into_more_rounds() -> None:
    short, long = (
        budget(with_sweep(with_variants(compose(experiment={"minutes": minutes})))) for minutes in (11.0, 40.0)
    )
    (few, brief), (many, thorough) = plan_whole(short), plan_whole(long)
    assert few.trials[-1].round < many.trials[-1].round
    assert (brief.trials[-1].round, thorough.trials[-1].round) == (2, 12)
    assert thorough.predicted_s <= 0.25 * 40.0 * 60.0
    assert many.predicted_s + thorough.predicted_s <= 40.0 * 60.0
    assert few.predicted_s + brief.predicted_s <= 11.0 * 60.0


def test_minutes_that_are_too_few_for_the_whole_job_are_refused() -> None:
    study = with_sweep(with_variants(compose(experiment={"minutes": 4.0})))
    with pytest.raises(SpecError, match="4 minutes are too few for a verdict") as caught:
        budget(study)
    enough = int(caught.value.hint.split()[1].rstrip(","))
    study = msgspec.structs.replace(study, experiment=msgspec.structs.replace(study.experiment, minutes=float(enough)))
    plan, scaling = plan_whole(budget(study))
    assert plan.predicted_s + scaling.predicted_s <= enough * 60.0


def test_where_nothing_is_derived_only_the_sweep_follows() -> None:
    plan, scaling = plan_whole(budget(with_sweep(compose())))
    assert plan.experiment is None
    assert scaling.trials[-1].round == 3


def test_a_record_counts_the_sweep_that_follows_as_the_plan_does() -> None:
    study = budget(with_sweep(compose(goal=Goal.STOCK)))
    plan, scaling = plan_whole(study)
    planned = PlannedStudy(study=study, plan=plan, scaling=scaling)
    server = ServerFacts(version="18.6", version_num=180006, bindir="/bin")
    kept = draft_record(planned, name="bench", server=server).plan
    assert kept.sweep == PlannedSweep(predicted_s=scaling.predicted_s, trial_count=len(scaling.trials))
    assert kept.predicted_s + kept.sweep.predicted_s == pytest.approx(planned.predicted_s)


def test_longer_trials_get_the_minutes_that_a_verdict_takes() -> None:
    study = with_variants(compose("tpcb-like", trials={"duration": "300s"}))
    minutes = budget(study).experiment.minutes
    assert minutes is not None
    assert 6 * 3 * 5 <= minutes < 6 * 3 * 5.5


def test_rounds_are_kept_and_too_few_are_refused() -> None:
    study = with_variants(compose("tpcb-like", data={"scale": 2}))
    planned = plan_study(budget(study, rounds=7), MACHINE)
    assert planned.trials[-1].round == 7
    with pytest.raises(SpecError, match="3 rounds are too few for a verdict") as caught:
        budget(study, rounds=3)
    assert "--rounds 4" in caught.value.hint


def test_a_set_that_a_reload_does_for_is_tried_in_rounds_too() -> None:
    derived = VariantSpec(name="derived", settings={"commit_delay": 50})
    study = msgspec.structs.replace(compose("tpcb-like"), variant=(VariantSpec(name="stock"), derived))
    assert plan_study(budget(study, rounds=6), MACHINE, load_budget_s=10.0).trials[-1].round == 6


def test_without_a_sweep_the_comparison_has_all_minutes() -> None:
    study = budget(with_variants(compose(experiment={"minutes": 33.0})))
    assert study.experiment.minutes == 33.0
    assert study.scaling is None


def test_it_survives_as_a_study_file(tmp_path: Path) -> None:
    study = budget(with_sweep(with_variants(compose("tpcb-like"), is_layered=True)))
    assert parse_study(format_study(study), source="again", folder=tmp_path) == study

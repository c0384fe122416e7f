"""The sweep over clients that follows a comparison: which loads, of which workload, and that it says all of itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import count_starts, is_client_sweep
from pgdyno.plan.plan import Machine, Plan, StepKind, plan_study
from pgdyno.plan.scaling import (
    choose_client_counts,
    choose_swept_workload,
    make_client_sweep,
    plan_scaling,
    plan_sweep,
    with_scaling,
)
from pgdyno.plan.variants import most_clients, most_connections
from pgdyno.spec.hosts import make_named_hosts
from pgdyno.spec.part import PartSpec
from pgdyno.spec.pooler import PoolerSpec, PoolMode
from pgdyno.spec.read import format_study, make_study, parse_study
from pgdyno.spec.scaling import ScalingSpec
from pgdyno.spec.study import Study, WorkloadSpec
from pgdyno.spec.variant import DesignKind, VariantSpec

GB = 1024**3
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 * GB, disk_free_bytes=90 * GB)
VARIANTS = [{"name": "stock"}, {"name": "derived", "settings": {"work_mem": "16MB"}, "sysctl": {"vm.swappiness": 10}}]


def study_of(*names: str, **tables: Any) -> Study:
    raw: dict[str, object] = {"workload": [{"name": name} for name in names or ("tpcb-like",)], **tables}
    return make_study(raw, source="test", folder=Path("/"))


def loads_of(*, cpu_count: float = 2, settings: dict[str, Any] | None = None, clients: int | None = None) -> list[int]:
    workload = {"name": "tpcb-like", **({} if clients is None else {"clients": clients})}
    study = study_of(workload=[workload], server={"settings": settings or {}})
    plan = plan_study(study, msgspec.structs.replace(MACHINE, cpu_count=cpu_count))
    return list(choose_client_counts(study, plan.workloads[0]))


def test_the_workload_that_writes_most_is_swept() -> None:
    def chosen(*names: str, rate_tps: float | None = None) -> str | None:
        workload = [{"name": name, **({} if rate_tps is None else {"rate_tps": rate_tps})} for name in names]
        return choose_swept_workload(plan_study(study_of(workload=workload), MACHINE))

    assert chosen("select-only", "simple-update", "tpcb-like") == "tpcb-like"
    assert chosen("select-only", "simple-update") == "simple-update"
    assert chosen("select-only") == "select-only"
    assert chosen("tpcb-like", rate_tps=100.0) is None


def test_loads_rise_in_equal_ratios_from_one_past_the_comparison() -> None:
    assert loads_of() == [1, 2, 4, 8, 16, 32]
    assert loads_of(cpu_count=16) == [1, 2, 6, 15, 38, 95]
    assert loads_of(cpu_count=16, settings={"max_connections": 500})[-1] == 128
    assert loads_of(clients=40)[-1] == 80
    assert loads_of(settings={"max_connections": 9}) == [1, 2, 3, 4]
    assert loads_of(settings={"max_connections": 6}) == [1]


def test_a_variant_with_few_connections_narrows_them() -> None:
    study = study_of(variant=[{"name": "stock"}, {"settings": {"max_connections": 25}}])
    assert choose_client_counts(study, plan_study(study, MACHINE).workloads[0])[-1] == 20


def test_the_sweep_runs_under_all_that_its_variant_sets() -> None:
    study = study_of(
        "select-only",
        "tpcb-like",
        variant=VARIANTS,
        scaling={"workload": "tpcb-like", "minutes": 16.0},
        server={"settings": {"shared_buffers": "1GB"}},
        experiment={"detect": "5%"},
    )
    plan = plan_study(study, MACHINE)
    sweep = make_client_sweep(study, plan, scripts={}, variant=study.variant[1])
    planned = plan_study(sweep, MACHINE)
    experiment = planned.experiment
    assert experiment is not None
    assert is_client_sweep(experiment)
    assert count_starts(experiment.variants) == 1
    assert [variant.name for variant in experiment.variants] == [f"clients={n}" for n in (1, 2, 4, 8, 16, 32)]
    for variant in experiment.variants:
        assert variant.server.settings == {"shared_buffers": "1GB", "work_mem": "16MB"}
        assert variant.sysctl == {"vm.swappiness": "10"}
    assert (planned.scale, experiment.detect_ratio, experiment.budget_s) == (plan.scale, 0.05, 960.0)
    assert [workload.name for workload in planned.workloads] == ["tpcb-like"]
    # It says all of itself: whoever has it alone runs the same.
    assert plan_study(parse_study(format_study(sweep), source="again", folder=Path("/")), MACHINE) == planned


def test_clients_and_threads_of_a_variant_give_way_to_the_levels() -> None:
    study = study_of(variant=[{"name": "stock"}, {"name": "more", "clients": 20, "threads": 2}], scaling={})
    sweep = make_client_sweep(study, plan_study(study, MACHINE), scripts={}, variant=study.variant[1])
    experiment = plan_study(sweep, MACHINE).experiment
    assert experiment is not None
    assert [variant.clients for variant in experiment.variants] == [1, 2, 4, 8, 16, 32]
    assert {variant.threads for variant in experiment.variants} == {None}


def test_own_scripts_are_the_copies_that_the_comparison_ran(tmp_path: Path) -> None:
    script = tmp_path / "pay.sql"
    script.write_text("SELECT 1;\n")
    workload = [{"name": "pay", "scripts": [f"{script}@3", "select-only@1"]}]
    study = study_of(workload=workload, scaling={})
    sweep = make_client_sweep(study, plan_study(study, MACHINE), scripts={str(script): "/kept/pay.sql"})
    assert sweep.workload[0].weighted_scripts == (("/kept/pay.sql", 3), ("select-only", 1))


def test_two_rounds_are_the_fewest_and_its_data_lie_loaded() -> None:
    study = study_of(variant=VARIANTS, scaling={"minutes": 3.0}, trials={"duration": "4s", "warm_up": "1s"})
    plan = plan_study(study, MACHINE)
    scaling = plan_scaling(study, plan, MACHINE)
    assert scaling is not None
    assert scaling.trials[-1].round == 2
    assert scaling.predicted_s <= 180.0
    assert sum(step.predicted_s for step in scaling.steps if step.kind.value == "load") == 0.0
    short = msgspec.structs.replace(study, scaling=msgspec.structs.replace(study.scaling, minutes=1.0))
    with pytest.raises(SpecError, match="1 minute is too few for a verdict"):
        plan_scaling(short, plan, MACHINE)
    assert plan_scaling(study_of(), plan, MACHINE) is None


def test_a_sweep_that_one_of_the_variants_cannot_run_is_refused_before_it_may_win() -> None:
    few = {"name": "few", "settings": {"max_connections": 20}}
    study = study_of(variant=[{"name": "stock"}, few], scaling={"clients": [1, 16]}, trials={"duration": "4s"})
    with pytest.raises(SpecError) as caught:
        plan_scaling(study, plan_study(study, MACHINE), MACHINE)
    assert "if few wins: " in caught.value.fact
    assert "16 clients do not fit into max_connections = 20" in caught.value.fact


def test_the_sweep_is_planned_for_the_postgresql_of_the_variant_that_may_win() -> None:
    new = {"name": "new", "server": "embedded", "settings": {"io_method": "sync"}}
    study = study_of(variant=[{"name": "old", "server": "15"}, new], scaling={"minutes": 20.0})
    machine = msgspec.structs.replace(MACHINE, version_major=15, other_majors={"new": 18})
    assert plan_scaling(study, plan_study(study, machine), machine) is not None


def test_a_sweep_is_predicted_to_take_as_long_as_under_the_slowest_variant_with_its_data_loaded() -> None:
    variants = [{"name": "cold", "cache": "cold"}, {"name": "warm"}, {"name": "large", "scale": 1000}]
    study = study_of(
        variant=variants, scaling={"design": "paired", "clients": [1, 4]}, data={"scale": 100}, trials={"warm_up": "9s"}
    )
    plan = plan_study(study, MACHINE)
    whole = plan_scaling(study, plan, MACHINE)
    assert whole is not None
    sweeps = [make_client_sweep(study, plan, scripts={}, variant=variant) for variant in study.variant]
    plans = [plan_sweep(sweep, plan, MACHINE) for sweep in sweeps]
    assert whole.predicted_s == max(one.predicted_s for one in plans) > plans[0].predicted_s
    assert {step.predicted_s for one in plans for step in one.steps if step.kind is StepKind.LOAD} == {0.0}


ON_GIVEN = msgspec.structs.replace(
    MACHINE, memory_bytes=sys.maxsize, disk_free_bytes=sys.maxsize, shared_buffers_bytes=8 * GB, free_connections=97
)


def given_study(**data: object) -> Study:
    own = {"server": {"kind": "given", "dsn": "host=db1"}, "data": {"scale": 50, **data}}
    trials = {"duration": "10s", "warm_up": "3s"}
    return study_of(workload=[{"name": "select-only", "clients": 8}], trials=trials, **own)


def plan_given_sweep(machine: Machine, study: Study | None = None, **scaling: object) -> Plan:
    asked = study or given_study()
    plan = plan_study(asked, machine)
    asked = with_scaling(asked, plan, machine)
    assert asked.scaling is not None
    asked = msgspec.structs.replace(asked, scaling=msgspec.structs.replace(asked.scaling, minutes=9.0, **scaling))
    planned = plan_scaling(asked, plan, machine)
    assert planned is not None
    return planned


def test_a_given_servers_loads_take_turns() -> None:
    scaling = plan_given_sweep(ON_GIVEN)
    assert scaling.experiment is not None
    assert (scaling.experiment.design, scaling.experiment.takes_turns) == (DesignKind.LIVE, True)
    assert scaling.experiment.reason.endswith("take turns on one server")
    assert {one.reason for one in scaling.choices if one.name == "design"} == {scaling.experiment.reason}
    assert [variant.clients for variant in scaling.experiment.variants] == [1, 2, 4, 8, 16, 32]
    # Half of the bench's.
    last = scaling.trials[-1]
    assert (last.duration_s, last.warm_up_s) == (5.0, 1.0)


def test_a_given_servers_sweep_names_its_machine_too() -> None:
    study = msgspec.structs.replace(given_study(), hosts=make_named_hosts("db1"), scaling=ScalingSpec())
    sweep = make_client_sweep(study, plan_study(study, ON_GIVEN), scripts={})
    again = parse_study(format_study(sweep), source="test", folder=Path())
    assert again.server_host == study.server_host is not None


@pytest.mark.parametrize(
    ("seen", "data"),
    [
        ({"shared_buffers_bytes": GB}, {}),
        ({"free_connections": 60}, {}),
        ({"live_obstacle": "a pooler shares sessions"}, {}),
        ({}, {"scale": None, "database": "app"}),
        ({}, {"scale": None, "init": "/tables.sql"}),
    ],
)
def test_turns_need_no_copies_and_hold_no_sessions_and_no_locks(
    seen: dict[str, Any], data: dict[str, object], tmp_path: Path
) -> None:
    study = given_study()
    script = tmp_path / "read.sql"
    script.write_text("SELECT 1;\n")
    workload = (msgspec.structs.replace(study.workload[0], name="read", scripts=(str(script),)),)
    study = msgspec.structs.replace(study, workload=workload, data=msgspec.structs.replace(study.data, **data))
    scaling = plan_given_sweep(msgspec.structs.replace(ON_GIVEN, **seen), study)
    assert scaling.experiment is not None
    assert scaling.experiment.takes_turns
    assert "copies" not in scaling.experiment.reason


def test_what_does_not_begin_and_end_with_pgbench_takes_no_turns() -> None:
    study = msgspec.structs.replace(given_study(), hosts=make_named_hosts(None, ["load1"]))
    scaling = plan_given_sweep(ON_GIVEN, study)
    assert scaling.experiment is not None
    assert (scaling.experiment.design, scaling.experiment.takes_turns) == (DesignKind.PAIRED, False)
    asked = plan_given_sweep(ON_GIVEN, design=DesignKind.PAIRED)
    assert asked.experiment is not None
    assert (asked.experiment.design, asked.experiment.takes_turns) == (DesignKind.PAIRED, False)


def test_a_given_servers_connections_bound_the_loads() -> None:
    def loads(**seen: object) -> list[int]:
        machine = msgspec.structs.replace(ON_GIVEN, **seen)
        study = given_study()
        return list(choose_client_counts(study, plan_study(study, machine).workloads[0], machine))

    assert loads(free_connections=30)[-1] == 20
    assert loads(free_connections=None)[-1] == 32
    # Its clients wait for one of few sessions.
    assert loads(has_pooled_sessions=True)[-1] == 8


def test_live_copies_that_crowd_each_other_are_told_in_the_plan() -> None:
    def reason(shared_buffers_bytes: int | None, *variants: VariantSpec) -> str:
        study = given_study()
        experiment = msgspec.structs.replace(study.experiment, design=DesignKind.LIVE)
        study = msgspec.structs.replace(study, variant=variants, experiment=experiment)
        machine = msgspec.structs.replace(ON_GIVEN, shared_buffers_bytes=shared_buffers_bytes)
        return next(one.reason for one in plan_study(study, machine).choices if one.name == "design")

    settings = [VariantSpec(name=value, settings={"work_mem": value}) for value in ("4MB", "8MB")]
    assert reason(8 * GB, *settings) == "as asked for"
    assert "3 copies of the data, 2.19 GB, do not fit into shared_buffers, 1 GB" in reason(GB, *settings)
    assert reason(GB, *settings).endswith("which paired trials do not do")
    # Loads that take turns have one copy.
    turns = reason(GB, VariantSpec(name="one", clients=1), VariantSpec(name="eight", clients=8))
    assert turns == "the loads differ only in clients, and can take turns on one server"


def test_a_level_says_more_than_its_base() -> None:
    base = VariantSpec(name="base", settings={"work_mem": "8MB", "commit_delay": 10})
    study = study_of(sweep=[{"name": "commit_delay", "levels": [0, 50]}])
    study = msgspec.structs.replace(study, variant=(base,))
    experiment = plan_study(study, MACHINE).experiment
    assert experiment is not None
    assert [variant.server.settings for variant in experiment.variants] == [
        {"work_mem": "8MB", "commit_delay": 0},
        {"work_mem": "8MB", "commit_delay": 50},
    ]
    assert [variant.name for variant in experiment.variants] == ["commit_delay=0", "commit_delay=50"]


def test_the_connections_that_loads_have_at_once_are_looked_for_before_a_study_begins() -> None:
    study = given_study()
    assert most_clients(study) == 8
    assert most_clients(msgspec.structs.replace(study, scaling=ScalingSpec(clients=(2, 16, 40)))) == 40

    def most(design: DesignKind | None, *variants: VariantSpec) -> int:
        experiment = msgspec.structs.replace(study.experiment, design=design)
        return most_clients(msgspec.structs.replace(study, variant=variants, experiment=experiment))

    loads = [VariantSpec(clients=clients) for clients in (2, 16, 40)]
    assert [most(design, *loads) for design in (None, DesignKind.LIVE)] == [40, 40]
    # Side by side, the reference's twice.
    settings = [VariantSpec(settings={"work_mem": value}, clients=20) for value in ("4MB", "8MB")]
    assert [most(design, *settings) for design in (None, DesignKind.LIVE)] == [20, 60]
    # The sweep that follows has its loads one at a time.
    study = msgspec.structs.replace(study, scaling=ScalingSpec(clients=(1, 50)))
    assert [most(design, *settings) for design in (None, DesignKind.LIVE)] == [50, 60]


def test_clients_of_a_pooler_in_transaction_mode_hold_no_connections() -> None:
    pools = {
        "shared": PoolerSpec(dsn="host=db1 port=6432"),
        "held": PoolerSpec(dsn="host=db1", mode=PoolMode.SESSION),
    }
    study = msgspec.structs.replace(given_study(), poolers=pools)
    parts = (
        PartSpec(name="select-only", clients=5, endpoint="shared"),
        PartSpec(name="tpcb-like", clients=2),
    )

    def most(*endpoints: str, design: DesignKind | None = None, **changed: object) -> int:
        variants = tuple(VariantSpec(endpoint=endpoint, clients=500) for endpoint in endpoints)
        experiment = msgspec.structs.replace(study.experiment, design=design)
        return most_connections(msgspec.structs.replace(study, variant=variants, experiment=experiment, **changed))

    def through(endpoint: str) -> tuple[WorkloadSpec, ...]:
        return (msgspec.structs.replace(study.workload[0], endpoint=endpoint),)

    assert [most(), most(workload=through("shared")), most(workload=through("held"))] == [8, 0, 8]
    assert [most("shared", "shared"), most("primary", "shared"), most("held", "shared")] == [0, 500, 500]
    assert most(workload=(WorkloadSpec(name="mixed", parts=parts),)) == 2
    swept = ScalingSpec(clients=(1, 700))
    assert [most(scaling=swept), most(scaling=swept, workload=through("shared"))] == [700, 0]


def test_a_sweep_through_a_pooler_in_transaction_mode_has_more_clients_than_connections_are_free() -> None:
    few = msgspec.structs.replace(ON_GIVEN, free_connections=20)
    pools = {"pool": PoolerSpec(dsn="host=db1 port=6432")}
    study = msgspec.structs.replace(given_study(), poolers=pools)
    workload = plan_study(study, few).workloads[0]
    through = msgspec.structs.replace(workload, endpoint="pool")
    assert [choose_client_counts(study, one, few)[-1] for one in (workload, through)] == [10, 32]

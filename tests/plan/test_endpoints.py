"""What a pool's size is without being asked, how endpoints are compared, and what cannot run through a pooler."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.pin import pin_study
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.plan.scaling import make_client_sweep, plan_scaling, with_scaling
from pgdyno.plan.types import PoolerProgram
from pgdyno.spec.pooler import PoolMode
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

DEBIANS = PoolerProgram(path="/usr/sbin/pgbouncer", version=(1, 18))
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11, pooler=DEBIANS)


def make(
    *endpoints: str,
    workload: dict[str, object] | None = None,
    pool: dict[str, object] | None = None,
    settings: dict[str, object] | None = None,
    **tables: object,
) -> Study:
    raw: dict[str, object] = {
        "server": {"settings": settings or {}},
        "data": {"scale": 5},
        "workload": [{"name": "select-only", "clients": 16, **(workload or {})}],
        "poolers": {"pool": pool or {}},
        "variant": [{"endpoint": endpoint} for endpoint in endpoints],
        **tables,
    }
    return make_study(raw, source="test", folder=Path("/"))


def refuse(study: Study, machine: Machine = MACHINE) -> SpecError:
    with pytest.raises(SpecError) as caught:
        plan_study(study, machine)
    return caught.value


def test_a_pool_has_as_many_connections_as_cpus_and_disk_keep_busy() -> None:
    rows = [
        (2.0, {}, {}, 5),
        (16.0, {}, {}, 16),
        (16.0, {"clients": 500}, {}, 33),
        (0.5, {}, {}, 3),
        (2.0, {"clients": 3}, {}, 3),
        (2.0, {}, {"mode": "session"}, 16),
        (2.0, {}, {"size": 9}, 9),
    ]
    for cpu_count, workload, pool, size in rows:
        machine = msgspec.structs.replace(MACHINE, cpu_count=cpu_count)
        through = make(workload={**workload, "endpoint": "pool"}, pool=pool, variant=[])
        plan = plan_study(through, machine)
        (planned,) = plan.poolers
        assert planned.size == size, (cpu_count, workload, pool)
        told = {choice.name: choice for choice in plan.choices}
        assert ("size of pool" in told) is ("size" not in pool)
        pinned = pin_study(through, plan, scripts={})
        assert pinned.poolers["pool"].size == size
        assert plan_study(pinned, machine).poolers == plan.poolers


def test_more_clients_than_the_server_takes_sessions_run_through_a_pool_alone() -> None:
    plan = plan_study(make(workload={"clients": 500, "endpoint": "pool"}, variant=[]), MACHINE)
    assert plan.workloads[0].clients == 500
    assert "500 clients do not fit" in refuse(make("primary", "pool", workload={"clients": 500})).fact
    assert "200 server connections of the pool pool" in refuse(make("pool", "primary", pool={"size": 200})).fact


def test_endpoints_are_compared_in_live_pairs_where_all_servers_have_room() -> None:
    plan = plan_study(make("primary", "pool"), MACHINE)
    assert plan.experiment is not None
    assert plan.experiment.design is DesignKind.LIVE
    assert [plan.find_load(trial).endpoint for trial in plan.trials[:2]] == ["primary", "pool"]
    assert plan.find_pooler("primary") is None
    assert plan_study(make(variant=[]), MACHINE).poolers == ()

    small = msgspec.structs.replace(MACHINE, memory_bytes=256 << 20)
    crowded = plan_study(make("primary", "pool"), small)
    assert crowded.experiment is not None
    assert crowded.experiment.design is DesignKind.PAIRED
    assert "of memory at once" in crowded.experiment.reason
    assert "of memory at once" in refuse(make("primary", "pool", experiment={"design": "live"}), small).detail

    paired = plan_study(make("primary", "pool", workload={"rate_tps": 100}), MACHINE)
    assert paired.experiment is not None
    assert paired.experiment.design is DesignKind.PAIRED
    alike = plan_study(make("pool", "pool", variant=[{"name": name, "endpoint": "pool"} for name in "ab"]), MACHINE)
    assert alike.experiment is not None
    assert alike.experiment.design is DesignKind.SWITCHBACK
    assert "endpoint" in refuse(make("primary", "pool", experiment={"design": "switchback"})).detail


def test_prepared_statements_go_through_a_pool_that_keeps_them() -> None:
    prepared: dict[str, object] = {"mode": "prepared"}
    error = refuse(make("primary", "pool", workload=prepared))
    assert error.fact == "workload select-only of endpoint=pool: prepared statements do not work through pool"
    assert "PgBouncer 1.18 in transaction mode" in error.detail
    for version, mode in (((1, 21), "transaction"), ((1, 18), "session")):
        machine = msgspec.structs.replace(MACHINE, pooler=PoolerProgram(path="/x", version=version))
        assert plan_study(make("primary", "pool", workload=prepared, pool={"mode": mode}), machine).poolers


def test_what_no_pooler_can_take_is_refused() -> None:
    given: dict[str, object] = {"kind": "given", "dsn": "host=db1"}
    rows = [
        (make("primary", "pool", pool={"size": 4, "mode": "session"}), "4 server connections for 16 clients"),
        (make("primary", "pool", pool={"dsn": "port=6432"}), "runs already"),
        (make("primary", "pool", server=given), "needs a connection string"),
        (make("pool", "primary", workload={"name": "init", "clients": None}), "not measured through a pooler"),
        (
            make("primary", "pool", pool={"dsn": "port=6432"}, server=given | {"settings": {"work_mem": "8MB"}}),
            "cannot ask for work_mem",
        ),
    ]
    for study, words in rows:
        assert words in refuse(study).fact, words
    there = plan_study(make("primary", "pool", pool={"dsn": "port=6432"}, server=given), MACHINE)
    assert there.poolers[0].size is None
    assert there.poolers[0].mode is PoolMode.TRANSACTION
    assert there.experiment is not None
    assert there.experiment.design is DesignKind.PAIRED
    assert any("connects to its variant's endpoint" in choice.reason for choice in there.choices)
    live = make("primary", "pool", pool={"dsn": "port=6432"}, server=given, experiment={"design": "live"})
    assert "a pooler in between" in refuse(live).detail


def test_a_sweep_over_clients_that_follows_runs_through_the_pooler_too() -> None:
    scaling = {"minutes": 20}
    through = make(workload={"endpoint": "pool"}, scaling=scaling, variant=[])
    plan = plan_scaling(through, plan_study(through, MACHINE), MACHINE)
    assert plan is not None
    assert {load.endpoint for load in plan.loads} == {"pool"}
    assert plan.poolers[0].most_clients == 32

    compared = make("primary", "pool", scaling=scaling, pool={"mode": "session"})
    sweep = make_client_sweep(compared, plan_study(compared, MACHINE), scripts={}, variant=compared.variant[1])
    plan = plan_study(sweep, MACHINE)
    assert {load.endpoint for load in plan.loads} == {"pool"}
    assert (plan.poolers[0].mode, plan.poolers[0].size) == (PoolMode.SESSION, 32)


def test_clients_that_pgdyno_chooses_fit_into_a_pool_of_sessions() -> None:
    def top(**pool: object) -> int:
        study = make(workload={"endpoint": "pool"}, pool=pool, variant=[])
        plan = plan_study(study, MACHINE)
        swept = with_scaling(study, plan)
        assert swept.scaling is not None
        assert plan_scaling(swept, plan, MACHINE) is not None
        return swept.scaling.clients[-1]

    assert top(mode="session", size=20) == 20
    assert (top(mode="session"), top(size=20)) == (32, 32)

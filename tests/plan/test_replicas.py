"""Loads that read from standbys: what cannot run there, and how they are compared with loads at the primary."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.comparison.parts import find_primary_metrics
from pgdyno.errors import SpecError
from pgdyno.plan.experiment import count_rounds_for
from pgdyno.plan.minutes import describe_missing_pairs
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.variants import most_connections, most_on_each_replica, name_asked_settings
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


def make(*endpoints: str, standbys: int = 1, workload: dict[str, object] | None = None, **tables: object) -> Study:
    raw: dict[str, object] = {
        "server": {"standbys": standbys},
        "data": {"scale": 5},
        "workload": [{"name": "select-only", "clients": 16, **(workload or {})}],
        "variant": [{"endpoint": endpoint} for endpoint in endpoints],
        **tables,
    }
    return make_study(raw, source="test", folder=Path("/"))


def test_what_cannot_read_from_standbys_is_refused_with_what_to_do() -> None:
    given = {"kind": "given", "dsn": "host=db1"}
    reads = {"endpoint": "replicas"}
    rows = [
        (make("primary", "replicas", standbys=0), "needs standbys", "set standbys = 1 in [server], or --standbys 1"),
        (make(standbys=0, workload=reads), "needs standbys", "--standbys 1"),
        (make(workload=reads | {"name": "tpcb-like"}), "workload tpcb-like cannot run on a standby", "select-only"),
        (
            make(workload=reads | {"scripts": ["select-only@9", "simple-update"]}),
            "cannot run on a standby",
            "select-only",
        ),
        (make("primary", "replicas", server=given), "needs their connection strings", "replicas='host=db2,db3"),
        (
            make(server=given | {"replicas": ["host=db2"]}, workload=reads | {"name": "simple-update"}),
            "workload simple-update cannot run on a standby",
            "select-only",
        ),
        (
            make("primary", "replicas", failover={"how": "crash"}),
            "not measured with the endpoint replicas",
            "leave out",
        ),
        (make("primary", "replicas", workload={"clients": 100}), "100 clients do not fit", "max_connections"),
        (make(standbys=2, workload=reads | {"clients": 200}), "on each standby: 100 clients do not fit", "200"),
    ]
    for study, fact, hint in rows:
        with pytest.raises(SpecError) as caught:
            plan_study(study, MACHINE)
        assert fact in caught.value.fact, fact
        assert hint in caught.value.hint or hint == "200", fact
        assert caught.value.detail, fact
    assert plan_study(make(standbys=2, workload=reads | {"clients": 180}), MACHINE).workloads[0].clients == 180


def test_primary_and_replicas_are_compared_in_trials_of_their_own() -> None:
    given = {"kind": "given", "dsn": "host=db1", "replicas": ["host=db2"]}
    for study in (make("primary", "replicas"), make("primary", "replicas", server=given)):
        plan = plan_study(study, MACHINE)
        assert plan.experiment is not None
        assert plan.experiment.design is DesignKind.PAIRED
        assert {load.endpoints for load in plan.loads} == {("primary",), ("replicas",)}
    with pytest.raises(SpecError, match="live"):
        plan_study(make("primary", "replicas", server=given, experiment={"design": "live"}), MACHINE)


def test_clients_of_replicas_of_a_given_server_take_no_connection_of_the_primary() -> None:
    given = {"kind": "given", "dsn": "host=db1", "replicas": ["host=db2", "host=db3"]}
    study = make("primary", "replicas", server=given, workload={"clients": 9})
    assert (most_connections(study), most_on_each_replica(study)) == (9, 5)
    study = make(server=given, workload={"clients": 9, "endpoint": "replicas"})
    assert (most_connections(study), most_on_each_replica(study)) == (0, 5)


READS = {"name": "reads", "scripts": ["select-only"], "clients": 12, "endpoint": "replicas"}
WRITES = {"name": "tpcb-like", "clients": 4}


def split(*parts: dict[str, object], **tables: object) -> Study:
    return make(**{"workload": {"name": "split", "clients": None, "parts": list(parts or (WRITES, READS))}, **tables})


def test_parts_are_planned_as_one_load_and_pinned() -> None:
    study = split()
    plan = plan_study(study, MACHINE)
    (load,) = plan.workloads
    assert (load.clients, load.endpoints, load.writing_clients) == (16, ("primary", "replicas"), 4)
    assert load.scripts == (("tpcb-like", 1), ("select-only", 1))
    assert [part.threads for part in load.parts] == [1, 2]
    assert [(one.endpoint, one.scripts) for one in plan.script_loads] == [
        ("primary", (("tpcb-like", 1),)),
        ("replicas", (("select-only", 1),)),
    ]
    pinned = make_study(tomllib.loads(format_pinned(study, plan, scripts={})), source="test", folder=Path("/"))
    assert plan_study(pinned, MACHINE).workloads == plan.workloads


def test_parts_connect_to_a_pooler_beside_others_and_run_at_rates() -> None:
    writes, direct = WRITES | {"endpoint": "pool", "clients": 40}, {"name": "simple-update", "clients": 3}
    study = split(writes, READS | {"rate_tps": 50}, direct, poolers={"pool": {}})
    plan = plan_study(study, MACHINE)
    (load,), (pooler,) = plan.workloads, plan.poolers
    assert (load.endpoints, load.rate_tps, load.is_scheduled) == (("pool", "replicas", "primary"), None, True)
    assert plan.find_pooler_of(load) == pooler
    assert (pooler.size, pooler.most_clients) == (5, 40)
    pinned = make_study(tomllib.loads(format_pinned(study, plan, scripts={})), source="test", folder=Path("/"))
    assert plan_study(pinned, MACHINE).workloads == plan.workloads
    assert find_primary_metrics(plan.workloads) == {
        ("split", "tpcb-like"): "tps",
        ("split", "reads"): "latency_p95_ms",
        ("split", "simple-update"): "tps",
    }
    # Its latencies decide, and slices would hold too few.
    apart = [{"settings": {"synchronous_commit": value}} for value in ("local", "remote_apply")]
    for parts, design in (
        ((WRITES, READS), DesignKind.SWITCHBACK),
        ((WRITES, READS | {"rate_tps": 50}), DesignKind.PAIRED),
    ):
        experiment = plan_study(split(*parts, variant=apart), MACHINE).experiment
        assert experiment is not None
        assert experiment.design is design
    # Where every part has a rate, the whole is an open loop.
    both = plan_study(split(WRITES | {"rate_tps": 10}, READS | {"rate_tps": 50}), MACHINE).workloads[0]
    assert (both.rate_tps, both.is_scheduled) == (60, True)
    assert not plan_study(split(), MACHINE).workloads[0].is_scheduled


def plan_shortest(study: Study) -> Plan:
    """Plan it in the fewest tenths of a minute that are enough."""
    for tenths in range(5, 300):
        experiment = msgspec.structs.replace(study.experiment, minutes=tenths / 10)
        with contextlib.suppress(SpecError):
            return plan_study(msgspec.structs.replace(study, experiment=experiment), MACHINE)
    raise AssertionError


@pytest.mark.parametrize("design", ["paired", "switchback"])
def test_a_study_has_rounds_for_the_questions_about_all_of_its_parts(design: str) -> None:
    parts = [WRITES, *(READS | {"name": f"reads{number}", "clients": 1} for number in range(3))]
    apart = [{"settings": {"synchronous_commit": value}} for value in ("local", "remote_apply")]
    asked = {"design": design, "slice": "10s"}
    plan = plan_shortest(split(*parts, variant=apart, experiment=asked, trials={"duration": "60s"}))
    assert plan.experiment is not None
    # One variant against the reference on four parts; the reference comes twice in a round.
    least = count_rounds_for(plan.experiment, 4)
    assert least > count_rounds_for(plan.experiment, 1)
    load_s = sum(trial.duration_s for trial in plan.trials)
    assert load_s // (3 * (60.0 if design == "paired" else 10.0)) >= least
    assert describe_missing_pairs(plan) is None


def test_a_pool_and_the_clients_beside_it_must_fit_into_the_server() -> None:
    writes = WRITES | {"endpoint": "pool", "clients": 40}
    fits = split(writes, {"name": "simple-update", "clients": 60}, poolers={"pool": {"size": 30}})
    assert plan_study(fits, MACHINE).poolers[0].size == 30
    with pytest.raises(SpecError) as caught:
        plan_study(split(writes, {"name": "simple-update", "clients": 60}, poolers={"pool": {"size": 40}}), MACHINE)
    assert "40 server connections of the pool pool beside 60 clients of the server itself" in caught.value.fact
    two = {"poolers": {"pool": {}, "other": {}}}
    with pytest.raises(SpecError) as caught:
        plan_study(split(writes, {"name": "simple-update", "clients": 6, "endpoint": "other"}, **two), MACHINE)
    assert "other and pool are two poolers" in caught.value.fact


def test_what_parts_cannot_be_is_refused() -> None:
    apart: tuple[dict[str, object], dict[str, object]] = (
        {"settings": {"work_mem": "4MB"}},
        {"settings": {"work_mem": "8MB"}},
    )
    rows: list[tuple[dict[str, object], str]] = [
        ({"variant": [{"clients": 4}, {"clients": 8}]}, "variants cannot change clients"),
        ({"sweep": [{"name": "endpoint", "levels": ["primary", "replicas"]}]}, "variants cannot change endpoint"),
        ({"variant": list(apart), "experiment": {"design": "live"}}, "cannot be compared live"),
        ({"search": {"latency": "20ms"}}, "searched or swept"),
        ({"failover": {"how": "crash"}}, "without a failover"),
    ]
    for tables, words in rows:
        with pytest.raises(SpecError) as caught:
            plan_study(split(**tables), MACHINE)
        assert words in f"{caught.value.fact} {caught.value.detail}", tables
    for parts, words in (
        ((WRITES | {"endpoint": "replicas"}, READS), "part tpcb-like of split cannot run on a standby"),
        ((WRITES | {"clients": 96}, READS), "96 clients do not fit"),
    ):
        with pytest.raises(SpecError) as caught:
            plan_study(split(*parts), MACHINE)
        assert words in caught.value.fact


def test_parts_that_make_no_load_are_refused_by_their_key() -> None:
    rows: list[tuple[tuple[dict[str, object], ...], str]] = [
        ((WRITES,), "1 is not within 2 to 8"),
        ((WRITES, WRITES), "tpcb-like comes twice"),
        ((WRITES, {"name": "reads", "clients": 1}), "has no scripts"),
        ((WRITES, READS | {"endpoint": "pool"}), "a pooler has a table [poolers.pool]"),
        ((WRITES, READS | {"rate_tps": 0}), "part reads: rate_tps 0 is not above 0"),
        ((WRITES, READS | {"clients": 0}), "0 is not within 1 to"),
        ((WRITES, READS | {"name": "a/b"}), "is no name"),
    ]
    for parts, words in rows:
        with pytest.raises(SpecError) as caught:
            split(*parts)
        assert words in caught.value.fact, words


def test_settings_that_all_loads_ask_for() -> None:
    given = {"kind": "given", "dsn": "host=db1", "replicas": ["host=db2"], "settings": {"work_mem": "4MB"}}
    assert name_asked_settings(make(server=given)) == {"work_mem"}
    variants = [{"name": "a", "settings": {"JIT": "on"}}, {"name": "b", "settings": {"jit": "off", "geqo": "off"}}]
    assert name_asked_settings(make(server=given, variant=variants)) == {"work_mem", "jit"}

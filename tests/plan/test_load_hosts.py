"""Variants whose loads come from different numbers of load hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.pin import format_pinned
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.scaling import make_client_sweep, plan_sweep
from pgdyno.plan.variants import most_clients_each
from pgdyno.record.types import choose_format
from pgdyno.spec.read import make_study, parse_study
from pgdyno.spec.variant import LOAD_HOSTS, DesignKind

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
ONE_OR_TWO = [{"name": LOAD_HOSTS, "levels": [1, 2]}]


def asked(*, hosts: int = 2, **tables: Any) -> dict[str, Any]:
    named = {f"load{number}": {"role": "load", "ssh": f"load{number}"} for number in range(1, hosts + 1)}
    return {"data": {"scale": 10}, "workload": [{"name": "select-only", "clients": 8}], "hosts": named, **tables}


def plan_of(**tables: Any) -> Plan:
    return plan_study(make_study(asked(**tables), source="a test", folder=Path()), MACHINE)


def test_a_level_is_the_number_of_load_hosts() -> None:
    plan = plan_of(sweep=ONE_OR_TWO)
    experiment = plan.experiment
    assert experiment is not None
    assert [load.load_hosts for load in plan.loads] == [1, 2]
    assert (experiment.design, experiment.reason) == (
        DesignKind.PAIRED,
        "load_hosts cannot change under a running load",
    )
    assert [one.name for one in experiment.list_differing_in(LOAD_HOSTS)] == ["load_hosts=2"]
    # An earlier pgdyno would resume with all load hosts under each variant.
    study = make_study(asked(sweep=ONE_OR_TWO), source="a test", folder=Path())
    assert choose_format(study, plan, 5) == 7


def test_a_pinned_study_has_the_same_levels() -> None:
    study = make_study(asked(sweep=ONE_OR_TWO), source="a test", folder=Path())
    pinned = parse_study(format_pinned(study, plan_study(study, MACHINE), scripts={}), source="a test", folder=Path())
    assert [load.load_hosts for load in plan_study(pinned, MACHINE).loads] == [1, 2]


def test_more_load_hosts_than_are_named_are_refused() -> None:
    with pytest.raises(SpecError, match=r"load_hosts is 2, and the study names 1 load host$") as caught:
        plan_of(hosts=1, sweep=ONE_OR_TWO)
    assert "--load-host DEST" in caught.value.hint
    with pytest.raises(SpecError, match="names 0 load hosts"):
        plan_of(hosts=0, sweep=ONE_OR_TWO)
    with pytest.raises(SpecError, match=r"2 load hosts for 1 client$"):
        plan_of(sweep=ONE_OR_TWO, workload=[{"name": "select-only", "clients": 1}])
    with pytest.raises(SpecError, match="load_hosts 0 is not within 1 to 100"):
        plan_of(sweep=[{"name": LOAD_HOSTS, "levels": [0, 1]}])


def test_a_sweep_over_clients_that_follows_comes_from_all_load_hosts() -> None:
    variants = [{"name": "one", "load_hosts": 1}, {"name": "two", "load_hosts": 2}]
    study = make_study(asked(variant=variants, scaling={"minutes": 60}), source="a test", folder=Path())
    plan = plan_study(study, MACHINE)
    sweep = make_client_sweep(study, plan, scripts={}, variant=study.variant[1])
    loads = plan_sweep(sweep, plan, MACHINE).loads
    assert (loads[0].clients, {load.load_hosts for load in loads}) == (1, {None})


def test_another_postgresql_is_reached_at_the_same_address() -> None:
    server = {"address": "db1", "standbys": 1}
    experiment = plan_of(server=server, variant=[{"server": "embedded"}, {"server": "15"}]).experiment
    assert experiment is not None
    assert [(variant.server.address, variant.server.standbys) for variant in experiment.variants] == [("db1", 1)] * 2


def test_a_load_host_is_timed_with_the_most_clients_that_it_has() -> None:
    def count(**tables: Any) -> int:
        return most_clients_each(make_study(asked(**tables), source="a test", folder=Path()))

    assert count() == 4
    assert count(sweep=ONE_OR_TWO) == 8
    assert count(hosts=3, workload=[{"name": "select-only", "clients": 2}]) == 1
    assert count(sweep=[{"name": "clients", "levels": [1, 9]}]) == 5


def test_what_earlier_pgdynos_would_run_in_another_way_has_a_format_of_its_own() -> None:
    def choose(**tables: Any) -> int:
        study = make_study(asked(**tables), source="a test", folder=Path())
        return choose_format(study, plan_study(study, MACHINE), 5)

    standbys = {"server": {"standbys": 1}}
    assert choose() == 5
    assert choose(hosts=0, **standbys) == 5
    assert choose(**standbys) == 7
    parts = [{"name": "select-only", "clients": 1}, {"name": "tpcb-like", "clients": 1}]
    split = {"hosts": 0, "workload": [{"name": "split", "parts": parts}]}
    assert choose(**split) == 5
    assert choose(**split, server={"kind": "given", "dsn": "host=db1"}) == 7
    assert choose(workload=split["workload"]) == 7


def test_parts_share_the_cpus_of_a_load_host() -> None:
    parts = [{"name": "select-only", "clients": 12}, {"name": "tpcb-like", "clients": 4}]
    study = make_study(asked(workload=[{"name": "split", "parts": parts}]), source="a test", folder=Path())
    machine = msgspec.structs.replace(MACHINE, load_cpu_count=8.0)
    assert [part.threads for part in plan_study(study, machine).loads[0].parts] == [6, 2]
    assert [part.threads for part in plan_study(study, MACHINE).loads[0].parts] == [2, 1]
    with pytest.raises(SpecError, match="variants cannot change load_hosts"):
        plan_of(workload=[{"name": "split", "parts": parts}], sweep=ONE_OR_TWO)


def test_variants_that_differ_in_more_do_not_differ_in_one_thing_only() -> None:
    others = [{"name": "other", "load_hosts": 2, "settings": {"jit": "off"}}, {"name": "same", "load_hosts": 1}]
    experiment = plan_of(variant=[{"load_hosts": 1}, *others]).experiment
    assert experiment is not None
    assert experiment.list_differing_in(LOAD_HOSTS) == ()

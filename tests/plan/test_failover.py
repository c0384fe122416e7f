"""What a study with a failover plans, and what it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.spec.failover import FailoverKind
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
MODES = [{"settings": {"synchronous_commit": value}} for value in ("local", "on")]


def make(**tables: object) -> Study:
    raw: dict[str, object] = {
        "server": {"standbys": 1},
        "workload": [{"name": "tpcb-like"}],
        "failover": {},
        "variant": MODES,
        **tables,
    }
    return make_study(raw, source="test", folder=Path("/"))


def test_the_primary_ends_in_the_middle_unless_the_study_says_when() -> None:
    for failover, at_s, after_s in (({}, 5.0, 5.0), ({"at": "2s", "how": "stop"}, 2.0, 8.0)):
        plan = plan_study(make(failover=failover, trials={"duration": "10s"}), MACHINE)
        planned = plan.workloads[0].failover
        assert planned is not None
        assert (planned.at_s, planned.after_s) == (at_s, after_s)
        assert planned.kind is (FailoverKind.STOP if failover else FailoverKind.CRASH)
        assert ("failover" in {choice.name for choice in plan.choices}) is not bool(failover)


def test_variants_have_trials_of_their_own() -> None:
    plan = plan_study(make(), MACHINE)
    assert plan.experiment is not None
    assert plan.experiment.design is DesignKind.PAIRED
    assert all(len(trial.variants) == 1 for trial in plan.trials)
    alone = plan_study(make(variant=[]), MACHINE)
    assert alone.experiment is None
    assert alone.workloads[0].failover is not None


def test_what_cannot_fail_over_is_refused() -> None:
    rows: list[tuple[dict[str, object], str]] = [
        ({"server": {}}, "needs a standby"),
        ({"workload": [{"name": "init"}]}, "without a failover"),
        ({"variant": [], "sweep": [{"name": "clients", "levels": [1, 2]}]}, "sweeps and searches"),
        ({"variant": [], "search": {"latency": "20ms"}}, "sweeps and searches"),
        ({"server": {"standbys": 1, "port": 5999}}, "a port makes no sense"),
        ({"experiment": {"design": "switchback"}}, "paired trials"),
        ({"experiment": {"design": "live"}}, "paired trials"),
        ({"poolers": {"pool": {}}, "variant": [{"endpoint": "primary"}, {"endpoint": "pool"}]}, "the pooler pool"),
        ({"poolers": {"pool": {}}, "workload": [{"name": "tpcb-like", "endpoint": "pool"}]}, "the pooler pool"),
        ({"trials": {"duration": "1s"}}, "too little load"),
        ({"failover": {"at": "30s"}}, "too little load"),
    ]
    for tables, words in rows:
        with pytest.raises(SpecError) as caught:
            plan_study(make(**tables), MACHINE)
        assert words in caught.value.fact, tables
        assert caught.value.detail, tables
        assert caught.value.hint, tables


def test_wal_that_a_slot_may_keep_beyond_what_the_plan_counts_is_said_before() -> None:
    for value, words in (("-1", "without a bound"), ("50GB", "up to 50GB"), ("1GB", None), (-1, "without a bound")):
        server = {"standbys": 1, "settings": {"max_slot_wal_keep_size": value}}
        plan = plan_study(make(server=server), MACHINE)
        assert {choice.name: choice.value for choice in plan.choices}.get("WAL kept for standbys") == words, value

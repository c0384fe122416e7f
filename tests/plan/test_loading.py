"""Studies of loading itself: what is planned, and what is refused with its reason."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from pgdyno.errors import HostError, SpecError
from pgdyno.plan.pin import pin_study
from pgdyno.plan.plan import BYTES_PER_SCALE, Machine, StepKind, plan_study
from pgdyno.spec.read import format_study, make_study, parse_study
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 << 30, disk_free_bytes=80_000_000_000)
VARIANTS = [{"settings": {"maintenance_work_mem": size}} for size in ("64MB", "1GB")]


def loading(**tables: object) -> Study:
    raw = {"workload": [{"name": "init"}], "variant": VARIANTS, **tables}
    return make_study(raw, source="test", folder=Path())


def test_trials_load_in_pairs_without_warm_up_for_as_long_as_the_data_take() -> None:
    plan = plan_study(loading(data={"scale": 100}), MACHINE)
    assert plan.experiment is not None
    assert plan.experiment.design is DesignKind.PAIRED
    assert plan.dataset_bytes == 100 * BYTES_PER_SCALE
    (workload,) = plan.workloads
    assert workload.is_loading
    assert (workload.clients, workload.scripts) == (1, ())
    assert {trial.warm_up_s for trial in plan.trials} == {0.0}
    first = [trial.variants[0] for trial in plan.trials if trial.round == 1]
    assert sorted(first, key=first.count) == ["maintenance_work_mem=1GB", *["maintenance_work_mem=64MB"] * 2]
    load_s = next(step.predicted_s for step in plan.steps if step.kind is StepKind.LOAD)
    slow = plan_study(loading(data={"scale": 100}), msgspec.structs.replace(MACHINE, write_bytes_per_s=50e6))
    assert load_s < 10, "only empty clusters are made before the first trial"
    assert plan.trials[0].duration_s < slow.trials[0].duration_s == math.ceil(2 * 100 * BYTES_PER_SCALE / 50e6)


def test_loading_waits_for_its_session_or_for_the_disk() -> None:
    def load_s(scale: int, **changes: object) -> float:
        study = make_study(
            {"workload": [{"name": "select-only"}], "data": {"scale": scale}}, source="test", folder=Path()
        )
        machine = msgspec.structs.replace(MACHINE, disk_free_bytes=10**12, **changes)
        return next(step.predicted_s for step in plan_study(study, machine).steps if step.kind is StepKind.LOAD) - 3

    small, large = 100 * BYTES_PER_SCALE, 3000 * BYTES_PER_SCALE
    tables = 13.4 / 15.7 * large
    disk = {"write_bytes_per_s": 150e6, "read_bytes_per_s": 300e6}
    rows = [
        ("its one session", 100, {}, small / 80e6),
        ("a fast disk", 100, {"write_bytes_per_s": 1e9}, small / 80e6),
        ("data and WAL", 100, {"write_bytes_per_s": 50e6}, 2 * small / 50e6),
        ("WAL of trials elsewhere", 100, {"write_bytes_per_s": 50e6, "wal_free_bytes": 10**12}, 2 * small / 50e6),
        ("tables that memory cannot hold are read for their keys", 3000, disk, 2 * large / 150e6 + tables / 300e6),
        ("a disk that is declared by its writes", 3000, {"write_bytes_per_s": 150e6}, (2 * large + tables) / 150e6),
    ]
    for name, scale, changes, expected_s in rows:
        assert load_s(scale, **changes) == pytest.approx(expected_s), name


def test_a_scale_is_chosen_and_a_pinned_study_is_the_same() -> None:
    study = loading()
    plan = plan_study(study, MACHINE)
    assert plan.trials[0].duration_s <= 5
    again = parse_study(format_study(pin_study(study, plan, scripts={})), source="test", folder=Path())
    assert msgspec.structs.replace(plan_study(again, MACHINE), choices=()) == msgspec.structs.replace(plan, choices=())


def test_data_that_do_not_fit_are_refused() -> None:
    with pytest.raises(HostError, match="scale 4000 does not fit"):
        plan_study(loading(data={"scale": 4000}), MACHINE)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"workload": [{"name": "init"}, {"name": "select-only"}]}, "cannot be measured beside others"),
    ({"server": {"kind": "given", "dsn": ""}}, "not for a server of yours"),
    ({"variant": []}, "is for comparisons"),
    ({"variant": [], "search": {"latency": "20ms"}}, "is for comparisons"),
    ({"scaling": {}}, "is for comparisons"),
    ({"data": {"restore": "none"}}, "restore = none makes no sense"),
    ({"experiment": {"design": "live"}}, "only be compared in paired trials"),
    ({"experiment": {"slice": "1s"}}, "only be compared in paired trials"),
    ({"workload": [{"name": "init", "mode": "prepared"}]}, "mode makes no sense"),
    ({"workload": [{"name": "init", "rate_tps": 10.0}]}, "rate_tps makes no sense"),
    ({"variant": [], "sweep": [{"name": "clients", "levels": [1, 2]}]}, "cannot differ in clients"),
    ({"variant": [], "sweep": [{"name": "scale", "levels": [1, 2]}]}, "cannot differ in scale"),
]


def test_what_makes_no_sense_is_refused_with_a_reason_and_a_way_out() -> None:
    for tables, fact in REFUSED:
        with pytest.raises(SpecError, match=fact) as caught:
            plan_study(loading(**tables), MACHINE)
        assert caught.value.detail, fact
        assert caught.value.hint, fact

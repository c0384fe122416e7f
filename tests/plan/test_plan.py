from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgdyno.errors import HostError, SpecError
from pgdyno.plan.plan import BYTES_PER_SCALE, Machine, StepKind, plan_study
from pgdyno.spec.read import make_study
from pgdyno.spec.study import Study

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 << 30, disk_free_bytes=80_000_000_000)


def study(**tables: object) -> Study:
    raw = {"workload": [{"name": "tpcb-like"}, {"name": "select-only"}], **tables}
    return make_study(raw, source="test", folder=Path())


def test_what_is_left_open_is_chosen_with_a_reason() -> None:
    plan = plan_study(study(), MACHINE)
    assert {choice.name for choice in plan.choices} == {"clients of tpcb-like", "clients of select-only", "scale"}
    assert all(choice.reason for choice in plan.choices)
    assert plan.scale >= 2 * max(workload.clients for workload in plan.workloads)
    assert plan_study(study(data={"scale": 7}), MACHINE).scale == 7


def test_of_the_users_own_data_nothing_is_known_before_they_are_loaded() -> None:
    own = {"workload": [{"name": "mine", "scripts": [__file__]}], "data": {"init": "schema.sql"}}
    with pytest.raises(SpecError, match="in a given server only"):
        plan_study(study(**own), MACHINE)
    plan = plan_study(study(**own, server={"kind": "given", "dsn": ""}), MACHINE)
    assert (plan.dataset_bytes, plan.scale, plan.data_words) == (None, 1, "schema.sql")
    assert "scale" not in {choice.name for choice in plan.choices}


def test_on_a_slow_disk_the_data_are_less_and_a_copy_is_expected_to_take_as_long() -> None:
    quick, slow, slower = (
        plan_study(study(), msgspec.structs.replace(MACHINE, write_bytes_per_s=rate)) for rate in (2.6e9, 300e6, 50e6)
    )
    assert quick == plan_study(study(), MACHINE)
    assert (quick.scale, slow.scale) == (100, 20)
    (chosen,) = (choice for choice in slow.choices if choice.name == "scale")
    assert chosen.reason == "the largest round one at which a copy of the data is written in 2.5 s"
    # Fewer branches than that would be waited for.
    assert slower.scale == 2 * slower.workloads[0].clients
    asked = plan_study(study(data={"scale": 100}), msgspec.structs.replace(MACHINE, write_bytes_per_s=50e6))
    assert asked.steps[2].predicted_s > 100 * BYTES_PER_SCALE / 50e6


def test_a_copy_of_more_than_the_kernel_leaves_dirty_goes_at_a_disks_speed() -> None:
    small, large = (plan_study(study(data={"scale": scale}), MACHINE).steps[2].predicted_s for scale in (200, 1000))
    # 3.1 GB of 24 GB are copied in memory; 15.7 GB at 131 MB/s.
    assert small < 200 * BYTES_PER_SCALE / 400e6 + 60
    assert large > 1000 * BYTES_PER_SCALE / 131.1e6
    quick = msgspec.structs.replace(MACHINE, write_bytes_per_s=2e9)
    assert plan_study(study(data={"scale": 1000}), quick).steps[2].predicted_s < large / 2


def test_each_round_holds_each_workload_once_in_an_order_of_its_own() -> None:
    plan = plan_study(study(trials={"rounds": 40}), MACHINE)
    orders = [tuple(t.workload for t in plan.trials if t.round == r) for r in range(1, 41)]
    assert all(sorted(order) == ["select-only", "tpcb-like"] for order in orders)
    assert len(set(orders)) == 2
    assert [t.number for t in plan.trials] == list(range(1, 81))
    assert len({t.seed for t in plan.trials}) == 80


@given(seed=st.integers(0, 2**31 - 1), rounds=st.integers(1, 5))
def test_same_question_same_plan(seed: int, rounds: int) -> None:
    asked = study(trials={"seed": seed, "rounds": rounds})
    plan = plan_study(asked, MACHINE)
    assert plan == plan_study(asked, MACHINE)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=type(plan)) == plan
    assert plan.predicted_s == sum(step.predicted_s for step in plan.steps)
    assert [step.kind for step in plan.steps][:2] == [StepKind.CHECK, StepKind.LOAD]


def test_more_clients_than_connections() -> None:
    load = [{"name": "tpcb-like", "clients": 96}]
    with pytest.raises(SpecError, match="do not fit into max_connections = 100") as caught:
        plan_study(study(workload=load), MACHINE)
    assert "max_connections = 106" in caught.value.hint
    plan_study(study(workload=load, server={"settings": {"max_connections": 106}}), MACHINE)


def test_more_threads_than_clients() -> None:
    with pytest.raises(SpecError, match="3 threads for 2 clients"):
        plan_study(study(workload=[{"name": "tpcb-like", "clients": 2, "threads": 3}]), MACHINE)


def test_a_scale_that_does_not_fit_says_which_would() -> None:
    with pytest.raises(HostError, match="scale 10000 does not fit on the disk") as caught:
        plan_study(study(data={"scale": 10_000}), MACHINE)
    fits = int(caught.value.hint.split("at most ")[1].split(",")[0])
    plan_study(study(data={"scale": fits}), MACHINE)
    with pytest.raises(HostError):
        plan_study(study(data={"scale": fits + 1}), MACHINE)


def test_a_cold_cache_has_no_warm_up() -> None:
    plan = plan_study(study(trials={"cache": "cold"}), MACHINE)
    assert {trial.warm_up_s for trial in plan.trials} == {0.0}
    assert any(choice.name == "warm-up" for choice in plan.choices)


def test_the_dataset_size_follows_the_fillfactor() -> None:
    plan = plan_study(study(data={"scale": 10, "fillfactor": 50}), MACHINE)
    assert plan.dataset_bytes == 20 * BYTES_PER_SCALE


def test_a_large_machine_gets_as_many_clients_as_may_connect() -> None:
    plan = plan_study(study(), msgspec.structs.replace(MACHINE, cpu_count=64))
    assert {workload.clients for workload in plan.workloads} == {95}
    assert "max_connections" in plan.choices[0].reason
    more = plan_study(
        study(server={"settings": {"max_connections": 500}}), msgspec.structs.replace(MACHINE, cpu_count=64)
    )
    assert {workload.clients for workload in more.workloads} == {256}


def test_a_small_disk_gets_a_small_scale() -> None:
    plan = plan_study(study(), msgspec.structs.replace(MACHINE, disk_free_bytes=4_300_000_000))
    assert plan.scale == 20
    assert "disk" in next(choice.reason for choice in plan.choices if choice.name == "scale")


def test_data_that_are_loaded_need_neither_time_nor_room_again() -> None:
    tight = msgspec.structs.replace(MACHINE, disk_free_bytes=7_000_000_000)
    asked = study(data={"scale": 100})
    with pytest.raises(HostError):
        plan_study(asked, tight)
    loaded = plan_study(asked, msgspec.structs.replace(tight, loaded_scales=frozenset({100})))
    assert next(step.predicted_s for step in loaded.steps if step.kind is StepKind.LOAD) == 0.0


@pytest.mark.parametrize(("scale", "wal_bytes", "most"), [(100, 100 * 15.7e6, 99), (2000, 4.3e9, 1997)])
def test_the_wal_that_loading_leaves_in_each_cluster_needs_room(scale: int, wal_bytes: float, most: int) -> None:
    needed = 3e9 + 2 * (scale * 15.7e6 + wal_bytes)
    plan_study(study(data={"scale": scale}), msgspec.structs.replace(MACHINE, disk_free_bytes=round(needed * 1.001)))
    less = msgspec.structs.replace(MACHINE, disk_free_bytes=round(needed * 0.999))
    with pytest.raises(HostError, match="does not fit on the disk") as caught:
        plan_study(study(data={"scale": scale}), less)
    assert caught.value.hint.startswith(f"use a scale of at most {most},")


def test_the_wal_of_a_copy_needs_no_room_beside_the_data_if_it_has_a_disk_of_its_own() -> None:
    one = 100 * 15.7e6
    apart = msgspec.structs.replace(MACHINE, wal_free_bytes=10**11, disk_free_bytes=round((3e9 + 3 * one) * 1.001))
    plan_study(study(data={"scale": 100}), apart)
    with pytest.raises(HostError, match="does not fit on the disk"):
        plan_study(study(data={"scale": 100}), msgspec.structs.replace(apart, wal_free_bytes=None))


def test_a_disk_that_is_too_small_for_the_wal() -> None:
    small, large = (msgspec.structs.replace(MACHINE, wal_free_bytes=free) for free in (1_000_000_000, 3_000_000_000))
    with pytest.raises(HostError, match="the WAL does not fit on its disk") as caught:
        plan_study(study(data={"scale": 1}), small)
    assert "free are 954 MB" in caught.value.detail
    assert "--wal-home" in caught.value.hint
    plan_study(study(data={"scale": 100}), large)
    with pytest.raises(HostError, match="the WAL does not fit on its disk"):
        plan_study(study(data={"scale": 200}), large)


def test_max_connections_that_is_no_number() -> None:
    with pytest.raises(SpecError, match="max_connections = many is not a whole number"):
        plan_study(study(server={"settings": {"max_connections": "many"}}), MACHINE)

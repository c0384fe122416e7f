from __future__ import annotations

import pytest

from pgdyno.tune.derive import derive
from pgdyno.tune.layers import REST, TrialSet, choose_trial_set, stock_value
from pgdyno.tune.types import DerivedSettings, Kernel, Target
from tests.tune.subjects import make_subject

NOW = {
    "vm.nr_hugepages": "0",
    "vm.dirty_bytes": "0",
    "vm.dirty_background_bytes": "0",
    "vm.overcommit_memory": "0",
    "vm.overcommit_ratio": "50",
}


@pytest.fixture(scope="module")
def tuning() -> DerivedSettings:
    return derive(make_subject(kernel=Kernel(sysctls=NOW, committed_bytes=1 << 30)))


def choose(tuning: DerivedSettings, **refused: str) -> TrialSet:
    return choose_trial_set(tuning, fixed={}, refused=refused)


def test_what_is_tried_differs_from_stock_and_is_postgresqls_or_a_sysctl(tuning: DerivedSettings) -> None:
    chosen = choose(tuning)
    for layer in chosen.layers:
        for one in layer.settings:
            assert one.target in {Target.POSTGRESQL, Target.SYSCTL}
            assert stock_value(one, tuning.subject) != one.value
    assert chosen.left_out["huge_pages"] == "it has this value already"
    assert {"vm.overcommit_memory", "log_lock_waits", "LimitNOFILE"} <= chosen.left_out.keys()
    assert set(chosen.settings()) | set(chosen.sysctls()) == {
        one.name for layer in chosen.layers for one in layer.settings
    }


def test_all_but_a_layer_is_all_but_its_settings(tuning: DerivedSettings) -> None:
    chosen = choose(tuning)
    assert {"memory", "WAL and checkpoints", "planner", REST} <= {layer.name for layer in chosen.layers}
    for layer in chosen.layers:
        gone = {one.name for one in layer.settings} | set(layer.also_without)
        assert {**chosen.settings(without=layer), **chosen.sysctls(without=layer)} == {
            name: value for name, value in {**chosen.settings(), **chosen.sysctls()}.items() if name not in gone
        }


def test_huge_pages_go_with_the_memory_that_they_are_for(tuning: DerivedSettings) -> None:
    chosen = choose(tuning)
    memory = next(layer for layer in chosen.layers if layer.name == "memory")
    assert "vm.nr_hugepages" in chosen.sysctls()
    assert "vm.nr_hugepages" not in chosen.sysctls(without=memory)
    assert "vm.dirty_bytes" in chosen.sysctls(without=memory)


def test_what_cannot_be_changed_here_is_left_out_in_the_kernels_words(tuning: DerivedSettings) -> None:
    refused = dict.fromkeys(NOW, "changing kernel settings needs root")
    chosen = choose(tuning, **refused)
    assert chosen.sysctls() == {}
    assert chosen.left_out["vm.dirty_bytes"] == "changing kernel settings needs root"
    assert "kernel" not in {layer.name for layer in chosen.layers}


def test_what_the_user_has_fixed_holds_on_both_sides() -> None:
    fixed = {"shared_buffers": "1GB", "work_mem": "64MB"}
    chosen = choose_trial_set(derive(make_subject(), fixed=fixed), fixed=fixed, refused={})
    assert not fixed.keys() & chosen.settings().keys()
    assert "--set" in chosen.left_out["work_mem"]

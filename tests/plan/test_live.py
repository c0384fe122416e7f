from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pgdyno.errors import SpecError
from pgdyno.plan.plan import Machine, Plan, plan_study
from pgdyno.plan.room import predict_wal_bytes
from pgdyno.plan.size import BYTES_PER_SCALE
from pgdyno.spec.read import make_study
from pgdyno.spec.variant import DesignKind
from tests.rows import check_rows

MACHINE = Machine(cpu_count=2, memory_bytes=16 << 30, disk_free_bytes=100 << 30, version_major=18)
BUFFERS = ({"settings": {"shared_buffers": "16MB"}}, {"settings": {"shared_buffers": "1GB"}})


def plan_live(
    *variants: dict[str, Any], machine: Machine = MACHINE, workload: dict[str, Any] | None = None, **tables: Any
) -> Plan:
    raw = {
        "data": {"scale": 10},
        "workload": [{"name": "tpcb-like", "clients": 4, **(workload or {})}],
        "trials": {"duration": "4s", "warm_up": "1s"},
        "experiment": {"design": "live", "minutes": 5},
        "variant": list(variants or BUFFERS),
        **tables,
    }
    return plan_study(make_study(raw, source="a test", folder=Path()), machine)


def test_a_round_has_the_reference_twice() -> None:
    plan = plan_live()
    assert plan.experiment is not None
    assert plan.experiment.design is DesignKind.LIVE
    first = sorted(trial.variants for trial in plan.trials if trial.round == 1)
    assert first == [("shared_buffers=16MB",), ("shared_buffers=16MB",), ("shared_buffers=1GB",)]
    assert all(trial.duration_s == 4 for trial in plan.trials if trial.round)
    # Each variant also runs alone once, where the samplers can watch it.
    assert sorted(trial.variants for trial in plan.trials[:2]) == [("shared_buffers=16MB",), ("shared_buffers=1GB",)]
    assert {trial.duration_s for trial in plan.trials[:2]} == {10}
    assert [trial.is_observed for trial in plan.trials] == [True, True, *[False] * (len(plan.trials) - 2)]


REFUSED = [
    ({"workload": {"rate_tps": 100}}, "a schedule of transactions (rate) runs on while its load is frozen"),
    ({"trials": {"cache": "cold"}}, "a cold cache warms up within the first slices"),
    ({"server": {"port": 5499}}, "the servers of all variants are up at once and cannot share one port"),
    ({"sysctl": "vm.dirty_background_bytes"}, "vm.dirty_background_bytes does not act at once"),
    ({"setting": ("checkpoint_timeout", "30s")}, "checkpoint_timeout counts the time in which a server is frozen"),
    ({"setting": ("bgwriter_delay", "10s")}, "bgwriter_delay counts the time in which a server is frozen"),
    ({"setting": ("deadlock_timeout", "2s")}, "deadlock_timeout counts the time in which a server is frozen"),
    ({"setting": ("archive_timeout", "5s")}, "archive_timeout counts the time in which a server is frozen"),
    ({"setting": ("statement_timeout", "5s")}, "statement_timeout counts the time in which a server is frozen"),
]


def test_variants_that_frozen_time_would_change_are_refused() -> None:
    def check(row: tuple[dict[str, Any], str]) -> None:
        asked, words = row
        second: dict[str, Any] = {"settings": {"shared_buffers": "1GB"}}
        if "sysctl" in asked:
            second["sysctl"] = {asked["sysctl"]: "100000000"}
        if "setting" in asked:
            name, value = asked["setting"]
            second["settings"][name] = value
        tables = {name: asked[name] for name in ("workload", "trials", "server") if name in asked}
        with pytest.raises(SpecError, match="cannot be compared live") as caught:
            plan_live(BUFFERS[0], second, **tables)
        assert words in caught.value.detail
        assert "--design paired (in a study file: design =" in caught.value.hint

    check_rows(REFUSED, check)


def test_what_acts_in_every_slice_or_after_the_round_is_compared() -> None:
    settings = {"bgwriter_delay": "50ms", "checkpoint_timeout": "10min", "archive_timeout": "0", "lock_timeout": "0ms"}
    plan = plan_live({"settings": {}}, {"settings": {"shared_buffers": "1GB", **settings}})
    assert plan.experiment is not None
    assert plan.experiment.design is DesignKind.LIVE


def test_huge_pages_are_for_one_server() -> None:
    asking = {"sysctl": {"vm.nr_hugepages": "600"}, "settings": {"shared_buffers": "1GB"}}
    assert plan_live({"settings": {}}, asking).experiment is not None
    for variants in ((asking, {"settings": {}}), ({"settings": {}}, asking, {**asking, "name": "other"})):
        with pytest.raises(SpecError, match="cannot be compared live") as caught:
            plan_live(*variants)
        assert "vm.nr_hugepages is set for one of the servers only" in caught.value.detail


def test_servers_that_do_not_fit_side_by_side_are_refused() -> None:
    for machine, words in (
        (msgspec.structs.replace(MACHINE, memory_bytes=1 << 30), "3 servers with their data need about"),
        (msgspec.structs.replace(MACHINE, disk_free_bytes=4_000_000_000), "of disk at once"),
        (msgspec.structs.replace(MACHINE, wal_free_bytes=2_500_000_000), "for their WAL at once"),
    ):
        with pytest.raises(SpecError, match="cannot be compared live here") as caught:
            plan_live(machine=machine)
        assert words in caught.value.detail


def test_a_cluster_that_is_still_to_be_loaded_needs_room_beside_the_servers() -> None:
    # Stock runs twice, and the observed trials have one more.
    for_servers = 4 * (10 * BYTES_PER_SCALE + predict_wal_bytes(10 * BYTES_PER_SCALE))
    has_room = msgspec.structs.replace(MACHINE, disk_free_bytes=for_servers, loaded_scales=frozenset({10}))
    plan_live(machine=has_room)
    with pytest.raises(SpecError, match="cannot be compared live here"):
        plan_live(machine=msgspec.structs.replace(has_room, loaded_scales=frozenset()))


# Of a given server, only the clients are frozen: what is asked for, and why it cannot be live.
REFUSED_ON_GIVEN = [
    ({"setting": ("commit_delay", 9)}, "commit_delay is one of the whole server, which all variants share"),
    ({"setting": ("statement_timeout", "5s")}, "statement_timeout counts the time in which a client is frozen"),
    ({"setting": ("deadlock_timeout", "2s")}, "deadlock_timeout counts the time in which a client is frozen"),
    ({"setting": ("work_mem", "8MB"), "server": {"apply": "/bin/true"}}, "the command changes settings"),
    ({"workload": {"rate_tps": 100}}, "a schedule of transactions (rate) runs on while its load is frozen"),
    ({"data": {"database": "app"}}, "a frozen client would keep its locks in the named database"),
    ({"machine": {"live_obstacle": "a pooler"}}, "a pooler"),
]


def test_what_frozen_clients_of_a_given_server_would_spoil_is_refused() -> None:
    def check(row: tuple[dict[str, Any], str]) -> None:
        asked, words = row
        name, value = asked.get("setting", ("work_mem", "8MB"))
        seen = msgspec.structs.replace(
            MACHINE, withheld_settings=frozenset({"commit_delay"}), **asked.get("machine", {})
        )
        tables = {key: asked[key] for key in ("workload", "data") if key in asked}
        given = {"kind": "given", "dsn": "", **asked.get("server", {})}
        with pytest.raises(SpecError, match="cannot be compared live") as caught:
            plan_live({"settings": {}}, {"settings": {name: value}}, machine=seen, server=given, **tables)
        assert words in caught.value.detail

    check_rows(REFUSED_ON_GIVEN, check)

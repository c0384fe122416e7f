from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgdyno.analyse.comparison.e_process import least_pairs
from pgdyno.analyse.comparison.pilot import PILOT_SLICE_S, PILOT_SLICES
from pgdyno.analyse.comparison.verdict import FamilyState, RatioOutcome, compute_states, judge_family
from pgdyno.errors import HostError, SpecError
from pgdyno.plan.experiment import (
    Experiment,
    changed_settings,
    changed_sysctls,
    count_least_rounds,
    reference_server,
)
from pgdyno.plan.extra_rounds import add_rounds, count_fitting
from pgdyno.plan.minutes import list_notes
from pgdyno.plan.order import PILOT_S, draw_orders
from pgdyno.plan.parts import find_least_rounds
from pgdyno.plan.plan import Machine, Plan, StepKind, plan_study
from pgdyno.plan.variants import plan_experiment
from pgdyno.spec.read import make_study
from pgdyno.spec.study import ServerKind, Study
from pgdyno.spec.variant import MOST_MINUTES, DesignKind
from tests.rows import each_row

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=24 << 30, disk_free_bytes=80_000_000_000)
LARGE = msgspec.structs.replace(MACHINE, disk_free_bytes=10**13, memory_bytes=10**12)


def study(**tables: object) -> Study:
    raw = {"workload": [{"name": "tpcb-like"}], **tables}
    return make_study(raw, source="test", folder=Path())


def vary(*variants: dict[str, object], **tables: object) -> Study:
    return study(variant=list(variants), **tables)


def of_setting(name: str, *values: object, **tables: object) -> Study:
    return vary(*({"settings": {name: value}} for value in values), **tables)


def experiment_of(asked: Study, major: int = 18) -> Experiment:
    planned = plan_experiment(asked, version_major=major)
    assert planned is not None
    return planned


# -- Variants ------------------------------------------------------------------------------------------------------------


def test_disks_take_turns_in_trials_or_in_live_pairs_and_not_under_one_load() -> None:
    for key, other in (("home", {"home": "/b"}), ("wal_home", {"wal_home": "/w"})):
        asked = vary({"name": "as it is"}, other)
        assert experiment_of(asked).design is DesignKind.PAIRED
        assert experiment_of(asked).reason == f"{key} cannot change under a running load"
        live = vary({"name": "as it is"}, other, experiment={"design": "live"})
        assert experiment_of(live).design is DesignKind.LIVE
        with pytest.raises(SpecError, match="cannot alternate under one load"):
            experiment_of(vary({"name": "as it is"}, other, experiment={"design": "switchback"}))
        with pytest.raises(SpecError, match="variants of a given server differ in settings"):
            experiment_of(vary({"name": "as it is"}, other, server={"kind": "given", "dsn": ""}))
    # The same place in other words.
    same = vary({"wal_home": "/w"}, {"settings": {"commit_delay": 10}}, data={"wal_home": "/w"})
    assert experiment_of(same).design is DesignKind.SWITCHBACK
    with pytest.raises(SpecError, match="home: is empty"):
        vary({"name": "as it is"}, {"home": ""})


def test_loads_take_turns_for_the_same_reason_when_it_is_asked_for() -> None:
    loads = ({"clients": 1}, {"clients": 8, "mode": "prepared"})
    for wish in ({}, {"design": "live"}):
        planned = experiment_of(vary(*loads, experiment=wish))
        assert planned.takes_turns
        assert planned.reason == "the loads differ only in clients and mode, and can take turns on one server"
    paired = experiment_of(vary(*loads, experiment={"design": "paired"}))
    assert (paired.takes_turns, paired.reason) == (False, "mode cannot change under a running load")


def test_cold_trials_have_no_warm_up_and_warm_ones_beside_them_have() -> None:
    asked = vary({"name": "warm"}, {"name": "cold", "cache": "cold"}, {"name": "left", "cache": "asis"})
    assert experiment_of(asked).reason == "cache cannot change under a running load"
    planned = plan_study(asked, LARGE)
    warm_ups = {(trial.variants[0], trial.warm_up_s) for trial in planned.trials}
    assert warm_ups == {("warm", 5.0), ("cold", 0.0), ("left", 5.0)}
    assert [one.value for one in planned.choices if one.name == "warm-up of cold"] == ["none"]
    with pytest.raises(SpecError) as caught:
        experiment_of(vary({"name": "warm"}, {"cache": "cold"}, experiment={"design": "live"}))
    assert caught.value.detail == "a cold cache warms up within the first slices"
    with pytest.raises(SpecError, match="variants of a given server differ in settings"):
        experiment_of(vary({"name": "warm"}, {"cache": "asis"}, server={"kind": "given", "dsn": ""}))


def test_extra_rounds_are_like_the_planned_ones_of_each_variant() -> None:
    asked = vary({"name": "warm"}, {"name": "cold", "cache": "cold"}, data={"scale": 10})
    planned = plan_study(asked, LARGE)
    undecided = {"tpcb-like": ("cold",)}
    added = add_rounds(planned, undecided, rounds=count_fitting(planned, undecided, within_s=300.0))
    extra = added.trials[len(planned.trials) :]
    assert {(trial.variants[0], trial.warm_up_s) for trial in extra} == {("warm", 5.0), ("cold", 0.0)}
    per_round = Counter(trial.round for trial in extra)
    assert sorted(per_round) == list(range(planned.trials[-1].round + 1, planned.trials[-1].round + 1 + len(per_round)))
    assert set(per_round.values()) == {3}
    assert [trial.number for trial in added.trials] == list(range(1, len(added.trials) + 1))
    predicted_s = sum(step.predicted_s for step in added.steps) - sum(step.predicted_s for step in planned.steps)
    assert predicted_s <= 300.0


def test_a_rate_that_leaves_trials_or_slices_without_a_p95_is_told() -> None:
    def told(duration: str, *variants: dict[str, object], **workload: object) -> tuple[str, ...]:
        slow = {"workload": [{"name": "tpcb-like", **(workload or {"rate_tps": 5})}], "trials": {"duration": duration}}
        return list_notes(plan_study(vary(*variants, **slow) if variants else study(**slow), LARGE))

    variants = {"name": "a"}, {"settings": {"shared_buffers": "1GB"}}
    (said,) = told("30s", *variants)
    assert said.startswith(
        "trials of 30 s are too short for a verdict on tpcb-like: its p95 latency needs 200 transactions"
    )
    assert said.endswith("which take 40 s at 5 a second; `--duration 60s` leaves room")
    assert told("45s", *variants) != ()
    assert told("60s", *variants) == told("30s") == ()
    parts = [
        {"name": "much", "clients": 2},
        {"name": "some", "clients": 1, "rate_tps": 5},
        {"name": "few", "clients": 1, "rate_tps": 1},
    ]
    (worst,) = told("30s", *variants, name="mixed", parts=[{**part, "scripts": ["select-only"]} for part in parts])
    assert "a verdict on part few of mixed" in worst
    assert "`--duration 300s` leaves room" in worst
    by_reload = [
        experiment_of(
            vary(
                {"name": "a"},
                {"settings": {"work_mem": "8MB"}},
                workload=[{"name": "tpcb-like", "rate_tps": rate}],
                experiment=asked,
            )
        )
        # A slice is as long as it must be, or as the user wants it.
        for rate, asked in ((12, {}), (14, {}), (64, {"slice": "2s"}), (66, {"slice": "2s"}))
    ]
    assert [one.design for one in by_reload] == [DesignKind.PAIRED, DesignKind.SWITCHBACK] * 2
    assert by_reload[0].reason == "a load runs at a rate, and slices hold too few of its transactions for a p95 latency"


def test_a_live_load_is_no_shorter_than_a_slice() -> None:
    live = vary({"name": "a"}, {"settings": {"shared_buffers": "1GB"}},
                experiment={"design": "live", "slice": "10s"}, trials={"duration": "4s"})  # fmt: skip
    planned = plan_study(live, LARGE)
    assert {trial.duration_s for trial in planned.trials} == {10.0}
    assert [(one.value, one.reason) for one in planned.choices if one.name == "duration"] == [
        ("10 s", "a slice takes as long")
    ]


def test_each_disk_needs_room_for_its_cluster() -> None:
    asked = vary({"name": "as it is"}, {"home": "/b"}, data={"scale": 10})
    small = msgspec.structs.replace(MACHINE, homes_free_bytes={"/b": 1_000_000_000})
    with pytest.raises(HostError, match="the data do not fit on the disk of /b"):
        plan_study(asked, small)
    plan_study(asked, msgspec.structs.replace(small, homes_free_bytes={"/b": 2_000_000_000}))
    live = vary({"name": "as it is"}, *({"home": "/b", "clients": n} for n in (1, 2)), data={"scale": 10},
                experiment={"design": "live"})  # fmt: skip
    with pytest.raises(SpecError) as caught:
        plan_study(live, msgspec.structs.replace(small, homes_free_bytes={"/b": 2_000_000_000}))
    assert "the servers of /b need 6.58 GB of disk at once" in caught.value.detail
    # The reference runs twice.
    both = vary({"name": "a", "home": "/b"}, {"name": "b"}, data={"scale": 10}, experiment={"design": "live"})
    with pytest.raises(SpecError) as twice:
        plan_study(both, msgspec.structs.replace(small, homes_free_bytes={"/b": 2_000_000_000}))
    assert "the servers of /b need 5.27 GB of disk at once" in twice.value.detail


def test_a_study_that_compares_nothing_has_no_experiment() -> None:
    assert plan_experiment(study(), version_major=18) is None


def test_variants_stand_on_the_studys_own_server() -> None:
    asked = vary(
        {"name": "a"},
        {"settings": {"commit_delay": 50}},
        {"server": 15, "settings": {"fsync": False}},
        {"server": "embedded"},
        {"server": "/opt/pg/bin"},
        server={"kind": "local", "version": 16, "settings": {"commit_delay": 5, "work_mem": "8MB"}},
    )
    base, delayed, other, embedded, folder = experiment_of(asked, 16).variants
    assert base.server.settings == {"commit_delay": 5, "work_mem": "8MB"}
    assert delayed.server.settings == {"commit_delay": 50, "work_mem": "8MB"}
    assert (delayed.changed, delayed.server.version) == ({"commit_delay": 50}, 16)
    assert (other.server.version, other.server.settings["fsync"], other.server.settings["work_mem"]) == (
        15,
        False,
        "8MB",
    )
    assert (embedded.server.kind, embedded.server.version) == (ServerKind.EMBEDDED, None)
    assert (folder.server.bindir, folder.server.version) == ("/opt/pg/bin", None)


def test_the_reference_says_which_server_a_study_is_about() -> None:
    assert reference_server(study()).kind is ServerKind.EMBEDDED
    assert reference_server(vary({"server": 15}, {"server": 18})).version == 15
    assert reference_server(vary({"name": "a"}, {"server": 18})).version is None
    assert reference_server(study(sweep=[{"name": "server", "levels": ["16", 15]}])).version == 16


def test_two_axes_make_every_combination_once_with_its_levels() -> None:
    axes = [{"name": "fsync", "levels": [True, False]}, {"name": "clients", "levels": ["1", 8, 32]}]
    variants = experiment_of(study(sweep=axes)).variants
    assert [(variant.levels["fsync"], variant.clients) for variant in variants] == list(
        itertools.product(("true", "false"), (1, 8, 32))
    )
    assert variants[0].name == "clients=1, fsync=true"
    assert {tuple(variant.levels) for variant in variants} == {("fsync", "clients")}


def test_axes_of_one_name() -> None:
    axes = [{"name": "clients", "levels": [1, 2]}, {"name": "clients", "levels": [4, 8]}]
    with pytest.raises(SpecError, match="both axes of the sweep are clients"):
        experiment_of(study(sweep=axes))
    axes = [{"name": name, "levels": ["4MB", "8MB"]} for name in ("work_mem", "Work_Mem")]
    with pytest.raises(SpecError, match="both axes of the sweep are work_mem"):
        experiment_of(study(sweep=axes))


def test_too_many_combinations_are_refused_before_they_are_made() -> None:
    axes = [{"name": "commit_delay", "levels": list(range(200))}, {"name": "commit_siblings", "levels": list(range(2))}]
    with pytest.raises(SpecError, match="400 variants are more than 200"):
        experiment_of(study(sweep=axes))
    with pytest.raises(SpecError, match="201 variants are more than 200"):
        experiment_of(of_setting("commit_delay", *range(201)))


def test_names_that_come_twice() -> None:
    with pytest.raises(SpecError, match="several variants are named commit_delay=5"):
        experiment_of(of_setting("commit_delay", 5, "5", 7))
    with pytest.raises(SpecError, match="several variants are named a"):
        experiment_of(vary({"name": "a"}, {"name": "a", "clients": 3}))


def test_settings_go_by_the_servers_names() -> None:
    planned = experiment_of(vary({"settings": {"Work_Mem": "4MB"}}, {"settings": {"sort_mem": "4096"}}))
    assert [variant.changed for variant in planned.variants] == [{"work_mem": "4MB"}, {"work_mem": "4096"}]


def test_settings_that_no_server_of_this_version_has() -> None:
    with pytest.raises(SpecError, match="PostgreSQL 18 has no setting commit_dely") as caught:
        experiment_of(of_setting("commit_dely", 0, 5))
    assert "commit_delay" in caught.value.hint
    with pytest.raises(SpecError, match="PostgreSQL 15 has no setting io_method") as caught:
        experiment_of(of_setting("io_method", "sync", "worker"), 15)
    assert caught.value.hint == "PostgreSQL 18 has it: choose the server with --server"
    with pytest.raises(SpecError) as caught:
        experiment_of(of_setting("client", 1, 8))
    assert "vary it with `--clients`, or in a sweep with `clients=`" in caught.value.hint
    with pytest.raises(SpecError) as caught:
        experiment_of(of_setting("load_host", 1, 2))
    assert caught.value.hint == "load_hosts is not a server setting: vary it in a sweep with `load_hosts=`"
    with pytest.raises(SpecError) as caught:
        experiment_of(of_setting("checksum", "on", "off"))
    assert "vary it with `--initdb checksums=`, or in a sweep with `checksums=`" in caught.value.hint
    # What another version has is for that server to say.
    experiment_of(vary({"server": 15}, {"server": 18, "settings": {"io_method": "worker"}}), 15)


@pytest.mark.parametrize("name", ["data_checksums", "wal_segment_size", "block_size"])
def test_what_nothing_can_vary(name: str) -> None:
    with pytest.raises(SpecError, match=f"{name} cannot be varied"):
        experiment_of(of_setting(name, 1, 2))


# -- Design ----------------------------------------------------------------------------------------------------------


@each_row(
    [
        ("commit_delay", (0, 50), "simple", "switchback", "commit_delay: a running server takes it at once"),
        ("synchronous_commit", ("on", "off", "local"), "prepared", "switchback", "takes it at once"),
        ("shared_buffers", ("128MB", "1GB"), "simple", "paired", "shared_buffers takes a restart"),
        ("work_mem", ("4MB", "64MB"), "simple", "switchback", "takes it at once"),
        ("work_mem", ("4MB", "64MB"), "extended", "switchback", "takes it at once"),
        ("work_mem", ("4MB", "64MB"), "prepared", "paired", "prepared ones keep their plans"),
        ("jit", ("on", "off"), "simple", "switchback", "takes it at once"),
        ("jit", ("on", "off"), "prepared", "paired", "prepared ones keep their plans"),
        ("random_page_cost", (4, 1.1), "prepared", "paired", "prepared ones keep their plans"),
        ("max_wal_size", ("1GB", "8GB"), "simple", "paired", "acts over longer than a slice"),
        ("checkpoint_timeout", ("5min", "30min"), "simple", "paired", "acts over longer than a slice"),
        ("full_page_writes", ("on", "off"), "simple", "paired", "acts over longer than a slice"),
        ("wal_compression", ("off", "pglz"), "simple", "switchback", "takes it at once"),
        ("fsync", (True, False), "simple", "switchback", "takes it at once"),
        ("wal_sync_method", ("fdatasync", "open_datasync"), "simple", "switchback", "takes it at once"),
        ("autovacuum", ("on", "off"), "simple", "paired", "acts over longer than a slice"),
        ("wal_buffers", ("1MB", "16MB"), "simple", "paired", "takes a restart"),
        ("log_connections", ("on", "off"), "simple", "paired", "takes new sessions"),
        ("vm.dirty_bytes", (10_000_000, 100_000_000), "simple", "paired", "acts over longer than a slice"),
        ("vm.nr_hugepages", (0, 600), "simple", "paired", "restart"),
        ("pg_stat_statements.track", ("none", "all"), "simple", "paired", "belongs to an extension"),
        (
            "mode",
            ("simple", "prepared"),
            "simple",
            "live",
            "the loads differ only in mode, and can take turns on one server",
        ),
        ("server", (15, 18), "simple", "paired", "server cannot change under a running load"),
        ("clients", (1, 8), "simple", "live", "the loads differ only in clients, and can take turns on one server"),
        ("threads", (1, 2), "simple", "live", "the loads differ only in threads, and can take turns on one server"),
        ("scale", (1, 2), "simple", "paired", "scale cannot change under a running load"),
    ]
)
def test_the_design_follows_from_what_a_change_costs(
    name: str, values: tuple[object, ...], mode: str, design: str, reason: str
) -> None:
    load = [{"name": "tpcb-like", "mode": mode}]
    planned = experiment_of(study(workload=load, sweep=[{"name": name, "levels": list(values)}]))
    assert planned.design.value == design
    assert reason in planned.reason


@each_row(
    [
        # Settings, what sessions may not choose, the design that was asked for: the design, and why.
        ({"commit_delay": (0, 9)}, (), None, "paired", "each session"),
        ({"commit_delay": (0, 9)}, ("commit_delay",), None, "switchback", "sessions of this role cannot choose"),
        ({"Commit_Delay": (0, 9)}, ("commit_delay",), "paired", "paired", "as asked for"),
        ({"work_mem": ("4MB", "8MB")}, ("commit_delay",), None, "paired", "each session"),
        ({"work_mem": ("4MB", "8MB")}, (), "switchback", "switchback", "as asked for"),
        ({"max_wal_size": ("1GB", "2GB")}, ("max_wal_size",), None, "paired", "acts over longer than a slice"),
        ({"max_wal_size": ("1GB", "2GB")}, ("max_wal_size",), "switchback", "switchback", "as asked for, although"),
        ({"work_mem": ("4MB", "8MB")}, ("commit_delay",), "live", "live", "as asked for"),
        ({"maintenance_work_mem": ("64MB", "1GB")}, (), "live", "live", "as asked for, although"),
    ]
)
def test_the_design_on_a_given_server(
    settings: dict[str, tuple[object, ...]], withheld: tuple[str, ...], asked: str | None, design: str, reason: str
) -> None:
    ((name, values),) = settings.items()
    given_server: dict[str, object] = {"server": {"kind": "given", "dsn": ""}}
    wishes = {} if asked is None else {"design": asked}
    planned = plan_experiment(
        of_setting(name, *values, experiment=wishes, **given_server), version_major=18, withheld=frozenset(withheld)
    )
    assert planned is not None
    assert (planned.design.value, reason in planned.reason) == (design, True), planned.reason


@each_row(
    [
        ("shared_buffers", ("1GB", "2GB"), None, "takes a restart, which pgdyno does not do"),
        ("clients", (1, 2), "switchback", "cannot alternate under one load"),
        ("scale", (1, 2), None, "differ in settings, clients, threads, load hosts or modes"),
    ]
)
def test_what_a_given_server_cannot_compare(
    name: str, values: tuple[object, ...], asked: str | None, words: str
) -> None:
    wishes = {} if asked is None else {"design": asked}
    sweep = [{"name": name, "levels": list(values)}]
    with pytest.raises(SpecError, match=words):
        experiment_of(study(sweep=sweep, server={"kind": "given", "dsn": ""}, experiment=wishes))


def test_what_is_impossible_is_said_before_what_is_unwise() -> None:
    settings = ({"autovacuum": "on", "wal_buffers": "1MB"}, {"autovacuum": "off", "wal_buffers": "2MB"})
    asked = vary(*({"settings": each} for each in settings), experiment={"design": "switchback"})
    with pytest.raises(SpecError, match="cannot alternate under one load") as caught:
        experiment_of(asked)
    assert caught.value.detail == "wal_buffers takes a restart"


def test_what_is_asked_for_is_done_and_its_danger_said() -> None:
    asked = of_setting("max_wal_size", "1GB", "2GB", experiment={"design": "switchback"})
    assert experiment_of(asked).design is DesignKind.SWITCHBACK
    assert "although max_wal_size acts over longer than a slice" in experiment_of(asked).reason
    asked = of_setting("commit_delay", 0, 5, experiment={"design": "paired"})
    assert (experiment_of(asked).design, experiment_of(asked).reason) == (DesignKind.PAIRED, "as asked for")


def test_prepared_statements_of_the_variants_own_mode_keep_their_plans_too() -> None:
    settings = ({"work_mem": "4MB"}, {"work_mem": "64MB"})
    assert experiment_of(vary(*({"mode": "prepared", "settings": s} for s in settings))).design is DesignKind.PAIRED
    load = [{"name": "tpcb-like", "mode": "prepared"}]
    asked = vary(*({"mode": "simple", "settings": s} for s in settings), workload=load)
    assert experiment_of(asked).design is DesignKind.SWITCHBACK


def test_what_all_variants_share_hinders_nothing() -> None:
    shared = {"sysctl": {"vm.swappiness": 10}, "mode": "prepared", "clients": 3, "scale": 5, "server": 15}
    planned = experiment_of(vary(*({**shared, "settings": {"commit_delay": d}} for d in (0, 5))), 15)
    assert planned.design is DesignKind.SWITCHBACK
    assert (changed_settings(planned.variants), changed_sysctls(planned.variants)) == (("commit_delay",), ())


def test_a_variant_that_says_what_the_study_says_differs_in_nothing() -> None:
    load = [{"name": "tpcb-like", "mode": "prepared", "clients": 4, "threads": 2}]
    same = {"mode": "prepared", "clients": 4, "threads": 2, "scale": 7}
    planned = experiment_of(vary({"name": "a"}, {"name": "b", **same}, workload=load, data={"scale": 7}))
    assert planned.design is DesignKind.SWITCHBACK
    assert planned.reason == "the variants have the same settings: an A/A test under one load"
    planned = experiment_of(vary({"name": "a"}, {"name": "b", **same, "clients": 5}, workload=load, data={"scale": 7}))
    assert planned.design is DesignKind.PAIRED


# -- Order -----------------------------------------------------------------------------------------------------------


@given(size=st.integers(2, 12), seed=st.integers(0, 999))
def test_in_as_many_rounds_as_slots_each_slot_takes_each_place_once(size: int, seed: int) -> None:
    slots = [f"arm {number}" for number in range(size)]
    orders = draw_orders(slots, random.Random(seed))
    assert all(sorted(order) == sorted(slots) for order in orders)
    assert all(sorted(place) == sorted(slots) for place in zip(*orders, strict=True))


def find_false_ratio(draw_square: Callable[[list[str], random.Random], list[list[str]]]) -> float:
    """How often eight variants like the reference hold a difference, on a machine that slows from trial to trial by twice the noise."""
    draw, noise, others = random.Random(7), np.random.default_rng(7), "BCDEFGHI"

    def draw_pairs() -> list[list[float]]:
        at, of = itertools.count(), []
        for order in draw_square(["A", "A", *others], draw)[:5]:
            levels: dict[str, list[float]] = {name: [] for name in order}
            for name in order:
                levels[name].append(noise.normal(0, 0.05) - 0.1 * next(at))
            of.append([levels[name][0] - sum(levels["A"]) / 2 for name in others])
        return [list(pairs) for pairs in zip(*of, strict=True)]

    looks = compute_states(np.array([draw_pairs() for _ in range(400)]), beta=0.025, size=len(others), looked=5)
    family = FamilyState(*(np.moveaxis(part, 1, 2) for part in looks))
    outcomes = judge_family(family, beta=0.025, delta_ratio=1e-9).outcome
    return float((outcomes != RatioOutcome.OPEN).any(axis=(1, 2)).mean())


def test_a_drift_is_seldom_a_difference_in_fewer_rounds_than_a_square_has() -> None:
    def draw_rotated(slots: list[str], draw: random.Random) -> list[list[str]]:
        # Also a Latin square, but whoever follows the reference in one round follows it in nearly all.
        first = draw.sample(slots, len(slots))
        return draw.sample([first[n:] + first[:n] for n in range(len(first))], len(first))

    assert find_false_ratio(draw_orders) < 0.05 < find_false_ratio(draw_rotated)


def test_no_variant_is_more_often_at_a_place_or_after_another_than_by_chance() -> None:
    # An end after the first round, and a carry-over from the one before, must favour nobody.
    draw = random.Random(3)
    first: Counter[tuple[int, str]] = Counter()
    follows: Counter[tuple[str, str]] = Counter()
    for _ in range(4000):
        order = draw_orders("abcd", draw)[-1]
        first.update(enumerate(order))
        follows.update(itertools.pairwise(order))
    # 4,000 rounds: 1,000 of each place and of each ordered pair; five standard deviations are 137.
    assert all(abs(count - 1000) < 137 for count in (*first.values(), *follows.values()))
    assert (len(first), len(follows)) == (16, 12)


def test_rounds_hold_the_reference_twice_and_every_other_variant_once_on_each_workload() -> None:
    loads = [{"name": "tpcb-like"}, {"name": "select-only"}]
    plan = plan_study(of_setting("shared_buffers", 1000, 2000, 4000, workload=loads), MACHINE)
    rounds = {t.round for t in plan.trials}
    for number, load in itertools.product(rounds, ("tpcb-like", "select-only")):
        variants = Counter(t.variants for t in plan.trials if (t.round, t.workload) == (number, load))
        assert variants == {("shared_buffers=1000",): 2, ("shared_buffers=2000",): 1, ("shared_buffers=4000",): 1}
    places = Counter(
        (place, trial.variants)
        for number, load in itertools.product(sorted(rounds)[:12], ("tpcb-like", "select-only"))
        for place, trial in enumerate(t for t in plan.trials if (t.round, t.workload) == (number, load))
    )
    assert set(places.values()) == {6, 12}
    assert [t.number for t in plan.trials] == list(range(1, len(plan.trials) + 1))


def test_blocks_hold_all_variants_and_have_one_length() -> None:
    loads = [{"name": "tpcb-like"}, {"name": "select-only"}]
    plan = plan_study(of_setting("commit_delay", 0, 5, workload=loads), MACHINE)
    assert {t.variants for t in plan.trials} == {("commit_delay=0", "commit_delay=5")}
    assert len({t.duration_s for t in plan.trials}) == 1
    assert set(Counter((t.round, t.workload) for t in plan.trials).values()) == {1}


# -- Budget ----------------------------------------------------------------------------------------------------------


@given(variants=st.integers(2, 201), workloads=st.integers(1, 9), alpha=st.floats(0.0001, 0.5))
def test_the_fewest_rounds_are_those_of_the_evidence(variants: int, workloads: int, alpha: float) -> None:
    base = experiment_of(of_setting("commit_delay", 0, 5))
    planned = msgspec.structs.replace(base, variants=(base.variants[0],) * variants, alpha=alpha)
    level = alpha / ((variants - 1) * workloads)
    before = msgspec.structs.replace(planned, final_look=False)
    assert count_least_rounds(before, workloads) == least_pairs(level)
    least = count_least_rounds(planned, workloads)
    assert least <= least_pairs(level / 2)
    # Either procedure can decide then: the e-process at all, or the t-test within three standard deviations of a pair.
    half = float(stats.t.isf(level / 4, least - 1)) / math.sqrt(least)
    assert least == least_pairs(level / 2) or half <= 3.0
    assert least >= 4 or least == least_pairs(level / 2)


def test_the_final_look_leaves_the_fewest_rounds_of_usual_plans_as_they_were() -> None:
    planned = experiment_of(of_setting("commit_delay", 0, 5))
    assert planned.final_look
    for questions in (1, 2, 3, 4, 6, 21):
        of = msgspec.structs.replace(planned, variants=(planned.variants[0],) * (questions + 1))
        assert count_least_rounds(of, 1) == least_pairs(0.05 / questions)


def test_a_sweep_over_clients_has_no_final_look() -> None:
    assert not experiment_of(study(sweep=[{"name": "clients", "levels": [1, 2, 4]}])).final_look


def test_the_pilot_is_as_long_as_the_plan_thinks() -> None:
    assert pytest.approx(PILOT_SLICES * PILOT_SLICE_S) == PILOT_S


budgets = st.fixed_dictionaries(
    {
        "setting": st.sampled_from(["commit_delay", "wal_buffers"]),
        "arms": st.integers(2, 40),
        "workloads": st.integers(1, 3),
        "scale": st.sampled_from([1, 100, 5000, 40_000]),
        "duration_s": st.sampled_from([1, 10, 600]),
        "slice": st.sampled_from([None, "200ms", "330ms", "10s"]),
        "confidence": st.sampled_from(["50%", "95%", "99.99%"]),
        "is_loaded": st.booleans(),
    }
)


def plan_budget(case: dict[str, object], minutes: float | None) -> Plan:
    experiment = {"confidence": case["confidence"]}
    experiment |= {} if minutes is None else {"minutes": minutes}
    experiment |= {} if case["slice"] is None else {"slice": case["slice"]}
    asked = of_setting(
        str(case["setting"]),
        *range(100, 100 + int(str(case["arms"]))),
        workload=[{"name": n} for n in ("tpcb-like", "select-only", "simple-update")[: int(str(case["workloads"]))]],
        data={"scale": case["scale"]},
        trials={"duration": f"{case['duration_s']}s"},
        experiment=experiment,
    )
    scales = frozenset({int(str(case["scale"]))}) if case["is_loaded"] else frozenset()
    return plan_study(asked, msgspec.structs.replace(LARGE, loaded_scales=scales))


def check_plan(case: dict[str, object], plan: Plan) -> None:
    """It keeps to its budget, and can decide something on each workload."""
    assert plan.experiment is not None
    assert plan.experiment.budget_s is not None
    assert plan.predicted_s <= plan.experiment.budget_s + 1e-6
    least = find_least_rounds(plan.experiment, plan.workloads)
    slots = len(plan.experiment.variants) + 1
    for workload in plan.workloads:
        trials = [t for t in plan.trials if t.workload == workload.name]
        if plan.experiment.design is DesignKind.PAIRED:
            assert len(trials) >= least * slots
            continue
        # A round that does not fit in what is left of a block is not begun.
        pilots = [18.0 if case["slice"] is None and number == 0 else 0.0 for number in range(len(trials))]
        round_s = slots * (plan.experiment.slice_s or 1.0)
        assert sum((t.duration_s - p + 1e-6) // round_s for t, p in zip(trials, pilots, strict=True)) >= least
        longest = slots * (plan.experiment.slice_s or 10.0)
        assert max(t.duration_s for t in trials) >= longest or plan.choices[-1].name != "minutes"


def find_refusal(case: dict[str, object], minutes: float | None) -> SpecError | None:
    try:
        check_plan(case, plan_budget(case, minutes))
    except SpecError as error:
        return error
    return None


@given(case=budgets)
def test_the_default_budget_plans_or_is_the_most_of_a_study(case: dict[str, object]) -> None:
    error = find_refusal(case, None)
    assert error is None or error.fact.startswith(f"{MOST_MINUTES} minutes are too few")


@given(case=budgets, minutes=st.floats(0.5, 300))
def test_a_budget_plans_or_says_how_many_minutes_would(case: dict[str, object], minutes: float) -> None:
    error = find_refusal(case, minutes)
    if error is None:
        return
    assert error.fact.startswith(f"{minutes:g} minute")
    assert "too few for a verdict" in error.fact
    if "--minutes" not in error.hint:
        assert find_refusal(case, 20160)
        return
    suggested = int(error.hint.split("--minutes ")[1].split(",")[0])
    assert suggested > minutes
    assert find_refusal(case, suggested) is None


@given(case=budgets, minutes=st.floats(0.5, 200), more=st.floats(0, 100))
def test_more_minutes_never_plan_less(case: dict[str, object], minutes: float, more: float) -> None:
    def load_s(plan: Plan) -> float:
        return sum(t.duration_s for t in plan.trials)

    try:
        little = plan_budget(case, minutes)
    except SpecError:
        return
    # Lengths of blocks are whole seconds.
    assert load_s(plan_budget(case, minutes + more)) >= load_s(little) - len(little.trials)


def test_trying_the_variants_is_part_of_the_time() -> None:
    few = plan_study(of_setting("commit_delay", 0, 5, experiment={"minutes": 30}), MACHINE)
    many = plan_study(of_setting("commit_delay", *range(100), experiment={"minutes": 300}), MACHINE)
    check = [next(s.predicted_s for s in plan.steps if s.kind is StepKind.CHECK) for plan in (few, many)]
    assert check[1] - check[0] == 98


# -- Loads -----------------------------------------------------------------------------------------------------------


def test_an_variants_clients_must_fit_into_its_own_servers_connections() -> None:
    with pytest.raises(SpecError, match="workload tpcb-like of clients=128: 128 clients do not fit") as caught:
        plan_study(study(sweep=[{"name": "clients", "levels": [1, 64, 128]}]), MACHINE)
    assert "max_connections = 138" in caught.value.hint
    sweep = [{"name": "clients", "levels": [1, 64, 128]}]
    plan_study(study(sweep=sweep, server={"settings": {"Max_Connections": "138"}}), MACHINE)
    plan_study(vary({"clients": 8}, {"clients": 200, "settings": {"max_connections": 205}}), MACHINE)
    with pytest.raises(SpecError, match="8 clients do not fit into max_connections = 12"):
        plan_study(of_setting("max_connections", 100, 12, workload=[{"name": "tpcb-like", "clients": 8}]), MACHINE)
    with pytest.raises(SpecError, match="max_connections = True is not a whole number"):
        plan_study(of_setting("max_connections", 100, True), MACHINE)
    # Left open, clients are as many as all variants let in.
    plan = plan_study(of_setting("max_connections", 100, 12), MACHINE)
    assert plan.workloads[0].clients == 7


def test_clients_are_not_chosen_where_every_variant_says_its_own() -> None:
    plan = plan_study(study(sweep=[{"name": "clients", "levels": [3, 40]}]), MACHINE)
    assert not [choice for choice in plan.choices if choice.name.startswith("clients")]
    assert plan.scale >= 80
    loads = {plan.find_load(trial).clients: plan.find_load(trial).threads for trial in plan.trials}
    assert loads == {3: 2, 40: 2}


def test_threads_left_open_follow_each_variants_clients() -> None:
    plan = plan_study(
        study(workload=[{"name": "tpcb-like", "clients": 1}], sweep=[{"name": "clients", "levels": [1, 2, 8]}]), MACHINE
    )
    assert {plan.find_load(t).clients: plan.find_load(t).threads for t in plan.trials} == {1: 1, 2: 2, 8: 2}


def test_threads_of_the_workload_are_for_the_largest_variant() -> None:
    load = [{"name": "tpcb-like", "threads": 16}]
    plan = plan_study(study(workload=load, sweep=[{"name": "clients", "levels": [1, 64]}]), MACHINE)
    assert {plan.find_load(t).clients: plan.find_load(t).threads for t in plan.trials} == {1: 1, 64: 16}
    with pytest.raises(SpecError, match="16 threads for 8 clients"):
        plan_study(study(workload=load, sweep=[{"name": "clients", "levels": [1, 8]}]), MACHINE)


def test_threads_under_test_are_never_silently_fewer() -> None:
    load = [{"name": "tpcb-like", "clients": 4}]
    with pytest.raises(SpecError, match="workload tpcb-like of threads=8: 8 threads for 4 clients"):
        plan_study(study(workload=load, sweep=[{"name": "threads", "levels": [1, 4, 8]}]), MACHINE)
    with pytest.raises(SpecError, match="clients=1, threads=2: 2 threads for 1 clients"):
        plan_study(vary({"clients": 2, "threads": 2}, {"clients": 1, "threads": 2}), MACHINE)


# -- Data ------------------------------------------------------------------------------------------------------------


def load_s(plan: Plan) -> float:
    return next(step.predicted_s for step in plan.steps if step.kind is StepKind.LOAD)


def test_every_server_and_scale_is_loaded() -> None:
    one = load_s(plan_study(of_setting("wal_buffers", 100, 200, data={"scale": 50}), LARGE))
    two = plan_study(vary({"server": 15}, {"server": 18}, data={"scale": 50}), LARGE)
    assert load_s(two) == 2 * one
    loaded = msgspec.structs.replace(LARGE, loaded_scales=frozenset({50}))
    # Of the other server's data nothing is known.
    assert load_s(plan_study(vary({"server": 15}, {"server": 18}, data={"scale": 50}), loaded)) == one


def test_a_sweep_of_scales_needs_room_for_all_of_them() -> None:
    asked = study(sweep=[{"name": "scale", "levels": [1000, 2000, 2001]}])
    with pytest.raises(HostError, match="scale 1000, 2000, 2001 does not fit"):
        plan_study(asked, MACHINE)
    plan = plan_study(asked, LARGE)
    assert plan.scale == 1000
    assert not [choice for choice in plan.choices if choice.name == "scale"]

"""Rounds of turns on real servers: one load at a time on one server, and whatever goes wrong is told and cleared up."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.conduct.live_rounds import is_of_all
from pgdyno.plan.experiment import Variant
from pgdyno.record.generators.turns import find_turn_folders
from pgdyno.record.pgbench.output import Progress, parse_summary
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed
from pgdyno.record.transactions.slices import Slice, SlicePhase
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus
from pgdyno.run.cluster.home import Home
from pgdyno.run.live_member import LiveMember, OtherMemberFailedError
from pgdyno.run.load import watch as load_watch
from pgdyno.run.trial import TrialOutcome
from pgdyno.run.turn_round import run_turn_round
from pgdyno.spec.table import QueryMode, SettingValue
from tests.homes import some_home
from tests.run.rounds import (
    NAPPING,
    assert_nothing_is_left,
    count_cycles,
    find_log_readers,
    kill_log_readers,
    kill_server,
    make_members,
    own_shared_memory,
    pgbench_of,
    postmaster_of,
    read_members,
    shared_memory,
    variant,
)
from tests.run.trees import find_tree
from tests.sysctls import machine_settings, needs_proc_sys, read_sysctl

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_helpers")]
# So long that the first turn ends only by what a test does to it.
FOR_EVER_S = 600.0
# On a busy machine a client that is connected begins its first transaction so much later: less than connecting takes below.
LATE_S = 1.0


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def load(
    name: str,
    clients: int,
    *,
    mode: QueryMode | None = None,
    sysctl: dict[str, str] | None = None,
    **set_: SettingValue,
) -> Variant:
    return msgspec.structs.replace(variant(name, sysctl, **set_), clients=clients, mode=mode)


ONE_OR_TWO = (load("one", 1), load("two", 2))


def share_server(members: Sequence[LiveMember]) -> list[LiveMember]:
    first = members[0].stage
    shared = (
        msgspec.structs.replace(member.stage, server=first.server, generator=first.generator) for member in members
    )
    return [msgspec.structs.replace(member, stage=stage) for member, stage in zip(members, shared, strict=True)]


def make_turns(
    home: Home,
    folder: Path,
    variants: Sequence[Variant] = ONE_OR_TWO,
    *,
    names: Sequence[str] = (),
    major: int = 18,
    duration_s: float = FOR_EVER_S,
    warm_up: str = "0s",
    script: str | None = NAPPING,
) -> list[LiveMember]:
    names = names or [one.name for one in variants]
    options = {"major": major, "duration_s": duration_s}
    return share_server(make_members(home, folder, names, variants, warm_up=warm_up, script=script, **options))


def run_round(
    members: Sequence[LiveMember],
    *,
    slice_s: float | None = FOR_EVER_S,
    on_activity: Callable[[str], None] = lambda _: None,
    act: Callable[[], object] = lambda: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[TrialOutcome, ...]:
    """Run a round, and act once within its first turn, while its load runs."""
    has_acted: list[bool] = []

    def see(_: Progress) -> None:
        if not has_acted:
            has_acted.append(True)
            act()

    return run_turn_round(
        members, slice_s=slice_s, seed=1, on_activity=on_activity, on_load=see, should_stop=should_stop
    )


def split_by_turn(member: LiveMember, data: TrialData) -> Iterator[tuple[Slice, dict[int, tuple[float, float]]]]:
    """When each client's first transaction of each turn began and its last one ended, on CLOCK_MONOTONIC."""
    batches = list(read_packed(member.folder / TRANSACTIONS_DIR))
    client, stamp_us, latency_us = (
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("client", "stamp_us", "latency_us")
    )
    ends_s = stamp_us / 1e6 - data.record.clock_offset_s
    begins_s = ends_s - latency_us / 1e6
    borders = [*(one.begin_monotonic_s for one in data.slices[1:]), np.inf]
    for one, until_s in zip(data.slices, borders, strict=True):
        inside = (begins_s >= one.begin_monotonic_s) & (begins_s < until_s)
        clients = [inside & (client == number) for number in np.unique(client[inside])]
        yield one, {number: (begins_s[of].min(), ends_s[of].max()) for number, of in enumerate(clients)}


@pytest.mark.parametrize(("major", "script"), [(18, None), (15, NAPPING)])
def test_each_load_runs_in_its_own_turns_alone(home: Home, tmp_path: Path, major: int, script: str | None) -> None:
    variants = (load("a", 1, mode=QueryMode.SIMPLE), load("b", 3, mode=QueryMode.PREPARED))
    members = make_turns(
        home, tmp_path, variants, names="aab", major=major, duration_s=6.6, warm_up="1s", script=script
    )
    readers: list[int] = []
    outcomes = run_round(members, slice_s=2.2, act=lambda: readers.extend(find_log_readers()))
    assert len(readers) == 1
    data = read_members(members, outcomes)
    turns = sorted((one for each in data for one in each.slices), key=lambda one: one.begin_monotonic_s)
    # All count for equally long, whatever their clients take to connect; that takes at most half of a turn.
    lengths = [(each.record.slice_s or 0.0, each.record.washout_s or 0.0) for each in data]
    mean_s = max(2.2, 2 * statistics.fmean(washout_s for _, washout_s in lengths))
    assert statistics.fmean(slice_s for slice_s, _ in lengths) == pytest.approx(mean_s)
    counted_s = [slice_s - washout_s for slice_s, washout_s in lengths]
    assert counted_s == pytest.approx([counted_s[0]] * 3)
    # Three, unless connecting takes long on a busy machine.
    cycles = max(1, int(6.6 / mean_s + 1e-9))
    assert [(one.phase, one.round, one.position) for one in turns] == [
        (SlicePhase.ROUND, number, position) for number in range(1, cycles + 1) for position in range(3)
    ]
    for before, after in itertools.pairwise(turns):
        assert before.begin_monotonic_s < before.settled_monotonic_s < before.end_monotonic_s
        assert before.end_monotonic_s <= after.begin_monotonic_s
    next_begins_s = {one.begin_monotonic_s: after.begin_monotonic_s for one, after in itertools.pairwise(turns)}
    for number, (member, each) in enumerate(zip(members, data, strict=True)):
        assert {one.variant for one in each.slices} == {"aab"[number]}
        # Over as many cycles as there are members, each has each position once.
        assert cycles != 3 or sorted(one.position for one in each.slices) == [0, 1, 2]
        assert len(each.slices) == cycles
        for turn, clients in split_by_turn(member, each):
            assert turn.end_monotonic_s - turn.begin_monotonic_s >= (each.record.slice_s or np.inf)
            assert turn.settled_monotonic_s - turn.begin_monotonic_s >= (each.record.washout_s or np.inf)
            assert turn.counts["wal_bytes"] is None
            assert len(clients) == (1, 1, 3)[number]
            # A stamp is read by another clock, which is microseconds off.
            until_s = next_begins_s.get(turn.begin_monotonic_s, np.inf) + 0.002
            assert all(begin_s <= turn.settled_monotonic_s + LATE_S for begin_s, _ in clients.values())
            assert all(end_s <= until_s for _, end_s in clients.values())
        assert_is_one_load(member, each, turns=cycles)
        assert {one.variant for one in each.record.plans or ()} == {"aab"[number]}
        assert all(one.ok_count > 0 for one in each.slice_loads)
    # Machine counters are None only where connecting has taken longer than in the warm-up.
    assert any(turn.counts["cpu_s"] for turn in turns)
    # One server has seen all of it.
    log = (members[0].folder / "server.log").read_text()
    assert log.count("database system is ready to accept connections") == 1
    gaps = [{gap.source: gap.reason for gap in each.gaps} for each in data]
    usual = {"os sampler", "server sampler", "counters of the whole server"}
    assert [set(each) - usual for each in gaps] == [set(), {"server log"}, {"server log"}]
    assert gaps[1]["server log"] == gaps[2]["server log"] == "the server's log of the round lies with trial 1"
    assert_nothing_is_left(home)


def assert_is_one_load(member: LiveMember, data: TrialData, *, turns: int) -> None:
    """What pgbench printed and logged in all turns is read as that of one load."""
    folders = find_turn_folders(member.folder)
    assert [folder.name for folder in folders] == ["001", "002", "003"][:turns]
    assert all((folder / "pgbench.json").exists() for folder in folders)
    printed = [parse_summary((folder / "pgbench.stdout").read_text()) for folder in folders]
    assert data.pgbench is not None
    assert data.pgbench.is_complete
    assert data.pgbench.transaction_count == sum(each.transaction_count or 0 for each in printed)
    assert {each.client_count for each in printed} == {data.pgbench.client_count}
    assert data.warm_up is not None
    assert data.transactions is not None
    assert data.transactions.ok_count == data.pgbench.transaction_count
    assert not list(member.folder.glob("pgbench.*"))


def test_a_turn_is_two_seconds_or_longer_where_connecting_takes_long(home: Home, tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    members = make_turns(home, tmp_path / "short", duration_s=2.0)
    short = read_members(members, run_round(members, slice_s=None))
    assert [(each.record.slice_s, len(each.slices)) for each in short] == [(2.0, 1)] * 2
    (tmp_path / "long").mkdir()
    slow: dict[str, SettingValue] = {"pre_auth_delay": 1}
    variants = (load("one", 1, **slow), load("two", 2, **slow))
    # pgbench's time counts from its begin, so that a shorter warm-up would end before it tells how long connecting took.
    members = make_turns(home, tmp_path / "long", variants, duration_s=2.0, warm_up="4s")
    long = read_members(members, run_round(members, slice_s=None))
    lengths = [(each.record.slice_s or 0.0, each.record.washout_s or 0.0, len(each.slices)) for each in long]
    assert all(washout_s > 2.0 and count == 1 for _, washout_s, count in lengths)
    assert sum(each[0] for each in lengths) == pytest.approx(2 * sum(each[1] for each in lengths))


@pytest.mark.parametrize("sleep_s", [0.5, 3.0])
def test_the_rate_of_long_transactions_is_right(home: Home, tmp_path: Path, sleep_s: float) -> None:
    members = make_turns(home, tmp_path, duration_s=4.0, warm_up="1s", script=f"SELECT pg_sleep({sleep_s});\n")
    for each in read_members(members, run_round(members, slice_s=None)):
        (variant,) = each.record.planned.variants
        clients = members[0].stage.plan.find_load(each.record.planned).clients
        counted_s = sum(one.counted_s for one in each.slices)
        rate = sum(load.ok_count for load in each.slice_loads) / counted_s
        # A sleep takes what it says, and what a busy machine adds is in the latencies.
        latency_s = float(np.concatenate([load.latency_us for load in each.slice_loads]).mean()) / 1e6
        assert latency_s >= sleep_s
        assert rate == pytest.approx(clients / latency_s, rel=0.1), variant


def test_the_round_stops_between_cycles_when_it_is_asked_to(home: Home, tmp_path: Path) -> None:
    members = make_turns(home, tmp_path)
    # A second is too short for a turn.
    outcomes = run_round(members, slice_s=1.0, should_stop=lambda: min(count_cycles(members)) >= 2)
    data = read_members(members, outcomes)
    assert [(each.record.slice_s, len(each.slices)) for each in data] == [(2.0, 2)] * 2
    assert_nothing_is_left(home)


@needs_proc_sys
def test_kernel_settings_are_in_force_and_put_back(home: Home, tmp_path: Path) -> None:
    with machine_settings("vm.swappiness"):
        before = int(read_sysctl("vm.swappiness"))
        asked = {"vm.swappiness": str(before + 1)}
        members = make_turns(home, tmp_path, [load("one", 1, sysctl=asked), load("two", 2, sysctl=asked)], duration_s=1)
        seen: list[int] = []
        read_members(
            members, run_round(members, slice_s=None, act=lambda: seen.append(int(read_sysctl("vm.swappiness"))))
        )
        assert seen == [before + 1]
        assert int(read_sysctl("vm.swappiness")) == before


def check_failed(members: Sequence[LiveMember], outcomes: Sequence[TrialOutcome], words: str) -> LiveMember:
    """One member has failed with these words, and the others because of it; return that one."""
    assert [outcome.record.status for outcome in outcomes] == [TrialStatus.FAILED] * len(members)
    errors = [outcome.error for outcome in outcomes]
    others = [error for error in errors if isinstance(error, OtherMemberFailedError)]
    (failed,) = (
        member for member, error in zip(members, errors, strict=True) if error is not None and error.fact == words
    )
    assert len(others) == len(members) - 1
    for other in others:
        assert other.fact == f"the round ended because {failed.trial.variants[0]} failed"
        assert words in other.detail
    return failed


@pytest.mark.parametrize(
    ("kill", "words"),
    [
        (lambda member: os.kill(postmaster_of(member), signal.SIGKILL), "the server was killed by SIGKILL"),
        (lambda member: os.kill(pgbench_of(member), signal.SIGKILL), "pgbench failed: it was ended by SIGKILL"),
        (lambda member: os.kill(pgbench_of(member), signal.SIGALRM), "pgbench ended before its time"),
    ],
)
def test_what_fails_within_a_turn_ends_the_round(
    home: Home, tmp_path: Path, kill: Callable[[LiveMember], None], words: str
) -> None:
    members = make_turns(home, tmp_path)
    running, memory = [""], [""]

    def act() -> None:
        running[0] = Path(f"/proc/{pgbench_of(members[0])}/cmdline").read_text()
        memory[0] = own_shared_memory(members[0])
        kill(members[0])

    failed = check_failed(members, run_round(members, act=act), words)
    # It is the one whose turn it was.
    assert f"--client={failed.stage.plan.find_load(failed.trial).clients}\0" in running[0]
    assert memory[0] not in shared_memory()
    assert_nothing_is_left(home)


def test_a_dead_log_reader_fails_every_load_and_is_the_fault_of_none(home: Home, tmp_path: Path) -> None:
    members = make_turns(home, tmp_path)
    outcomes = run_round(members, act=kill_log_readers)
    # An error of their own each would be that of the first variant.
    assert is_of_all(outcomes)
    for outcome in outcomes:
        assert outcome.error is not None
        assert outcome.error.fact == "pgbench's log of transactions is lost, from which slices are counted"
    assert_nothing_is_left(home)


def test_a_server_that_died_with_the_log_reader_after_all_turns_is_the_fault_of_none(
    home: Home, tmp_path: Path
) -> None:
    members = make_turns(home, tmp_path, duration_s=2.0)

    def kill() -> bool:
        kill_log_readers()
        kill_server(members[0])
        return True

    outcomes = run_round(members, slice_s=None, should_stop=kill)
    assert is_of_all(outcomes)
    assert outcomes[0].error is not None
    assert outcomes[0].error.fact == "the server was killed by SIGKILL"
    assert_nothing_is_left(home)


def test_a_server_that_hangs_is_found_within_a_turn(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_watch, "SILENCE_S", 3.0)
    monkeypatch.setattr(load_watch, "ANSWER_PATIENCE_S", 2)
    members = make_turns(home, tmp_path)

    def hang() -> None:
        for pid in find_tree(postmaster_of(members[0])):
            # A session that begins or ends just now may be gone.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    check_failed(members, run_round(members, act=hang), "the server does not answer")
    assert_nothing_is_left(home)


def test_more_clients_than_the_server_takes_are_the_failure_of_their_load(home: Home, tmp_path: Path) -> None:
    few: dict[str, SettingValue] = {"max_connections": 10, "superuser_reserved_connections": 3}
    members = make_turns(home, tmp_path, (load("few", 1, **few), load("many", 20, **few)), duration_s=2.0)
    outcomes = run_round(members, slice_s=None)
    many = outcomes[1].error
    assert many is not None
    assert not isinstance(many, OtherMemberFailedError)
    assert not is_of_all(outcomes)
    assert "too many clients" in many.reason or "remaining connection slots" in many.reason
    check_failed(members, outcomes, many.fact)
    assert_nothing_is_left(home)


def test_a_server_that_does_not_start_fails_every_load(home: Home, tmp_path: Path) -> None:
    variants = [load(name, clients, wal_compression="sideways") for name, clients in (("one", 1), ("two", 2))]
    outcomes = run_round(make_turns(home, tmp_path, variants))
    assert is_of_all(outcomes)
    for outcome in outcomes:
        assert outcome.error is not None
        assert outcome.error.fact == "the server refuses a setting"
    assert_nothing_is_left(home)


def test_a_turn_counts_once_its_clients_are_connected_however_late(home: Home, tmp_path: Path) -> None:
    """No warm-up has told how slowly this server takes them."""
    slow: dict[str, SettingValue] = {"pre_auth_delay": 1}
    members = make_turns(home, tmp_path, (load("one", 1, **slow), load("three", 3, **slow)), duration_s=1.0)
    data = read_members(members, run_round(members, slice_s=None))
    for member, each, clients_count in zip(members, data, (1, 3), strict=True):
        ((turn, clients),) = split_by_turn(member, each)
        assert len(clients) == clients_count
        # One to look at the tables, and those of one thread after the other.
        assert turn.settled_monotonic_s - turn.begin_monotonic_s > 2.0
        assert all(begin_s <= turn.settled_monotonic_s + LATE_S for begin_s, _ in clients.values())
        # What the machine did before is in its counters.
        assert set(turn.counts.values()) == {None}
        assert each.slice_loads[0].ok_count > 0


def test_ctrl_c_in_a_turn_leaves_nothing(home: Home, tmp_path: Path) -> None:
    members = make_turns(home, tmp_path)
    memory: list[str] = []

    def interrupt() -> None:
        memory.append(own_shared_memory(members[0]))
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_round(members, act=interrupt)
    assert len(memory) == 1
    assert not set(memory) & shared_memory()
    assert_nothing_is_left(home)

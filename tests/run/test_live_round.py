"""Live rounds on real servers: one member runs, the others stand still, and whatever goes wrong is told and cleared up."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from pgdyno.conduct.live_rounds import find_culprit, is_of_all
from pgdyno.errors import ShortPoolError
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed
from pgdyno.record.transactions.slices import SlicePhase
from pgdyno.record.trial_data import TrialData
from pgdyno.record.types import TrialStatus
from pgdyno.run import live_member
from pgdyno.run.change import sysctl
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.freezer import Freezer, is_stopped
from pgdyno.run.host.placement import placed
from pgdyno.run.host.process import find_server_user
from pgdyno.run.live_member import LiveMember, OtherMemberFailedError
from pgdyno.run.live_round import run_live_round
from pgdyno.run.load import watch as load_watch
from pgdyno.run.postgres import sql
from pgdyno.run.switchback import LEAST_WASHOUT_S
from pgdyno.run.trial import TrialOutcome
from tests.homes import reachable_folder, some_home
from tests.run.rounds import (
    NAPPING,
    assert_nothing_is_left,
    count_cycles,
    find_log_readers,
    kill_log_readers,
    kill_server,
    make_members,
    once_alternating,
    own_shared_memory,
    pgbench_of,
    postmaster_of,
    processes_of,
    read_members,
    shared_memory,
    variant,
)
from tests.run.trees import find_tree, read_affinities
from tests.sysctls import machine_settings, needs_proc_sys, read_sysctl

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_helpers")]
SLICE_S = 0.25


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def run_round(
    members: Sequence[LiveMember],
    *,
    slice_s: float | None = SLICE_S,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[TrialOutcome, ...]:
    return run_live_round(
        members, slice_s=slice_s, seed=1, on_activity=lambda _: None, on_load=lambda _: None, should_stop=should_stop
    )


@pytest.mark.parametrize(("major", "script"), [(18, None), (15, NAPPING)])
def test_each_member_runs_in_its_own_slices_alone(home: Home, tmp_path: Path, major: int, script: str | None) -> None:
    """The one writes as fast as it can, the other leaves transactions under way wherever it is frozen."""
    variants = (variant("a"), variant("b", synchronous_commit="off"))
    members = make_members(home, tmp_path, ("a", "a", "b"), variants, major=major, script=script)
    readers: list[int] = []
    outcomes = run_round(members, should_stop=once_alternating(members, lambda: readers.extend(find_log_readers())))
    assert len(readers) == 1
    data = read_members(members, outcomes)
    assert [{one.variant for one in each.record.plans or ()} for each in data] == [{"a"}, {"a"}, {"b"}]

    begun = [one for each in data for one in each.slices]
    assert len(begun) == 3 * 6
    for number, each in enumerate(data):
        assert [(one.phase, one.round) for one in each.slices] == [(SlicePhase.ROUND, n) for n in range(1, 7)]
        assert {one.variant for one in each.slices} == {("a", "a", "b")[number]}
        # In two times three cycles each has each position twice.
        assert sorted(one.position for one in each.slices) == [0, 0, 1, 1, 2, 2]
    begun.sort(key=lambda one: one.begin_monotonic_s)
    assert [(one.round, one.position) for one in begun] == [(n, p) for n in range(1, 7) for p in range(3)]
    for before, after in itertools.pairwise(begun):
        assert before.begin_monotonic_s < before.settled_monotonic_s < before.end_monotonic_s
        assert before.end_monotonic_s <= after.begin_monotonic_s
    for one in begun:
        assert one.end_monotonic_s - one.begin_monotonic_s >= SLICE_S
        assert one.settled_monotonic_s - one.begin_monotonic_s >= LEAST_WASHOUT_S
        assert one.counts["wal_bytes"] is None
        assert one.counts["cpu_s"] is not None
    # The kernel counts ticks: a load that naps may get none of them in a single slice.
    assert sum(one.counts["cpu_s"] or 0 for one in begun) > 0

    for member, each in zip(members, data, strict=True):
        assert each.record.slice_s == SLICE_S
        assert each.record.washout_s is not None
        assert each.record.washout_s >= LEAST_WASHOUT_S
        assert each.pgbench is not None
        assert each.warm_up is not None
        assert each.transactions is not None
        assert each.pgbench.is_complete
        assert each.transactions.ok_count == each.pgbench.transaction_count
        assert {gap.source for gap in each.gaps} == {"os sampler", "server sampler"}
        assert all("one machine, several servers" in gap.reason for gap in each.gaps)
        assert each.record.tables_before
        assert each.record.tables_after
        assert each.record.counters_before
        assert each.record.counters_after
        assert sum(load.ok_count for load in each.slice_loads) > 0
        assert_ends_lie_in_own_windows(member, each, begun)
        assert (member.folder / "pgbench.json").exists()
    values = [each.record.values.get("synchronous_commit", "on") for each in data]
    assert values == ["on", "on", "off"]
    assert_nothing_is_left(home)


def assert_ends_lie_in_own_windows(member: LiveMember, data: TrialData, begun: Sequence[object]) -> None:
    """While the slices alternate, transactions of a member end only while it runs: from a thaw of its own to its freeze."""
    stamps_s = np.concatenate([batch.stamp_us for batch in read_packed(member.folder / TRANSACTIONS_DIR)]) / 1e6
    stamps_s = stamps_s - data.record.clock_offset_s
    others = [one for one in begun if one not in data.slices]
    for one in others:
        # An end is stamped by a clock that is read microseconds off; others' slices begin once this member stands still.
        inside = (stamps_s > one.begin_monotonic_s + 0.002) & (stamps_s < one.end_monotonic_s - 0.002)
        assert not inside.any()


def test_half_a_second_is_chosen_or_more_where_latencies_are_long(home: Home, tmp_path: Path) -> None:
    slow = "SELECT pg_sleep(0.1);\n"
    members = make_members(home, tmp_path, ("a", "a"), (variant("a"),), duration_s=0.5, script=slow)
    data = read_members(members, run_round(members, slice_s=None))
    for each in data:
        assert each.record.washout_s is not None
        assert each.record.washout_s >= 0.3
        assert each.record.slice_s == pytest.approx(3 * each.record.washout_s)
        assert len(each.slices) == 1


@needs_proc_sys
def test_kernel_settings_are_in_force_in_their_own_slices(home: Home, tmp_path: Path) -> None:
    with machine_settings("vm.swappiness"):
        before = int(read_sysctl("vm.swappiness"))
        variants = (variant("a"), variant("b", sysctl={"vm.swappiness": str(before + 1)}))
        members = make_members(home, tmp_path, ("a", "b"), variants, warm_up="0s")
        seen: list[tuple[float, int]] = []
        is_over = threading.Event()

        def look() -> None:
            while not is_over.wait(0.005):
                began_s = time.monotonic()
                value = int(read_sysctl("vm.swappiness"))
                if time.monotonic() - began_s < 0.002:
                    seen.append((began_s, value))

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            data = read_members(members, run_round(members))
        finally:
            is_over.set()
            watcher.join()
        for each, value in zip(data, (before, before + 1), strict=True):
            inside = {
                found
                for at_s, found in seen
                for one in each.slices
                if one.begin_monotonic_s < at_s < one.end_monotonic_s - 0.003
            }
            assert inside <= {value}
        assert int(read_sysctl("vm.swappiness")) == before


def read_setting(data: TrialData, name: str) -> str:
    return next(one.value for one in data.record.settings if one.name == name)


@needs_proc_sys
def test_huge_pages_are_there_for_the_server_that_asks_for_them_and_gone_afterwards(home: Home, tmp_path: Path) -> None:
    def run_once(folder: Path, pages: str) -> list[TrialData]:
        variants = (
            variant("without", shared_buffers="16MB"),
            variant("with", sysctl={"vm.nr_hugepages": pages}, shared_buffers="16MB"),
        )
        folder.mkdir()
        members = make_members(home, folder, ("with", "without"), variants, warm_up="0s")
        return read_members(members, run_round(members))

    with machine_settings("vm.nr_hugepages"):
        before = read_sysctl("vm.nr_hugepages")
        # The server needs some 15 of them. Another test's, which takes what it finds, too, may start first; most need more.
        for turn in range(6):
            asking, other = run_once(tmp_path / str(turn), str(int(before) + 40))
            assert read_setting(other, "huge_pages_status") == "off"
            assert read_sysctl("vm.nr_hugepages") == before
            if read_setting(asking, "huge_pages_status") == "on":
                return
        pytest.fail("the server got no huge pages in any of 6 rounds")


@needs_proc_sys
def test_huge_pages_that_the_kernel_cannot_make_are_the_failure_of_the_variant_that_asks(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = (variant("without"), variant("with", sysctl={"vm.nr_hugepages": "2000"}))
    members = make_members(home, tmp_path, ("without", "with"), variants, warm_up="0s")
    write = sysctl.write_value

    def write_limited(path: Path, value: str, *, name: str) -> None:
        write(path, "20" if value == "2000" else value, name=name)

    # A kernel that makes 20 pages, and not the 4 GB that others here may need.
    monkeypatch.setattr(sysctl, "write_value", write_limited)
    with machine_settings("vm.nr_hugepages"):
        before = read_sysctl("vm.nr_hugepages")
        other, failed = run_round(members)
        assert read_sysctl("vm.nr_hugepages") == before
    assert isinstance(failed.error, ShortPoolError)
    assert (failed.error.asked, failed.error.made) == (2000, 20)
    assert isinstance(other.error, OtherMemberFailedError)
    assert_nothing_is_left(home)


def test_the_round_stops_between_cycles_when_it_is_asked_to(home: Home, tmp_path: Path) -> None:
    members = make_members(home, tmp_path, ("a", "a"), (variant("a"),), duration_s=600.0, warm_up="0s")
    data = read_members(members, run_round(members, should_stop=lambda: min(count_cycles(members)) >= 2))
    assert [len(each.slices) for each in data] == [2, 2]
    assert_nothing_is_left(home)


@pytest.mark.parametrize(
    ("kill", "words"),
    [
        (lambda member: os.kill(postmaster_of(member), signal.SIGKILL), "the server was killed by SIGKILL"),
        (lambda member: os.kill(pgbench_of(member), signal.SIGKILL), "pgbench failed: it was ended by SIGKILL"),
        (lambda member: os.kill(pgbench_of(member), signal.SIGALRM), "pgbench ended before its time"),
    ],
)
def test_a_member_that_fails_while_it_is_frozen_ends_the_round(
    home: Home, tmp_path: Path, kill: Callable[[LiveMember], None], words: str
) -> None:
    variants = (variant("a"), variant("b"))
    members = make_members(home, tmp_path, ("a", "b"), variants, duration_s=600.0, warm_up="0s")
    leaves = [""]

    def act() -> None:
        assert all(is_stopped(pid) for member in members for pid in find_tree(postmaster_of(member)))
        assert all(is_stopped(pgbench_of(member)) for member in members)
        leaves[0] = own_shared_memory(members[1])
        kill(members[1])

    other, failed = run_round(members, should_stop=once_alternating(members, act))
    assert failed.error is not None
    assert failed.error.fact == words
    assert other.error is not None
    assert other.error.fact == "the live round ended because b failed"
    assert words in other.error.detail
    assert [outcome.record.status for outcome in (other, failed)] == [TrialStatus.FAILED] * 2
    # The other was ended in order.
    assert other.record.load_end_monotonic_s is not None
    assert (members[0].folder / "pgbench.stdout").read_text() != ""
    assert leaves[0] not in shared_memory()
    assert_nothing_is_left(home)


def test_a_file_that_cannot_be_read_between_slices_fails_every_member(home: Home, tmp_path: Path) -> None:
    members = make_members(home, tmp_path, ("a", "a"), (variant("a"),), duration_s=600.0, warm_up="0s")
    outcomes = run_round(members, should_stop=once_alternating(members, (tmp_path / "missing").read_bytes))
    for outcome in outcomes:
        assert outcome.error is not None
        assert outcome.error.fact == "a file of the trial cannot be read or written"
    assert_nothing_is_left(home)


def test_a_dead_log_reader_fails_every_member_and_is_the_fault_of_none(home: Home, tmp_path: Path) -> None:
    members = make_members(home, tmp_path, ("a", "a"), (variant("a"),), duration_s=600.0, warm_up="0s")
    outcomes = run_round(members, should_stop=once_alternating(members, kill_log_readers))
    # An error of their own each would be that of the first variant.
    assert is_of_all(outcomes)
    for outcome in outcomes:
        assert outcome.error is not None
        assert outcome.error.fact == "pgbench's log of transactions is lost, from which slices are counted"
    assert_nothing_is_left(home)


def test_a_server_that_died_with_the_log_reader_is_its_members_failure(home: Home, tmp_path: Path) -> None:
    variants = (variant("a"), variant("b"))
    members = make_members(home, tmp_path, ("a", "b"), variants, duration_s=600.0, warm_up="0s")

    def act() -> None:
        kill_log_readers()
        kill_server(members[1])

    # What the member has that is looked at first is a lost log.
    outcomes = run_round(members, should_stop=once_alternating(members, act))
    other, failed = outcomes
    assert find_culprit(outcomes) is failed
    assert failed.error is not None
    assert failed.error.fact == "the server was killed by SIGKILL"
    assert isinstance(other.error, OtherMemberFailedError)
    assert_nothing_is_left(home)


def test_a_server_that_does_not_start_is_its_members_failure(home: Home, tmp_path: Path) -> None:
    variants = (variant("a"), variant("b", wal_compression="sideways"))
    members = make_members(home, tmp_path, ("a", "b"), variants, warm_up="0s")
    other, failed = run_round(members)
    assert failed.error is not None
    assert failed.error.fact == "the server refuses a setting"
    assert other.error is not None
    assert "because b failed: the server refuses a setting" in other.error.reason
    assert_nothing_is_left(home)


def test_threads_are_placed_anew_in_each_slice_and_none_keeps_its_one_cpu(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that has placed one variant badly would do so in all of its slices."""
    cpus = os.sched_getaffinity(0)
    members = make_members(home, tmp_path, ("a", "a"), (variant("a"),), warm_up="0s")
    places: dict[int, list[dict[int, set[int]]]] = {}

    def read(groups: Sequence[Sequence[int]]) -> dict[int, set[int]]:
        return {thread: cpus for pids in groups for pid in pids for thread, cpus in read_affinities(pid).items()}

    @contextlib.contextmanager
    def watched(groups: Sequence[Sequence[int]], draw: random.Random) -> Iterator[None]:
        (load,) = groups[0]
        assert all(one == cpus for one in read(groups).values())
        with placed(groups, draw):
            yield
            (awake,) = [member.stage.server for member in members if not is_stopped(postmaster_of(member))]
            # A session of which the postmaster hears now, as it does of a parallel query's workers.
            with sql.connect(awake.address) as connection:
                session = connection.execute("SELECT pg_backend_pid() AS pid").fetchall()[0]["pid"]
                assert read_affinities(session) == {session: cpus}
            places.setdefault(load, []).append(read(groups))

    monkeypatch.setattr(live_member, "placed", watched)
    assert [outcome.error for outcome in run_round(members)] == [None, None]
    # Each member's one pgbench, in each of its slices; with its threads, its three sessions and the server's own processes.
    assert sorted(map(len, places.values())) == count_cycles(members)
    for slices in places.values():
        assert all(len(one) == 1 for placed_on in slices for one in placed_on.values())
        assert min(map(len, slices)) > 2 + 3
        first, *later = slices
        assert len(cpus) == 1 or any(
            one[thread] != first[thread] for one in later for thread in one.keys() & first.keys()
        )
    assert_nothing_is_left(home)


def test_a_server_that_hangs_when_it_is_thawed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = make_members(home, tmp_path, ("a", "b"), (variant("a"), variant("b")), duration_s=600.0, warm_up="0s")
    hung: set[int] = set()
    thaw = Freezer.thaw

    def thaw_the_others(freezer: Freezer) -> None:
        freezer._stopped = [pid for pid in freezer._stopped if pid not in hung]
        thaw(freezer)

    def act() -> None:
        hung.update(find_tree(postmaster_of(members[1])))
        monkeypatch.setattr(load_watch, "SILENCE_S", 3.0)
        monkeypatch.setattr(load_watch, "ANSWER_PATIENCE_S", 2)

    monkeypatch.setattr(Freezer, "thaw", thaw_the_others)
    other, failed = run_round(members, should_stop=once_alternating(members, act))
    assert failed.error is not None
    assert failed.error.fact == "the server does not answer"
    assert other.error is not None
    assert other.error.fact == "the live round ended because b failed"
    assert_nothing_is_left(home)


@pytest.mark.parametrize("is_between", [True, False])
def test_ctrl_c_thaws_and_ends_everything(home: Home, tmp_path: Path, is_between: bool) -> None:
    members = make_members(home, tmp_path, ("a", "a"), (variant("a"),), duration_s=600.0, warm_up="0s")
    memory: list[str] = []
    timer = threading.Timer(0.6 * SLICE_S, lambda: os.kill(os.getpid(), signal.SIGINT))

    def act() -> None:
        memory.extend(own_shared_memory(member) for member in members)
        if is_between:
            os.kill(os.getpid(), signal.SIGINT)
        else:
            # In the middle of a slice.
            timer.start()

    with pytest.raises(KeyboardInterrupt):
        run_round(members, should_stop=once_alternating(members, act))
    assert len(memory) == 2
    assert not set(memory) & shared_memory()
    assert_nothing_is_left(home)


PROGRAM = """
import sys
from pathlib import Path
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from tests.run import rounds as t, test_live_round
root, folder = map(Path, sys.argv[1:])
with open_home(root, find_server_user()) as home:
    members = t.make_members(home, folder, ("a", "a"), (t.variant("a"),), duration_s=600.0, warm_up="0s")
    def tell():
        print(*(t.postmaster_of(member) for member in members), *(t.own_shared_memory(member) for member in members))
        print("slices alternate", flush=True)
        sys.stdin.readline()
    test_live_round.run_round(members, should_stop=t.once_alternating(members, tell))
"""


def test_kill_9_of_pgdyno_leaves_nothing_frozen_once_the_home_is_opened(tmp_path: Path) -> None:
    with reachable_folder() as folder:
        root = folder / "home"
        owner = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(root), str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert owner.stdout is not None
        assert owner.stdin is not None
        with owner.stdout, owner.stdin:
            words = owner.stdout.readline().split()
            assert owner.stdout.readline() == "slices alternate\n"
            pids, memory = [int(word) for word in words[:2]], set(words[2:])
            # All stand still: pgdyno waits for a line between two cycles.
            assert all(is_stopped(pid) for root_pid in pids for pid in find_tree(root_pid))
            frozen = [pid for root_pid in pids for pid in find_tree(root_pid)]
            assert memory <= shared_memory()
            owner.kill()
            owner.wait()
        # Frozen servers cannot end by themselves.
        assert all(Path(f"/proc/{pid}").exists() for pid in frozen)
        with open_home(root, find_server_user()) as home:
            # A session that has just ended is still the postmaster's child, and has no folder any more.
            assert 2 <= len(home.left_overs) <= len(frozen)
            assert list(home.work.glob("slot-*")) == []
            assert not memory & shared_memory()
            assert "postgres" not in processes_of(root)
            assert "pgbench" not in processes_of(root)

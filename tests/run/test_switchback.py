"""Blocks on real servers: settings alternate under one load, on time, and whatever goes wrong is told and cleared up."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.plan.experiment import Experiment, Variant
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.transactions.pack import TRANSACTIONS_DIR, read_packed
from pgdyno.record.transactions.parse import TransactionOutcome
from pgdyno.record.transactions.slices import Slice, SliceLoad, SlicePhase, SliceReader, read_slice_loads, read_slices
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import TrialStatus
from pgdyno.run.cluster.home import Home
from pgdyno.run.host.clock import wall_clock_offset_s
from pgdyno.run.switchback import SliceRound, SliceSchedule, choose_washout_s
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.spec.read import make_study
from pgdyno.spec.study import ServerSpec
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import DesignKind
from tests.homes import some_home
from tests.run.test_trial import gaps_beside_late_samples
from tests.stages import prepare_stage
from tests.sysctls import machine_settings, needs_proc_sys, read_sysctl

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("forked_helpers")]
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
# A load that leaves the CPUs to the tests beside it.
GENTLE = {"name": "select-only", "rate_tps": 400.0}
BOTH = pytest.mark.parametrize("major", [18, 15])


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


class Rounds:
    """The same round a number of times, then the end."""

    def __init__(self, *variants: str, times: int, slice_s: float = 0.25, pilot_times: int = 0) -> None:
        self.variants = variants
        self.slice_s = slice_s
        self.phases = [SlicePhase.PILOT] * pilot_times + [SlicePhase.ROUND] * times
        self.thread_names: set[str] = set()
        self.reviews: list[tuple[float, int]] = []
        self.on_review: Callable[[Path, Sequence[Slice]], None] = lambda _folder, _slices: None

    def next_round(self, slices: Sequence[Slice]) -> SliceRound | None:
        self.thread_names.add(threading.current_thread().name)
        done = len(slices) // len(self.variants)
        if done >= len(self.phases):
            return None
        return SliceRound(phase=self.phases[done], variants=self.variants, slice_s=self.slice_s)

    def review(self, folder: Path, slices: Sequence[Slice]) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.reviews.append((time.monotonic(), len(slices)))
        self.on_review(folder, slices)


def variant(name: str, settings: Mapping[str, SettingValue] = {}, sysctl: Mapping[str, str] = {}) -> Variant:
    return Variant(name=name, server=ServerSpec(settings=dict(settings)), changed=dict(settings), sysctl=dict(sysctl))


def run_block(
    home: Home,
    folder: Path,
    variants: Sequence[Variant],
    schedule: SliceSchedule,
    *,
    major: int = 18,
    duration_s: float = 300.0,
    warm_up: str = "1s",
    **load: object,
) -> TrialOutcome:
    raw: dict[str, object] = {
        "data": {"scale": 4},
        "workload": [{"clients": 4, "threads": 2, "mode": "prepared", **load}],
        "trials": {"rounds": 1, "duration": "5s", "warm_up": warm_up},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    experiment = Experiment(
        variants=tuple(variants), design=DesignKind.SWITCHBACK, reason="", budget_s=60.0, alpha=0.05, detect_ratio=0.03
    )
    (folder / "trial").mkdir()
    alternating = msgspec.structs.replace(plan, experiment=experiment)
    stage = prepare_stage(home, folder, study, alternating, major=major, settings=variants[0].server.settings)
    trial = msgspec.structs.replace(
        plan.trials[0], variants=tuple(variant.name for variant in variants), duration_s=duration_s
    )
    return run_trial(
        stage,
        trial,
        folder=folder / "trial",
        on_activity=lambda _: None,
        on_load=lambda _: None,
        schedule=schedule,
    )


def read_block(folder: Path, outcome: TrialOutcome) -> tuple[TrialData, tuple[Slice, ...], list[SliceLoad]]:
    assert outcome.error is None, (outcome.error.fact, outcome.error.detail)
    assert outcome.record.status is TrialStatus.FINISHED
    data = read_trial_data(folder / "trial", outcome.record)
    slices = read_slices(folder / "trial")
    loads = read_slice_loads(folder / "trial" / TRANSACTIONS_DIR, slices, clock_offset_s=outcome.record.clock_offset_s)
    return data, slices, list(loads)


def once(act: Callable[[], object]) -> Callable[..., None]:
    """Acts when it is first called: what is killed may be called for once more before that is noticed."""
    left = [act]

    def call(*_: object) -> None:
        if left:
            left.pop()()

    return call


def assert_nothing_is_left(home: Home) -> None:
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("switchback")]
    found = subprocess.run(["pgrep", "-f", f"{home.root}/"], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    assert not list(Path("/dev/shm").glob(f"pgdyno-log-{os.getpid()}-*"))


def postmaster_of(home: Home) -> int:
    return int((home.data / "postmaster.pid").read_text().split()[0])


# What pgbench's own sessions see, and when each statement that sees it began: a session takes new settings between two.
LOOK = """DO $$ BEGIN RAISE LOG 'sees % % %', extract(epoch FROM statement_timestamp()), current_setting('commit_delay'),
coalesce(nullif(current_setting('pgdyno.test', true), ''), 'nothing'); END $$;
"""
SEEN = re.compile(r"^[0-9.]+\|(\d+)\|[^|]*\|[^|]*\|LOG:  sees (\S+) (\S+) (\S+)$", re.MULTILINE)


@BOTH
def test_settings_alternate_in_the_sessions_of_the_load(home: Home, tmp_path: Path, major: int) -> None:
    script = tmp_path / "look.sql"
    script.write_text(LOOK)
    variants = (
        variant("a", {"commit_delay": 7}),
        variant("b", {"commit_delay": "11", "pgdyno.test": "it's"}),
        variant("neither"),
    )
    schedule = Rounds("a", "b", "neither", "a", times=3)
    outcome = run_block(
        home,
        tmp_path,
        variants,
        schedule,
        major=major,
        warm_up="0s",
        name="look",
        scripts=[str(script)],
        rate_tps=400.0,
    )
    _, slices, loads = read_block(tmp_path, outcome)
    assert [one.variant for one in slices] == ["a", "b", "neither", "a"] * 3
    assert [(one.round, one.position) for one in slices] == [(r, p) for r in (1, 2, 3) for p in range(4)]
    log = (tmp_path / "trial" / "server.log").read_text()
    seen = [(float(at) - outcome.record.clock_offset_s, pid, delay, own) for pid, at, delay, own in SEEN.findall(log)]
    assert len({pid for _, pid, _, _ in seen}) == 4
    expected = {"a": ("7", "nothing"), "b": ("11", "it's"), "neither": ("0", "nothing")}
    found: dict[str, set[tuple[str, str]]] = {name: set() for name in expected}
    for one in slices:
        # The two clocks are compared to a millisecond.
        found[one.variant] |= {
            (delay, own)
            for at_s, _, delay, own in seen
            if one.settled_monotonic_s + 0.002 <= at_s < one.end_monotonic_s - 0.001
        }
    # On a very busy machine a slice may see none.
    assert found == {name: {values} for name, values in expected.items()}
    for name in expected:
        assert sum(load.ok_count for one, load in zip(slices, loads, strict=True) if one.variant == name) > 0
    # The first variant was in force before.
    before = {(delay, own) for at_s, _, delay, own in seen if at_s < slices[1].begin_monotonic_s - 0.002}
    assert before == {expected["a"]}
    assert schedule.thread_names == {"switchback_0"}
    assert_nothing_is_left(home)


# Each client naps longer under one variant: a difference that no machine hides, and that leaves the CPUs to others.
NAP = """\\set aid random(1, 400000)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
SELECT pg_sleep(coalesce(nullif(current_setting('pgdyno.nap_s', true), ''), '0.004')::float8);
"""


def test_a_planted_difference_shows_and_two_alike_do_not_differ(home: Home, tmp_path: Path) -> None:
    script = tmp_path / "nap.sql"
    script.write_text(NAP)
    schedule = Rounds("on", "off", "on", times=6, slice_s=0.4, pilot_times=1)
    live: list[SliceLoad] = []
    readers: list[SliceReader] = []

    def take(folder: Path, slices: Sequence[Slice]) -> None:
        if not readers:
            readers.append(SliceReader(folder / TRANSACTIONS_DIR, clock_offset_s=wall_clock_offset_s()))
        live.extend(readers[0].take(slices))

    schedule.on_review = take
    variants = (
        variant("on", {"synchronous_commit": True, "pgdyno.nap_s": 0.032}),
        variant("off", {"synchronous_commit": "off", "pgdyno.nap_s": 0.004}),
    )
    outcome = run_block(home, tmp_path, variants, schedule, name="nap", scripts=[str(script)])
    data, slices, loads = read_block(tmp_path, outcome)

    # The load was told to end, and ended in order.
    record = outcome.record
    assert [one.variant for one in record.plans or ()] == ["on", "on", "off", "off"]
    assert record.load_start_monotonic_s is not None
    assert record.load_end_monotonic_s is not None
    assert record.load_end_monotonic_s - record.load_start_monotonic_s < record.planned.duration_s
    assert data.pgbench is not None
    assert data.pgbench.tps is not None
    assert data.transactions is not None
    assert data.transactions.ok_count == data.pgbench.transaction_count
    assert gaps_beside_late_samples(data.gaps) == []
    assert record.slice_s == 0.4
    assert record.washout_s is not None
    assert data.warm_up is not None
    assert record.washout_s == pytest.approx(choose_washout_s((data.warm_up.latency_average_ms or 0) / 1e3), rel=0.01)

    # On time, without drift: each deadline is the one before and the slice's length, unless its change came late.
    assert [(one.phase, one.round) for one in slices[:6:3]] == [(SlicePhase.PILOT, 1), (SlicePhase.ROUND, 1)]
    due_s, late_s = slices[0].begin_monotonic_s, []
    for one in slices:
        due_s = max(due_s + 0.4, one.settled_monotonic_s + 0.2)
        late_s.append(one.end_monotonic_s - due_s)
    assert min(late_s) > -0.02
    # On a busy machine most come late. If each handed its delay on to those after it, each would come later than the last.
    assert late_s != sorted(late_s)
    for before, after in itertools.pairwise(slices):
        assert before.begin_monotonic_s < before.settled_monotonic_s < before.end_monotonic_s
        assert before.end_monotonic_s <= after.begin_monotonic_s

    rates = np.array(
        [
            # On a very busy machine a slice may see none.
            (load.ok_count + 0.5) / (one.end_monotonic_s - one.settled_monotonic_s)
            for one, load in zip(slices, loads, strict=True)
        ]
    ).reshape(-1, 3)
    effect = np.log(rates[:, 1]) - (np.log(rates[:, 0]) + np.log(rates[:, 2])) / 2
    alike = np.log(rates[:, 0]) - np.log(rates[:, 2])
    assert np.median(effect) > math.log(1.25)
    assert abs(np.median(alike)) < np.median(effect) / 2

    on = [(one, load.ok_count) for one, load in zip(slices, loads, strict=True) if one.variant == "on"]
    assert 100 < sum(one.counts["wal_bytes"] or 0 for one, _ in on) / sum(count for _, count in on) < 50_000
    # Whatever else the CPUs do counts, too.
    cpu_s, counted_s = sum(one.counts["cpu_s"] or 0 for one, _ in on), sum(one.counted_s for one, _ in on)
    assert 0 < cpu_s < 1.1 * counted_s * (os.cpu_count() or 1) + 1
    if slices[0].counts["device_flush_count"] is not None:
        assert None not in {value for one in slices for value in one.counts.values()}
        flushes = {
            which: np.median(
                [
                    (one.counts["device_flush_count"] or 0) / load.ok_count
                    for one, load in zip(slices, loads, strict=True)
                    if one.variant == which and load.ok_count
                ]
            )
            for which in ("on", "off")
        }
        # The fewer transactions a busy machine lets through, the more of the WAL writer's own flushes fall on each.
        assert flushes["on"] > 1.5 * flushes["off"]

    _assert_counts(tmp_path / "trial" / TRANSACTIONS_DIR, record.clock_offset_s, slices, loads)
    # What was seen while the load ran is what the record holds, but for the last second.
    assert 3 <= len(live) <= 21
    off_by = [abs(seen.ok_count - load.ok_count) for seen, load in zip(live, loads, strict=False)]
    assert max(off_by) <= 3
    assert 1.0 <= np.median(np.diff([at_s for at_s, _ in schedule.reviews])) < 10
    assert_nothing_is_left(home)


def _assert_counts(folder: Path, offset_s: float, slices: Sequence[Slice], loads: Sequence[SliceLoad]) -> None:
    """Against a slow obvious way to count."""
    stamps = [
        int(stamp)
        for batch in read_packed(folder)
        for stamp, outcome in zip(batch.stamp_us, batch.outcome, strict=True)
        if outcome == TransactionOutcome.OK
    ]
    for one, load in zip(slices, loads, strict=True):
        begin_us = round((one.settled_monotonic_s + offset_s) * 1e6)
        end_us = round((one.end_monotonic_s + offset_s) * 1e6)
        assert load.ok_count == len(load.latency_us) == sum(1 for stamp in stamps if begin_us <= stamp < end_us)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"wal_compression": "sideways"}, "wal_compression: setting could not be applied"),
        ({"max_connections": 50}, "max_connections: setting could not be applied"),
    ],
)
def test_what_a_running_server_does_not_take_is_told(
    home: Home, tmp_path: Path, settings: dict[str, SettingValue], words: str
) -> None:
    schedule = Rounds("as it is", "wrong", times=9)
    outcome = run_block(
        home, tmp_path, (variant("as it is"), variant("wrong", settings)), schedule, warm_up="0s", **GENTLE
    )
    assert outcome.record.status is TrialStatus.FAILED
    assert outcome.error is not None
    assert outcome.error.fact == "the running server does not take the settings of wrong"
    assert words in outcome.error.detail
    assert [one.variant for one in read_slices(tmp_path / "trial")] == ["as it is"]
    assert_nothing_is_left(home)


def test_the_end_of_the_load_ends_the_slices(home: Home, tmp_path: Path) -> None:
    schedule = Rounds("a", "b", "a", times=99, slice_s=0.4)
    outcome = run_block(
        home,
        tmp_path,
        (variant("a"), variant("b", {"work_mem": "5MB"})),
        schedule,
        duration_s=8.0,
        warm_up="0s",
        **GENTLE,
    )
    data, slices, loads = read_block(tmp_path, outcome)
    record = outcome.record
    assert record.load_end_monotonic_s is not None
    # Five have time after the load's first second, and fewer where changes come late.
    assert 1 <= len(slices) // 3 <= 5
    assert slices[-1].end_monotonic_s < record.load_end_monotonic_s
    assert data.pgbench is not None
    assert sum(load.ok_count for load in loads) < (data.pgbench.transaction_count or 0)


def test_a_server_that_dies_in_a_slice_is_told_by_its_log(home: Home, tmp_path: Path) -> None:
    schedule = Rounds("a", "b", times=99)

    kill = once(lambda: os.kill(postmaster_of(home), signal.SIGKILL))
    schedule.on_review = lambda _, slices: kill() if len(slices) > 2 else None
    outcome = run_block(
        home, tmp_path, (variant("a"), variant("b", {"commit_delay": 7})), schedule, warm_up="0s", **GENTLE
    )
    assert outcome.record.status is TrialStatus.FAILED
    assert outcome.error is not None
    assert outcome.error.fact == "the server was killed by SIGKILL"
    assert len(read_slices(tmp_path / "trial")) > 2
    assert_nothing_is_left(home)


def test_a_session_that_dies_in_a_slice_ends_the_block(home: Home, tmp_path: Path) -> None:
    schedule = Rounds("a", "b", times=99)

    def is_session(pid: str) -> bool:
        # One that ends just now has no command line any more.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return b"pgdyno pgdyno" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def kill_session() -> None:
        children = Path(f"/proc/{postmaster_of(home)}/task/{postmaster_of(home)}/children").read_text().split()
        os.kill(int(next(filter(is_session, children))), signal.SIGKILL)

    kill = once(kill_session)
    schedule.on_review = lambda _, slices: kill() if len(slices) > 2 else None
    outcome = run_block(home, tmp_path, (variant("a"), variant("b", {"commit_delay": 7})), schedule, **GENTLE)
    assert outcome.record.status is TrialStatus.FAILED
    assert outcome.error is not None
    # Whoever sees it first tells: all sessions end with the one that crashed.
    assert outcome.error.fact.startswith(("the server broke off the session that changes settings", "pgbench failed"))
    assert "log has the reason" in outcome.error.hint
    assert_nothing_is_left(home)


def test_a_log_that_nobody_reads_ends_a_block(home: Home, tmp_path: Path) -> None:
    schedule = Rounds("a", "b", times=99)

    def kill_reader() -> None:
        pattern = f"pgdyno.run.load.log_stream.*{tmp_path}"
        found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    kill = once(kill_reader)
    schedule.on_review = lambda _, slices: kill() if slices else None
    outcome = run_block(
        home, tmp_path, (variant("a"), variant("b", {"commit_delay": 7})), schedule, warm_up="0s", **GENTLE
    )
    assert outcome.error is not None
    assert outcome.error.fact == "pgbench's log of transactions is lost, from which slices are counted"
    assert_nothing_is_left(home)


@needs_proc_sys
def test_kernel_settings_alternate_and_are_put_back_on_ctrl_c(home: Home, tmp_path: Path) -> None:
    name = "vm.dirty_expire_centisecs"
    seen: set[str] = set()
    schedule = Rounds("low", "high", "as it is", times=99)
    variants = (variant("as it is"), variant("low", sysctl={name: "2000"}), variant("high", sysctl={name: "4000"}))

    def look(_: Path, slices: Sequence[Slice]) -> None:
        seen.add(read_sysctl(name))
        # Who watches may sleep through a slice on a busy machine.
        if len(slices) > 6 and seen >= {before, "2000", "4000"}:
            raise KeyboardInterrupt

    schedule.on_review = look
    with machine_settings(name):
        before = read_sysctl(name)
        watching = _watching(lambda: seen.add(read_sysctl(name)))
        with watching, pytest.raises(KeyboardInterrupt):
            run_block(home, tmp_path, variants, schedule, warm_up="0s", **GENTLE)
        assert seen == {before, "2000", "4000"}
        assert read_sysctl(name) == before
    assert_nothing_is_left(home)


def test_a_fault_in_the_switching_is_not_swallowed(home: Home, tmp_path: Path) -> None:
    schedule = Rounds("no such arm", times=1)
    with pytest.raises(KeyError, match="no such arm"):
        run_block(home, tmp_path, (variant("a"), variant("b", {"commit_delay": 7})), schedule, warm_up="0s", **GENTLE)
    assert_nothing_is_left(home)


@contextlib.contextmanager
def _watching(look: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(0.05):
            look()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

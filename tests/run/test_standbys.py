"""Standbys on real servers: their settings alternate with the primary's, their lag is sampled, and they never outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.transactions.slices import Slice
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load import watch
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.switchback import SliceSchedule
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.spec.read import make_study
from tests.homes import reachable_folder, some_home
from tests.run.test_switchback import Rounds, assert_nothing_is_left, read_block
from tests.run.test_trial import gaps_beside_late_samples
from tests.stages import prepare_stage

pytestmark = pytest.mark.cluster
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
LOCAL, APPLIED = "synchronous_commit=local", "synchronous_commit=remote_apply"
# Far longer than a commit takes that waits neither for a standby nor for the disk.
DELAY_MS = 150.0
# Clients that think leave the CPUs to the tests beside them.
THINKING = "\\set aid random(1, 200000)\nUPDATE pgbench_accounts SET abalance = :aid WHERE aid = :aid;\n\\sleep 5 ms\n"


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def run_block(home: Home, folder: Path, schedule: SliceSchedule, *, major: int, cache: str = "warm") -> TrialOutcome:
    (folder / "thinking.sql").write_text(THINKING)
    raw: dict[str, object] = {
        "server": {"standbys": 1, "settings": {"recovery_min_apply_delay": f"{DELAY_MS:g}ms", "fsync": False}},
        "data": {"scale": 2},
        "workload": [{"name": "thinking", "scripts": ["thinking.sql"], "clients": 2, "threads": 1}],
        # The schedule ends it.
        "trials": {"duration": "300s", "warm_up": "1s", "cache": cache},
        "variant": [{"settings": {"synchronous_commit": value}} for value in ("local", "remote_apply")],
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    assert plan.experiment is not None
    (folder / "trial").mkdir()
    settings = plan.experiment.reference.server.settings
    stage = prepare_stage(home, folder, study, plan, major=major, settings=settings, standbys=1)
    trial = msgspec.structs.replace(plan.trials[0], duration_s=300.0)
    return run_trial(
        stage, trial, folder=folder / "trial", on_activity=lambda _: None, on_load=lambda _: None, schedule=schedule
    )


def list_medians_ms(folder: Path, outcome: TrialOutcome) -> dict[str, list[float]]:
    _, slices, loads = read_block(folder, outcome)
    found: dict[str, list[float]] = {LOCAL: [], APPLIED: []}
    for one, load in zip(slices, loads, strict=True):
        # On a very busy machine a slice may see none.
        if load.ok_count:
            found[one.variant].append(float(np.median(load.latency_us)) / 1e3)
    return found


@pytest.mark.parametrize(("major", "cache"), [(18, "warm"), (15, "cold")])
def test_commits_wait_for_the_standby_in_the_slices_that_say_so(
    home: Home, tmp_path: Path, major: int, cache: str
) -> None:
    outcome = run_block(home, tmp_path, Rounds(LOCAL, APPLIED, LOCAL, times=3, slice_s=1.0), major=major, cache=cache)
    medians = list_medians_ms(tmp_path, outcome)
    assert 1 <= len(medians[APPLIED]) <= 3
    # Whoever need not wait may be late as well now and then.
    assert min(medians[APPLIED]) > 0.8 * DELAY_MS > np.median(medians[LOCAL])
    shown = {one.name: one.value for one in outcome.record.settings}
    assert (shown["synchronous_standby_names"], shown["max_slot_wal_keep_size"]) == ("*", "2048")
    assert gaps_beside_late_samples(outcome.record.gaps) == []

    data, _, _ = read_block(tmp_path, outcome)
    assert data.server is not None
    assert data.os is not None
    frame = data.server.frame
    assert set(frame["standby/standby1/state"]) == {"streaming"}
    assert set(frame["standby/standby1/sync_state"]) == {"sync"}
    # It replays commits so much later, and other records at once.
    lags_ms = frame["standby/standby1/replay_lag_ms"].drop_nulls().to_list()
    assert max(lags_ms) > 0.8 * DELAY_MS
    assert "tree.standby1/utime" in data.os.frame.columns
    assert {"process.standby1_startup/utime", "process.standby1_walreceiver/utime"} <= {*data.os.frame.columns}
    assert "started streaming WAL from primary" in (tmp_path / "trial/standby1.log").read_text()
    assert_nothing_is_left(home)


class KillStandby(Rounds):
    """Kills the standby's postmaster once the settings alternate."""

    def __init__(self, home: Home) -> None:
        super().__init__(LOCAL, APPLIED, LOCAL, times=100)
        self.on_review = self._kill
        self._home = home

    def _kill(self, _folder: Path, slices: Sequence[Slice]) -> None:
        if slices:
            pid = int((self._home.work / "slot-1/data/postmaster.pid").read_text().split()[0])
            os.kill(pid, signal.SIGKILL)
            self.on_review = lambda _folder, _slices: None


def test_a_standby_that_ends_in_a_trial_fails_it_by_name(home: Home, tmp_path: Path) -> None:
    outcome = run_block(home, tmp_path, KillStandby(home), major=18)
    assert outcome.error is not None
    assert outcome.error.fact == "standby1 was killed by SIGKILL"
    assert_nothing_is_left(home)


class LoseSlot(Rounds):
    """Sends the standby elsewhere for its WAL, so that the server removes what its slot was to keep."""

    def __init__(self, home: Home) -> None:
        super().__init__(APPLIED, APPLIED, APPLIED, times=100)
        self.on_review = self._lose
        self._home = home

    def _lose(self, _folder: Path, slices: Sequence[Slice]) -> None:
        if not slices:
            return
        self.on_review = lambda _folder, _slices: None
        sockets = self._home.work / "sock1"
        there = Address(host=str(sockets), port=5432, user="pgdyno")
        with sql.connect(there) as standby:
            standby.execute("ALTER SYSTEM SET primary_conninfo = 'host=/nowhere'")
            standby.execute("SELECT pg_reload_conf()")
        here = msgspec.structs.replace(there, host=str(self._home.sockets))
        with sql.connect(here, options="-c synchronous_commit=local") as primary:
            primary.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
            primary.execute("SELECT pg_reload_conf()")
            while sql.list_streams(primary):
                time.sleep(0.02)
            for _ in range(6):
                primary.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))")
                primary.execute("SELECT pg_switch_wal()")
                primary.execute("CHECKPOINT")


def test_commits_that_wait_for_a_standby_without_its_slot_fail_the_trial_soon(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENCE_S", 2.0)
    outcome = run_block(home, tmp_path, LoseSlot(home), major=18)
    assert outcome.error is not None
    assert outcome.error.fact == "standby1 fell too far behind: its slot is lost"
    assert "max_slot_wal_keep_size" in outcome.error.hint
    assert_nothing_is_left(home)


# Loads and starts a server with two standbys in a home, tells that they stream, and waits to be killed.
HOLDER = """
import sys, time
from pathlib import Path
from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load import watch
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.spec.study import DataSpec
from tests.homes import installation_of

folder = Path(sys.argv[1])
with open_home(folder / "home", find_server_user()) as home:
    server = OwnServer(installation=installation_of(18, home), home=home, standbys=2)
    server.load(DataSpec(), 0, settings={}, output_dir=folder, on_activity=lambda _: None)
    server.reset()
    with server.running({}, log_path=folder / "server.log"):
        print("streaming", flush=True)
        time.sleep(600)
"""


def test_standbys_do_not_outlive_a_killed_pgdyno(tmp_path: Path) -> None:
    with reachable_folder() as folder:
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "streaming\n"
        slots = [folder / "home/work" / name for name in ("slot-1", "slot-2")]
        assert all((slot / "data/standby.signal").exists() for slot in slots)
        holder.kill()
        holder.wait()
        holder.stdout.close()
        with open_home(folder / "home", find_server_user()) as home:
            assert not any(slot.exists() for slot in slots)
            assert_nothing_is_left(home)

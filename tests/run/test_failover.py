"""Failovers on real servers: the load goes on at the standby, nothing that was confirmed is lost where commits wait, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.analyse.failover import FailoverFigures, measure_failover
from pgdyno.plan.plan import Machine, plan_study
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.run import measured_failover
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host import process
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.trial import TrialOutcome, run_trial
from pgdyno.spec.read import make_study
from tests.homes import some_home
from tests.ready_program import Program, run_program
from tests.run.rounds import shared_memory
from tests.run.test_switchback import assert_nothing_is_left
from tests.shared import reachable_folder, shared_home
from tests.stages import prepare_stage

pytestmark = pytest.mark.cluster
MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
SYNCHRONOUS = {"synchronous_standby_names": "*", "synchronous_commit": "remote_apply"}


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with some_home(is_empty=False) as made:
        yield made


def run_failover(
    home: Home,
    folder: Path,
    *,
    major: int = 18,
    how: str = "crash",
    settings: dict[str, str] = SYNCHRONOUS,
    standbys: int = 1,
    promote_within: str = "60s",
    duration: str = "6s",
    on_activity: Callable[[OwnServer, str], None] = lambda _server, _activity: None,
) -> TrialOutcome:
    raw: dict[str, object] = {
        "server": {"standbys": standbys, "settings": settings},
        "data": {"scale": 2},
        # A rate that leaves the CPUs to the tests beside it.
        "workload": [{"name": "tpcb-like", "clients": 2, "threads": 1, "rate_tps": 100.0}],
        "trials": {"duration": duration, "warm_up": "0s", "rounds": 1},
        "failover": {"how": how, "promote_within": promote_within},
    }
    study = make_study(raw, source="test", folder=folder)
    plan = plan_study(study, MACHINE)
    (folder / "trial").mkdir()
    stage = prepare_stage(home, folder, study, plan, major=major, standbys=standbys, fails_over=True)
    server = stage.server
    assert isinstance(server, OwnServer)
    return run_trial(
        stage,
        plan.trials[0],
        folder=folder / "trial",
        on_activity=lambda activity: on_activity(server, activity),
        on_load=lambda _: None,
    )


def read_figures(folder: Path, outcome: TrialOutcome) -> tuple[FailoverFigures, TrialData]:
    assert outcome.error is None, outcome.error
    data = read_trial_data(folder / "trial", outcome.record)
    figures = measure_failover(data)
    assert figures is not None
    return figures, data


@pytest.mark.parametrize(
    ("major", "how", "standbys"), [(18, "crash", 1), (15, "crash", 2), (15, "stop", 1), (18, "stop", 1)]
)
def test_the_load_goes_on_at_the_standby_and_nothing_confirmed_is_lost(
    home: Home, tmp_path: Path, major: int, how: str, standbys: int
) -> None:
    outcome = run_failover(home, tmp_path, major=major, how=how, standbys=standbys)
    figures, data = read_figures(tmp_path, outcome)
    assert data.failover is not None
    assert figures.standby.startswith("standby")
    assert (figures.lost_probes, figures.lost_transactions) == (0, 0)
    # On a busy machine a write may be confirmed before the postmaster has logged that it is ready, and be read after the primary is gone.
    steps = data.failover.steps
    assert steps.told_s < steps.gone_s < steps.asked_s < steps.connected_s
    for seconds in (figures.outage_s, figures.load_outage_s, figures.promotion_s, figures.noticed_s):
        assert seconds is not None
        assert seconds > 0.0
    # Both loads did something, and the probes cover them.
    assert data.pgbench is not None
    assert data.pgbench.transaction_count
    assert data.failover.after.transaction_count
    assert figures.confirmed_probes > 0
    # A machine that ends tells its clients nothing.
    said = (tmp_path / "trial/pgbench.stderr").read_text()
    assert "crash of another server process" not in said
    assert ("administrator command" in said) == (how == "stop")
    assert "received promote request" in (tmp_path / f"trial/{figures.standby}.log").read_text()
    # The figures of the load are those before the failover, and nothing that is known of two servers is subtracted.
    assert outcome.tps == data.pgbench.tps
    assert outcome.record.counters_after == {}
    assert_nothing_is_left(home)


def test_what_no_standby_has_is_counted_as_lost(home: Home, tmp_path: Path) -> None:
    """Commits wait for the primary alone, which sends no WAL of its last ones."""

    def count(connection: sql.Connection, table: str) -> int:
        (row,) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
        return int(row["count"])

    def freeze(server: OwnServer, activity: str) -> None:
        if activity == "failing over":
            with server.connect(database="postgres") as probes, server.connect() as load:
                for row in probes.execute("SELECT pid FROM pg_stat_replication").fetchall():
                    os.kill(row["pid"], signal.SIGSTOP)
                # More than may hide behind those that two clients and the prober were told of too late.
                until = [(probes, "public.pgdyno_probe", 5), (load, "pgbench_history", 20)]
                for connection, table, more in until:
                    enough = count(connection, table) + more
                    while count(connection, table) < enough:
                        time.sleep(0.01)

    settings = {"synchronous_commit": "on", "synchronous_standby_names": ""}
    figures, _ = read_figures(tmp_path, run_failover(home, tmp_path, settings=settings, on_activity=freeze))
    assert figures.lost_probes > 0
    assert figures.lost_transactions is not None
    assert figures.lost_transactions > 0
    assert_nothing_is_left(home)


def test_wal_that_was_not_replayed_is_replayed_in_the_promotion(home: Home, tmp_path: Path) -> None:
    settings = {"recovery_min_apply_delay": "1h", "synchronous_commit": "on", "synchronous_standby_names": "*"}
    figures, _ = read_figures(tmp_path, run_failover(home, tmp_path, settings=settings))
    assert figures.unreplayed_bytes > 10_000
    assert (figures.lost_probes, figures.lost_transactions) == (0, 0)


def test_a_standby_that_is_gone_fails_the_trial_by_name(home: Home, tmp_path: Path) -> None:
    left: list[str] = []

    def kill(_: OwnServer, activity: str) -> None:
        if activity == "failing over":
            left.append((home.data / "postmaster.pid").read_text().splitlines()[6].split()[1])
            pid = _find_postmaster(home.work / "slot-1/data")
            os.kill(pid, signal.SIGKILL)
            # pgdyno itself waits for it.
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    outcome = run_failover(home, tmp_path, on_activity=kill)
    assert outcome.error is not None
    assert outcome.error.fact == "standby1 was killed by SIGKILL"
    assert left
    assert shared_memory().isdisjoint(left), "the primary had been killed, too"
    assert_nothing_is_left(home)


def test_a_standby_that_is_none_any_more_cannot_be_promoted(home: Home, tmp_path: Path) -> None:
    def promote(server: OwnServer, activity: str) -> None:
        if activity == "failing over":
            _, standby = server.hosts_address.host.split(",")
            with sql.connect(_at(server, standby)) as connection:
                connection.execute("SELECT pg_promote()")

    outcome = run_failover(home, tmp_path, settings={}, on_activity=promote)
    assert outcome.error is not None
    assert "recovery is not in progress" in outcome.error.detail
    assert_nothing_is_left(home)


def test_a_promotion_that_takes_too_long_is_an_error(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby's startup process, which promotes it, is stopped."""

    def stop(server: OwnServer, activity: str) -> None:
        if activity == "failing over":
            _, standby = server.hosts_address.host.split(",")
            with sql.connect(_at(server, standby)) as connection:
                os.kill(sql.read_recovery_pids(connection)["startup"], signal.SIGSTOP)

    outcome = run_failover(home, tmp_path, promote_within="1s", on_activity=stop, settings={})
    assert outcome.error is not None
    assert outcome.error.fact == "standby1 was not promoted within 1 s"
    assert "promote_within" in outcome.error.hint
    assert_nothing_is_left(home)


def test_an_old_primary_that_comes_back_fails_the_trial_and_is_ended(home: Home, tmp_path: Path) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def restart(server: OwnServer, activity: str) -> None:
        # Said for the second time once the load goes on at the standby.
        if activity == "measuring" and (tmp_path / "trial/after/pgbench.stdout").exists():
            (home.data / "postmaster.pid").unlink(missing_ok=True)
            program = server.facts.bindir + "/postgres"
            with (tmp_path / "old.log").open("ab") as log:
                started.append(
                    process.start(
                        [program, "-D", str(home.data)], user=home.user, stdout=log, stderr=log, cwd=home.data
                    )
                )

    # So long that the load still runs when it is looked at, however busy the machine is.
    outcome = run_failover(home, tmp_path, duration="12s", on_activity=restart)
    assert outcome.error is not None
    assert outcome.error.fact == "the old primary runs again beside the standby that took its place"
    assert started[0].wait(timeout=600) is not None
    assert_nothing_is_left(home)


def test_a_prober_that_ends_early_fails_the_trial(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing = measured_failover.Child

    class Killed(probing):  # type: ignore[misc,valid-type]
        """Is killed when it has written for a while."""

        @property
        def is_alive(self) -> bool:
            # The header and two writes: the load begins after one.
            if self.process is not None and self.has_lines(3):
                self.process.kill()
                self.process.wait()
            return bool(super().is_alive)

    monkeypatch.setattr(measured_failover, "Child", Killed)
    outcome = run_failover(home, tmp_path)
    assert outcome.error is not None
    assert outcome.error.fact.startswith("the prober")
    assert_nothing_is_left(home)


# Runs a study with failovers in a home until it is killed.
STUDY = """
question = "x"
[server]
standbys = 1
[failover]
[data]
scale = 1
[[workload]]
name = "tpcb-like"
clients = 2
rate_tps = 100.0
[trials]
rounds = 1
duration = "4s"
warm_up = "0s"
"""


@pytest.mark.parametrize("instant", ["trials/0001/probes.jsonl", "trials/0001/after/pgbench.stderr"])
def test_killed_at_any_moment_it_leaves_no_server_and_the_record_resumes(instant: str) -> None:
    """pgdyno is killed once the prober has written, and once the load goes on at the standby."""
    with reachable_folder() as folder, shared_home(folder / "home"):
        (folder / "study.toml").write_text(STUDY)
        record, place = folder / "record", folder / "home"
        words = ["run", str(folder / "study.toml"), "--home", str(place), "--out", str(record)]
        run = Program(words, stdout=subprocess.DEVNULL)
        seen = record / instant
        until_s = time.monotonic() + 600
        while not (seen.exists() and seen.stat().st_size):
            assert run.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.02)
        run.kill()
        run.wait()
        with open_home(place, find_server_user()) as found:
            assert_nothing_is_left(found)
        done = run_program(["resume", str(record)])
        assert done.returncode == 0, done.stderr
        assert (record / "trials/0001/failover.json").exists()
        assert not (place / "work/slot-1").exists()


def _find_postmaster(data: Path) -> int:
    return int((data / "postmaster.pid").read_text().split()[0])


def _at(server: OwnServer, sockets: str) -> Address:
    return msgspec.structs.replace(server.address, host=sockets, dbname="postgres")

"""Loads that differ only in clients, threads or mode on a server of the user's: they take turns on one copy of the data."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import read_slices
from pgdyno.record.trial_data import GENERATOR
from pgdyno.record.types import UNSEEN_GAPS
from pgdyno.run.turn_member import _Turn
from tests.cli.experiments import LATE, THINKING, finished_trials, read_report, verdict_of
from tests.cli.program import Bench, run_here
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
# A client is within a transaction for nearly all of the time, and wants the row that each of the others holds: for so long that
# what a busy machine adds, which another client has to itself meanwhile, is little.
HOLDING = """BEGIN;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
SELECT pg_sleep(0.2);
END;
"""
SHORT = ("--scale", "1", "--warm-up", "0s", "--duration", "2s", "--out", "out")
NEAR = ("--detect", "90%", "--confidence", "50%")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param, conf="log_statement = ddl\n") as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


on_15 = pytest.mark.parametrize("cluster", [15], indirect=True)
on_18 = pytest.mark.parametrize("cluster", [18], indirect=True)


@pytest.fixture
def folder(bench: Bench) -> Bench:
    (bench.folder / "thinking.sql").write_text(THINKING)
    (bench.folder / "holding.sql").write_text(HOLDING)
    return bench


def dsn(place: Path) -> tuple[str, str]:
    return "--dsn", f"host={place} port={PORT} user=plain dbname=postgres"


def log(cluster: Cluster) -> str:
    return (cluster.root / "server.log").read_text(errors="replace")


def list_databases(cluster: Cluster) -> list[str]:
    return cluster.sql("SELECT datname FROM pg_database WHERE datname LIKE 'pgdyno%'").split()


def list_copies(cluster: Cluster) -> list[str]:
    return [name for name in list_databases(cluster) if name.endswith("_run")]


def check_turns(record: Path, cluster: Cluster, *, begins: int) -> None:
    """Make sure that the loads of a record have taken turns, each round in one copy of the data."""
    store = open_record(record)
    report = read_report(record)
    assert report["experiment"]["design"] == "live"
    trials = store.read_trials()
    rounds = {trial.planned.round for trial in trials if not trial.planned.is_observed}
    observed = [trial for trial in trials if trial.planned.is_observed]
    assert len(rounds) >= 2
    assert log(cluster)[begins:].count('_run" TEMPLATE') == len(rounds) + len(observed)
    slices = []
    for trial in (one for one in trials if not one.planned.is_observed):
        of_trial = read_slices(store.trial_dir(trial.planned.number))
        assert of_trial
        slices += of_trial
        # What others in the same server do at the same time is no figure of this load.
        assert (trial.counters_before, trial.counters_after) == ({}, {})
        sources = [gap.source for gap in trial.gaps if gap.reason != LATE]
        assert len(set(sources)) == len(sources)
        assert set(sources) >= {GENERATOR, *(gap.source for gap in UNSEEN_GAPS), "counters of the whole server"}
    slices.sort(key=lambda one: one.begin_monotonic_s)
    assert all(one.end_monotonic_s <= next_.begin_monotonic_s for one, next_ in itertools.pairwise(slices))
    # This machine is not known to be the server's.
    assert {one.counts["cpu_s"] for one in slices} == {None}
    assert list_copies(cluster) == []


@pytest.mark.parametrize(("cluster", "is_pooled"), [(15, True), (18, False)], indirect=["cluster"])
def test_numbers_of_clients_are_swept_by_a_plain_role(cluster: Cluster, folder: Bench, is_pooled: bool) -> None:
    begins = len(log(cluster))
    # So long that what a busy machine adds is little.
    (folder.folder / "thinking.sql").write_text(THINKING.replace("20 ms", "200 ms"))
    # One that keeps no session for a client takes all that one with whole sessions does.
    pooled = pooling(cluster, mode="transaction", database="*") if is_pooled else contextlib.nullcontext(cluster.root)
    with pooled as place:
        words = ("sweep", "clients=1,2", *dsn(place), "--workload", "thinking.sql", "--minutes", "1")
        done = folder.run(*words, *SHORT)
    assert done.returncode == 0, done.stderr
    assert "take turns on one server" in done.stderr
    assert "copies of the data" not in done.stderr
    check_turns(folder.folder / "out", cluster, begins=begins)
    (comparison,) = read_report(folder.folder / "out")["experiment"]["comparisons"]
    tps = [point["tps"]["value"] for point in comparison["sweep"]["points"]]
    assert tps == sorted(tps)


IN_A_TURN = "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE '%_run' AND application_name = 'pgbench'"


@on_18
def test_a_kill_ctrl_c_and_a_restart_in_a_turn_leave_nothing_that_counts(cluster: Cluster, folder: Bench) -> None:
    words = ("compare", "--clients", "1", "--clients", "4", *dsn(cluster.root), "--workload", "holding.sql", *NEAR)
    record = folder.folder / "out"

    def is_in_turn(state: str = "") -> bool:
        return cluster.sql(IN_A_TURN + state) != "0"

    with folder.started(*words, *SHORT, stops_at=_Turn._see) as process:
        assert process.stands_still(lambda: is_in_turn(" AND wait_event_type = 'Lock'")), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    # The kernel ends pgbench, and the server its sessions, whose clients wait for each other's row.
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'pgdyno%'"
    assert wait_until(lambda: cluster.sql(sessions) == "0")
    assert len(list_copies(cluster)) == 1
    cleaned = run_here(("clean", *dsn(cluster.root), "--yes"), cwd=folder.folder)
    assert (cleaned.returncode, list_databases(cluster)) == (0, []), cleaned.stderr
    with folder.started("resume", "out", stops_at=_Turn._see) as process:
        assert process.stands_still(is_in_turn), process.communicate()
        process.send_signal(signal.SIGINT)
        process.go_on()
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130, said
    assert (cluster.sql(IN_A_TURN), list_copies(cluster)) == ("0", [])
    with folder.started("resume", "out", stops_at=_Turn._see) as process:
        assert process.stands_still(is_in_turn), process.communicate()
        cluster.stop()
        cluster.start()
        process.go_on()
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert "failed: the server was restarted in the middle of a trial" in said
    assert "repeating trial" in said
    assert list_copies(cluster) == []
    report = read_report(record)
    assert report["experiment"]["design"] == "live"
    # All want one row, of which no client of another turn still holds a lock.
    assert abs(verdict_of(report, "clients=4")["effect_ratio"]) < 0.5


@on_15
def test_what_was_asked_for_stays(cluster: Cluster, folder: Bench) -> None:
    words = ("sweep", "clients=1,2", *dsn(cluster.root), "--workload", "thinking.sql", "--minutes", "1", *SHORT)
    plan = folder.folder / "out/record.json"
    with folder.started(*words, "--design", "paired") as process:
        assert wait_until(lambda: plan.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130, said
    assert json.loads(plan.read_text())["plan"]["experiment"]["design"] == "paired"


@on_15
def test_the_clients_of_all_loads_together_need_not_fit(cluster: Cluster, folder: Bench) -> None:
    """Of the 97 that are free, no load has more than 60."""
    words = ("compare", "--clients", "50", "--clients", "60", *dsn(cluster.root), "--workload", "thinking.sql", *NEAR)
    record = folder.folder / "out"

    def list_round() -> list[list[str]]:
        return [one["planned"]["arms"] for one in finished_trials(record) if one["planned"]["round"] == 1]

    with folder.started(*words, "--design", "live", *SHORT) as process:
        assert wait_until(lambda: len(list_round()) == 3 or process.poll() is not None, within_s=600)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130, said
    assert "copies of the data" not in said
    assert sorted(list_round()) == [["clients=50"], ["clients=50"], ["clients=60"]]

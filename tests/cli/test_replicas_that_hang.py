"""A replica that hangs, or replays nothing any more: pgdyno waits for a bounded time, names it, leaves nothing, and goes on later."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.types import TrialStatus
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from tests.cli.program import Bench, list_descendants, run_here, wait_until
from tests.cli.test_replicas_given import LOAD, OWN, WORKING, dsn, read_descendants, replicas
from tests.replicas import streaming
from tests.tools.pgcluster import PORT, Cluster, running_given

pytestmark = pytest.mark.cluster
LONG = (*LOAD, "--stock-only", "--duration", "15s", "--allow", "busy", "--rounds")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    with running_given(18) as primary, streaming(primary) as (standby,):
        yield primary, standby


@contextlib.contextmanager
def hurried() -> Iterator[pytest.MonkeyPatch]:
    """Wait less long for what answers to nobody, however long it is waited for; a server that answers late is only asked more often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pgdyno.run.load.watch.SILENCE_S", 2.0)
        patch.setattr("pgdyno.run.given.replicas._RETURNS_WITHIN_S", 1.0)
        yield patch


@contextlib.contextmanager
def halted(standby: Cluster) -> Iterator[Callable[[], None]]:
    """Yield what halts a server and its sessions; they go on at the end."""
    pids: list[int] = []

    def send(pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def halt() -> None:
        # It starts no more of them then.
        pids.append(standby.postmaster_pid)
        send(pids[0], signal.SIGSTOP)
        pids.extend(list_descendants(pids[0]))
        for pid in pids[1:]:
            send(pid, signal.SIGSTOP)

    try:
        yield halt
    finally:
        for pid in reversed(pids):
            send(pid, signal.SIGCONT)


def run(
    bench: Bench, pair: tuple[Cluster, Cluster], rounds: str, *, beside: Callable[[pytest.MonkeyPatch], object]
) -> subprocess.CompletedProcess[str]:
    """Run a bench that reads from the replica, and something beside it once the clients work there."""
    primary, standby = pair

    def work(patch: pytest.MonkeyPatch) -> None:
        if wait_until(lambda: standby.sql(WORKING) == "3"):
            beside(patch)

    with hurried() as patch:
        worker = threading.Thread(target=work, args=(patch,))
        worker.start()
        try:
            words = ("bench", "--dsn", dsn(primary), "--endpoint", replicas(standby), *LONG, rounds)
            return run_here(words, cwd=bench.folder)
        finally:
            worker.join()


def check_left(primary: Cluster) -> None:
    assert primary.sql(OWN) == ""
    assert not any(b"pgbench" in arguments for arguments, _ in read_descendants(os.getpid()))


def check_resumed(bench: Bench, primary: Cluster) -> None:
    done = run_here(("resume", "--allow", "busy"), cwd=bench.folder)
    assert done.returncode == 0, done.stderr
    trials = open_record(bench.record).read_trials()
    assert [trial.status for trial in trials] == [TrialStatus.FINISHED]
    check_left(primary)


def test_one_that_hangs_at_the_check(pair: tuple[Cluster, Cluster], bench: Bench) -> None:
    primary, standby = pair
    with halted(standby) as halt:
        halt()
        endpoint = f"{replicas(standby)} connect_timeout=2"
        words = ("bench", "--dsn", dsn(primary), "--endpoint", endpoint, *LONG, "1")
        done = run_here(words, cwd=bench.folder)
    assert done.returncode == 4, done.stderr
    assert f"replica1 ({standby.root}, port {PORT}): cannot connect to the server" in done.stderr
    assert "it hangs, or a firewall" in done.stderr
    assert not bench.records
    check_left(primary)


def test_one_that_hangs_in_mid_trial_and_before_the_next_try(pair: tuple[Cluster, Cluster], bench: Bench) -> None:
    primary, standby = pair
    with halted(standby) as halt:

        def hang(patch: pytest.MonkeyPatch) -> None:
            halt()
            patch.setattr(sql, "connect", connect)

        connect_patiently = sql.connect

        def connect(address: Address, **how: Any) -> sql.Connection:
            # The primary, which may be slow, is waited for as ever.
            return connect_patiently(address, **how | ({"patience_s": 2} if address.host == str(standby.root) else {}))

        done = run(bench, pair, "1", beside=hang)
    assert done.returncode == 4, done.stderr
    said = f"replica1 ({standby.root}, port {PORT}) does not answer any more"
    assert f"failed: {said}" in done.stderr
    assert "repeating trial 1 after `no answer to a new connection within" in done.stderr
    assert f"error: {said}\n  no answer to a new connection within" in done.stderr
    assert "`pgdyno resume` continues once it answers" in done.stderr
    check_left(primary)
    check_resumed(bench, primary)


def test_one_whose_replay_is_paused_in_mid_trial(pair: tuple[Cluster, Cluster], bench: Bench) -> None:
    primary, standby = pair

    def pause(patch: pytest.MonkeyPatch) -> None:
        standby.sql("SELECT pg_wal_replay_pause()")
        patch.setattr("pgdyno.run.given.replicas.copy_patience_s", lambda _: 2.0)

    try:
        done = run(bench, pair, "2", beside=pause)
    finally:
        standby.sql("SELECT pg_wal_replay_resume()")
    assert done.returncode == 4, done.stderr
    assert f"replica1 ({standby.root}, port {PORT}) does not replay what the primary writes" in done.stderr
    assert "has not come nearer for 2 s; its replay is paused" in done.stderr
    check_left(primary)

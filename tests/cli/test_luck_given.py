"""`bench --dsn` on a server that has bad luck: a clear error, or a trial that is repeated, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgdyno.run import given_server, trial
from pgdyno.run.measured_load import _Observers
from tests.cli.test_apply_given import cloned
from tests.loops import mounted, needs_root
from tests.ready_program import Program, run_program
from tests.tools.pgcluster import PORT, Cluster, running, running_given
from tests.waiting import wait_until

from .program import Bench, run_here

pytestmark = pytest.mark.cluster
LOAD = (
    *("--stock-only", "--workload", "select-only", "--clients", "2", "--rate", "100"),
    *("--rounds", "1", "--warm-up", "0s"),
)
WORKING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND datname LIKE '%_run'"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_given(18) as made:
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


def words(cluster: Cluster, *more: str, scale: int = 1) -> tuple[str, ...]:
    dsn = f"host={cluster.root} port={PORT} user=bench dbname=postgres"
    return ("bench", "--dsn", dsn, *LOAD, "--scale", str(scale), *more)


def run(bench: Bench, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program(arguments, cwd=bench.folder, env=dict(os.environ))


@contextlib.contextmanager
def begun(cluster: Cluster, bench: Bench, *more: str) -> Iterator[Program]:
    """Start a bench; it stands still while its measured load is at work."""
    with bench.started(*words(cluster, *more), stops_at=_Observers.follow) as child:
        assert child.stands_still(), child.communicate()
        assert wait_until(lambda: cluster.sql(WORKING) == "2")
        yield child


def databases(cluster: Cluster) -> str:
    return cluster.sql("SELECT datname FROM pg_database WHERE datname LIKE 'pgdyno%'")


def test_sessions_that_are_killed_fail_the_trial_which_is_repeated(cluster: Cluster, bench: Bench) -> None:
    with begun(cluster, bench, "--duration", "10s") as child:
        cluster.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'")
        child.go_on()
        _, said = child.communicate()
    assert child.returncode == 0, said
    assert "repeating trial 1 after `terminating connection due to administrator command`" in said


def test_a_failover_ends_the_study_and_the_new_primary_goes_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The string names both; the study that was begun with one does not change over within a trial."""
    # It is stopped for good: how long a study waits for its return is not the point.
    monkeypatch.setattr(given_server, "_RETURNS_WITHIN_S", 1.0)
    with running(18) as primary, cloned(primary) as standby:
        primary.sql("CREATE ROLE bench LOGIN CREATEDB")
        with (standby.data / "postgresql.auto.conf").open("a") as conf:
            conf.write(f"primary_conninfo = 'host={primary.root} port={PORT} user=postgres'\n")
        standby.sql("SELECT pg_reload_conf()")
        places = f"host={primary.root},{standby.root} port={PORT},{PORT}"
        dsn = f"{places} user=bench dbname=postgres target_session_attrs=read-write"
        argv = ("bench", "--dsn", dsn, *LOAD, "--scale", "1", "--duration", "10s", "--allow", "busy")
        measure_load, follow = trial.measure_load, _Observers.follow

        def measure_later(*given: Any, **named: Any) -> None:
            # What a standby has replayed, its primary may learn 10 s later.
            written = primary.sql("SELECT pg_current_wal_lsn()")
            assert wait_until(lambda: standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{written}'") == "t")
            measure_load(*given, **named)

        def fail_over(observers: _Observers, pid: int) -> None:
            follow(observers, pid)
            assert wait_until(lambda: primary.sql(WORKING) == "2")
            primary.stop()
            standby.run("pg_ctl", "-D", str(standby.data), "-w", "-s", "promote")

        monkeypatch.setattr(trial, "measure_load", measure_later)
        monkeypatch.setattr(_Observers, "follow", fail_over)
        ended = run_here(argv, cwd=bench.folder)
        assert (ended.returncode, "the server does not answer any more" in ended.stderr) == (4, True), ended.stderr
        assert "`pgdyno resume` continues" in ended.stderr
        resumed = run(bench, "resume")
        assert resumed.returncode == 0, resumed.stderr
        assert f"at {standby.root}" in resumed.stderr
        assert "_run" not in databases(standby)


def test_connections_that_others_have_taken_meanwhile(cluster: Cluster, bench: Bench) -> None:
    with begun(cluster, bench, "--duration", "6s", "--rounds", "2") as child:
        # Those that are connected stay, and nobody else gets in.
        cluster.sql("ALTER ROLE bench CONNECTION LIMIT 1")
        child.go_on()
        _, said = child.communicate()
    cluster.sql("ALTER ROLE bench CONNECTION LIMIT -1")
    assert (child.returncode, 'too many connections for role "bench"' in said) == (4, True), said
    resumed = run(bench, "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "_run" not in databases(cluster)


def test_no_free_connection_at_all(cluster: Cluster, bench: Bench) -> None:
    cluster.sql("ALTER ROLE bench CONNECTION LIMIT 0")
    done = run(bench, *words(cluster))
    cluster.sql("ALTER ROLE bench CONNECTION LIMIT -1")
    assert (done.returncode, "wait until others disconnect" in done.stderr) == (4, True), done.stderr
    assert not bench.records


@contextlib.contextmanager
def role_setting(cluster: Cluster, **values: str) -> Iterator[None]:
    try:
        for name, value in values.items():
            cluster.sql(f"ALTER ROLE bench SET {name} = '{value}'")
        yield
    finally:
        cluster.sql("ALTER ROLE bench RESET ALL")


def test_sessions_that_idle_are_ended(cluster: Cluster, bench: Bench) -> None:
    with role_setting(cluster, idle_session_timeout="1ms"):
        done = run(bench, *words(cluster, "--duration", "1s"))
    # pgdyno's own sessions or those of the load, whichever comes first; one that is just sending may not hear the reason.
    said = ("idle-session timeout", "server closed the connection unexpectedly")
    assert (done.returncode, any(one in done.stderr for one in said)) == (4, True), done.stderr
    with role_setting(cluster, idle_session_timeout="4s", idle_in_transaction_session_timeout="4s"):
        done = run(bench, *words(cluster, "--duration", "6s"))
    assert done.returncode == 0, done.stderr
    assert run(bench, "clean", *words(cluster)[1:3], "--yes").returncode == 0
    assert databases(cluster) == ""


def test_statements_that_may_not_take_long(cluster: Cluster, bench: Bench) -> None:
    with role_setting(cluster, statement_timeout="20ms"):
        done = run(bench, *words(cluster, "--duration", "1s", scale=3))
    assert done.returncode in {3, 4}, done.stderr
    assert "statement timeout" in done.stderr
    assert "warning: A timeout of this role may end the loading of data." in done.stderr
    assert "hint: this role or server has a statement_timeout: say options='-c statement_timeout=0'" in (
        " ".join(done.stderr.split())
    )
    assert "_run" not in databases(cluster)


@pytest.fixture
def small() -> Iterator[Cluster]:
    """A server with room for 60 MB beside what initdb made; its WAL lies elsewhere, so that it outlives a full disk."""
    with running_given(18) as made:
        made.sql("CHECKPOINT")
        made.stop()
        base, aside = made.data / "base", made.root / "aside"
        base.rename(aside)
        owner = f"uid={made.user.uid},gid={made.user.gid},mode=0700"
        with mounted("none", base, "-t", "tmpfs", "-o", f"size=85m,{owner}"):
            base_size = sum(one.stat().st_size for one in aside.rglob("*") if one.is_file())
            assert base_size < 30 * 2**20
            shutil.copytree(aside, base, dirs_exist_ok=True)
            for one in base.rglob("*"):
                shutil.chown(one, made.user.uid, made.user.gid)
            made.start()
            yield made
            made.stop()
        base.rmdir()
        aside.rename(base)


@needs_root
def test_a_disk_that_is_full_while_data_are_loaded_or_copied(small: Cluster, bench: Bench) -> None:
    small.sql("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS one")
    done = run(bench, *words(small, "--duration", "1s", scale=10))
    assert (done.returncode, "No space left on device" in done.stderr) == (4, True), done.stderr
    assert "the server's disk is full: load less data" in done.stderr
    assert databases(small) == ""
    done = run(bench, *words(small, "--duration", "1s", "--out", "copied", scale=2))
    assert (done.returncode, "No space left on device" in done.stderr) == (4, True), done.stderr
    assert "the server's disk is full: load less data" in done.stderr
    assert "_run" not in databases(small)
    # There is room for less.
    assert run(bench, "clean", *words(small)[1:3], "--yes").returncode == 0
    done = run(bench, *words(small, "--duration", "1s", "--out", "less", scale=1))
    assert done.returncode == 0, done.stderr
    assert small.sql("SELECT count(*) FROM kept") == "1000"

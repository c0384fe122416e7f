"""`compare --dsn --design live` as users run it: frozen clients keep nobody waiting, and nothing of them is left."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgdyno.record.store import open_record
from pgdyno.record.transactions.slices import SliceWriter, read_slices
from tests.cli.experiments import count_slices, read_report, verdict_of
from tests.cli.program import Bench
from tests.run.test_privileges import pooling
from tests.tools.pgcluster import PORT, Cluster, running
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

# Each client is within a transaction, and holds a row that a client of the other loads wants, for nearly all of the time.
HOLDING = """BEGIN;
UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = :client_id + 1;
SELECT pg_sleep({seconds});
END;
"""
SHORT = ("--scale", "1", "--warm-up", "0s", "--duration", "1s", "--design", "live")
# Variants that differ in clients, threads or mode alone take turns, in which nothing is frozen: see test_turns_given.py.
SCRIPTS = ("--script", "holding.sql", "--script", "longer.sql", "--clients", "2")
SETTINGS = ("--set", "work_mem=4MB", "--set", "work_mem=8MB", "--workload", "holding.sql")
# Shorter than a frozen client waits for its next slice.
TIMEOUT = "ALTER ROLE plain SET idle_in_transaction_session_timeout = '200ms'"


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        made.sql("CREATE ROLE plain LOGIN CREATEDB")
        yield made


on_15 = pytest.mark.parametrize("cluster", [15], indirect=True)
on_18 = pytest.mark.parametrize("cluster", [18], indirect=True)


@pytest.fixture
def folder(bench: Bench) -> Bench:
    (bench.folder / "holding.sql").write_text(HOLDING.format(seconds=0.01))
    (bench.folder / "longer.sql").write_text(HOLDING.format(seconds=0.04))
    return bench


def compare(folder: Path | Cluster, *words: str) -> tuple[str, ...]:
    place = folder.root if isinstance(folder, Cluster) else folder
    dsn = f"host={place} port={PORT} user=plain dbname=postgres"
    return ("compare", "--dsn", dsn, *SHORT, "--detect", "90%", "--confidence", "50%", *words, "--out", "out")


def copies(cluster: Cluster) -> str:
    return cluster.sql("SELECT datname FROM pg_database WHERE datname LIKE '%_run'")


def loads(cluster: Cluster) -> str:
    """All pgbench processes that are connected to a cluster, frozen or not."""
    words = f"pgbench .*{cluster.root}"
    return subprocess.run(["pgrep", "-af", words], capture_output=True, text=True, check=False).stdout


def in_slices(bench: Bench) -> bool:
    return sum(count_slices(bench.folder / "out", f"{number:04}") for number in range(3, 6)) >= 2


@on_18
def test_a_longer_script_is_slower_also_after_a_kill(cluster: Cluster, folder: Bench) -> None:
    cluster.sql(TIMEOUT)
    with folder.started(*compare(cluster, *SCRIPTS), stops_at=SliceWriter.add) as process:
        assert process.stands_still(lambda: in_slices(folder)), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=600)
    # The kernel ends frozen processes, too, and the server the sessions of their clients, within their transactions.
    assert wait_until(lambda: loads(cluster) == ""), loads(cluster)
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE '%_run'"
    assert wait_until(lambda: cluster.sql(sessions) == "0")
    assert len(copies(cluster).split()) >= 3
    done = folder.run("resume", "out")
    assert done.returncode == 0, done.stderr
    assert "ask for no idle_in_transaction_session_timeout" in done.stderr
    assert (copies(cluster), loads(cluster)) == ("", "")
    record = folder.folder / "out"
    report = read_report(record)
    assert report["experiment"]["design"] == "live"
    verdict = verdict_of(report, "longer.sql")
    # A client that sleeps four times as long does a quarter as much, and more where the CPUs are full.
    assert (verdict["kind"], verdict["effect_ratio"] < -0.3) == ("slower", True), verdict
    store = open_record(record)
    trials = [trial for trial in store.read_trials() if not trial.planned.is_observed]
    slices = []
    for trial in trials:
        folder_of = store.trial_dir(trial.planned.number)
        slices += read_slices(folder_of)
        # What others in the same server do at the same time is no figure of this load.
        assert "xact_commit_count" in trial.counters_after
        assert "wal_bytes" not in trial.counters_after
        assert "idle_in_transaction_session_timeout" not in trial.values
    slices.sort(key=lambda one: one.begin_monotonic_s)
    assert all(one.end_monotonic_s <= next_.begin_monotonic_s for one, next_ in itertools.pairwise(slices))
    assert {one.counts["cpu_s"] for one in slices} == {None}
    text = (record / "report.md").read_text()
    assert "Live pairs on one server" in text
    # That of a frozen one says nothing.
    assert "On average its threads ran" not in text


@on_18
def test_scripts_are_compared_each_in_its_own_transactions(cluster: Cluster, folder: Bench) -> None:
    # Each of them naps, which makes the difference and leaves the CPUs to the tests beside it.
    row = "UPDATE pgbench_tellers SET tbalance = tbalance + {n} FROM pg_sleep(0.001) WHERE tid = :client_id + 1;\n"
    (folder.folder / "many.sql").write_text("".join(row.format(n=n) for n in range(10)))
    (folder.folder / "one.sql").write_text(row.format(n=45))
    dsn = f"host={cluster.root} port={PORT} user=plain dbname=postgres"
    # Statements are timed, and counted, in the warm-up.
    rest = ("--scale", "1", "--clients", "2", "--warm-up", "1s", "--duration", "1s", "--design", "live")
    few = ("--detect", "90%", "--confidence", "50%", "--out", "out")
    done = folder.run("compare", "--dsn", dsn, "--script", "many.sql", "--script", "one.sql", *rest, *few)
    assert done.returncode == 0, done.stderr
    record = folder.folder / "out"
    verdict = verdict_of(read_report(record), "one.sql")
    assert verdict["kind"] == "faster", verdict
    ran = {(trial.planned.variants[0], *trial.argv) for trial in open_record(record).read_trials()}
    assert all(any(word.endswith(f"{name}@1") for word in argv) for name, *argv in ran)
    assert "statements of a transaction: 10 in many.sql, 1 in one.sql" in (record / "report.md").read_text()


@on_15
def test_ctrl_c_in_a_slice_through_a_pooler_of_whole_sessions(cluster: Cluster, folder: Bench) -> None:
    # PgBouncer takes no options, by which the load's sessions would lift the role's timeout.
    cluster.sql("ALTER ROLE plain RESET idle_in_transaction_session_timeout")
    with pooling(cluster, mode="session", database="*") as pooled:
        with folder.started(*compare(pooled, *SCRIPTS), stops_at=SliceWriter.add) as process:
            assert process.stands_still(lambda: in_slices(folder)), process.communicate()
            process.send_signal(signal.SIGINT)
            process.go_on()
            _, said = process.communicate(timeout=600)
        assert process.returncode == 130, said
        assert (copies(cluster), loads(cluster)) == ("", "")


@on_15
def test_what_is_refused_before_anything_is_loaded(cluster: Cluster, folder: Bench) -> None:
    cluster.sql(TIMEOUT)
    databases = "SELECT string_agg(datname, ' ') FROM pg_database"
    before = cluster.sql(databases)
    # Three times 33, of the 97 that are free.
    done = folder.refuse(*compare(cluster, "--clients", "33", *SETTINGS))
    assert (done.returncode, "99 clients" in done.stderr, "--design paired" in done.stderr) == (3, True, True), (
        done.stderr
    )
    with pooling(cluster, mode="transaction") as pooled:
        done = folder.refuse(*compare(pooled, *SCRIPTS))
        assert (done.returncode, "a session of the pooler" in done.stderr) == (2, True), done.stderr
    with pooling(cluster, mode="session", database="*") as pooled:
        done = folder.refuse(*compare(pooled, *SCRIPTS))
        assert (done.returncode, "idle_in_transaction_session_timeout would end" in done.stderr) == (2, True), (
            done.stderr
        )
    assert cluster.sql(databases) == before
    assert not (folder.folder / "out").exists()

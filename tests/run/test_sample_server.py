from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import pgdyno
from pgdyno.facts.views import server_counters
from pgdyno.run.host.helper import helper_argv
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from tests.facts.clusters import VERSIONS, Cluster, made_cluster
from tests.run.sampler_lines import read_lines, read_rest, read_until
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster
SAMPLER = "pgdyno.run.sample.server_sampler"


@pytest.fixture(params=[15, 18], scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with made_cluster(request.param) as made:
        # Its commits would count.
        made.start(fsync="off", autovacuum="off")
        with sql.connect(made.address) as connection:
            sql.create_database(connection, "watched")
        yield made


def start(cluster: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    where = ("--conninfo", cluster.address.aside().conninfo(), "--watched-database", "watched")
    argv = helper_argv(SAMPLER, *where, *arguments)
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    process.terminate()
    lines, said = read_rest(process)
    assert said == ""
    return lines


def connect_watched(cluster: Cluster) -> psycopg.Connection[dict[str, Any]]:
    return psycopg.connect(
        host=str(cluster.root), user="postgres", dbname="watched", autocommit=True, row_factory=psycopg.rows.dict_row
    )


SLEEP = ("client backend", "active", "Timeout", "PgSleep")
# Ended from outside, and still a commit.
NAP = "DO $$ BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END $$"


def seen_waits(line: dict[str, Any]) -> dict[tuple[str | None, ...], int]:
    return {tuple(key): count for *key, count in line["waits"]}


def test_counters_waits_and_what_it_costs(cluster: Cluster) -> None:
    process = start(cluster, "--interval", "0.5", "--looks", "5")
    header, first = read_lines(process, 2)
    with connect_watched(cluster) as worker, connect_watched(cluster) as sleeper:
        for _ in range(40):
            worker.execute("SELECT 1")
        nap = threading.Thread(target=sleeper.execute, args=(NAP,))
        nap.start()
        # The first in which it slept at all looks, which are five unless the machine is too busy.
        sleeper_lines = read_until(process, lambda line: line["n"] == 5 == seen_waits(line).get(SLEEP))
        sleeper.cancel()
        nap.join()
    names = header["counters"]
    assert names == [c.name for c in server_counters(header["version_num"] // 10_000).direct]
    # The two are gone, and report what they did.
    commits = names.index("xact_commit_count")
    after_lines = read_until(process, lambda line: line["c"][commits] - first["c"][commits] >= 41)
    after_lines += read_lines(process, 2)
    last = finish(process)
    lines = [first, *sleeper_lines, *after_lines]
    # Forty, the sleep, and the two sign-ons; the sampler's own fourteen a second are in another database.
    assert lines[-1]["c"][commits] - first["c"][commits] <= 45
    lsn = [line["c"][names.index("wal_insert_lsn_bytes")] for line in lines]
    assert lsn == sorted(lsn)
    full = sleeper_lines[-1]
    seen = seen_waits(full)
    assert seen["checkpointer", None, "Activity", "CheckpointerMain"] >= 3
    # The sleeper, and the worker that waits idle; not the sampler's own backend.
    assert sum(count for key, count in seen.items() if key[0] == "client backend") == 10
    assert full["t"] <= full["until"]
    costs = [line["cost_s"] for line in lines]
    assert costs == sorted(costs)
    assert last[-1]["end"] == "signal 15"


def test_a_lock_waiter_is_seen_as_one(cluster: Cluster) -> None:
    with connect_watched(cluster) as holder, connect_watched(cluster) as waiter:
        holder.execute("CREATE TABLE IF NOT EXISTS held (i int)")
        holder.execute("BEGIN")
        holder.execute("LOCK TABLE held")
        wait = threading.Thread(target=waiter.execute, args=("SELECT count(*) FROM held",))
        wait.start()
        query = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted"
        while holder.execute(query).fetchall() != [{"n": 1}]:
            time.sleep(0.02)
        process = start(cluster, "--interval", "0.3", "--looks", "3")
        lines = read_lines(process, 4)
        finish(process)
        holder.execute("COMMIT")
        wait.join()
    seen = seen_waits(lines[-1])
    looks = lines[-1]["n"]
    assert 1 <= looks <= 3
    assert seen["client backend", "active", "Lock", "relation"] == looks
    assert seen["client backend", "idle in transaction", "Client", "ClientRead"] == looks


def test_rows_of_io_are_sent_when_they_change(cluster: Cluster) -> None:
    process = start(cluster, "--interval", "0.2", "--looks", "1")
    header, first, *_ = read_lines(process, 4)
    if header["version_num"] < 160_000:
        finish(process)
        assert first["io"] == []
        return
    with connect_watched(cluster) as worker:
        worker.execute("CREATE TABLE IF NOT EXISTS filled AS SELECT generate_series(1, 20000) i")
    extended = header["io"].index("io_extend_bytes")

    def extended_bytes(line: dict[str, Any]) -> int:
        return sum(row[extended] for row in line["io"] if row[:3] == ["client backend", "relation", "bulkwrite"])

    lines = read_until(process, lambda line: extended_bytes(line) - extended_bytes(first) >= 20_000 * 28)
    lines += read_lines(process, 4)
    finish(process)
    assert sum(len(line["io"]) for line in lines) < len(lines) * len(first["io"])


def test_a_lost_server_is_its_last_word_and_no_traceback() -> None:
    with made_cluster(18) as cluster:
        cluster.start(fsync="off")
        with sql.connect(cluster.address) as connection:
            sql.create_database(connection, "watched")
        process = start(cluster, "--interval", "0.3", "--looks", "3")
        read_lines(process, 3)
        cluster.kill()
        lines, said = read_rest(process)
    assert lines[-1]["end"].startswith("failed: ")
    assert said == ""
    assert process.returncode == 1


WAIT = """
import signal, time
from pgdyno.run.sample.lines import STOP_SIGNALS, await_stop, watch_for_halt

signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
halted = watch_for_halt()
until_s = time.monotonic() + 2
print(until_s, flush=True)
print(await_stop(until_s), halted.wait(600), flush=True)
print(await_stop(until_s + 600))
"""


def test_one_that_was_halted_for_longer_than_it_waits_is_not_ended_by_that() -> None:
    """As by `docker pause`, after which sigtimedwait() of Python returns a signal that never came."""
    with subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        until_s = float(child.stdout.readline())
        # Then both threads sleep, and have no other reason to.
        assert wait_until(lambda: [*map(read_state, Path(f"/proc/{child.pid}/task").iterdir())] == ["S", "S"])
        child.send_signal(signal.SIGSTOP)
        while time.monotonic() < until_s + 0.1:
            time.sleep(0.1)
        child.send_signal(signal.SIGCONT)
        heard = child.stdout.readline()
        child.terminate()
        assert (heard, child.stdout.readline()) == ("None True\n", f"{signal.SIGTERM.value}\n")


def read_state(place: Path) -> str:
    return (place / "stat").read_text().rpartition(")")[2].split()[0]


def halt(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    # Else the one signal takes back the other.
    assert wait_until(lambda: read_state(Path(f"/proc/{pid}")) in "TZ")
    os.kill(pid, signal.SIGCONT)


@pytest.fixture
def prober(cluster: Cluster, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """One that has written already."""
    argv, written = helper_argv("pgdyno.run.sample.prober", "--conninfo", cluster.address.conninfo()), tmp_path / "out"
    with sql.connect(cluster.address) as connection:
        sql.create_probes(connection)
        with written.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=subprocess.PIPE, text=True) as child:
            assert wait_until(lambda: written.read_bytes().count(b"\n") >= 3 or child.poll() is not None)
            yield child
            child.kill()
        connection.execute("DROP TABLE pgdyno_probe")


def say_end(prober: subprocess.Popen[str]) -> tuple[str, int]:
    assert prober.stderr is not None
    return prober.stderr.read(), prober.wait()


HALTED = ("it was halted, and cannot tell for how long no write was taken\n", 1)


def test_a_prober_that_was_halted_between_two_writes_says_so(prober: subprocess.Popen[str]) -> None:
    """It would tell the halt as a time without service."""
    while prober.poll() is None:
        # Nearly all of its time it waits for the next write.
        halt(prober.pid)
        time.sleep(0.05)
    assert say_end(prober) == HALTED


def test_a_prober_that_was_halted_in_a_write_says_so(cluster: Cluster, prober: subprocess.Popen[str]) -> None:
    threads = Path(f"/proc/{prober.pid}/task")
    with sql.connect(cluster.address) as locker, locker.transaction():
        locker.execute("LOCK TABLE pgdyno_probe")
        waiting = "SELECT count(*) AS seen FROM pg_locks WHERE NOT granted"
        assert wait_until(lambda: locker.execute(waiting).fetchall()[0]["seen"] == 1)
        # The thread that is woken by a halt ends with it; libraries have more of them.
        count = len(list(threads.iterdir()))
        while len(list(threads.iterdir())) == count:
            halt(prober.pid)
            time.sleep(0.05)
    assert say_end(prober) == HALTED


@pytest.mark.parametrize("module", ["pinger", "pooler_sampler", "prober", "server_sampler"])
def test_no_library_has_threads_there_which_would_take_the_signal_that_is_to_end_it(module: str) -> None:
    count = f"import os, pgdyno.run.sample.{module}; print(len(os.listdir('/proc/self/task')))"
    assert subprocess.check_output([sys.executable, "-c", count]) == b"1\n"


def test_only_what_knows_of_halts_waits_for_signals() -> None:
    package = Path(pgdyno.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "sigtimedwait(" in path.read_text()] == ["lines.py"]


def test_no_server_is_its_only_word(cluster: Cluster) -> None:
    nowhere = Address(host="/nowhere", port=1, user="postgres").conninfo()
    argv = helper_argv(SAMPLER, "--conninfo", nowhere, "--watched-database", "watched")
    done = subprocess.run(argv, check=False, capture_output=True, timeout=600)
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["end"].startswith("failed: cannot connect to the server")
    assert done.stderr == b""
    assert done.returncode == 1


def test_no_function_of_somebody_else_runs(cluster: Cluster) -> None:
    """Of arguments that fit better, it would be preferred to that of pg_catalog, and run as the role of the sampler."""
    made = (
        "CREATE FUNCTION public.pg_stat_get_activity(text, OUT pid int, OUT state text, OUT backend_type text, OUT wait_event_type"
        " text, OUT wait_event text) RETURNS SETOF record LANGUAGE plpgsql AS $$ BEGIN RAISE 'ran'; END $$"
    )
    with sql.connect(cluster.address.aside()) as connection:
        connection.execute(made)
        # Whoever has it so, has views of his own before those of the server.
        connection.execute("CREATE VIEW public.pg_stat_wal AS SELECT 1 / 0 AS wal_records")
        connection.execute("ALTER ROLE postgres SET search_path = public, pg_catalog")
    process = start(cluster, "--interval", "0.2", "--looks", "2")
    header, first = read_lines(process, 2)
    finish(process)
    with sql.connect(cluster.address.aside()) as connection:
        connection.execute("ALTER ROLE postgres RESET search_path")
        connection.execute("DROP FUNCTION public.pg_stat_get_activity(text)")
        connection.execute("DROP VIEW public.pg_stat_wal")
    assert "wal_records_count" in header["counters"]
    assert None not in first["c"]


def test_a_database_that_goes_away_leaves_empty_counters(cluster: Cluster) -> None:
    with sql.connect(cluster.address) as connection:
        connection.execute("CREATE DATABASE fleeting")
        process = start(cluster, "--interval", "0.2", "--looks", "1", "--watched-database", "fleeting")
        _, first = read_lines(process, 2)
        connection.execute("DROP DATABASE fleeting")
        read_until(process, lambda line: line["c"] == [])
    finish(process)
    assert first["c"]


@pytest.mark.parametrize("major", [version for version in VERSIONS if version.values[0] in {16, 17}])
def test_it_runs_on_the_other_versions_too(major: int) -> None:
    with made_cluster(major) as cluster:
        cluster.start(fsync="off")
        process = start(cluster, "--interval", "0.2", "--looks", "2", "--watched-database", "postgres")
        began_s = time.monotonic()
        header, *lines = read_lines(process, 4)
        last = finish(process)
    assert header["version_num"] // 10_000 == major
    assert all(len(line["c"]) == len(header["counters"]) and None not in line["c"] for line in lines)
    assert header["io"][3:]
    assert began_s < last[-1]["t"] < time.monotonic()

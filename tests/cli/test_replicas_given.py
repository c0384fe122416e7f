"""Replicas of a server of the user's as the endpoint of a load: who serves it, what is refused, and what happens when one ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pgdyno.conduct.load.hosts import find_local_pgbench
from pgdyno.record.store import RecordStore, open_record
from pgdyno.record.types import TrialStatus
from pgdyno.run.measured_load import _Observers
from tests.cli.program import Bench, list_descendants, run_here, wait_until
from tests.cli.test_apply_given import cloned
from tests.hosts import Sshd
from tests.ready_program import Program, run_program
from tests.replicas import follow, streaming
from tests.tools.pgcluster import PORT, Cluster, running, running_given

pytestmark = pytest.mark.cluster
LOAD = ("--workload", "select-only", "--clients", "3", "--rate", "200", "--scale", "1", "--warm-up", "0s")
SHORT = (*LOAD, "--stock-only", "--rounds", "1", "--duration", "2s")
SERVED = "SELECT sum(xact_commit) FROM pg_stat_database WHERE datname LIKE 'pgdyno%'"
WORKING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND datname LIKE '%_run'"
CANARY = "canary-7f3b"
OWN = "SELECT datname FROM pg_database WHERE datname LIKE '%_run'"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Cluster, ...]]:
    """A primary and two replicas."""
    with running_given(18) as primary, streaming(primary, 2) as standbys:
        yield primary, *standbys


def dsn(cluster: Cluster) -> str:
    return f"host={cluster.root} port={PORT} user=bench dbname=postgres"


def replicas(*standbys: Cluster) -> str:
    """What names them; user and database are those of the primary."""
    return f"replicas=host={','.join(str(one.root) for one in standbys)} port={PORT}"


def run(bench: Bench, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program(arguments, cwd=bench.folder, env={**os.environ, "COLUMNS": "200", **variables})


def refuse(bench: Bench, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here(arguments, cwd=bench.folder)


def read_record(bench: Bench, done: subprocess.CompletedProcess[str]) -> RecordStore:
    assert done.returncode == 0, done.stderr
    return open_record(bench.record)


@pytest.mark.parametrize("version_major", [15, 18])
def test_clients_are_divided_among_replicas_which_have_what_the_primary_loaded(
    version_major: int, bench: Bench
) -> None:
    with running_given(version_major) as primary, streaming(primary, 2) as standbys:
        check_division(primary, standbys, bench)


def check_division(primary: Cluster, standbys: tuple[Cluster, ...], bench: Bench) -> None:
    primary.sql("GRANT pg_monitor TO bench")
    standbys[0].sql("ALTER SYSTEM SET jit = off")
    standbys[0].sql("ALTER SYSTEM SET work_mem = '8MB'")
    standbys[0].sql("SELECT pg_reload_conf()")
    assert wait_until(lambda: standbys[0].sql("SHOW work_mem") == "8MB")
    done = run(bench, "bench", "--dsn", dsn(primary), "--endpoint", replicas(*standbys), *SHORT, "--json")
    primary.sql("REVOKE pg_monitor FROM bench")
    store = read_record(bench, done)
    record, (trial,) = store.read_record(), store.read_trials()
    assert record.format_version == 7
    assert [one.host for one in record.replicas] == [str(one.root) for one in standbys]
    assert all(one.is_in_recovery for one in record.replicas)
    assert [(part.host, part.endpoint, part.clients) for part in trial.generators] == [
        ("replica1", "replica1", 2),
        ("replica2", "replica2", 1),
    ]
    # Counters are those of the servers that are read from: on the primary nothing of the load was counted.
    (workload,) = json.loads(done.stdout)["workloads"]
    (seen,) = workload["trials"]
    assert trial.growth("conflicts_count") == 0
    commits = trial.growth("xact_commit_count")
    assert commits is not None
    assert commits > 0.9 * 200
    assert {lag["name"] for lag in seen["standbys"]["lags"]} == {"db2", "db3"}
    assert "ping" in {gap.source for gap in trial.gaps}
    # Markdown escapes what the random names of folders may hold.
    page = (store.path / "report.md").read_text().replace("\\", "")
    assert f"replica1 ({standbys[0].root}, port {PORT}) and replica2" in page
    assert "among which the clients are divided evenly" in page
    # Beside what each standby has for itself, such as its connection to the primary.
    differs = f"replica1 ({standbys[0].root}, port {PORT}): It differs from the primary: jit off, not on; work_mem 8MB, not 4MB. "
    assert differs in done.stderr
    assert f"replica2 ({standbys[1].root}, port {PORT}): It differs" not in done.stderr
    assert re.findall(r"^\| (jit|work_mem)\s*\| (\w+)\s*\| (\w+)\s*\| ([\w ]+?)\s*\|", page, re.MULTILINE) == [
        ("jit", "on", "off", "the same"),
        ("work_mem", "4MB", "8MB", "the same"),
    ]
    # The loaded database is kept, and the copy of it is gone from all of them.
    assert primary.sql(OWN) == ""
    assert wait_until(lambda: not any(one.sql(OWN) for one in standbys))


def test_followers_that_are_not_named_need_consent(servers: tuple[Cluster, ...], bench: Bench) -> None:
    primary, standby, _ = servers
    # What a study writes goes to the second replica, too.
    refused = run(bench, "bench", "--dsn", dsn(primary), "--endpoint", replicas(standby), *SHORT)
    assert refused.returncode == 3, refused.stderr
    assert "Other servers follow this one" in refused.stderr
    assert "To see how they do, read from them: --endpoint replicas=CONNINFO. `--allow busy`" in refused.stderr
    assert "none of them uses: 1, not counting replicas that the study reads from" in refused.stderr


def test_the_primary_and_one_replica_of_it_are_read_side_by_side(servers: tuple[Cluster, ...], bench: Bench) -> None:
    primary, standby, _ = servers
    study = f"""
[server]
kind = "given"
dsn = "{dsn(primary)}"
settings = {{ work_mem = "7MB" }}
replicas = ["host={standby.root} port={PORT}"]

[data]
scale = 1

[[workload]]
name = "here"
scripts = ["select-only"]
clients = 2
rate_tps = 200

[[workload]]
name = "there"
scripts = ["memory.sql"]
clients = 2
rate_tps = 200
endpoint = "replicas"

[trials]
rounds = 1
duration = "2s"
warm_up = "1s"
"""
    (bench.folder / "study.toml").write_text(study)
    # It fails in a session that did not ask for the setting.
    (bench.folder / "memory.sql").write_text(
        "SELECT 1 / (current_setting('work_mem') = '7MB')::int FROM pgbench_accounts WHERE aid = 1;\n"
    )
    store = read_record(bench, run(bench, "run", "study.toml", "--allow", "busy"))
    trials = {one.planned.workload: one for one in store.read_trials()}
    for trial in trials.values():
        commits = trial.growth("xact_commit_count")
        assert commits is not None
        assert commits > 0.9 * 400
    # A load at one server is made by one pgbench, and pings go the same way; a role that sees no sessions sees no lag.
    reading = trials["there"]
    assert reading.generators == ()
    reasons = {gap.source: gap.reason for gap in reading.gaps}
    assert {"ping", "server"}.isdisjoint(reasons)
    assert "pg_monitor at the primary" in reasons["pg_stat_replication"]
    assert "How far they lagged was not sampled: this role" in (store.path / "report.md").read_text()


def test_scripts_that_write_are_refused_before_anything_large_is_loaded(
    servers: tuple[Cluster, ...], bench: Bench
) -> None:
    primary, *standbys = servers
    write = "UPDATE pgbench_branches SET bbalance = 1;\n"
    (bench.folder / "write.sql").write_text(write)
    (bench.folder / "read.sql").write_text("SELECT count(*) FROM pgbench_branches;\n")
    words = ("bench", "--dsn", dsn(primary), "--endpoint", replicas(*standbys), *SHORT[2:])
    writes = run(bench, *words, "--workload", "write.sql")
    assert writes.returncode == 2, writes.stderr
    assert "write.sql cannot run on a replica" in writes.stderr
    assert "cannot execute UPDATE in a read-only transaction" in writes.stderr
    builtin = run(bench, *words, "--workload", "simple-update")
    assert builtin.returncode == 2, builtin.stderr
    assert "workload simple-update cannot run on a standby" in builtin.stderr
    assert not bench.records
    assert primary.sql(OWN) == ""
    done = run(bench, *words, "--workload", "read.sql")
    assert done.returncode == 0, done.stderr


def test_a_database_that_is_there_is_read_where_it_is(servers: tuple[Cluster, ...], bench: Bench) -> None:
    primary, *standbys = servers
    primary.sql("CREATE DATABASE app")
    primary.sql("CREATE TABLE t AS SELECT 1 AS n; GRANT SELECT ON t TO bench", database="app")
    (bench.folder / "read.sql").write_text("SELECT n FROM t;\n")
    (bench.folder / "write.sql").write_text("SELECT n FROM t FOR UPDATE;\n")
    words = ("bench", "--dsn", dsn(primary), "--database", "app", "--endpoint", replicas(*standbys))
    load = ("--clients", "2", "--rate", "100", "--stock-only", "--rounds", "1", "--duration", "2s", "--warm-up", "0s")
    refused = run(bench, *words, *load, "--workload", "write.sql")
    assert refused.returncode == 2, refused.stderr
    assert "write.sql cannot run on a replica" in refused.stderr
    # A standby would take it.
    (bench.folder / "alter.sql").write_text("ALTER SYSTEM SET work_mem = '5MB';\n")
    alters = run(bench, *words, *load, "--workload", "alter.sql")
    assert alters.returncode == 2, alters.stderr
    assert "alter.sql may write" in alters.stderr
    # Nobody's consent is needed for what is only read.
    done = run(bench, *words, *load, "--workload", "read.sql", "--out", "read")
    assert done.returncode == 0, done.stderr
    (trial,) = open_record(bench.folder / "read").read_trials()
    assert [part.endpoint for part in trial.generators] == ["replica1", "replica2"]
    primary.sql("DROP DATABASE app")


def write_split(bench: Bench, servers: tuple[Cluster, ...], more: str = "") -> None:
    """A study with a part that writes at the primary and one that reads from both replicas."""
    primary, *standbys = servers
    study = f"""
[server]
kind = "given"
dsn = "{dsn(primary)}"
replicas = ["host={standbys[0].root},{standbys[1].root} port={PORT}"]

[data]
scale = 1

[[workload]]
name = "split"
parts = [
    {{ name = "simple-update", clients = 1, rate_tps = 50, endpoint = "primary" }},
    {{ name = "select-only", clients = 4, rate_tps = 100, endpoint = "replicas" }},
]

[trials]
rounds = 1
duration = "2s"
warm_up = "1s"
"""
    (bench.folder / "split.toml").write_text(study + more)


def test_parts_write_at_the_primary_and_read_from_replicas(servers: tuple[Cluster, ...], bench: Bench) -> None:
    write_split(bench, servers)
    done = run(bench, "run", "split.toml", "--json")
    (trial,) = read_record(bench, done).read_trials()
    assert [(part.part, part.endpoint, part.clients) for part in trial.generators] == [
        ("simple-update", "primary", 1),
        ("select-only", "replica1", 2),
        ("select-only", "replica2", 2),
    ]
    (workload,) = json.loads(done.stdout)["workloads"]
    (seen,) = workload["trials"]
    assert all(part["tps"] > 0.0 for part in seen["parts"])


def load_host(name: str, *more: str) -> str:
    return "\n".join((f"[hosts.{name}]", 'role = "load"', f'ssh = "{name}"', *more, ""))


@contextlib.contextmanager
def asking_for_a_password(servers: tuple[Cluster, ...]) -> Iterator[None]:
    """Let the replicas let nobody in as bench who does not know its password."""
    primary, *standbys = servers
    primary.sql(f"ALTER ROLE bench PASSWORD '{CANARY}'")
    before = [(one.data / "pg_hba.conf").read_text() for one in standbys]
    for one, text in zip(standbys, before, strict=True):
        (one.data / "pg_hba.conf").write_text(f"local all bench scram-sha-256\n{text}")
        one.sql("SELECT pg_reload_conf()")
    is_asked = "SELECT bool_and(rolpassword IS NOT NULL) FROM pg_authid WHERE rolname = 'bench'"
    assert wait_until(lambda: all(one.sql(is_asked) == "t" for one in standbys))
    try:
        yield
    finally:
        for one, text in zip(standbys, before, strict=True):
            (one.data / "pg_hba.conf").write_text(text)
            one.sql("SELECT pg_reload_conf()")
        primary.sql("ALTER ROLE bench PASSWORD NULL")


def test_the_parts_come_from_load_hosts(servers: tuple[Cluster, ...], bench: Bench, by_ssh: Sshd) -> None:
    write_split(bench, servers, load_host("db1") + load_host("db2"))
    with asking_for_a_password(servers):
        assert "password" in run(bench, "hosts", "split.toml").stderr
        known = {"PGPASSWORD": CANARY}
        seen_before = run(bench, "hosts", "split.toml", "--json", **known)
        done = run(bench, "run", "split.toml", "--json", **known)
    assert seen_before.returncode == 0, seen_before.stderr
    assert all(min(one["replica_reach_s"]) > 0.0 for one in json.loads(seen_before.stdout)["hosts"])
    store = read_record(bench, done)
    (trial,) = store.read_trials()
    for path in store.path.rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path
    assert [(part.part, part.endpoint, part.host, part.clients) for part in trial.generators] == [
        ("simple-update", "primary", "db1", 1),
        ("select-only", "replica1", "db1", 1),
        ("select-only", "replica1", "db2", 1),
        ("select-only", "replica2", "db1", 1),
        ("select-only", "replica2", "db2", 1),
    ]
    (workload,) = json.loads(done.stdout)["workloads"]
    (seen,) = workload["trials"]
    assert [(part["name"], part["endpoints"]) for part in seen["parts"]] == [
        ("simple-update", ["primary"]),
        ("select-only", ["replica1", "replica2"]),
    ]
    assert all(part["tps"] > 0.0 for part in seen["parts"])
    # Ways to several servers differ; that to one of them was timed from each host.
    record = store.read_record()
    (load,) = record.plan.loads
    assert record.find_round_trip_s(load, {"db1", "db2"}) is None
    reads = msgspec.structs.replace(load, parts=(), endpoint="replicas")
    of_one = msgspec.structs.replace(record, replicas=record.replicas[:1])
    trips = [host.replica_round_trips_s for host in record.load_hosts]
    assert all(len(each) == 2 and min(each) > 0.0 for each in trips)
    assert record.find_round_trip_s(reads, {"db1", "db2"}) is None
    assert of_one.find_round_trip_s(reads, {"db2"}) == max(trips[1])


@pytest.mark.parametrize(
    ("leads_to_primary", "fact", "words"),
    [
        (False, "db2 does not reach replica2 ({there})", "No such file"),
        (True, "db2 reaches another server", "replica2"),
    ],
)
def test_each_load_host_must_reach_each_replica(
    servers: tuple[Cluster, ...], bench: Bench, by_ssh: Sshd, *, leads_to_primary: bool, fact: str, words: str
) -> None:
    primary, _, far = servers
    # What it is told leads elsewhere there, as a name may.
    elsewhere, real = bench.folder / "pgbench-there", find_local_pgbench().installation.program("pgbench")
    place = primary.root if leads_to_primary else bench.folder
    elsewhere.write_text(f'#!/bin/bash\nexec {real} "${{@//{str(far.root).replace("/", chr(92) + "/")}/{place}}}"\n')
    elsewhere.chmod(0o755)
    hosts = (load_host("db1", f'pgbench = "{real}"'), load_host("db2", f'pgbench = "{elsewhere}"'))
    write_split(bench, servers, "".join(hosts))
    done = run(bench, "run", "split.toml")
    assert done.returncode == 3, done.stderr
    assert fact.format(there=f"{far.root}, port {PORT}") in done.stderr
    assert words in done.stderr
    assert not bench.records
    # So it is seen beforehand.
    looked = run(bench, "hosts", "split.toml")
    assert looked.returncode == 1, looked.stderr
    rows = [line.split() for line in looked.stdout.splitlines()]
    assert rows[0][-2:] == ["to", "replica2"]
    assert [row[:2] for row in rows[1:3]] == [["db1", "load"], ["db2", "load"]]
    assert rows[2][2:] == ["no", "link"]
    assert words in looked.stdout


def test_what_is_no_replica_is_refused(servers: tuple[Cluster, ...], bench: Bench) -> None:
    primary, standby, _ = servers

    def say(*words: str) -> str:
        done = run(bench, "bench", "--dsn", dsn(primary), *words, *SHORT, "--allow", "busy")
        assert done.returncode in {2, 3, 4}, done.stderr
        assert not bench.records
        return done.stderr

    itself = say("--endpoint", replicas(primary))
    assert f"replica1 ({primary.root}, port {PORT}): This is the primary itself, or a copy of it" in itself
    nameless = say("--endpoint", "replicas")
    assert "needs their connection strings" in nameless
    # The second one would stand for a follower that nobody has named.
    twice = say("--endpoint", replicas(standby, standby))
    assert f"replica1 ({standby.root}, port {PORT}) and replica2 ({standby.root}, port {PORT}) are the same" in twice
    role = say("--endpoint", f"{replicas(standby)} user=postgres")
    assert "Another role asks here than at the primary" in role
    missing = say("--endpoint", f"replicas=host={standby.root} port={PORT + 1}")
    assert f"replica1 ({standby.root}, port {PORT + 1}): cannot connect to the server" in missing
    # Made by itself: clusters that tests make alike are copies of one.
    with running(18, initdb=("--wal-segsize=1",)) as stranger:
        stranger.sql("CREATE ROLE bench LOGIN CREATEDB")
        assert "This server is no standby" in say("--endpoint", replicas(stranger))
        with cloned(stranger) as elsewhere:
            assert "This is a standby of another server" in say("--endpoint", replicas(elsewhere))
    hidden = say("--endpoint", f"{replicas(standby)} password=kanarienvogel")
    assert "a study and its record hold no password" in hidden
    assert "kanarienvogel" not in hidden


def test_options_that_do_not_go_with_replicas(bench: Bench) -> None:
    no_server = refuse(bench, "bench", "--endpoint", "replicas=host=db2", *SHORT)
    assert "--standbys N says how many" in no_server.stderr
    empty = refuse(bench, "bench", "--dsn", "host=db1", "--endpoint", "replicas=", *SHORT)
    assert "names no replica" in empty.stderr
    uneven = refuse(bench, "bench", "--dsn", "host=db1", "--endpoint", "replicas=host=a,b port=1,2,3", *SHORT)
    assert "hosts and ports of different numbers" in uneven.stderr
    primary = refuse(bench, "bench", "--dsn", "host=db1", "--endpoint", "primary=password=kanarienvogel", *SHORT)
    assert "the primary is the server itself" in primary.stderr
    broken = refuse(bench, "bench", "--dsn", "host=db1", "--endpoint", "replicas=password=a kanarienvogel", *SHORT)
    assert "what names replicas is no connection string" in broken.stderr
    assert "kanarienvogel" not in primary.stderr + broken.stderr
    nine = ",".join("abcdefghi")
    many = refuse(bench, "bench", "--dsn", "host=db1", "--endpoint", f"replicas=host={nine}", *SHORT)
    each = [word for host in nine.split(",") for word in ("--endpoint", f"replicas=host={host}")]
    compared = refuse(bench, "compare", "--dsn", "host=db1", "--endpoint", "primary", *each, *LOAD[:2])
    for one in (many, compared):
        assert "9 replicas are named, and a load reads from at most 8" in one.stderr
    axis = refuse(bench, "sweep", "endpoint=primary,replicas=host=db2", "--dsn", "host=db1", *LOAD[:2])
    assert "the axis endpoint takes names" in axis.stderr
    assert {one.returncode for one in (no_server, empty, uneven, primary, broken, many, compared, axis)} == {2}


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and a replica that a test may end."""
    with running_given(18) as primary, streaming(primary) as (standby,):
        yield primary, standby


@contextlib.contextmanager
def reading(primary: Cluster, standby: Cluster, bench: Bench, duration: str) -> Iterator[Program]:
    """Start a bench that reads from a replica; it stands still while its measured load is at work there: looking is work of others, too."""
    words = ("bench", "--dsn", dsn(primary), "--endpoint", replicas(standby), *SHORT[:-1], duration, "--allow", "busy")
    with bench.started(*words, stops_at=_Observers.follow) as child:
        assert child.stands_still(), child.communicate()
        assert wait_until(lambda: standby.sql(WORKING) == "3")
        yield child


def test_a_replica_that_ends_in_mid_trial_is_named_and_the_trial_is_repeated(
    pair: tuple[Cluster, Cluster], bench: Bench
) -> None:
    primary, standby = pair
    with reading(primary, standby, bench, "15s") as child:
        standby.stop()
        standby.start()
        child.go_on()
        _, said = child.communicate()
    assert child.returncode == 0, said
    assert f"failed: replica1 ({standby.root}, port {PORT})" in said
    assert "repeating trial 1" in said
    (trial,) = open_record(bench.record).read_trials()
    assert trial.status is TrialStatus.FINISHED


def test_a_replica_whose_replay_is_paused_is_named_with_how_far_it_is_behind(
    pair: tuple[Cluster, Cluster], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, standby = pair
    monkeypatch.setattr("pgdyno.run.given.replicas.copy_patience_s", lambda _: 1.0)
    standby.sql("SELECT pg_wal_replay_pause()")
    assert wait_until(lambda: standby.sql("SELECT pg_get_wal_replay_pause_state()") == "paused")
    primary.sql("CREATE TABLE written AS SELECT generate_series(1, 1000)")
    done = run_here(("bench", "--dsn", dsn(primary), "--endpoint", replicas(standby), *SHORT), cwd=bench.folder)
    assert done.returncode == 4, done.stderr
    assert f"replica1 ({standby.root}, port {PORT}) does not replay what the primary writes" in done.stderr
    assert "behind and has not come nearer for 1 s; its replay is paused" in done.stderr
    assert not bench.records


def test_a_replica_that_was_promoted_is_no_replica_any_more(pair: tuple[Cluster, Cluster], bench: Bench) -> None:
    primary, standby = pair
    with reading(primary, standby, bench, "15s") as child:
        standby.run("pg_ctl", "-D", str(standby.data), "-w", "-s", "promote")
        child.go_on()
        _, said = child.communicate()
    assert child.returncode == 4, said
    assert f"replica1 ({standby.root}, port {PORT}) is no standby any more" in said


def read_descendants(pid: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the arguments and the environment of each process below one, as /proc shows them to everyone or to its owner."""
    for child in list_descendants(pid):
        # A process may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            place = Path(f"/proc/{child}")
            yield (place / "cmdline").read_bytes(), (place / "environ").read_bytes()


def test_a_password_for_a_replica_is_found_by_libpq_and_kept_nowhere(bench: Bench) -> None:
    secret = "kanarienvogel"
    with running(18, conf="password_encryption = 'scram-sha-256'\n") as primary:
        primary.sql(f"CREATE ROLE bench LOGIN CREATEDB PASSWORD '{secret}'")
        with cloned(primary) as standby:
            follow(standby, primary)
            (standby.data / "pg_hba.conf").write_text("local all postgres trust\nlocal all all scram-sha-256\n")
            standby.sql("SELECT pg_reload_conf()")
            words = ("bench", "--dsn", dsn(primary), "--endpoint", replicas(standby), *SHORT)
            without = run(bench, *words)
            assert without.returncode == 4, without.stderr
            assert f"replica1 ({standby.root}, port {PORT}): cannot connect to the server" in without.stderr
            token = bench.folder.parent / "token"
            token.write_text(secret)
            asking = (*words[:-1], "15s", "--password-command", f"cat {token}")
            # Of a process that is forked and not started, /proc shows another's environment.
            options = {"cwd": bench.folder, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "prefix": ("env",)}
            with Program(asking, **options) as child:
                while standby.sql(WORKING) != "3":
                    assert child.poll() is None, child.communicate()
                    time.sleep(0.1)
                seen: set[tuple[bytes, bytes]] = set()

                def are_all_seen() -> bool:
                    # One that is just being started shows the arguments of the program that starts it.
                    seen.update(read_descendants(child.pid))
                    wanted = (b"pgbench", b"server_sampler", b"ping")
                    return all(any(program in arguments for arguments, _ in seen) for program in wanted)

                assert wait_until(lambda: are_all_seen() or child.poll() is not None)
                assert are_all_seen(), seen
                said = child.communicate()
            token.unlink()
            assert child.returncode == 0, said
            assert not any(secret.encode() in text for texts in seen for text in texts)
            assert (trial := open_record(bench.record).read_trials()[0]).status is TrialStatus.FINISHED
            assert {"server", "ping"}.isdisjoint({gap.source for gap in trial.gaps})
    kept = [path for path in bench.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert kept == []
    assert secret not in "".join(said)

"""`bench --dsn` as a user runs it, on servers that only a connection string names."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pgdyno.record.generators.turns import find_turn_folders
from pgdyno.record.pgbench.output import parse_summary
from pgdyno.record.transactions.slices import read_slices
from pgdyno.run.given.conninfo import connect
from tests.cli.experiments import finished_trials, list_unseen
from tests.given import LOG_PREFIX, list_unexpected
from tests.ready_program import Program, run_program
from tests.run.test_privileges import pooling
from tests.tools.delay_proxy import delaying, read_held
from tests.tools.pgcluster import LOOPBACK, PORT, Cluster, running
from tests.waiting import wait_until

from .program import Bench

pytestmark = pytest.mark.cluster
SECRET = "kanari:/vogel@7"
ENCODED = "kanari%3A%2Fvogel%407"
HURRIED = (
    "--workload",
    "tpcb-like",
    "--scale",
    "1",
    "--clients",
    "2",
    "--rounds",
    "1",
    "--duration",
    "2s",
    "--warm-up",
    "0s",
)
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'bench'"
# Leaves the CPUs to the tests beside it.
SHORT = (*HURRIED, "--rate", "100")


@pytest.fixture(scope="module", params=(15, 18))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with running(request.param) as made:
        # The embedded server was built without TLS; the distribution's takes nothing else over TCP.
        has_tls = request.param == 15
        with (made.data / "pg_hba.conf").open("w") as hba:
            kind = "hostssl" if has_tls else "host"
            hba.write(f"local all all trust\n{kind} all all all scram-sha-256\n")
        made.stop()
        certificate = made.make_certificate() if has_tls else None
        with (made.data / "postgresql.conf").open("a") as conf:
            conf.write(
                f"log_statement = all\nlog_line_prefix = '{LOG_PREFIX}'\npassword_encryption = 'scram-sha-256'\nssl = {'on' if certificate else 'off'}\n"
            )
        made.start(f"listen_addresses={LOOPBACK}")
        made.sql(f"CREATE ROLE bench LOGIN CREATEDB PASSWORD '{SECRET}'")
        made.sql("CREATE DATABASE neighbour")
        made.sql("CREATE TABLE kept AS SELECT 1 AS one", database="neighbour")
        yield made


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


# Only what SQL says of a server differs between the versions; what follows is not about that.
on_15 = pytest.mark.parametrize("cluster", [15], indirect=True)
on_18 = pytest.mark.parametrize("cluster", [18], indirect=True)


def uri(cluster: Cluster, user: str = "bench") -> str:
    return f"postgresql://{user}@/postgres?host={cluster.root}&port={PORT}"


def run(bench: Bench, *words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_program(words, cwd=bench.folder, env={**os.environ, **(environment or {})})


def databases(cluster: Cluster) -> list[str]:
    return sorted(cluster.sql("SELECT datname FROM pg_database WHERE datname LIKE 'pgdyno%'").split())


def test_a_plain_role_gets_a_report(cluster: Cluster, bench: Bench) -> None:
    before, log = cluster.dump("neighbour"), cluster.root / "server.log"
    begins = len(log.read_text(errors="replace"))
    done = run(bench, "bench", "--dsn", uri(cluster), *SHORT, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["host"] is None
    assert document["given"]["role"] == "bench"
    (workload,) = document["workloads"]
    assert workload["tps"]["value"] > 0
    # pgbench ran here, whoever sees the server's machine.
    assert 0.0 < workload["trials"][0]["shares"]["load_generator_thread_ratio"] <= 1.0
    # The server runs here, too, and is no other program.
    shares = workload["trials"][0]["shares"]
    assert shares["load_generator_others_ratio"] < shares["load_generator_cpu_ratio"]
    # What the server refuses to the role is rolled back, in another database.
    assert workload["trials"][0]["counts_per_transaction"]["xact_rollback_count"] == 0.0
    assert cluster.dump("neighbour") == before
    assert list_unexpected(log.read_text(errors="replace")[begins:], role="bench") == []
    report = (bench.record / "report.md").read_text()
    assert "No GRANT" in report or "GRANT pg_monitor" in report
    # The loaded database is kept, the trial's copy is not.
    (kept,) = databases(cluster)
    again = run(bench, "bench", "--dsn", uri(cluster), *SHORT)
    assert again.returncode == 0, again.stderr
    assert "reused" in again.stderr
    assert databases(cluster) == [kept]
    cleaned = run(bench, "clean", "--dsn", uri(cluster), "--yes")
    assert cleaned.returncode == 0, cleaned.stderr
    assert f"dropped 1 database from {cluster.root}, port {PORT}" in cleaned.stdout
    assert databases(cluster) == []


@on_18
def test_what_limits_a_load_is_confirmed_on_the_same_server(cluster: Cluster, bench: Bench) -> None:
    (bench.folder / "thinking.sql").write_text("\\sleep 100 ms\nSELECT 1;\n")
    load = ("--workload", "thinking.sql", "--scale", "1", "--clients", "4", "--duration", "4s", "--warm-up", "1s")
    (bench.folder / "token").write_text(f"{SECRET}\n")
    asked = ("--password-command", "cat token")
    dsn = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres"
    done = run(
        bench, "bench", "--dsn", dsn, *asked, "--stock-only", *load, "--rounds", "1", "--out", "thinking", "--yes"
    )
    assert done.returncode == 0, done.stderr
    (workload,) = json.loads((bench.folder / "thinking" / "report.json").read_text())["workloads"]
    assert workload["bottleneck"]["resource"] == "client and network"
    settings = cluster.sql("SELECT name, setting FROM pg_settings ORDER BY 1")
    short = ("--minutes", "2", "--duration", "1s", "--yes")
    refused = run(bench, "explain", "thinking", *asked)
    assert (refused.returncode, "add --confirm" in refused.stderr) == (2, True), refused.stderr
    done = run(bench, "explain", "thinking", "--confirm", *asked, *short)
    assert done.returncode == 0, done.stderr
    assert "clients=8 against clients=4" in done.stderr
    # What is so in every trial is told once.
    assert done.stderr.count("has no such extension") == 1
    (asked,) = json.loads((bench.folder / "thinking" / "confirmations.json").read_text())["confirmations"]
    beside = bench.folder / "thinking" / asked["record"]
    records = [json.loads((one / "record.json").read_text()) for one in (bench.folder / "thinking", beside)]
    assert len({record["given"]["system_identifier"] for record in records}) == 1
    assert cluster.sql("SELECT name, setting FROM pg_settings ORDER BY 1") == settings


@on_15
def test_nobody_is_at_work_on_an_idle_server(cluster: Cluster, bench: Bench) -> None:
    short = ("--workload", "select-only", "--scale", "1", "--clients", "1", "--warm-up", "0s", "--rate", "50")
    done = run(bench, "bench", "--stock-only", "--dsn", uri(cluster), *short, "--rounds", "6", "--duration", "1s")
    assert done.returncode == 0, done.stderr
    (line,) = (one for one in (bench.record / "report.md").read_text().splitlines() if "for the whole server" in one)
    assert line.startswith("- **note**")
    # What pgdyno itself does there around each load was 15 a second.
    assert float((re.findall(r"up to about (\d+)", line) or [0])[0]) < 10.0, line


@on_15
def test_a_password_is_nowhere(cluster: Cluster, bench: Bench) -> None:
    """It is in the string that the user typed, and pgbench and the sampler got it."""
    (bench.folder / "ca.crt").write_bytes((cluster.data / "server.crt").read_bytes())
    dsn = f"postgresql://bench:{ENCODED}@{LOOPBACK}:{PORT}/postgres?sslmode=verify-ca&sslrootcert=ca.crt"
    done = run(bench, "bench", "--dsn", dsn, *SHORT)
    assert done.returncode == 0, done.stderr
    assert json.loads((bench.record / "record.json").read_text())["given"]["is_encrypted"] is True
    trial = json.loads(next(bench.record.glob("trials/*/trial.json")).read_text())
    assert list_unseen(trial) == ["os sampler", "server log", "pg_stat_statements"]
    for file in (one for one in bench.folder.rglob("*") if one.is_file()):
        content = file.read_bytes()
        for form in (SECRET, ENCODED):
            assert form.encode() not in content, file
    assert SECRET not in done.stdout + done.stderr
    assert ENCODED not in done.stdout + done.stderr
    resumed = run(bench, "resume", environment={"PGPASSWORD": SECRET})
    assert resumed.returncode == 0, resumed.stderr
    # The command is good in any folder.
    (words,) = re.findall(r"`pgdyno (clean [^`]*)` drops it", done.stderr)
    elsewhere = Bench(folder=bench.folder / "elsewhere")
    elsewhere.folder.mkdir()
    cleaned = run(elsewhere, *shlex.split(words), "--yes", environment={"PGPASSWORD": SECRET})
    assert (cleaned.returncode, "dropped 1 database" in cleaned.stdout) == (0, True), cleaned.stderr


@on_15
def test_psql_gets_the_password_and_the_encryption_too(cluster: Cluster, bench: Bench) -> None:
    """The file is loaded over the same way as the load's."""
    (bench.folder / "schema.sql").write_text("CREATE TABLE orders AS SELECT generate_series(1, 100) AS id;\n")
    (bench.folder / "count.sql").write_text("SELECT count(*) FROM orders;\n")
    own = ("--init", "schema.sql", "--workload", "count.sql", "--clients", "1", "--rounds", "1")
    dsn = f"postgresql://bench:{ENCODED}@{LOOPBACK}:{PORT}/postgres"
    done = run(bench, "bench", "--dsn", dsn, "--stock-only", *own, "--duration", "1s", "--warm-up", "0s")
    assert done.returncode == 0, done.stderr
    assert (bench.record / "init" / "psql.json").exists()
    for file in (one for one in bench.folder.rglob("*") if one.is_file()):
        content = file.read_bytes()
        for form in (SECRET, ENCODED):
            assert form.encode() not in content, file
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0


@on_18
def test_a_service_file_and_a_password_file(cluster: Cluster, bench: Bench, tmp_path: Path) -> None:
    services, passwords = tmp_path / "services", tmp_path / "passwords"
    services.write_text(f"[mine]\nhost={LOOPBACK}\nport={PORT}\nuser=bench\ndbname=postgres\n")
    escaped = SECRET.replace(":", "\\:")
    passwords.write_text(f"{LOOPBACK}:{PORT}:postgres:bench:{escaped}\n")
    passwords.chmod(0o600)
    environment = {"PGSERVICEFILE": str(services), "PGPASSFILE": str(passwords)}
    done = run(bench, "bench", "--dsn", "service=mine", *SHORT, environment=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads((bench.record / "record.json").read_text())["given"]["is_encrypted"] is False
    cleaned = run(bench, "clean", "--dsn", "", "--yes", environment={**environment, "PGSERVICE": "mine"})
    assert cleaned.returncode == 0, cleaned.stderr
    assert databases(cluster) == []


@on_18
def test_what_is_refused_before_anything_is_loaded(cluster: Cluster, bench: Bench) -> None:
    before = databases(cluster)
    cluster.sql("CREATE ROLE poor LOGIN")
    done = run(bench, "bench", "--dsn", uri(cluster, "poor"), *SHORT)
    assert (done.returncode, "cannot create a database" in done.stderr) == (3, True), done.stderr
    assert "ALTER ROLE poor CREATEDB" in done.stderr
    done = run(bench, "bench", "--dsn", uri(cluster), "--layers")
    assert (done.returncode, "leave out layers" in done.stderr) == (2, True), done.stderr
    crowd = " ".join(SHORT).replace("--clients 2", "--clients 200").split()
    done = run(bench, "bench", "--dsn", uri(cluster), *crowd)
    assert (done.returncode, done.stderr.count("do not fit"), "--design" in done.stderr) == (3, 1, False), done.stderr
    done = run(bench, "bench", "--dsn", uri(cluster), *SHORT, "--cache", "cold")
    assert (done.returncode, "cold caches" in done.stderr) == (2, True), done.stderr
    # Of another role, in another database.
    with connect(f"host={cluster.root} port={PORT} user=postgres dbname=neighbour application_name=pgdyno-study"):
        for words in (["bench", *SHORT], ["clean", "--yes"]):
            done = run(bench, *words, "--dsn", uri(cluster))
            assert (done.returncode, "another pgdyno" in done.stderr) == (3, True), done.stderr
    cluster.sql("SELECT pg_create_physical_replication_slot('follower')")
    done = run(bench, "bench", "--dsn", uri(cluster), *SHORT)
    cluster.sql("SELECT pg_drop_replication_slot('follower')")
    assert (done.returncode, "--allow busy" in done.stderr) == (3, True), done.stderr
    assert not (bench.folder / "pgdyno-records").exists()
    assert databases(cluster) == before


# The proxy reads who connects, which TLS would hide.
@on_18
def test_over_a_network(cluster: Cluster, bench: Bench) -> None:
    """Each way takes 2 ms more: seven exchanges of at least 4 ms are nearly all of a transaction."""
    with delaying((LOOPBACK, PORT), delay_s=0.002, output=bench.folder / "held") as port:
        dsn = f"postgresql://bench:{ENCODED}@{LOOPBACK}:{port}/postgres"
        done = run(bench, "bench", "--dsn", dsn, "--stock-only", *HURRIED, "--json")
    assert done.returncode == 0, done.stderr
    assert "Much of each transaction goes to the network" in done.stderr
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["network"]["exchanges_count"] == 7
    (trial,) = workload["trials"]
    assert trial["network"]["median_ping_ms"] >= 0.99 * 4.0
    # The shortest of all: a step of the wall clock, by which the proxy holds, shortens one. 3.95 was seen.
    assert workload["network"]["ping_ms"]["value"] >= 0.9 * 4.0
    assert trial["network"]["ratio"] == pytest.approx(
        min(1.0, 7 * trial["network"]["ping_ms"] / trial["latency_mean_ms"])
    )
    assert re.search(
        r"The network takes about \d+ % of a transaction: 7 exchanges of", (bench.record / "report.md").read_text()
    )
    assert {"pgbench", "pgdyno-ping"} < {one.program for one in read_held(bench.folder / "held")}
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0


def start(bench: Bench, *words: str) -> subprocess.Popen[str]:
    return Program(words, cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_load(cluster: Cluster, child: subprocess.Popen[str]) -> None:
    """Wait until the measured load, which follows the warm-up, is at work."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench' AND datname LIKE '%_run'"
    while cluster.sql(query) == "0":
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)


@on_15
def test_a_turn_over_tls_and_a_far_network_counts_when_all_are_connected(cluster: Cluster, bench: Bench) -> None:
    """Each way takes 10 ms more, and a thread connects its clients one after the other: that takes a second for eight."""
    (bench.folder / "sleep.sql").write_text("SELECT 1;\n\\sleep 20 ms\n")
    with delaying((LOOPBACK, PORT), delay_s=0.01, output=bench.folder / "held") as port:
        dsn = f"postgresql://bench:{ENCODED}@{LOOPBACK}:{port}/postgres?sslmode=require"
        load = ("--threads", "1", "--workload", "sleep.sql", "--scale", "1", "--duration", "2s", "--warm-up", "0s")
        words = ("compare", "--clients", "1", "--clients", "8", *load, "--minutes", "3", "--dsn", dsn, "--out", "out")
        child = start(bench, *words)
        record = bench.folder / "out"
        # One round: a trial of each load, and of the first once more.
        while not (turns := [one for one in finished_trials(record) if one["planned"]["round"] == 1])[2:]:
            assert child.poll() is None, child.communicate()
            time.sleep(0.1)
        child.kill()
        child.communicate()
    connecting_s: dict[str, float] = {}
    for trial in turns:
        folder = record / f"trials/{trial['planned']['number']:04}"
        for turn, counted in zip(find_turn_folders(folder), read_slices(folder), strict=True):
            printed = parse_summary((turn / "pgbench.stdout").read_text())
            assert printed.initial_connection_time_ms is not None
            connected_s = printed.initial_connection_time_ms / 1e3
            assert counted.settled_monotonic_s - counted.begin_monotonic_s > connected_s
            assert counted.end_monotonic_s > counted.settled_monotonic_s
            (variant,) = trial["planned"]["arms"]
            connecting_s[variant] = max(connected_s, connecting_s.get(variant, 0.0))
    # Eight after each other, each with exchanges for TLS and for its password.
    assert connecting_s["clients=8"] > 8 * 4 * 0.02
    assert wait_until(lambda: cluster.sql(SESSIONS) == "0")
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0


LONG = (
    "--workload",
    "select-only",
    "--scale",
    "1",
    "--clients",
    "2",
    "--rate",
    "100",
    "--rounds",
    "1",
    "--warm-up",
    "0s",
)


@on_15
def test_a_script_runs_and_a_wrong_one_loads_nothing(cluster: Cluster, bench: Bench) -> None:
    before = databases(cluster)
    (bench.folder / "wrong.sql").write_text("SELECT nosuch;\n")
    (bench.folder / "right.sql").write_text("SELECT count(*) FROM pgbench_branches;\n")
    rest = ("--scale", "2", "--clients", "1", "--rounds", "1", "--duration", "1s", "--warm-up", "0s")
    done = run(bench, "bench", "--dsn", uri(cluster), "--workload", "wrong.sql", *rest)
    assert (done.returncode, "nothing is loaded yet" in done.stderr) == (2, True), done.stderr
    assert databases(cluster) == before
    done = run(bench, "bench", "--dsn", uri(cluster), "--workload", "right.sql", "--stock-only", *rest)
    assert done.returncode == 0, done.stderr
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0


@on_18
def test_a_sweep_over_clients_follows_and_is_resumed(cluster: Cluster, bench: Bench) -> None:
    (bench.folder / "sleep.sql").write_text("\\sleep 20 ms\nSELECT 1;\n")
    study = "[server]\nkind = 'given'\ndsn = '{dsn}'\n[data]\nscale = 1\n[[workload]]\nname = 'sleep'\n"
    study += "scripts = ['sleep.sql']\nclients = 2\n[trials]\nrounds = 1\nduration = '2s'\nwarm_up = '0s'\n"
    study += "[scaling]\nclients = [1, 2]\nminutes = 1\n"
    (bench.folder / "study.toml").write_text(study.format(dsn=uri(cluster)))
    child = start(bench, "run", "study.toml", "--out", "out")
    while not list(bench.folder.glob("out/clients/trials/0001/*")):
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 130, said
    assert "take turns on one server" in said
    assert [name for name in databases(cluster) if name.endswith("_run")] == []
    done = run(bench, "resume", "out")
    assert done.returncode == 0, done.stderr
    report = json.loads((bench.folder / "out" / "report.json").read_text())
    assert report["scaling"]["experiment"]["design"] == "live"
    (comparison,) = report["scaling"]["experiment"]["comparisons"]
    assert [point["clients"] for point in comparison["sweep"]["points"]] == [1, 2]
    text = (bench.folder / "out" / "report.md").read_text()
    assert "sleep by clients" in text
    assert "take turns on one server" in text
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0
    # Who asks for a bench gets one, however large the data are.
    child = start(bench, "bench", "--dsn", uri(cluster), "--quick", "--scale", "100")
    assert child.stderr is not None
    seen = next(line for line in child.stderr if "then tpcb-like by 1 to 32 clients" in line)
    why = next(child.stderr)
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert "winning" not in seen
    assert "take turns on one server" in why


@on_18
def test_a_restart_in_the_middle_of_a_trial_is_told_and_the_trial_repeated(cluster: Cluster, bench: Bench) -> None:
    child = start(bench, "bench", "--dsn", uri(cluster), *LONG, "--duration", "15s")
    wait_for_load(cluster, child)
    cluster.stop()
    cluster.start(f"listen_addresses={LOOPBACK}")
    _, said = child.communicate()
    assert child.returncode == 0, said
    assert "failed: the server was restarted in the middle of a trial" in said
    assert "repeating trial 1" in said


@on_15
def test_what_a_kill_leaves_is_taken_up_again(cluster: Cluster, bench: Bench) -> None:
    child = start(bench, "bench", "--dsn", uri(cluster), *LONG, "--duration", "10s")
    wait_for_load(cluster, child)
    child.kill()
    child.communicate()
    # The server ends its sessions by itself.
    assert wait_until(lambda: cluster.sql(SESSIONS) == "0")
    assert sum(name.endswith("_run") for name in databases(cluster)) == 1
    cluster.sql("SELECT pg_create_physical_replication_slot('follower')")
    refused = run(bench, "resume")
    cluster.sql("SELECT pg_drop_replication_slot('follower')")
    assert (refused.returncode, "--allow busy" in refused.stderr) == (3, True), refused.stderr
    record = bench.record / "record.json"
    begun = record.read_text()
    record.write_text(begun.replace('"role": "bench"', '"role": "another"'))
    refused = run(bench, "resume")
    assert (refused.returncode, "as another, now" in refused.stderr) == (3, True), refused.stderr
    record.write_text(begun)
    resumed = run(bench, "resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "reused" in resumed.stderr
    assert sum(name.endswith("_run") for name in databases(cluster)) == 0


@on_18
def test_more_wal_than_allowed_ends_the_study(cluster: Cluster, bench: Bench) -> None:
    # Loading writes more than that, and another test's data would be taken as they are.
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0
    stopped = run(bench, "bench", "--dsn", uri(cluster), *LONG, "--duration", "2s", "--allow", "wal=1MB")
    assert stopped.returncode == 3, stopped.stderr
    assert "of WAL, more than the study may have it write" in stopped.stderr
    assert "the bound is 1 MB" in stopped.stderr
    assert [name for name in databases(cluster) if name.endswith("_run")] == []
    resumed = run(bench, "resume", "--allow", "wal=1GB")
    assert resumed.returncode == 0, resumed.stderr
    for word in ("wal=1", "wal=-1GB", "wal=many"):
        refused = run(bench, "bench", "--dsn", uri(cluster), "--allow", word)
        assert refused.returncode == 2, refused.stderr
        assert "for example --allow wal=200GB" in refused.stderr


@on_18
def test_more_data_than_allowed_are_refused_or_end_the_loading(cluster: Cluster, bench: Bench) -> None:
    assert run(bench, "clean", "--dsn", uri(cluster), "--yes").returncode == 0
    refused = run(bench, "bench", "--dsn", uri(cluster), *LONG, "--duration", "2s", "--allow", "data=20MB")
    assert refused.returncode == 3, refused.stderr
    assert "pgdyno's databases would take 29.9 MB in the server, more than the 20 MB that they may" in refused.stderr
    assert "scale 1 is 15.0 MB, and trials run in a copy of it" in refused.stderr
    assert not (bench.folder / "pgdyno-records").exists()
    # How large a file's tables become shows while they are made.
    (bench.folder / "large.sql").write_text(
        "CREATE TABLE large AS SELECT 1 AS one, repeat('x', 1000) FROM generate_series(1, 10000);\n"
        "SELECT pg_sleep(600);\n"
    )
    (bench.folder / "one.sql").write_text("SELECT one FROM large LIMIT 1;\n")
    own = ("--init", "large.sql", "--workload", "one.sql", "--clients", "1", "--rounds", "1")
    stopped = run(bench, "bench", "--dsn", uri(cluster), *own, "--duration", "1s", "--allow", "data=12MB")
    assert stopped.returncode == 3, stopped.stderr
    assert "in the server, more than they may" in stopped.stderr
    assert "--allow data=200GB" in stopped.stderr
    assert databases(cluster) == []


@on_18
def test_ctrl_c_leaves_the_loaded_database_only(cluster: Cluster, bench: Bench) -> None:
    child = start(bench, "bench", "--dsn", uri(cluster), *LONG, "--duration", "60s")
    wait_for_load(cluster, child)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate()
    assert child.returncode == 130, said
    assert "pgdyno resume" in said
    assert "the loaded database is kept in" in said
    assert [name for name in databases(cluster) if name.endswith("_run")] == []


@pytest.mark.parametrize(("cluster", "mode"), [(15, "session"), (18, "transaction")], indirect=["cluster"])
def test_through_a_pooler(cluster: Cluster, bench: Bench, mode: str) -> None:
    cluster.sql("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN CREATEDB")
    with pooling(cluster, mode=mode) as folder:
        done = run(bench, "bench", "--dsn", f"host={folder} port={PORT} user=plain dbname=postgres", *SHORT)
        assert done.returncode == 4
        assert "a pooler in between must pass on databases that it was not told of" in done.stderr
        assert "plain" not in cluster.sql("SELECT pg_get_userbyid(datdba) FROM pg_database")
    with pooling(cluster, mode=mode, database="*") as folder:
        dsn = f"host={folder} port={PORT} user=plain dbname=postgres"
        done = run(bench, "bench", "--dsn", dsn, *SHORT)
        assert done.returncode == 0, done.stderr
        trial = json.loads(next(bench.folder.glob("pgdyno-records/*/trials/*/trial.json")).read_text())
        shared = ["server sampler"] if mode == "transaction" else []
        assert list_unseen(trial) == ["os sampler", "server log", *shared, "pg_stat_statements"]
        if mode == "transaction":
            refused = run(bench, "bench", "--dsn", dsn, *SHORT, "--mode", "prepared", "--out", "prepared")
            assert (refused.returncode, "loses prepared statements" in refused.stderr) == (2, True), refused.stderr
            compared = ("--workload", "select-only", "--mode", "simple", "--mode", "prepared", "--minutes", "5")
            refused = run(bench, "compare", "--dsn", dsn, *compared, "--scale", "1", "--out", "prepared")
            assert (refused.returncode, "nothing is loaded yet" in refused.stderr) == (2, True), refused.stderr
            assert not (bench.folder / "prepared").exists()
        # Nothing of it stays with a session that others use.
        done = run(bench, "bench", "--dsn", dsn, *SHORT)
        assert done.returncode == 0, done.stderr
        cleaned = run(bench, "clean", "--dsn", dsn, "--yes")
        assert "dropped 1 database" in cleaned.stdout
    cluster.sql("DROP ROLE plain")


def list_compared(bench: Bench) -> set[tuple[str, str]]:
    """Return the variants of the trials so far, each with the work_mem that its sessions had."""
    seen = set()
    for file in bench.folder.glob("pgdyno-records/*/trials/*/trial.json"):
        trial = json.loads(file.read_text())
        (asked,) = trial["planned"]["arms"]
        seen.add((asked, next((one["value"] for one in trial["settings"] if one["name"] == "work_mem"), "4096")))
    return seen


# What sessions get is tested on both, by tests/run/test_given_server.py.
@on_18
def test_settings_of_sessions_are_compared(cluster: Cluster, bench: Bench) -> None:
    rounds = ("--rate", "100", "--clients", "2", "--duration", "1s", "--warm-up", "0s", "--minutes", "5")
    words = ("--set", "work_mem=4MB", "--set", "work_mem=8MB", "--scale", "1", "--workload", "select-only")
    child = start(bench, "compare", "--dsn", uri(cluster), *words, *rounds)
    wanted = {("work_mem=4MB", "4096"), ("work_mem=8MB", "8192")}
    while (seen := list_compared(bench)) < wanted:
        assert child.poll() is None, child.communicate()
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    child.communicate()
    assert seen == wanted
    assert json.loads((bench.record / "record.json").read_text())["plan"]["experiment"]["design"] == "paired"
    refused = run(
        bench, "compare", "--dsn", uri(cluster), "--set", "commit_delay=9", "--duration", "1s", "--out", "other"
    )
    assert (refused.returncode, "GRANT SET ON PARAMETER" in refused.stderr) == (2, True), refused.stderr
    assert not (bench.folder / "other").exists()

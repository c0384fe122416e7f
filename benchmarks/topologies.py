"""Measures what pgdyno says of standbys and poolers that it runs on this machine.

Its parts, each named on the command line or all:

- `modes`: each value of synchronous_commit that waits for the WAL, against `off`, with one standby and three minutes: the verdict and the
  seconds of load that it took. The whole command is run, as a user would.
- `lag`: replay is paused on a standby, a known volume of WAL is written, and the lag that the sampler's query gives is held against the
  growth of the primary's own WAL position.
- `named`: a standby that replays 20 ms late (recovery_min_apply_delay) under remote_apply, and the same without the delay and without
  waiting (local): is the replay named as the limit, and never where no commit waits for it?
- `flush`: a standby whose flushes take 15 ms longer (a preloaded shim, which needs gcc, acts in its data folder only), under
  synchronous_commit = on, where a commit waits for that flush, and under remote_write, where none does: is the flush named first of all
  limits, and never where no commit waits for it?
- `failover`: the primary is killed in each trial of a study, while another program, which shares no code with pgdyno, writes every 10 ms
  through the same list of hosts. The times without service of both are compared.
- `pooled`: a load through a PgBouncer against the same without it, three minutes: the verdict.
- `pooler-aa`: a PgBouncer against another one like it, in live pairs: how often is one called faster or slower?
- `thread`: a PgBouncer held to 1 % of a CPU by a control group (as root), and one that is not: is its thread named as the limit first,
  and never where it has time left?
- `pool`: one server connection for eight clients whose transactions sleep, and one for each: is the pool named as the limit first, and
  never where it is large enough?
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import say, say_share

from pgdyno.run.cluster.home import open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.own_server import OwnServer
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import find_installation
from pgdyno.spec.study import DataSpec, ServerSpec

MODES = ("local", "remote_write", "on", "remote_apply")
MINUTES = 3.0
LOAD = ["--scale", "5", "--clients", "4", "--no-disk", "--standbys", "1", "--yes", "--json"]
BENCH = ("bench", "--stock-only", "--rounds", "1", "--duration", "10s", "--warm-up", "1s", "--workload", "tpcb-like")
WAL_BYTES = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
MESSAGE_BYTES = 100_000
DELAY = "20ms"
REPLAY = "replay of WAL by standby1"
BOTH = ["--endpoint", "primary", "--endpoint", "pool"]
TWICE = ["--endpoint", "pool", "--endpoint", "pool", "--design", "live"]
PER_LOAD = ["--scale", "5", "--no-disk", "--yes", "--json"]
ONE_TRIAL = ["--stock-only", "--rounds", "1", "--duration", "10s", "--warm-up", "2s", "--endpoint", "pool"]
THREAD, POOL = "one thread of the pooler pool", "number of server connections of the pooler pool"
GROUPS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
QUOTA_US, PERIOD_US = 1_000, 100_000
# Each transaction holds its connection for longer than anything else takes.
SLEEPER = "BEGIN;\nSELECT 1;\n\\sleep 5 ms\nEND;\n"


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["modes", "lag", "named", "flush", "failover", "pooled", "pooler-aa", "thread", "pool"]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="default: all")
    parser.add_argument(
        "--times",
        type=int,
        default=3,
        help="cases of each kind in `named`, `flush`, `failover`, `pooler-aa`, `thread` and `pool`",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgdyno-topologies-", dir="/var/tmp") as made:
        folder = Path(made)
        folder.chmod(0o755)
        parts = {
            "modes": ask_modes,
            "lag": hold_lag,
            "named": lambda at: name_replay(at, arguments.times),
            "flush": lambda at: name_flush(at, arguments.times),
            "failover": lambda at: hold_outages(at, arguments.times),
            "pooled": ask_pooled,
            "pooler-aa": lambda at: ask_same(at, arguments.times),
            "thread": lambda at: name_thread(at, arguments.times),
            "pool": lambda at: name_pool(at, arguments.times),
        }
        for part in arguments.parts or parts:
            parts[part](folder)


def run(folder: Path, *words: str, **environment: str) -> dict:
    """Run pgdyno's command line with these additions to its environment, and return its JSON."""
    number = len(list(folder.glob("record-*")))
    argv = [
        sys.executable,
        "-m",
        "pgdyno",
        *words,
        "--home",
        str(folder / "home"),
        "--out",
        str(folder / f"record-{number}"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def ask_modes(folder: Path) -> None:
    """Compare each mode with off."""
    for mode in MODES:
        sets = [word for value in ("off", mode) for word in ("--set", f"synchronous_commit={value}")]
        report = run(folder, "compare", *sets, "--minutes", f"{MINUTES:g}", *LOAD)
        (comparison,) = report["experiment"]["comparisons"]
        question = next(one for one in comparison["questions"] if one["metric"] == "tps")
        verdict = question["verdict"]
        print(mode, verdict["kind"], json.dumps(verdict))
        effect, low, high = (verdict[key] for key in ("effect_ratio", "low_ratio", "high_ratio"))
        is_decided = verdict["kind"] != "inconclusive"
        say(
            f"topologies.modes.{mode}",
            effect,
            low=low,
            high=high,
            n=verdict["n"],
            unit="ratio",
            target="decided against off within 3 minutes",
            holds=is_decided,
        )


@contextmanager
def streaming(folder: Path) -> Iterator[tuple[sql.Connection, sql.Connection]]:
    """Run a server with a standby, and yield a connection to each."""
    with open_home(folder / "home", find_server_user()) as home:
        installation = find_installation(ServerSpec(), user=home.user, software_dir=home.software)
        server = OwnServer(installation=installation, home=home, standbys=1)
        server.load(DataSpec(), 0, settings={}, output_dir=folder, on_activity=lambda _: None)
        server.reset()
        with server.running({}, log_path=folder / "server.log"):
            there = home.slot(1)
            with server.connect() as primary, sql.connect(_at(server, str(there.sockets))) as standby:
                yield primary, standby


def _at(server: OwnServer, host: str) -> object:
    import msgspec

    return msgspec.structs.replace(server.address, host=host)


def hold_lag(folder: Path) -> None:
    """Hold the sampled lag in bytes against the growth of the WAL position."""
    ratios = []
    with streaming(folder) as (primary, standby):
        for size in WAL_BYTES * 3:
            before = _wal_bytes(primary)
            _await_replay(primary, before)
            standby.execute("SELECT pg_wal_replay_pause()")
            _await(standby, "SELECT pg_get_wal_replay_pause_state() = 'paused' AS done")
            begin = _wal_bytes(primary)
            for _ in range(size // MESSAGE_BYTES):
                primary.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', %s))", (MESSAGE_BYTES,))
            primary.execute("SELECT pg_logical_emit_message(true, 'x', 'end')")
            grown = _wal_bytes(primary) - begin
            (row,) = sql.read_standbys(primary, primary.info.server_version // 10_000)
            ratios.append(row["replay_lag_bytes"] / grown)
            print(f"{grown:,} bytes written, {row['replay_lag_bytes']:,} not replayed")
            standby.execute("SELECT pg_wal_replay_resume()")
    ratios.sort()
    say(
        "topologies.lag.bytes_ratio",
        sum(ratios) / len(ratios),
        low=ratios[0],
        high=ratios[-1],
        n=len(ratios),
        unit="ratio",
        target="within 10 % of the WAL position",
        holds=ratios[0] >= 0.9 and ratios[-1] <= 1.1,
    )


def _wal_bytes(connection: sql.Connection) -> int:
    row = connection.execute("SELECT (pg_current_wal_lsn() - '0/0')::int8 AS bytes").fetchone()
    assert row is not None
    return int(row["bytes"])


def _await_replay(primary: sql.Connection, wal_bytes: int) -> None:
    query = f"SELECT count(*) = 1 AS done FROM pg_stat_replication WHERE replay_lsn - '0/0' >= {wal_bytes}"
    _await(primary, query)


def _await(connection: sql.Connection, query: str) -> None:
    # The next commit makes a walreceiver report.
    while not connection.execute(query).fetchall()[0]["done"]:
        pass


def name_replay(folder: Path, times: int) -> None:
    """Count how often a late replay is named, and how often it is where no commit waits for it."""
    named: dict[bool, list[bool]] = {True: [], False: []}
    for is_planted in [True, False] * times:
        mode = (
            ("remote_apply", f"recovery_min_apply_delay={DELAY}")
            if is_planted
            else ("local", f"recovery_min_apply_delay={DELAY}")
        )
        sets = [word for value in (f"synchronous_commit={mode[0]}", mode[1]) for word in ("--set", value)]
        report = run(folder, *BENCH, *sets, *LOAD)
        claims = [one["claim"] for one in report["explanations"]] if report["explanations"] else report["not_judged"]
        print("planted" if is_planted else "not planted", claims)
        named[is_planted].append(any(REPLAY in claim for claim in claims))
    say_share("topologies.named.late_replay", named[True], target=">= 0.95")
    say_share("topologies.named.no_wait", named[False], target="<= 0.05")


SLOW_FLUSH = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
static int is_slow(void) {
    char folder[4096];
    return getcwd(folder, sizeof folder) != NULL && strstr(folder, "/slot-1/") != NULL;
}
int fdatasync(int fd) {
    static int (*real)(int);
    if (real == NULL) real = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    if (is_slow()) usleep(15000);
    return real(fd);
}
"""
FLUSH = "WAL flush of standby1"


def name_flush(folder: Path, times: int) -> None:
    """Count how often a standby's slow flush is named first, and how often it is where no commit waits for it."""
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(SLOW_FLUSH)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    named: dict[str, list[bool]] = {"on": [], "remote_write": []}
    for mode in [*named] * times:
        report = run(folder, *BENCH, "--set", f"synchronous_commit={mode}", *LOAD, LD_PRELOAD=str(library))
        claims = [one["claim"] for one in report["explanations"]] if report["explanations"] else report["not_judged"]
        print(mode, claims)
        named[mode].append(FLUSH in claims[0] if mode == "on" else any(FLUSH in claim for claim in claims))
    say_share("topologies.named.slow_flush", named["on"], target=">= 0.95")
    say_share("topologies.named.flush_not_waited_for", named["remote_write"], target="<= 0.05")


FAILOVER = """
question = "How long is the service away?"
[server]
standbys = 1
[failover]
[data]
scale = 5
[[workload]]
name = "tpcb-like"
clients = 4
[trials]
rounds = {times}
duration = "5s"
warm_up = "1s"
"""
OTHER_CLIENT = """
import sys, time
import psycopg
conninfo, path = sys.argv[1:]
connection = None
with open(path, "w", buffering=1) as output:
    while True:
        due = time.monotonic() + 0.01
        try:
            if connection is None:
                connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=2)
                connection.execute("CREATE TABLE IF NOT EXISTS other_client (at float8)")
            connection.execute("INSERT INTO other_client VALUES (%s)", (due,))
            print(time.monotonic(), file=output)
        except psycopg.Error:
            connection = None
        time.sleep(max(0.0, due - time.monotonic()))
"""


def hold_outages(folder: Path, times: int) -> None:
    """Hold the times without service against those of another client that writes."""
    study = folder / "failover.toml"
    study.write_text(FAILOVER.format(times=times))
    sockets = [folder / "home/work" / name for name in ("sockets", "sock1")]
    hosts = ",".join(map(str, sockets))
    conninfo = f"host={hosts} port=5432 user=pgdyno dbname=postgres target_session_attrs=read-write"
    seen = folder / "other-client"
    with subprocess.Popen([sys.executable, "-c", OTHER_CLIENT, conninfo, str(seen)]) as client:
        try:
            report = run(folder, "run", str(study), "--json")
        finally:
            client.kill()
    (record,) = folder.glob("record-*")
    confirmed = [float(line) for line in seen.read_text().splitlines()]
    differences, outages = [], []
    for path in sorted(record.glob("trials/*/failover.json")):
        steps = json.loads(path.read_text())
        trial = int(path.parent.name)
        (failover,) = (
            one["failover"] for load in report["workloads"] for one in load["trials"] if one["number"] == trial
        )
        # On a busy machine a client may read the clock long after its last write was confirmed, so that the gap may begin late.
        outage = max(
            after - before
            for before, after in itertools.pairwise(confirmed)
            if before < steps["connected_s"] and after > steps["told_s"]
        )
        outages.append(failover["outage_s"])
        differences.append(failover["outage_s"] - outage)
        print(
            f"trial {trial}: {failover['outage_s']:.3f} s, by the other client {outage:.3f} s, by pgbench {failover['load_outage_s']:.3f} s"
        )
    worst = max(differences, key=abs)
    print(
        f"outages {min(outages):.3f} to {max(outages):.3f} s, differences {min(differences):.4f} to {max(differences):.4f} s"
    )
    say(
        "topologies.failover.outage_difference",
        sum(differences) / len(differences),
        low=min(differences),
        high=max(differences),
        n=len(differences),
        unit="s",
        target="within 0.1 s of a 10 ms prober's",
        holds=abs(worst) <= 0.1,
    )


def ask_pooled(folder: Path) -> None:
    """Compare a load through a PgBouncer with the same load without it."""
    for workload in ("select-only", "tpcb-like"):
        words = [
            "--workload",
            workload,
            "--clients",
            "16",
            "--duration",
            "3s",
            "--warm-up",
            "1s",
            "--minutes",
            f"{MINUTES:g}",
        ]
        verdict = find_verdict(run(folder, "compare", *BOTH, *words, *PER_LOAD))
        print(workload, verdict["kind"], json.dumps(verdict))
        effect, low, high = (verdict[key] for key in ("effect_ratio", "low_ratio", "high_ratio"))
        name, is_decided = f"topologies.pooled.{workload}", verdict["kind"] != "inconclusive"
        said = {"unit": "ratio", "target": "decided within 3 minutes", "holds": is_decided}
        say(name, effect, low=low, high=high, n=verdict["n"], **said)


def find_verdict(report: dict) -> dict:
    """Return the verdict on TPS of a comparison of two variants."""
    (comparison,) = report["experiment"]["comparisons"]
    return next(one for one in comparison["questions"] if one["metric"] == "tps")["verdict"]


def ask_same(folder: Path, times: int) -> None:
    """Count how often a PgBouncer is called faster or slower than another one like it."""
    called = []
    for seed in range(1, times + 1):
        words = [
            "--workload",
            "select-only",
            "--clients",
            "16",
            "--duration",
            "2s",
            "--warm-up",
            "1s",
            "--minutes",
            "2",
        ]
        verdict = find_verdict(run(folder, "compare", *TWICE, *words, "--seed", str(seed), *PER_LOAD))
        print(verdict["kind"], verdict["n"], verdict["low_ratio"], verdict["high_ratio"])
        called.append(verdict["kind"] in {"faster", "slower"})
    say_share("topologies.pooled.aa", called, target="<= 0.05")


@contextmanager
def held_pgbouncer(folder: Path) -> Iterator[dict[str, str]]:
    """Yield an environment whose PgBouncer is held to a part of a CPU."""
    user = find_server_user()
    root = next(one for one in GROUPS if (one / "cgroup.procs").exists())
    is_v1 = root.name == "cpu"
    group, programs = root / f"pgdyno-pooler-{os.getpid()}", folder / "held"
    programs.mkdir(exist_ok=True)
    group.mkdir()
    try:
        if is_v1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        else:
            (group / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")
        os.chown(group / "cgroup.procs", user.uid, user.gid)
        program = programs / "pgbouncer"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] || echo $$ > {group}/cgroup.procs\nexec /usr/sbin/pgbouncer "$@"\n'
        )
        program.chmod(0o755)
        yield {"PATH": f"{programs}:{os.environ['PATH']}"}
    finally:
        group.rmdir()


def list_claims(report: dict) -> list[str]:
    """Return what is said to limit a load, the first limit first."""
    return [one["claim"] for one in report["explanations"]] if report["explanations"] else report["not_judged"]


def name_thread(folder: Path, times: int) -> None:
    """Count how often a full thread of PgBouncer is named first, and how often one with time left is."""
    named: dict[bool, list[bool]] = {True: [], False: []}
    words = ["--workload", "select-only", "--clients", "16", *ONE_TRIAL, *PER_LOAD]
    with held_pgbouncer(folder) as held:
        for is_planted in [True, False] * times:
            claims = list_claims(run(folder, "bench", *words, **(held if is_planted else {})))
            print("planted" if is_planted else "not planted", claims)
            named[is_planted].append(bool(claims) and THREAD in claims[0])
    say_share("topologies.named.full_thread", named[True], target=">= 0.95")
    say_share("topologies.named.thread_with_time", named[False], target="<= 0.05")


def name_pool(folder: Path, times: int) -> None:
    """Count how often a pool that is too small is named first, and how often one that is large enough is."""
    named: dict[bool, list[bool]] = {True: [], False: []}
    script = folder / "sleeper.sql"
    script.write_text(SLEEPER)
    words = ["--workload", str(script), "--clients", "8", *ONE_TRIAL, *PER_LOAD]
    for is_planted in [True, False] * times:
        claims = list_claims(run(folder, "bench", *words, "--pool-size", "1" if is_planted else "8"))
        print("planted" if is_planted else "not planted", claims)
        named[is_planted].append(bool(claims) and POOL in claims[0])
    say_share("topologies.named.small_pool", named[True], target=">= 0.95")
    say_share("topologies.named.large_pool", named[False], target="<= 0.05")


if __name__ == "__main__":
    main()

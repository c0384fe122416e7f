"""Captures what real pgbench programs print, byte for byte, as input for the tests of its parser.

    .venv/bin/python tests/tools/capture_pgbench.py [CASE ...]

For each version and case it writes tests/data/pgbench/<version>/<case>/ with pgbench.stdout, pgbench.stderr and
pgbench.json (the form that `pgdyno.run.load.pgbench` writes, so that a capture can be replayed, and the version). Needs root,
for the case of a full disk. It judges nothing: whoever runs it reads the difference before committing it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pgcluster import PORT, Cluster, running

from pgdyno.run.host import process

VERSIONS = (15, 16, 18)
DATA = Path(__file__).parent.parent / "data" / "pgbench"
WORK = Path("/tmp/pgdyno-capture")  # a fixed path, because it shows in what pgbench prints


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run of pgbench: its arguments, and what is done to it meanwhile."""

    name: str
    arguments: str
    database: str = "loaded"
    server: int | None = None
    """Major version of the server; pgbench's own by default."""
    signal_pgbench: signal.Signals | None = None
    kill_server: bool = False
    stderr_is_terminal: bool = False
    versions: tuple[int, ...] = field(default=VERSIONS)


LOAD = (
    Case(name="tpcb-like", arguments="-b tpcb-like -c 4 -j 2 -T 3 -P 1 -r --random-seed=42"),
    Case(name="simple-update", arguments="-n -b simple-update@2 -c 2 -j 1 -T 2"),
    Case(name="select-only-prepared", arguments="-n -b select-only -M prepared -c 2 -j 2 -T 2 -r"),
    Case(name="extended", arguments="-n -b select-only -M extended -c 2 -T 2 -P 1"),
    Case(name="weights", arguments="-n -f transfer.sql@3 -f read.sql@1 -b select-only@6 -c 4 -j 2 -T 3 -P 1 -r"),
    Case(name="weight-zero", arguments="-n -f read.sql@1 -f nap.sql@0 -c 2 -T 2 --failures-detailed -r"),
    Case(name="connect", arguments="-n -b select-only -C -c 2 -T 2 -P 1"),
    Case(name="rate", arguments="-n -b select-only -R 200 -c 2 -T 3 -P 1"),
    Case(name="limit", arguments="-n -f nap.sql -L 20.5 -c 2 -T 3 -P 1"),
    Case(name="rate-and-limit", arguments="-n -f nap.sql -R 300 -L 40 -c 2 -j 2 -T 3 -P 1"),
    Case(name="all-skipped", arguments="-n -f nap.sql@1 -f read.sql@1 -R 5000 -L 1 -c 1 -T 2 -P 1 -r"),
    Case(name="failures", arguments="-n -f hot-row.sql -c 4 -j 2 -T 3 -P 1 -r --failures-detailed"),
    Case(name="retries", arguments="-n -f hot-row.sql -c 4 -j 2 -T 3 -P 1 -r --max-tries=3"),
    Case(name="retries-unlimited", arguments="-n -f hot-row.sql -c 4 -T 3 --max-tries=0"),
    Case(name="verbose-errors", arguments="-n -f hot-row.sql -c 2 -t 20 --max-tries=2 --verbose-errors"),
    Case(name="deadlocks", arguments="-n -f deadlock.sql -c 4 -j 2 -T 3 -P 1 -r --max-tries=2 --failures-detailed"),
    Case(
        name="everything",
        arguments="-n -f hot-row.sql@2 -f deadlock.sql -f nap.sql -c 8 -j 2 -T 4 -P 1 -R 400 -L 30 -r"
        " --max-tries=4 --failures-detailed",
    ),
    Case(name="transactions", arguments="-n -b tpcb-like -c 2 -t 100"),
    Case(name="partitioned", arguments="-n -b tpcb-like -c 2 -T 2 -P 1", database="partitioned"),
    Case(name="stalled", arguments="-n -f stall.sql -c 1 -T 3 -P 1"),
    Case(name="other-server", arguments="-n -b select-only -c 2 -T 1", server=18, versions=(15, 16)),
    Case(name="other-server", arguments="-n -b select-only -c 2 -T 1", server=15, versions=(18,)),
)
FAILING = (
    Case(name="no-file", arguments="-n -f no-such-file.sql -T 2"),
    Case(name="empty-script", arguments="-n -f empty.sql -T 2"),
    Case(name="bad-expression", arguments="-n -f bad-expression.sql -T 2"),
    Case(name="bad-command", arguments="-n -f bad-command.sql -T 2"),
    Case(name="no-such-database", arguments="-n -f nap.sql -T 2", database="nowhere"),
    Case(name="not-initialized", arguments="-n -b tpcb-like -T 2", database="postgres"),
    Case(name="too-many-clients", arguments="-n -f nap.sql -c 40 -j 2 -T 2"),
    Case(name="no-table", arguments="-n -f nap.sql@0 -f no-table.sql -c 4 -j 2 -T 2 -P 1"),
    Case(name="divide", arguments="-n -f divide.sql -c 2 -T 2"),
    Case(name="one-bad-client", arguments="-n -f one-bad-client.sql -c 3 -j 2 -T 2 -P 1"),
    Case(
        name="exit-on-abort", arguments="-n -f one-bad-client.sql -c 3 -j 2 -T 2 -P 1 --exit-on-abort", versions=(18,)
    ),
    Case(name="interrupted", arguments="-n -b tpcb-like -c 2 -T 10 -P 1", signal_pgbench=signal.SIGINT),
    Case(name="terminated", arguments="-n -b tpcb-like -c 2 -T 10 -P 1", signal_pgbench=signal.SIGTERM),
    Case(name="killed", arguments="-n -b tpcb-like -c 2 -T 10 -P 1", signal_pgbench=signal.SIGKILL),
)
SERVER_DIES = (Case(name="server-killed", arguments="-n -b tpcb-like -c 3 -j 2 -T 10 -P 1", kill_server=True),)
INIT = (
    Case(name="init", arguments="-i -s 3", database="fresh"),
    Case(name="init-again", arguments="-i -s 3", database="fresh"),
    Case(name="init-quiet", arguments="-i -q -s 2", database="fresh"),
    Case(name="init-server-side", arguments="-i -I dtGvp -s 2 -F 90", database="fresh"),
    Case(name="init-foreign-keys", arguments="-i -s 1 --foreign-keys", database="fresh"),
    Case(name="init-partitions-range", arguments="-i -s 1 --partitions=4", database="fresh"),
    Case(
        name="init-partitions-hash", arguments="-i -s 1 --partitions=4 --partition-method=hash -F 80", database="fresh"
    ),
    Case(name="init-twice-vacuum", arguments="-i -s 1 -I dtgpvgv", database="fresh"),
    Case(name="init-terminal", arguments="-i -s 3", database="fresh", stderr_is_terminal=True),
    Case(name="init-bad-step", arguments="-i -I dtx", database="fresh"),
    Case(name="init-disk-full", arguments="-i -s 5 --tablespace=small", database="fresh"),
    Case(name="init-server-side-disk-full", arguments="-i -I dtG -s 5 --tablespace=small", database="fresh"),
    Case(name="init-killed", arguments="-i -s 40", database="fresh", signal_pgbench=signal.SIGKILL),
    Case(name="init-interrupted", arguments="-i -s 40", database="fresh", signal_pgbench=signal.SIGINT),
)


@contextlib.contextmanager
def small_tablespace(cluster: Cluster) -> Iterator[None]:
    """A tablespace of 24 MB for the cases of a full disk."""
    place = cluster.root / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=777", "tmpfs", str(place)], check=True)
    try:
        inner = place / "tablespace"
        inner.mkdir()
        shutil.chown(inner, cluster.user.uid, cluster.user.gid)
        cluster.sql(f"CREATE TABLESPACE small LOCATION '{inner}'")
        yield
    finally:
        cluster.stop()
        subprocess.run(["umount", str(place)], check=True)


def prepare(cluster: Cluster) -> None:
    """Make the databases that the cases name, and limits that they run into."""
    cluster.stop()
    cluster.start("deadlock_timeout=20ms", "max_connections=30", "autovacuum=off")
    connection = ("-q", "-h", str(cluster.root), "-p", str(PORT), "-U", "postgres")
    for name, options in (("loaded", ("-s", "2")), ("partitioned", ("-s", "2", "--partitions=3")), ("fresh", ())):
        cluster.sql(f"CREATE DATABASE {name}")
        if options:
            cluster.run("pgbench", "-i", *options, *connection, name)


def capture(case: Case, cluster: Cluster, server: Cluster) -> None:
    """Run one case and write its files."""
    directory = DATA / str(cluster.version_major) / case.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    program = str(cluster.bin_directory / "pgbench")
    connection = ["-h", str(server.root), "-p", str(PORT), "-U", "postgres", case.database]
    argv = [program, *case.arguments.split(), *connection]
    stderr_path = directory / "pgbench.stderr"
    with (directory / "pgbench.stdout").open("wb") as stdout, stderr_path.open("wb") as stderr:
        master, slave = os.openpty() if case.stderr_is_terminal else (-1, stderr.fileno())
        if case.stderr_is_terminal:
            tty.setraw(slave)
        started_s = time.monotonic()
        child = process.start(argv, user=cluster.user, stdout=stdout, stderr=slave, cwd=DATA / "scripts")
        disturb(case, child, server)
        if case.stderr_is_terminal:
            os.close(slave)
            with contextlib.suppress(OSError):  # Linux answers EIO when the last writer is gone
                while data := os.read(master, 65536):
                    stderr.write(data)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    facts = {
        "version": process.run([program, "--version"]).stdout.strip(),
        "argv": ["pgbench", *argv[1:]],
        "exit_code": child.returncode,
        "pid": child.pid,
        "start_monotonic_s": started_s,
        "end_monotonic_s": time.monotonic(),
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }
    (directory / "pgbench.json").write_text(json.dumps(facts, indent=1) + "\n")
    sys.stdout.write(f"{cluster.version_major} {case.name}: exit {child.returncode}\n")


def disturb(case: Case, child: subprocess.Popen[bytes], server: Cluster) -> None:
    """Do to pgbench or its server what the case asks for."""
    if case.signal_pgbench is not None:
        time.sleep(1.6)
        child.send_signal(case.signal_pgbench)
    if case.kill_server:
        time.sleep(1.6)
        os.kill(server.postmaster_pid, signal.SIGKILL)


def main(wanted: list[str]) -> None:
    """Capture the wanted cases, or all."""
    WORK.mkdir(exist_ok=True)
    WORK.chmod(0o755)
    with contextlib.ExitStack() as stack:
        clusters = {version: stack.enter_context(running(version, root=WORK / str(version))) for version in VERSIONS}
        for cluster in clusters.values():
            prepare(cluster)
            stack.enter_context(small_tablespace(cluster))
        for cluster in clusters.values():
            for case in (*LOAD, *FAILING, *INIT):
                if cluster.version_major in case.versions and (not wanted or case.name in wanted):
                    capture(case, cluster, clusters[case.server or cluster.version_major])
        for cluster in clusters.values():
            for case in SERVER_DIES:
                if not wanted or case.name in wanted:
                    capture(case, cluster, cluster)


if __name__ == "__main__":
    main(sys.argv[1:])

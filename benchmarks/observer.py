"""What observing costs: CPU seconds of all that samples, streams and logs, and the TPS ratio of watched to unwatched.

For tpcb-like and select-only, at saturation, on the embedded PostgreSQL:

1. CPU: one load with everything on. CPU seconds of both samplers, of the backend that answers them and of the log
   reader, as a share of all CPU seconds that the machine spent meanwhile.
2. TPS: one load in which everything that watches is stopped (SIGSTOP) in one random slice of each pair and runs in the
   other; each slice's transactions are counted from pgbench's own log, after a washout. The ratio of a pair is free of
   drift; the interval is Student's over pairs. The log reader catches up in the watched slice, which counts against it.
3. pgbench's own logging: interleaved short runs with and without --log, in CPU seconds of pgbench for a transaction,
   and the share of the whole transaction's CPU time that is.
4. pg_stat_statements, which a server loads only if its settings say so: interleaved short runs on servers started with
   and without it, and the ratio of their TPS.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from figures import say
from scipy import stats

from pgdyno.record.transactions.pack import read_packed
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.restoring import restore_template
from pgdyno.run.cluster.server import Server
from pgdyno.run.cluster.template import prepare_template
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.log_stream import LogRequest, LogStream, start_log_streams
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.run.sample.samplers import BACKEND_LABEL, LOAD_LABEL, Samplers
from pgdyno.spec.study import DataSpec, ServerSpec
from pgdyno.spec.table import QueryMode

SCALE = 50
CLIENTS = 8
SLICE_S = 1.0
WASHOUT_S = 0.1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Watched:
    """The processes that watch: both samplers, their backend, the log reader."""

    def __init__(self, samplers: Samplers, stream: LogStream) -> None:
        self.named = {**samplers.pids, "log reader": stream.pid}
        self.stoppable = [pid for name, pid in self.named.items() if name != BACKEND_LABEL]

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each so far."""
        return {name: process_cpu_s(pid) for name, pid in self.named.items()}

    def send(self, number: signal.Signals) -> None:
        """Stop them or let them go on; the backend waits by itself when nobody asks."""
        for pid in self.stoppable:
            os.kill(pid, number)


def process_cpu_s(pid: int) -> float:
    # The scheduler's own account is exact, where the ticks of /proc/PID/stat miss what is short.
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def machine_busy_s() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS_PER_S


@contextmanager
def running(home: Home, installation: Installation, folder: Path, **settings: str) -> Iterator[Server]:
    template = prepare_template(
        installation=installation,
        home=home,
        data=DataSpec(),
        scale=SCALE,
        settings={},
        output_dir=folder,
        on_activity=lambda _: None,
    )
    restore_template(template, home)
    server = Server(installation=installation, home=home, log_path=folder / "server.log")
    try:
        server.start(settings)
        with server.connect() as connection:
            sql.warm_dataset(connection)
            sql.checkpoint(connection)
        yield server
    finally:
        server.abandon()


def load_of(server: Server, script: str, seconds: float) -> LoadRun:
    return LoadRun(
        address=server.address,
        scripts=((script, 1),),
        mode=QueryMode.PREPARED,
        clients=CLIENTS,
        threads=2,
        duration_s=seconds,
    )


def watched_load(
    server: Server, installation: Installation, script: str, seconds: float, folder: Path, *, is_switching: bool
) -> tuple[dict[str, float], float, list[tuple[float, float, bool]]]:
    """Run one load with everything that watches. Returns its CPU seconds by name, the machine's, and the slices.

    A slice is its start and end (seconds since the epoch) and whether it was watched.
    """
    slices: list[tuple[float, float, bool]] = []
    draw = random.Random(1)
    clock_offset_s = time.time() - time.monotonic()
    with ExitStack() as stack:
        (stream,) = start_log_streams({folder / "transactions": LogRequest()}, user=server.home.user)
        stack.callback(stream.close)
        samplers = stack.enter_context(Samplers(directory=folder, address=server.address))
        watched = Watched(samplers, stream)
        state: dict[str, Any] = {"until": 0.0, "on": True, "queue": []}
        counted: dict[str, Any] = {}

        def begin(pid: int) -> None:
            samplers.follow(LOAD_LABEL, pid)
            state["until"] = time.monotonic() + 3.0

        def tick() -> None:
            now = time.monotonic()
            if now < state["until"]:
                return
            if not counted:
                counted["cpu"], counted["busy"] = watched.cpu_s(), machine_busy_s()
            if not is_switching:
                state["until"] = now + 1.0
                counted["cpu_end"], counted["busy_end"] = watched.cpu_s(), machine_busy_s()
                return
            if not state["queue"]:
                state["queue"] = draw.sample([True, False], k=2)
            is_on = state["queue"].pop()
            if is_on != state["on"]:
                watched.send(signal.SIGCONT if is_on else signal.SIGSTOP)
                state["on"] = is_on
            state["until"] = now + SLICE_S
            slices.append((now + WASHOUT_S + clock_offset_s, now + SLICE_S + clock_offset_s, is_on))

        pgbench = Pgbench(installation=installation, user=server.home.user)
        run = msgspec.structs.replace(load_of(server, script, seconds), log_prefix=stream.log_prefix)
        pgbench.run_load(run, directory=folder, on_start=begin, should_abort=lambda: tick() or server.find_failure())
        watched.send(signal.SIGCONT)
        stream.finish()
    cpu = {name: counted["cpu_end"][name] - counted["cpu"][name] for name in counted["cpu"]} if not is_switching else {}
    busy_s = counted["busy_end"] - counted["busy"] if not is_switching else 0.0
    return cpu, busy_s, slices


def log_ratios(folder: Path, slices: list[tuple[float, float, bool]]) -> list[float]:
    """ln(watched TPS / unwatched TPS) of each pair of slices that lies within the log."""
    stamps = np.sort(np.concatenate([batch.stamp_us for batch in read_packed(folder / "transactions")]))
    tps = []
    for start_s, end_s, is_on in slices:
        first, last = np.searchsorted(stamps, [start_s * 1e6, end_s * 1e6])
        tps.append(((last - first) / (end_s - start_s), is_on, end_s * 1e6 <= stamps[-1]))
    ratios = []
    for one, other in zip(tps[::2], tps[1::2], strict=False):
        if one[2] and other[2]:
            on, off = (one[0], other[0]) if one[1] else (other[0], one[0])
            ratios.append(float(np.log(on / off)))
    return ratios


def logging_cost(
    server: Server, installation: Installation, script: str, pairs: int, folder: Path
) -> list[tuple[float, float]]:
    """For each pair: CPU microseconds of pgbench for a transaction that logging adds, and share of all CPU time."""
    pgbench = Pgbench(installation=installation, user=server.home.user)
    costs = []
    draw = random.Random(2)
    for pair in range(pairs):
        cpu_us: dict[bool, float] = {}
        whole_us: dict[bool, float] = {}
        for is_logging in draw.sample([True, False], k=2):
            log = Path(tempfile.mkdtemp(prefix="pgdyno-observer-", dir="/dev/shm"))
            shutil.chown(log, server.home.user.uid, server.home.user.gid)
            run = load_of(server, script, 3)
            if is_logging:
                run = msgspec.structs.replace(run, log_prefix=log / "log")
            busy_s = machine_busy_s()
            done = pgbench.run_load(run, directory=folder / f"log-{pair}-{is_logging}")
            count = done.summary.transaction_count
            cpu_us[is_logging] = (done.cpu_s or 0.0) / count * 1e6
            whole_us[is_logging] = (machine_busy_s() - busy_s) / count * 1e6
            shutil.rmtree(log)
        added_us = cpu_us[True] - cpu_us[False]
        costs.append((added_us, added_us / whole_us[False]))
    return costs


def statements_ratios(home: Home, installation: Installation, script: str, pairs: int, folder: Path) -> list[float]:
    """ln(TPS with pg_stat_statements / TPS without it) of each pair of servers."""
    pgbench = Pgbench(installation=installation, user=home.user)
    draw = random.Random(3)
    ratios = []
    for pair in range(pairs):
        tps: dict[str, float] = {}
        for library in draw.sample(["", "pg_stat_statements"], k=2):
            output = folder / f"{pair}-{library}"
            output.mkdir(mode=0o755)
            with running(home, installation, output, shared_preload_libraries=library) as server:
                tps[library] = pgbench.run_load(load_of(server, script, 4), directory=output).summary.tps or 0.0
        ratios.append(float(np.log(tps["pg_stat_statements"] / tps[""])))
    return ratios


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean with Student's 95 % interval."""
    mean = statistics.fmean(values)
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough answer within a minute")
    parser.add_argument("--minutes", type=float, default=5.0, help="of slices for each workload")
    parser.add_argument("--only-statements", action="store_true", help="measure pg_stat_statements alone")
    options = parser.parse_args()
    share_s, slices_s, pairs = (8, 8, 2) if options.quick else (60, options.minutes * 60, 15)
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="pgdyno-observer-", dir="/var/tmp"))
        root.chmod(0o755)
        stack.callback(shutil.rmtree, root)
        home = stack.enter_context(open_home(root / "home", find_server_user()))
        installation = find_installation(ServerSpec(), user=home.user, software_dir=home.software)
        for script in ("tpcb-like", "select-only"):
            name = script.replace("-", "_")
            folders = {part: root / f"{name}-{part}" for part in ("init", "cpu", "slices", "log", "statements")}
            for folder in folders.values():
                folder.mkdir(mode=0o755)
            print(f"{script}: pg_stat_statements, {pairs} pairs of servers, 4 s each", flush=True)
            ratios = statements_ratios(home, installation, script, pairs, folders["statements"])
            mean, low, high = map(float, np.exp(interval(ratios)))
            say(f"observer.{name}.statements.tps_ratio", mean, low=low, high=high, unit="ratio", n=pairs)
            if options.only_statements:
                continue
            with running(home, installation, folders["init"]) as server:
                print(f"{script}: CPU share over {share_s} s, {CLIENTS} clients, prepared, scale {SCALE}", flush=True)
                cpu, busy_s, _ = watched_load(server, installation, script, share_s, folders["cpu"], is_switching=False)
                for part, seconds in cpu.items():
                    print(f"  {part:<20} {seconds:7.3f} CPU s  {seconds / busy_s:.3%} of {busy_s:.1f} CPU s")
                say(f"observer.{name}.cpu_share", sum(cpu.values()) / busy_s, unit="ratio", n=1, target="<= 0.01")
                print(f"{script}: TPS ratio in slices of {SLICE_S:g} s over {slices_s:g} s", flush=True)
                _, _, slices = watched_load(
                    server, installation, script, slices_s, folders["slices"], is_switching=True
                )
                ratios = log_ratios(folders["slices"], slices)
                mean, low, high = np.exp(interval(ratios))
                say(
                    f"observer.{name}.tps_ratio",
                    float(mean),
                    low=float(low),
                    high=float(high),
                    unit="ratio",
                    n=len(ratios),
                    target="interval holds 1",
                    holds=bool(low <= 1.0 <= high),
                )
                print(f"{script}: pgbench's own logging, {pairs} pairs of 3 s", flush=True)
                costs = logging_cost(server, installation, script, pairs, folders["log"])
                for part, unit, values in (
                    ("cpu_added", "us/transaction", [cost[0] for cost in costs]),
                    ("cpu_share", "ratio", [cost[1] for cost in costs]),
                ):
                    mean, low, high = interval(values)
                    say(f"observer.{name}.pgbench_log.{part}", mean, low=low, high=high, unit=unit, n=pairs)


if __name__ == "__main__":
    main()

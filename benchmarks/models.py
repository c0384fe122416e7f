"""How far the models of analyse/models are off, on the embedded PostgreSQL 18 here.

What is predicted never goes in. Each part says what does:

  commit   TPS of tpcb-like, prepared, scale 100, 1 to 8 clients, that wait for their flushes. In go TPS of a loop of commits
           with one client, each with as much WAL as a transaction of tpcb-like, just before and after (what a flush takes),
           TPS of tpcb-like with synchronous_commit=off of each number of clients, what CPU time waiting for a flush costs
           one client, and the number of branches and tellers. How differently long flushes take is from the loop's log. No
           TPS of tpcb-like that waits goes in. With few clients flushes bind, with more the CPUs. `plain` are the errors of
           the same without rows and with all flushes alike.
  held     the same with the server's writes held to 1,000 a second (blkio of cgroup v1, which takes root), so that flushes
           are what binds: the flush-bound case also where the disk is a quick one.
  slow     the same with flushes of 20 ms by a preloaded shim (which takes gcc), scale 20: flushes bind, all are alike, and what
           else the machine does hardly counts. What is left is who shares a flush, and who waits for whose row.
  reads    blocks read per transaction, select-only and tpcb-like, scale 20, for three sizes of shared_buffers. In go the
           pages of table and key as the server counts them, and the sizes.
  images   full-page images of so many updates after a checkpoint, scale 20. In go the same pages and the updates.
  distance WAL from checkpoint to checkpoint, as the server logs it. In go the settings.

An error is predicted over measured, less 1. Its interval is of the median by order statistics, where there are enough.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
import numpy as np
from figures import say
from planted_causes import SHIM

from pgdyno.analyse.models.checkpoints import find_checkpoint_distance_bytes, predict_full_page_images
from pgdyno.analyse.models.commits import (
    ceiling_tps,
    list_pgbench_row_locks,
    predict_commit_tps,
    subtract_row_waits,
)
from pgdyno.analyse.models.reads import PageClass, predict_reads
from pgdyno.record.serverlog import CheckpointComplete, CheckpointStart, read_serverlog
from pgdyno.record.types import Dataset
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.cluster.restoring import restore_template
from pgdyno.run.cluster.server import DATABASE, Server
from pgdyno.run.cluster.template import prepare_template
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.pgbench import Pgbench
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.installation import Installation, find_installation
from pgdyno.spec.initdb import DEFAULT_SEGMENT_MB
from pgdyno.spec.study import DataSpec, ServerSpec
from pgdyno.spec.table import QueryMode
from pgdyno.units import PAGE_BYTES

PARTS = ("reads", "images", "distance", "commit", "held", "slow")
CLIENTS = (1, 2, 4, 8)
COMMIT_SCALE, READ_SCALE = 100, 20
SIZES_MB = (16, 64, 160)
MB = 1024**2
HELD_IOPS = 1000
SLOW_FLUSH_US = 20_000
BLKIO = Path("/sys/fs/cgroup/blkio/pgdyno-models")
# Of a message without content and the commit after it.
EMPTY_MESSAGE_WAL_BYTES = 150
QUIET = {"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "8GB"}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one load came to."""

    tps: float
    transactions: int
    cpu_s: float
    """Of the server and the load generator, for a transaction."""
    reads: float
    """Blocks that shared_buffers missed, for a transaction."""
    images: int
    wal_bytes: int
    latencies_s: tuple[float, ...] = ()
    """Of each transaction, where they were logged."""


class Bench:
    """A server with loaded data, and loads on it."""

    def __init__(self, server: Server, dataset: Dataset, folder: Path) -> None:
        self.server = server
        self.dataset = dataset
        self.loop = folder / "loop.sql"
        self._folder = folder
        self._pgbench = Pgbench(installation=server.installation, user=server.home.user)

    def write_loop(self, wal_bytes: float) -> None:
        """Have the loop write so much WAL with each commit."""
        length = max(1, round(wal_bytes - EMPTY_MESSAGE_WAL_BYTES))
        self.loop.write_text(f"SELECT pg_logical_emit_message(true, 'pgdyno', repeat('x', {length}));\n")

    def run(self, script: str, clients: int, seconds: float, *, waits: bool = True, logs: bool = False) -> Run:
        """A load whose sessions wait for their flushes, or do not."""
        folder = make_folder(self._folder)
        if not self.server.home.user.is_self:
            shutil.chown(folder, self.server.home.user.name)
        with self.server.connect() as connection:
            connection.execute(f"ALTER DATABASE {DATABASE} SET synchronous_commit = {'on' if waits else 'off'}")
            before = sql.read_counters(connection, watched_database=DATABASE)
        load = LoadRun(
            address=self.server.address,
            scripts=((script, 1),),
            mode=QueryMode.PREPARED,
            clients=clients,
            threads=min(clients, 2),
            duration_s=seconds,
            reports_statements=False,
            log_prefix=folder / "log" if logs else None,
        )
        cpu_s = tree_cpu_s(self.server.pid)
        done = self._pgbench.run_load(load, directory=folder)
        # A backend gives its counts when it ends, and its CPU time when the postmaster has heard of it.
        time.sleep(0.15)
        cpu_s = tree_cpu_s(self.server.pid) - cpu_s + (done.cpu_s or 0.0)
        with self.server.connect() as connection:
            after = sql.read_counters(connection, watched_database=DATABASE)
        count = done.summary.transaction_count or 0
        grown = {name: value - before[name] for name, value in after.items() if value is not None}
        return Run(
            tps=done.summary.tps or 0.0,
            transactions=count,
            cpu_s=cpu_s / count,
            reads=grown["blks_read_pages"] / count,
            images=int(grown["wal_fpi_count"]),
            wal_bytes=int(grown["wal_bytes"]),
            latencies_s=tuple(
                int(line.split()[2]) * 1e-6 for log in folder.glob("log.*") for line in log.read_text().splitlines()
            ),
        )

    def pages_of(self, name: str) -> int:
        """As the server counts them now."""
        with self.server.connect() as connection:
            return next(one.pages for one in sql.read_dataset(connection) if one.name == name)


def make_folder(parent: Path) -> Path:
    """A new one, which the server's account can read."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    folder.chmod(0o755)
    return folder


def tree_cpu_s(pid: int) -> float:
    """CPU seconds of a postmaster and all children it has or had."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = sum(map(int, read_stat(str(pid))[11:15]))
    ticks += sum(sum(map(int, read_stat(child)[11:13])) for child in children)
    return ticks / os.sysconf("SC_CLK_TCK")


def read_stat(pid: str) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 15


@contextmanager
def running(
    home: Home, installation: Installation, scale: int, settings: Mapping[str, str], folder: Path
) -> Iterator[Bench]:
    """A server on a fresh copy of loaded data."""
    template = prepare_template(
        installation=installation,
        home=home,
        data=DataSpec(),
        scale=scale,
        settings={},
        output_dir=folder,
        on_activity=lambda _: None,
    )
    restore_template(template, home)
    server = Server(installation=installation, home=home, log_path=make_folder(folder) / "server.log")
    try:
        server.start({**QUIET, **settings})
        yield Bench(server, template.dataset, folder)
    finally:
        server.abandon()


def account_pages(bench: Bench) -> tuple[int, float]:
    """Pages of pgbench_accounts, and leaves of its key: of 286 pages of a btree one is no leaf."""
    key = bench.pages_of("pgbench_accounts_pkey")
    return bench.pages_of("pgbench_accounts"), (key - 1) * (1 - 1 / 286)


class Commits(msgspec.Struct, frozen=True, kw_only=True):
    """One round: what goes in, and what is predicted from it."""

    flush_s: dict[int, float]
    """By clients: of the loop just before and just after their load."""
    spread: dict[int, tuple[float, ...]]
    """By clients: what twentieths of those flushes take over their mean."""
    waiting: dict[int, Run]


def measure_unflushed(bench: Bench, rounds: int) -> dict[int, list[Run]]:
    """tpcb-like that waits for no flush, by clients; 0 stands for the loop with one client."""
    seen: dict[int, list[Run]] = {clients: [] for clients in (*CLIENTS, 0)}
    # Most pages have had their full image when it ends.
    last = bench.run("tpcb-like", CLIENTS[-1], min(15, 1 + rounds), waits=False)
    for _ in range(rounds):
        for clients in CLIENTS:
            seen[clients].append(last := bench.run("tpcb-like", clients, 1, waits=False))
        bench.write_loop(last.wal_bytes / last.transactions)
        seen[0].append(bench.run(str(bench.loop), 1, 1, waits=False))
    return seen


def measure_waiting(bench: Bench, rounds: int, loop_off_tps: float, *, seconds: float) -> list[Commits]:
    """Loads that wait for flushes, in random order, each between two looks at what a flush takes: it changes by the second."""
    draw = random.Random(1)
    measured = []
    for number in range(rounds):
        flush_s, spread, waiting = {}, {}, {}
        for clients in draw.sample(CLIENTS, k=len(CLIENTS)):
            before = bench.run(str(bench.loop), 1, 1, logs=True)
            waiting[clients] = bench.run("tpcb-like", clients, seconds)
            after = bench.run(str(bench.loop), 1, 1, logs=True)
            looped_tps = statistics.harmonic_mean([before.tps, after.tps])
            flush_s[clients] = 1 / looped_tps - 1 / loop_off_tps
            spread[clients] = spread_flushes((*before.latencies_s, *after.latencies_s), 1 / loop_off_tps)
        measured.append(Commits(flush_s=flush_s, spread=spread, waiting=waiting))
        print(f"  round {number + 1} of {rounds}", flush=True)
    return measured


def spread_flushes(latencies_s: Sequence[float], work_s: float) -> tuple[float, ...]:
    """What twentieths of flushes take over their mean, from transactions that each wait for one."""
    flushes = np.sort(np.maximum(np.array(latencies_s) - work_s, 0.1 * np.array(latencies_s)))
    parts = np.array([part.mean() for part in np.array_split(flushes, min(20, len(flushes)))])
    return tuple(float(one) for one in parts / parts.mean())


@contextmanager
def slowed(folder: Path) -> Iterator[None]:
    """Have each flush of a server that is started meanwhile take so much longer."""
    source, library = folder / "slow.c", folder / "slow.so"
    source.write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    os.environ.update(LD_PRELOAD=str(library), SLOW_FLUSH_US=str(SLOW_FLUSH_US))
    try:
        yield
    finally:
        del os.environ["LD_PRELOAD"], os.environ["SLOW_FLUSH_US"]


@contextmanager
def held(pid: int, path: Path) -> Iterator[None]:
    """Let a server write only so often to the disk that a path lies on."""
    device = path.stat().st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    whole = folder.parent if (folder / "partition").exists() else folder
    BLKIO.mkdir()
    try:
        limit = f"{(whole / 'dev').read_text().strip()} {HELD_IOPS}"
        (BLKIO / "blkio.throttle.write_iops_device").write_text(limit)
        for child in (str(pid), *Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            # A backend may have ended meanwhile.
            with suppress(ProcessLookupError):
                (BLKIO / "cgroup.procs").write_text(child)
        yield
    finally:
        for child in (BLKIO / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (BLKIO.parent / "cgroup.procs").write_text(child)
        BLKIO.rmdir()


def say_commits(name: str, off: Mapping[int, Sequence[Run]], measured: Sequence[Commits], *, scale: int) -> None:
    off_tps = {clients: statistics.median(run.tps for run in runs) for clients, runs in off.items()}
    off_cpu_s = {clients: statistics.median(run.cpu_s for run in runs) for clients, runs in off.items()}
    wait_cpu_s = max(0.0, statistics.median(one.waiting[1].cpu_s for one in measured) - off_cpu_s[1])
    cpus = max(off_tps[clients] * off_cpu_s[clients] for clients in CLIENTS)
    unflushed = np.interp(range(1, CLIENTS[-1] + 1), CLIENTS, [off_tps[clients] for clients in CLIENTS])
    # One client spends the CPU time of waiting while it waits; two or more compete for the CPUs with it.
    charged = [unflushed[0], *(1 / (1 / unflushed[1:] + wait_cpu_s / cpus))]
    flush_s = statistics.median(seconds for one in measured for seconds in one.flush_s.values())
    say(f"models.{name}.input.flush", flush_s * 1e6, unit="us", n=2 * len(CLIENTS) * len(measured))
    say(f"models.{name}.input.wait_cpu", wait_cpu_s * 1e6, unit="us", n=len(measured))
    say(f"models.{name}.input.cpus", cpus, unit="count", n=len(off[1]))
    errors, plain = [], []
    for clients in CLIENTS:
        forecasts, alike = [], []
        for one in measured:
            mean_s = one.flush_s[clients]
            flushed = predict_commit_tps(charged[:clients], flush_s=[mean_s * part for part in one.spread[clients]])
            kept = list_pgbench_row_locks(scale, work_s=flushed.work_s)
            forecasts.append(subtract_row_waits(flushed.tps, clients=clients, kept=kept))
            alike.append(predict_commit_tps(charged[:clients], flush_s=mean_s).tps)
        seen = [one.waiting[clients].tps for one in measured]
        errors.append(statistics.median(forecast / tps - 1 for forecast, tps in zip(forecasts, seen, strict=True)))
        plain.append(statistics.median(forecast / tps - 1 for forecast, tps in zip(alike, seen, strict=True)))
        alone = statistics.median(ceiling_tps(clients, flush_s=one.flush_s[clients]) for one in measured)
        print(
            f"  {clients} clients: {statistics.median(forecasts):,.0f} tps predicted, {statistics.median(seen):,.0f}"
            f" measured; flushes alone {alone:,.0f}, without them {off_tps[clients]:,.0f}"
        )
        say(f"models.{name}.{clients}_clients.measured_tps", statistics.median(seen), unit="tps", n=len(seen))
        say(f"models.{name}.{clients}_clients.error", errors[-1], unit="ratio", n=len(seen))
        say(f"models.{name}.{clients}_clients.plain_error", plain[-1], unit="ratio", n=len(seen))
    say_errors(f"models.{name}.error", errors)


def run_commits(name: str, home: Home, installation: Installation, folder: Path, *, scale: int, rounds: int) -> None:
    # Full images would make what a commit writes another thing from one second to the next.
    settings = {"shared_buffers": "2GB", "full_page_writes": "off"}
    with running(home, installation, scale, settings, folder) as bench:
        with bench.server.connect() as connection:
            sql.warm_dataset(connection)
            sql.checkpoint(connection)
        off = measure_unflushed(bench, rounds)
        loop_off_tps = statistics.median(run.tps for run in off[0])
        with held(bench.server.pid, home.root) if name == "held" else nullcontext():
            measured = measure_waiting(bench, rounds, loop_off_tps, seconds=5 if name == "slow" else 2)
    say_commits(name, off, measured, scale=scale)


def run_reads(home: Home, installation: Installation, folder: Path, *, sizes_mb: Sequence[int], seconds: float) -> None:
    errors = []
    for size_mb in sizes_mb:
        settings = {"shared_buffers": f"{size_mb}MB"}
        for script in ("select-only", "tpcb-like"):
            with running(home, installation, READ_SCALE, settings, folder) as bench:
                heap, leaves = account_pages(bench)
                others = sum(one.pages for one in bench.dataset.relations) - heap - leaves
                classes = [
                    PageClass(pages_count=heap, accesses_per_transaction=1),
                    PageClass(pages_count=leaves, accesses_per_transaction=1),
                ]
                forecast = predict_reads(classes, buffers_count=size_mb * MB / PAGE_BYTES - others)
                # Whoever waits for no flush has soon done as much as fills the buffers a few times.
                settled = wait_until_settled(bench, script, forecast.memory_transactions, seconds)
                seen = bench.run(script, 4, seconds, waits=False)
            errors.append(forecast.reads_per_transaction / seen.reads - 1)
            name = f"models.reads.{script.replace('-', '_')}.{size_mb}mb"
            print(
                f"  {script}, {size_mb} MB, after {settled:,} transactions:"
                f" {forecast.reads_per_transaction:.3f} reads predicted, {seen.reads:.3f} measured"
            )
            say(f"{name}.measured", seen.reads, unit="reads/transaction", n=seen.transactions)
            say(f"{name}.error", errors[-1], unit="ratio", n=1)
    say_errors("models.reads.error", errors)


def wait_until_settled(bench: Bench, script: str, memory_transactions: float, seconds: float) -> int:
    """Run until what was held at first plays no part any more, or for long enough. Gives the transactions it took."""
    done = 0
    for _ in range(6):
        done += bench.run(script, 4, seconds, waits=False).transactions
        if done > 3 * memory_transactions:
            break
    return done


def run_images(home: Home, installation: Installation, folder: Path, *, loads_s: Sequence[float]) -> None:
    errors = []
    for seconds in loads_s:
        with running(home, installation, READ_SCALE, {"shared_buffers": "512MB"}, folder) as bench:
            with bench.server.connect() as connection:
                sql.warm_dataset(connection)
                sql.checkpoint(connection)
            heap, leaves = account_pages(bench)
            seen = bench.run("simple-update", 4, seconds, waits=False)
        predicted = sum(
            predict_full_page_images(updates_count=seen.transactions, pages_count=pages) for pages in (heap, leaves)
        )
        errors.append(predicted / seen.images - 1)
        print(f"  {seen.transactions:,} updates: {predicted:,.0f} images predicted, {seen.images:,} measured")
        say(f"models.images.{seconds:g}_s.error", errors[-1], unit="ratio", n=seen.transactions)
    say_errors("models.images.error", errors)


def run_distance(home: Home, installation: Installation, folder: Path, *, seconds: float) -> None:
    settings = {"max_wal_size": "96MB", "min_wal_size": "80MB", "checkpoint_completion_target": "0.5"}
    with running(home, installation, READ_SCALE, settings, folder) as bench:
        while seconds > 0:
            bench.run("simple-update", 4, 2, waits=False)
            seconds -= 2
        log = tuple(read_serverlog(bench.server.log_path, clock_offset_s=0.0))
    starts = [one for one in log if isinstance(one, CheckpointStart)]
    ends = [one for one in log if isinstance(one, CheckpointComplete)]
    # The first one's distance begins where nobody counted.
    seen = [
        end.distance_kb * 1024 for start, end in list(zip(starts, ends, strict=False))[1:] if start.reasons == ("wal",)
    ]
    predicted = find_checkpoint_distance_bytes(
        max_wal_size_bytes=96 * MB, completion_target=0.5, segment_bytes=DEFAULT_SEGMENT_MB * MB
    )
    if not seen:
        print("  no checkpoint ended that WAL had caused: no figure")
        return
    print(f"  {predicted / MB:.0f} MB predicted, measured: {', '.join(f'{one / MB:.0f}' for one in seen)}")
    say("models.distance.error", predicted / statistics.median(seen) - 1, unit="ratio", n=len(seen))


def say_errors(name: str, errors: Sequence[float]) -> None:
    """The median absolute error; with at least six of them between the outermost, which hold it at 95 %."""
    sizes = sorted(map(abs, errors))
    low, high = (sizes[0], sizes[-1]) if len(sizes) >= 6 else (None, None)
    middle = statistics.median(sizes)
    say(f"{name}.median", middle, low=low, high=high, unit="ratio", n=len(sizes), target="<= 0.1")
    say(f"{name}.largest", sizes[-1], unit="ratio", n=len(sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough answer within a minute")
    parser.add_argument("--part", nargs="+", choices=PARTS, help="[default: all; with --quick, all but held and slow]")
    parser.add_argument("--rounds", type=int, default=8, help="of commits")
    parser.add_argument("--home", type=Path, help="keeps loaded data; else they are loaded and thrown away")
    options = parser.parse_args()
    parts = options.part or (PARTS[:-2] if options.quick else PARTS)
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="pgdyno-models-", dir="/var/tmp"))
        root.chmod(0o755)
        stack.callback(shutil.rmtree, root)
        home = stack.enter_context(open_home(options.home or root / "home", find_server_user()))
        installation = find_installation(ServerSpec(), user=home.user, software_dir=home.software)
        for part in parts:
            print(f"{part}:", flush=True)
            folder = root / part
            folder.mkdir(mode=0o755)
            if part == "slow":
                if shutil.which("gcc") is None:
                    print("  no gcc: left out")
                    continue
                with slowed(folder):
                    rounds = 1 if options.quick else options.rounds
                    run_commits(part, home, installation, folder, scale=READ_SCALE, rounds=rounds)
            elif part in {"commit", "held"}:
                if part == "held" and not os.access(BLKIO.parent, os.W_OK):
                    print("  no blkio of cgroup v1 that may be written: left out")
                    continue
                scale, rounds = (READ_SCALE, 1) if options.quick else (COMMIT_SCALE, options.rounds)
                run_commits(part, home, installation, folder, scale=scale, rounds=rounds)
            elif part == "reads":
                sizes_mb, seconds = (SIZES_MB[1:2], 1) if options.quick else (SIZES_MB, 4)
                run_reads(home, installation, folder, sizes_mb=sizes_mb, seconds=seconds)
            elif part == "images":
                run_images(home, installation, folder, loads_s=(1,) if options.quick else (1, 3, 9))
            else:
                run_distance(home, installation, folder, seconds=4 if options.quick else 20)


if __name__ == "__main__":
    main()

"""What a load from load hosts is worth: merged counts, the cost of streaming, parity with a load from here, and who is the limit.

An sshd of this account runs on the loopback interface, and a PostgreSQL beside it; both load hosts are this machine. First two
load hosts make loads, and one tally of both logs is compared with what was merged. Then loads from here and through ssh
alternate: ratios are of each pair, their interval is Student's over pairs. Last come studies with one load host, which a
control group holds to 0.3 CPU, and in the other study does not; that needs root. Each trial is judged by itself.

    python benchmarks/load_hosts.py [--loads 5] [--pairs 10] [--trials 20] [--held 0.3] [--seconds 5]
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from figures import say, say_share
from observer import interval

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pgdyno.analyse.bottleneck.agreement import judge_workload
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.conduct.load.hosts import find_local_pgbench
from pgdyno.record.generators.merge import merge_transactions
from pgdyno.record.generators.parts import find_part_folders, read_part
from pgdyno.record.store import open_record
from pgdyno.record.transactions.pack import read_packed, read_summary
from pgdyno.record.transactions.parse import LogColumns
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally
from pgdyno.record.trial_data import TRANSACTIONS_DIR, read_trial_data
from pgdyno.run.link.ssh import open_link
from pgdyno.run.load.argv import LoadRun
from pgdyno.run.load.generator import LoadGenerator, LoadOutcome, run_logged_load
from pgdyno.run.load.group import PgbenchGroup
from pgdyno.run.load.host_run import LoadHost, ask_pgbench
from pgdyno.run.postgres.address import Address
from pgdyno.spec.hosts import HostEntry, HostRole
from pgdyno.spec.table import QueryMode
from tests.hosts import running_sshd
from tests.tools.pgcluster import LOOPBACK, PORT, running

CGROUP = Path("/sys/fs/cgroup/cpu")
STUDY = """
[server]
kind = "given"
dsn = "{dsn}"

[hosts.db]
role = "server"
ssh = "db1"

[hosts.load]
role = "load"
ssh = "db1"
pgbench = "{pgbench}"

[data]
scale = 1

[[workload]]
name = "select-only"
clients = 4

[trials]
rounds = {rounds}
duration = "{seconds:.0f}s"
warm_up = "1s"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=5, help="from two load hosts, whose counts are compared")
    parser.add_argument("--pairs", type=int, default=10, help="of loads from here and by ssh")
    parser.add_argument("--trials", type=int, default=20, help="with a held load host, and without")
    parser.add_argument(
        "--held", type=float, default=0.3, help="CPUs of the held load host; less, if others leave it no more"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgdyno-load-hosts-", dir="/var/tmp")))
        daemon = stack.enter_context(running_sshd(folder))
        os.environ["PATH"] = daemon.path
        cluster = stack.enter_context(running(18))
        cluster.listen()
        cluster.sql("CREATE ROLE bench LOGIN SUPERUSER")
        measure_loads(options.loads, options.pairs, options.seconds, folder)
        held = stack.enter_context(holding_wrapper(folder, options.held)) if os.geteuid() == 0 else None
        if held is not None:
            measure_limits(held, options.trials, options.seconds, folder)


def measure_loads(loads: int, pairs: int, seconds: float, folder: Path) -> None:
    """Print whether merged counts are right, what streaming costs, and how loads through ssh differ from those from here."""
    local = find_local_pgbench()
    program = local.installation.program("pgbench")
    address = Address(host=LOOPBACK, port=PORT, user="bench", parameters={"connect_timeout": "10"})
    script = folder / "one.sql"
    script.write_text("SELECT 1;\n")
    run = LoadRun(
        address=address,
        scripts=((str(script), 1),),
        mode=QueryMode.SIMPLE,
        clients=4,
        threads=2,
        duration_s=seconds,
        reports_statements=False,
    )
    with ExitStack() as stack:
        hosts = []
        for name in ("db1", "db2"):
            link = stack.enter_context(open_link(HostEntry(role=HostRole.LOAD, ssh=name, pgbench=program)))
            hosts.append(LoadHost(name=name, link=link, pgbench=ask_pgbench(link, name)))
        both, one = PgbenchGroup(hosts, local, local.user), PgbenchGroup(hosts[:1], local, local.user)
        are_equal, spent = [], []
        for number in range(loads):
            place = folder / f"both-{number}"
            outcome, summaries = load(both, run, place)
            are_equal.append(is_merged_right(outcome, summaries, place))
            parts = [read_part(path) for path in find_part_folders(place)]
            millions = sum(summary.ok_count for summary in summaries) / 1e6
            spent.append(sum(part.stream_cpu_s or 0.0 for part in parts) / millions)
        say_share("load_hosts.counts_equal_one_tally", are_equal, target=">= 1")
        mean, low, high = interval(spent)
        say("load_hosts.stream_cpu_s_per_million", mean, low=low, high=high, unit="s", n=len(spent), target="<= 0.2")
        ratios: dict[str, list[float]] = {"tps": [], "p99": []}
        for number in range(pairs):
            order: list[tuple[str, LoadGenerator]] = [("here", local), ("ssh", one)]
            seen = {}
            for name, generator in order[:: 1 if number % 2 else -1]:
                outcome, summaries = load(generator, run, folder / f"{name}-{number}")
                p99_us = summaries[0].latency().quantile(0.99).value_us
                seen[name] = {"tps": outcome.summary.tps or math.nan, "p99": p99_us or math.nan}
            for what, values in ratios.items():
                values.append(math.log(seen["ssh"][what] / seen["here"][what]))
        for what, values in ratios.items():
            mean, low, high = map(math.exp, interval(values))
            say(f"load_hosts.{what}_by_ssh_to_here", mean, low=low, high=high, unit="ratio", n=len(values))


def load(generator: LoadGenerator, run: LoadRun, place: Path) -> tuple[LoadOutcome, Sequence[TransactionSummary]]:
    """Make one logged load."""
    outcome, _ = run_logged_load(generator, run, directory=place)
    return outcome, [read_summary(part / TRANSACTIONS_DIR) for part in find_part_folders(place) or (place,)]


def is_merged_right(outcome: LoadOutcome, summaries: Sequence[TransactionSummary], place: Path) -> bool:
    """Compare what was merged with one tally of both logs, and with what both pgbenches counted."""
    tally = TransactionTally(columns=LogColumns.PLAIN)
    for part in find_part_folders(place):
        for batch in read_packed(part / TRANSACTIONS_DIR):
            tally.add(batch)
    whole, merged = tally.summary(), merge_transactions([(summary, 0.0) for summary in summaries])
    counts = {whole.ok_count, merged.ok_count, outcome.summary.transaction_count}
    return len(counts) == 1 and whole.latency() == merged.latency()


@contextmanager
def holding_wrapper(folder: Path, cpus: float) -> Iterator[Path]:
    """Yield a pgbench that is held to a part of a CPU."""
    group = CGROUP / f"pgdyno-load-hosts-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(round(100000 * cpus)))
        wrapper = folder / "pgbench-held"
        program = find_local_pgbench().installation.program("pgbench")
        wrapper.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs\nexec {program} "$@"\n')
        wrapper.chmod(0o755)
        yield wrapper
    finally:
        group.rmdir()


def measure_limits(held: Path, trials: int, seconds: float, folder: Path) -> None:
    """Print how often a held load host is named the limit, and how often one that is free."""
    program = find_local_pgbench().installation.program("pgbench")
    for name, pgbench in {"held": str(held), "free": program}.items():
        place = folder / f"study-{name}"
        place.mkdir()
        study = place / "study.toml"
        dsn = f"postgresql://bench@{LOOPBACK}:{PORT}/postgres"
        study.write_text(STUDY.format(dsn=dsn, pgbench=pgbench, rounds=trials, seconds=seconds))
        command = [sys.executable, "-m", "pgdyno", "run", str(study), "--allow", "busy", "--out", str(place / "record")]
        subprocess.run([*command, "--yes"], check=True, stdout=subprocess.DEVNULL)
        named = list(judge_trials(place / "record"))
        target = ">= 0.95" if name == "held" else "<= 0.05"
        say_share(f"load_hosts.{name}_generator_named", [one is not None for one in named], target=target)


def judge_trials(folder: Path) -> Iterator[str | None]:
    """Yield for each trial the load host that is named its limit; None if none is."""
    store = open_record(folder)
    record = store.read_record()
    for trial in store.read_trials():
        workload = record.plan.find_load(trial.planned)
        analysis = analyse_trial(record, workload, read_trial_data(store.trial_dir(trial.planned.number), trial))
        found = judge_workload(record, workload, [analysis])
        print(found and (found.resource.value, found.part, found.evidence[:2]), file=sys.stderr)
        yield found.part if found is not None and found.resource is Resource.LOAD_GENERATOR else None


if __name__ == "__main__":
    main()

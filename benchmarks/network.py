"""Whether the network's share of a transaction is as pgdyno says: a delay planted between pgbench and a real server.

A proxy holds everything for 0.5, 1 or 5 ms each way, and counts how long it really held what the load's own connections
exchanged: the planted share is that time over the transactions' latency. `pgdyno bench --dsn` measures through it, as for any
server of a user's. Beside what it says, the same is computed with two other round trips: the median of those beside the load,
and the median of those before it.

Usage: python benchmarks/network.py [--delays 0.5 1 5] [--rounds 5] [--seconds 5] [--clients 4] [--folder DIR]    (15 minutes)
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
from figures import say, say_share

sys.path.insert(0, str(Path(__file__).parents[1]))

from pgdyno.analyse.estimate import estimate_geometric_mean
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import StudyRecord
from pgdyno.spec.study import BUILTIN_SCRIPTS
from tests.tools.delay_proxy import Held, delaying, read_held
from tests.tools.pgcluster import LOOPBACK, PORT, running

DELAYS_MS = (0.5, 1.0, 5.0)
MODES = ("simple", "prepared")
WAYS = {"quickest": "quickest beside the load", "median": "their median", "before": "median of before the load"}
NEAR = 0.15


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A trial: the planted share, and the predicted one over it for each kind of round trip."""

    workload: str
    planted: float
    exchange_ms: float
    """What the proxy held an exchange for."""
    ratios: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS_MS, metavar="MS", help="each way")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"))
    options = parser.parse_args()
    cells: dict[str, list[Compared]] = defaultdict(list)
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-network-", dir=options.folder))
    try:
        with running(18) as cluster:
            cluster.listen()
            for delay_ms in options.delays:
                for mode in MODES:
                    for one in measure(folder, delay_ms, mode, options):
                        cells[f"{delay_ms:g}ms.{mode}.{one.workload}"].append(one)
    finally:
        shutil.rmtree(folder)
    for name, trials in cells.items():
        found = estimate_geometric_mean([one.ratios["quickest"] for one in trials], unit="ratio")
        say(
            f"network.share.{name}",
            found.value or 0.0,
            low=found.low,
            high=found.high,
            unit="ratio",
            n=found.n,
            target=f"within {NEAR:.0%}",
            holds=is_near(found.value or 0.0),
        )
    if options.delays != DELAYS_MS:
        return
    every = [one for trials in cells.values() for one in trials]
    for way in WAYS:
        ratios = [one.ratios[way] for one in every]
        say_share(f"network.{way}.near", [is_near(one) for one in ratios])
        say(f"network.{way}.ratio", statistics.median(ratios), unit="ratio", n=len(ratios))


def measure(folder: Path, delay_ms: float, mode: str, options: argparse.Namespace) -> Iterator[Compared]:
    """Bench the three built-in workloads behind one delay."""
    place, output = folder / f"{delay_ms:g}-{mode}", folder / f"{delay_ms:g}-{mode}.held"
    with delaying((LOOPBACK, PORT), delay_s=delay_ms / 1000.0, output=output) as port:
        dsn = f"host={LOOPBACK} port={port} user=postgres dbname=postgres sslmode=disable"
        loads = [word for name in BUILTIN_SCRIPTS for word in ("--workload", name)]
        sizes = ("--scale", "20", "--clients", str(options.clients), "--rounds", str(options.rounds))
        times = ("--duration", f"{options.seconds}s", "--warm-up", "2s")
        argv = [
            sys.executable,
            "-m",
            "pgdyno",
            "bench",
            "--stock-only",
            "--dsn",
            dsn,
            "--mode",
            mode,
            *loads,
            *sizes,
            *times,
        ]
        subprocess.run([*argv, "--out", str(place)], check=True, stdout=subprocess.DEVNULL, env=os.environ)
    held = [one for one in read_held(output) if one.program == "pgbench"]
    store = open_record(place)
    record = store.read_record()
    trials = [read_trial_data(store.trial_dir(one.planned.number), one) for one in store.read_trials()]
    for workload in analyse_study(record, trials).workloads:
        for trial in workload.trials:
            one = compare(record, trial, held, workload.load.clients)
            said = ", ".join(f"{WAYS[way]} {ratio:.3f}" for way, ratio in one.ratios.items())
            print(
                f"{delay_ms:g} ms each way, {mode}, {workload.name}: {one.planted:.1%} planted, {one.exchange_ms:.3f} ms an"
                f" exchange; predicted over planted: {said}",
                flush=True,
            )
            yield one


def compare(record: StudyRecord, trial: TrialAnalysis, held: list[Held], clients: int) -> Compared:
    """Compare what was planted in a trial with what is said of it."""
    start_s, end_s = trial.record.load_start_monotonic_s, trial.record.load_end_monotonic_s
    network, latency_ms = trial.network, trial.latency_mean_ms
    assert record.given is not None
    assert network is not None
    assert network.exchanges_count
    assert network.ping_ms
    assert network.median_ping_ms
    assert start_s
    assert end_s
    assert latency_ms
    assert trial.transactions_count
    offset_s = trial.record.clock_offset_s
    own = [one for one in held if start_s + offset_s <= one.opened_s <= end_s + offset_s]
    # One more connection asks for the number of branches.
    own = sorted(own, key=lambda one: one.asked_count)[-clients:]
    planted_ms = 1000.0 * sum(one.asked_s + one.told_s for one in own) / trial.transactions_count
    pings_ms = {
        "quickest": network.ping_ms,
        "median": network.median_ping_ms,
        "before": record.given.round_trip.median_s * 1000.0,
    }
    return Compared(
        workload=trial.record.planned.workload,
        planted=planted_ms / latency_ms,
        exchange_ms=1000.0 * sum(one.asked_s + one.told_s for one in own) / sum(one.asked_count for one in own),
        ratios={way: network.exchanges_count * ping_ms / planted_ms for way, ping_ms in pings_ms.items()},
    )


def is_near(ratio: float) -> bool:
    """Whether a share is within 15 % of the planted one."""
    return 1.0 - NEAR <= ratio <= 1.0 + NEAR


if __name__ == "__main__":
    main()

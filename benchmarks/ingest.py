"""What it costs to turn transaction logs into percentiles and per-second series: rate, memory, growth, CPU beside a load.

The log is made of real lines (select-only, PostgreSQL 18, from tests/data) whose stamps advance by a second for each
50 000 of them. Each reading runs in a process of its own, with the environment of pgdyno's log reader, from the text to
percentiles and series, both included.

Usage: python benchmarks/ingest.py [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figures import say

from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.record.transactions.parse import BLOCK_BYTES, LineCutter, LogColumns, parse_block
from pgdyno.record.transactions.summary import TransactionSummary
from pgdyno.record.transactions.tally import TransactionTally
from pgdyno.run.host.process import find_server_user
from pgdyno.run.load.log_stream import MEMORY_FOLDER, READER_ENVIRONMENT, LogRequest, start_log_streams

REAL_LOG = Path(__file__).parent.parent / "tests" / "data" / "txlog" / "18" / "sampled.log"
LINES_PER_S = 50_000
FIRST_EPOCH_S = 1_800_000_000
REPEATS = 5
READER = {**os.environ, **READER_ENVIRONMENT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten times less data, within a minute")
    parser.add_argument("--generate", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.generate:
        for second in make_seconds(arguments.generate):
            sys.stdout.buffer.write(second)
    elif arguments.read:
        print(json.dumps(read_log_once(arguments.read)))
    else:
        run_all(is_quick=arguments.quick)


def run_all(*, is_quick: bool) -> None:
    rate = measure_rate(5_000_000 if is_quick else 20_000_000)
    count = 10_000_000 if is_quick else 100_000_000
    ratios, peak_bytes = measure_growth(count)
    cost_s = measure_logstream(4.0 if is_quick else 20.0)
    if is_quick:
        print("quick: memory is that of 10 M transactions, not of the 100 M the target speaks of")
    say_estimate("ingest.rate", rate, target=">= 5e6")
    say("ingest.peak_memory_bytes", peak_bytes, unit=f"bytes at {count / 1e6:g} M transactions", n=2, target="< 300e6")
    growth = ratios.value or 0.0
    say_estimate("ingest.linearity", ratios, target="8 to 12.5 for ten times the data", holds=8.0 <= growth <= 12.5)
    say("ingest.logstream_cpu_s_per_million", cost_s, unit="s", n=1, target="<= 0.25")


def say_estimate(figure: str, estimate: Estimate, *, target: str, holds: bool | None = None) -> None:
    say(
        figure,
        estimate.value or 0.0,
        unit=estimate.unit,
        n=estimate.n,
        low=estimate.low,
        high=estimate.high,
        target=target,
        holds=holds,
    )


def measure_rate(count: int) -> Estimate:
    print(f"reading a log of {count / 1e6:g} M transactions from {MEMORY_FOLDER}, {REPEATS} times")
    with tempfile.NamedTemporaryFile(dir=MEMORY_FOLDER, prefix="pgdyno-bench-") as file:
        for second in make_seconds(count):
            file.write(second)
        file.flush()
        rates = []
        for _ in range(REPEATS):
            seen = run_reader(file.name)
            rates.append(count / seen["wall_s"])
            print(f"  {rates[-1] / 1e6:.2f} M transactions/s, {seen['cpu_s'] / count * 1e9:.0f} ns of CPU each")
    return estimate_geometric_mean(rates, unit="tx/s")


def measure_growth(count: int) -> tuple[Estimate, float]:
    """CPU time of `count` transactions against that of a tenth, and peak memory at `count`, all through a pipe."""
    ratios, peaks = [], []
    for _ in range(2):
        small, large = (run_reader_on_pipe(n) for n in (count // 10, count))
        ratios.append(large["cpu_s"] / small["cpu_s"])
        peaks.append(large["peak_bytes"])
        print(
            f"  {count / 1e6:g} M took {large['cpu_s']:.1f} s of CPU, {ratios[-1]:.2f} times that of a tenth;", end=" "
        )
        print(f"peak {peaks[-1] / 1e6:.0f} MB ({small['peak_bytes'] / 1e6:.0f} MB for a tenth)")
    return estimate_geometric_mean(ratios, unit="ratio"), max(peaks)


def measure_logstream(duration_s: float) -> float:
    """CPU seconds of the log reader for a million transactions, at the pace of a fast real load."""
    print(f"following two growing logs at {2 * LINES_PER_S} transactions/s for {duration_s:g} s")
    with tempfile.TemporaryDirectory() as folder:
        (stream,) = start_log_streams({Path(folder) / "transactions": LogRequest()}, user=find_server_user())
        try:
            paths = [stream.log_prefix.with_name(name) for name in ("pgbench.1", "pgbench.1.1")]
            outs = [path.open("wb", buffering=0) for path in paths]
            began_s = time.monotonic()
            for index, second in enumerate(make_seconds(round(duration_s) * LINES_PER_S)):
                for out in outs:
                    out.write(second)
                time.sleep(max(0.0, began_s + index + 1 - time.monotonic()))
            for out in outs:
                out.close()
            outcome = stream.finish()
        finally:
            stream.close()
    if outcome.summary is None or outcome.cpu_s is None or outcome.startup_cpu_s is None:
        raise SystemExit(f"the log reader failed: {outcome.reason}")
    cost = (outcome.cpu_s - outcome.startup_cpu_s) / outcome.summary.ok_count * 1e6
    print(
        f"  {outcome.summary.ok_count} transactions, {cost:.3f} CPU seconds a million after {outcome.startup_cpu_s:.2f}"
    )
    print(
        f"  to start; peak {(outcome.peak_memory_bytes or 0) / 1e6:.0f} MB; at most {outcome.backlog_bytes} bytes waited"
    )
    return cost


def make_seconds(count: int) -> Iterator[bytes]:
    """The text of `count` transactions, a second at a time."""
    lines = REAL_LOG.read_bytes().splitlines()
    real = [line.split() for line in itertools.islice(itertools.cycle(lines), LINES_PER_S)]
    step_us = 1_000_000 // LINES_PER_S
    text = b"".join(
        b"%b %d %b %b %d %d\n" % (fields[0], number, fields[2], fields[3], FIRST_EPOCH_S, number * step_us)
        for number, fields in enumerate(real)
    )
    block = np.frombuffer(text, dtype=np.uint8).copy()
    newlines = np.flatnonzero(block == ord("\n"))
    spaces = np.flatnonzero(block == ord(" ")).reshape(-1, 5)
    epochs = spaces[:, 3, None] + 1 + np.arange(10)
    for second in range(math.ceil(count / LINES_PER_S)):
        block[epochs] = np.frombuffer(b"%d" % (FIRST_EPOCH_S + second), dtype=np.uint8)
        rest = min(LINES_PER_S, count - second * LINES_PER_S)
        yield block[: newlines[rest - 1] + 1].tobytes()


def run_reader(path: str) -> dict[str, float]:
    argv = [sys.executable, __file__, "--read", path]
    return json.loads(subprocess.run(argv, capture_output=True, check=True, env=READER).stdout)


def run_reader_on_pipe(count: int) -> dict[str, float]:
    print(f"reading {count / 1e6:g} M transactions through a pipe", flush=True)
    with subprocess.Popen([sys.executable, __file__, "--generate", str(count)], stdout=subprocess.PIPE) as generator:
        done = subprocess.run(
            [sys.executable, __file__, "--read", "-"],
            stdin=generator.stdout,
            capture_output=True,
            check=True,
            env=READER,
        )
    seen = json.loads(done.stdout)
    if seen["count"] != count:
        raise SystemExit(f"read {seen['count']} of {count} transactions")
    return seen


def read_log_once(path: str) -> dict[str, float]:
    """Text to percentiles and series, with the time and memory it took."""
    with open(0 if path == "-" else path, "rb", buffering=0) as file:  # noqa: PTH123
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        tally, cutter = TransactionTally(columns=LogColumns.PLAIN), LineCutter()
        while data := file.read(BLOCK_BYTES):
            if lines := cutter.feed(data):
                tally.add_block(parse_block(lines, LogColumns.PLAIN))
        summary = tally.summary()
        check(summary)
        return {
            "count": summary.ok_count,
            "wall_s": time.perf_counter() - began_s,
            "cpu_s": time.process_time() - began_cpu_s,
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def check(summary: TransactionSummary) -> None:
    """Ask for what a report asks for, and that it is right."""
    series = summary.series
    p99 = summary.latency().quantile(0.99).value_us
    if p99 is None or summary.malformed_lines_count or not (series.tps[:-1] == LINES_PER_S).all():
        raise SystemExit("the summary is wrong")


if __name__ == "__main__":
    main()

"""How long `pgdyno check` takes, from start to end, and how much CPU; most of its time is pg_test_timing's one second.

Wall time counts, since somebody waits. A machine that is busy with other things makes it longer: run it on a quiet one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from figures import say
from scipy import stats


def look() -> tuple[float, float]:
    """Wall and CPU seconds of one check."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-I", "-m", "pgdyno", "check", "--json"], check=False, capture_output=True)
    wall_s = time.perf_counter() - began
    after = os.times()
    if done.returncode not in {0, 1}:
        sys.exit(done.stderr.decode())
    return wall_s, after.children_user + after.children_system - before.children_user - before.children_system


def interval(values: list[float]) -> dict[str, float]:
    """Mean with Student's 95 % interval, as `say` takes it."""
    mean = statistics.fmean(values)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return {"value": mean, "low": mean - half, "high": mean + half}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough answer within a minute")
    n = 5 if parser.parse_args().quick else 30
    print(f"`pgdyno check`, {n} times; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    looks = [look() for _ in range(n)]
    say("preflight.wall", **interval([wall_s for wall_s, _ in looks]), unit="s", n=n, target="<= 2")
    say("preflight.cpu", **interval([cpu_s for _, cpu_s in looks]), unit="s", n=n)


if __name__ == "__main__":
    main()

"""How long a user waits for nothing: `pgdyno --help` and `list` over bare Python, and a report of a 12-minute study rendered again.

Process time: CPU seconds of the whole process, from exec to exit; the shell in front (./pgdyno) is measured apart in wall
time. The study's record is one that `pgdyno bench` made; name it, or the newest one in ./pgdyno-records is taken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import say
from scipy import stats

PROJECT = Path(__file__).resolve().parents[1]


def process_time_s(argv: list[str]) -> float:
    """CPU seconds, user and system, of a program and its children."""
    before = os.times()
    subprocess.run(argv, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def wall_s(argv: list[str]) -> float:
    """Seconds from start to end of a program."""
    began = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    return time.perf_counter() - began


def interval(values: list[float]) -> dict[str, float]:
    """Mean with Student's 95 % interval, as `say` takes it."""
    mean = statistics.fmean(values)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return {"value": mean, "low": mean - half, "high": mean + half}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough answer within a minute")
    parser.add_argument("--record", type=Path, help="of a 12-minute study")
    options = parser.parse_args()
    n = 5 if options.quick else 30
    bare, helped, listed, shell, direct = [], [], [], [], []
    module = [sys.executable, "-I", "-m", "pgdyno", "--help"]
    nothing = [sys.executable, "-I", "-m", "pgdyno", "list", "--records", str(PROJECT / "benchmarks")]
    print(f"--help, list, bare Python and ./pgdyno in turn, {n} times each", flush=True)
    for _ in range(n):
        bare.append(process_time_s([sys.executable, "-I", "-c", "pass"]))
        helped.append(process_time_s(module))
        listed.append(process_time_s(nothing))
        shell.append(wall_s([str(PROJECT / "pgdyno"), "--help"]))
        direct.append(wall_s(module))
    over = [(a - b) * 1000 for a, b in zip(helped, bare, strict=True)]
    say("startup.help_over_bare_python", **interval(over), unit="ms", n=n, target="<= 150")
    over = [(a - b) * 1000 for a, b in zip(listed, bare, strict=True)]
    say("startup.list_over_bare_python", **interval(over), unit="ms", n=n)
    wrapped = [(a - b) * 1000 for a, b in zip(shell, direct, strict=True)]
    say("startup.shell_in_front", **interval(wrapped), unit="ms", n=n)
    records = sorted(Path("pgdyno-records").glob("*/record.json"))
    record = options.record or (records[-1].parent if records else None)
    if record is None:
        print("no record: run `./pgdyno bench` first, or name one with --record")
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(record, Path(folder) / record.name)
        trials = len(list(copy.glob("trials/[0-9][0-9][0-9][0-9]/trial.json")))
        print(f"rendering {record} ({trials} trials) again", flush=True)
        command = [sys.executable, "-I", "-m", "pgdyno", "report", str(copy)]
        times = [process_time_s(command) for _ in range(2 if options.quick else 10)]
        say("startup.render_report", **interval(times), unit="s", n=len(times), target="<= 3")


if __name__ == "__main__":
    main()

"""How long a user waits before anything is measured, and after: help, mistyped options, everyday commands, a report.

Process time: CPU seconds of the whole process, from exec to exit, in turn with bare Python; the shell in front (./pgdyno) is
measured apart in wall time. The report is of a record as a default `bench` leaves it, 81 trials and a sweep over clients,
in all its forms; `long_record.py` makes that out of a short bench, which takes five minutes and a PostgreSQL, or of one that
--record names.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import say
from long_record import SHORT_BENCH, make_long_record
from scipy import stats

PROJECT = Path(__file__).resolve().parents[1]
PROGRAM = [sys.executable, "-I", "-m", "pgdyno"]


def process_time_s(argv: list[str]) -> float:
    """CPU seconds, user and system, of a program and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # A mistyped option ends with an exit code of its own.
    done = subprocess.run(argv, check=False, capture_output=True)
    if done.returncode not in {0, 2}:
        raise RuntimeError(f"{argv}: {done.stderr.decode()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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


def time_commands(n: int) -> None:
    """Print what commands take over bare Python, each in turn."""
    with tempfile.TemporaryDirectory() as empty:
        commands = {
            "help": ["--help"],
            "help_of_a_command": ["bench", "--help"],
            "no_arguments": [],
            "version": ["--version"],
            "mistyped_option": ["bench", "--scael", "3"],
            "list": ["list", "--records", empty],
        }
        print(f"bare Python and {len(commands)} commands in turn, {n} times each", flush=True)
        over: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(n):
            for name, words in commands.items():
                bare_s = process_time_s([sys.executable, "-I", "-c", "pass"])
                over[name].append((process_time_s([*PROGRAM, *words]) - bare_s) * 1000)
    for name, values in over.items():
        target = "<= 150" if name in {"help", "help_of_a_command"} else None
        say(f"startup.{name}_over_bare_python", **interval(values), unit="ms", n=n, target=target)


def time_shell(n: int) -> None:
    """Print what ./pgdyno adds to the program."""
    module = [*PROGRAM, "--help"]
    wrapped = [(wall_s([str(PROJECT / "pgdyno"), "--help"]) - wall_s(module)) * 1000 for _ in range(n)]
    say("startup.shell_in_front", **interval(wrapped), unit="ms", n=n)


def time_report(short: Path | None, n: int) -> None:
    """Print what a report of a default bench takes."""
    with tempfile.TemporaryDirectory() as folder:
        if short is None:
            short = Path(folder) / "short"
            print("a short bench, to make the record of a long one: 5 minutes", flush=True)
            subprocess.run([*PROGRAM, "bench", *SHORT_BENCH, "--out", str(short)], check=True, capture_output=True)
        record = make_long_record(short, Path(folder) / "long")
        own, following = len(record.read_trials()), len(record.scaling.read_trials())
        print(f"a report of {own} trials and {following} of its sweep, {n} times, in turn with bare Python", flush=True)
        command = [*PROGRAM, "report", str(record.path)]
        # It unpacks the charts' program, once for all reports.
        process_time_s(command)
        times = [process_time_s(command) - process_time_s([sys.executable, "-I", "-c", "pass"]) for _ in range(n)]
    say("startup.render_report", **interval(times), unit="s", n=n, target="<= 3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough answer; within a minute with --record")
    parser.add_argument("--record", type=Path, help="a bench with stock and derived settings and a sweep over clients")
    options = parser.parse_args()
    n = 5 if options.quick else 30
    time_commands(n)
    time_shell(n)
    time_report(options.record, max(n // 3, 3))


if __name__ == "__main__":
    main()

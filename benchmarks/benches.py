"""How narrow the answers of `./pgdyno bench` are on this machine, as it comes.

Runs the bench several times and reads `report.json` of each. The half-width of an interval is the square root of the ratio of
its ends, less 1. Prints medians over the benches, and the shares of benches that met a target. With the folder of an earlier
run it goes on: benches that are there count, too.

Usage: python benchmarks/benches.py [--benches 5] [--quick] [--folder DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import say

PROGRAM = Path(__file__).resolve().parents[1] / "pgdyno"
# Source: what the answers are for: an effect of this size is worth a change of settings.
WORTHWHILE_RATIO = 0.08


def run_bench(folder: Path, *, is_quick: bool) -> None:
    """Run one bench in a folder."""
    folder.mkdir()
    argv = [str(PROGRAM), "bench", *(["--quick"] if is_quick else [])]
    with (folder / "output").open("w") as output:
        subprocess.run(argv, cwd=folder, stdout=output, stderr=output, check=True)


def find_half(low_ratio: float, high_ratio: float) -> float:
    """Return the half-width of an interval of ratios to 1."""
    return math.sqrt(high_ratio / low_ratio) - 1.0


def read_answers(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield each figure of a bench, by its name."""
    for gain in report["tuned"]["gains"] if report["tuned"] else ():
        verdict, workload = gain["verdict"], gain["workload"]
        if verdict is None or verdict["low_ratio"] is None:
            continue
        yield f"{workload}.half", find_half(1.0 + verdict["low_ratio"], 1.0 + verdict["high_ratio"])
        yield f"{workload}.effect", verdict["effect_ratio"]
        if abs(verdict["effect_ratio"]) > WORTHWHILE_RATIO:
            yield "worthwhile.decided", float(verdict["kind"] != "inconclusive")
    if report["scaling"] is None:
        return
    for comparison in report["scaling"]["experiment"]["comparisons"]:
        sweep = comparison["sweep"]
        for point in sweep["points"]:
            tps = point["tps"]
            if tps["low"] is not None:
                yield "sweep.half", find_half(tps["low"], tps["high"])
            yield "sweep.status", float(point["status"] is not None)
        knee = sweep["knee"]
        # An open end is wider than any factor.
        is_closed = knee["low"] is not None and knee["high"] is not None
        yield "sweep.knee.within_2", float(is_closed and knee["high"] <= 2.0 * knee["low"])


def say_figures(answers: dict[str, list[float]], *, prefix: str, most_half: float) -> None:
    """Print the median of each figure, or the share of those that are yes or no."""
    targets = {"half": f"<= {most_half}", "decided": ">= 1.0", "within_2": ">= 1.0"}
    for name, values in answers.items():
        kind = name.rpartition(".")[2]
        is_share = kind in {"decided", "status", "within_2"}
        value = statistics.mean(values) if is_share else statistics.median(values)
        say(
            f"benches.{prefix}.{name}",
            value,
            unit="ratio",
            n=len(values),
            target="<= 0.08" if name == "sweep.half" else targets.get(kind),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benches", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the records stay [default: a new one in /var/tmp]")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="pgdyno-benches-", dir="/var/tmp"))
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(KeyboardInterrupt):
        for number in range(1, options.benches + 1):
            place = folder / f"{number}"
            if place.exists():
                continue
            began_s, load = time.monotonic(), os.getloadavg()[0]
            run_bench(place, is_quick=options.quick)
            minutes = (time.monotonic() - began_s) / 60.0
            print(f"bench {number}, {minutes:.1f} minutes, load {load:.1f} before", file=sys.stderr, flush=True)
    answers: dict[str, list[float]] = defaultdict(list)
    for report in sorted(folder.glob("*/pgdyno-records/*-bench/report.json")):
        found = list(read_answers(json.loads(report.read_text())))
        for name, value in found:
            answers[name].append(value)
        shown = ", ".join(f"{name} {value:.3f}" for name, value in found if not name.startswith("sweep.status"))
        print(f"{report.parent.name}: {shown}", file=sys.stderr, flush=True)
    say_figures(answers, prefix="quick" if options.quick else "whole", most_half=0.08 if options.quick else 0.06)


if __name__ == "__main__":
    main()

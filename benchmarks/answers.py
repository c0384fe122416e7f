"""How much live pairs and paired trials scatter on this machine, for two variants that are alike.

Each repetition runs, in random order, one live round of the reference (twice) and of a variant that is like it, and the same
three trials one after the other, each with a fresh server, with measured loads of the same length. A pair is the log ratio
of two servers' TPS: live from the slices' transactions after the washout, else from the whole trial's. The scatter is the
standard deviation of pairs, from all three servers of a repetition; the interval of the ratio is a bootstrap over repetitions.

Usage: python benchmarks/answers.py [--workload tpcb-like] [--repetitions 20] [--scale 10] [--seconds 4] [--folder DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from figures import say
from rounds import in_slot, run_live, run_trials

from pgdyno.plan.plan import Machine, plan_study
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stages import prepare_stage

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)
MEMBERS = 3


def make_stages(home: Home, folder: Path, options: argparse.Namespace) -> tuple[TrialStage, list[TrialStage]]:
    """Load the data; return the stage of trials that follow each other, and the stages of a live round."""
    raw = {
        "data": {"scale": options.scale},
        "workload": [{"name": options.workload, "clients": 8, "threads": 2, "mode": "prepared"}],
        "trials": {"rounds": 1, "duration": f"{options.seconds:g}s", "warm_up": "1s"},
    }
    study = make_study(raw, source="answers", folder=folder)
    single = prepare_stage(home, folder, study, plan_study(study, MACHINE))
    return single, [in_slot(single, number) for number in range(1, MEMBERS + 1)]


def find_scatter(logs: np.ndarray) -> float:
    """Return the standard deviation of the difference of two servers, from the log TPS of repetitions, (repetitions, servers)."""
    return math.sqrt(2 * logs.var(axis=1, ddof=1).mean())


def find_interval(live: np.ndarray, paired: np.ndarray, *, repeats: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of both scatters, by drawing repetitions with replacement."""
    draw = np.random.default_rng(1)
    ratios = [
        find_scatter(live[draw.integers(0, len(live), len(live))])
        / find_scatter(paired[draw.integers(0, len(paired), len(paired))])
        for _ in range(repeats)
    ]
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="tpcb-like")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured load of each trial")
    parser.add_argument("--slice-seconds", type=float, default=0.5)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk that is meant")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-answers-", dir=options.folder))
    folder.chmod(0o755)
    draw = random.Random(1)
    found: dict[str, list[list[float]]] = {"live": [], "paired": []}
    took_s: dict[str, list[float]] = {"live": [], "paired": []}
    try:
        with open_home(folder / "home", find_server_user()) as home, contextlib.suppress(KeyboardInterrupt):
            single, slots = make_stages(home, folder, options)
            for number in range(1, options.repetitions + 1):
                for design in draw.sample(list(found), len(found)):
                    place = folder / f"{number}-{design}"
                    began_s = time.monotonic()
                    if design == "live":
                        # A slot's place on the disk must not be a member's for good.
                        first = number % MEMBERS
                        stages = [*slots[first:], *slots[:first]]
                        rates = run_live(stages, place, slice_s=options.slice_seconds, seed=number)
                    else:
                        rates = run_trials([single] * MEMBERS, place, duration_s=options.seconds, seed=number)
                    took_s[design].append(time.monotonic() - began_s)
                    shutil.rmtree(place)
                    found[design].append(rates)
                    shown = " ".join(f"{rate:.0f}" for rate in rates)
                    print(f"repetition {number} {design}: {shown} tps in {took_s[design][-1]:.1f} s", flush=True)
    finally:
        shutil.rmtree(folder)
    name = f"answers.{options.workload}"
    logs = {design: np.log(rates) for design, rates in found.items()}
    for design, of in logs.items():
        say(f"{name}.{design}.sd", find_scatter(of), unit="log ratio", n=len(of))
        say(f"{name}.{design}.round_s", statistics.median(took_s[design]), unit="s", n=len(of))
    low, high = find_interval(logs["live"], logs["paired"])
    ratio = find_scatter(logs["live"]) / find_scatter(logs["paired"])
    say(f"{name}.scatter_ratio", ratio, low=low, high=high, unit="live / paired", n=len(logs["live"]), target="<= 0.4")


if __name__ == "__main__":
    main()

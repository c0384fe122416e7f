"""Whether live pairs find the effect that long paired trials find, for differences between servers.

Each repetition runs, in random order, one live round of both sides and a trial of each side with a fresh server. The effect by
either design is the geometric mean of the ratio of TPS, second side over first; the bias is the effect by live pairs over that
by trials, with Welch's 95 % interval. One that does not hold 1 refutes live pairs; one that holds it says how large the bias may be.

The sides of `alike` are the same, which shows what this program itself favours. Those of `derived` are stock and the settings that
a bench has derived for PostgreSQL on this machine.

Usage: python benchmarks/truths.py alike [shared_buffers wal_compression version derived --study pgdyno-records/NAME/study.toml]
    [--repetitions 16] [--seconds 4] [--trial-seconds 10] [--folder DIR]
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import statistics
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from figures import say
from rounds import in_slot, run_live, run_trials
from scipy.stats import t as student
from scipy.stats import ttest_ind

from pgdyno.plan.plan import Machine, plan_study
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.trial_stage import TrialStage
from pgdyno.spec.read import make_study

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stages import prepare_stage

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


class Side(NamedTuple):
    """What one side runs."""

    settings: Mapping[str, str] = {}
    major: int = 18


class Truth(NamedTuple):
    """Two servers that differ."""

    workload: str
    first: Side
    second: Side


TRUTHS = {
    "alike": Truth("tpcb-like", Side(), Side()),
    "shared_buffers": Truth("select-only", Side({"shared_buffers": "16MB"}), Side({"shared_buffers": "1GB"})),
    "wal_compression": Truth("tpcb-like", Side({"wal_compression": "off"}), Side({"wal_compression": "pglz"})),
    "version": Truth("tpcb-like", Side(major=18), Side(major=15)),
    "derived": Truth("tpcb-like", Side(), Side()),
}


def read_derived(study: Path) -> dict[str, str]:
    """Return the settings of PostgreSQL that a bench has derived, from the study in its record."""
    variants = tomllib.loads(study.read_text())["variant"]
    return dict(next(one["settings"] for one in variants if one["name"] == "derived"))


def make_stages(home: Home, folder: Path, truth: Truth, options: argparse.Namespace) -> list[TrialStage]:
    """Load the data for both sides; return their stages."""
    raw: dict[str, Any] = {
        "data": {"scale": options.scale},
        "workload": [{"name": truth.workload, "clients": 8, "threads": 2}],
        "trials": {"rounds": 1, "duration": f"{options.seconds:g}s", "warm_up": "1s"},
    }
    study = make_study(raw, source="truths", folder=folder)
    plan = plan_study(study, MACHINE)
    stages = []
    for number, side in enumerate((truth.first, truth.second)):
        place = folder / f"side-{number}"
        place.mkdir()
        stages.append(prepare_stage(home, place, study, plan, major=side.major, settings=side.settings))
    return stages


def run_round(stages: Sequence[TrialStage], folder: Path, *, seed: int) -> float:
    """Run a live round; return the log ratio of the TPS in the counted part of the slices."""
    # As in a study: neither a slot's place on the disk nor who is restored first is a side's for good.
    order = draw_order(seed)
    slots = [in_slot(stages[number], slot) for slot, number in enumerate(order, start=1)]
    return compare_rates(order, run_live(slots, folder, slice_s=None, seed=seed))


def run_pair(stages: Sequence[TrialStage], folder: Path, *, seed: int, duration_s: float) -> float:
    """Run a trial of each side, in random order; return the log ratio of their TPS."""
    order = draw_order(seed)
    rates = run_trials([stages[number] for number in order], folder, duration_s=duration_s, seed=seed)
    return compare_rates(order, rates)


def draw_order(seed: int) -> list[int]:
    """Draw which side comes first: of two repetitions, 1 and 2 and so on, each side in one."""
    order = random.Random((seed - 1) // 2).sample(range(2), 2)
    return order if seed % 2 else order[::-1]


def compare_rates(order: Sequence[int], rates: Sequence[float]) -> float:
    """Return the log ratio of the TPS of the second side over the first, from rates in another order."""
    first, second = (rates[order.index(number)] for number in range(2))
    return math.log(second / first)


def say_figures(name: str, logs: Mapping[str, Sequence[float]]) -> None:
    """Print both effects and the bias."""
    for design, of in logs.items():
        mean, error = statistics.fmean(of), statistics.stdev(of) / math.sqrt(len(of))
        half = float(student.ppf(0.975, len(of) - 1)) * error
        low, high = math.exp(mean - half), math.exp(mean + half)
        say(f"{name}.{design}", math.exp(mean), low=low, high=high, unit="TPS ratio", n=len(of))
    compared = ttest_ind(logs["live"], logs["trials"], equal_var=False)
    interval = compared.confidence_interval(0.95)
    bias = statistics.fmean(logs["live"]) - statistics.fmean(logs["trials"])
    say(
        f"{name}.bias",
        math.exp(bias),
        low=math.exp(interval.low),
        high=math.exp(interval.high),
        unit="effect by live pairs / by trials",
        n=len(logs["live"]),
        target="1 is within the interval",
        holds=bool(interval.low <= 0.0 <= interval.high),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("truths", nargs="+", metavar="truth", choices=TRUTHS, help=", ".join(TRUTHS))
    parser.add_argument("--repetitions", type=int, default=16)
    parser.add_argument("--scale", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=4.0, help="measured load of each side of a live round")
    parser.add_argument("--trial-seconds", type=float, default=10.0, help="measured load of each trial")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk that is meant")
    parser.add_argument("--study", type=Path, help="study.toml of a bench, for derived")
    options = parser.parse_args()
    if options.study is None and "derived" in options.truths:
        parser.error("derived needs --study")
    for name in options.truths:
        truth = TRUTHS[name]
        if name == "derived":
            truth = truth._replace(second=Side(read_derived(options.study)))
        folder = Path(tempfile.mkdtemp(prefix="pgdyno-truths-", dir=options.folder))
        folder.chmod(0o755)
        draw = random.Random(1)
        logs: dict[str, list[float]] = {"live": [], "trials": []}
        is_stopped = False
        try:
            with open_home(folder / "home", find_server_user()) as home:
                stages = make_stages(home, folder, truth, options)
                for number in range(1, options.repetitions + 1):
                    for design in draw.sample(list(logs), len(logs)):
                        place = folder / f"{number}-{design}"
                        if design == "live":
                            log = run_round(stages, place, seed=number)
                        else:
                            log = run_pair(stages, place, seed=number, duration_s=options.trial_seconds)
                        shutil.rmtree(place)
                        logs[design].append(log)
                        print(f"{name}, repetition {number}, {design}: {math.expm1(log):+.1%}", flush=True)
        except KeyboardInterrupt:
            is_stopped = True
        finally:
            shutil.rmtree(folder)
        count = min(map(len, logs.values()))
        if count > 1:
            say_figures(f"truths.{name}", {design: of[:count] for design, of in logs.items()})
        if is_stopped:
            break


if __name__ == "__main__":
    main()

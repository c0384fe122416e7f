"""How a round of turns on one server compares with trials that have a fresh server each, for loads that differ in clients.

Each repetition runs, in random order, one round of turns and one trial of each load, with loads of the same length. The
scatter is the standard deviation of a difference between two loads of one repetition, once each load's mean is removed; the
interval of the ratio is a bootstrap over repetitions. The bias is the mean log ratio of a load's TPS in turns to its TPS in
trials; `--trial-seconds 20` asks it of trials that are long against what a new session takes to become fast.

Usage: python benchmarks/turns.py [--workload tpcb-like] [--repetitions 20] [--clients 1,4,16,32] [--seconds 4] [--folder DIR]
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
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from figures import say
from rounds import count_tps
from scipy.stats import t as student

from pgdyno.plan.plan import Machine, plan_study
from pgdyno.plan.types import PlannedTrial
from pgdyno.run.cluster.home import Home, open_home
from pgdyno.run.host.process import find_server_user
from pgdyno.run.live_member import LiveMember
from pgdyno.run.trial import run_trial
from pgdyno.run.trial_stage import TrialStage
from pgdyno.run.turn_round import run_turn_round
from pgdyno.spec.read import make_study

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.stages import prepare_stage

MACHINE = Machine(version_major=18, cpu_count=2, memory_bytes=8 << 30, disk_free_bytes=10**11)


def make_stage(home: Home, folder: Path, options: argparse.Namespace) -> TrialStage:
    """Load the data; return the stage of all trials."""
    raw = {
        "data": {"scale": options.scale},
        "workload": [{"name": options.workload, "threads": 2}],
        "trials": {"duration": f"{options.seconds:g}s", "warm_up": "1s"},
        "sweep": [{"name": "clients", "levels": [int(word) for word in options.clients.split(",")]}],
        "experiment": {"minutes": 60},
    }
    study = make_study(raw, source="turns", folder=folder)
    return prepare_stage(home, folder, study, plan_study(study, MACHINE))


def plan_trials(stage: TrialStage, *, seed: int, duration_s: float) -> list[PlannedTrial]:
    """Return a trial of each load, in random order."""
    assert stage.plan.experiment is not None
    names = [variant.name for variant in stage.plan.experiment.variants]
    trial = msgspec.structs.replace(stage.plan.trials[-1], duration_s=duration_s)
    return [
        msgspec.structs.replace(trial, number=number, variants=(name,), seed=seed * 100 + number)
        for number, name in enumerate(random.Random(seed).sample(names, len(names)), start=1)
    ]


def run_turns(stage: TrialStage, folder: Path, *, seed: int, duration_s: float) -> dict[str, float]:
    """Run a round of turns; return the TPS of each load in the counted part of its turns."""
    members = []
    for trial in plan_trials(stage, seed=seed, duration_s=duration_s):
        (folder / f"{trial.number}").mkdir(parents=True)
        members.append(LiveMember(stage=stage, trial=trial, folder=folder / f"{trial.number}"))
    outcomes = run_turn_round(members, slice_s=None, seed=seed, on_activity=lambda _: None, on_load=lambda _: None)
    return {
        member.trial.variants[0]: count_tps(member.folder, outcome)
        for member, outcome in zip(members, outcomes, strict=True)
    }


def run_trials(stage: TrialStage, folder: Path, *, seed: int, duration_s: float) -> dict[str, float]:
    """Run a trial of each load, each with a fresh server; return the TPS of each."""
    rates = {}
    for trial in plan_trials(stage, seed=seed, duration_s=duration_s):
        place = folder / f"{trial.number}"
        place.mkdir(parents=True)
        outcome = run_trial(stage, trial, folder=place, on_activity=lambda _: None, on_load=lambda _: None)
        if outcome.error is not None:
            raise outcome.error
        rates[trial.variants[0]] = outcome.tps or math.nan
    return rates


def find_scatter(logs: np.ndarray) -> float:
    """Return the standard deviation of a difference of two loads, from log TPS, (repetitions, loads)."""
    left = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    degrees = (logs.shape[0] - 1) * (logs.shape[1] - 1)
    return math.sqrt(2 * np.square(left).sum() / degrees)


def find_interval(turns: np.ndarray, trials: np.ndarray, *, repeats: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of both scatters, by drawing repetitions with replacement."""
    draw = np.random.default_rng(1)
    ratios = []
    for _ in range(repeats):
        chosen = draw.integers(0, len(turns), len(turns))
        if len(set(chosen.tolist())) > 1:
            ratios.append(find_scatter(turns[chosen]) / find_scatter(trials[chosen]))
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def say_figures(name: str, rates: Mapping[str, list[dict[str, float]]], took_s: Mapping[str, list[float]]) -> None:
    """Print what was measured."""
    loads = list(rates["turns"][0])
    logs = {way: np.log([[each[load] for load in loads] for each in of]) for way, of in rates.items()}
    count = len(logs["turns"])
    for way, of in logs.items():
        say(f"{name}.{way}.sd", find_scatter(of), unit="log ratio", n=count)
        say(f"{name}.{way}.round_s", statistics.median(took_s[way]), unit="s", n=count)
    low, high = find_interval(logs["turns"], logs["trials"])
    ratio = find_scatter(logs["turns"]) / find_scatter(logs["trials"])
    say(f"{name}.scatter_ratio", ratio, low=low, high=high, unit="turns / trials", n=count)
    for load, differences in zip(loads, (logs["turns"] - logs["trials"]).T, strict=True):
        half = student.ppf(0.975, count - 1) * differences.std(ddof=1) / math.sqrt(count)
        bias = float(differences.mean())
        say(f"{name}.bias.{load}", bias, low=bias - half, high=bias + half, unit="log ratio", n=count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="tpcb-like")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--clients", default="1,4,16,32")
    parser.add_argument("--scale", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=4.0, help="load of each load's turns in a round")
    parser.add_argument("--trial-seconds", type=float, help="measured load of each trial [default: as --seconds]")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="on the disk that is meant")
    options = parser.parse_args()
    trial_s = options.trial_seconds or options.seconds
    folder = Path(tempfile.mkdtemp(prefix="pgdyno-turns-", dir=options.folder))
    folder.chmod(0o755)
    draw = random.Random(1)
    rates: dict[str, list[dict[str, float]]] = {"turns": [], "trials": []}
    took_s: dict[str, list[float]] = {"turns": [], "trials": []}
    try:
        with open_home(folder / "home", find_server_user()) as home, contextlib.suppress(KeyboardInterrupt):
            stage = make_stage(home, folder, options)
            for repetition in range(1, options.repetitions + 1):
                found = {}
                for way in draw.sample(list(rates), len(rates)):
                    place = folder / f"{repetition}-{way}"
                    began_s = time.monotonic()
                    if way == "turns":
                        found[way] = run_turns(stage, place, seed=repetition, duration_s=options.seconds)
                    else:
                        found[way] = run_trials(stage, place, seed=repetition, duration_s=trial_s)
                    took_s[way].append(time.monotonic() - began_s)
                    shutil.rmtree(place)
                    shown = " ".join(f"{name.rpartition('=')[2]}: {rate:.0f}" for name, rate in found[way].items())
                    print(f"repetition {repetition} {way}: {shown} tps in {took_s[way][-1]:.1f} s", flush=True)
                for way, of in found.items():
                    rates[way].append(of)
    finally:
        shutil.rmtree(folder)
    count = min(map(len, rates.values()))
    if count > 1:
        name = f"turns.{options.workload}" + ("" if trial_s == options.seconds else f".{trial_s:g}s")
        say_figures(name, {way: of[:count] for way, of in rates.items()}, took_s)


if __name__ == "__main__":
    main()

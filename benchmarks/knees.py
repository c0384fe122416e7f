"""How often the knee of a sweep over clients is where it is said to be, and how wide its interval is.

Simulates sweeps of 1 to 32 clients, the first load twice a round, through the rule that ends real ones: loads are repeated until
they are decided and precise, or the rounds are over. Rounds differ by 10 %; trials scatter by so much that a pair of loads has the
standard deviation that they have here (5 to 10 %), or unlike by load. Curves: of the Universal Scalability Law, plateaus, a decline,
group commit, and some that are made to mislead, with loads just above and just below 90 % of the best.

Columns: `knee`, as reports say it; `simultaneous`, the same loads by intervals that hold for all pairs of loads together
(Tukey), and `little_3`, those with 3 % instead of 10 % for little, as before; `law`, the knee of the law where it describes the trials.
`missed` is the share of the intervals without the truth, and `within_2` the share of sweeps whose interval ends at most a factor of two
above its begin; an open end, or no interval, is wider. `tps` is how often the intervals of the loads' TPS miss the truth.
`statuses.py` asks the same of the loads' statuses.

Usage: python benchmarks/knees.py [--repeats 400] [--quick]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from figures import find_wilson, say
from numpy.random import Generator
from pooled_statuses import contrast_pooled, list_pooled_statuses

from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.sweep.client_trials import ClientTrial, arrange_trials, contrast_loads
from pgdyno.analyse.sweep.knee import KNEE_RATIO
from pgdyno.analyse.sweep.pairs import pair_loads
from pgdyno.analyse.sweep.scaling import (
    LEAST_ROUNDS,
    ClientSweep,
    analyse_client_sweep,
    describe_points,
    list_open_clients,
)
from pgdyno.analyse.sweep.statuses import LoadStatus

LOADS = (1, 2, 4, 8, 16, 32)
DELTA, CONFIDENCE, ROUND_SD = 0.03, 0.95, 0.1
Curve = Callable[[float], float]


def law(alpha: float, beta: float) -> Curve:
    return lambda n: n / (1 + alpha * (n - 1) + beta * n * (n - 1))


def losses(*logs: float) -> Curve:
    """Return a curve with these logarithms of the loss against the best, one for each load."""
    return lambda n: math.exp(-float(np.interp(math.log2(n), range(len(LOADS)), logs)))


EDGE = -math.log(KNEE_RATIO)
CURVES: Mapping[str, Curve] = {
    "law_2_cpus": law(0.25, 0.001),
    "law_peak_at_15": law(0.15, 0.004),
    "law_flat": law(0.3, 0.0),
    "plateau_from_2.2": lambda n: min(n, 2.2),
    "plateau_from_5": lambda n: min(n, 5.0),
    "soft_plateau": lambda n: (n**-3.0 + 6.0**-3.0) ** (-1 / 3),
    "decline": lambda n: min(n, 8.0) * math.exp(-0.25 * max(math.log2(n / 8.0), 0.0)),
    "group_commit": lambda n: 1.0 if n == 1 else min(0.52 * n, 7.0),
    "dip": lambda n: min(n, 6.0) * (0.93 if n > 12 else 1.0),
}
MISLEADING: Mapping[str, Curve] = {
    "just_above": losses(2.0, 1.4, 0.8, EDGE - 1e-6, 0.0, 0.0),
    "just_below": losses(2.0, 1.4, 0.8, EDGE + 1e-6, 0.05, 0.0),
    "shelf_below": losses(1.0, EDGE + 1e-6, EDGE + 1e-6, EDGE + 1e-6, EDGE + 1e-6, 0.0),
    "shelf_above": losses(2.0, 1.3, EDGE - 1e-6, EDGE - 1e-6, EDGE - 1e-6, 0.0),
    "below_a_decline": losses(1.5, 0.7, EDGE + 1e-6, 0.0, 0.1, 0.3),
    "two_edges": losses(1.5, 0.7, EDGE + 1e-6, EDGE - 1e-6, 0.0, 0.02),
}
SCATTERS: Mapping[str, tuple[float, ...]] = {
    "pair_5": (0.035,) * 6,
    "pair_7": (0.05,) * 6,
    "pair_10": (0.07,) * 6,
    "few_scatter": (0.15, 0.12, 0.08, 0.05, 0.04, 0.03),
    "many_scatter": (0.03, 0.03, 0.04, 0.06, 0.1, 0.12),
    "one_scatters": (0.03, 0.03, 0.03, 0.15, 0.03, 0.03),
    "quiet": (0.008,) * 6,
    "quiet_but_one": (0.006, 0.006, 0.006, 0.03, 0.006, 0.006),
}


def find_truth(curve: Curve, loads: tuple[float, ...], ratio: float) -> float:
    """Return the smallest of the loads with that share of the most TPS of all."""
    tps = [curve(n) for n in loads]
    return next(n for n, each in zip(loads, tps, strict=True) if each >= ratio * max(tps) * (1 - 1e-12))


def play(random: Generator, curve: Curve, scatter: tuple[float, ...], rounds: int) -> list[ClientTrial]:
    """Play one sweep, with a look after each round that another one may follow."""
    trials: list[ClientTrial] = []
    todo: tuple[int, ...] = LOADS
    for index in range(rounds):
        level = random.normal(0.0, ROUND_SD)
        # The reference runs twice as long as anything is open.
        for clients in (*LOADS[:1] * 2, *(n for n in todo if n != LOADS[0])):
            sd = scatter[LOADS.index(clients)]
            tps = 1000.0 * curve(float(clients)) * math.exp(level + random.normal(0.0, sd))
            trials.append(ClientTrial(clients=clients, round_index=index, tps=tps))
        # Before that, no load is left out.
        if LEAST_ROUNDS <= index + 1 < rounds:
            sweep = arrange_trials(trials, DELTA, CONFIDENCE)
            todo = list_open_clients(describe_points(sweep, contrast_loads(sweep), pair_loads(sweep)))
        if not todo:
            break
    return trials


def find_simultaneous(trials: list[ClientTrial], little: float) -> tuple[float, float] | None:
    """Return the loads between which the knee lies by intervals for all pairs of loads together; None where an end is open."""
    sweep = arrange_trials(trials, little, CONFIDENCE)
    compared = contrast_pooled(sweep)
    possible = list_pooled_statuses(sweep, compared)
    may = [n for n, of in zip(LOADS, possible, strict=True) if LoadStatus.PEAK in of]
    surely = [n for n, of in zip(LOADS, possible, strict=True) if of == (LoadStatus.PEAK,)]
    best = [LOADS[i] for i in compared.candidates]
    is_open = best[-1] == LOADS[-1] and LOADS[-1] not in surely
    return None if is_open or not may else (may[0], min([*surely, best[-1]]))


def answer(trials: list[ClientTrial], found: ClientSweep) -> Iterator[tuple[str, tuple[float, float | None] | None]]:
    """Yield each way's interval: None where it says nothing, an upper end of None where it is open."""
    yield "knee", _ends(found.knee)
    yield "simultaneous", find_simultaneous(trials, 1.0 - KNEE_RATIO)
    yield "little_3", find_simultaneous(trials, DELTA)
    yield "law", _ends(found.usl.knee) if found.usl is not None and found.usl.describes else None


def _ends(knee: Estimate) -> tuple[float, float | None] | None:
    return None if knee.low is None else (knee.low, knee.high)


def simulate(scatter: str, rounds: int, repeats: int) -> None:
    """Simulate all curves with one scatter, and print a line for each and the worst of all."""
    worst: dict[str, tuple[float, int, int, str]] = {}
    missed_tps = dict.fromkeys(LOADS, 0)
    narrow: dict[str, list[bool]] = {}
    curves = {**CURVES, **MISLEADING}
    for seed, (name, curve) in enumerate(curves.items()):
        random = np.random.default_rng([7, seed])
        fine = tuple(np.linspace(1.0, 2.0 * LOADS[-1], 6301).tolist())
        truths = {
            "law": find_truth(curve, fine, KNEE_RATIO),
            "little_3": find_truth(curve, LOADS, 1.0 - DELTA),
        }
        told: dict[str, list[tuple[float, float | None] | None]] = {}
        for _ in range(repeats):
            trials = play(random, curve, SCATTERS[scatter], rounds)
            found = analyse_client_sweep(trials, delta_ratio=DELTA)
            for point in found.points:
                truth = 1000.0 * curve(point.clients)
                missed_tps[point.clients] += not (point.tps.low or 0.0) <= truth <= (point.tps.high or math.inf)
            for way, ends in answer(trials, found):
                told.setdefault(way, []).append(ends)
        shown = []
        for way, all_ends in told.items():
            truth = truths.get(way, find_truth(curve, LOADS, KNEE_RATIO))
            known = [ends for ends in all_ends if ends is not None]
            missed = sum(not low <= truth <= (high or math.inf) for low, high in known)
            within = [ends is not None and ends[1] is not None and ends[1] <= 2.0 * ends[0] for ends in all_ends]
            # What is told seldom is missed seldom: the share is of all sweeps.
            worst[way] = max(worst.get(way, (-1.0, 0, 1, "")), (missed / repeats, missed, repeats, name))
            if name in CURVES:
                narrow.setdefault(way, []).extend(within)
            shown.append(f"{way} {missed / repeats:.3f} {sum(within) / repeats:.2f}")
        print(f"{scatter:<13}{rounds:>3} {name:<17}{' | '.join(shown)}", flush=True)
    most, clients = max((count, n) for n, count in missed_tps.items())
    sweeps = repeats * len(curves)
    worst["tps"] = (most / sweeps, most, sweeps, f"{clients}_clients")
    for way, (share, count, n, name) in worst.items():
        low, high = find_wilson(count, n)
        # A load that ends its rounds once its interval is narrow has one that is somewhat too narrow.
        target = {"knee": "<= 0.05", "tps": "<= 0.08"}.get(way)
        prefix = f"knees.{scatter}.{rounds}_rounds.{way}"
        say(f"{prefix}.missed.{name}", share, low=low, high=high, unit="ratio", n=n, target=target)
        if way in narrow:
            say(f"{prefix}.within_2", sum(narrow[way]) / len(narrow[way]), unit="ratio", n=len(narrow[way]))


def run(simulate: Callable[[str, int, int], None], usage: str | None) -> None:
    """Simulate what the command line asks for: each scatter and number of rounds."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="20 sweeps of each curve")
    parser.add_argument("--scatter", nargs="+", choices=SCATTERS, default=list(SCATTERS))
    parser.add_argument("--rounds", nargs="+", type=int, default=[5, 12])
    options = parser.parse_args()
    for rounds in options.rounds:
        for scatter in options.scatter:
            simulate(scatter, rounds, 20 if options.quick else options.repeats)


if __name__ == "__main__":
    run(simulate, __doc__)

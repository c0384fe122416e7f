"""How many sweeps over clients have a wrong status, and how many of their loads have one.

Simulates the sweeps of `knees.py`, with curves that have loads right beside the limits of statuses besides, and asks two
rules: `ordered`, as reports say it, and `pooled`, by intervals for all pairs of loads together, from one noise of all loads, as
before. Linear growth that is called underused is not wrong.

Figures: `wrong`, the share of the sweeps with a wrong status, of the curve that has most; `wrong_on_average`, of all curves; `decided`, the share of
the loads with a status on the curves that servers have, and `decided_beside`, on those that mislead or have loads beside limits.

Usage: python benchmarks/statuses.py [--repeats 400] [--quick]
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping

import numpy as np
from figures import find_wilson, say
from knees import CONFIDENCE, CURVES, DELTA, LOADS, MISLEADING, SCATTERS, Curve, losses, play, run
from pooled_statuses import contrast_pooled, list_pooled_statuses

from pgdyno.analyse.sweep.client_trials import ClientTrial, arrange_trials, contrast_loads
from pgdyno.analyse.sweep.pairs import pair_loads
from pgdyno.analyse.sweep.statuses import COLLAPSE_RATIO, LINEAR_RATIO, LoadStatus, list_possible_statuses

LITTLE, MUCH = -math.log1p(-DELTA), -math.log(COLLAPSE_RATIO)
JUST = 1e-6
BESIDE_LIMITS: Mapping[str, Curve] = {
    "both_deltas": losses(1.5, LITTLE + JUST, LITTLE - JUST, 0.0, LITTLE - JUST, LITTLE + JUST),
    "late": losses(1.5, 0.7, LITTLE + JUST, 0.0, MUCH - JUST, MUCH + JUST),
    "late_peak": losses(1.5, LITTLE + JUST, LITTLE - JUST, 0.0, LITTLE + JUST, MUCH - JUST),
    "early": losses(LITTLE - JUST, LITTLE + JUST, 0.0, LITTLE - JUST, MUCH - JUST, MUCH + JUST),
    "climbs_to_its_end": losses(1.5, 1.0, 0.6, 0.3, LITTLE + JUST, 0.0),
    "flat_at_its_end": losses(1.5, 1.0, 0.6, LITTLE + JUST, LITTLE - JUST, 0.0),
    "below_a_plateau": losses(1.5, 0.7, LITTLE + JUST, 0.0, 0.0, 0.0),
    "all_little_below": losses(*(LITTLE + JUST,) * 5, 0.0),
    "all_little_past": losses(0.0, *(LITTLE + JUST,) * 5),
    "all_near": losses(LITTLE - JUST, LITTLE - JUST, 0.0, *(LITTLE - JUST,) * 3),
    "all_contended": losses(0.0, *(MUCH - JUST,) * 5),
    "all_collapse": losses(0.0, *(MUCH + JUST,) * 5),
    "hardly_linear": lambda n: n if n == 1 else n * LINEAR_RATIO * math.exp(JUST if n == 8 else -JUST),
}
Statuses = list[LoadStatus | None]


def find_true_statuses(curve: Curve) -> list[set[LoadStatus]]:
    """Return what each load may rightly be called: linear growth that is not shown counts as underused."""
    logs = [math.log(curve(float(n))) for n in LOADS]
    best, last = logs.index(max(logs)), len(LOADS) - 1
    found = []
    for load, n in enumerate(LOADS):
        # The largest load is no peak while TPS still climbs to it.
        gap = logs[best] - logs[load] if not load == best == last else logs[last] - logs[last - 1]
        is_linear = logs[load] - logs[0] - math.log(n) >= math.log(LINEAR_RATIO)
        if gap <= LITTLE:
            found.append({LoadStatus.PEAK})
        elif load <= best:
            found.append({LoadStatus.UNDER_USED, *([LoadStatus.LINEAR] if is_linear else [])})
        else:
            found.append({LoadStatus.CONTENDED if gap <= MUCH else LoadStatus.COLLAPSE})
    return found


def answer(trials: list[ClientTrial]) -> Iterator[tuple[str, Statuses]]:
    """Yield the statuses by each rule."""
    sweep = arrange_trials(trials, DELTA, CONFIDENCE)
    ordered = list_possible_statuses(sweep, pair_loads(sweep), contrast_loads(sweep).best)
    pooled = list_pooled_statuses(sweep, contrast_pooled(sweep))
    for rule, possible in (("ordered", ordered), ("pooled", pooled)):
        yield rule, [of[0] if len(of) == 1 else None for of in possible]


def simulate(scatter: str, rounds: int, repeats: int) -> None:
    """Simulate all curves with one scatter, and print a line for each and the figures of all."""
    wrong: dict[str, list[tuple[int, str]]] = {}
    decided: dict[tuple[str, str], list[float]] = {}
    for seed, (name, curve) in enumerate({**CURVES, **MISLEADING, **BESIDE_LIMITS}.items()):
        random, true = np.random.default_rng([8, seed]), find_true_statuses(curve)
        told: dict[str, list[Statuses]] = {}
        for _ in range(repeats):
            for rule, statuses in answer(play(random, curve, SCATTERS[scatter], rounds)):
                told.setdefault(rule, []).append(statuses)
        shown = []
        for rule, sweeps in told.items():
            count = sum(
                any(one is not None and one not in right for one, right in zip(statuses, true, strict=True))
                for statuses in sweeps
            )
            share = statistics.fmean(one is not None for statuses in sweeps for one in statuses)
            wrong.setdefault(rule, []).append((count, name))
            decided.setdefault((rule, "decided" if name in CURVES else "decided_beside"), []).append(share)
            shown.append(f"{rule} {count / repeats:.3f} {share:.2f}")
        print(f"{scatter:<13}{rounds:>3} {name:<17}{' | '.join(shown)}", flush=True)
    for rule, counts in wrong.items():
        prefix = f"statuses.{scatter}.{rounds}_rounds.{rule}"
        most, name = max(counts)
        target = "<= 0.05" if rule == "ordered" else None
        for what, count, n in (
            ("wrong", most, repeats),
            ("wrong_on_average", sum(c for c, _ in counts), repeats * len(counts)),
        ):
            low, high = find_wilson(count, n)
            figure = f"{prefix}.{what}" + (f".{name}" if what == "wrong" else "")
            say(figure, count / n, low=low, high=high, unit="ratio", n=n, target=target)
        for what in ("decided", "decided_beside"):
            shares = decided[rule, what]
            say(f"{prefix}.{what}", statistics.fmean(shares), unit="ratio", n=repeats * len(LOADS) * len(shares))


if __name__ == "__main__":
    run(simulate, __doc__)

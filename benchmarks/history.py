"""How often a history that did not change is said to have changed, how soon a change is found, and how often its brackets hold it.

Simulates series of results with a spread of 3 % (standard deviation of the logarithm), and asks the code that judges real
histories, with two independent series for the two metrics of each. Without a change every one that is found is false. In the
others the level of one falls after 20 results; the series then ends some results later, as if `pgdyno history` were run on that
day.

    python benchmarks/history.py [--quick]
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from figures import say_share

from pgdyno.analyse.history.change_points import find_change_points
from pgdyno.analyse.history.histories import ALPHA, METRICS

_SPREAD = 0.03
_BEFORE = 20
_ALPHA = ALPHA / len(METRICS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    count = 100 if parser.parse_args().quick else 1000
    random = np.random.default_rng(1)
    for length in (9, 15, 25, 100):
        for noise in ("white", "heavy_tails", "correlated_30", "correlated_60"):
            found = [
                any(find_change_points(_make(random, noise, length), alpha=_ALPHA) for _ in METRICS)
                for _ in range(count)
            ]
            target = None if noise.startswith("correlated") else "<= 0.05"
            say_share(f"history.false.{noise}.{length}", found, target=target)
    for drop in (0.05, 0.1):
        for after in (2, 3, 4, 5, 10):
            found, held, fall = [], [], math.log(1 - drop)
            for _ in range(count):
                series = _make(random, "white", _BEFORE + after)
                series[_BEFORE:] += fall
                changes = find_change_points(series, alpha=_ALPHA)
                found.append(any(abs(one.place - _BEFORE) <= 1 for one in changes))
                held += [one.step.low <= fall <= one.step.high for one in changes if len(changes) == 1]
            say_share(f"history.found.drop{drop}.after{after}", found)
            say_share(f"history.held.drop{drop}.after{after}", held, target=">= 0.95")


def _make(random: np.random.Generator, noise: str, length: int) -> np.ndarray:
    if noise == "heavy_tails":
        return _SPREAD / math.sqrt(3) * random.standard_t(3, length)
    shocks = random.normal(0, _SPREAD, length)
    if noise == "white":
        return shocks
    correlation = int(noise.rpartition("_")[2]) / 100
    for place in range(1, length):
        shocks[place] = correlation * shocks[place - 1] + math.sqrt(1 - correlation**2) * shocks[place]
    return shocks


if __name__ == "__main__":
    main()

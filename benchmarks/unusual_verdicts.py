"""How often verdicts of unusual studies are false: trials that fail, rounds that are interrupted, many variants, odd noise.

As `verdicts.py --simulate`, whose rounds and looks it uses: no variant differs from the reference, and what counts is a false
“faster” or “slower” at any look up to the final one. The noise is white where nothing is said.

- *alike*, *one*: a share of the trials that are slower than their mean fails and is run again: of all variants alike, or of one
  variant alone. What is left of one variant alone is faster than it is, so that “faster” is no surprise: see the report's finding.
- *at_random*: 40 % of the rounds are interrupted by Ctrl-C and left out, on a machine that drifts steeply.
- *by_results*: a user presses Ctrl-C in up to seven rounds whose first two trials show the variant behind the reference.
- *noise*: two levels of the machine, half of the time each, with little noise beside (`quiet`) or more; counts that are often 0, 1
  or 2; Cauchy's tails; one trial of 50 ten times as high.
- *many*: 8 or 21 variants; `drift` falls from each trial to the next by twice the noise.

Usage: python benchmarks/unusual_verdicts.py [--repeats 4000]      (two minutes)
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import verdicts
from figures import say
from numpy.random import Generator
from verdicts import (
    ALPHA,
    NOISES,
    SLICE_SD,
    Noise,
    draw_pairs,
    draw_squares,
    is_false_ever,
    linear,
    mixed,
    repeat,
    share,
    stalls,
    white,
)

from pgdyno.plan.experiment import least_pairs, least_tested_pairs

Draw = Callable[[Generator, int], np.ndarray]

TRIES = 6
"""A trial that has failed so often before finishes. pgdyno gives its variant up after two, and has fewer looks at it: its rates are lower."""
MOST_CUTS = 7


def quiet(random: Generator, repeats: int, steps: int) -> np.ndarray:
    return 0.1 * white(random, repeats, steps)


def small_counts(random: Generator, repeats: int, steps: int) -> np.ndarray:
    """Draw logarithms of Poisson counts of 4 in the mean; one of 0 has none, and its pair is left out: here it counts as 1."""
    return np.log(np.maximum(random.poisson(4, (repeats, steps)), 1))


def cauchy(random: Generator, repeats: int, steps: int) -> np.ndarray:
    return random.standard_cauchy((repeats, steps)) * 0.02


def rare_tenfold(random: Generator, repeats: int, steps: int) -> np.ndarray:
    return np.where(random.random((repeats, steps)) < 0.02, math.log(10), 0.0)


ODD = {
    "two_levels": Noise(draw=mixed(white, stalls(0.5))),
    "two_levels_quiet": Noise(draw=mixed(quiet, stalls(0.5))),
    "small_counts": Noise(draw=small_counts),
    "cauchy": Noise(draw=cauchy),
    "rare_tenfold": Noise(draw=mixed(white, rare_tenfold)),
}
OF_MANY = {
    "white": NOISES["white"],
    "frequent_stalls": NOISES["frequent_stalls"],
    "drift": Noise(draw=mixed(white, linear(-2 * SLICE_SD))),
}


def draw_failing(random: Generator, repeats: int, rounds: int, ratio: float, *, is_alike: bool) -> np.ndarray:
    """Draw pairs of a variant with trials that are run again: this share of those that are slower than their mean fails."""
    levels = random.normal(0, SLICE_SD, (repeats, 3, rounds))
    failing = levels if is_alike else levels[:, 2:]
    for _ in range(TRIES):
        has_failed = (failing < 0) & (random.random(failing.shape) < ratio)
        failing[has_failed] = random.normal(0, SLICE_SD, int(has_failed.sum()))
    return levels[:, 2:] - levels[:, :2].mean(axis=1, keepdims=True)


def leave_out(pairs: np.ndarray, is_cut: np.ndarray) -> np.ndarray:
    """Move the rounds that were cut behind all others, (repeats, variants, rounds)."""
    order = np.argsort(is_cut, axis=1, kind="stable")
    return np.take_along_axis(pairs, order[:, None, :], axis=2)


def draw_cut_at_random(random: Generator, repeats: int, rounds: int, variants: int) -> np.ndarray:
    pairs = draw_pairs(random, NOISES["steep_drift"], repeats, 3 * rounds, variants)
    return leave_out(pairs, random.random((repeats, 3 * rounds)) < 0.4)[..., :rounds]


def draw_noisy(random: Generator, repeats: int, noise: Noise, rounds: int, variants: int) -> np.ndarray:
    return draw_pairs(random, noise, repeats, rounds, variants)


def draw_cut_by_results(random: Generator, repeats: int, rounds: int) -> np.ndarray:
    drawn = rounds + MOST_CUTS
    levels = random.normal(0, SLICE_SD, (repeats, drawn, 3))
    squares = draw_squares(3)
    places = squares[random.integers(len(squares), size=(repeats, math.ceil(drawn / 3)))]
    places = places.reshape(repeats, -1, 3)[:, :drawn]
    # The last trial of a round is not known yet.
    is_seen = places < 2
    reference = np.where(is_seen[..., 0], levels[..., 0], levels[..., 1])
    is_behind = is_seen[..., 2] & (levels[..., 2] < reference)
    is_cut = is_behind & (np.cumsum(is_behind, axis=1) <= MOST_CUTS)
    pairs = (levels[..., 2] - levels[..., :2].mean(axis=2))[:, None]
    return leave_out(pairs, is_cut)[..., :rounds]


def list_cases() -> Iterator[tuple[str, Draw, int]]:
    """Yield each case by its name, with what draws its pairs and its rounds."""
    for who, ratio, planned in itertools.product(("alike", "one"), (0.1, 0.2, 0.4), (6, 12, 24)):
        draw = functools.partial(draw_failing, rounds=planned, ratio=ratio, is_alike=who == "alike")
        yield f"failing.{who}.{ratio:g}.{planned}_rounds", draw, planned
    for variants, planned in ((1, 4), (1, 12), (4, 6)):
        draw = functools.partial(draw_cut_at_random, rounds=planned, variants=variants)
        yield f"cut.at_random.{variants}_variants.{planned}_rounds", draw, planned
    for planned in (6, 12):
        yield f"cut.by_results.{planned}_rounds", functools.partial(draw_cut_by_results, rounds=planned), planned
    for variants, noises in ((1, ODD), (4, ODD), (8, OF_MANY), (21, OF_MANY)):
        least = min(least_tested_pairs(ALPHA / 2 / variants), least_pairs(ALPHA / 2 / variants))
        for (name, noise), (planned, word) in itertools.product(noises.items(), ((least, "fewest"), (12, "12"))):
            draw = functools.partial(draw_noisy, noise=noise, rounds=planned, variants=variants)
            yield f"{name}.{variants}_variants.{word}", draw, planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4000, help="experiments simulated for each case")
    options = parser.parse_args()
    # Families of many variants are large.
    verdicts.CHUNK = 100
    figures = []
    for name, draw, planned in list_cases():
        is_false = repeat(lambda r, n, draw=draw, k=planned: is_false_ever(draw(r, n), k), options.repeats)
        print(f"{name:<40} {is_false.mean():>8.2%}", flush=True)
        # Of variants that fail unlike each other, and of a user who chooses by results, nothing is claimed.
        is_claimed = not name.startswith(("failing.one", "cut.by_results"))
        figures.append(share(f"unusual.{name}", is_false, target=f"<= {ALPHA}" if is_claimed else None))
    for figure in figures:
        say(**figure)


if __name__ == "__main__":
    main()

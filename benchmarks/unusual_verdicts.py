"""How often verdicts of unusual studies are false: trials that fail, rounds that are interrupted, many variants, odd noise.

As `verdicts.py --simulate`, whose rounds and looks it uses: no variant differs from the reference, and what counts is a false
“faster” or “slower” at any look up to the final one. The noise is white where nothing is said.

- *failing*: a share of the trials that are slower than their mean fails and is run again: of all variants alike, of one variant
  alone, or of the reference alone; *fast*: of those of one variant that are faster; *levels*: of one variant, where the machine has two
  levels; *unlike*: one variant fails where it is slow, the reference as often at random; *opposite*: the reference where it is fast.
  *unbounded*: one variant alone, as it was decided before pairs of failed trials were bounded.
- *power*: a true effect of so many standard deviations of a pair is called at the planned end, where this share of all trials fails at random.
- *at_random*: 40 % of the rounds are interrupted by Ctrl-C and left out, on a machine that drifts steeply.
- *by_results*: a user presses Ctrl-C in up to so many rounds whose first two trials show the variant behind the reference.
- *noise*: two levels of the machine, half of the time each, with little noise beside (`quiet`) or more; counts that are often 0, 1
  or 2; Cauchy's tails; one trial of 50 ten times as high.
- *many*: 8 or 21 variants; `drift` falls from each trial to the next by twice the noise.

Usage: python benchmarks/unusual_verdicts.py [--repeats 4000]      (ten minutes)
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import verdicts
from figures import say
from numpy.random import Generator
from verdicts import (
    ALPHA,
    NO_DELTA,
    NOISES,
    PAIR_SD,
    SLICE_SD,
    Noise,
    draw_pairs,
    draw_rounds,
    draw_squares,
    is_directed,
    is_false_ever,
    linear,
    mixed,
    repeat,
    share,
    stalls,
    white,
)

from pgdyno.analyse.comparison.repeats import Repeated, find_extremes
from pgdyno.analyse.comparison.verdict import FamilyState, RatioOutcome, compute_states, judge_family
from pgdyno.plan.experiment import least_pairs, least_tested_pairs

Play = Callable[[Generator, int], np.ndarray]
"""Whether each of so many experiments has a false verdict."""

TRIES = 6
"""A trial that has failed so often before finishes. pgdyno gives its variant up after two, and has fewer looks at it: its rates are lower."""
CUTS = (1, 2, 3, 7)
NOT_CLAIMED = (
    "failing.unbounded",
    "failing.unlike",
    "failing.opposite",
    "cut.by_results.2",
    "cut.by_results.3",
    "cut.by_results.7",
    "power",
)
"""Cases whose rate is told, and not promised: selection that nothing bounds, and power."""
ALL, REFERENCE, VARIANT = slice(None), slice(0, 2), slice(2, 3)
"""Of the slots of a round with one variant."""


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


Failing = tuple[slice, float, int]
"""Whose trials fail, which share of those that can, and which can: -1: those slower than the mean; 1: those faster; 0: all."""


def rerun(random: Generator, levels: np.ndarray, failing: Failing, noise: Noise) -> np.ndarray:
    """Run the trials again that fail, in place, and return which of the log levels, (repeats, slots, rounds), are of such trials."""
    slots, ratio, sign = failing
    mean, has_failed = levels.mean(), np.zeros(levels.shape, dtype=bool)
    for _ in range(TRIES):
        fails = np.zeros(levels.shape, dtype=bool)
        fails[:, slots] = random.random(levels[:, slots].shape) < ratio
        if sign:
            fails &= sign * (levels - mean) > 0
        again = draw_rounds(random, noise, len(levels), levels.shape[2], levels.shape[1])
        levels[fails] = again[fails]
        has_failed |= fails
    return has_failed


def judge_failing(levels: np.ndarray, has_failed: np.ndarray, planned: int) -> np.ndarray:
    """Judge one variant after every round, the last of which is the final look, as pgdyno does: outcomes, (repeats, looks)."""
    pairs = levels[:, 2] - levels[:, :2].mean(axis=1)
    own = levels[:, 0] - levels[:, 1]
    counts = has_failed[:, 2].astype(int), has_failed[:, :2].sum(axis=1)
    repeated = [[*map(Repeated, *of)] for of in zip(*(count.tolist() for count in counts), strict=True)]
    outcomes = []
    for n in range(least_pairs(ALPHA / 2), planned + 1):
        rows = np.repeat(pairs[:, None, :n], 3, axis=1)
        for at in np.flatnonzero(has_failed[:, :, :n].any(axis=(1, 2))):
            if extremes := find_extremes(pairs[at, :n], own[at, :n], repeated[at][:n]):
                rows[at, 1:] = extremes
        looks = compute_states(rows, beta=ALPHA / 2, size=1, looked=planned if n == planned else 0)
        log_p, low, high = looks.log_p[..., -1], looks.low[..., -1, :], looks.high[..., -1, :]
        family = FamilyState(log_p.max(axis=1)[:, None], low.min(axis=1)[:, None], high.max(axis=1)[:, None])
        outcomes.append(judge_family(family, beta=ALPHA / 2, delta_ratio=NO_DELTA).outcome[:, 0])
    return np.stack(outcomes, axis=1)


def draw_failing(
    random: Generator, repeats: int, rounds: int, noise: Noise, failing: tuple[Failing, ...]
) -> tuple[np.ndarray, np.ndarray]:
    levels = draw_rounds(random, noise, repeats, rounds, 3)
    failed = [rerun(random, levels, one, noise) for one in failing]
    return levels, np.any(failed, axis=0)


def is_false_failing(
    random: Generator,
    repeats: int,
    *,
    planned: int,
    failing: tuple[Failing, ...],
    noise: Noise,
    is_bounded: bool = True,
) -> np.ndarray:
    levels, has_failed = draw_failing(random, repeats, planned, noise, failing)
    return is_directed(judge_failing(levels, has_failed & is_bounded, planned)).any(axis=1)


def is_called_failing(random: Generator, repeats: int, *, planned: int, ratio: float, effect: float) -> np.ndarray:
    levels, has_failed = draw_failing(random, repeats, planned, NOISES["white"], ((ALL, ratio, 0),))
    levels[:, 2] += effect
    return judge_failing(levels, has_failed, planned)[:, -1] == RatioOutcome.HIGHER


def leave_out(pairs: np.ndarray, is_cut: np.ndarray) -> np.ndarray:
    """Move the rounds that were cut behind all others, (repeats, variants, rounds)."""
    order = np.argsort(is_cut, axis=1, kind="stable")
    return np.take_along_axis(pairs, order[:, None, :], axis=2)


def draw_cut_at_random(random: Generator, repeats: int, rounds: int, variants: int) -> np.ndarray:
    pairs = draw_pairs(random, NOISES["steep_drift"], repeats, 3 * rounds, variants)
    return leave_out(pairs, random.random((repeats, 3 * rounds)) < 0.4)[..., :rounds]


def draw_noisy(random: Generator, repeats: int, noise: Noise, rounds: int, variants: int) -> np.ndarray:
    return draw_pairs(random, noise, repeats, rounds, variants)


def draw_cut_by_results(random: Generator, repeats: int, rounds: int, cuts: int) -> np.ndarray:
    drawn = rounds + cuts
    levels = random.normal(0, SLICE_SD, (repeats, drawn, 3))
    squares = draw_squares(3)
    places = squares[random.integers(len(squares), size=(repeats, math.ceil(drawn / 3)))]
    places = places.reshape(repeats, -1, 3)[:, :drawn]
    # The last trial of a round is not known yet.
    is_seen = places < 2
    reference = np.where(is_seen[..., 0], levels[..., 0], levels[..., 1])
    is_behind = is_seen[..., 2] & (levels[..., 2] < reference)
    is_cut = is_behind & (np.cumsum(is_behind, axis=1) <= cuts)
    pairs = (levels[..., 2] - levels[..., :2].mean(axis=2))[:, None]
    return leave_out(pairs, is_cut)[..., :rounds]


def play_drawn(draw: Callable[..., np.ndarray], rounds: int, **chosen: Any) -> Play:
    return lambda random, repeats: is_false_ever(draw(random, repeats, rounds=rounds, **chosen), rounds)


def list_failing() -> Iterator[tuple[str, Play]]:
    """Yield each case of trials that fail by its name."""
    white_noise, planned = NOISES["white"], (6, 12, 24)

    def of(
        name: str, ratio: float, *failing: Failing, noise: Noise = white_noise, **how: bool
    ) -> Iterator[tuple[str, Play]]:
        for n in planned:
            play = functools.partial(is_false_failing, planned=n, failing=failing, noise=noise, **how)
            yield f"failing.{name}.{ratio:g}.{n}_rounds", play

    for ratio in (0.1, 0.2, 0.4):
        yield from of("one", ratio, (VARIANT, ratio, -1))
        yield from of("unbounded", ratio, (VARIANT, ratio, -1), is_bounded=False)
        yield from of("alike", ratio, (ALL, ratio, -1))
    yield from of("reference", 0.4, (REFERENCE, 0.4, -1))
    yield from of("fast", 0.4, (VARIANT, 0.4, 1))
    yield from of("levels", 0.4, (VARIANT, 0.4, -1), noise=ODD["two_levels_quiet"])
    # Half of the trials are slow: both fail as often.
    yield from of("unlike", 0.2, (VARIANT, 0.2, -1), (REFERENCE, 0.1, 0))
    yield from of("opposite", 0.2, (VARIANT, 0.2, -1), (REFERENCE, 0.2, 1))


def list_power() -> Iterator[tuple[str, Play]]:
    """Yield each case of a true effect beside trials that fail at random by its name."""
    for in_sd, ratio, planned in itertools.product((1, 2), (0.0, 0.01, 0.05), (6, 12, 24)):
        play = functools.partial(is_called_failing, planned=planned, ratio=ratio, effect=in_sd * PAIR_SD)
        yield f"power.{in_sd}_sd.{ratio:g}.{planned}_rounds", play


def list_cases() -> Iterator[tuple[str, Play]]:
    """Yield each case of false verdicts by its name."""
    yield from list_failing()
    for variants, planned in ((1, 12), (4, 6)):
        yield (
            f"cut.at_random.{variants}_variants.{planned}_rounds",
            play_drawn(draw_cut_at_random, planned, variants=variants),
        )
    for cuts, planned in itertools.product(CUTS, (6, 12, 24)):
        yield f"cut.by_results.{cuts}_cuts.{planned}_rounds", play_drawn(draw_cut_by_results, planned, cuts=cuts)
    for variants, noises in ((1, ODD), (4, ODD), (8, OF_MANY), (21, OF_MANY)):
        least = min(least_tested_pairs(ALPHA / 2 / variants), least_pairs(ALPHA / 2 / variants))
        for (name, noise), (planned, word) in itertools.product(noises.items(), ((least, "fewest"), (12, "12"))):
            yield f"{name}.{variants}_variants.{word}", play_drawn(draw_noisy, planned, noise=noise, variants=variants)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4000, help="experiments simulated for each case")
    parser.add_argument("--only", default="", help="cases whose name begins so")
    options = parser.parse_args()
    figures = []
    for name, play in (*list_cases(), *list_power()):
        if not name.startswith(options.only):
            continue
        # Families of many variants are large.
        verdicts.CHUNK = 500 if name.startswith(("failing", "power")) else 100
        happened = repeat(play, options.repeats)
        print(f"{name:<40} {happened.mean():>8.2%}", flush=True)
        is_claimed = not name.startswith(NOT_CLAIMED)
        figures.append(share(f"unusual.{name}", happened, target=f"<= {ALPHA}" if is_claimed else None))
    for figure in figures:
        say(**figure)


if __name__ == "__main__":
    main()

"""How often verdicts are false, and how soon they come.

`--simulate` plays experiments in which no variant differs from the reference, under noise of many kinds, through the code
that decides real ones: rounds of the reference twice and each other variant once in balanced order, a look after every round,
an end when all variants are decided or after 60 rounds, with the final look. `faster` and `slower` are false there, `equivalent` is true. Beside
it stand the field's habits on the same noise, and variations of the design: plain pairs, rounds drawn one by one, ten
times the rounds. What a step of the noise is: a slice for the rounds (a whole trial where trials have their own level),
a second of a run of 60 seconds for the habits. Times are short against drift, as they are in a hurry.

Columns of the table: `pgdyno` as it decides; `before` the same by the e-process alone, as before ADR 16; `any_look` a false
difference at any look at all, which no rule of stopping exceeds; `random_order` and `plain_pairs` the same for other designs; then the habits.

`--server` asks a real server questions whose answer is known: server_verdicts.py.

Usage: python benchmarks/verdicts.py --simulate [--quick]      (ten minutes; half a minute)
       python benchmarks/verdicts.py --server [--quick] [--out DIR] [--questions N] [--planted N] [--part PART ...]
                                                               (two hours and more; a few minutes)
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from figures import find_wilson, say
from numpy.random import Generator
from scipy import signal, special, stats

from pgdyno.analyse.comparison.e_process import half_width
from pgdyno.analyse.comparison.verdict import FamilyState, RatioOutcome, compute_states, judge_family
from pgdyno.plan.experiment import least_pairs, least_tested_pairs
from pgdyno.plan.order import draw_orders

ALPHA = 0.05
DELTA = 0.03
NO_DELTA = 1e-9
"""So near to nothing that no variant is called equivalent, which would keep a false difference from being called later."""
ROUNDS = 60
MANY_ROUNDS = 600
PLANNED = {1: (4, 6, 12, 24), 4: (5, 6, 12, 24)}
"""Rounds at the final look, by the number of variants: the fewest that are planned, and more."""
RESUMED = 3
"""A study that is resumed has so many times the rounds at which the final look was made."""
RUN_S = 60
SLICE_SD = 0.05
PAIR_SD = SLICE_SD * math.sqrt(1.5)
"""Of a pair under white noise: a variant against the mean of two runs of the reference."""
QUIETER = 0.3
"""Where equivalence is asked for, the same noise is this much smaller, so that it comes within reach at all."""
CHUNK = 250
SQUARES = 2000
"""So many squares of orders are drawn, and then taken at random."""
PARTS = ("switchback", "paired", "live", "planted")
"""Of what is asked on real servers."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A kind of noise: log levels of steps under one continuous load, (repeats, steps), and what each separate run adds.

    A steep drift is that of counts such as WAL bytes per transaction after a checkpoint: there is hardly any noise beside.
    """

    draw: Callable[[Generator, int, int], np.ndarray]
    run_sd: float = 0.0


def white(random: Generator, repeats: int, steps: int) -> np.ndarray:
    return random.normal(0, SLICE_SD, (repeats, steps))


def autocorrelated(phi: float) -> Callable[[Generator, int, int], np.ndarray]:
    """Draw AR(1) noise, stationary from its first step."""

    def draw(random: Generator, repeats: int, steps: int) -> np.ndarray:
        innovations = random.normal(0, SLICE_SD * math.sqrt(1 - phi**2), (repeats, steps))
        innovations[:, 0] /= math.sqrt(1 - phi**2)
        return signal.lfilter([1], [1, -phi], innovations, axis=1)

    return draw


def linear(per_step: float) -> Callable[[Generator, int, int], np.ndarray]:
    return lambda _, repeats, steps: np.broadcast_to(per_step * np.arange(steps), (repeats, steps))


def random_walk(random: Generator, repeats: int, steps: int) -> np.ndarray:
    return np.cumsum(random.normal(0, 0.02, (repeats, steps)), axis=1)


def t3(random: Generator, repeats: int, steps: int) -> np.ndarray:
    return random.standard_t(3, (repeats, steps)) * SLICE_SD / math.sqrt(3)


def stalls(ratio: float = 0.05) -> Callable[[Generator, int, int], np.ndarray]:
    """Halve the rate in this share of the steps."""
    return lambda random, repeats, steps: np.where(random.random((repeats, steps)) < ratio, math.log(0.5), 0.0)


def exponential(random: Generator, repeats: int, steps: int) -> np.ndarray:
    """Draw steps that lie below the level only, by 5 % in the mean."""
    return -random.exponential(SLICE_SD, (repeats, steps))


def mixed(*parts: Callable[[Generator, int, int], np.ndarray]) -> Callable[[Generator, int, int], np.ndarray]:
    return lambda random, repeats, steps: np.sum([part(random, repeats, steps) for part in parts], axis=0)


NOISES = {
    "white": Noise(draw=white),
    "autocorrelated_50": Noise(draw=autocorrelated(0.5)),
    "autocorrelated_95": Noise(draw=autocorrelated(0.95)),
    "linear_drift": Noise(draw=mixed(white, linear(-0.004))),
    "steep_drift": Noise(draw=mixed(white, linear(-0.25))),
    "random_walk": Noise(draw=mixed(white, random_walk)),
    "t3": Noise(draw=t3),
    "stalls": Noise(draw=mixed(white, stalls())),
    "frequent_stalls": Noise(draw=mixed(white, stalls(0.3))),
    "exponential": Noise(draw=exponential),
    "run_effects": Noise(draw=white, run_sd=0.17),
    "mix": Noise(draw=mixed(autocorrelated(0.95), stalls(), linear(-0.004))),
    "mix_run_effects": Noise(draw=mixed(autocorrelated(0.5), stalls(), random_walk), run_sd=0.17),
}


@functools.cache
def draw_squares(slots: int) -> np.ndarray:
    """Draw squares of orders as pgdyno does: the place of each slot, (squares, rounds, slots)."""
    draw = Random(slots)
    names = [str(slot) for slot in range(slots)]
    orders = [[[int(name) for name in order] for order in draw_orders(names, draw)] for _ in range(SQUARES)]
    return np.argsort(orders, axis=-1)


def draw_rounds(
    random: Generator, noise: Noise, repeats: int, rounds: int, slots: int, *, is_balanced: bool = True
) -> np.ndarray:
    """Draw log levels by variant, (repeats, slots, rounds): every round plays all slots.

    In balanced order each variant has each place once in as many rounds as there are slots, by the squares that pgdyno draws;
    otherwise each round is drawn by itself.
    """
    steps = noise.draw(random, repeats, rounds * slots) + random.normal(0, noise.run_sd, (repeats, rounds * slots))
    if is_balanced:
        squares = draw_squares(slots)
        drawn = squares[random.integers(len(squares), size=(repeats, math.ceil(rounds / slots)))]
        places = drawn.reshape(repeats, -1, slots)[:, :rounds]
    else:
        places = np.argsort(random.random((repeats, rounds, slots)), axis=-1)
    return np.swapaxes(np.take_along_axis(steps.reshape(repeats, rounds, slots), places, axis=-1), 1, 2)


def draw_pairs(random: Generator, noise: Noise, repeats: int, rounds: int, variants: int, **order: bool) -> np.ndarray:
    """Draw log ratios of pairs, (repeats, variants, rounds), with the reference twice in each round."""
    levels = draw_rounds(random, noise, repeats, rounds, variants + 2, **order)
    return levels[:, 2:] - levels[:, :2].mean(axis=1, keepdims=True)


def draw_plain_pairs(random: Generator, noise: Noise, repeats: int, rounds: int, variants: int) -> np.ndarray:
    """Draw log ratios of pairs with the reference once in each round, and with every round drawn by itself."""
    levels = draw_rounds(random, noise, repeats, rounds, variants + 1, is_balanced=False)
    return levels[:, 1:] - levels[:, :1]


def judge_looks(
    pairs: np.ndarray, looked: int | np.ndarray = 0, delta_ratio: float = DELTA, *, beta: float = ALPHA / 2
) -> np.ndarray:
    """Judge after every round: outcomes, (repeats, rounds, variants).

    Args:
        pairs: Log ratios, (repeats, variants, rounds).
        looked: Rounds at the final look; 0 where none is made, for each variant.
        delta_ratio: What does not matter.
        beta: Error rate of the e-process; before ADR 16 it had all of ALPHA.
    """
    states = compute_states(pairs, beta=beta, size=pairs.shape[1], looked=looked)
    family = FamilyState(*(np.moveaxis(part, 1, 2) for part in states))
    return judge_family(family, beta=beta, delta_ratio=delta_ratio).outcome


def judge_planned(pairs: np.ndarray, planned: int, delta_ratio: float = DELTA) -> np.ndarray:
    """Judge after every round, with a final look after the planned ones, which leaves out what was decided before."""
    is_early = (judge_looks(pairs[..., : planned - 1], 0, delta_ratio) != RatioOutcome.OPEN).any(axis=1)
    return judge_looks(pairs, np.where(is_early, 0, planned), delta_ratio)


def find_end(outcomes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of rounds until all variants were decided, or of all rounds, and the outcomes then."""
    is_decided = (outcomes != RatioOutcome.OPEN).all(axis=2)
    last = np.where(is_decided.any(axis=1), is_decided.argmax(axis=1), outcomes.shape[1] - 1)
    return last + 1, outcomes[np.arange(len(outcomes)), last]


def is_directed(outcomes: np.ndarray) -> np.ndarray:
    return (outcomes == RatioOutcome.HIGHER) | (outcomes == RatioOutcome.LOWER)


def is_false_at_end(pairs: np.ndarray) -> np.ndarray:
    """Return whether an experiment ended with a false difference: when all were decided, or with its final look."""
    return is_directed(find_end(judge_planned(pairs, pairs.shape[2]))[1]).any(axis=1)


def is_false_ever(pairs: np.ndarray, planned: int = ROUNDS) -> np.ndarray:
    """Return whether any look saw a false difference, also one of a resumed study: no rule of stopping is worse.

    Nothing is decided before the final look but what is false, so that all variants take part in it.
    """
    return is_directed(judge_looks(pairs, planned, NO_DELTA)).any(axis=(1, 2))


def is_called_by_peeking(pairs: np.ndarray) -> np.ndarray:
    """Judge by a paired t-test after every round from the second on, until it says something."""
    n = np.arange(1.0, pairs.shape[2] + 1)[1:]
    sums, squares = np.cumsum(pairs, axis=2)[..., 1:], np.cumsum(pairs**2, axis=2)[..., 1:]
    means = sums / n
    spread = np.sqrt(np.maximum(squares - n * means**2, 0) / (n - 1))
    return (np.abs(means) * np.sqrt(n) > special.stdtrit(n - 1, 1 - ALPHA / 2) * spread).any(axis=(1, 2))


def draw_runs(random: Generator, noise: Noise, repeats: int, variants: int, runs: int) -> np.ndarray:
    """Draw TPS by second, (repeats, variant, run, second), the reference first: all runs of a variant after one another."""
    shape = (repeats, variants + 1, runs, RUN_S)
    own = random.normal(0, noise.run_sd, (*shape[:3], 1))
    return np.exp(noise.draw(random, repeats, math.prod(shape[1:])).reshape(shape) + own)


def is_called_by_one_run(tps: np.ndarray) -> np.ndarray:
    """Judge by one run of each: they are called different when they are more than delta apart."""
    means = tps[:, :, 0].mean(axis=-1)
    return (np.abs(means[:, 1:] / means[:, :1] - 1) > DELTA).any(axis=1)


def is_called_by_three_runs(tps: np.ndarray) -> np.ndarray:
    """Judge three runs of each by Student's t-test of their means."""
    means = tps.mean(axis=-1)
    return (stats.ttest_ind(means[:, 1:], means[:, :1], axis=2).pvalue < ALPHA).any(axis=1)


def is_called_by_seconds(tps: np.ndarray) -> np.ndarray:
    """Judge one run of each by Welch's t-test of their seconds."""
    seconds = tps[:, :, 0]
    return (stats.ttest_ind(seconds[:, 1:], seconds[:, :1], axis=2, equal_var=False).pvalue < ALPHA).any(axis=1)


Method = Callable[[Generator, Noise, int, int], np.ndarray]
"""Whether each of so many experiments with so many variants ends with a false verdict."""

OURS = "pgdyno"
METHODS: dict[str, Method] = {
    OURS: lambda r, noise, n, variants: is_false_at_end(draw_pairs(r, noise, n, ROUNDS, variants)),
    "before": lambda r, noise, n, variants: is_directed(
        find_end(judge_looks(draw_pairs(r, noise, n, ROUNDS, variants), beta=ALPHA))[1]
    ).any(axis=1),
    "any_look": lambda r, noise, n, variants: is_false_ever(draw_pairs(r, noise, n, ROUNDS, variants)),
    "random_order": lambda r, noise, n, variants: is_false_ever(
        draw_pairs(r, noise, n, ROUNDS, variants, is_balanced=False)
    ),
    "plain_pairs": lambda r, noise, n, variants: is_false_ever(draw_plain_pairs(r, noise, n, ROUNDS, variants)),
    "one_run_each": lambda r, noise, n, variants: is_called_by_one_run(draw_runs(r, noise, n, variants, 1)),
    "three_runs": lambda r, noise, n, variants: is_called_by_three_runs(draw_runs(r, noise, n, variants, 3)),
    "seconds_welch": lambda r, noise, n, variants: is_called_by_seconds(draw_runs(r, noise, n, variants, 1)),
    "peeking_t_test": lambda r, noise, n, variants: is_called_by_peeking(draw_pairs(r, noise, n, ROUNDS, variants)),
}


def simulate(repeats: int) -> None:
    """Simulate all cases; print a table for each, then their figures."""
    figures = [*simulate_final_looks(repeats), *simulate_budgets(repeats), *simulate_power(repeats)]
    figures += [
        *simulate_unbalanced(repeats),
        *simulate_widths(),
        *simulate_false_verdicts(repeats),
        *simulate_long(repeats),
    ]
    figures += simulate_families(repeats)
    for figure in figures:
        say(**figure)


def simulate_false_verdicts(repeats: int) -> list[dict]:
    """Simulate every noise with each method: the share of experiments that end with a false verdict."""
    figures = []
    for variants in (1, 4):
        print(f"\nfalse verdicts, {variants} variant(s) like the reference, {repeats} experiments each", flush=True)
        print(" " * 20 + " ".join(f"{name:>14}" for name in METHODS))
        for noise_name, noise in NOISES.items():
            shares = []
            for name, method in METHODS.items():
                is_false = repeat(
                    lambda r, n, m=method, noise=noise, variants=variants: m(r, noise, n, variants), repeats
                )
                shares.append(is_false.mean())
                target = f"<= {ALPHA}" if name == OURS else None
                figures.append(share(f"{noise_name}.{variants}_variants.{name}", is_false, target=target))
            print(f"{noise_name:<20}" + " ".join(f"{value:>14.2%}" for value in shares), flush=True)
    return figures


def simulate_final_looks(repeats: int) -> list[dict]:
    """Simulate studies of few rounds that are resumed to three times as many: false differences at any look of all."""
    figures = []
    for variants in (1, 4):
        print(f"\nfinal look after so many rounds, resumed to three times as many, {variants} variant(s)", flush=True)
        for noise_name, noise in NOISES.items():
            shares = []
            for planned in PLANNED[variants]:

                def play(r: Generator, n: int, noise: Noise = noise, v: int = variants, k: int = planned) -> np.ndarray:
                    return is_false_ever(draw_pairs(r, noise, n, RESUMED * k, v), k)

                is_false = repeat(play, repeats)
                shares.append(is_false.mean())
                name = f"final_look.{noise_name}.{variants}_variants.{planned}_rounds"
                figures.append(share(name, is_false, target=f"<= {ALPHA}"))
            print(f"{noise_name:<20}" + " ".join(f"{value:>8.2%}" for value in shares), flush=True)
    return figures


def simulate_budgets(repeats: int) -> list[dict]:
    """Simulate families in which variants, or workloads, that differ are decided early and leave their time to the others.

    The rounds at the final look then depend on when they were decided: this is the only way in which log ratios reach the
    place of the look. Variants share the two runs of their reference, and so do the workloads here, as if one moment's
    noise were in all of them; real workloads have runs of their own.
    """
    figures = []
    for shared, name in ((2, "budget"), (0, "budget.workloads")):
        what = "variants" if shared else "workloads"
        print(
            f"\ntwo of four {what} differ, and leave their time to the others: false at the final look or before",
            flush=True,
        )
        figures += _simulate_budget(repeats, name, shared)
    return figures


def _simulate_budget(repeats: int, name: str, shared: int) -> list[dict]:
    """Simulate a family of four that differ in time: a round takes `shared` trials and one for each that is open."""
    figures = []
    for in_sd in (1.0, 2.0, 4.0):
        for planned in PLANNED[4]:
            truth = np.array([0.0, 0.0, in_sd, -in_sd]) * PAIR_SD

            def play(r: Generator, n: int, truth: np.ndarray = truth, planned: int = planned) -> np.ndarray:
                pairs = draw_pairs(r, NOISES["white"], n, 2 * planned, 4) + truth[:, None]
                before = judge_looks(pairs, 0, NO_DELTA) != RatioOutcome.OPEN
                is_open = ~np.logical_or.accumulate(before, axis=1)
                # The first round holds all variants, each further one those that were open after the round before.
                slots = shared + np.concatenate([np.full((n, 1), 4), is_open[:, :-1].sum(axis=2)], axis=1)
                rounds = (np.cumsum(slots, axis=1) <= (shared + 4) * planned).sum(axis=1)
                last = np.maximum(rounds - 2, 0)
                in_last = is_open[np.arange(n), last]
                outcomes = judge_looks(pairs, np.where(in_last, rounds[:, None], 0), NO_DELTA)
                is_run = np.arange(2 * planned) < rounds[:, None]
                return (is_directed(outcomes)[..., :2] & is_run[..., None]).any(axis=(1, 2))

            is_false = repeat(play, repeats)
            print(f"{in_sd:>4} sd, {planned:>3} rounds {is_false.mean():>8.2%}", flush=True)
            figures.append(share(f"{name}.{in_sd:g}_sd.{planned}_rounds", is_false, target=f"<= {ALPHA}"))
    return figures


def simulate_unbalanced(repeats: int) -> list[dict]:
    """Simulate steep drift with the fewest rounds that are planned: fewer than a round has slots, so order cannot balance it."""
    print("\nsteep drift, the fewest rounds of many variants: with the final look, by the rule of before", flush=True)
    figures = []
    for variants in (5, 8):
        planned = min(least_tested_pairs(ALPHA / 2 / variants), least_pairs(ALPHA / 2 / variants))

        def play(r: Generator, n: int, variants: int = variants, planned: int = planned) -> np.ndarray:
            pairs = draw_pairs(r, NOISES["steep_drift"], n, planned, variants)
            before = is_directed(judge_looks(pairs, 0, NO_DELTA, beta=ALPHA)).any(axis=(1, 2))
            return np.stack([is_false_ever(pairs, planned), before], axis=1)

        is_false = repeat(play, repeats)
        print(f"{variants} variants, {planned} rounds {is_false.mean(axis=0)}", flush=True)
        for column, name in enumerate(("final_look", "before")):
            figures.append(share(f"unbalanced.{variants}_variants.{name}", is_false[:, column], target=None))
    return figures


def simulate_widths() -> list[dict]:
    """Compute half of the interval, in standard deviations of a pair, after all planned pairs of one question."""
    print(
        "\nhalf-width after all planned pairs, in sd of a pair: the t-test of the final look, the rule of before",
        flush=True,
    )
    figures = []
    for n in (4, 6, 9, 12):
        new, old = -special.stdtrit(n - 1, ALPHA / 4) / math.sqrt(n), half_width(n, ALPHA)
        print(f"{n:>4} {new:>8.2f} {old:>8.2f}", flush=True)
        for name, value in (("final_look", new), ("before", old)):
            figure = f"verdicts.simulate.half_width.{n}_pairs.{name}"
            figures.append({"figure": figure, "value": float(value), "unit": "sd of a pair", "n": n})
    return figures


def simulate_long(repeats: int) -> list[dict]:
    """Simulate one variant, resumed to ten times the rounds without an end: false differences, and false equivalence just above delta."""
    print(f"\nat any of {MANY_ROUNDS} looks: false verdicts; called equivalent while just above delta", flush=True)
    figures = []
    for noise_name, noise in NOISES.items():

        def play(r: Generator, n: int, noise: Noise = noise) -> np.ndarray:
            pairs = draw_pairs(r, noise, n, MANY_ROUNDS, 1)
            above = judge_looks(QUIETER * pairs + math.log1p(DELTA) * 1.0001, ROUNDS)
            return np.stack([is_false_ever(pairs), (above == RatioOutcome.EQUIVALENT).any(axis=(1, 2))], axis=1)

        is_false = repeat(play, repeats)
        print(f"{noise_name:<20}" + " ".join(f"{value:>14.2%}" for value in is_false.mean(axis=0)), flush=True)
        for column, name in enumerate((f"{MANY_ROUNDS}_rounds", "false_equivalence")):
            figures.append(share(f"{noise_name}.1_variants.{name}", is_false[:, column], target=f"<= {ALPHA}"))
    return figures


def simulate_families(repeats: int) -> list[dict]:
    """Simulate four variants that differ from the reference by different amounts: any false verdict on any of them, at any look."""
    bound = math.log1p(DELTA)
    families = {
        "two_alike_two_just_above_delta": [0.0, 0.0, 1.0001 * bound, -1.0001 * bound],
        "alike_small_above_large": [0.0, 0.3 * bound, 1.0001 * bound, 3 * bound],
        "all_just_above_delta": [1.0001 * bound] * 4,
        "all_tiny": [0.1 * bound] * 4,
    }
    print("\nfamilies of four variants: any arm called what it is not, at any of 200 looks", flush=True)
    figures = []
    for name, effects in families.items():
        truth = np.array(effects)

        def play(r: Generator, n: int, truth: np.ndarray = truth) -> np.ndarray:
            outcomes = judge_looks(QUIETER * draw_pairs(r, NOISES["white"], n, 200, 4) + truth[:, None], ROUNDS)
            is_wrong = (outcomes == RatioOutcome.HIGHER) & (truth <= 0) | (outcomes == RatioOutcome.LOWER) & (
                truth >= 0
            )
            return (is_wrong | (outcomes == RatioOutcome.EQUIVALENT) & (np.abs(truth) > bound)).any(axis=(1, 2))

        is_false = repeat(play, repeats)
        print(f"{name:<32} {is_false.mean():>8.2%}", flush=True)
        figures.append(share(f"family.{name}", is_false, target=f"<= {ALPHA}"))
    return figures


def simulate_power(repeats: int) -> list[dict]:
    """Simulate a true effect of so many standard deviations of a pair: how many pairs it takes, planned ones and then resumed."""
    print(
        "\npairs until a true effect is called, one variant, white noise: median, 80 %, 95 %; called at the end of plan",
        flush=True,
    )
    figures = []
    for in_sd in (0.5, 1.0, 2.0):
        for planned in (0, *PLANNED[1]):

            def play(r: Generator, n: int, effect: float = in_sd * PAIR_SD, planned: int = planned) -> np.ndarray:
                pairs = draw_pairs(r, NOISES["white"], n, MANY_ROUNDS // 3, 1) + effect
                rounds, ends = find_end(
                    judge_planned(pairs, planned, NO_DELTA) if planned else judge_looks(pairs, 0, NO_DELTA, beta=ALPHA)
                )
                return np.where(ends[:, 0] == RatioOutcome.HIGHER, rounds, np.inf)

            pairs = repeat(play, repeats)
            quantiles = np.quantile(pairs, [0.5, 0.8, 0.95], method="higher")
            called = {n: float((pairs <= n).mean()) for n in ((planned,) if planned else PLANNED[1])}
            shown = " ".join(f"{value:>6.0f}" for value in quantiles)
            print(f"{in_sd:>4} sd {planned or 'before':>8} {shown}  {called}", flush=True)
            name = f"verdicts.simulate.power.{in_sd:g}_sd.{f'{planned}_planned' if planned else 'before'}"
            for quantile, value in zip(("median", "p80", "p95"), quantiles.tolist(), strict=True):
                figures.append({"figure": f"{name}.{quantile}_pairs", "value": value, "unit": "count", "n": repeats})
            for n, value in called.items():
                figures.append({"figure": f"{name}.called_by_{n}", "value": value, "unit": "ratio", "n": repeats})
    return figures


def repeat(play: Callable[[Generator, int], np.ndarray], repeats: int) -> np.ndarray:
    """Play experiments, a few at a time: all at once would not stay in the processor's cache."""
    random = np.random.default_rng(20)
    return np.concatenate([play(random, min(CHUNK, repeats - done)) for done in range(0, repeats, CHUNK)])


def share(name: str, happened: np.ndarray, *, target: str | None) -> dict:
    """Return a share with its Wilson interval, as `say` takes it."""
    count, n = int(happened.sum()), len(happened)
    low, high = find_wilson(count, n)
    return {
        "figure": f"verdicts.simulate.{name}",
        "value": count / n,
        "low": low,
        "high": high,
        "unit": "ratio",
        "n": n,
        "target": target,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="on simulated noise")
    parser.add_argument("--server", action="store_true", help="on real servers")
    parser.add_argument("--quick", action="store_true", help="a rough answer soon")
    parser.add_argument("--repeats", type=int, default=10_000, help="experiments simulated for each case")
    parser.add_argument("--out", type=Path, help="where answers are kept; those found there are not asked again")
    parser.add_argument(
        "--questions",
        type=int,
        default=100,
        help="about identical variants: 3 of 5 by switchback, the others in paired trials; and as many live",
    )
    parser.add_argument("--planted", type=int, default=3, help="how often each planted truth is asked for")
    parser.add_argument("--seed", type=int, default=1, help="of the questions")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    if options.simulate:
        simulate(500 if options.quick else options.repeats)
    elif options.server:
        from server_verdicts import measure_on_server

        if options.quick:
            options.questions, options.planted = 5, 0
        measure_on_server(options)
    else:
        parser.error("say what to measure: --simulate or --server")


if __name__ == "__main__":
    main()

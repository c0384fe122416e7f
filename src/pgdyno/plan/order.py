"""Order the trials, and the variants within a round: paired trials, or blocks of load in which variants alternate.

Pure: the same random draw gives the same order. Times are predictions from `plan.py`; a comparison with an early
verdict ends sooner.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Experiment
from pgdyno.plan.live import choose_observed_s, predict_turns_s
from pgdyno.spec.variant import LONGEST_SLICE_S, MOST_MINUTES, DesignKind
from pgdyno.units import describe_minutes

PILOT_S = 18.0
"""Seconds of a switchback's first block that the pilot uses to choose the length of the slices."""
# A switchback restarts its load after this time, which bounds what a crash may lose and how far the data may grow.
# Blocks are longer only if they would otherwise hold too few rounds.
_LONGEST_BLOCK_S = 120.0
# A pilot mostly chooses shorter slices; this value makes the shortest block long enough for most.
_USUAL_SLICE_S = 1.0
# More than enough rounds to decide a difference of one standard deviation of a pair.
_DEFAULT_ROUNDS = 16
_DEFAULT_SWITCHBACK_S = 150.0
ROUNDING = 1e-6
"""Tolerance of a quotient of seconds, so that a whole number of rounds stays whole."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted seconds."""

    fixed_s: float
    """Seconds of checks, loading and reporting."""
    restore_s: float
    """Seconds that a server takes to be restored, started and ended."""
    warm_up_s: float
    """Seconds of a trial's warm-up."""
    turn_warm_up_s: float
    """Seconds of the warm-up of each load of a round of turns."""
    duration_s: float
    """Seconds of a trial's measured load, except for blocks, whose length is chosen here."""

    @property
    def overhead_s(self) -> float:
        """Seconds of a trial in addition to its measured load."""
        return self.restore_s + self.warm_up_s


class OrderedTrial(NamedTuple):
    """A trial in its order: several `variants` alternate in a block; a paired trial has one, a plain trial none.

    Round 0 is before all others: its trials are only observed.
    """

    round: int
    workload: str
    variants: tuple[str, ...]
    duration_s: float


def draw_orders(variants: Sequence[str], draw: random.Random) -> list[list[str]]:
    """Draw the orders of as many rounds as there are variants: a random Latin square.

    Each variant takes each position once, so that drift within rounds affects all variants equally, not only on
    average.
    Source: `benchmarks/verdicts.py --simulate`, steep drift: 0.0 % false verdicts against 4.4 % with an order drawn for
    each round independently.
    """
    size = len(variants)
    rows, columns = draw.sample(range(size), size), draw.sample(range(size), size)
    return [[variants[(row + column) % size] for column in columns] for row in rows]


def draw_cycles(members_count: int, cycles: int, draw: random.Random) -> Iterator[list[int]]:
    """Draw the orders of cycles of members: in as many as there are members, each has each position once."""
    names = [str(index) for index in range(members_count)]
    drawn = 0
    while drawn < cycles:
        for order in draw_orders(names, draw)[: cycles - drawn]:
            yield [int(name) for name in order]
        drawn += len(names)


def order_plain(workloads: Sequence[str], rounds: int, times: Times, draw: random.Random) -> Iterator[OrderedTrial]:
    """Order rounds of all workloads at random, so that drift of the machine affects all equally.

    Source: Abedi & Brecht 2017, doi:10.1145/3030207.3030229 (randomised multiple interleaved trials).
    """
    for number in range(1, rounds + 1):
        for workload in draw.sample(workloads, k=len(workloads)):
            yield OrderedTrial(number, workload, (), times.duration_s)


def order_comparison(
    workloads: Sequence[str], experiment: Experiment, times: Times, draw: random.Random, *, least_rounds: int
) -> Iterator[OrderedTrial]:
    """Order as many trials of a comparison as its time budget allows.

    Args:
        workloads: Their names.
        experiment: The comparison.
        times: Predicted seconds.
        draw: Draws the order.
        least_rounds: The fewest rounds that can give a verdict.

    Raises:
        SpecError: The budget is too small for any verdict.
    """
    ordered = _order_blocks if experiment.design is DesignKind.SWITCHBACK else _order_rounds
    yield from ordered(workloads, experiment, times, draw, least_rounds)


def choose_budget(
    workloads_count: int, experiment: Experiment, times: Times, *, least_rounds: int
) -> tuple[float, str]:
    """Choose the default time budget of a comparison in seconds, and give the reason."""
    slots = count_slots(experiment)
    if experiment.design is not DesignKind.SWITCHBACK:
        rounds_s = _DEFAULT_ROUNDS * _round_s(workloads_count, experiment, times)
        rounds_s += _observed_s(workloads_count, experiment, times)
        reason = f"about {_DEFAULT_ROUNDS} rounds of {slots * workloads_count} trials; fewer when they decide"
        return round_up_budget(times.fixed_s + rounds_s), reason
    load_s = max(slots * _DEFAULT_SWITCHBACK_S, _least_load_s(experiment, least_rounds))
    blocks = math.ceil(load_s / _longest_block_s(experiment, least_rounds))
    each = "" if workloads_count == 1 else " for each workload"
    reason = f"{load_s / slots:.0f} s for each variant and twice for the reference{each}; less when it is decided"
    return round_up_budget(times.fixed_s + workloads_count * (load_s + blocks * times.overhead_s)), reason


def round_up_budget(budget_s: float) -> float:
    """Round up to quarters of a minute, which are exact in a study file, but not above the most that it takes."""
    return min(math.ceil(budget_s / 15.0) * 15.0, MOST_MINUTES * 60.0)


def suggest_minutes(minutes: float) -> str:
    """Return the beginning of a hint, such as `--minutes 7, ` for 6.2; nothing for more than a study takes."""
    whole = math.ceil(minutes)
    return f"--minutes {whole}, " if whole <= MOST_MINUTES else ""


def _order_rounds(
    workloads: Sequence[str], experiment: Experiment, times: Times, draw: random.Random, least_rounds: int
) -> Iterator[OrderedTrial]:
    """Order rounds with the reference twice and every other variant once, in balanced order."""
    variants = [experiment.reference.name, *(variant.name for variant in experiment.variants)]
    round_s = _round_s(len(workloads), experiment, times)
    observed_s = _observed_s(len(workloads), experiment, times)
    fixed_s = times.fixed_s + observed_s
    rounds = int(((experiment.budget_s or 0.0) - fixed_s) / round_s + ROUNDING)
    if rounds < least_rounds:
        what = f"{least_rounds} rounds of {len(variants) * len(workloads)} trials, {round_s:.0f} s a round"
        what += f", and {observed_s:.0f} s to watch each variant alone" if observed_s else ""
        raise _too_little_time(experiment, fixed_s + least_rounds * round_s, what)
    if _is_observed(experiment):
        for workload in draw.sample(workloads, k=len(workloads)):
            for variant in draw.sample(variants[1:], k=len(variants) - 1):
                yield OrderedTrial(0, workload, (variant,), _observed_trial_s(experiment, times))
    orders: dict[str, list[list[str]]] = {workload: [] for workload in workloads}
    for number in range(1, rounds + 1):
        for workload in draw.sample(workloads, k=len(workloads)):
            orders[workload] = orders[workload] or draw_orders(variants, draw)
            for variant in orders[workload].pop():
                yield OrderedTrial(number, workload, (variant,), times.duration_s)


def _order_blocks(
    workloads: Sequence[str], experiment: Experiment, times: Times, draw: random.Random, least_rounds: int
) -> Iterator[OrderedTrial]:
    """Order blocks of continuous load with equal lengths, within which all variants alternate."""
    share_s = _spare_s(experiment, times) / len(workloads)
    least_s, longest_s = _least_load_s(experiment, least_rounds), _longest_block_s(experiment, least_rounds)

    def length_s(blocks: int) -> int:
        return math.floor(min(longest_s, share_s / blocks - times.overhead_s) + ROUNDING)

    # One block more than fits at full length shortens all blocks, which is not worthwhile if restoring takes long.
    fitting = max(1, math.floor(share_s / (times.overhead_s + longest_s)))
    blocks = max(fitting, fitting + 1, key=lambda count: count * length_s(count))
    if length_s(blocks) < least_s:
        what = f"{least_s} s of load for each workload"
        raise _too_little_time(experiment, times.fixed_s + len(workloads) * (times.overhead_s + least_s), what)
    variants = tuple(variant.name for variant in experiment.variants)
    for number in range(1, blocks + 1):
        for workload in draw.sample(workloads, k=len(workloads)):
            yield OrderedTrial(number, workload, variants, float(length_s(blocks)))


def _spare_s(experiment: Experiment, times: Times) -> float:
    return (experiment.budget_s or 0.0) - times.fixed_s


def count_slots(experiment: Experiment) -> int:
    """Count the trials or slices of a round, in which the reference comes twice."""
    return len(experiment.variants) + 1


def _round_s(workloads_count: int, experiment: Experiment, times: Times) -> float:
    slots = count_slots(experiment)
    if experiment.takes_turns:
        trials_s = times.turn_warm_up_s + predict_turns_s(times.duration_s)
        return (times.restore_s + trials_s * slots) * workloads_count
    return (times.overhead_s + times.duration_s) * slots * workloads_count


def _is_observed(experiment: Experiment) -> bool:
    """Return whether a trial of each variant runs alone, because no sampler can watch the rounds."""
    return experiment.design is DesignKind.LIVE


def _observed_s(workloads_count: int, experiment: Experiment, times: Times) -> float:
    """Return the seconds of all trials that are only observed."""
    if not _is_observed(experiment):
        return 0.0
    trial_s = times.overhead_s + _observed_trial_s(experiment, times)
    return trial_s * len(experiment.variants) * workloads_count


def _observed_trial_s(experiment: Experiment, times: Times) -> float:
    return choose_observed_s(times.duration_s, takes_turns=experiment.takes_turns)


def _least_load_s(experiment: Experiment, least_rounds: int) -> int:
    """Return the least seconds of load for one workload of a switchback: the pilot and the fewest useful rounds."""
    pilot_s, slice_s = (PILOT_S, _USUAL_SLICE_S) if experiment.slice_s is None else (0.0, experiment.slice_s)
    return math.ceil(pilot_s + least_rounds * count_slots(experiment) * slice_s)


def _longest_block_s(experiment: Experiment, least_rounds: int) -> float:
    # A round must fit even if the pilot chooses the longest slices.
    round_s = count_slots(experiment) * (experiment.slice_s or LONGEST_SLICE_S)
    return max(_LONGEST_BLOCK_S, 2.0 * _least_load_s(experiment, least_rounds), PILOT_S + round_s)


def _too_little_time(experiment: Experiment, needed_s: float, what: str) -> SpecError:
    longer = suggest_minutes(needed_s / 60.0 + 0.05)
    shorter = "" if experiment.design is DesignKind.SWITCHBACK else "shorter trials, "
    return SpecError(
        f"{describe_minutes((experiment.budget_s or 0.0) / 60)} too few for a verdict",
        detail=f"it takes {what}, plus loading and restoring",
        hint=f"{longer}{shorter}or fewer variants and workloads",
    )

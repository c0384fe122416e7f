"""Plan more rounds: for the questions that are open when the planned rounds are over and minutes are left, and for a verdict.

Those for a verdict are in place of rounds that were interrupted. The minutes are those of questions that were decided early, and
of trials that took less time than predicted. No log ratio of a question chooses how many rounds it gets, so that its final look may
follow them; those of other variants and workloads do (ADR 16). How long rounds take is known from those that ran: a plan has no time
for connecting, nor for a busy machine.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from pgdyno.plan.order import ROUNDING, draw_orders
from pgdyno.plan.types import Plan, PlannedTrial, Step, StepKind

# The reference runs twice in a round.
_REFERENCES = 2


class Pace:
    """How long trials take against the plan's predictions, by those that ran."""

    def __init__(self) -> None:
        self._passed_s = {False: 0.0, True: 0.0}
        self._planned_s = {False: 0.0, True: 0.0}

    def add(self, planned_s: float, passed_s: float, *, is_observed: bool) -> None:
        """Add trials that ran; those that are only observed have a pace of their own."""
        self._planned_s[is_observed] += planned_s
        self._passed_s[is_observed] += passed_s

    def find_ratio(self, *, is_observed: bool = False) -> float:
        """Return the seconds that trials take for each predicted one; before one ran, those of the other kind, or 1."""
        for kind in (is_observed, not is_observed):
            if self._planned_s[kind] and self._passed_s[kind]:
                return self._passed_s[kind] / self._planned_s[kind]
        return 1.0


def count_fitting(plan: Plan, undecided: Mapping[str, Sequence[str]], *, within_s: float) -> int:
    """Return how many more rounds fit a time.

    Args:
        plan: Of a comparison in rounds of trials.
        undecided: By workload, the variants that still need rounds.
        within_s: The time, by the plan's own predictions.
    """
    of_variant, slots = _map_variants(plan), _list_slots(plan, undecided)
    round_s = sum(of_variant[workload, name][0].predicted_s for workload, names in slots.items() for name in names)
    return max(0, int(within_s / round_s + ROUNDING)) if round_s else 0


def add_rounds(plan: Plan, undecided: Mapping[str, Sequence[str]], *, rounds: int) -> Plan:
    """Return a plan with so many more rounds of what is undecided.

    Args:
        plan: Of a comparison in rounds of trials.
        undecided: By workload, the variants that still need rounds.
        rounds: How many, of each of these workloads.
    """
    trials, of_variant, slots = plan.trials, _map_variants(plan), _list_slots(plan, undecided)
    last = {one.workload: one.round for one in trials}
    draw = random.Random(trials[-1].seed)  # noqa: S311 - an order that can be drawn again, not a secret
    orders: dict[str, list[list[str]]] = {workload: [] for workload in undecided}
    added: list[Step] = []
    for number in range(1, rounds + 1):
        for workload in draw.sample(list(undecided), k=len(undecided)):
            orders[workload] = orders[workload] or draw_orders(slots[workload], draw)
            for variant in orders[workload].pop():
                step, trial = of_variant[workload, variant]
                repeated = msgspec.structs.replace(
                    trial,
                    number=len(trials) + len(added) + 1,
                    round=last[workload] + number,
                    seed=draw.randrange(1, 2**31),
                )
                added.append(Step(kind=StepKind.TRIAL, predicted_s=step.predicted_s, trial=repeated))
    *steps, report = plan.steps
    return msgspec.structs.replace(plan, steps=(*steps, *added, report))


def _map_variants(plan: Plan) -> dict[tuple[str, str], tuple[Step, PlannedTrial]]:
    """Return a trial of each variant on each workload, with its step: one that begins with a cold cache has no warm-up."""
    return {(one.workload, one.variants[0]): (step, one) for step in plan.steps if (one := step.trial) is not None}


def _list_slots(plan: Plan, undecided: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    assert plan.experiment is not None  # noqa: S101 - it compares
    references = [plan.experiment.reference.name] * _REFERENCES
    return {workload: [*references, *names] for workload, names in undecided.items()}

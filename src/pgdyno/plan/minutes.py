"""Split the minutes of a bench between the comparison and the client sweep that follows it.

The comparison comes first: it gets the rounds that it needs to detect more than the largest differences. If time is left the
sweep gets five rounds, or as many as fit into a quarter of the minutes, up to twelve. All remaining time goes to the
comparison, because every round narrows its interval. A sweep without minutes to share has three rounds.

Notes tell where minutes, or the seconds of a trial, are too few for what they are planned for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from pgdyno.errors import SpecError
from pgdyno.plan.experiment import count_rounds_for
from pgdyno.plan.order import ROUNDING, suggest_minutes
from pgdyno.plan.parts import count_compared, find_least_rounds
from pgdyno.plan.plan import Plan, count_planned_rounds, plan_study
from pgdyno.plan.scaling import plan_scaling
from pgdyno.plan.types import Machine, PlannedWorkload
from pgdyno.spec.study import Study
from pgdyno.spec.variant import MOST_MINUTES, DesignKind
from pgdyno.units import count_things, describe_minutes

# Two rounds are the fewest that separate noise from scaling. Three left the TPS of six loads at ±8 to ±13 % where the hypervisor
# took CPU time away; twelve halve that.
_LEAST_SWEEP_ROUNDS, _ALONE_SWEEP_ROUNDS, _SWEEP_ROUNDS, _MOST_SWEEP_ROUNDS = 2, 3, 5, 12
_SWEEP_RATIO = 0.25
# A study file holds minutes with two decimals.
_PARTS_OF_A_MINUTE = 100
# Source: record/transactions/histogram.py: ten slower ones.
_LEAST_FOR_P95 = 200
# Arrivals are random, and the first seconds do not count.
_ROOM_RATIO = 1.5


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Time budget of a bench."""

    minutes: float
    """Default minutes of the whole bench."""
    rounds: int | None = None
    """Requested rounds of the comparison; None if not requested."""
    more_rounds: int
    """Rounds in addition to the fewest that can give a verdict.

    With the fewest, the half-width of an interval at the final look is two to three standard deviations of a pair; with two
    more rounds it is one to two. Source: least_tested_pairs of plan/experiment.py, 1 to 21 questions.
    """
    load_s: float
    """Seconds for loading, if the scale is chosen."""


def split_minutes(study: Study, machine: Machine, budget: Budget) -> Study:
    """Return the study with its time budget split between its comparison and its sweep.

    Default minutes are exceeded if trials are long or many: a comparison gets the rounds that it needs to detect more
    than the largest differences, a sweep those that it needs to separate noise from scaling.

    Raises:
        SpecError: Fewer rounds or minutes than needed were requested.
    """
    asked = study.experiment.minutes
    # The disk card is measured first; only the remaining time is split here.
    card_s, machine = machine.disk_card_s, msgspec.structs.replace(machine, disk_card_s=0.0)
    study = _with_experiment(study, minutes=None)
    if study.variant and study.experiment.design is None:
        # Even if a reload is enough for all settings: minutes are counted in rounds of trials.
        study = _with_experiment(study, design=DesignKind.PAIRED)
    plan = plan_study(study, machine, load_budget_s=budget.load_s)
    scaling = plan_scaling(study, plan, machine)
    sweep = _Lengths(0.0, 0.0) if scaling is None else _measure(scaling)
    least_sweep, sweep_minutes = sweep.minutes_of(_LEAST_SWEEP_ROUNDS), sweep.minutes_of(_ALONE_SWEEP_ROUNDS)
    if plan.experiment is not None:
        own, least = _measure(plan), find_least_rounds(plan.experiment, plan.workloads)
        needed = card_s / 60.0 + own.minutes_of(least) + least_sweep
        _check_enough(plan, asked_minutes=asked, rounds=budget.rounds, least=least, needed_minutes=needed)
        _check_most(budget.rounds or 0, own.rounds_in(MOST_MINUTES))
        minutes = own.minutes_of(budget.rounds or least + budget.more_rounds)
        if budget.rounds is None:
            whole = (budget.minutes if asked is None else asked) - card_s / 60.0
            share = min(max(_SWEEP_ROUNDS, sweep.rounds_in(_SWEEP_RATIO * whole)), _MOST_SWEEP_ROUNDS)
            sweep_rounds = max(_LEAST_SWEEP_ROUNDS, min(share, sweep.rounds_in(whole - minutes)))
            sweep_minutes = sweep.minutes_of(sweep_rounds)
            rest = math.floor((whole - sweep_minutes) * _PARTS_OF_A_MINUTE) / _PARTS_OF_A_MINUTE
            minutes = max(rest, minutes if asked is None else own.minutes_of(least))
        # Who asks for rounds gets no more than those.
        study = _with_experiment(
            study, minutes=minutes, extra_rounds=study.experiment.extra_rounds and budget.rounds is None
        )
    if study.scaling is None:
        return study
    return msgspec.structs.replace(study, scaling=msgspec.structs.replace(study.scaling, minutes=sweep_minutes))


def _check_enough(
    plan: Plan, *, asked_minutes: float | None, rounds: int | None, least: int, needed_minutes: float
) -> None:
    assert plan.experiment is not None  # noqa: S101 - it has variants
    others, workloads = len(plan.experiment.variants) - 1, len(plan.workloads)
    if rounds is not None and rounds < least:
        raise SpecError(
            f"{rounds} {'round is' if rounds == 1 else 'rounds are'} too few for a verdict",
            detail=f"{others + 1} variants on {workloads} workload{'s' * (workloads != 1)} need at least {least}",
            hint=f"--rounds {least}, or --stock-only to measure without comparing",
        )
    if asked_minutes is not None and asked_minutes < needed_minutes:
        raise SpecError(
            f"{describe_minutes(asked_minutes)} too few for a verdict",
            detail=f"it takes {least} rounds of {(others + 2) * workloads} trials, plus disk, loading and clients",
            hint=f"{suggest_minutes(needed_minutes)}shorter trials, or fewer workloads",
        )


def _check_most(rounds: int, most: int) -> None:
    if rounds > most:
        raise SpecError(
            f"{count_things(rounds, 'round')} take more than {MOST_MINUTES // (24 * 60)} days, the most of a study",
            hint=f"--rounds {most}, or shorter trials",
        )


def list_notes(plan: Plan) -> tuple[str, ...]:
    """List what a plan has too little of: transactions in its trials, or rounds."""
    few = (_describe_few_transactions(plan, workload) for workload in plan.workloads)
    return tuple(filter(None, (*few, describe_missing_pairs(plan))))


def _describe_few_transactions(plan: Plan, workload: PlannedWorkload) -> str | None:
    """Describe a load whose whole trials have too few transactions for the p95 latency that decides; None if they have enough."""
    rates = {part.name: part.rate_tps for part in workload.list_parts() if part.rate_tps is not None}
    is_by_trials = plan.experiment is not None and plan.experiment.design is DesignKind.PAIRED
    if not rates or not is_by_trials or workload.failover is not None:
        return None
    name, rate_tps = min(rates.items(), key=lambda one: one[1])
    duration_s, needed_s = plan.trials[0].duration_s, _LEAST_FOR_P95 / rate_tps
    if duration_s >= _ROOM_RATIO * needed_s:
        return None
    what = f"part {name} of {workload.name}" if workload.parts else workload.name
    return (
        f"trials of {duration_s:g} s are too short for a verdict on {what}: its p95 latency needs {_LEAST_FOR_P95} transactions,"
        f" which take {math.ceil(needed_s)} s at {rate_tps:g} a second; `--duration {math.ceil(_ROOM_RATIO * needed_s)}s` leaves room"
    )


def describe_missing_pairs(plan: Plan) -> str | None:
    """Describe that a plan has too few rounds to compare the reference with itself (A/A); None if it has enough.

    The loads of a sweep over clients get their statuses from fewer rounds than that takes.
    """
    experiment = plan.experiment
    if experiment is None or experiment.design is DesignKind.SWITCHBACK:
        return None
    rounds = min(count_planned_rounds(plan).values())
    least = count_rounds_for(experiment, count_compared(plan.workloads))
    if rounds >= least:
        return None
    # The budget has no time for the disk card, which is in the plan.
    planned_s = min(plan.predicted_s, experiment.budget_s or plan.predicted_s)
    minutes = math.ceil((planned_s + (least - rounds) * _measure(plan).round_s) / 60.0)
    room = f"`--minutes {minutes}` has" if minutes <= MOST_MINUTES else "shorter trials have"
    return (
        f"{count_things(rounds, 'round')} are too few to compare the reference with itself (A/A), which takes {least}:"
        f" {room} room for them"
    )


class _Lengths(NamedTuple):
    """Predicted seconds of a plan's rounds and of everything else."""

    others_s: float
    round_s: float

    def minutes_of(self, rounds: int) -> float:
        """Return the minutes of a plan with that many rounds, rounded up, or the most that a study takes."""
        seconds = self.others_s + rounds * self.round_s
        return min(math.ceil(seconds / 60.0 * _PARTS_OF_A_MINUTE) / _PARTS_OF_A_MINUTE, MOST_MINUTES)

    def rounds_in(self, minutes: float) -> int:
        """Return how many rounds fit into those minutes; negative where all that is no round takes longer by itself."""
        if not self.round_s:
            return 0
        seconds = math.floor(minutes * _PARTS_OF_A_MINUTE + ROUNDING) / _PARTS_OF_A_MINUTE * 60.0
        return math.floor((seconds - self.others_s) / self.round_s + ROUNDING)


def _measure(plan: Plan) -> _Lengths:
    round_s = sum(step.predicted_s for step in plan.steps if step.trial is not None and step.trial.round == 1)
    others_s = sum(step.predicted_s for step in plan.steps if step.trial is None or step.trial.is_observed)
    # What only the first trial takes comes once, whichever round it is in.
    is_in_round = any(trial.number == 1 and trial.round == 1 for trial in plan.trials)
    first_s = plan.between.first_s if plan.between is not None and is_in_round else 0.0
    return _Lengths(others_s=others_s + first_s, round_s=round_s - first_s)


def _with_experiment(study: Study, **values: object) -> Study:
    return msgspec.structs.replace(study, experiment=msgspec.structs.replace(study.experiment, **values))

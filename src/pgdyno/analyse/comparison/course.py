"""Compare variants step by step of their trials: whether one is faster all the time, or only until something happens.

The pair is the unit here, too. Trials of one round are compared in the same seconds of their loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean

import msgspec

from pgdyno.analyse.comparison.rounds import NO_TRANSACTION
from pgdyno.analyse.estimate import Estimate, estimate_geometric_mean
from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.steps import choose_step_s, mean_by_step
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.types import TrialStatus

_LEAST_STEPS, _LEAST_PAIRS = 4, 2


class CourseStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the load: from and until when, TPS of the reference, and the ratio of each variant's TPS to it."""

    from_s: float
    until_s: float
    tps: Estimate
    ratios: dict[str, Estimate]


_Course = Sequence[float | None]


def compare_courses(trials: Iterable[TrialAnalysis], *, reference: str) -> tuple[CourseStep, ...]:
    """Compare each variant with the reference in each step of time; nothing without two pairs or four whole steps.

    Args:
        trials: Trials of one workload; those in slices or turns have no course of their own, and those that failed are left out.
        reference: Name of the reference, which runs twice in a round.
    """
    lines = [(trial.record, line) for trial in trials if (line := _find_line(trial)) is not None]
    step_s = choose_step_s([line for _, line in lines])
    rounds: dict[int, dict[str, list[_Course]]] = {}
    for record, line in lines:
        # Where nothing ended, what half a transaction gives.
        least = NO_TRANSACTION / record.log_sampling_rate / step_s
        course = [None if mean is None else max(mean, least) for mean in mean_by_step(line, step_s)]
        rounds.setdefault(record.planned.round, {}).setdefault(record.planned.variants[0], []).append(course)
    whole = [one for one in rounds.values() if len(one.get(reference, ())) == 2]
    variants = dict.fromkeys(name for one in whole for name in one if name != reference)
    steps = []
    for number in range(max((len(course) for one in whole for of in one.values() for course in of), default=0)):
        seen = [_read_step(one, number) for one in whole]
        bases = [geometric_mean(of[reference]) for of in seen if len(of[reference]) == 2]
        ratios = {name: _pair(seen, name, reference) for name in variants}
        known = {name: of for name, of in ratios.items() if len(of) >= _LEAST_PAIRS}
        if known:
            steps.append(
                CourseStep(
                    from_s=number * step_s,
                    until_s=(number + 1) * step_s,
                    tps=estimate_geometric_mean(bases, unit="tps"),
                    ratios={name: estimate_geometric_mean(of, unit="ratio") for name, of in known.items()},
                )
            )
    return tuple(steps) if len(steps) >= _LEAST_STEPS else ()


def _find_line(trial: TrialAnalysis) -> Series | None:
    record = trial.record
    is_counted = record.status is TrialStatus.FINISHED and not record.planned.is_observed and record.slice_s is None
    if not is_counted or len(record.planned.variants) != 1:
        return None
    return next((line for line in trial.charts.get(ChartKind.TPS, ()) if line.t_s), None)


def _read_step(one: Mapping[str, Sequence[_Course]], number: int) -> dict[str, list[float]]:
    """Read the TPS of each trial of a round in a step."""
    return {
        name: [value for course in of for value in course[number : number + 1] if value is not None]
        for name, of in one.items()
    }


def _pair(seen: Iterable[Mapping[str, Sequence[float]]], name: str, reference: str) -> list[float]:
    return [
        of[name][0] / geometric_mean(of[reference])
        for of in seen
        if len(of[reference]) == 2 and len(of.get(name, ())) == 1
    ]

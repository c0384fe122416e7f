"""Order the next steps: what this study proved, then what is expected to help, then what to try.

A step is called proven only after a verdict of this study or of a confirmation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from pgdyno.analyse.transaction_time.shares import Certainty
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.capacity import CEILING
from pgdyno.report.input import ReportInput
from pgdyno.report.lists import join_by_place
from pgdyno.report.sections.comparison.answers import WorkloadAnswers, answer_study
from pgdyno.report.sections.comparison.client_sweep import scaling_report
from pgdyno.report.sections.comparison.curve import describe_missing_knee
from pgdyno.report.sections.comparison.method import is_noise_loud
from pgdyno.report.sections.findings import FindingText, join_places, name_workloads
from pgdyno.report.sections.proven_steps import list_answered, list_derived
from pgdyno.report.sections.step import NextStep, StepCertainty
from pgdyno.spec.variant import LOAD_HOSTS


def list_steps(
    report: ReportInput, compared: tuple[WorkloadAnswers, ...], explained: Iterable[FindingText]
) -> tuple[NextStep, ...]:
    """Return the steps, the most certain gain first, then by size."""
    # A study in which two identical variants differ proves nothing.
    trusted = {one.workload: f"c{number}" for number, one in enumerate(compared, start=1) if not is_noise_loud(one)}
    experiment = report.record.plan.experiment
    # What more load hosts send is no gain of the server's.
    of_hosts = frozenset(() if experiment is None else (one.name for one in experiment.list_differing_in(LOAD_HOSTS)))
    tuned = report.record.tuned
    proven = (
        list_derived(report, tuned, trusted)
        if tuned is not None
        else list_answered(compared, trusted, without=of_hosts)
    )
    followed = scaling_report(report)
    curves = _from_curves((*compared, *(() if followed is None else answer_study(followed))))
    told = tuple(explained)
    limited = {name for one in told if one.rule == LIMITS and one.advice for name in one.names}
    advised = [
        step
        for number, one in enumerate(told, start=1)
        # The explanation of a load's limit already says what to do about its ceiling.
        if one.rule != CEILING or not limited.issuperset(one.names)
        for step in _from_finding(one, number)
    ]
    # What is not expected to gain more than a comparison would call equivalent is no step.
    least = report.record.study.experiment.detect_ratio
    worthwhile = [
        step
        for step in _merge(advised, report)
        if step.standing is not StepCertainty.EXPECTED or step.gain_ratio is None or step.gain_ratio >= least
    ]
    ordered = sorted([*proven, *curves, *worthwhile], key=lambda step: step.rank)
    # One experiment at a time: its answer may make the next one unnecessary.
    first = next((step for step in ordered if step.standing is StepCertainty.SETTLES), None)
    return tuple(step for step in ordered if step.standing is not StepCertainty.SETTLES or step is first)


def _merge(steps: Iterable[NextStep], report: ReportInput) -> Iterator[NextStep]:
    """Merge the same advice for several workloads."""
    alike: dict[tuple[StepCertainty, str], list[NextStep]] = {}
    for step in steps:
        alike.setdefault((step.standing, step.words), []).append(step)
    for first, *others in alike.values():
        of = (first, *others)
        gains: dict[str, dict[str, None]] = {}
        for workload, gain in (pair for step in of for pair in step.gains):
            gains.setdefault(gain, {})[workload] = None
        yield msgspec.structs.replace(
            first,
            workloads=name_workloads(tuple(dict.fromkeys(name for step in of for name in step.workloads)), report),
            gain=join_by_place((join_places(tuple(names)), gain) for gain, names in gains.items())
            if others and gains
            else first.gain,
            gain_ratio=max((step.gain_ratio for step in of if step.gain_ratio is not None), default=None),
        )


def _from_finding(one: FindingText, number: int) -> Iterator[NextStep]:
    if one.advice:
        known = StepCertainty.PROVEN if one.is_gain_proven else StepCertainty.EXPECTED
        yield NextStep(
            standing=known if one.gain else StepCertainty.UNKNOWN,
            words=one.advice,
            gain=one.gain,
            gains=one.gains,
            gain_ratio=one.gain_ratio,
            workloads=one.names,
            reason=number,
        )
    if one.confirm and one.certainty not in {None, Certainty.PROVEN}:
        # The rest explains what the experiment would show.
        words = f"{one.confirm.partition('. ')[0].rstrip('.')}."
        yield NextStep(standing=StepCertainty.SETTLES, words=words, workloads=one.names[:1], reason=number)


def _from_curves(compared: Iterable[WorkloadAnswers]) -> Iterator[NextStep]:
    """Yield what would find the knee of each sweep over clients that has none; one that was found is explained with its pool."""
    for answers in compared:
        words = "" if answers.sweep is None else describe_missing_knee(answers.sweep, answers.outlook.words)
        if words and not is_noise_loud(answers):
            yield NextStep(
                standing=StepCertainty.UNKNOWN, words=words, workloads=(answers.workload,), badge="undecided"
            )

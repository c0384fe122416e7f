"""Tell what a record shows so far: verdicts as their intervals narrow, the sweep over clients, and findings.

All figures and words are those of the report.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.report.charts.evidence import list_looks
from pgdyno.report.charts.intervals import percent
from pgdyno.report.format import EstimateText, format_estimate
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.comparison.answers import Answer, WorkloadAnswers, answer_study
from pgdyno.report.sections.findings import FindingText, list_findings
from pgdyno.report.verdict_words import HUES, MARKS, describe_change, name_status, name_verdict

_MOST_LOOKS = 120


class IntervalView(msgspec.Struct, frozen=True, kw_only=True):
    """A variant against the reference: its verdict so far, and its interval after each pair, in percent."""

    name: str
    word: str
    mark: str
    hue: str
    change: str
    remark: str
    n: int
    low: float | None
    high: float | None
    effect: float | None
    looks: tuple[tuple[int, float, float], ...]
    """The number of pairs, and the ends of the interval after them."""


class VerdictsView(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts on one workload in the metric that decides, with the reference against itself last."""

    workload: str
    reference: str
    delta: float
    rows: tuple[IntervalView, ...]


class PointView(msgspec.Struct, frozen=True, kw_only=True):
    """A load of a sweep over clients."""

    clients: int
    tps: float | None
    low: float | None
    high: float | None
    text: str
    status: str


class SweepView(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep over clients so far; without points, its words say that nothing has been compared yet."""

    workload: str
    points: tuple[PointView, ...]
    curve: tuple[str, ...]


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in a line, with the workloads that it holds for; without any, it holds for the whole study."""

    severity: str
    workloads: str
    claim: str
    advice: str


class AnswersView(msgspec.Struct, frozen=True, kw_only=True):
    """All that a record shows so far."""

    verdicts: tuple[VerdictsView, ...]
    figures: tuple[tuple[str, str, str], ...]
    """The name of each load, its TPS and the interval; only of a study that compares nothing."""
    sweeps: tuple[SweepView, ...]
    findings: tuple[FindingView, ...]


def view_answers(report: ReportInput) -> AnswersView:
    """Tell what a record shows so far."""
    answers = answer_study(report)
    followed = report.analysis.scaling
    sweeps = list(_view_sweeps(answers))
    if followed is not None:
        after = ReportInput(record=followed.record, analysis=followed.analysis, findings=(), record_dir="")
        sweeps += _view_sweeps(answer_study(after))
    figures = () if answers else tuple(_list_figures(report))
    return AnswersView(
        verdicts=tuple(_view_verdicts(part) for one in answers if one.answers for part in one.list_judged()),
        figures=figures,
        sweeps=tuple(sweeps),
        findings=tuple(_view_finding(one) for one in list_findings(report)),
    )


def _view_verdicts(answers: WorkloadAnswers) -> VerdictsView:
    comparison = answers.comparison
    rows = []
    for answer in answers.answers:
        question = comparison.find(answer.variant.name, comparison.primary)
        if question is not None and question.verdict.n:
            remark = "; ".join(filter(None, (answer.effort, answer.outlook)))
            rows.append(_view_question(question, answer.variant.title, remark))
        elif question is not None:
            rows.append(_view_unasked(question, answer))
    noise = comparison.find_noise(comparison.primary)
    if noise is not None:
        rows.append(_view_question(noise, f"{answers.reference.title} against itself (A/A)", ""))
    first = next((question.verdict.delta_ratio for question in comparison.questions), 0.03)
    return VerdictsView(
        workload=answers.workload, reference=answers.reference.title, delta=percent(first), rows=tuple(rows)
    )


def _view_unasked(question: Question, answer: Answer) -> IntervalView:
    """Tell of a variant without a pair that nothing has been compared yet, or why nothing will be."""
    row = _view_question(question, answer.variant.title, "no round has ended" if answer.verdict else answer.change)
    return msgspec.structs.replace(row, word="not compared yet" if answer.verdict else "no verdict", mark="", change="")


def _view_question(question: Question, name: str, remark: str) -> IntervalView:
    verdict = question.verdict
    return IntervalView(
        name=name,
        word=name_verdict(verdict),
        mark=MARKS[verdict.kind],
        hue=HUES[verdict.kind],
        change=describe_change(verdict),
        remark=remark,
        n=verdict.n,
        low=_in_percent(verdict.low_ratio),
        high=_in_percent(verdict.high_ratio),
        effect=_in_percent(verdict.effect_ratio),
        looks=tuple(list_looks(question, most=_MOST_LOOKS)) if question.log_ratios else (),
    )


def _in_percent(ratio: float | None) -> float | None:
    return None if ratio is None else percent(ratio)


def _view_sweeps(answers: tuple[WorkloadAnswers, ...]) -> Iterator[SweepView]:
    for one in answers:
        if one.sweep is not None:
            yield _view_sweep(one.workload, one.sweep, one.curve)
        elif one.is_sweep and not one.levels:
            yield SweepView(workload=one.workload, points=(), curve=one.curve)
        for level, words in zip(one.levels, one.curve[1:], strict=False):
            yield _view_sweep(f"{one.workload}, {level.level}", level.sweep, (words,))


def _view_sweep(name: str, sweep: ClientSweep, curve: tuple[str, ...]) -> SweepView:
    points = tuple(
        PointView(
            clients=point.clients,
            tps=point.tps.value,
            low=point.tps.low,
            high=point.tps.high,
            text=_join(format_estimate(point.tps)),
            status=name_status(point.status),
        )
        for point in sweep.points
    )
    return SweepView(workload=name, points=points, curve=curve)


def _join(text: EstimateText) -> str:
    return f"{text.value} {text.beside}".rstrip()


def _list_figures(report: ReportInput) -> Iterator[tuple[str, str, str]]:
    for workload in report.analysis.workloads:
        text = format_estimate(workload.tps)
        yield workload.name, text.value, text.beside


def _view_finding(finding: FindingText) -> FindingView:
    return FindingView(
        severity=finding.severity.value, workloads=finding.of, claim=finding.claim, advice=finding.advice
    )

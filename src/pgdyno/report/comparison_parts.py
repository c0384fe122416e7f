"""The parts of the page that answer a comparison: verdicts, intervals, pairs, evidence, noise, curves."""

from __future__ import annotations

import msgspec

from pgdyno.analyse.comparison.answers import Question
from pgdyno.report.answers import Answer, WorkloadAnswers, answer_study
from pgdyno.report.chart import CSS_THEME
from pgdyno.report.comparison import HUES, MARKS, name_verdict
from pgdyno.report.comparison_tables import verdict_table
from pgdyno.report.drawings import Drawings, PageChart
from pgdyno.report.evidence_charts import evidence_chart, pairs_chart
from pgdyno.report.input import ReportInput
from pgdyno.report.intervals_chart import intervals_chart
from pgdyno.report.method import describe_noise, is_noise_loud
from pgdyno.report.scaling import describe_scaling_method, scaling_report
from pgdyno.report.sections import list_parts
from pgdyno.report.sweep_chart import curve_chart
from pgdyno.report.table import Table

# So many variants' charts are open at once.
_MOST_OPEN = 3
# So many answers are told in sentences; of more, verdict, name and figures.
_MOST_SENTENCES = 4


class AnswerPart(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with how it looks."""

    answer: Answer
    hue: str
    badge: str


class QuestionPart(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs and the evidence of one variant."""

    id: str
    title: str
    figures: tuple[PageChart, ...]


class NoisePart(msgspec.Struct, frozen=True, kw_only=True):
    """The reference against itself."""

    sentences: tuple[str, ...]
    is_loud: bool
    """Whether two identical variants were told apart."""
    figure: PageChart | None


class ComparisonPart(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's part of the page."""

    id: str
    answers: WorkloadAnswers
    verdicts: tuple[AnswerPart, ...]
    """Empty for a sweep over clients, whose curve says it better."""
    is_compact: bool
    """Whether so many variants are compared that sentences would hide the verdicts."""
    figure: PageChart | None
    """What is seen first: the intervals, or the curve."""
    parts: tuple[Table | str, ...]
    folded: tuple[Table, ...]
    """Of interest to few."""
    questions: tuple[QuestionPart, ...]
    are_open: bool
    noise: NoisePart


def make_comparisons(report: ReportInput, drawings: Drawings, *, prefix: str = "c") -> tuple[ComparisonPart, ...]:
    """The parts of all workloads, whose ids begin with `prefix`; their charts join the drawings."""
    return tuple(
        _make_comparison(f"{prefix}{number}", answers, report, drawings)
        for number, answers in enumerate(answer_study(report), start=1)
    )


def make_following(report: ReportInput, drawings: Drawings) -> tuple[ComparisonPart, ...]:
    """The parts of the sweep over clients that followed; none where none did."""
    sweep, method = scaling_report(report), describe_scaling_method(report)
    parts = () if sweep is None else make_comparisons(sweep, drawings, prefix="s")
    return tuple(msgspec.structs.replace(part, parts=(*part.parts, *method)) for part in parts)


def _make_comparison(part_id: str, answers: WorkloadAnswers, report: ReportInput, drawings: Drawings) -> ComparisonPart:
    sweep = answers.sweep
    comparison = answers.comparison
    chart = intervals_chart(answers, theme=CSS_THEME) if sweep is None else curve_chart(sweep, theme=CSS_THEME)
    questions = [question for question in comparison.questions if question.metric == comparison.primary]
    return ComparisonPart(
        id=part_id,
        answers=answers,
        verdicts=() if sweep is not None else tuple(_make_answer(answer) for answer in answers.answers),
        is_compact=sweep is None and len(answers.answers) > _MOST_SENTENCES,
        figure=None if chart is None else drawings.add(f"{part_id}-{chart.kind}", chart),
        parts=list_parts(report, answers),
        folded=() if sweep is None else (verdict_table(answers),),
        questions=tuple(
            _make_question(f"{part_id}-q{number}", question, answers, drawings)
            for number, question in enumerate(questions, start=1)
            if question.log_ratios
        ),
        are_open=sweep is None and len(questions) <= _MOST_OPEN,
        noise=_make_noise(part_id, answers, drawings),
    )


def _make_answer(answer: Answer) -> AnswerPart:
    verdict = answer.verdict
    if verdict is None:
        return AnswerPart(answer=answer, hue="critical", badge="no verdict")
    return AnswerPart(answer=answer, hue=HUES[verdict.kind], badge=f"{MARKS[verdict.kind]} {name_verdict(verdict)}")


def _make_question(part_id: str, question: Question, answers: WorkloadAnswers, drawings: Drawings) -> QuestionPart:
    charts = (
        pairs_chart(question, title="Every pair", theme=CSS_THEME),
        evidence_chart(question, title="Evidence", theme=CSS_THEME),
    )
    variant = answers.variants[question.variant]
    return QuestionPart(
        id=part_id,
        title=f"{variant.title} against {answers.reference.title}",
        figures=tuple(drawings.add(f"{part_id}-{chart.kind}", chart) for chart in charts if chart is not None),
    )


def _make_noise(part_id: str, answers: WorkloadAnswers, drawings: Drawings) -> NoisePart:
    noise = answers.comparison.find_noise(answers.comparison.primary)
    is_loud = is_noise_loud(answers)
    chart = None
    if noise is not None:
        hue = "critical" if is_loud else "slate"
        chart = pairs_chart(noise, title=f"{answers.reference.title} against itself", theme=CSS_THEME, hue=hue)
    return NoisePart(
        sentences=describe_noise(answers),
        is_loud=is_loud,
        figure=None if chart is None else drawings.add(f"{part_id}-noise", chart),
    )

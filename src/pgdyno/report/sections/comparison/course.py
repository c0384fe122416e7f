"""Build the table of a comparison over the course of its trials: each step of time with its own change."""

from __future__ import annotations

from collections.abc import Iterable

from pgdyno.analyse.comparison.answers import SPEED_METRICS
from pgdyno.analyse.comparison.course import compare_courses
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.report.format import NO_USEFUL_INTERVAL, format_effect, is_useless
from pgdyno.report.level import Level
from pgdyno.report.sections.comparison.answers import WorkloadAnswers
from pgdyno.report.sections.comparison.tables import estimate_cell
from pgdyno.report.table import Cell, Table, absent, columns, text
from pgdyno.units import count_subject

_MOST_VARIANTS = 7
_REMARK = (
    "Pairs within a round, each in the same seconds of the load. The brackets are 95 % intervals of each step by itself, as if evaluated"
    " once: of 20 changes shown where nothing differs, one excludes 0 by chance, on average. No verdict rests on them."
)


def courses_table(answers: WorkloadAnswers, trials: Iterable[TrialAnalysis]) -> Table | None:
    """Build a row for each step of time: TPS of the reference and the change of each variant; None where they have no course.

    Args:
        answers: Of a workload; where something else than TPS decides, or each part of the load by itself, there is no table.
        trials: All of the workload.
    """
    if answers.is_sweep or answers.parts or answers.comparison.primary != SPEED_METRICS[0]:
        return None
    steps = compare_courses(trials, reference=answers.reference.name)
    seen = [one for one in answers.variants.values() if any(one.name in step.ratios for step in steps)]
    shown, left = seen[:_MOST_VARIANTS], len(seen) - _MOST_VARIANTS
    if not shown:
        return None
    rows = tuple(
        (
            text(f"{step.from_s:g} to {step.until_s:g} s"),
            estimate_cell(step.tps),
            *(_change_cell(step.ratios.get(variant.name)) for variant in shown),
        )
        for step in steps
    )
    more = f" {count_subject(left, 'more variant')} not shown." if left > 0 else ""
    titles = columns("", answers.reference.title, *(variant.title for variant in shown), numbers_from=1)
    return Table(
        caption="TPS over the course of a trial",
        columns=titles,
        rows=rows,
        remark=f"{_REMARK}{more}",
        level=Level.DETAIL,
    )


def _change_cell(ratio: Estimate | None) -> Cell:
    if ratio is None or ratio.value is None or ratio.low is None or ratio.high is None:
        return absent("fewer than two pairs")
    if is_useless(ratio):
        return absent(NO_USEFUL_INTERVAL)
    shown = format_effect(ratio.value - 1, ratio.low - 1, ratio.high - 1)
    return Cell(text=shown.value, detail=shown.interval)

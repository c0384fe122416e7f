"""Build the tables of a comparison: variant, TPS, change, verdict; each change with its interval."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pgdyno.analyse.comparison.answers import COUNT_METRICS, INIT_METRICS, SPEED_METRICS, Comparison, Question
from pgdyno.analyse.comparison.verdict import Verdict
from pgdyno.analyse.estimate import Estimate
from pgdyno.analyse.failover import OUTAGE_METRICS
from pgdyno.facts.metrics import find_metric
from pgdyno.plan.experiment import Experiment
from pgdyno.report.format import format_in_unit
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.comparison.answers import WorkloadAnswers
from pgdyno.report.sections.comparison.variants import VariantText
from pgdyno.report.table import Cell, Column, Table, absent, columns, text
from pgdyno.report.verdict_words import HUES, MARKS, METRIC_WORDS, effect_of, name_levels, name_verdict
from pgdyno.units import with_capital

_REFERENCE = "reference"
_NOT_MEASURED = "not measured"
_TOO_FEW = "too few of its trials or slices have enough transactions for it"
_STEPS_REMARK = (
    "Seconds by pgbench's own clock, which shows 10 ms. The loading time is that of all steps; the checkpoint comes after"
    " it, is timed by pgdyno and writes what loading left in memory. Each step has a family of verdicts of its own."
)
_SPEED_REMARK = (
    "The reference's row has its own figures; the other rows have their change against it. Changes come from pairs"
    " within a round. {first} is each variant's own over its rounds, and comparing two of these values gives no verdict."
)


OF_ALL = "This adds up unlike transactions, and also rises when slow transactions give way to quick ones: the verdicts are those of the parts."

_COMPARED = {INIT_METRICS[0]: INIT_METRICS, OUTAGE_METRICS[0]: (*OUTAGE_METRICS, *SPEED_METRICS)}
"""What is compared beside the deciding metric, where that is none of speed."""


def verdict_table(answers: WorkloadAnswers) -> Table:
    """Build a row for each variant: TPS, the time of loading or without service, changes, verdict, pairs."""
    comparison = answers.comparison
    first, *rest = _COMPARED.get(comparison.primary, SPEED_METRICS)
    others = [metric for metric in rest if _is_seen(comparison, metric)]
    first_words = METRIC_WORDS[first]
    titles = ["Variant", first_words, f"{first_words} change", *(METRIC_WORDS[metric] for metric in others)]
    rows = []
    for variant in answers.variants.values():
        if not variant.is_reference and variant.name not in answers.judged:
            continue
        question = comparison.find(variant.name, comparison.primary)
        changes = (_change_cell(answers, variant, metric, first=first) for metric in (first, *others))
        pairs = comparison.rounds if variant.is_reference else 0 if question is None else question.verdict.n
        rows.append(
            (name_cell(variant), figure_cell(comparison, variant.name, first), *changes, verdict_cell(variant, question),
             text(f"{pairs:,}"))
        )  # fmt: skip
    return Table(
        caption=f"Variants against {answers.reference.title}",
        columns=(*columns(*titles, numbers_from=1), Column(title="Verdict"), Column(title="Pairs", is_number=True)),
        rows=tuple(rows),
        remark=f"{_SPEED_REMARK.format(first=with_capital(first_words))} {describe_brackets(comparison.questions)}",
    )


def sum_table(answers: WorkloadAnswers) -> Table:
    """Build a row for each variant of a load in parts: TPS of all parts together and its change, which decides nothing."""
    comparison, metric = answers.comparison, SPEED_METRICS[0]
    rows = []
    for variant in answers.variants.values():
        change = msgspec.structs.replace(_change_cell(answers, variant, metric, first=metric), is_strong=False)
        rows.append((name_cell(variant), figure_cell(comparison, variant.name, metric), change))
    words = METRIC_WORDS[metric]
    return Table(
        caption="All parts together",
        columns=columns("Variant", words, f"{words} change", numbers_from=1),
        rows=tuple(rows),
        remark=OF_ALL,
    )


def steps_table(answers: WorkloadAnswers) -> Table | None:
    """Build a row for each step of loading: the reference's seconds, and each variant's change and verdict; None for other loads."""
    comparison = answers.comparison
    shown = [metric for metric in INIT_METRICS if _is_seen(comparison, metric)] if is_of_loading(answers) else []
    if not shown:
        return None
    others = [variant for variant in answers.variants.values() if not variant.is_reference]
    rows = tuple(
        (
            text(METRIC_WORDS[metric]),
            figure_cell(comparison, answers.reference.name, metric),
            *(_count_cell(comparison.find(variant.name, metric)) for variant in others),
        )
        for metric in shown
    )
    titles = columns("Step", answers.reference.title, *(variant.title for variant in others), numbers_from=1)
    left_out = [METRIC_WORDS[metric] for metric in INIT_METRICS if metric not in shown]
    without = (
        f" Not compared, because they took less than 0.2 s or did not run: {join_names(left_out)}." if left_out else ""
    )
    return Table(
        caption="Steps of loading",
        columns=titles,
        rows=rows,
        remark=f"{_STEPS_REMARK}{without}",
        level=Level.HEADLINE,
    )


def is_of_loading(answers: WorkloadAnswers) -> bool:
    """Return whether the workload loads the data."""
    return answers.comparison.primary == INIT_METRICS[0]


def counts_table(answers: WorkloadAnswers) -> Table | None:
    """Build the table of what a transaction cost, which explains the verdicts and which noise hardly affects."""
    comparison = answers.comparison
    shown = [metric for metric in COUNT_METRICS if _is_seen(comparison, metric)]
    if not shown:
        return None
    variants = tuple(answers.variants.values())
    by_variant = [[_cost_cell(answers, variant, metric) for metric in shown] for variant in variants]
    # The longer of the two goes down, or the table would be wider than its page.
    if len(shown) > len(variants):
        titles = [variant.title for variant in variants]
        rows = [(text(METRIC_WORDS[metric]), *cells) for metric, *cells in zip(shown, *by_variant, strict=True)]
    else:
        titles = [METRIC_WORDS[metric] for metric in shown]
        rows = [(name_cell(variant), *cells) for variant, cells in zip(variants, by_variant, strict=True)]
    unit = "load" if is_of_loading(answers) else "transaction"
    return Table(
        caption=f"Resource use per {unit}",
        columns=columns(f"Per {unit}", *titles, numbers_from=1),
        rows=tuple(rows),
        remark=f"{'; '.join(map(_describe_metric, shown))}.",
    )


def matrix_table(answers: WorkloadAnswers, experiment: Experiment) -> Table | None:
    """Build the matrix of verdicts over two settings, one by row and one by column; None for other comparisons."""
    axes = list(experiment.reference.levels)
    if len(axes) != 2:
        return None
    down, across = axes
    levels = {axis: list(dict.fromkeys(variant.levels[axis] for variant in experiment.variants)) for axis in axes}
    cells = {
        tuple(variant.levels.values()): _matrix_cell(answers, answers.variants[variant.name])
        for variant in experiment.variants
    }
    rows = tuple(
        (Cell(text=row, is_code=True), *(cells.get((row, column), absent("not in the sweep")) for column in levels[across]))
        for row in levels[down]
    )  # fmt: skip
    titles = columns(f"{down} ↓  {across} →", *levels[across], numbers_from=1)
    metric = METRIC_WORDS[answers.comparison.primary]
    return Table(caption=f"{metric} against {answers.reference.title}", columns=titles, rows=rows)


def name_cell(variant: VariantText) -> Cell:
    """Return a variant's name with the settings that the name does not show, and what it gives up."""
    return Cell(text=variant.name, detail=f"({variant.content})" if variant.content else "", tag=variant.tag)


def figure_cell(comparison: Comparison, variant: str, metric: str) -> Cell:
    """Return a variant's own figure with its interval."""
    estimates = next((one.estimates for one in comparison.figures if one.variant == variant), {})
    estimate = estimates.get(metric)
    if estimate is None:
        return absent(_TOO_FEW if estimates and metric in SPEED_METRICS else _NOT_MEASURED)
    return estimate_cell(estimate)


def estimate_cell(estimate: Estimate) -> Cell:
    """Return a figure with its interval; absent without one."""
    if estimate.low is None or estimate.high is None:
        return absent(estimate.reason or "no interval")
    shown = format_in_unit(estimate)
    value = shown.value.removesuffix(f" {estimate.unit}") if estimate.unit == "tps" else shown.value
    return Cell(text=value, detail=shown.beside)


def verdict_cell(variant: VariantText, question: Question | None) -> Cell:
    """Return the verdict of the primary metric."""
    if variant.is_reference:
        return text(_REFERENCE)
    if variant.error is not None:
        why = ": ".join(filter(None, (variant.error.fact, variant.error.detail)))
        return Cell(text="dropped out", note=why, hue="critical")
    if question is None:
        return absent(_NOT_MEASURED)
    verdict = question.verdict
    return Cell(
        text=f"{MARKS[verdict.kind]} {name_verdict(verdict)}",
        is_strong=True,
        hue=HUES[verdict.kind],
        note=verdict.reason,
    )


def change_cell(verdict: Verdict) -> Cell:
    """Return a change with its interval; strong where its direction is decided."""
    shown = effect_of(verdict)
    if not shown.interval:
        return absent(_NOT_MEASURED if verdict.n == 0 else verdict.reason or "no interval yet")
    return Cell(text=shown.value, detail=shown.interval, is_strong=verdict.is_different)


def describe_brackets(questions: Iterable[Question]) -> str:
    """State the confidence of the intervals of changes."""
    levels = name_levels(question.verdict for question in questions)
    return f"The brackets of changes are {levels} intervals, valid at every evaluation." if levels else ""


def _change_cell(answers: WorkloadAnswers, variant: VariantText, metric: str, *, first: str) -> Cell:
    comparison = answers.comparison
    if variant.is_reference:
        return text(_REFERENCE) if metric == first else figure_cell(comparison, variant.name, metric)
    question = comparison.find(variant.name, metric)
    return absent(_NOT_MEASURED) if question is None else change_cell(question.verdict)


def _cost_cell(answers: WorkloadAnswers, variant: VariantText, metric: str) -> Cell:
    comparison = answers.comparison
    if variant.is_reference or answers.is_sweep:
        return figure_cell(comparison, variant.name, metric)
    return _count_cell(comparison.find(variant.name, metric))


def _count_cell(question: Question | None) -> Cell:
    if question is None:
        return absent("not counted, or 0")
    cell = change_cell(question.verdict)
    if not cell.detail:
        return cell
    kind = question.verdict.kind
    return Cell(text=name_verdict(question.verdict), detail=f"{cell.text} {cell.detail}", hue=HUES[kind])


def _matrix_cell(answers: WorkloadAnswers, variant: VariantText) -> Cell:
    if variant.is_reference:
        return Cell(text=_REFERENCE, tag=variant.tag)
    question = answers.comparison.find(variant.name, answers.comparison.primary)
    shown = verdict_cell(variant, question)
    detail = str(effect_of(question.verdict)) if question is not None and question.log_ratios else ""
    return Cell(
        text=shown.text, detail=detail, note=shown.note, hue=shown.hue, is_strong=shown.is_strong, tag=variant.tag
    )


def _is_seen(comparison: Comparison, metric: str) -> bool:
    return any(question.metric == metric and question.log_ratios for question in comparison.questions)


def _describe_metric(metric: str) -> str:
    """Describe a metric by its name and meaning; a meaning that begins with the name needs no other."""
    name, meaning = METRIC_WORDS[metric], _meaning(metric)
    return meaning if meaning.startswith(name) else f"{name}: {meaning}"


def _meaning(metric: str) -> str:
    meaning = find_metric(metric).meaning.rstrip(".")
    return meaning[:1].lower() + meaning[1:] if meaning[1:2].islower() else meaning

"""Build the sections of a comparison: verdicts, tables, pairs and evidence, noise, and method."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from pgdyno.analyse.comparison.answers import Question
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.plan.experiment import Experiment
from pgdyno.report.charts.chart import Chart
from pgdyno.report.charts.evidence import evidence_chart, pairs_chart
from pgdyno.report.charts.intervals import intervals_chart
from pgdyno.report.charts.sweep import curve_chart
from pgdyno.report.document import Block, ChartBlock, Charts, Claim, Claims, Look, Prose, Section, Tone
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.comparison.answers import Answer, WorkloadAnswers, answer_study
from pgdyno.report.sections.comparison.client_sweep import describe_scaling_method, scaling_report
from pgdyno.report.sections.comparison.course import courses_table
from pgdyno.report.sections.comparison.method import (
    describe_error_rate,
    describe_method,
    describe_noise,
    is_noise_loud,
)
from pgdyno.report.sections.comparison.plans import build_plans, headline_plans
from pgdyno.report.sections.comparison.sweep_tables import (
    describe_law,
    law_table,
    levels_table,
    loads_table,
    statuses_table,
)
from pgdyno.report.sections.comparison.tables import (
    OF_ALL,
    counts_table,
    describe_brackets,
    matrix_table,
    steps_table,
    sum_table,
    verdict_table,
)
from pgdyno.report.sections.comparison.variants import variants_table
from pgdyno.report.table import Table
from pgdyno.report.verdict_words import HUES, MARKS, name_verdict

_DO_NOT_TRUST = "Do not trust these verdicts:"
# With at most this many variants all charts are shown open.
_MOST_OPEN = 3


def build_verdicts(report: ReportInput, *, prefix: str = "c") -> Iterator[Section]:
    """Yield a panel for each workload: its verdicts, or the curve of a sweep over clients.

    Args:
        report: A report on a comparison; other studies yield nothing.
        prefix: The prefix of the ids of the workloads' sections.
    """
    for number, answers in enumerate(answer_study(report), start=1):
        yield _build_panel(f"{prefix}{number}", answers, report)


def build_comparisons(report: ReportInput, *, prefix: str = "c") -> Iterator[Section]:
    """Yield the section of each workload: tables, pairs, evidence, noise."""
    for number, answers in enumerate(answer_study(report), start=1):
        yield _build_comparison(f"{prefix}{number}", answers, report)


def build_sweep_verdicts(report: ReportInput) -> Iterator[Section]:
    """Yield the panel of the sweep over clients that followed a comparison."""
    sweep = scaling_report(report)
    if sweep is not None:
        yield from build_verdicts(sweep, prefix="s")


def build_sweep(report: ReportInput) -> Iterator[Section]:
    """Yield the section of the sweep over clients that followed a comparison, with how it was made."""
    sweep = scaling_report(report)
    if sweep is None:
        return
    method = tuple(Prose(words=words) for words in describe_scaling_method(report))
    for section in build_comparisons(sweep, prefix="s"):
        yield msgspec.structs.replace(section, blocks=(*section.blocks, *method))


def build_method(report: ReportInput) -> Iterator[Section]:
    """Yield the section on design, slices, pairs and error rate; nothing for a study that compares nothing."""
    experiment, compared = report.record.plan.experiment, answer_study(report)
    if experiment is None or not compared:
        return
    error_rate = describe_error_rate(experiment)
    paragraphs = [
        Prose(
            words=words,
            brief=" ".join(filter(None, (words, _describe_brackets(compared)))) if words == error_rate else "",
            level=Level.HEADLINE if words == error_rate else Level.STANDARD,
        )
        for words in describe_method(report)
    ]
    table = variants_table(compared[0].variants)
    yield Section(
        title="Comparison method",
        id="method",
        blocks=(*paragraphs, *([table] if table is not None else [])),
        is_listed=True,
    )


def _describe_brackets(compared: tuple[WorkloadAnswers, ...]) -> str:
    questions = [
        answers.comparison.find(name, answers.comparison.primary) for answers in compared for name in answers.judged
    ]
    return describe_brackets(question for question in questions if question is not None)


def _build_panel(part_id: str, answers: WorkloadAnswers, report: ReportInput) -> Section:
    sweep, first_noise = answers.sweep, describe_noise(answers)[0]
    blocks: list[Block] = []
    # The table of layers has these verdicts, for each layer as well as the whole set.
    is_layered = report.record.tuned is not None and report.record.tuned.is_layered
    for number, words in enumerate(answers.curve):
        tone = Tone.PLAIN if number and answers.levels else Tone.CLAIM
        blocks.append(Prose(words=words, tone=tone, level=Level.HEADLINE))
    if sweep is not None:
        blocks.append(statuses_table(sweep, answers.outlook))
    if answers.levels:
        blocks.append(levels_table(answers.levels))
    if not is_layered and (answers.answers or not answers.is_sweep):
        said = [answer for of in answers.list_judged() for answer in of.answers]
        blocks.append(Claims(claims=tuple(map(_make_claim, said))))
        if answers.parts:
            changes = "; ".join(f"{one.variant.title}: {one.change}" for one in answers.answers)
            blocks.append(
                Prose(words=f"All parts together: {changes}. {OF_ALL}", tone=Tone.SMALL, level=Level.HEADLINE)
            )
    if (steps := steps_table(answers)) is not None:
        blocks.append(steps)
    if is_noise_loud(answers):
        why = " ".join(describe_noise(answers))
        blocks.append(Prose(strong=_DO_NOT_TRUST, words=why, tone=Tone.ALARM, level=Level.HEADLINE))
    else:
        blocks.append(Prose(words=first_noise, tone=Tone.SMALL, level=Level.HEADLINE))
    blocks += headline_plans(answers)
    return Section(
        title=answers.workload,
        sub="" if answers.is_sweep else f"against {answers.reference.title}",
        blocks=tuple(blocks),
        beside=tuple(_draw_answers(part_id, answers)),
        look=Look.VERDICTS,
    )


def _draw_answers(part_id: str, answers: WorkloadAnswers) -> Iterator[ChartBlock]:
    """Draw the curve of a sweep over clients, those of its levels, or the intervals of verdicts."""
    if answers.sweep is not None:
        yield _place(part_id, curve_chart(answers.sweep))
    for number, level in enumerate(answers.levels, start=1):
        curve = curve_chart(level.sweep)
        yield _place(f"{part_id}-l{number}", msgspec.structs.replace(curve, title=f"{curve.title}, {level.level}"))
    for of_id, part in _list_judged(part_id, answers):
        if (chart := _draw_intervals(part)) is not None:
            yield _place(of_id, msgspec.structs.replace(chart, title=_name_part(chart.title, part, answers)))


def _list_judged(part_id: str, answers: WorkloadAnswers) -> Iterator[tuple[str, WorkloadAnswers]]:
    """Yield the answers that have verdicts, with the prefix of their ids: those of the parts of a load that has parts, else its own."""
    if not answers.parts:
        yield part_id, answers
        return
    yield from ((f"{part_id}-p{number}", part) for number, part in enumerate(answers.parts, start=1))


def _name_part(title: str, part: WorkloadAnswers, answers: WorkloadAnswers) -> str:
    return title if part is answers else f"{title}: {part.workload}"


def _draw_intervals(answers: WorkloadAnswers) -> Chart | None:
    return intervals_chart(
        (answer.verdict for answer in answers.answers if answer.verdict is not None),
        titles={name: variant.title for name, variant in answers.variants.items()},
        reference=answers.reference.title,
    )


def _make_claim(answer: Answer) -> Claim:
    verdict, error = answer.verdict, answer.variant.error
    said = () if error is None else tuple(line for line in (error.detail, error.hint) if line)
    figures = ", ".join(filter(None, (answer.change, answer.effort)))
    return Claim(
        badge="no verdict" if verdict is None else f"{MARKS[verdict.kind]} {name_verdict(verdict)}",
        hue="critical" if verdict is None else HUES[verdict.kind],
        claim=answer.lead,
        figures=figures,
        outlook=answer.outlook,
        evidence=said,
        caution=answer.caution,
    )


def _build_comparison(part_id: str, answers: WorkloadAnswers, report: ReportInput) -> Section:
    experiment = report.record.plan.experiment
    blocks: list[Block] = [] if experiment is None else list(_list_tables(answers, experiment))
    course = courses_table(answers, report.analysis.list_trials(answers.workload))
    blocks += [course] if course is not None else []
    blocks += build_plans(answers)
    questions = [
        (f"{of_id}-q{number}", part, one)
        for of_id, part in _list_judged(part_id, answers)
        for number, one in enumerate(part.comparison.list_primary(), start=1)
        if one.variant in part.judged
    ]
    is_open = len(questions) <= _MOST_OPEN
    for of_id, part, one in questions:
        if one.log_ratios:
            section = _build_question(of_id, one, part, is_open=is_open)
            blocks.append(msgspec.structs.replace(section, title=_name_part(section.title, part, answers)))
    blocks.append(_build_noise(part_id, answers))
    return Section(
        title=f"TPS curve of {answers.workload}" if answers.is_sweep else f"Verdicts on {answers.workload}",
        sub="" if answers.is_sweep else f"against {answers.reference.title}",
        id=part_id,
        blocks=tuple(blocks),
        is_listed=True,
        list_title=answers.workload,
    )


def _list_tables(answers: WorkloadAnswers, experiment: Experiment) -> Iterator[Block]:
    if answers.sweep is not None:
        clients = {one.clients: one.name for one in experiment.variants if one.clients is not None}
        yield from _list_curve(answers, answers.sweep, clients)
    for level in answers.levels:
        for block in _list_curve(answers, level.sweep, level.variants):
            caption = f"{level.level}: {block.caption}" if isinstance(block, Table) else ""
            yield msgspec.structs.replace(block, caption=caption) if caption else block
    for part in answers.list_judged() if answers.answers or answers.parts else ():
        for table in (None if answers.is_sweep else matrix_table(part, experiment), verdict_table(part)):
            if table is not None:
                yield msgspec.structs.replace(table, caption=_name_part(table.caption, part, answers))
    whole = (sum_table(answers) if answers.parts else None, counts_table(answers))
    yield from (table for table in whole if table is not None)


def _list_curve(answers: WorkloadAnswers, sweep: ClientSweep, clients: dict[int, str]) -> Iterator[Table | Prose]:
    yield loads_table(answers, sweep, clients)
    yield Prose(words=describe_law(sweep), tone=Tone.SMALL)
    if sweep.usl is not None:
        yield law_table(sweep.usl)


def _build_question(part_id: str, question: Question, answers: WorkloadAnswers, *, is_open: bool) -> Section:
    @functools.cache
    def draw() -> tuple[ChartBlock, ...]:
        made = (pairs_chart(question, title="Pairs"), evidence_chart(question))
        return tuple(_place(part_id, chart) for chart in made if chart is not None)

    variant = answers.variants[question.variant]
    return Section(
        title=f"{variant.title} against {answers.reference.title}",
        id=part_id,
        blocks=(Charts(draw=draw),),
        is_folded=not is_open,
        is_printed=False,
    )


def _build_noise(part_id: str, answers: WorkloadAnswers) -> Section:
    is_loud = is_noise_loud(answers)
    charts = []
    for of_id, part in _list_judged(part_id, answers):
        noise = part.comparison.find_noise(part.comparison.primary)
        title = _name_part(f"{answers.reference.title} compared with itself", part, answers)
        hue = "critical" if is_noise_loud(part) else "slate"
        if noise is not None and (chart := pairs_chart(noise, title=title, hue=hue)) is not None:
            charts.append(ChartBlock(id=f"{of_id}-noise", chart=chart))
    tone = Tone.ALARM if is_loud else Tone.PLAIN
    return Section(
        title=f"Noise: two identical variants on {answers.workload}",
        id=f"{part_id}-noise-words",
        blocks=tuple(Prose(words=words, tone=tone) for words in describe_noise(answers)),
        beside=tuple(charts),
    )


def _place(part_id: str, chart: Chart) -> ChartBlock:
    return ChartBlock(id=f"{part_id}-{chart.kind}", chart=chart)

"""The answers of a comparison on the terminal: a sentence for each, the verdict in it marked. Fits 60 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from pgdyno.analyse.comparison.verdict import VerdictKind
from pgdyno.analyse.sweep.scaling import ClientSweep
from pgdyno.report.answers import Answer, WorkloadAnswers, answer_study
from pgdyno.report.comparison import name_verdict
from pgdyno.report.comparison_tables import describe_brackets
from pgdyno.report.format import format_estimate
from pgdyno.report.input import ReportInput
from pgdyno.report.method import describe_error_rate, describe_noise, is_noise_loud
from pgdyno.report.paragraph import Paragraph

# Of so many variants each gets a sentence; of more, name and figures under a heading.
_MOST_SENTENCES = 4
_STYLES = {
    VerdictKind.FASTER: "bold green",
    VerdictKind.SLOWER: "bold red",
    VerdictKind.EQUIVALENT: "bold cyan",
    VerdictKind.INCONCLUSIVE: "bold yellow",
}


def list_answers(report: ReportInput) -> list[RenderableType]:
    """Every answer, the machine's own noise, and what share of verdicts may be false."""
    experiment = report.record.plan.experiment
    compared = answer_study(report)
    lines = [line for answers in compared for line in _list_workload(answers)]
    if experiment is not None:
        questions = [
            answers.comparison.find(name, answers.comparison.primary)
            for answers in compared
            if answers.sweep is None
            for name in answers.variants
        ]
        brackets = describe_brackets(question for question in questions if question is not None)
        lines.append(Paragraph(" ".join(filter(None, (describe_error_rate(experiment), brackets))), by=0))
    for variant in compared[0].variants.values() if compared else ():
        if variant.error is not None:
            lines += ["", Paragraph(Text.assemble((f"{variant.name}: {variant.error.fact}", "bold red")), by=0)]
            lines += [Paragraph(line) for line in (variant.error.detail, variant.error.hint) if line]
    return lines


def list_curve(answers: WorkloadAnswers) -> Iterator[RenderableType]:
    """What a sweep over clients answers, and each of its loads; nothing of other comparisons."""
    if answers.sweep is not None:
        yield Text(answers.workload, style="bold")
        yield from (Paragraph(sentence) for sentence in answers.curve)
        yield ""
        yield from _list_loads(answers.sweep)


def _list_workload(answers: WorkloadAnswers) -> Iterator[RenderableType]:
    if answers.sweep is not None:
        yield from list_curve(answers)
        yield ""
    elif len(answers.answers) > _MOST_SENTENCES:
        yield Paragraph(Text.assemble((answers.workload, "bold"), f" against {answers.reference.title}"), by=0)
        for answer in answers.answers:
            yield from _list_answer(answer)
        yield ""
    else:
        for answer in answers.answers:
            yield Paragraph(_mark(answer), by=0)
            yield ""
    if is_noise_loud(answers):
        for sentence in describe_noise(answers):
            yield Paragraph(Text(sentence, style="bold red"), by=0)
    else:
        yield Paragraph(describe_noise(answers)[0], by=0)
    yield ""


def _mark(answer: Answer) -> Text:
    words = Text(answer.sentence)
    if answer.verdict is not None:
        word = name_verdict(answer.verdict)
        start = answer.lead.rfind(f" {word}") + 1
        words.stylize(_STYLES.get(answer.verdict.kind, "bold"), start, start + len(word))
    return words


def _list_answer(answer: Answer) -> Iterator[RenderableType]:
    verdict = answer.verdict
    if verdict is None:
        yield Paragraph(f"{answer.variant.title}: {answer.change}")
        return
    yield Paragraph(
        Text.assemble(f"{answer.variant.title}: ", (name_verdict(verdict), _STYLES.get(verdict.kind, "bold")))
    )
    figures = "; ".join(filter(None, (f"{answer.change}, {answer.effort}", answer.outlook)))
    yield Paragraph(" ".join(filter(None, (f"{figures}.", answer.caution))), by=4)


def _list_loads(sweep: ClientSweep) -> Iterator[Text]:
    rows = [("clients", "TPS", "", "status")]
    for point in sweep.points:
        tps = format_estimate(point.tps)
        rows.append(
            (f"{point.clients:,}", tps.value, tps.interval, point.status.value if point.status else "undecided")
        )
    clients, values, intervals = (max(len(row[column]) for row in rows) for column in range(3))
    for row in rows:
        line = f"  {row[0]:>{clients}}  {row[1]:>{values}}  {row[2]:<{intervals}}  {row[3]}"
        yield Text(line.rstrip(), no_wrap=True, overflow="fold")

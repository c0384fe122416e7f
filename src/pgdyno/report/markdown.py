"""The report as Markdown that one pastes into a ticket: the same words and tables as the page, without its charts.

Plain CommonMark with pipe surroundings. Whatever a study, a server or a tool said is escaped: it stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report import content, surroundings, trial_tables
from pgdyno.report.answers import Answer, WorkloadAnswers, answer_study
from pgdyno.report.comparison_tables import variants_table
from pgdyno.report.declared_disk import declared_tables, explain_declared
from pgdyno.report.disk_uses import describe_uses, own_disk_table, uses_table
from pgdyno.report.evidence import list_sections, time_table
from pgdyno.report.finding_words import FindingText, list_findings
from pgdyno.report.first_page import FirstPage, make_first_page
from pgdyno.report.health import health_table, sources_table
from pgdyno.report.input import ReportInput
from pgdyno.report.layers import (
    derived_table,
    describe_lead,
    describe_proofs,
    describe_trial_set,
    layers_table,
    speeds_table,
)
from pgdyno.report.losses import find_durability_given_up, find_workload_losses
from pgdyno.report.method import TRIALS_REMARK, describe_method, describe_noise, is_noise_loud
from pgdyno.report.next_steps import NextStep
from pgdyno.report.places import ChartLink, describe_places
from pgdyno.report.predictions import predictions_table
from pgdyno.report.preflight_table import preflight_table
from pgdyno.report.reading import explain_reading
from pgdyno.report.scaling import describe_scaling_method, scaling_report
from pgdyno.report.search_tables import rates_table, trials_table
from pgdyno.report.search_words import TRIALS_REMARK as SEARCH_TRIALS_REMARK
from pgdyno.report.search_words import SearchAnswer, answer_searches, describe_search_method
from pgdyno.report.sections import list_parts
from pgdyno.report.table import Cell, Table

# What could begin markup within a line, and no more, so that the text stays legible where nobody renders it. Nothing of
# ours or of others ever stands at a line's start, so what only means something there needs no care.
_MARKUP = re.compile(r"[\\`*<|~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|&(?=#?\w+;)")

# What our own sentences have as something to type. A span is text to every reader, whatever stands in it.
_CODE = re.compile(r"(?<!`)(`[^`]+`)(?!`)")


def render_markdown(report: ReportInput) -> str:
    """Render the report as Markdown."""
    compared, searched = answer_study(report), answer_searches(report)
    sweep = scaling_report(report)
    blocks = [
        *_head(report),
        *_proof(report),
        *_verdicts(report, compared),
        *_curves(sweep),
        *_found(searched),
        *_first_page(make_first_page(report)),
        *_findings(report),
        *(block for answers in compared for block in _comparison(report, answers)),
        *(block for answer in searched for block in _search(report, answer)),
        *_scaling(report, sweep),
        *_method(report, compared),
        *_search_method(report),
        *(["## Trials", TRIALS_REMARK] if compared else []),
        *(["## Trials", SEARCH_TRIALS_REMARK] if searched else []),
        *(block for workload in report.analysis.workloads for block in _workload(report, workload)),
        *_sections(report),
        *_derived(report),
        *_surroundings(report),
        *_repeat(report),
        "## How to read this",
        *explain_reading(report),
        *([format_table(bounds)] if (bounds := sources_table(report.analysis.workloads)) is not None else []),
    ]
    return "\n\n".join(blocks) + "\n"


def escape(words: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _escape(" ".join(words.split()))


def _escape(line: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", line)


def mark(words: str) -> str:
    """Sentences of ours, with what stands between backticks as code; the rest stays text."""
    parts = _CODE.split(" ".join(words.split()))
    return "".join(part if place % 2 else _escape(part) for place, part in enumerate(parts))


def format_table(table: Table) -> str:
    """A pipe table with its caption above, and its footnotes and remark below."""
    lines = [f"**{escape(table.caption)}**", ""]
    lines.append(_row(column.title for column in table.columns))
    lines.append("|" + "|".join("---:" if column.is_number else "---" for column in table.columns) + "|")
    lines += [_row((_cell(table, cell) for cell in row), is_escaped=True) for row in table.rows]
    below = [f"({number}) {escape(note)}" for number, note in enumerate(table.notes, start=1)]
    below += [escape(table.remark)] if table.remark else []
    return "\n".join([*lines, *(f"\n{line}" for line in below)])


def _head(report: ReportInput) -> Iterator[str]:
    yield f"# {escape(content.title_report(report))}"
    yield escape(content.describe_study(report))
    durability = find_durability_given_up(report)
    if durability:
        yield f"**Durability given up: {escape(', '.join(durability))}.** These figures are not those of a durable server."
    lines = []
    for card in content.make_cards(report):
        shown = [f"**{card.tps.value} tps** {_doubt(card.tps.interval, card.tps.n, card.tps.reason)}"]
        unit = " ms" if card.p99.interval else ""
        shown.append(f"p99 {card.p99.value}{unit} {_doubt(card.p99.interval, card.p99.n, card.p99.reason)}")
        label = " (durability given up)" if card.durability else ""
        lines.append(f"- {escape(card.name)}{label}: {', '.join(shown)}; {escape(card.load)}")
    if lines:
        yield "\n".join(lines)


def _verdicts(report: ReportInput, compared: tuple[WorkloadAnswers, ...]) -> Iterator[str]:
    lines = []
    # The table of layers has said it, of the layers and not of the set without them.
    is_said = report.record.tuned is not None and report.record.tuned.is_layered
    for answers in compared:
        if answers.curve:
            lines.append(f"- **{escape(answers.workload)}**: {escape(' '.join(answers.curve))}")
        elif not is_said:
            lines += [_verdict(answer) for answer in answers.answers]
        if is_noise_loud(answers):
            lines += [f"- **Warning**: {escape(words)}" for words in describe_noise(answers)]
    if lines:
        yield "\n".join(lines)


def _verdict(answer: Answer) -> str:
    return f"- **{escape(answer.lead)}**{escape(answer.sentence.removeprefix(answer.lead))}"


def _proof(report: ReportInput) -> Iterator[str]:
    yield from (f"**{mark(words)}**" for words in describe_lead(report))
    tuned = report.record.tuned
    if tuned is not None and tuned.is_layered:
        yield "\n".join(f"- **{escape(claim)}**: {escape(figures)}." for claim, figures in describe_proofs(report))
    yield from (format_table(table) for table in (speeds_table(report), layers_table(report)) if table is not None)


def _derived(report: ReportInput) -> Iterator[str]:
    table = derived_table(report)
    if table is not None:
        yield "## Derived settings"
        yield from (escape(words) for words in describe_trial_set(report))
        yield format_table(table)


def _comparison(report: ReportInput, answers: WorkloadAnswers) -> Iterator[str]:
    yield f"## Verdicts on {escape(answers.workload)}"
    for part in list_parts(report, answers):
        yield format_table(part) if isinstance(part, Table) else escape(part)
    yield f"### How far two identical variants differ here: {escape(answers.workload)}"
    yield from (escape(words) for words in describe_noise(answers))


def _curves(sweep: ReportInput | None) -> Iterator[str]:
    if sweep is not None:
        yield from _verdicts(sweep, answer_study(sweep))


def _scaling(report: ReportInput, sweep: ReportInput | None) -> Iterator[str]:
    if sweep is not None:
        yield from (block for answers in answer_study(sweep) for block in _comparison(sweep, answers))
        yield from (escape(words) for words in describe_scaling_method(report))


def _method(report: ReportInput, compared: tuple[WorkloadAnswers, ...]) -> Iterator[str]:
    if not compared:
        return
    yield "## How it was compared"
    yield from (escape(words) for words in describe_method(report))
    variants = variants_table(compared[0].variants)
    if variants is not None:
        yield format_table(variants)


def _found(searched: tuple[SearchAnswer, ...]) -> Iterator[str]:
    lines = [f"- **{escape(one.claim)}** {escape(' '.join(one.sentences))}".rstrip() for one in searched]
    if lines:
        yield "\n".join(lines)


def _search(report: ReportInput, answer: SearchAnswer) -> Iterator[str]:
    asked = report.record.plan.search
    if asked is not None and answer.search.levels:
        yield f"## Rates on {escape(answer.workload)}"
        yield format_table(rates_table(answer.search, asked))
        yield format_table(trials_table(answer.search, asked))


def _search_method(report: ReportInput) -> Iterator[str]:
    paragraphs = describe_search_method(report)
    if paragraphs:
        yield "## How it was searched"
        yield from (escape(words) for words in paragraphs)


def _doubt(interval: str, n: str, reason: str | None) -> str:
    if not interval:
        return f"({escape(reason or 'absent')})"
    return escape(f"{interval}, {n}") if interval.startswith("[") else f"({escape(interval)})"


def _findings(report: ReportInput) -> Iterator[str]:
    findings = list_findings(report)
    if not findings:
        return
    yield "## What weakens the figures"
    yield "\n".join(line for finding in findings for line in _finding(finding, finding.advice))


def _first_page(page: FirstPage) -> Iterator[str]:
    if page.alarm:
        yield f"**{escape(page.alarm)}**"
    yield "## What limits this server"
    lines = [line for one in page.explained for line in _finding(one)]
    lines += [f"- **not judged**: {escape(words)}" for words in page.not_judged]
    if lines:
        yield "\n".join(lines)
    if page.next_steps:
        yield "## What to do next"
        yield "\n".join(f"{number}. {_step(step)}" for number, step in enumerate(page.next_steps, start=1))
    if page.costs:
        yield "## What it costs"
        yield escape(" ".join(page.costs))


def _finding(one: FindingText, advice: str = "") -> Iterator[str]:
    of = f" ({one.of})" if one.of else ""
    lone = one.lead if len(one.lead) == 1 else ()
    # What was seen may have been said by others: only what is to be done has code.
    words = " ".join(filter(None, (*(escape(_sentence(each)) for each in lone), mark(advice))))
    yield f"- **{one.badge}**: {escape(one.claim + of)} {words}{_places(one.places)}".rstrip()
    yield from (f"  - {escape(each)}" for each in one.lead if not lone)
    more = " ".join(_sentence(each) for each in (*one.rest, one.why) if each)
    if more:
        yield f"  - {escape(more)}"
    if one.rivals:
        yield f"  - What else it could be: {escape('; '.join(f'{rival.cause} ({rival.against})' for rival in one.rivals))}"
    if one.confirm:
        yield f"  - What would settle it: {mark(one.confirm)}"


def _step(step: NextStep) -> str:
    of = f" ({step.of})" if step.of else ""
    gain = _sentence(step.gain) if step.gain else ""
    words = " ".join(filter(None, (f"{step.words}{of}", gain, step.caution)))
    return f"**{step.standing.value}**: {mark(words)}{_places(step.places)}"


def _places(places: tuple[ChartLink, ...]) -> str:
    return f" *See {escape(describe_places(places))}.*" if places else ""


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _workload(report: ReportInput, workload: WorkloadAnalysis) -> Iterator[str]:
    planned = workload.load
    scripts = ", ".join(name if weight == 1 else f"{name} @ {weight}" for name, weight in planned.scripts)
    is_compared = report.record.plan.search is not None or any(t.record.planned.variants for t in workload.trials)
    losses = find_workload_losses(report, workload) if is_compared else ()
    label = f" (durability given up: {', '.join(losses)})" if losses else ""
    yield f"{'###' if is_compared else '##'} {escape(workload.name + label)}"
    yield escape(
        f"{content.describe_load(planned)}, {planned.threads} pgbench {'thread' if planned.threads == 1 else 'threads'}, scripts: {scripts}"
    )
    if any(content.is_mixed(trial) for trial in workload.trials):
        yield content.MIXED_REMARK
        yield format_table(trial_tables.blocks_table(workload))
    else:
        yield format_table(trial_tables.result_table(workload))
        yield format_table(trial_tables.trials_table(workload))
    yield from (escape(words) for words in describe_uses(workload))
    made = (
        uses_table(workload),
        predictions_table(workload),
        time_table(workload),
        health_table(workload),
        trial_tables.counts_table(workload),
        trial_tables.shares_table(workload),
        trial_tables.statements_table(workload),
    )
    yield from (format_table(table) for table in made if table is not None)
    for trial in workload.trials:
        if trial.unknown_lines:
            yield f"Lines of pgbench in {content.name_trial(trial)} that pgdyno does not know:"
            yield _code_block("\n".join(trial.unknown_lines))


def _sections(report: ReportInput) -> Iterator[str]:
    for section in list_sections(report):
        yield f"## {escape(section.title)}"
        yield from (escape(words) for words in section.words)
        yield from (format_table(table) for table in section.tables)


def _surroundings(report: ReportInput) -> Iterator[str]:
    dataset = report.record.dataset
    if dataset is not None:
        yield "## Dataset"
        yield format_table(surroundings.dataset_table(report, dataset))
        yield format_table(surroundings.relations_table(dataset))
        yield format_table(surroundings.init_table(dataset))
    yield "## Settings and machine"
    made = (
        surroundings.key_settings_table(report),
        surroundings.settings_table(report),
        surroundings.choices_table(report),
        surroundings.host_table(report),
        None if report.disk is None else own_disk_table(report.disk),
        *declared_tables(report),
        preflight_table(report),
        surroundings.gaps_table(report),
        surroundings.versions_table(report),
    )
    yield from (format_table(table) for table in made if table is not None)
    yield from (escape(words) for words in explain_declared(report))


def _repeat(report: ReportInput) -> Iterator[str]:
    yield "## Repeat it"
    yield escape(content.describe_repeating(report))
    for command in content.list_commands(report):
        yield f"{escape(command.purpose)}:"
        yield _code_block(command.line)


def _row(cells: Iterable[str], *, is_escaped: bool = False) -> str:
    return "| " + " | ".join(cell if is_escaped else escape(cell) for cell in cells) + " |"


def _cell(table: Table, cell: Cell) -> str:
    # A code span cannot hold an escaped pipe in every reader, so what has one stays text.
    is_code = cell.is_code and not set("`|") & set(cell.text)
    shown = f"`{' '.join(cell.text.split())}`" if is_code else escape(cell.text)
    shown = f"**{shown}**" if cell.is_strong else shown
    # Behind a verdict its figures, behind a figure its interval.
    shown += f"{':' if cell.hue else ''} {escape(cell.detail)}" if cell.detail else ""
    shown += f" ({escape(cell.tag)})" if cell.tag else ""
    number = table.note_number(cell)
    return shown if number is None else f"{shown} ({number})"


def _code_block(words: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{words}\n{fence}"

"""The report as Markdown that one pastes into a ticket: the same words and tables as the page, without its charts.

Plain CommonMark with pipe tables. Whatever a study, a server or a tool said is escaped: it stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report import content, tables
from pgdyno.report.input import ReportInput
from pgdyno.report.table import Cell, Table

# What could begin markup within a line, and no more, so that the text stays legible where nobody renders it. Nothing of
# ours or of others ever stands at a line's start, so what only means something there needs no care.
_MARKUP = re.compile(r"[\\`*<|~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|&(?=#?\w+;)")


def render_markdown(report: ReportInput) -> str:
    """Render the report as Markdown."""
    blocks = [
        *_head(report),
        *_findings(report),
        *(block for workload in report.analysis.workloads for block in _workload(report, workload)),
        *_surroundings(report),
        *_repeat(report),
        "## How to read this",
        *content.HOW_TO_READ,
    ]
    return "\n\n".join(blocks) + "\n"


def escape(words: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(words.split()))


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
    durability = content.find_durability_given_up(report)
    if durability:
        yield f"**Durability given up: {escape(', '.join(durability))}.** These figures are not those of a durable server."
    lines = []
    for card in content.make_cards(report):
        shown = [f"**{card.tps.value} tps** {_doubt(card.tps.interval, card.tps.n, card.tps.reason)}"]
        unit = " ms" if card.p99.interval else ""
        shown.append(f"p99 {card.p99.value}{unit} {_doubt(card.p99.interval, card.p99.n, card.p99.reason)}")
        label = " (durability given up)" if card.durability else ""
        lines.append(f"- {escape(card.name)}{label}: {', '.join(shown)}; {escape(card.load)}")
    yield "\n".join(lines)


def _doubt(interval: str, n: str, reason: str | None) -> str:
    if not interval:
        return f"({escape(reason or 'absent')})"
    return escape(f"{interval}, {n}") if interval.startswith("[") else f"({escape(interval)})"


def _findings(report: ReportInput) -> Iterator[str]:
    findings = content.list_findings(report)
    if not findings:
        return
    yield "## Findings"
    lines = []
    for finding in findings:
        of = f" ({', '.join(finding.workloads)})" if finding.workloads else ""
        lone = finding.evidence if len(finding.evidence) == 1 else ()
        words = " ".join(filter(None, (*(_sentence(one) for one in lone), finding.advice)))
        lines.append(f"- **{finding.severity.value}**: {escape(finding.claim + of)} {escape(words)}".rstrip())
        lines += [] if lone else [f"  - {escape(one)}" for one in finding.evidence]
    yield "\n".join(lines)


def _sentence(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _workload(report: ReportInput, workload: WorkloadAnalysis) -> Iterator[str]:
    planned = report.record.plan.find_workload(workload.name)
    scripts = ", ".join(name if weight == 1 else f"{name} @ {weight}" for name, weight in planned.scripts)
    yield f"## {escape(workload.name)}"
    yield escape(f"{content.describe_load(planned)}, {planned.threads} pgbench threads, scripts: {scripts}")
    yield format_table(tables.result_table(workload))
    yield format_table(tables.trials_table(workload))
    made = (tables.counts_table(workload), tables.shares_table(workload), tables.statements_table(workload))
    yield from (format_table(table) for table in made if table is not None)
    for trial in workload.trials:
        if trial.unknown_lines:
            yield f"Lines of pgbench in {content.name_trial(trial)} that pgdyno does not know:"
            yield _code_block("\n".join(trial.unknown_lines))


def _surroundings(report: ReportInput) -> Iterator[str]:
    dataset = report.record.dataset
    if dataset is not None:
        yield "## Dataset"
        yield format_table(tables.dataset_table(report, dataset))
        yield format_table(tables.relations_table(dataset))
        yield format_table(tables.init_table(dataset))
    yield "## Settings and machine"
    made = (
        tables.key_settings_table(report),
        tables.settings_table(report),
        tables.choices_table(report),
        tables.host_table(report),
        tables.gaps_table(report),
        tables.versions_table(report),
    )
    yield from (format_table(table) for table in made if table is not None)


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
    number = table.note_number(cell)
    return shown if number is None else f"{shown} ({number})"


def _code_block(words: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", words)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{words}\n{fence}"

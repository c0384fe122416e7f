"""The answers of a search on the terminal: a sentence for each workload, and a line for each rate. Fits 60 columns."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from pgdyno.analyse.search.latency_limit import RateVerdict
from pgdyno.plan.search import Search
from pgdyno.report.format import format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.search_words import SearchAnswer, answer_searches, describe_search_error

_STYLES = {RateVerdict.HOLDS: "green", RateVerdict.FAILS: "red", RateVerdict.UNDECIDED: "yellow"}


def list_search_answers(report: ReportInput) -> list[RenderableType]:
    """Every answer with its rates, and what share of answers may be false."""
    asked = report.record.plan.search
    if asked is None:
        return []
    lines = [line for answer in answer_searches(report) for line in _list_answer(answer, asked)]
    return [*lines, Paragraph(describe_search_error(asked, len(report.record.plan.workloads)), by=0)]


def _list_answer(answer: SearchAnswer, asked: Search) -> Iterator[RenderableType]:
    yield Paragraph(Text(answer.claim, style="bold"), by=0)
    yield from (Paragraph(sentence) for sentence in answer.sentences)
    rows = [("TPS", "held", "missed", f"p{asked.percentile:g}", "verdict")]
    for level in answer.search.levels:
        missed, latency = level.share.value, level.latency_ms.value
        shown = "—" if latency is None else f"{format_number(latency)} ms"
        held = f"{level.held_count} of {len(level.trials)}"
        rows.append((format_number(level.rate_tps), held, format_percent(missed or 0.0), shown, level.verdict.value))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    if len(rows) > 1:
        yield ""
    for row in rows if len(rows) > 1 else ():
        words = "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        style = next((_STYLES[verdict] for verdict in RateVerdict if verdict.value == row[4]), "")
        yield Text.assemble(f"  {words}  ", (row[4], style), no_wrap=True, overflow="fold")
    yield ""

"""Build the sections of a search for the largest rate that holds a latency limit."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.report.charts.search import limit_chart
from pgdyno.report.document import Block, ChartBlock, Claim, Claims, Look, Prose, Section, Tone
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.search.answers import answer_searches, describe_search_error, describe_search_method
from pgdyno.report.sections.search.tables import rates_table, trials_table


def build_answers(report: ReportInput) -> Iterator[Section]:
    """Yield a panel for each workload: the limit, and every rate that was tried."""
    asked = report.record.plan.search
    for number, answer in enumerate(answer_searches(report), start=1):
        claim = Claim(badge=answer.badge, hue=answer.hue, claim=answer.claim, evidence=answer.sentences)
        blocks: list[Block] = [Claims(claims=(claim,))]
        chart = None if asked is None else limit_chart(answer.search, asked)
        if asked is not None and answer.search.levels:
            blocks.append(msgspec.structs.replace(rates_table(answer.search, asked), level=Level.HEADLINE))
        else:
            blocks.append(Prose(words="No trial at a scheduled rate is finished.", tone=Tone.SMALL))
        yield Section(
            title=answer.workload,
            id=f"s{number}",
            blocks=tuple(blocks),
            beside=() if chart is None else (ChartBlock(id=f"s{number}-limit", chart=chart),),
            look=Look.VERDICTS,
        )


def build_rate_trials(report: ReportInput) -> Iterator[Section]:
    """Yield every trial at a rate, for each workload."""
    asked = report.record.plan.search
    for number, answer in enumerate(answer_searches(report), start=1):
        if asked is not None and answer.search.levels:
            table = trials_table(answer.search, asked)
            yield Section(
                title=f"Trials at scheduled rates on {answer.workload}",
                id=f"r{number}",
                blocks=(table,),
                is_listed=True,
            )


def build_search_method(report: ReportInput) -> Iterator[Section]:
    """Yield the section on how the search worked and how certain its answers are; nothing for other studies."""
    paragraphs, asked = describe_search_method(report), report.record.plan.search
    if asked is None:
        return
    error = describe_search_error(asked, len(report.record.plan.workloads))
    yield Section(
        title="Search method",
        id="method",
        blocks=tuple(
            Prose(words=words, level=Level.HEADLINE if words == error else Level.STANDARD) for words in paragraphs
        ),
        is_listed=True,
    )

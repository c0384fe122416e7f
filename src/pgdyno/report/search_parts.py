"""The parts of the page that answer a search: the limit, the rates around it, and the trials it rests on."""

from __future__ import annotations

import msgspec

from pgdyno.report.chart import CSS_THEME
from pgdyno.report.drawings import Drawings, PageChart
from pgdyno.report.input import ReportInput
from pgdyno.report.search_chart import limit_chart
from pgdyno.report.search_tables import rates_table, trials_table
from pgdyno.report.search_words import SearchAnswer, answer_searches
from pgdyno.report.table import Table


class SearchPart(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's part of the page."""

    id: str
    answer: SearchAnswer
    figure: PageChart | None
    rates: Table | None
    trials: Table | None


def make_searches(report: ReportInput, drawings: Drawings) -> tuple[SearchPart, ...]:
    """The parts of all workloads; their charts join the drawings."""
    asked = report.record.plan.search
    parts = []
    for number, answer in enumerate(answer_searches(report), start=1):
        chart = None if asked is None else limit_chart(answer.search, asked, theme=CSS_THEME)
        is_shown = asked is not None and bool(answer.search.levels)
        parts.append(
            SearchPart(
                id=f"s{number}",
                answer=answer,
                figure=None if chart is None else drawings.add(f"s{number}-limit", chart),
                rates=rates_table(answer.search, asked) if asked is not None and is_shown else None,
                trials=trials_table(answer.search, asked) if asked is not None and is_shown else None,
            )
        )
    return tuple(parts)

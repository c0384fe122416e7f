"""Records side by side as one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pgdyno.analyse.records.comparison import RecordComparison
from pgdyno.report.chart import CSS_THEME
from pgdyno.report.drawings import Drawings
from pgdyno.report.html import render_page
from pgdyno.report.records import REMARK, NamedRecord, describe_record, name_records
from pgdyno.report.records_chart import records_chart
from pgdyno.report.records_forms import TITLE, list_parts
from pgdyno.report.records_tiers import TIERS_TITLE, list_tier_parts
from pgdyno.report.table import Table


def render_records_html(
    records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison], *, vega_js: str | None = None
) -> str:
    """The page; `vega_js` is as `html.render_html` has it."""
    names, drawings = name_records(records), Drawings()
    against = [
        (
            f"{names[one.place]} against {names[0]}",
            [*_list_charts(one, names, drawings), *_list_kinds(list_parts(one, names))],
        )
        for one in comparisons
    ]
    tiers = list(_list_kinds(list_tier_parts(records, comparisons)))
    return render_page(
        "records.html.j2",
        drawings,
        vega_js=vega_js,
        title=TITLE,
        records=[(name, describe_record(one)) for name, one in zip(names, records, strict=True)],
        against=[*against, (TIERS_TITLE, tiers)] if tiers else against,
        remark=REMARK,
    )


def _list_kinds(parts: Iterable[Table | str]) -> Iterator[tuple[str, Table | str]]:
    for part in parts:
        if isinstance(part, Table):
            yield "table", part
        else:
            yield ("refusal" if part.startswith("refused:") else "words"), part


def _list_charts(
    comparison: RecordComparison, names: Sequence[str], drawings: Drawings
) -> Iterator[tuple[str, object]]:
    for place, pair in enumerate(comparison.pairs):
        chart = records_chart(pair, (names[0], names[comparison.place]), theme=CSS_THEME)
        if chart is not None:
            yield "chart", drawings.add(f"r{comparison.place}-{place}", chart)

"""What the first page rests on, as tables: where a transaction's time goes, what each resource allows, what is paid for."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.bottleneck.time_share import TimeShare, TransactionTime
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.report.capacity import bounds_table, describe_capacity, projections_table
from pgdyno.report.content import name_trial
from pgdyno.report.format import format_count, format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.price_tables import alternatives_table, cost_table, worth_table
from pgdyno.report.price_words import explain_price
from pgdyno.report.table import Cell, Table, columns, text


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Words and tables on one question."""

    title: str
    anchor: str
    words: tuple[str, ...]
    tables: tuple[Table, ...]


def time_table(workload: WorkloadAnalysis, *, is_short: bool = False) -> Table | None:
    """Where a transaction's time went in the trial with the median TPS; None where nobody looked.

    Args:
        workload: To show.
        is_short: Without what each share was reckoned from, and what is not known.
    """
    trial = workload.representative
    if trial is None or trial.time is None:
        return None
    time = trial.time
    titles = columns("Resource", "ms", "Share", numbers_from=1)
    rows = tuple(_time_row(share) for share in time.shares)
    return Table(
        caption=_caption_time(trial, time),
        columns=titles if is_short else (*titles, *columns("Reckoned from")),
        rows=tuple(row[: len(titles)] for row in rows) if is_short else rows,
        remark="" if is_short else " ".join(_describe_time(time)),
    )


def list_sections(report: ReportInput) -> tuple[Section, ...]:
    """What stands behind the answers about the whole machine: what it can carry, what it costs."""
    return tuple(_list_sections(report))


def _list_sections(report: ReportInput) -> Iterator[Section]:
    for number, capacity in enumerate(report.analysis.capacities, start=1):
        tables = tuple(table for table in (bounds_table(capacity), projections_table(capacity)) if table is not None)
        if tables:
            yield Section(
                title=f"What this machine can carry of {capacity.workload}",
                anchor=_name_capacity(number),
                words=describe_capacity(capacity),
                tables=tables,
            )
    price = report.price
    if price is not None and price.cost.costs:
        made = (cost_table(price), worth_table(price), alternatives_table(price))
        yield Section(
            title="What it costs",
            anchor="price",
            words=tuple(explain_price(price)),
            tables=tuple(table for table in made if table is not None),
        )


def _name_capacity(number: int) -> str:
    """The id of a capacity's part of the page, of its place in the analysis from 1."""
    return f"capacity{number}"


def _caption_time(trial: TrialAnalysis, time: TransactionTime) -> str:
    return f"Where the {format_number(time.transaction_ms)} ms of a transaction go, in {name_trial(trial)}"


def _time_row(share: TimeShare) -> tuple[Cell, ...]:
    interval = ""
    if share.low_ratio is not None and share.high_ratio is not None:
        interval = f"[{share.low_ratio * 100:.1f} – {share.high_ratio * 100:.1f}]"
    return (
        text(share.resource.value),
        text(format_number(share.ms)),
        Cell(text=format_percent(share.ratio), detail=interval),
        text(share.how),
    )


def _describe_time(time: TransactionTime) -> Iterator[str]:
    yield f"From {format_count(time.observed_count)} looks at the clients' backends; brackets are their 95 % intervals."
    if time.queueing_ratio is not None:
        yield f"Of the time as running, backends waited for a CPU {format_percent(time.queueing_ratio)}."
    if time.absent:
        yield f"Not known: {'; '.join(f'{what} ({reason})' for what, reason in time.absent.items())}."

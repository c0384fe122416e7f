"""Build the evidence of the first page: transaction time, the capacity of each resource, and costs."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.transaction_time.shares import Resource, TimeShare, TransactionTime
from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.report.document import Prose, Section
from pgdyno.report.format import format_count, format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections.capacity import bounds_table, describe_capacity, projections_table
from pgdyno.report.sections.head import name_trial
from pgdyno.report.sections.price.tables import alternatives_table, cost_table, worth_table
from pgdyno.report.sections.price.words import explain_price
from pgdyno.report.table import Cell, Column, Table, columns, text

_REST = "client and the rest of the network"


def time_table(workload: WorkloadAnalysis) -> Table | None:
    """Return where a transaction's time went in the trial that shows the limit; None where it was not sampled."""
    trial = workload.limit_trial
    if trial is None or trial.time is None:
        return None
    time = trial.time
    how = Column(title="Basis", level=Level.DETAIL)
    return Table(
        caption=f"Transaction time breakdown: {format_number(time.transaction_ms)} ms in {name_trial(trial)}",
        columns=(*columns("Resource", "ms", "Share", numbers_from=1), how),
        rows=tuple(_time_row(share, time) for share in time.shares),
        remark=" ".join(_describe_time(time)),
    )


def build_capacities(report: ReportInput) -> Iterator[Section]:
    """Yield what the machine can carry of each load."""
    for number, capacity in enumerate(report.analysis.capacities, start=1):
        tables = tuple(table for table in (bounds_table(capacity), projections_table(capacity)) if table is not None)
        if tables:
            place = "this server" if report.record.given else "this machine"
            words = tuple(Prose(words=one) for one in describe_capacity(capacity, place=place))
            title = f"Capacity of {place} for {capacity.workload}"
            yield Section(title=title, id=f"capacity{number}", blocks=(*words, *tables), is_listed=True)


def build_price(report: ReportInput) -> Iterator[Section]:
    """Yield the section on what the machine and its transactions cost; nothing where no price is known."""
    price = report.price
    if price is not None and price.cost.costs:
        made = (cost_table(price), worth_table(price), alternatives_table(price))
        words = tuple(Prose(words=one) for one in explain_price(price))
        tables = tuple(table for table in made if table is not None)
        yield Section(title="Prices", id="price", blocks=(*words, *tables), is_listed=True)


def _time_row(share: TimeShare, time: TransactionTime) -> tuple[Cell, ...]:
    interval = ""
    if share.low_ratio is not None and share.high_ratio is not None:
        interval = f"[{share.low_ratio * 100:.1f} – {share.high_ratio * 100:.1f}]"
    is_rest = share.resource is Resource.CLIENT and time.find(Resource.NETWORK) is not None
    return (
        text(_REST if is_rest else share.resource.value),
        text(format_number(share.ms)),
        Cell(text=format_percent(share.ratio), detail=interval),
        text(share.how),
    )


def _describe_time(time: TransactionTime) -> Iterator[str]:
    has_intervals = any(share.low_ratio is not None and share.high_ratio is not None for share in time.shares)
    brackets = "; brackets are 95 % intervals" if has_intervals else ""
    yield f"From {format_count(time.observed_count)} samples of the clients' backends{brackets}."
    if time.queueing_ratio is not None:
        yield f"Of their running time, backends waited for a CPU for {format_percent(time.queueing_ratio)}."
    if time.absent:
        yield f"Not known: {'; '.join(f'{what} ({reason})' for what, reason in time.unknown.items())}."

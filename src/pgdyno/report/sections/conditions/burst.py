"""Build the section on the burst credits of a declared machine: what the trials have spent of them, and where they end."""

from __future__ import annotations

from collections.abc import Iterator

from pgdyno.analyse.credit_balance import CreditBalance, trace_balances
from pgdyno.report.charts.credits import balance_chart
from pgdyno.report.document import ChartBlock, Prose, Section
from pgdyno.report.format import format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.sections.disk.card import format_rate
from pgdyno.report.table import Cell, Table, columns, text

_REMARK = (
    "Predicted, not read: by what each trial asked of the data's disk and what restoring takes, from full credits at the first"
    " trial's load. Loading the data before it may have spent some. The provider's metrics have the real balance."
)


def build_credits(report: ReportInput) -> Iterator[Section]:
    """Yield the predicted balance of each bucket; nothing where the study declares no machine with credits."""
    host = report.record.study.host
    balances = () if host is None else trace_balances(host, report.analysis)
    if not balances:
        return
    chart = balance_chart(balances, [_name(one) for one in balances])
    yield Section(
        title="Burst credits",
        id="credits",
        blocks=(Prose(words=_REMARK), _balance_table(balances)),
        beside=(ChartBlock(id="credits-left", chart=chart),),
        is_listed=True,
    )


def _balance_table(balances: tuple[CreditBalance, ...]) -> Table:
    """Build the table of each bucket: its rates, how far it fell, and in which trial it ended."""
    return Table(
        caption="Predicted balance",
        columns=columns("Credits of", "Burst", "Lasts", "Lowest", "Ended", numbers_from=1),
        rows=tuple(_row(one) for one in balances),
    )


def _row(balance: CreditBalance) -> tuple[Cell, ...]:
    bucket, lowest, end = balance.credits.bucket, balance.lowest, balance.end
    burst, lasts = (_show_rate(balance, rate) for rate in (bucket.burst, bucket.baseline))
    ended = text("no") if end is None else Cell(text=f"trial {end.trial}", is_strong=True)
    return (
        text(balance.credits.what),
        text(burst),
        text(lasts),
        text(format_percent(lowest.left_ratio) + ("" if lowest.trial is None else f", trial {lowest.trial}")),
        ended,
    )


def _name(balance: CreditBalance) -> str:
    return f"{balance.credits.what}, {'MB/s' if balance.credits.unit == 'bytes/s' else 'IOPS'}"


def _show_rate(balance: CreditBalance, rate: float) -> str:
    return format_rate(rate) if balance.credits.unit == "bytes/s" else f"{format_number(rate)} IOPS"

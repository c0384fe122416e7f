"""What it costs, on the terminal. Says nothing by colour alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.report.paragraph import Paragraph
from pgdyno.report.price_hosts import hosts_table
from pgdyno.report.price_tables import alternatives_table, cost_table, load_table, worth_table
from pgdyno.report.price_words import PricedRecord, describe_price, explain_price
from pgdyno.report.terminal_parts import show_table


def render_prices(priced: Sequence[PricedRecord]) -> RenderableType:
    """Each record by itself, and several of them side by side."""
    lines = [line for one in priced for line in (*_render(one), "")]
    if len(priced) > 1:
        lines += [*show_table(hosts_table(priced)), ""]
    return Group(*lines[:-1])


def _render(one: PricedRecord) -> Iterator[RenderableType]:
    price = one.price
    yield Text(one.record_dir, style="bold", no_wrap=True, overflow="ignore")
    if one.alarm:
        yield Paragraph(Text(one.alarm, style="bold red"), by=0)
    yield Paragraph(describe_price(price), by=0)
    for table in (cost_table(price), worth_table(price), load_table(price), alternatives_table(price)):
        if table is not None:
            yield ""
            yield from show_table(table)
    if price.cost.costs:
        yield ""
    yield from (Paragraph(words, by=0) for words in explain_price(price))

"""Build what `pgdyno price` shows: what each record's machine and transactions cost, and records side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.report.document import Block, Document, Prose, Section, Tone
from pgdyno.report.sections.price.hosts import hosts_table
from pgdyno.report.sections.price.tables import alternatives_table, cost_table, load_table, loading_table, worth_table
from pgdyno.report.sections.price.words import PricedRecord, describe_price, explain_price


def build_prices(priced: Sequence[PricedRecord]) -> Document:
    """Return the document of what each record costs, with several records side by side."""
    blocks: list[Block] = [Section(title=one.title, blocks=tuple(_list_blocks(one))) for one in priced]
    if len(priced) > 1:
        blocks.append(hosts_table(priced))
    return Document(title="Prices", blocks=tuple(blocks), is_titled=False)


def _list_blocks(one: PricedRecord) -> Iterator[Block]:
    price = one.price
    if one.alarm:
        yield Prose(words=one.alarm, tone=Tone.ALARM)
    yield Prose(words=describe_price(price, record=one.record_dir))
    made = (cost_table(price), worth_table(price), loading_table(price), load_table(price), alternatives_table(price))
    yield from (table for table in made if table is not None)
    yield from (Prose(words=words) for words in explain_price(price))

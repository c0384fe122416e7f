"""Recommend machines: which machine for how much of a load, by price where it is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.capacity.tiers import HostCapacity, Tiers, make_tiers
from pgdyno.analyse.records.comparison import RecordComparison
from pgdyno.analyse.records.sides import Side, look_alike
from pgdyno.report.document import Block, Prose, Section
from pgdyno.report.host_words import with_name
from pgdyno.report.level import Level
from pgdyno.report.lists import name_by_letters
from pgdyno.report.sections.capacity import describe_tiers, tiers_table
from pgdyno.report.sections.records.pairs import NamedRecord


def list_tiers(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> dict[str, Tiers]:
    """Return for each load the tiers over the first record's machine and all comparable ones.

    A load that only one machine ran, or one that nobody saw, or that has a fixed rate or parts, has no tiers.
    """
    names = name_by_letters(records)
    hosts: dict[str, list[HostCapacity]] = {}
    for comparison in comparisons:
        for pair in comparison.pairs:
            hosts_of = (pair.first.record.host, pair.other.record.host)
            is_one_machine = look_alike(*hosts_of)
            if (
                pair.refusals
                or pair.first.part is not None
                or None in hosts_of
                or is_one_machine
                or (pair.first.load.rate_tps is not None and pair.first.limit_tps is None)
            ):
                continue
            first = hosts.setdefault(pair.first.name, [_host(names[0], records[0], pair.first)])
            first.append(_host(names[comparison.place], records[comparison.place], pair.other))
    return {load: make_tiers(of) for load, of in hosts.items()}


def build_tiers(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> Section:
    """Return the section on all tiers, with the table behind them where there are several."""
    blocks = tuple(_list_blocks(records, comparisons))
    return Section(title="Recommended machine by load", id="tiers", blocks=blocks)


def _list_blocks(records: Sequence[NamedRecord], comparisons: Sequence[RecordComparison]) -> Iterator[Block]:
    for load, tiers in list_tiers(records, comparisons).items():
        yield Prose(words=f"{load}: {' '.join(describe_tiers(tiers))}", level=Level.HEADLINE)
        table = tiers_table(tiers)
        if table is not None:
            yield msgspec.structs.replace(table, level=Level.HEADLINE)


def _host(name: str, named: NamedRecord, side: Side) -> HostCapacity:
    name = with_name(name, named.record)
    return HostCapacity(name=name, capacity=side.limit_tps or side.workload.tps, per_month=named.per_month)

"""Build the tables of cost: what is paid for, what transactions cost, the user's own load, and other volumes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.price.alternatives import OtherVolumes
from pgdyno.price.cost import Cost, HostCost, Part
from pgdyno.price.loading import Loading
from pgdyno.price.study import StudyPrice, WorkloadWorth
from pgdyno.price.topology import MachineGroup
from pgdyno.price.worth import Worth
from pgdyno.report.format import ABSENT, format_bytes, format_estimate, format_number
from pgdyno.report.sections.disk.layout import describe_declared
from pgdyno.report.sections.price.words import format_money, is_exact, symbol_of, tag_of
from pgdyno.report.table import Cell, Table, absent, columns, text
from pgdyno.spec.host import DiskSpec

_ONE_MACHINE = " Prices are those of the server's machine alone."


def cost_table(price: StudyPrice) -> Table | None:
    """Build the table of what is paid for, on each of the known terms; None without a price."""
    cost = price.cost
    if not cost.costs:
        return None
    if price.topology is None:
        rows = list(_part_rows(cost.costs, cost.currency))
    else:
        rows = [row for group in price.topology.groups for row in _group_rows(group, cost)]
    if len(rows) > 1:
        totals = [Cell(text=format_money(one.per_month, cost.currency), is_strong=True) for one in cost.costs]
        rows.append((text("together"), *totals))
    return Table(
        caption="Cost per month",
        columns=columns("", *(one.term.value for one in cost.costs), numbers_from=1),
        rows=tuple(rows),
    )


def _part_rows(costs: Sequence[Cost], currency: str, *, role: str = "") -> Iterator[tuple[Cell, ...]]:
    """Yield each part of a machine's cost on each of the terms."""
    # The instance comes first and has another price on each of the terms; volumes cost the same on all.
    for place, part in enumerate(costs[0].parts):
        yield text(f"{role}{part.what}"), *(_part_cell(one.parts[place], currency) for one in costs)


def _group_rows(group: MachineGroup, cost: HostCost) -> Iterator[tuple[Cell, ...]]:
    """Yield what machines of one kind cost, on the terms on which all machines have a price."""
    terms = [found for one in cost.costs if (found := group.cost.find(one.term)) is not None]
    yield from _part_rows(terms, cost.currency, role=f"{group.role}: ")
    if len(terms[0].parts) > 1:
        cells = (text(format_money(one.per_month, cost.currency)) for one in terms)
        yield text(f"{group.role}: together"), *cells


def worth_table(price: StudyPrice) -> Table | None:
    """Build the table of what transactions cost, by workload and terms; None without a price or a workload."""
    if not (price.cost.costs and price.workloads) or price.is_of_average:
        return None
    return Table(
        caption="Cost of transactions at full load",
        columns=columns("", "per million", f"TPS per {symbol_of(price.cost.currency)} a month", numbers_from=1),
        rows=tuple(row for workload in price.workloads for row in _worth_rows(workload, price.cost.currency)),
    )


def loading_table(price: StudyPrice) -> Table | None:
    """Build the table of what loading costs, by variant and terms; None without a price or where nothing was loaded."""
    if not (price.cost.costs and price.loadings):
        return None
    return Table(
        caption="Cost of loading",
        columns=columns("", "a load", "a GB loaded", numbers_from=1),
        rows=tuple(row for loading in price.loadings for row in _loading_rows(loading, price.cost.currency)),
        remark="The machine's price for as long as the load took; the checkpoint after it is not counted. GB of tables with their indexes.",
    )


def load_table(price: StudyPrice) -> Table | None:
    """Build the table of what a million transactions cost at the user's own load; None without a load or a price."""
    if price.load is None or not (price.cost.costs and price.workloads):
        return None
    return Table(
        caption="Cost of a million transactions at your load",
        columns=columns("", *(one.term.value for one in price.cost.costs), numbers_from=1),
        rows=tuple(_load_row(workload, price) for workload in price.workloads),
    )


def alternatives_table(price: StudyPrice) -> Table | None:
    """Build the table of other volumes that perform no worse; None where none with a price are declared."""
    found, currency = price.alternatives.volumes, price.cost.currency
    rows: list[tuple[Cell, ...]] = []
    for what in dict.fromkeys(one.what for one in found):
        others = [one for one in found if one.what == what]
        now = others[0]
        words = ", ".join((f"{what} now: {describe_declared(now.now)}", *_list_bought(now.now)))
        name = Cell(text=words, is_strong=True)
        rows.append((name, text(format_money(now.now_per_month, currency)), _flush_cell(now.now_flush_s)))
        rows += [_other_row(one, currency) for one in others]
    if not rows:
        return None
    return Table(
        caption="Other volumes with at least the same performance",
        columns=columns("", "a month", "flush", numbers_from=1),
        rows=tuple(rows),
        remark=(
            "By data sheets and declarations, each has at least the same capacity and sustained performance on this"
            " instance as the declared volumes: reads, writes and MB/s for data; MB/s for a separate WAL volume. Flushes"
            " take no longer, and a WAL volume has the IOPS for as many in sequence, if the declared volumes' flush"
            " latency is known; otherwise flushes are not compared. Without a mirror, a lost volume is restored from a"
            " backup."
            f"{_ONE_MACHINE if price.topology is not None else ''}"
        ),
    )


def estimate_cell(estimate: Estimate, currency: str = "") -> Cell:
    """Return a cell of an estimate with its interval, in a currency where one is named."""
    shown = format_estimate(estimate)
    if estimate.value is None:
        return absent(shown.reason)
    if is_exact(estimate):
        return text(f"{symbol_of(currency)}{format_number(estimate.value)}")
    value = f"{symbol_of(currency)}{shown.value}"
    return (
        Cell(text=value, detail=shown.interval) if shown.interval.startswith("[") else text(value, note=shown.interval)
    )


def _worth_rows(workload: WorkloadWorth, currency: str) -> Iterator[tuple[Cell, ...]]:
    blank = Cell(text="")
    yield (
        Cell(text=workload.name, tag=tag_of(workload), is_strong=True),
        blank if workload.worths else absent(workload.reason),
        blank,
    )
    for worth in workload.worths:
        yield (
            text(worth.term.value),
            estimate_cell(worth.per_million, currency),
            estimate_cell(worth.tps_per_money),
        )


def _loading_rows(loading: Loading, currency: str) -> Iterator[tuple[Cell, ...]]:
    sizes = text(None if loading.loaded_bytes is None else format_bytes(round(loading.loaded_bytes)))
    taken = estimate_cell(loading.load_s)
    if loading.load_s.value is not None:
        taken = msgspec.structs.replace(taken, text=f"{taken.text} s")
    yield Cell(text=loading.name, tag=tag_of(loading), is_strong=True), taken, sizes
    for worth in loading.worths:
        per_gb = text(None) if worth.per_gb is None else estimate_cell(worth.per_gb, currency)
        yield text(worth.term.value), estimate_cell(worth.per_load, currency), per_gb


def _load_row(workload: WorkloadWorth, price: StudyPrice) -> tuple[Cell, ...]:
    by_term = {worth.term: _load_cell(worth, price.cost.currency) for worth in workload.worths}
    cells = (by_term.get(one.term) or absent(workload.reason) for one in price.cost.costs)
    return (Cell(text=workload.name, tag=tag_of(workload)), *cells)


def _other_row(one: OtherVolumes, currency: str) -> tuple[Cell, ...]:
    cost = absent(one.reason) if one.per_month is None else text(format_money(one.per_month, currency))
    name = Cell(text=f"{one.what}: {_describe_other(one)}", tag="" if one.is_as_durable else "no mirror")
    return (name, cost, _flush_cell(one.flush_s))


def _flush_cell(flush_s: float | None) -> Cell:
    return text(None if flush_s is None else f"{flush_s * 1e3:.3g} ms")


def _describe_other(one: OtherVolumes) -> str:
    """Describe other volumes: `2 × io2 of 200GB, mirrored, 6,000 IOPS`."""
    disk, words = one.disk, [f"{one.count} × {one.volume}"]
    if disk is not None:
        words[0] += f" of {disk.size}"
        words += ["mirrored"] if one.count > 1 else []
        words += _list_bought(disk)
    return ", ".join(words)


def _list_bought(disk: DiskSpec) -> list[str]:
    iops = [f"{disk.volume_iops:,} IOPS"] if disk.volume_iops is not None else []
    return iops + ([f"{disk.volume_mb_s:,} MB/s"] if disk.volume_mb_s is not None else [])


def _part_cell(part: Part, currency: str) -> Cell:
    when = f"{part.date}: " if part.date else ""
    note = f"{part.how}; {when}{part.source}"
    return text(format_money(part.per_month, currency), note=note)


def _load_cell(worth: Worth, currency: str) -> Cell:
    estimate = worth.per_million_at_load
    if estimate is None or estimate.value is None:
        return text(ABSENT)
    return estimate_cell(estimate, currency)

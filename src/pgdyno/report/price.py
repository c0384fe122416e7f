"""What it costs, in words and tables for every form: the sentence for the first page, and all that stands behind it.

Prices are exact and have a date; what is in doubt is how fast the machine is, and so every figure that rests on TPS has
their interval. A machine without a price gets a line that says how to give one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.errors import with_program
from pgdyno.facts.prices import Term
from pgdyno.price.alternatives import OtherVolumes
from pgdyno.price.cost import MONTH_H, Part
from pgdyno.price.study import StudyPrice, WorkloadWorth
from pgdyno.price.worth import Worth
from pgdyno.report.experiment_words import join_names
from pgdyno.report.format import ABSENT, format_bytes, format_estimate, format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.table import Cell, Table, absent, columns, text

_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}
_MOST_NAMED = 4
_HOW_TO_GIVE = "name the machine in the study's [host], or price the record with `pgdyno price --host` or `--prices`"


class PricedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record with what it costs."""

    record_dir: str
    name: str
    """Of the record."""
    price: StudyPrice


def describe_price(price: StudyPrice, *, program: str = "pgdyno") -> str:
    """What the machine costs a month and a million transactions on it, in a sentence; how to give a price without one.

    Args:
        price: What is known.
        program: The name by which pgdyno is called.
    """
    cost = price.cost
    if not cost.costs:
        reasons = "; ".join(dict.fromkeys(cost.absent.values()))
        return f"What it costs is not known ({reasons}): {with_program(_HOW_TO_GIVE, program)}."
    months = [f"{format_money(one.per_month, cost.currency)} {_name_term(one.term)}" for one in cost.costs]
    months[0] = months[0].replace(" ", " a month ", 1)
    first = cost.costs[0]
    without = f", without {join_names(list(cost.left_out))}" if cost.left_out else ""
    sentence = f"{cost.name} costs {join_names(months)}{without}"
    said = [
        f"{_say(worth.per_million, cost.currency)} of {_name_workload(workload)}"
        for workload in price.workloads
        for worth in workload.worths
        if worth.term is first.term
    ]
    if 0 < len(said) <= _MOST_NAMED:
        sentence += f"; a million transactions at full load cost {_name_term(first.term)} {join_names(said)}"
    caution = f" But {price.mismatch}: so much it would cost if it did the same." if price.mismatch else ""
    return f"{sentence}.{caution}"


def describe_costs(report: ReportInput) -> tuple[str, ...]:
    """Sentences for the first page; none where no price is known."""
    price = report.price
    return () if price is None or not price.cost.costs else (describe_price(price),)


def cost_table(price: StudyPrice) -> Table | None:
    """What is paid for, on each of the terms that are known; None where none is."""
    cost = price.cost
    if not cost.costs:
        return None
    # The instance comes first and is another one's price on each of the terms; volumes cost the same on all.
    rows = [
        (text(part.what), *(_part_cell(one.parts[place], cost.currency) for one in cost.costs))
        for place, part in enumerate(cost.costs[0].parts)
    ]
    if len(rows) > 1:
        totals = [Cell(text=format_money(one.per_month, cost.currency), is_strong=True) for one in cost.costs]
        rows.append((text("together"), *totals))
    return Table(
        caption=f"What {cost.name} costs a month",
        columns=columns("", *(one.term.value for one in cost.costs), numbers_from=1),
        rows=tuple(rows),
    )


def worth_table(price: StudyPrice) -> Table | None:
    """What transactions cost, by workload and terms; None without a price or a workload."""
    if not (price.cost.costs and price.workloads):
        return None
    money = _symbol(price.cost.currency)
    titles = ["", "", "per million", f"TPS per {money} a month"]
    if price.load is not None:
        titles.append("per million at your load")
    return Table(
        caption="What transactions cost at full load",
        columns=columns(*titles, numbers_from=2),
        rows=tuple(row for workload in price.workloads for row in _worth_rows(workload, price, len(titles))),
    )


def alternatives_table(price: StudyPrice) -> Table | None:
    """Other volumes that do no less; None where none are declared that have a price."""
    found = price.alternatives.volumes
    if not found:
        return None
    currency = price.cost.currency
    return Table(
        caption="Other volumes that do no less",
        columns=columns("", "now", "else", "a month", "flush", numbers_from=3),
        rows=tuple(_other_row(one, currency) for one in found),
        remark=(
            "Each lasts on this instance at least the reads, writes and MB/s that the declared volumes last on it, holds as"
            " much, and flushes no slower, by data sheets and what is declared. Without a mirror: a volume that is lost is"
            " restored from a backup."
        ),
    )


def hosts_table(priced: Sequence[PricedRecord]) -> Table:
    """Records side by side: what each did, for each CPU, for its money, and how its data compared with its memory."""
    currency = priced[0].price.cost.currency
    titles = ("", "", "TPS", "per CPU", f"per {_symbol(currency)} a month", "per million", "data : memory")
    return Table(
        caption="Side by side",
        columns=columns(*titles, numbers_from=2),
        rows=tuple(_host_row(one, workload) for one in priced for workload in one.price.workloads),
        remark=(
            "Prices: the first of the terms that each has. Different machines, each by itself: a difference, not a verdict."
            " Of data that one machine's memory holds and another's does not, TPS are no measure of the CPUs."
        ),
    )


def explain_price(price: StudyPrice) -> Iterator[str]:
    """Sentences below the tables: what was assumed, what is left out, where prices are from, what to doubt."""
    cost = price.cost
    if not cost.costs:
        return
    yield (
        f"A month is {MONTH_H:.0f} hours. Costs of transactions are those of a machine at full load all month long, the least"
        " that they can be: at a tenth of that load each costs ten times as much."
    )
    yield from _say_load(price)
    where = "" if cost.is_region_declared else ", in which it is taken to be because no region is declared"
    if Term.OWN not in {one.term for one in cost.costs}:
        yield f"Prices are those of {cost.region}{where}; without taxes, traffic, snapshots and support."
    if cost.left_out:
        yield f"Not counted: {join_names(list(cost.left_out))}."
    yield from _say_absent(cost.absent)
    if any(one.term is Term.SPOT for one in cost.costs):
        yield "Spot is for machines that may go away at any time, two minutes after being told so."
    yield from _say_sizes(price)


def format_money(amount: float, currency: str) -> str:
    """An amount in a currency: `$262.90`, `CHF 262.90`."""
    return f"{_symbol(currency)}{amount:,.2f}"


def _say_absent(absent: dict[str, str]) -> Iterator[str]:
    """Terms without a price, those of one reason together."""
    for reason in dict.fromkeys(absent.values()):
        terms = [term for term, why in absent.items() if why == reason]
        yield f"Not known is what it costs {join_names(terms)}: {reason}."


def _say_load(price: StudyPrice) -> Iterator[str]:
    load = price.load
    if load is None:
        return
    said = (
        f"{load.tps:,g} TPS"
        if load.tps is not None
        else f"{format_percent(load.utilisation_ratio or 0.0)} of full load"
    )
    shares = {one.name: one.share_of_full.value for one in price.workloads if one.share_of_full is not None}
    of = [f"{format_percent(share)} of {name} at full load" for name, share in shares.items() if share is not None]
    known = f": {join_names(of)}" if of and load.tps is not None else ""
    yield f"Your load is {said} on average over the month{known}."
    if any(share is not None and share > 1.0 for share in shares.values()):
        yield "Of what is more than full load nobody knows what it would cost there."


def _say_sizes(price: StudyPrice) -> Iterator[str]:
    larger = price.alternatives.next_size
    if larger is not None:
        money = format_money(larger.per_month, price.cost.currency)
        yield (
            f"The next size up, {larger.instance} ({larger.cpu_count} CPUs, {format_bytes(larger.memory_bytes)}), costs"
            f" {money} a month on demand with the same volumes: {format_number(larger.times)} times as much, and so less for"
            f" each transaction only if it does more than {format_number(larger.times)} times the TPS."
        )
    done = [
        f"{format_estimate(one.tps_per_cpu).value} of {_name_workload(one)}"
        for one in price.workloads
        if one.tps.value is not None
    ]
    if done:
        yield f"TPS for each CPU: {join_names(done)}."
    if price.data_to_memory_ratio is not None:
        ratio = price.data_to_memory_ratio
        yield f"The data were {f'{format_number(ratio)} times' if ratio >= 1 else format_percent(ratio) + ' of'} the memory."


def _worth_rows(workload: WorkloadWorth, price: StudyPrice, width: int) -> Iterator[tuple[Cell, ...]]:
    tag = "durability given up" if workload.durability_given_up else ""
    name = Cell(text=workload.name, tag=tag)
    if not workload.worths:
        yield (name, text(None), absent(workload.reason), *(text(None),) * (width - 3))
    for place, worth in enumerate(workload.worths):
        cells = [_estimate_cell(worth.per_million, price.cost.currency), _estimate_cell(worth.tps_per_money)]
        if price.load is not None:
            cells.append(_load_cell(worth, price.cost.currency))
        yield (name if place == 0 else Cell(text=""), text(worth.term.value), *cells)


def _other_row(one: OtherVolumes, currency: str) -> tuple[Cell, ...]:
    now = f"{one.now.count} × {one.now.volume}, {format_money(one.now_per_month, currency)}"
    cost = absent(one.reason) if one.per_month is None else text(format_money(one.per_month, currency))
    flush = text(None if one.flush_s is None else f"{one.flush_s * 1e3:.3g} ms")
    tag = "" if one.is_as_durable else "no mirror"
    return (text(one.what), text(now), Cell(text=_describe_other(one), tag=tag), cost, flush)


def _describe_other(one: OtherVolumes) -> str:
    """Such as `2 × io2 of 200GB, mirrored, 6,000 IOPS`."""
    disk, words = one.disk, [f"{one.count} × {one.volume}"]
    if disk is not None:
        words[0] += f" of {disk.size}"
        words += ["mirrored"] if one.count > 1 else []
        words += [f"{disk.volume_iops:,} IOPS"] if disk.volume_iops is not None else []
        words += [f"{disk.volume_mb_s:,} MB/s"] if disk.volume_mb_s is not None else []
    return ", ".join(words)


def _host_row(one: PricedRecord, workload: WorkloadWorth) -> tuple[Cell, ...]:
    price = one.price
    worth = next(iter(workload.worths), None)
    why = workload.reason or "; ".join(price.cost.absent.values())
    ratio = price.data_to_memory_ratio
    return (
        Cell(text=one.record_dir, detail=price.cost.name),
        Cell(text=workload.name, tag="durability given up" if workload.durability_given_up else ""),
        _estimate_cell(workload.tps),
        _estimate_cell(workload.tps_per_cpu),
        absent(why) if worth is None else _estimate_cell(worth.tps_per_money),
        absent(why) if worth is None else _estimate_cell(worth.per_million, price.cost.currency),
        text(None if ratio is None else format_number(ratio)),
    )


def _part_cell(part: Part, currency: str) -> Cell:
    when = f"{part.date}: " if part.date else ""
    note = f"{part.how}; {when}{part.source}"
    return text(format_money(part.per_month, currency), note=note)


def _estimate_cell(estimate: Estimate, currency: str = "") -> Cell:
    shown = format_estimate(estimate)
    if estimate.value is None:
        return absent(shown.reason)
    value = f"{_symbol(currency)}{shown.value}"
    return (
        Cell(text=value, detail=shown.interval) if shown.interval.startswith("[") else text(value, note=shown.interval)
    )


def _load_cell(worth: Worth, currency: str) -> Cell:
    estimate = worth.per_million_at_load
    if estimate is None or estimate.value is None:
        return text(ABSENT)
    if estimate.low == estimate.high:
        return text(f"{_symbol(currency)}{format_number(estimate.value)}")
    return _estimate_cell(estimate, currency)


def _say(estimate: Estimate, currency: str) -> str:
    shown = format_estimate(estimate)
    interval = shown.interval if shown.interval.startswith("[") else f"({shown.interval})"
    return f"{_symbol(currency)}{shown.value} {interval}"


def _name_workload(workload: WorkloadWorth) -> str:
    return f"{workload.name}{' (durability given up)' if workload.durability_given_up else ''}"


def _name_term(term: Term) -> str:
    return {Term.SPOT: "on the spot market", Term.OWN: "as you say"}.get(term, term.value)


def _symbol(currency: str) -> str:
    return _SYMBOLS.get(currency, f"{currency} " if currency else "")

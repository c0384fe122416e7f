"""What it costs, in words and tables for every form: the sentence for the first page, and all that stands behind it.

Prices are exact and have a date; what is in doubt is how fast the machine is, and so every figure that rests on TPS has
their interval. A machine without a price gets a line that says how to give one.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from pgdyno.report.layout import describe_declared
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
    months = [f"{format_money(one.per_month, cost.currency)} {name_term(one.term)}" for one in cost.costs]
    months[0] = months[0].replace(" ", " a month ", 1)
    first = cost.costs[0]
    without = f", without {join_names(list(cost.left_out))}" if cost.left_out else ""
    sentence = f"{cost.name} costs {join_names(months)}{without}"
    by_cost = {
        worth.per_million.value: f"{_say(worth.per_million, cost.currency)} of {_name_workload(workload)}"
        for workload in price.workloads
        for worth in workload.worths
        if worth.term is first.term and worth.per_million.value is not None
    }
    said = list(by_cost.values())
    if len(said) > _MOST_NAMED:
        said = [f"from {by_cost[min(by_cost)]} to {by_cost[max(by_cost)]}"]
    if said:
        term = "" if first.term is Term.OWN else f"{name_term(first.term)} "
        sentence += f"; a million transactions at full load cost {term}{join_names(said)}"
    caution = f" But {price.mismatch}: so much it would cost if it did the same." if price.mismatch else ""
    return f"{sentence}.{caution}"


def describe_costs(report: ReportInput) -> tuple[str, ...]:
    """The sentence for the first page; none for a report that nobody priced."""
    program = next(iter(report.record.command), "pgdyno")
    return () if report.price is None else (describe_price(report.price, program=program),)


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
        caption="What it costs a month",
        columns=columns("", *(one.term.value for one in cost.costs), numbers_from=1),
        rows=tuple(rows),
    )


def worth_table(price: StudyPrice) -> Table | None:
    """What transactions cost, by workload and terms; None without a price or a workload."""
    if not (price.cost.costs and price.workloads):
        return None
    return Table(
        caption="What transactions cost at full load",
        columns=columns("", "per million", f"TPS per {symbol_of(price.cost.currency)} a month", numbers_from=1),
        rows=tuple(row for workload in price.workloads for row in _worth_rows(workload, price.cost.currency)),
    )


def load_table(price: StudyPrice) -> Table | None:
    """What a million transactions cost at the user's own load; None where none is said, or nothing has a price."""
    if price.load is None or not price.cost.costs:
        return None
    return Table(
        caption="What a million transactions cost at your load",
        columns=columns("", *(one.term.value for one in price.cost.costs), numbers_from=1),
        rows=tuple(_load_row(workload, price) for workload in price.workloads),
    )


def alternatives_table(price: StudyPrice) -> Table | None:
    """Other volumes that do no less; None where none are declared that have a price."""
    found, currency = price.alternatives.volumes, price.cost.currency
    rows: list[tuple[Cell, ...]] = []
    for what in dict.fromkeys(one.what for one in found):
        others = [one for one in found if one.what == what]
        now = others[0]
        name = Cell(text=f"{what} now: {describe_declared(now.now)}", is_strong=True)
        rows.append((name, text(format_money(now.now_per_month, currency)), _flush_cell(now.now_flush_s)))
        rows += [_other_row(one, currency) for one in others]
    if not rows:
        return None
    return Table(
        caption="Other volumes that do no less",
        columns=columns("", "a month", "flush", numbers_from=1),
        rows=tuple(rows),
        remark=(
            "By data sheets and what is declared each holds as much, flushes no slower, and lasts on this instance what the"
            " declared volumes last on it: reads, writes and MB/s for data; for a WAL of its own MB/s, and flushes one after"
            " the other. Without a mirror: a volume that is lost is restored from a backup."
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
    return f"{symbol_of(currency)}{amount:,.2f}"


def symbol_of(currency: str) -> str:
    """What stands before an amount; empty without a currency."""
    return _SYMBOLS.get(currency, f"{currency} " if currency else "")


def name_term(term: Term) -> str:
    """Terms as they stand in a sentence."""
    return {Term.SPOT: "on the spot market", Term.OWN: "as you say"}.get(term, term.value)


def tag_of(workload: WorkloadWorth) -> str:
    """What stands beside every figure of a workload that gives up durability."""
    return "durability given up" if workload.durability_given_up else ""


def estimate_cell(estimate: Estimate, currency: str = "") -> Cell:
    """A cell of an estimate with its interval, in a currency where one is named."""
    shown = format_estimate(estimate)
    if estimate.value is None:
        return absent(shown.reason)
    value = f"{symbol_of(currency)}{shown.value}"
    return (
        Cell(text=value, detail=shown.interval) if shown.interval.startswith("[") else text(value, note=shown.interval)
    )


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


def _load_row(workload: WorkloadWorth, price: StudyPrice) -> tuple[Cell, ...]:
    cells = [_load_cell(worth, price.cost.currency) for worth in workload.worths]
    return (
        Cell(text=workload.name, tag=tag_of(workload)),
        *(cells or [absent(workload.reason) for _ in price.cost.costs]),
    )


def _other_row(one: OtherVolumes, currency: str) -> tuple[Cell, ...]:
    cost = absent(one.reason) if one.per_month is None else text(format_money(one.per_month, currency))
    name = Cell(text=f"{one.what}: {_describe_other(one)}", tag="" if one.is_as_durable else "no mirror")
    return (name, cost, _flush_cell(one.flush_s))


def _flush_cell(flush_s: float | None) -> Cell:
    return text(None if flush_s is None else f"{flush_s * 1e3:.3g} ms")


def _describe_other(one: OtherVolumes) -> str:
    """Such as `2 × io2 of 200GB, mirrored, 6,000 IOPS`."""
    disk, words = one.disk, [f"{one.count} × {one.volume}"]
    if disk is not None:
        words[0] += f" of {disk.size}"
        words += ["mirrored"] if one.count > 1 else []
        words += [f"{disk.volume_iops:,} IOPS"] if disk.volume_iops is not None else []
        words += [f"{disk.volume_mb_s:,} MB/s"] if disk.volume_mb_s is not None else []
    return ", ".join(words)


def _part_cell(part: Part, currency: str) -> Cell:
    when = f"{part.date}: " if part.date else ""
    note = f"{part.how}; {when}{part.source}"
    return text(format_money(part.per_month, currency), note=note)


def _load_cell(worth: Worth, currency: str) -> Cell:
    estimate = worth.per_million_at_load
    if estimate is None or estimate.value is None:
        return text(ABSENT)
    if estimate.low == estimate.high:
        return text(f"{symbol_of(currency)}{format_number(estimate.value)}")
    return estimate_cell(estimate, currency)


def _say(estimate: Estimate, currency: str) -> str:
    shown = format_estimate(estimate)
    interval = shown.interval if shown.interval.startswith("[") else f"({shown.interval})"
    return f"{symbol_of(currency)}{shown.value} {interval}"


def _name_workload(workload: WorkloadWorth) -> str:
    return f"{workload.name} ({tag_of(workload)})" if workload.durability_given_up else workload.name

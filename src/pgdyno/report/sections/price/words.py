"""Describe costs: the sentence for the first page, and those below the tables.

Prices are exact and have a date. The uncertainty is in the machine's speed, so every figure that depends on TPS has an
interval. A machine without a price gets a line that says how to give one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.errors import with_program
from pgdyno.facts.instances import list_instances
from pgdyno.facts.prices import Term
from pgdyno.price.cost import MONTH_H, Cost
from pgdyno.price.loading import Loading
from pgdyno.price.study import StudyPrice, WorkloadWorth
from pgdyno.report.format import format_bytes, format_estimate, format_number, format_percent
from pgdyno.report.input import ReportInput
from pgdyno.report.lists import join_names
from pgdyno.units import with_capital

_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}
_MOST_NAMED = 4
_HOW_TO_GIVE = (
    "`pgdyno price{record} --host c7g.2xlarge` says what it would be on an instance, and with `--prices FILE` at a price of"
    " your own, as `pgdyno studies prices/template` explains"
)
_HOW_TO_LOOK_UP = "look at {pages}, and write them into a file for `pgdyno price --prices FILE`, as `pgdyno studies prices/template` explains"


class PricedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record, or a machine without one, with its costs."""

    record_dir: str
    """Empty without a record."""
    name: str
    """The name of the record, or of the machine."""
    price: StudyPrice
    alarm: str = ""
    """The warning not to use the figures as they are, or that no such machine is sold; empty where they may be used."""

    @property
    def title(self) -> str:
        """Return the record's folder, or the machine's name."""
        return self.record_dir or self.name


def describe_price(price: StudyPrice, *, program: str = "pgdyno", record: str = "RECORD") -> str:
    """Describe what the machine and a million transactions on it cost; without a price, say how to give one.

    Args:
        price: The known prices.
        program: The name under which the user called pgdyno.
        record: The folder of the record; empty without one.
    """
    cost = price.cost
    if not cost.costs:
        how = (
            _HOW_TO_LOOK_UP.format(pages=cost.look_up)
            if cost.look_up
            else _HOW_TO_GIVE.format(record=f" {shlex.quote(record)}" if record else "")
        )
        how, reasons = with_program(how, program), dict.fromkeys(cost.absent.values())
        if len(reasons) > 1 and price.topology is None:
            return f"{' '.join(_list_absent(cost.absent))} {with_capital(how)}."
        return f"The cost is not known ({'; '.join(reasons)}): {how}."
    first, *others = cost.costs
    months = [f"{format_money(first.per_month, cost.currency)} a month {name_term(first.term)}"]
    months += [f"{format_money(one.per_month, cost.currency)} {name_term(one.term)}" for one in others]
    without = f", without {join_names(cost.left_out)}" if cost.left_out else ""
    sentence = f"{cost.name} costs {join_names(months)}{_say_machines(price)}{without}"
    of_first = "" if first.term is Term.OWN else f" {name_term(first.term)}"
    million = _list_costs(
        ((one, worth.per_million) for one in price.workloads for worth in one.worths if worth.term is first.term),
        cost.currency,
    )
    load = _list_costs(
        ((one, worth.per_load) for one in price.loadings for worth in one.worths if worth.term is first.term),
        cost.currency,
    )
    sentence += f"; a million transactions at full load cost{of_first} {million}" if million else ""
    sentence += f"; a load costs{of_first} {load}" if load else ""
    caution = (
        f" But {price.mismatch}: the cost applies only if that machine performs the same." if price.mismatch else ""
    )
    return f"{sentence}.{caution}"


def _say_topology(price: StudyPrice) -> Iterator[str]:
    if price.topology is None:
        return
    first, groups = price.cost.costs[0], price.topology.groups
    parts = [(group.role, found.per_month) for group in groups if (found := group.cost.find(first.term)) is not None]
    if len(parts) > 1:
        shares = [f"{role} {format_percent(per_month / first.per_month)}" for role, per_month in parts]
        yield f"Shares of this price {name_term(first.term)}, and of what a transaction costs: {join_names(shares)}."
    yield from price.topology.remarks


def _say_machines(price: StudyPrice) -> str:
    return (
        ""
        if price.topology is None or price.topology.machine_count == 1
        else f" for {price.topology.machine_count} machines"
    )


def describe_costs(report: ReportInput) -> tuple[str, ...]:
    """Return the sentence for the first page; none for a report without prices."""
    price, record = report.price, report.record
    # A first page on loading is about seconds: only a price that is known adds to it.
    is_loading = all(workload.is_loading for workload in record.plan.workloads)
    if price is None or (is_loading and not price.cost.costs):
        return ()
    return (describe_price(price, program=next(iter(record.command), "pgdyno"), record=report.record_dir),)


def describe_alarm(report: ReportInput) -> str:
    """Warn that figures are priced which should not be used as they are; empty where they may be used."""
    if not any(finding.spoils_figures for finding in report.findings):
        return ""
    program = next(iter(report.record.command), "pgdyno")
    return with_program(
        f"The figures of this record should not be used as they are: `pgdyno show {report.record_dir}` says why.",
        program,
    )


def explain_price(price: StudyPrice) -> Iterator[str]:
    """Explain the tables: what was assumed, what is left out, where prices are from, and what is uncertain."""
    cost = price.cost
    if not cost.costs:
        return
    if price.loadings or price.is_of_average or not price.workloads:
        yield f"A month is {MONTH_H:.0f} hours."
    else:
        yield (
            f"A month is {MONTH_H:.0f} hours. Transaction costs assume a machine at full load for the whole month, which"
            " is the lowest possible cost: at a tenth of that load each transaction costs ten times as much."
        )
    yield from _say_load(price)
    yield from _say_topology(price)
    where = "" if cost.is_region_declared else ", assumed because no region is declared"
    if Term.OWN not in {one.term for one in cost.costs}:
        yield f"Prices are those of {cost.region}{where}; without taxes, traffic, snapshots and support."
    if cost.left_out:
        yield f"Not counted: {join_names(cost.left_out)}."
    yield from _list_absent(cost.absent)
    if cost.look_up:
        yield f"{with_capital(_HOW_TO_LOOK_UP.format(pages=cost.look_up))}."
    spot = cost.find(Term.SPOT)
    if spot is not None:
        notice = ", with two minutes' notice" if _is_of_aws(spot) else ""
        yield f"Spot instances may be terminated at any time{notice}."
    yield from _say_sizes(price)


def format_money(amount: float, currency: str) -> str:
    """Format an amount in a currency: `$262.90`, `CHF 262.90`."""
    return f"{symbol_of(currency)}{amount:,.2f}"


def symbol_of(currency: str) -> str:
    """Return the symbol before an amount; empty without a currency."""
    return _SYMBOLS.get(currency, f"{currency} " if currency else "")


def name_term(term: Term) -> str:
    """Name the terms as they appear in a sentence."""
    return {Term.SPOT: "on the spot market", Term.OWN: "as you say"}.get(term, term.value)


def tag_of(workload: WorkloadWorth | Loading) -> str:
    """Return the label beside every figure of a workload that gives up durability."""
    return "durability given up" if workload.durability_given_up else ""


def _is_of_aws(cost: Cost) -> bool:
    """Return whether all instances in a cost are of AWS, which gives two minutes' notice.

    Source: Amazon EC2 user guide, "Spot Instance interruption notices".
    """
    names = {part.what.rpartition(": ")[2].lower() for part in cost.parts}
    return {one.provider for one in list_instances() if one.name in names} == {"aws"}


def _list_absent(absent: dict[str, str]) -> Iterator[str]:
    """List the terms without a price; terms with the same reason together."""
    for reason in dict.fromkeys(absent.values()):
        terms = [name_term(Term(term)) for term, why in absent.items() if why == reason]
        yield f"The cost {join_names(terms)} is not known: {reason}."


def _say_load(price: StudyPrice) -> Iterator[str]:
    load = price.load
    if load is None:
        return
    said = (
        f"{load.tps:,.15g} TPS"
        if load.tps is not None
        else f"{format_percent(load.utilisation_ratio or 0.0)} of full load"
    )
    shares = {one.name: one.share_of_full.value for one in price.workloads if one.share_of_full is not None}
    of = [f"{format_percent(share)} of {name} at full load" for name, share in shares.items() if share is not None]
    known = f": {join_names(of)}" if of and load.tps is not None else ""
    yield f"Your load is {said} on average over the month{known}."
    if any(share is not None and share > 1.0 for share in shares.values()):
        yield "The cost of a load above full load is not known."
    if price.is_of_average:
        yield "Whether this machine can carry it is not known: `--tps HOST=TPS` says what it does at full load."


def _say_sizes(price: StudyPrice) -> Iterator[str]:
    larger = price.alternatives.next_size
    if larger is not None:
        money = format_money(larger.per_month, price.cost.currency)
        of_all = "" if price.topology is None else " for all machines"
        unit, more = ("load", "the speed") if price.loadings else ("transaction", "the TPS")
        yield (
            f"The next size up, {larger.instance} ({larger.cpu_count} CPUs, {format_bytes(larger.memory_bytes)}), costs"
            f" {money} a month on demand{of_all} with the same volumes: {format_number(larger.times)} times as much, which is"
            f" cheaper per {unit} only if it reaches more than {format_number(larger.times)} times {more}."
        )
    done = [
        f"{format_estimate(one.tps_per_cpu).value} of {_name_workload(one)}"
        for one in price.workloads
        if one.tps_per_cpu.value is not None
    ]
    if done:
        of_server = "" if price.topology is None else " of the server"
        yield f"TPS for each CPU{of_server}: {join_names(done)}."
    if price.data_to_memory_ratio is not None:
        ratio = price.data_to_memory_ratio
        yield f"The data were {f'{format_number(ratio)} times' if ratio >= 1 else format_percent(ratio) + ' of'} the memory."


def _list_costs(costs: Iterable[tuple[WorkloadWorth | Loading, Estimate]], currency: str) -> str:
    """List what each costs, of many the cheapest and the dearest; empty where none is known."""
    by_cost = [
        (cost.value, f"{_say(cost, currency)} of {_name_workload(one)}")
        for one, cost in costs
        if cost.value is not None
    ]
    if len(by_cost) > _MOST_NAMED:
        return f"from {min(by_cost)[1]} to {max(by_cost)[1]}"
    return join_names([words for _, words in by_cost])


def _say(estimate: Estimate, currency: str) -> str:
    shown = format_estimate(estimate)
    if is_exact(estimate):
        return f"{symbol_of(currency)}{format_number(estimate.value or 0.0)}"
    return f"{symbol_of(currency)}{shown.value} {shown.beside}"


def is_exact(estimate: Estimate) -> bool:
    """Return whether a figure was given, or follows from given ones only."""
    return estimate.value is not None and estimate.low == estimate.high is not None


def _name_workload(workload: WorkloadWorth | Loading) -> str:
    return f"{workload.name} ({tag_of(workload)})" if workload.durability_given_up else workload.name

"""Build the table of machines side by side: hardware, price, speed, and speed for each CPU and for the money."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from pgdyno.analyse.estimate import Estimate
from pgdyno.price.cost import Cost
from pgdyno.price.loading import Loading, LoadingWorth
from pgdyno.price.study import StudyPrice, WorkloadWorth
from pgdyno.price.worth import Worth
from pgdyno.report.format import format_bytes, format_number
from pgdyno.report.lists import join_names
from pgdyno.report.sections.price.tables import estimate_cell
from pgdyno.report.sections.price.words import PricedRecord, format_money, name_term, symbol_of, tag_of
from pgdyno.report.table import Cell, Table, absent, columns, text

_Paid = TypeVar("_Paid", Cost, Worth, LoadingWorth)
_Priced = TypeVar("_Priced", WorkloadWorth, Loading)


def hosts_table(priced: Sequence[PricedRecord]) -> Table:
    """Build the table of machines side by side: hardware, price, speed, and speed for each CPU and for the money."""
    prices = _put_shared_terms_first([one.price for one in priced])
    rows = [(text(title), *(text(show(price)) for price in prices)) for title, show in _HOST_ROWS.items()]
    for name in dict.fromkeys(workload.name for price in prices for workload in price.workloads):
        found = [next((one for one in price.workloads if one.name == name), None) for price in prices]
        rows.append((Cell(text=name, is_strong=True), *(_loss_cell(one) for one in found)))
        rows += _list_figures(found, [price.cost.currency for price in prices], first=_name(priced[0]))
    rows += _list_loadings(prices)
    return Table(
        caption="Side by side",
        columns=columns("", *map(_name, priced), numbers_from=1),
        rows=tuple(rows),
        remark=_describe_figures(priced) + _describe_terms(prices),
    )


def _list_figures(
    found: Sequence[WorkloadWorth | None], currencies: Sequence[str], *, first: str
) -> Iterator[tuple[Cell, ...]]:
    """Yield the rows of a workload, whose figures for the money are those on the first terms of each machine.

    Args:
        found: The workload on each machine; None where it was not run.
        currencies: The currency of each machine's price.
        first: The name of the first machine.
    """
    worths = [_first_worth(one) for one in found]
    if any(one is not None and one.is_average for one in found):
        yield (
            text("per million"),
            *map(_show, (None if one is None else one.per_million_at_load for one in worths), currencies),
        )
        return
    for_money = f"TPS per {symbol_of(currencies[0])}"
    yield text("TPS"), *(_show(None if one is None else one.tps) for one in found)
    yield text("TPS per CPU"), *(_show(None if one is None else one.tps_per_cpu) for one in found)
    yield text(f"{for_money} a month"), *(_show(None if one is None else one.tps_per_money) for one in worths)
    yield text("per million"), *map(_show, (None if one is None else one.per_million for one in worths), currencies)
    yield text(f"{for_money} against {first}"), *_compare_worths(found)


def _show(figure: Estimate | None, currency: str = "") -> Cell:
    return text(None) if figure is None else estimate_cell(figure, currency)


def _put_shared_terms_first(prices: Sequence[StudyPrice]) -> Sequence[StudyPrice]:
    """Put the first term on which all machines have a price, if there is one, before their other terms: rows show the first."""
    costs = [one.cost for one in prices if one.cost.costs]
    terms = [one.term for one in costs[0].costs] if costs else []
    shared = next((term for term in terms if all(one.find(term) is not None for one in costs)), None)

    def sort(several: Iterable[_Paid]) -> tuple[_Paid, ...]:
        return tuple(sorted(several, key=lambda one: one.term is not shared))

    def sort_worths(several: Iterable[_Priced]) -> tuple[_Priced, ...]:
        return tuple(msgspec.structs.replace(one, worths=sort(one.worths)) for one in several)

    return [
        msgspec.structs.replace(
            one,
            cost=msgspec.structs.replace(one.cost, costs=sort(one.cost.costs)),
            workloads=sort_worths(one.workloads),
            loadings=sort_worths(one.loadings),
        )
        for one in prices
    ]


def _describe_terms(prices: Sequence[StudyPrice]) -> str:
    terms = {one.cost.costs[0].term for one in prices if one.cost.costs}
    return " Machines are on unlike terms, which are beside the price of a month." if len(terms) > 1 else ""


def _list_loadings(prices: Sequence[StudyPrice]) -> Iterator[tuple[Cell, ...]]:
    for name in dict.fromkeys(one.name for price in prices for one in price.loadings):
        found = [next((one for one in price.loadings if one.name == name), None) for price in prices]
        yield Cell(text=name, is_strong=True), *(Cell(text="", tag="" if one is None else tag_of(one)) for one in found)
        yield text("seconds of a load"), *(_show(None if one is None else one.load_s) for one in found)
        for title in ("a load", "a GB loaded"):
            cells = (_loading_cell(one, title, price.cost.currency) for one, price in zip(found, prices, strict=True))
            yield text(title), *cells


def _loading_cell(one: Loading | None, title: str, currency: str) -> Cell:
    worth = None if one is None else next(iter(one.worths), None)
    return _show(None if worth is None else worth.per_load if title == "a load" else worth.per_gb, currency)


def _describe_figures(priced: Sequence[PricedRecord]) -> str:
    if not any(one.record_dir for one in priced):
        return "TPS are as you say, and prices are exact: these figures are as good as your TPS."
    return (
        "Each machine was measured separately: these are differences, not verdicts. Where the data fit into the"
        " memory of only one machine, TPS do not compare their CPUs. The interval of a ratio has the farthest ends of both."
        f"{_describe_mismatch(priced)}"
    )


def _compare_worths(found: Sequence[WorkloadWorth | None]) -> Iterator[Cell]:
    """Yield the TPS for the money of each machine as a multiple of the first one's, on the first term that both have."""
    first, *others = found
    own = _first_worth(first)
    yield text("1 ×" if own is not None and own.tps_per_money.value else None)
    for other in others:
        yield _ratio_cell(first, other)


def _ratio_cell(first: WorkloadWorth | None, other: WorkloadWorth | None) -> Cell:
    if first is None or other is None or not first.worths or not other.worths:
        return text(None)
    own = {worth.term: worth for worth in first.worths}
    shared = next(((own[worth.term], worth) for worth in other.worths if worth.term in own), None)
    if shared is None:
        return absent("both have no price on the same terms")
    ratio = _divide(shared[1].tps_per_money, shared[0].tps_per_money)
    if ratio is None:
        return text(None)
    cell = estimate_cell(ratio)
    # The rows above have the first terms of each.
    is_first = shared == (first.worths[0], other.worths[0])
    note = "; ".join(filter(None, [cell.note, "" if is_first else name_term(shared[1].term)])) or None
    return msgspec.structs.replace(cell, text=f"{cell.text} ×", note=note)


def _divide(one: Estimate, other: Estimate) -> Estimate | None:
    """Return a ratio whose interval has the farthest ends of both; None if one of them is not known or 0."""
    if one.value is None or not other.value:
        return None
    is_bounded = None not in {one.low, one.high, other.high} and bool(other.low)
    return Estimate(
        value=one.value / other.value,
        low=(one.low or 0.0) / (other.high or 1.0) if is_bounded else None,
        high=(one.high or 0.0) / (other.low or 1.0) if is_bounded else None,
        n=min(one.n, other.n),
        unit="ratio",
    )


def _name(one: PricedRecord) -> str:
    return one.record_dir.rstrip("/").rpartition("/")[2] or one.name


def _describe_mismatch(priced: Sequence[PricedRecord]) -> str:
    names = [_name(one) for one in priced if one.price.mismatch]
    return f" Priced as a machine other than the measured one: {join_names(names)}." if names else ""


def _loss_cell(workload: WorkloadWorth | None) -> Cell:
    return Cell(text="", tag="" if workload is None else tag_of(workload))


def _first_worth(workload: WorkloadWorth | None) -> Worth | None:
    return None if workload is None else next(iter(workload.worths), None)


def _show_month(price: StudyPrice) -> str | None:
    first = next(iter(price.cost.costs), None)
    return None if first is None else f"{format_money(first.per_month, price.cost.currency)} {name_term(first.term)}"


def _show_ratio(price: StudyPrice) -> str | None:
    ratio = price.data_to_memory_ratio
    return None if ratio is None else format_number(ratio)


_HOST_ROWS: dict[str, Callable[[StudyPrice], str | None]] = {
    "priced as": lambda price: price.cost.name,
    "a month": _show_month,
    "CPUs": lambda price: None if price.cpu_count is None else f"{price.cpu_count:g}",
    "memory": lambda price: None if price.memory_bytes is None else format_bytes(price.memory_bytes),
    "data : memory": _show_ratio,
}

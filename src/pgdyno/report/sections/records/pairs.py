"""Records side by side, in words and tables: refusals first, figures, and all that differs.

Behind a refusal figures stand without a ratio: two figures side by side say no more than two reports do, a ratio says that
one answers the other's question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate, is_too_wide
from pgdyno.analyse.records.comparison import LIMIT, TPS_PER_CPU, PairComparison, RecordComparison, RecordFigure
from pgdyno.analyse.records.difference import DifferenceGravity
from pgdyno.analyse.records.sides import hours_apart, look_alike
from pgdyno.record.types import StudyRecord
from pgdyno.report.format import ABSENT, format_in_unit, format_number
from pgdyno.report.host_words import describe_machine, with_name
from pgdyno.report.sections.disk.comparison import name_cards
from pgdyno.report.table import Cell, Table, absent, columns, text

REMARK = (
    "Intervals are at 95 % and say how well each record repeated itself. What changes from hour to hour, or from one machine"
    " to another of its kind, is in none of them: between records there is no verdict."
)
_STANDINGS = {DifferenceGravity.DECLARED: "to be declared", DifferenceGravity.FREE: "free"}
_WORDS = {
    "tps": "TPS",
    TPS_PER_CPU: "TPS per CPU",
    "latency_mean_ms": "mean latency",
    "latency_p50_ms": "p50",
    "latency_p95_ms": "p95",
    "latency_p99_ms": "p99",
    "wal_bytes": "WAL per tx",
    "wal_fpi_count": "page images per tx",
    "blks_read_pages": "pages missed per tx",
}


class NamedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it was named."""

    path: str
    record: StudyRecord
    per_month: Estimate | None = None
    """What its machine costs, whose unit is the currency; None where nobody knows, or another machine was priced."""


def name_records(records: Sequence[NamedRecord]) -> list[str]:
    """Name them A, B, C and so on."""
    return name_cards(records)


def describe_record(named: NamedRecord) -> str:
    """A record in a line."""
    record, host = named.record, named.record.host
    where = "" if host.host_name is None else f" on {host.host_name}"
    return (
        f"{named.path}: {record.started_at[:16].replace('T', ' ')}, PostgreSQL"
        f" {record.server.version.partition(' ')[0]}{where}, {describe_machine(host)}"
    )


def describe_pair(pair: PairComparison, names: tuple[str, str]) -> str:
    """What may be said of two loads side by side."""
    count = len(pair.refusals)
    if count:
        return (
            f"On {pair.first.name} {names[1]} is not compared with {names[0]}, for {'one reason' if count == 1 else f'{count} reasons'}:"
            " the figures stand side by side without a ratio."
        )
    tps = next(figure for figure in pair.figures if figure.metric == "tps")
    ratio, interval = _ratio_words(tps)
    change = f"On {pair.first.name} {names[1]} does {ratio} the TPS of {names[0]} {interval}".rstrip()
    is_alike = look_alike(pair.first.record.host, pair.other.record.host)
    where = _say_machines(pair, is_alike=is_alike)
    advice = " `pgdyno compare` runs both in turn, and gives one." if is_alike else ""
    return f"{change}: {where}, {_say_trials(pair)}: a difference, not a verdict.{advice}"


def describe_refusals(pair: PairComparison, names: tuple[str, str]) -> Iterator[str]:
    """A sentence for each reason not to compare, with what to do instead."""
    for one in pair.refusals:
        yield (
            f"refused: {one.subject}: {one.first} in {names[0]}, {one.other} in {names[1]}; {one.why}."
            f" Instead: {one.hint}."
        )


def describe_lone(comparison: RecordComparison, names: Sequence[str]) -> Iterator[str]:
    """The loads that stand alone."""
    for name, lone in ((names[0], comparison.only_first), (names[comparison.place], comparison.only_other)):
        if lone:
            yield f"Only in {name}: {', '.join(lone)}."
    if not comparison.pairs:
        yield (
            "refused: they have no load with a result of its own in common; trials within which variants alternate have"
            " none, nor have those at one rate of a search. Instead: run one study on both (`pgdyno run STUDY.toml`)."
        )


def figures_table(pair: PairComparison, names: tuple[str, str]) -> Table:
    """Figures of both, with the ratio where there is one."""
    is_refused, heads = bool(pair.refusals), _name_columns(pair, names)
    return Table(
        caption=pair.first.name,
        columns=columns("", *heads, *[] if is_refused else [f"{names[1]} by {names[0]}"], numbers_from=1),
        rows=tuple(_figure_row(pair, figure, is_refused=is_refused) for figure in pair.figures),
    )


def differences_table(pair: PairComparison, names: tuple[str, str]) -> Table | None:
    """All that differs beside what is refused, under the load's name; None where nothing does."""
    others = [one for one in pair.differences if one.standing is not DifferenceGravity.REFUSED]
    titles = columns("What else differs" if pair.refusals else "What differs", *_name_columns(pair, names), "")
    rows = tuple(
        (text(one.subject), text(one.first), text(one.other), Cell(text=_STANDINGS[one.standing], note=one.why or None))
        for one in others
    )
    return Table(caption=pair.first.name, columns=titles, rows=rows) if rows else None


def _figure_row(pair: PairComparison, figure: RecordFigure, *, is_refused: bool) -> tuple[Cell, ...]:
    words = f"rate that holds {pair.first.limit}" if figure.metric == LIMIT else _WORDS[figure.metric]
    shown = (text(words), _estimate(figure.first), _estimate(figure.other))
    if is_refused:
        return shown
    ratio, interval = _ratio_words(figure)
    return (*shown, Cell(text=ratio, detail=interval))


def _estimate(estimate: Estimate) -> Cell:
    shown = format_in_unit(estimate)
    if estimate.value is None:
        return absent(estimate.reason)
    value = shown.value.removesuffix(" tps").removesuffix(" pages")
    return Cell(text=value, detail=shown.interval if shown.interval.startswith("[") else f"(n = {estimate.n})")


def _ratio_words(figure: RecordFigure) -> tuple[str, str]:
    """A ratio and its interval; empty where there is none of use."""
    ratio = figure.ratio
    if ratio is None or ratio.value is None:
        return ABSENT, ""
    if ratio.low is None or is_too_wide(ratio):
        return f"×{format_number(ratio.value, digits=2)}", ""
    shown = format_in_unit(msgspec.structs.replace(ratio, unit=""))
    return f"×{shown.value}", shown.interval


def _name_columns(pair: PairComparison, names: tuple[str, str]) -> list[str]:
    sides = zip(names, (pair.first, pair.other), strict=True)
    return [with_name(name, side.record.host) for name, side in sides]


def _say_machines(pair: PairComparison, *, is_alike: bool) -> str:
    """Whose figures they are; that two machines bear one name does not make them one."""
    called = [side.record.host.host_name for side in (pair.first, pair.other)]
    if None in called:
        names = ""
    elif called[0] == called[1]:
        names = f" and are both called {called[0]}" if is_alike else f", both called {called[0]}"
    else:
        names = f" ({called[0]} and {called[1]})"
    return f"machines that look alike{names}{_say_apart(pair)}" if is_alike else f"different machines{names}"


def _say_trials(pair: PairComparison) -> str:
    counts = [len(side.trials) for side in (pair.first, pair.other)]
    if counts == [1, 1]:
        return "one trial each"
    return f"{counts[0]} trials each" if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} trials"


def _say_apart(pair: PairComparison) -> str:
    hours = hours_apart(pair.first, pair.other)
    if hours is None:
        return ""
    for size, name in ((24.0, "days"), (1.0, "hours")):
        if hours >= 2 * size:
            return f", {hours / size:,.0f} {name} apart"
    return f", {hours * 60:.0f} minutes apart"

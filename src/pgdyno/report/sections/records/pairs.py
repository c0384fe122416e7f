"""Describe records side by side: refusals first, figures, and all differences.

After a refusal, figures appear without a ratio: figures side by side say no more than two reports do, but a ratio
claims that the two are comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.analyse.estimate import Estimate, is_too_wide
from pgdyno.analyse.records.comparison import LIMIT, TPS_PER_CPU, PairComparison, RecordComparison, RecordFigure
from pgdyno.analyse.records.difference import DifferenceGravity
from pgdyno.analyse.records.sides import hours_apart, look_alike
from pgdyno.record.types import StudyRecord
from pgdyno.report.document import Prose, Tone
from pgdyno.report.format import ABSENT, format_began, format_in_unit, format_number
from pgdyno.report.host_words import describe_machine, name_machine, with_name
from pgdyno.report.level import Level
from pgdyno.report.table import Cell, Table, absent, columns, text

REMARK = (
    "Intervals are 95 % intervals and show how well each record repeated itself. They do not cover changes from hour"
    " to hour or between machines of the same kind: between records there is no verdict."
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
    """A record under a short name."""

    path: str
    record: StudyRecord
    per_month: Estimate | None = None
    """The price of its machine, in the unit of its currency; None where unknown, or of another machine."""


def describe_record(named: NamedRecord) -> str:
    """Describe a record in a line."""
    record = named.record
    where = "" if record.host is None or record.host.host_name is None else f" on {record.host.host_name}"
    return (
        f"{named.path}: {format_began(record.started_at)}, PostgreSQL"
        f" {record.server.version.partition(' ')[0]}{where}, {describe_machine(record)}"
    )


def describe_pair(pair: PairComparison, names: tuple[str, str]) -> str:
    """State whether and how two loads may be compared."""
    count = len(pair.refusals)
    if count:
        return (
            f"On {pair.first.name} {names[1]} is not compared with {names[0]}, for"
            f" {'one reason' if count == 1 else f'{count} reasons'}:"
            " the figures stand side by side without a ratio."
        )
    tps = next(figure for figure in pair.figures if figure.metric == "tps")
    ratio, interval = _ratio_words(tps)
    change = f"On {pair.first.name} {names[1]} reaches {ratio} the TPS of {names[0]} {interval}".rstrip()
    is_alike = look_alike(pair.first.record.host, pair.other.record.host)
    where = _name_machines(pair, is_alike=is_alike)
    advice = " `pgdyno compare` runs both in turn and gives a verdict." if is_alike else ""
    return f"{change}: {where}, {_count_trials(pair)}: a difference, not a verdict.{advice}"


def list_refusals(pair: PairComparison, names: tuple[str, str]) -> Iterator[Prose]:
    """Yield a paragraph for each reason not to compare, with what to do instead."""
    for one in pair.refusals:
        yield _refuse(
            f"{one.subject}: {one.first} in {names[0]}, {one.other} in {names[1]}; {one.why}. Instead: {one.hint}."
        )


def list_lone(comparison: RecordComparison, names: Sequence[str]) -> Iterator[Prose]:
    """Yield a paragraph on the loads of each record that the other does not have."""
    for name, lone in ((names[0], comparison.only_first), (names[comparison.place], comparison.only_other)):
        if lone:
            yield Prose(words=f"Only in {name}: {'; '.join(lone)}.", level=Level.HEADLINE)
    if not comparison.pairs:
        yield _refuse(
            "the records have no comparable load in common. Trials within which variants alternate have no"
            " result of their own, and neither have trials of a search at one rate. Instead: run one study on both"
            " (`pgdyno run STUDY.toml`)."
        )


def _refuse(words: str) -> Prose:
    return Prose(strong="refused:", words=words, tone=Tone.ALARM, level=Level.HEADLINE)


def figures_table(pair: PairComparison, names: tuple[str, str]) -> Table:
    """Build the table of both records' figures, with the ratio where they may be compared."""
    is_refused, heads = bool(pair.refusals), _name_columns(pair, names)
    return Table(
        caption=pair.first.name,
        columns=columns("", *heads, *[] if is_refused else [f"{names[1]} by {names[0]}"], numbers_from=1),
        rows=tuple(_figure_row(pair, figure, is_refused=is_refused) for figure in pair.figures),
    )


def differences_table(pair: PairComparison, names: tuple[str, str]) -> Table | None:
    """Build the table of all differences besides the refusals, under the load's name; None without any."""
    others = [one for one in pair.differences if one.standing is not DifferenceGravity.REFUSED]
    titles = columns("Other differences" if pair.refusals else "Differences", *_name_columns(pair, names), "")
    rows = tuple(
        (text(one.subject), text(one.first), text(one.other), Cell(text=_STANDINGS[one.standing], note=one.why or None))
        for one in others
    )
    return Table(caption=pair.first.name, columns=titles, rows=rows) if rows else None


def _figure_row(pair: PairComparison, figure: RecordFigure, *, is_refused: bool) -> tuple[Cell, ...]:
    words = f"rate that holds {pair.first.limit}" if figure.metric == LIMIT else _WORDS[figure.metric]
    shown = (text(words), estimate_cell(figure.first), estimate_cell(figure.other))
    if is_refused:
        return shown
    ratio, interval = _ratio_words(figure)
    return (*shown, Cell(text=ratio, detail=interval))


def estimate_cell(estimate: Estimate) -> Cell:
    """Return a cell of an estimate and its interval; the reason where it has no value."""
    shown = format_in_unit(estimate)
    if estimate.value is None:
        return absent(estimate.reason)
    value = shown.value.removesuffix(" tps").removesuffix(" pages")
    return Cell(text=value, detail=shown.interval if shown.interval.startswith("[") else f"(n = {estimate.n})")


def _ratio_words(figure: RecordFigure) -> tuple[str, str]:
    """Return a ratio and its interval; empty without a useful one."""
    ratio = figure.ratio
    if ratio is None or ratio.value is None:
        return ABSENT, ""
    if ratio.low is None or is_too_wide(ratio):
        return f"×{format_number(ratio.value, digits=2)}", ""
    shown = format_in_unit(msgspec.structs.replace(ratio, unit=""))
    return f"×{shown.value}", shown.interval


def _name_columns(pair: PairComparison, names: tuple[str, str]) -> list[str]:
    sides = zip(names, (pair.first, pair.other), strict=True)
    return [with_name(name, side.record) for name, side in sides]


def _name_machines(pair: PairComparison, *, is_alike: bool) -> str:
    """Name the two machines; two machines of the same name are not assumed to be the same one."""
    records = [side.record for side in (pair.first, pair.other)]
    called = [name_machine(record) for record in records]
    if any(record.host is None for record in records):
        if None not in called and called[0] == called[1] and all(record.given for record in records):
            return f"servers at one address ({called[0]}), whose machine was not seen{_describe_gap(pair)}"
        return "machines that were not both seen"
    if None in called:
        names = ""
    elif called[0] == called[1]:
        names = f" and are both called {called[0]}" if is_alike else f", both called {called[0]}"
    else:
        names = f" ({called[0]} and {called[1]})"
    return f"machines that look alike{names}{_describe_gap(pair)}" if is_alike else f"different machines{names}"


def _count_trials(pair: PairComparison) -> str:
    counts = [len(side.trials) for side in (pair.first, pair.other)]
    if counts == [1, 1]:
        return "one trial each"
    return f"{counts[0]} trials each" if counts[0] == counts[1] else f"{counts[0]} and {counts[1]} trials"


def _describe_gap(pair: PairComparison) -> str:
    hours = hours_apart(pair.first, pair.other)
    if hours is None:
        return ""
    for size, name in ((24.0, "days"), (1.0, "hours")):
        if hours >= 2 * size:
            return f", {hours / size:,.0f} {name} apart"
    return f", {hours * 60:.0f} minutes apart"

"""Build the document of histories: what one question to one machine was answered over time, and what changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pgdyno.analyse.history.change_points import LEAST_RESULTS
from pgdyno.analyse.history.histories import ALPHA, Change, History, Move, Result
from pgdyno.analyse.records.difference import RecordDifference
from pgdyno.report.charts.history import history_chart
from pgdyno.report.document import Block, ChartBlock, Document, Prose, Section, Tone
from pgdyno.report.format import format_effect, format_p
from pgdyno.report.host_words import describe_named_machine
from pgdyno.report.level import Level
from pgdyno.report.sections.records.pairs import estimate_cell
from pgdyno.report.table import Cell, Column, Table, absent, columns, text
from pgdyno.report.verdict_words import METRIC_WORDS
from pgdyno.units import count_things

TITLE = "History"
_REMARK = (
    f"Of 100 histories without a change, at most {ALPHA * 100:.0f} are said to have one, if each is looked at once and its"
    " results vary independently of each other. What drifts for weeks, such as a neighbour's load, counts as a change. The"
    f" brackets of a change allow for the search: of 100 histories with a change, at most {ALPHA * 100:.0f} have brackets that miss it,"
    " if results vary after it as much as before. The brackets beside TPS and p99 are"
    " 95 % intervals over the trials of a record; where one is too wide to be useful, the number of trials stands in its place."
)


def build_history(histories: Sequence[History], unreadable: Sequence[str] = ()) -> Document:
    """Return the histories of two results or more; questions that one record alone asks are counted."""
    several = [one for one in histories if len(one.results) > 1]
    blocks: list[Block] = [
        Section(title=_title(one), id=f"history-{number}", blocks=tuple(_list_blocks(one, number)))
        for number, one in enumerate(several, start=1)
    ]
    lone = len(histories) - len(several)
    if lone:
        words = f"{count_things(lone, 'question')} of these records {'is' if lone == 1 else 'are'} asked once only."
        blocks.append(Prose(words=words, tone=Tone.SMALL, level=Level.HEADLINE))
    blocks += [Prose(strong="not read:", words=words, level=Level.HEADLINE) for words in unreadable]
    if several:
        remark = Prose(words=_REMARK, level=Level.HEADLINE)
        blocks.append(Section(title="How to read this report", id="how-to-read", blocks=(remark,)))
    return Document(title=TITLE, blocks=tuple(blocks), made_by="pgdyno")


def describe_change(history: History, change: Change) -> str:
    """Describe a change in a sentence: how much, since when, and how certain that is."""
    result, ratio = history.results[change.place], change.ratio
    ends = [None if end is None else end - 1.0 for end in (ratio.value, ratio.low, ratio.high)]
    effect = format_effect(*ends)
    return (
        f"{METRIC_WORDS[change.metric]} {effect.value} {effect.interval} since {say_when(result)} UTC ({name_record(result)}),"
        f" {format_p(change.p_value)}."
    )


def describe_differences(change: Change) -> str:
    """List how the record after a change differs from the one before it."""
    found = _list(change.differences)
    return f"What else changed: {found}." if found else "Nothing else changed that pgdyno sees."


def describe_move(move: Move) -> str:
    """Say which other machine was asked the same before, and how its last record differs."""
    found = _list(move.differences)
    asked = f"Another machine was asked the same before, last at {say_when(move.last)} UTC ({name_record(move.last)})"
    return f"{asked}: {found}." if found else f"{asked}."


def _list(differences: Sequence[RecordDifference]) -> str:
    return "; ".join(f"{one.subject} from {one.first} to {one.other}" for one in differences)


def name_history(history: History) -> str:
    """Return the load of a history and its variant."""
    side = history.latest.side
    variant = "" if side.variant is None or side.variant.name in side.name else f", {side.variant.name}"
    return f"{side.name}{variant}"


def _title(history: History) -> str:
    return f"{name_history(history)} on {describe_named_machine(history.latest.side.record)}"


def _list_blocks(history: History, number: int) -> Iterator[Block]:
    for change in history.changes:
        yield Prose(words=describe_change(history, change), tone=Tone.CLAIM, level=Level.HEADLINE)
        yield Prose(words=describe_differences(change), level=Level.HEADLINE)
    if not history.changes:
        yield Prose(words=describe_quiet(history), level=Level.HEADLINE)
    if history.move is not None:
        yield Prose(words=describe_move(history.move), level=Level.HEADLINE)
    yield ChartBlock(id=f"h{number}", chart=history_chart(history))
    yield _make_table(history)


def describe_quiet(history: History) -> str:
    """Say that a history without a change has none, or is too short to show one."""
    count = len(history.results)
    if history.is_long_enough:
        return f"No change of TPS or p99 was found in {count} results."
    return f"{count} results are too few to show a change: it takes {LEAST_RESULTS}."


def _make_table(history: History) -> Table:
    changed: dict[int, list[str]] = {}
    for one in history.changes:
        changed.setdefault(one.place, []).append(METRIC_WORDS[one.metric])
    return Table(
        caption=f"Results of {history.latest.side.name}",
        columns=(
            *columns("began (UTC)", "record", "PostgreSQL", "TPS", "p99", "trials", numbers_from=3),
            Column(title="change"),
        ),
        rows=tuple(_make_row(result, changed.get(place, [])) for place, result in enumerate(history.results)),
        level=Level.HEADLINE,
    )


def _make_row(result: Result, changed: list[str]) -> tuple[Cell, ...]:
    side, p99 = result.side, result.find("latency_p99_ms")
    return (
        text(say_when(result)),
        text(name_record(result)),
        text(side.version),
        estimate_cell(side.workload.tps),
        absent("not observed") if p99 is None else estimate_cell(p99),
        text(str(len(side.trials))),
        Cell(text=", ".join(changed) or " "),
    )


def say_when(result: Result) -> str:
    """Return when a record began, in UTC."""
    return f"{result.began:%Y-%m-%d %H:%M}"


def name_record(result: Result) -> str:
    """Return the name of a result's record."""
    return Path(result.path).name

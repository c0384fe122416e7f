"""Derived settings on the terminal: what changes and why, a line for each, and what one must know to trust it.

Fits 80 columns. Says nothing by colour alone. What would give up durability stands apart, under its own name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Group, RenderableType

from pgdyno.errors import with_program
from pgdyno.report.columns import Columns, Row, widths_of
from pgdyno.report.format import ABSENT, format_bytes
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.terminal_parts import make_heading
from pgdyno.report.tuning import (
    COST_WORDS,
    TuningView,
    change_of,
    describe_file_errors,
    describe_subject,
    describe_trial,
    format_known,
    format_quantity,
)
from pgdyno.tune.types import Derived, DerivedSettings, Known, Layer, Origin, Target

_HEADING = Row(cells=("setting", "now", "derived", "takes"), words="why", is_heading=True)
# The longest name of a setting of PostgreSQL has 37 characters, of the kernel 38.
_WIDEST = (38, 11, 11, 12)
_WIDEST_FIGURES = (38, 12, 12)
_BY = {"restart": "a restart", "reload": "a reload"}
# Estimates that stand above the table.
_TOLD_FIRST = {"recovery after a crash", "checkpoint interval"}
# Of the sum of memory: below, lines are added up.
_SMALL_SHARE = 0.05
# What starts the server, and how its volumes were made, is not seen from here.
_NOT_SEEN = {Target.LIMIT, Target.STORAGE}
# What makes an assumption better, by the input's name.
_BETTER = {
    "dataset": "--dataset SIZE",
    "connections": "--connections N",
    "active sessions": "--clients N, or --record DIR of a bench with your load",
    "WAL rate": "--record DIR of a bench with your load",
    "recovery time": "--recovery TIME",
    "longest stall": "--stall TIME",
    **dict.fromkeys(
        (
            *("flush latency", "random read latency", "random reads", "random writes"),
            *("sequential reads", "sequential writes"),
        ),
        "`pgdyno disk` measures it",
    ),
}


def render_table(view: TuningView) -> RenderableType:
    """What changes and why, layer by layer, and what follows from it; first the sum of it and what to know."""
    tuning = view.tuning
    changing = [one for one in tuning.settings if not change_of(view, one).is_same]
    rows = {one.name: _row(view, one) for one in changing}
    widths = widths_of([_HEADING, *rows.values()], most=_WIDEST)
    parts: list[RenderableType] = [Paragraph(describe_subject(view), by=0), "", *_summary(view), ""]
    parts += _section("worth knowing", [Paragraph(note) for note in (*describe_file_errors(view), *tuning.notes)])
    if rows:
        parts.append(Columns([_HEADING], widths))
    for title, settings in _by_title(tuning):
        chosen = [rows[one.name] for one in settings if one.name in rows]
        parts += _section(title, [Columns(chosen, widths)] if chosen else [])
    same = ", ".join(f"{one.name} = {one.value or 'empty'}" for one in tuning.settings if one.name not in rows)
    parts += _section("as it should be already", [Paragraph(same)] if same else [])
    parts += _figures("memory in the worst case", _memory(tuning))
    estimates = [Row(cells=(one.what, format_quantity(one.value, one.unit)), words=one.how) for one in tuning.estimates]
    parts += _figures("what follows from it", estimates)
    parts += _figures("assumed, with what rests on it and how to know better", _assumptions(view))
    parts += _section("faster, and not part of the set", _what_ifs(view))
    parts += _section("not seen", [Paragraph(f"{one.what}: {one.reason}") for one in view.unseen])
    return Group(*parts, *_figures("what next, added to the same command", _next_steps(view))[:-1])


def _summary(view: TuningView) -> list[RenderableType]:
    tuning = view.tuning
    words = []
    if tuning.memory:
        total = format_bytes(sum(one.bytes for one in tuning.memory))
        words.append(f"memory in the worst case: {total} of {format_known(tuning.subject.memory)}")
    words += [
        f"{one.what}: {format_quantity(one.value, one.unit)}" for one in tuning.estimates if one.what in _TOLD_FIRST
    ]
    lines = [_count_changes(view), "; ".join(words), describe_trial(view)]
    return [Paragraph(line, by=0) for line in lines if line]


def _count_changes(view: TuningView) -> str:
    seen = [one for one in view.tuning.settings if one.target not in _NOT_SEEN]
    takes = [COST_WORDS[one.change] for one in seen if not change_of(view, one).is_same]
    counts = ", ".join(f"{takes.count(each)} by {_BY.get(each, each)}" for each in dict.fromkeys(takes))
    return f"{len(takes)} of {len(seen)} would change{f': {counts}' if counts else ''}; now is {view.now_of}"


def _by_title(tuning: DerivedSettings) -> Iterator[tuple[str, Sequence[Derived]]]:
    postgresql = tuning.of(Target.POSTGRESQL)
    for layer in Layer:
        yield layer.value, [one for one in postgresql if one.layer is layer]
    yield "kernel", [*tuning.of(Target.SYSCTL), *tuning.of(Target.SYSFS)]
    yield "advice on volumes", tuning.of(Target.STORAGE)
    yield "limits and environment of the service that starts the server", tuning.of(Target.LIMIT)


def _memory(tuning: DerivedSettings) -> list[Row]:
    """The sum, with what is small in one line."""
    total = sum(one.bytes for one in tuning.memory)
    small = [one for one in tuning.memory if one.bytes < _SMALL_SHARE * total]
    rows = [
        Row(cells=(one.what, format_bytes(one.bytes)), words=one.how)
        for one in tuning.memory
        if one not in small or len(small) == 1
    ]
    if len(small) > 1:
        rest = format_bytes(sum(one.bytes for one in small))
        rows.append(Row(cells=("all else", rest), words=", ".join(one.what for one in small)))
    words = f"of {format_known(tuning.subject.memory)}; `--form explain` has every line"
    return [*rows, Row(cells=("in all", format_bytes(total)), words=words)] if rows else []


def render_diff(view: TuningView) -> RenderableType:
    """Only what changes, with what it takes."""
    changes = [one for one in view.tuning.settings if one.target not in _NOT_SEEN]
    rows = [msgspec.structs.replace(_row(view, one), words="") for one in changes if not change_of(view, one).is_same]
    parts: list[RenderableType] = [Paragraph(describe_subject(view), by=0), ""]
    if rows:
        rows = [msgspec.structs.replace(_HEADING, words=""), *rows]
        parts += [Columns(rows, widths_of(rows, most=_WIDEST)), ""]
    return Group(*parts, *(Paragraph(line, by=0) for line in (_count_changes(view), *describe_file_errors(view))))


def _row(view: TuningView, one: Derived) -> Row:
    change = change_of(view, one)
    now = ABSENT if change.now is None else change.now or "empty"
    cells = (one.name, now, one.value or "empty", COST_WORDS[one.change])
    return Row(cells=cells, words=one.reason, is_strong=True)


def _section(title: str, body: Sequence[RenderableType]) -> list[RenderableType]:
    return [make_heading(title), *body, ""] if body else []


def _figures(title: str, rows: Sequence[Row]) -> list[RenderableType]:
    return _section(title, [Columns(rows, widths_of(rows, most=_WIDEST_FIGURES))] if rows else [])


def _assumptions(view: TuningView) -> list[Row]:
    """Inputs that nobody has measured or said, with how many settings rest on each."""
    resting: dict[str, set[str]] = {}
    assumed: dict[str, Known] = {}
    for one in view.tuning.settings:
        for known in one.inputs:
            if known.origin is Origin.ASSUMED:
                assumed[known.name] = known
                resting.setdefault(known.name, set()).add(one.name)
    by_words: dict[str, list[Row]] = {}
    for name, known in sorted(assumed.items(), key=lambda one: -len(resting[one[0]])):
        better = f"; better: {_BETTER[name]}" if name in _BETTER else ""
        count = len(resting[name])
        cells = (name, format_known(known), f"{count} setting{'' if count == 1 else 's'}")
        words = with_program(f"{known.how.rstrip('.')}{better}", view.program)
        by_words.setdefault(words, []).append(Row(cells=cells))
    # What holds for several stands once, with the last of them.
    return [
        msgspec.structs.replace(row, words=words if row is rows[-1] else "")
        for words, rows in by_words.items()
        for row in rows
    ]


def _what_ifs(view: TuningView) -> list[RenderableType]:
    return [
        Paragraph(f"{one.name} = {one.value}: {one.reason.rstrip('.')}; {one.trades}") for one in view.tuning.what_ifs
    ]


def _next_steps(view: TuningView) -> list[Row]:
    apply = "--apply" if view.is_named else "--pgdata DIR --apply"
    steps = {
        "--explain NAME": "a value's formula, inputs and source",
        "--form diff": "only what would change",
        "--form conf > pgdyno.conf": "a file for postgresql.conf to include",
        "--form sysctl > 90-pgdyno.conf": "a file for /etc/sysctl.d",
        apply: with_program("puts it in force; `pgdyno restore` undoes it", view.program),
    }
    if view.tuning.subject.kernel.is_unchangeable:
        steps = {option: words for option, words in steps.items() if "sysctl" not in option}
    return [Row(cells=(option,), words=words) for option, words in steps.items()]

"""Derived settings on the terminal: a line for each with what is in force now, why it should be another, and the rest.

Fits 80 columns. Says nothing by colour alone. What would give up durability stands apart, under its own name.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from pgdyno.errors import with_program
from pgdyno.report.columns import Columns, Row, widths_of
from pgdyno.report.format import ABSENT, format_bytes
from pgdyno.report.paragraph import Paragraph
from pgdyno.report.tuning import (
    COST_WORDS,
    TuningView,
    change_of,
    describe_subject,
    describe_trial,
    format_known,
    format_quantity,
)
from pgdyno.tune.types import Derived, Known, Layer, Origin, Target

_HEADING = Row(cells=("setting", "now", "derived", "takes"), words="why", is_heading=True)
# The longest name of a setting has 37 characters.
_WIDEST = (37, 11, 11, 12)
_WIDEST_FIGURES = (38, 12, 12)
_BY = {"restart": "a restart", "reload": "a reload"}
# What makes an assumption better, by the input's name.
_BETTER = {
    "dataset": "--dataset SIZE",
    "connections": "--connections N",
    "active sessions": "--clients N, or --record DIR of a bench with your load",
    "WAL rate": "--record DIR of a bench with your load",
    "recovery time": "--recovery TIME",
    "longest stall": "--stall TIME",
    "flush latency": "pg_test_fsync, and disk.flush_ms of a host file (--host FILE)",
    **dict.fromkeys(
        ("random reads", "random writes", "sequential reads", "sequential writes"),
        "fio, and [disk] of a host file (--host FILE)",
    ),
}


def render_table(view: TuningView) -> RenderableType:
    """The whole set, layer by layer, and what follows from it."""
    tuning = view.tuning
    rows = [_row(view, one) for one in tuning.settings]
    widths = widths_of([_HEADING, *rows], most=_WIDEST)
    parts: list[RenderableType] = [Paragraph(describe_subject(view), by=0), ""]

    def add(title: str, settings: Sequence[Derived]) -> None:
        nonlocal parts
        chosen = [row for row, one in zip(rows, tuning.settings, strict=True) if one in settings]
        parts += _section(title, [Columns(chosen, widths)] if chosen else [])

    parts.append(Columns([_HEADING], widths))
    postgresql = tuning.of(Target.POSTGRESQL)
    for layer in Layer:
        add(layer.value, [one for one in postgresql if one.layer is layer])
    shares = [Row(cells=(one.what, format_bytes(one.bytes)), words=one.how) for one in tuning.memory]
    total = sum(one.bytes for one in tuning.memory)
    shares += [Row(cells=("in all", format_bytes(total)), words=f"of {format_known(tuning.subject.memory)}")]
    parts += _figures("memory in the worst case", shares if tuning.memory else [])
    estimates = [Row(cells=(one.what, format_quantity(one.value, one.unit)), words=one.how) for one in tuning.estimates]
    parts += _figures("what follows from it", estimates)
    add("kernel", [*tuning.of(Target.SYSCTL), *tuning.of(Target.SYSFS)])
    add("storage: advice for who makes the volumes", tuning.of(Target.STORAGE))
    add("limits of what starts the server", tuning.of(Target.LIMIT))
    parts += _section("worth knowing", [Paragraph(note) for note in tuning.notes])
    parts += _figures("assumed, with what rests on it and how to know better", _assumptions(view))
    parts += _section("faster, and not part of the set", _what_ifs(view))
    parts += _section("not seen", [Paragraph(f"{one.what}: {one.reason}") for one in view.unseen])
    parts += _section("what was tried", [Paragraph(describe_trial(view))])
    return Group(*parts, *_figures("what next, added to the same command", _next_steps(view))[:-1])


def render_diff(view: TuningView) -> RenderableType:
    """Only what changes, with what it takes."""
    # What starts the server, and how its volumes were made, is not seen from here.
    changes = [one for one in view.tuning.settings if one.target not in {Target.LIMIT, Target.STORAGE}]
    differing = [one for one in changes if not change_of(view, one).is_same]
    rows = [msgspec.structs.replace(_row(view, one), words="") for one in differing]
    takes = [row.cells[-1] for row in rows]
    counts = ", ".join(f"{takes.count(each)} by {_BY.get(each, each)}" for each in dict.fromkeys(takes))
    said = f"{len(differing)} of {len(changes)} would change{f': {counts}' if counts else ''}; now is {view.now_of}"
    parts: list[RenderableType] = [Paragraph(describe_subject(view), by=0), ""]
    if rows:
        rows = [msgspec.structs.replace(_HEADING, words=""), *rows]
        parts += [Columns(rows, widths_of(rows, most=_WIDEST)), ""]
    return Group(*parts, Paragraph(said, by=0))


def _row(view: TuningView, one: Derived) -> Row:
    change = change_of(view, one)
    takes = "as it is" if change.is_same else COST_WORDS[one.change]
    now = ABSENT if change.now is None else change.now or "empty"
    cells = (one.name, now, one.value or "empty", takes)
    return Row(cells=cells, words=one.reason, is_strong=not change.is_same)


def _section(title: str, body: Sequence[RenderableType]) -> list[RenderableType]:
    return [Text(title, style="bold underline"), *body, ""] if body else []


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
    for name, known in assumed.items():
        better = f"; better: {_BETTER[name]}" if name in _BETTER else ""
        count = len(resting[name])
        cells = (name, format_known(known), f"{count} setting{'' if count == 1 else 's'}")
        by_words.setdefault(f"{known.how.rstrip('.')}{better}", []).append(Row(cells=cells))
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
    return [Row(cells=(option,), words=words) for option, words in steps.items()]

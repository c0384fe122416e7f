"""Show derived settings on the terminal: what changes and why, a line for each, and what to know first.

The output fits 80 columns and uses colour only as an addition. Settings that give up durability are listed separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pgdyno.errors import with_program
from pgdyno.report.document import Block, Document, Listing, ListRow, Prose, Section
from pgdyno.report.format import ABSENT, format_bytes
from pgdyno.report.sections.tuning.view import (
    COST_WORDS,
    TuningView,
    change_of,
    describe_file_errors,
    describe_rights,
    describe_subject,
    describe_trial,
    format_known,
    format_quantity,
)
from pgdyno.tune.rules.standbys import AWAY
from pgdyno.tune.types import Derived, DerivedSettings, Known, Layer, Origin, Target
from pgdyno.units import count_things

_TITLES = ("setting", "now", "derived", "takes")
# The longest name of a setting of PostgreSQL has 37 characters, of the kernel 38.
_WIDEST = (38, 11, 11, 12)
_WIDEST_FIGURES = (38, 12, 12)
_BY = {"restart": "a restart", "reload": "a reload"}
# The estimates above the table.
_TOLD_FIRST = {"recovery after a crash", "checkpoint interval", AWAY}
# Parts of the memory total that are smaller than this are added up.
_SMALL_SHARE = 0.05
# How the server is started, how its volumes were made, and what a pooler has cannot be observed from here.
_NOT_SEEN = {Target.LIMIT, Target.STORAGE, Target.POOLER}
# How to replace an assumption by a fact, by the input's name.
_BETTER = {
    "dataset": "--dataset SIZE",
    **dict.fromkeys(("connections", "clients"), "--connections N"),
    "pool size": "--record DIR of a `pgdyno sweep clients=1..N` with your load",
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


def build_tuning(view: TuningView) -> Document:
    """Return what changes and why, layer by layer, after the total of memory and what to know first.

    What standbys need is shown with its reasons also where the server has it already: its trade-offs are to be known.
    """
    return Document(title=describe_subject(view), blocks=tuple(_list_blocks(view)), is_titled=False)


def _list_blocks(view: TuningView) -> Iterator[Block]:
    tuning = view.tuning
    rows = {
        one.name: _row(view, one)
        for one in tuning.settings
        if one.layer is Layer.REPLICATION or not change_of(view, one).is_same
    }
    yield Prose(words=describe_subject(view))
    yield from (Prose(words=line) for line in _summarise(view))
    notes = tuple(
        Prose(words=with_program(note, view.program))
        for note in (*describe_file_errors(view), *describe_rights(view), *tuning.notes)
    )
    yield Section(title="Notes", blocks=notes)
    groups = (
        (title, tuple(rows[one.name] for one in settings if one.name in rows)) for title, settings in _by_title(tuning)
    )
    yield Listing(
        titles=_TITLES, words_title="why", groups=tuple(group for group in groups if group[1]), widest=_WIDEST
    )
    same = ", ".join(f"{one.name} = {one.value or 'empty'}" for one in tuning.settings if one.name not in rows)
    yield Section(title="Already in force", blocks=(Prose(words=same),) if same else ())
    yield from _list_figures("Memory in the worst case", _memory(tuning))
    estimates = [
        ListRow(cells=(one.what, format_quantity(one.value, one.unit)), words=one.how) for one in tuning.estimates
    ]
    yield from _list_figures("Consequences", estimates)
    yield from _list_figures("Assumptions, with the settings that depend on them", _assumptions(view))
    yield Section(title="Faster, but not part of the set", blocks=tuple(_what_ifs(view)))
    unseen = tuple(Prose(words=f"{one.what}: {one.reason}") for one in view.unseen)
    yield Section(title="Not observed", blocks=unseen)
    yield from _list_figures("Next steps, as options of the same command", _next_steps(view))


def _summarise(view: TuningView) -> Iterator[str]:
    tuning = view.tuning
    words = []
    if tuning.memory:
        total = format_bytes(sum(one.bytes for one in tuning.memory))
        words.append(f"memory in the worst case: {total} of {format_known(tuning.subject.memory)}")
    words += [
        f"{one.what}: {format_quantity(one.value, one.unit)}" for one in tuning.estimates if one.what in _TOLD_FIRST
    ]
    yield from (line for line in (_count_changes(view), "; ".join(words), describe_trial(view)) if line)


def _count_changes(view: TuningView) -> str:
    seen = [one for one in view.tuning.settings if one.target not in _NOT_SEEN]
    takes = [COST_WORDS[one.change] for one in seen if not change_of(view, one).is_same]
    counts = ", ".join(f"{takes.count(each)} by {_BY.get(each, each)}" for each in dict.fromkeys(takes))
    return f"{len(takes)} of {len(seen)} would change{f': {counts}' if counts else ''}; now is {view.now_of}"


def _by_title(tuning: DerivedSettings) -> Iterator[tuple[str, Sequence[Derived]]]:
    postgresql = tuning.of(Target.POSTGRESQL)
    for layer in Layer:
        yield layer.value, [one for one in postgresql if one.layer is layer]
    yield "PgBouncer", tuning.of(Target.POOLER)
    yield "kernel", [*tuning.of(Target.SYSCTL), *tuning.of(Target.SYSFS)]
    yield "advice on volumes", tuning.of(Target.STORAGE)
    yield "limits and environment of the service that starts the server", tuning.of(Target.LIMIT)


def _memory(tuning: DerivedSettings) -> list[ListRow]:
    """Describe the total of memory, with small parts in one line."""
    total = sum(one.bytes for one in tuning.memory)
    small = [one for one in tuning.memory if one.bytes < _SMALL_SHARE * total]
    rows = [
        ListRow(cells=(one.what, format_bytes(one.bytes)), words=one.how)
        for one in tuning.memory
        if one not in small or len(small) == 1
    ]
    if len(small) > 1:
        rest = format_bytes(sum(one.bytes for one in small))
        rows.append(ListRow(cells=("everything else", rest), words=", ".join(one.what for one in small)))
    words = f"of {format_known(tuning.subject.memory)}; `--form explain` has every line"
    return [*rows, ListRow(cells=("in total", format_bytes(total)), words=words)] if rows else []


def build_diff(view: TuningView) -> Document:
    """Return only what changes, with what it takes."""
    changes = [one for one in view.tuning.settings if one.target not in _NOT_SEEN]
    rows = tuple(
        msgspec.structs.replace(_row(view, one), words="") for one in changes if not change_of(view, one).is_same
    )
    listing = Listing(titles=_TITLES, groups=(("", rows),), widest=_WIDEST)
    words = (_count_changes(view), *describe_file_errors(view))
    blocks: tuple[Block, ...] = (
        Prose(words=describe_subject(view)),
        *([listing] if rows else []),
        *(Prose(words=one) for one in words),
    )
    return Document(title=describe_subject(view), blocks=blocks, is_titled=False)


def _row(view: TuningView, one: Derived) -> ListRow:
    change = change_of(view, one)
    now = ABSENT if change.now is None else change.now or "empty"
    takes = ABSENT if change.is_same else COST_WORDS[one.change]
    cells = (one.name, now, one.value or "empty", takes)
    return ListRow(cells=cells, words=one.reason)


def _list_figures(title: str, rows: Sequence[ListRow]) -> Iterator[Listing]:
    if rows:
        yield Listing(groups=((title, tuple(rows)),), widest=_WIDEST_FIGURES[: len(rows[0].cells)])


def _assumptions(view: TuningView) -> list[ListRow]:
    """List the inputs that are assumed, with how many settings rest on each."""
    resting: dict[str, set[str]] = {}
    assumed: dict[str, Known] = {}
    for one in view.tuning.settings:
        for known in one.inputs:
            if known.origin is Origin.ASSUMED:
                assumed[known.name] = known
                resting.setdefault(known.name, set()).add(one.name)
    by_words: dict[str, list[ListRow]] = {}
    for name, known in sorted(assumed.items(), key=lambda one: -len(resting[one[0]])):
        option = _BETTER.get(name.removesuffix(" of pg_wal"))
        better = f"; better: {option}" if option else ""
        count = len(resting[name])
        cells = (name, format_known(known), count_things(count, "setting"))
        words = with_program(f"{known.how.rstrip('.')}{better}", view.program)
        by_words.setdefault(words, []).append(ListRow(cells=cells))
    # A remark on several settings is shown once, with the last of them.
    return [
        msgspec.structs.replace(row, words=words if row is rows[-1] else "")
        for words, rows in by_words.items()
        for row in rows
    ]


def _what_ifs(view: TuningView) -> Iterator[Prose]:
    for one in view.tuning.what_ifs:
        yield Prose(words=f"{one.name} = {one.value}: {one.reason.rstrip('.')}; {one.trades}")


def _next_steps(view: TuningView) -> list[ListRow]:
    apply = "--apply" if view.is_named else "--pgdata DIR --apply"
    steps = {
        "--explain NAME": "a value's formula, inputs and source",
        "--form diff": "only what would change",
        "--form conf > pgdyno.conf": "a file for postgresql.conf to include",
    }
    if view.tuning.of(Target.POOLER):
        steps["--form pgbouncer > pgdyno.ini"] = "a file for pgbouncer.ini to include"
    if view.given is not None:
        steps["--form alter-system > pgdyno.sql"] = "a script for psql"
    else:
        steps["--form sysctl > 90-pgdyno.conf"] = "a file for /etc/sysctl.d"
        steps[apply] = with_program("applies the settings; `pgdyno restore` rolls them back", view.program)
    if view.tuning.subject.kernel.is_unchangeable:
        steps = {option: words for option, words in steps.items() if "sysctl" not in option}
    return [ListRow(cells=(option,), words=words) for option, words in steps.items()]

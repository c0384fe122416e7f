"""Explain a derived setting in full: formula, inputs with their sources, source and trade-off."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.facts.famous_lines import FamousLine, famous_names
from pgdyno.facts.gucs import ChangeCost, Guc, change_cost, find_guc, majors_with, nearest_gucs
from pgdyno.report.document import Block, Document, Prose, Section
from pgdyno.report.sections.tuning.view import COST_WORDS, TuningView, change_of, describe_subject, format_known
from pgdyno.report.setting_words import show_setting
from pgdyno.tune.memory import describe_share
from pgdyno.tune.types import Derived, Known

Explained = Derived | FamousLine | Guc
"""What `--explain` shows: a derived setting, a famous line, or a setting for which nothing is derived."""


def find_derived(view: TuningView, names: Sequence[str]) -> tuple[Explained, ...]:
    """Return the settings of these names, what-ifs included; the whole set where no name is given.

    A famous line that is not part of the set is returned with its judgement instead, and any other setting of the server
    as the catalogue has it.

    Raises:
        SpecError: One of them is none of these.
    """
    named: list[tuple[str, Explained]] = [*famous_names().items()]
    named += [(one.name, one) for one in (*view.tuning.what_ifs, *view.tuning.settings)]
    known = {name.lower(): one for name, one in named}
    found = [(name, known.get(name.lower()) or find_guc(name, view.tuning.subject.major)) for name in names]
    unknown = next((name for name, one in found if one is None), None)
    if unknown is not None:
        raise _refuse(unknown, view.tuning.subject.major, [name for name, _ in named])
    return tuple(one for _, one in found if one is not None) if names else view.tuning.settings


def _refuse(name: str, major: int, names: Sequence[str]) -> SpecError:
    others, spelt = majors_with(name), {one.lower(): one for one in names}
    near = [spelt[key] for key in difflib.get_close_matches(name.lower(), spelt, n=3, cutoff=0.7)] or nearest_gucs(
        name, major
    )
    hint = did_you_mean(near) if near else "omit the name to show all that is derived"
    if others:
        hint = f"PostgreSQL {', '.join(map(str, others))} has it: choose the server with --server"
    return SpecError(
        f"nothing is known of {name}",
        detail=f"PostgreSQL {major} has no such setting, and it is no famous line",
        hint=hint,
    )


def build_explained(view: TuningView, settings: Sequence[Explained]) -> Document:
    """Return the full explanation of each of these settings."""
    blocks: list[Block] = []
    for one in settings:
        if isinstance(one, FamousLine):
            blocks.append(_explain_line(view, one))
            continue
        if isinstance(one, Guc):
            blocks.append(_explain_setting(one))
            continue
        change = change_of(view, one)
        now = "as it is now" if change.is_same else "" if change.now is None else f"now {change.now or 'empty'}"
        beside = ", ".join(filter(None, (now, "" if change.is_same else COST_WORDS[one.change])))
        words = [f"{label}: {words}" for label, words in _facts(one) if words]
        if one in view.tuning.what_ifs:
            words.insert(0, "not part of the set: it gives up durability")
        title = f"{one.name} = {one.value}  ({beside})"
        blocks.append(Section(title=title, blocks=tuple(Prose(words=each) for each in words)))
    if settings == view.tuning.settings:
        shares = tuple(Prose(words=describe_share(share)) for share in view.tuning.memory)
        blocks.append(Section(title="Memory in the worst case", blocks=shares))
    return Document(title=describe_subject(view), blocks=tuple(blocks), is_titled=False)


def _explain_line(view: TuningView, line: FamousLine) -> Section:
    """Return the judgement of a line that is not part of the set, with what this kernel has."""
    seen = view.tuning.subject.kernel.sysctls
    now = ", ".join(f"{name} = {seen[name]}" for name in line.names if name in seen)
    words = (*([f"now: {now}"] if now else []), f"why: {line.why}", f"source: {line.source}")
    title = f"{', '.join(line.names)}  ({line.verdict.value})"
    return Section(title=title, blocks=tuple(Prose(words=each) for each in words))


def _explain_setting(guc: Guc) -> Section:
    """Return what the server says of a setting for which nothing is derived."""
    cost = change_cost(guc.name, guc.major)
    words = [f"what: {guc.about}"]
    words += [f"built in: {show_setting(guc.name, guc.boot, guc.major) or 'empty'}"] if guc.boot is not None else []
    words += [f"a change takes: {COST_WORDS[cost]}"] if cost is not ChangeCost.FIXED else []
    words.append("why: no rule decides it here, so that it stays as it is.")
    words.append(f"source: pg_settings of PostgreSQL {guc.major}")
    return Section(title=f"{guc.name}  (nothing is derived)", blocks=tuple(Prose(words=each) for each in words))


def _facts(one: Derived) -> Iterator[tuple[str, str]]:
    yield "why", one.reason
    yield "formula", one.formula
    for known in one.inputs:
        yield "input", describe_input(known)
    yield "source", one.source
    yield "trades", one.trades


def describe_input(known: Known) -> str:
    """Describe an input: `memory 23.5 GB, measured: /proc/meminfo`."""
    return f"{known.name} {format_known(known)}, {known.origin.value}: {known.how}"

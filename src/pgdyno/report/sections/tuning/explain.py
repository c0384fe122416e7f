"""Explain a derived setting in full: formula, inputs with their sources, source and trade-off."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.facts.famous_lines import FamousLine, famous_names
from pgdyno.report.document import Block, Document, Prose, Section
from pgdyno.report.sections.tuning.view import COST_WORDS, TuningView, change_of, describe_subject, format_known
from pgdyno.tune.memory import describe_share
from pgdyno.tune.types import Derived, Known


def find_derived(view: TuningView, names: Sequence[str]) -> tuple[Derived | FamousLine, ...]:
    """Return the settings of these names, what-ifs included; the whole set where no name is given.

    A famous line that is not part of the set is returned with its judgement instead.

    Raises:
        SpecError: One of them is neither.
    """
    named: list[tuple[str, Derived | FamousLine]] = [*famous_names().items()]
    named += [(one.name, one) for one in (*view.tuning.what_ifs, *view.tuning.settings)]
    known = {name.lower(): one for name, one in named}
    unknown = next((name for name in names if name.lower() not in known), None)
    if unknown is not None:
        spelt = {name.lower(): name for name, _ in named}
        near = [spelt[name] for name in difflib.get_close_matches(unknown.lower(), known, n=3, cutoff=0.7)]
        raise SpecError(
            f"nothing is derived for {unknown}",
            detail="settings that keep their built-in value are not listed",
            hint=did_you_mean(near) if near else "omit the name to show all",
        )
    return tuple(known[name.lower()] for name in names) if names else view.tuning.settings


def build_explained(view: TuningView, settings: Sequence[Derived | FamousLine]) -> Document:
    """Return the full explanation of each of these settings."""
    blocks: list[Block] = []
    for one in settings:
        if isinstance(one, FamousLine):
            blocks.append(_explain_line(one))
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


def _explain_line(line: FamousLine) -> Section:
    """Return the judgement of a line that is not part of the set."""
    words = (f"why: {line.why}", f"source: {line.source}")
    title = f"{', '.join(line.names)}  ({line.verdict.value})"
    return Section(title=title, blocks=tuple(Prose(words=each) for each in words))


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

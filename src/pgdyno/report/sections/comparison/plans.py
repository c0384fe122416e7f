"""Say which statements the variants of a comparison plan differently, and what could not be asked."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pgdyno.analyse.comparison.plans import PlanChange, StatementPlans
from pgdyno.report.document import Block, Prose, Tone
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections.comparison.answers import WorkloadAnswers
from pgdyno.report.table import Table, code, columns, text
from pgdyno.units import count_subject, count_things

_WIDTH = 60
_MOST_NAMED = 4
_REMARK = (
    "Asked of the server after the load of each trial, by EXPLAIN, which executes nothing; for values that pgbench drew, the"
    " same for all variants. The first node from the top in which the plans differ is named; costs and row estimates are not"
    " compared."
)


def build_plans(answers: WorkloadAnswers) -> Iterator[Block]:
    """Yield what is to be said of the plans of a workload's statements; nothing where none were asked for."""
    differing = [one for one in answers.plans if one.differs]
    if differing:
        yield _make_table(differing)
    if words := _count_alike(answers.plans):
        yield Prose(words=words)
    for one in answers.plans:
        yield from (Prose(words=_describe_change(one, change)) for change in one.changes)
    for words in _list_missing(answers):
        yield Prose(words=words, tone=Tone.SMALL)


def headline_plans(answers: WorkloadAnswers) -> Iterator[Prose]:
    """Yield a sentence on the plans that differ between variants; nothing if all are alike."""
    differing = [one for one in answers.plans if one.differs]
    if not differing:
        return
    first = differing[0]
    nodes = ", ".join(f"{group.node} with {_name_variants(group.variants)}" for group in first.groups)
    others = len(differing) - 1
    more = f" {count_subject(others, 'more statement')} planned differently." if others else ""
    yield Prose(
        strong="Plans differ:", words=f"{_shorten(first.name)}: {nodes}.{more}", tone=Tone.SMALL, level=Level.HEADLINE
    )


def _make_table(differing: Sequence[StatementPlans]) -> Table:
    return Table(
        caption="Plans that differ",
        columns=columns("Statement", "First node that differs", "Variants"),
        rows=tuple(
            (
                code(_shorten(one.name)),
                code(group.node),
                text(_name_variants(group.variants)),
            )
            for one in differing
            for group in one.groups
        ),
        remark=_REMARK,
    )


def _count_alike(plans: Sequence[StatementPlans]) -> str:
    planned = [one for one in plans if one.groups]
    alike = sum(not one.differs for one in planned)
    if alike == 0:
        return ""
    if alike < len(planned):
        return f"The variants plan the other {count_things(alike, 'statement') if alike > 1 else 'statement'} alike."
    return f"The variants plan {f'all {alike} statements' if alike > 1 else 'the one statement'} alike."


def _describe_change(one: StatementPlans, change: PlanChange) -> str:
    return (
        f"With {change.variant}, {_shorten(one.name)} was planned differently in {change.other_count} of"
        f" {change.trials_count} trials: {change.other_node} instead of {change.node}."
    )


def _list_missing(answers: WorkloadAnswers) -> Iterator[str]:
    for one in answers.plans:
        by_reason: dict[str, list[str]] = {}
        for variant, reason in one.refused.items():
            by_reason.setdefault(reason, []).append(variant)
        for reason, variants in by_reason.items():
            of = f" with {_name_variants(variants)}" if one.groups or len(by_reason) > 1 else ""
            yield f"{_shorten(one.name)} has no plan{of}: {reason}."
        if one.unknown and one.groups:
            names = join_names([f":{name}" for name in one.unknown])
            yield f"{_shorten(one.name)} is planned without the value of {names}, which only a run of the script gives."
    for reason in answers.plans_missing:
        yield f"Plans could not be asked for: {reason}."


def _name_variants(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMED:
        return join_names(names)
    return join_names([*names[: _MOST_NAMED - 1], f"{len(names) - _MOST_NAMED + 1} others"])


def _shorten(name: str) -> str:
    return textwrap.shorten(name, _WIDTH, placeholder=" …")

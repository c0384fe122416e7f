"""Build the first page: what limits the server, how certain that is, what to do next and what it costs.

All statements come from findings and analysis, the most important first, each with the charts that show it. A load that
could not be judged is named with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.capacity import CEILING
from pgdyno.explain.commands import Command, MeasuredLoad, write_command
from pgdyno.explain.finding import Severity
from pgdyno.report.document import Block, Claim, Claims, Look, Prose, Section, Steps
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.lists import join_names
from pgdyno.report.sections import head
from pgdyno.report.sections.comparison.answers import answer_study
from pgdyno.report.sections.conditions.load_hosts import describe_load_room, list_load_proofs
from pgdyno.report.sections.findings import (
    EVERYWHERE,
    FindingText,
    join_places,
    list_explained_workloads,
    list_explanations,
    list_limited_loads,
    make_claim,
    name_workloads,
)
from pgdyno.report.sections.next_steps import list_steps
from pgdyno.report.sections.price.words import describe_costs
from pgdyno.report.sections.step import NextStep, StepCertainty

_STEP_BADGES = {StepCertainty.SETTLES: "experiment"}
# The first page shows at most this many explanations.
_MOST_SHOWN, _LEAST_SHOWN = 6, 3
_MOST_STEPS = 5


class FirstPage(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the first page."""

    explained: tuple[FindingText, ...]
    """The limit of each load first, then the other explanations of the figures, then further limits of the same loads."""
    limited: frozenset[str]
    """The loads whose limit is known."""
    not_judged: tuple[str, ...]
    """The loads that were not judged, in sentences with reasons."""
    steps: tuple[NextStep, ...]
    costs: tuple[str, ...]
    """The costs in sentences; where no price is known, how to give one."""

    @property
    def shown(self) -> tuple[FindingText, ...]:
        """The explanations that are shown: one limit of each load, critical findings, and as many others as have room."""
        grave = sum(one.rule == LIMITS or one.severity is not Severity.NOTE for one in self.explained)
        further = sum(one.rule == CEILING and self.limited.issuperset(one.names) for one in self.explained)
        return self.explained[: min(_MOST_SHOWN, max(grave, _LEAST_SHOWN), len(self.explained) - further)]

    @property
    def next_steps(self) -> tuple[NextStep, ...]:
        """The first of the steps."""
        return self.steps[:_MOST_STEPS]


def make_first_page(report: ReportInput) -> FirstPage:
    """Make the content of the first page of a study's report."""
    explained = list_explanations(report)
    return FirstPage(
        explained=explained,
        limited=list_limited_loads(report),
        not_judged=_list_not_judged(report),
        steps=list_steps(report, answer_study(report), explained),
        costs=describe_costs(report),
    )


def build_first_page(report: ReportInput) -> Iterator[Section]:
    """Yield the first page: what limits the server, what to do next, what it costs."""
    page = make_first_page(report)
    explained = [make_claim(one, anchor=f"e{number}") for number, one in enumerate(page.explained, start=1)]
    shown, folded = explained[: len(page.shown)], explained[len(page.shown) :]
    open_ones = [Claim(badge="not determined", hue="slate", claim=words) for words in page.not_judged]
    limits: list[Block] = [Claims(claims=(*shown, *open_ones))]
    if folded:
        more = Claims(claims=tuple(folded), level=Level.STANDARD)
        limits += [
            Section(title="Also found", blocks=(more,), is_folded=True),
            Prose(words="", brief=f"{len(folded)} more: `pgdyno explain`", level=Level.HEADLINE),
        ]
    if proofs := list(list_load_proofs(report)):
        limits.append(Prose(words=" ".join(proofs), level=Level.HEADLINE))
    elif (room := describe_load_room(report)) is not None:
        # The evidence of a limit has it at length.
        limits.append(Prose(words="", brief=room, level=Level.HEADLINE))
    beside = []
    if page.next_steps:
        steps = Steps(steps=tuple(_make_step(step) for step in page.next_steps))
        beside.append(Section(title="Next steps", blocks=(steps,)))
    if page.costs:
        costs = tuple(Prose(words=words, level=Level.HEADLINE) for words in page.costs)
        beside.append(Section(title="Cost", blocks=costs))
    yield Section(
        title="",
        list_title="Summary",
        id="first-page",
        blocks=(Section(title="Bottlenecks", blocks=tuple(limits)),),
        beside=tuple(beside),
        look=Look.FRAME,
    )


def _make_step(step: NextStep) -> Claim:
    return Claim(
        badge=step.badge or _STEP_BADGES.get(step.standing, step.standing.value),
        hue=step.hue,
        claim=step.words,
        of=step.of,
        figures=step.gain,
        caution=step.caution,
        reason="" if step.reason is None else f"e{step.reason}",
        links=step.places,
    )


def _list_not_judged(report: ReportInput) -> tuple[str, ...]:
    """List the loads whose limit was not judged, with the reason."""
    judged = {finding.workload for finding in report.explanations if finding.rule == LIMITS}
    workloads = () if None in judged else list_explained_workloads(report)
    reasons: dict[str, list[str]] = {}
    for workload in workloads:
        if not judged & {workload.name, workload.load.name}:
            reasons.setdefault(_why_not_judged(workload, report), []).append(workload.name)
    return tuple(
        f"What limits {_name_loads(tuple(names), report)} was not determined: {reason}."
        for reason, names in reasons.items()
    )


def _name_loads(names: tuple[str, ...], report: ReportInput) -> str:
    named = name_workloads(names, report)
    if named == (EVERYWHERE,):
        return "these loads"
    return join_places(named) if any(", " in name for name in named) else join_names(named)


def _why_not_judged(workload: WorkloadAnalysis, report: ReportInput) -> str:
    if workload.representative is None:
        return "no trial is finished"
    if workload.load.is_loading:
        return "each step of loading has a limit of its own; the charts of its trials show them"
    if workload.load.failover is not None:
        return "its server ends within each trial; without the failover, the same load shows it"
    if any(head.is_mixed(trial) for trial in workload.trials):
        asked = MeasuredLoad(record=report.record, load=workload.load)
        bench = write_command(asked, Command.BENCH, "--stock-only")
        paired = 'paired trials show it (design = "paired" in [experiment])'
        return f"variants alternate in its trials; {f'`{bench}` shows it' if bench else paired}"
    if not any(trial.charts for trial in workload.trials):
        return "nothing was sampled while it ran"
    return "the samples do not show it"

"""What everybody reads, and many alone: what limits this server, how sure, what to do next and what it costs.

Words that others have concluded, in the order of their weight; each with the charts that show it. What could not be
judged is said, with its reason.
"""

from __future__ import annotations

import msgspec

from pgdyno.analyse.types import WorkloadAnalysis
from pgdyno.explain.bottleneck import LIMITS
from pgdyno.explain.finding import Severity
from pgdyno.report import content
from pgdyno.report.answers import answer_study
from pgdyno.report.experiment_words import join_names
from pgdyno.report.finding_words import (
    EVERYWHERE,
    FindingText,
    join_places,
    list_explained,
    list_explanations,
    list_findings,
    name_workloads,
)
from pgdyno.report.input import ReportInput
from pgdyno.report.next_steps import NextStep, list_steps
from pgdyno.report.price_words import describe_costs

# Who reads little reads so many.
_MOST_SHOWN, _LEAST_SHOWN = 6, 3
_MOST_STEPS = 5


class FirstPage(msgspec.Struct, frozen=True, kw_only=True):
    """A report in short."""

    explained: tuple[FindingText, ...]
    """What limits each load first, then what else makes the figures what they are."""
    not_judged: tuple[str, ...]
    """Sentences, with reasons."""
    steps: tuple[NextStep, ...]
    costs: tuple[str, ...]
    """Sentences; where no price is known, how to give one."""
    alarm: str
    """That the figures should not be used as they are; empty where they may."""

    @property
    def shown(self) -> tuple[FindingText, ...]:
        """What everybody reads of what is explained: limits and what is grave, and of the rest what there is room for."""
        grave = sum(one.rule == LIMITS or one.severity is not Severity.NOTE for one in self.explained)
        return self.explained[: min(_MOST_SHOWN, max(grave, _LEAST_SHOWN))]

    @property
    def folded(self) -> tuple[FindingText, ...]:
        """The rest of it."""
        return self.explained[len(self.shown) :]

    @property
    def next_steps(self) -> tuple[NextStep, ...]:
        """The first of the steps."""
        return self.steps[:_MOST_STEPS]


def make_first_page(report: ReportInput) -> FirstPage:
    """The first page of a study's report."""
    explained = list_explanations(report)
    return FirstPage(
        explained=explained,
        not_judged=_list_not_judged(report),
        steps=list_steps(report, answer_study(report), explained),
        costs=describe_costs(report),
        alarm=_describe_alarm(report),
    )


def _list_not_judged(report: ReportInput) -> tuple[str, ...]:
    """Loads of which nobody has said what limits them, with the reason."""
    judged = {finding.workload for finding in report.explanations if finding.rule == LIMITS}
    workloads = () if None in judged else list_explained(report)
    reasons: dict[str, list[str]] = {}
    for workload in workloads:
        if not judged & {workload.name, workload.load.name}:
            reasons.setdefault(_why_not_judged(workload), []).append(workload.name)
    return tuple(
        f"What limits {_name_loads(tuple(names), report)} was not judged: {reason}."
        for reason, names in reasons.items()
    )


def _name_loads(names: tuple[str, ...], report: ReportInput) -> str:
    named = name_workloads(names, report)
    if named == (EVERYWHERE,):
        return "these loads"
    return join_places(named) if any(", " in name for name in named) else join_names(list(named))


def _why_not_judged(workload: WorkloadAnalysis) -> str:
    if workload.representative is None:
        return "no trial is finished"
    if any(content.is_mixed(trial) for trial in workload.trials):
        return "variants alternate in its trials"
    if not any(trial.charts for trial in workload.trials):
        return "nothing was sampled while it ran"
    return "its samples do not tell"


def _describe_alarm(report: ReportInput) -> str:
    critical = [one for one in list_findings(report) if one.severity is Severity.CRITICAL]
    if not critical:
        return ""
    count = "one finding says" if len(critical) == 1 else f"{len(critical)} findings say"
    return f"These figures should not be used as they are: {count} why, under “What weakens the figures”."

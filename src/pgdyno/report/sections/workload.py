"""Build the section of a workload: its figures over all trials, their evidence, and every trial with its charts."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import msgspec

from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.report.charts.strip import strip_chart
from pgdyno.report.charts.trial import list_zero_charts, marked_events, trial_charts
from pgdyno.report.document import Block, ChartBlock, Charts, Code, Look, Prose, Section, Tone
from pgdyno.report.format import format_seconds
from pgdyno.report.input import ReportInput
from pgdyno.report.level import Level
from pgdyno.report.sections import head, trials
from pgdyno.report.sections.conditions.health import health_table
from pgdyno.report.sections.disk.uses import describe_uses, uses_table
from pgdyno.report.sections.durability import find_workload_losses
from pgdyno.report.sections.evidence import time_table
from pgdyno.report.sections.links import name_figure, name_time, name_trial_part, name_workload
from pgdyno.report.sections.predictions import predictions_table
from pgdyno.report.sections.quoted import course_table, growth_table, quoted_table, waiting_table
from pgdyno.report.table import Table
from pgdyno.units import count_things

# The size of all charts of a page, at about six bytes a value: 2.4 MB beside 0.9 MB of Vega, below 5 MB in all.
_VALUES_PER_PAGE = 400_000
# A chart is at most some 1,100 CSS pixels wide; more points than that cannot be seen.
_MOST_POINTS = 1_100
_FEWEST_POINTS = 60
_NOT_SAMPLED = "No samples exist of this trial; see “Not observed”."
_UNKNOWN_LINES = "Lines of pgbench that pgdyno does not recognise"


def build_workloads(report: ReportInput) -> Iterator[Section]:
    """Yield the section of each workload."""
    points = choose_points(report)
    has_answers = report.record.plan.search is not None or report.record.plan.experiment is not None
    for number, workload in enumerate(report.analysis.workloads, start=1):
        yield _build_workload(name_workload(number), workload, report, points=points, has_answers=has_answers)


def choose_points(report: ReportInput) -> int:
    """Return the most points of a series for which all charts of the page stay within its size."""
    series = sum(len(shown) for trial in report.analysis.trials for shown in trial.charts.values())
    return max(_FEWEST_POINTS, min(_MOST_POINTS, _VALUES_PER_PAGE // max(1, series)))


def _build_workload(
    part_id: str, workload: WorkloadAnalysis, report: ReportInput, *, points: int, has_answers: bool
) -> Section:
    losses = find_workload_losses(report, workload) if has_answers else ()
    return Section(
        title=workload.name,
        id=part_id,
        sub=_describe_size(workload) if has_answers else "",
        tag=f"durability given up: {', '.join(losses)}" if losses else "",
        blocks=(
            *_list_figures(part_id, workload, has_card=not has_answers),
            *_list_tables(part_id, workload),
            *_list_trials(part_id, workload, points),
        ),
        is_folded=has_answers,
        is_printed=False,
        is_listed=not has_answers,
    )


def _describe_size(workload: WorkloadAnalysis) -> str:
    count = len(workload.trials)
    failed = sum(trial.record.error is not None for trial in workload.trials)
    return f"{count_things(count, 'trial')}{f', {failed} failed' if failed else ''}"


def _list_figures(part_id: str, workload: WorkloadAnalysis, *, has_card: bool) -> Iterator[Block]:
    planned = workload.load
    if planned.is_loading:
        yield Prose(words=head.describe_load(planned), tone=Tone.SMALL)
        shares = trials.shares_table(workload)
        yield from [trials.loading_table(workload), *([] if shares is None else [shares])]
        return
    scripts = ", ".join(name if weight == 1 else f"{name} @ {weight}" for name, weight in planned.scripts)
    threads = count_things(planned.threads, "pgbench thread")
    yield Prose(words=f"{head.describe_load(planned)}, {threads}, scripts: {scripts}", tone=Tone.SMALL)
    if not has_card:
        yield from (Prose(words=words) for words in describe_uses(workload))
    if any(head.is_mixed(trial) for trial in workload.trials):
        yield Prose(words=head.MIXED_REMARK, tone=Tone.SMALL)
        shares = trials.shares_table(workload)
        yield from [shares] if shares is not None else []
        yield trials.blocks_table(workload)
        return
    strip, shares = strip_chart(workload), trials.shares_table(workload)
    beside: list[Block] = [] if strip is None else [ChartBlock(id=name_figure(part_id, "strip"), chart=strip)]
    if shares is not None:
        beside.append(shares)
    yield Section(title="", blocks=(trials.result_table(workload),), beside=tuple(beside))
    yield trials.trials_table(workload)


def _list_tables(part_id: str, workload: WorkloadAnalysis) -> Iterator[Table]:
    made = (
        uses_table(workload),
        predictions_table(workload),
        trials.counts_table(workload),
        trials.statements_table(workload),
        _fold(time_table(workload), name_time(part_id)),
        _fold(health_table(workload), name_figure(part_id, "health")),
        _fold(trials.all_counts_table(workload)),
        _fold(quoted_table(workload)),
        _fold(course_table(workload)),
        _fold(None if workload.limit_trial is None else waiting_table(workload.limit_trial)),
        _fold(None if workload.limit_trial is None else growth_table(workload.limit_trial)),
    )
    yield from (table for table in made if table is not None)


def _fold(table: Table | None, anchor: str = "") -> Table | None:
    return None if table is None else msgspec.structs.replace(table, level=Level.DETAIL, id=anchor)


def _list_trials(part_id: str, workload: WorkloadAnalysis, points: int) -> Iterator[Block]:
    representative = workload.representative
    if representative is None:
        yield Prose(words="No trial of this workload is finished.", tone=Tone.SMALL)
    else:
        rank = trials.name_rank(workload, representative)
        what = (
            "time of loading"
            if workload.load.is_loading
            else "TPS before the failover"
            if workload.load.failover
            else "TPS"
        )
        why = f"; the trial with the {rank} {what}" if rank else ""
        yield _build_trial(part_id, representative, points, why=why, is_folded=False)
    for trial in workload.trials:
        if trial is not representative:
            yield _build_trial(part_id, trial, points, why="", is_folded=trial.record.error is None)


def _build_trial(part_id: str, trial: TrialAnalysis, points: int, *, why: str, is_folded: bool) -> Section:
    return Section(
        title=head.name_trial(trial).capitalize(),
        sub=f"{head.describe_trial(trial)}{why}",
        id=name_trial_part(part_id, trial),
        blocks=tuple(_list_trial(name_trial_part(part_id, trial), trial, points)),
        look=Look.TRIAL,
        is_folded=is_folded,
        is_printed=False,
    )


def _list_trial(part_id: str, trial: TrialAnalysis, points: int) -> Iterator[Block]:
    error = trial.record.error
    if error is not None:
        yield Prose(strong=f"Failed: {error.fact}", words=error.hint, tone=Tone.ALARM)
        if error.detail:
            yield Code(lines=error.detail)
    if trial.charts:
        yield from _list_charts(part_id, trial, points)
    elif error is None:
        yield Prose(words=_NOT_SAMPLED, tone=Tone.SMALL)
    if trial.unknown_lines:
        yield Code(purpose=_UNKNOWN_LINES, lines="\n".join(trial.unknown_lines))
    events = trials.events_table(trial)
    if events is not None:
        yield msgspec.structs.replace(events, level=Level.DETAIL)


def _list_charts(part_id: str, trial: TrialAnalysis, points: int) -> Iterator[Block]:
    @functools.cache
    def draw() -> tuple[ChartBlock, ...]:
        charts = trial_charts(trial, points=points)
        return tuple(ChartBlock(id=name_figure(part_id, chart.kind), chart=chart) for chart in charts)

    yield Charts(draw=draw, keys=tuple(_list_keys(trial)))
    zeros = list_zero_charts(trial)
    if zeros:
        yield Prose(words=f"Not drawn, because every value is 0: {', '.join(zeros)}.", tone=Tone.SMALL)


def _list_keys(trial: TrialAnalysis) -> Iterator[tuple[str, str]]:
    if trial.steady_from_s:
        from_s = format_seconds(trial.steady_from_s)
        # Not all of that is unsteady: only whole seconds count, from the end of the first transaction on.
        yield "shade", f"before the steady part: the first {from_s} (points are whole seconds)"
    kinds = {event.kind for event in marked_events(trial)}
    marks = (("checkpoint", "amber"), ("level shift", "purple"), ("error", "critical"))
    yield from ((hue, kind) for kind, hue in marks if kind in kinds)

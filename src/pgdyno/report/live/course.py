"""Tell the plan of a record and how far it has come, and draw the trial of the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pgdyno.analyse.series import ChartKind, Series
from pgdyno.analyse.trial.analysis import analyse_trial
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.facts.metrics import find_metric
from pgdyno.plan.types import Plan, PlannedSweep, PlannedTrial
from pgdyno.record.running_trial import RunningTrial
from pgdyno.record.types import StudyRecord, TrialStatus
from pgdyno.report.charts.chart import Chart, LegendEntry
from pgdyno.report.charts.trial import trial_charts
from pgdyno.report.format import format_number
from pgdyno.report.sections.head import title_study

# More points than this cannot be told apart on a screen.
_MOST_POINTS = 240
_SHOWN = (ChartKind.TPS, ChartKind.LATENCY, ChartKind.CPU, ChartKind.WAITS, ChartKind.DISK_IOPS, ChartKind.DISK_LATENCY)


class TrialLine(msgspec.Struct, frozen=True, kw_only=True):
    """A planned trial and what became of it."""

    number: int
    workload: str
    variant: str
    state: str
    """`waiting`, `running`, `finished` or `failed`."""
    tps: str = ""


class EndedTrial(NamedTuple):
    """A trial that ended."""

    is_finished: bool
    tps: float | None
    """None if it failed, or if its load has no rate: loading data."""


class CourseView(msgspec.Struct, frozen=True, kw_only=True):
    """The plan, and how far the record has come."""

    title: str
    place: str
    machine: str
    started: str
    state: str
    finished_count: int
    planned_count: int
    left_s: float
    """Predicted seconds of the planned trials that have not run, and of the sweep that follows; 0 once the record has ended."""
    trials: tuple[TrialLine, ...]


class ChartView(msgspec.Struct, frozen=True, kw_only=True):
    """A chart over a trial's time, without the way in which it is drawn."""

    kind: str
    title: str
    unit: str
    alt: str
    is_wide: bool
    legend: tuple[LegendEntry, ...]
    columns: tuple[dict[str, list[float | None]], ...]
    marks: dict[str, list[dict[str, object]]]


class TrialView(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with its charts and events."""

    number: int
    words: str
    state: str
    until_s: float
    charts: tuple[ChartView, ...]
    events: tuple[str, ...]


def view_course(
    record: StudyRecord,
    *,
    place: str,
    state: str,
    trials: Sequence[PlannedTrial],
    ended: Mapping[int, EndedTrial],
    running: Sequence[int],
    sweep: PlannedSweep | None = None,
) -> CourseView:
    """Tell how far a record has come.

    Args:
        record: The record.
        place: Its folder as the user would type it.
        state: Such as `being measured`.
        trials: All trials, those that began as they run.
        ended: The trials that ended, by number.
        running: The numbers of the trials that began and did not end.
        sweep: What follows and has not begun, which counts as well.
    """
    is_over = state == "ended"
    follows_s = 0.0 if sweep is None else sweep.predicted_s
    waiting = [step for step in record.plan.steps if step.trial is not None and step.trial.number not in ended]
    return CourseView(
        title=title_study(record),
        place=place,
        machine=f"PostgreSQL {record.server.version}{_place_server(record)}",
        started=record.started_at,
        state=state,
        finished_count=sum(1 for trial in ended.values() if trial.is_finished),
        planned_count=len(trials) + (0 if sweep is None else sweep.trial_count),
        left_s=0.0 if is_over else sum(step.predicted_s for step in waiting) + follows_s,
        trials=tuple(
            TrialLine(
                number=trial.number,
                workload=trial.workload,
                variant=_name_variants(record.plan, trial),
                state=_name_state(trial.number, ended, running),
                tps=_tell_tps(ended.get(trial.number)),
            )
            for trial in trials
        ),
    )


def _place_server(record: StudyRecord) -> str:
    if record.host is None:
        return " on a server of yours"
    # Older records have no name of their machine.
    return "" if record.host.host_name is None else f" on {record.host.host_name}"


def _tell_tps(trial: EndedTrial | None) -> str:
    return "" if trial is None or trial.tps is None else format_number(trial.tps)


def _name_state(number: int, ended: Mapping[int, EndedTrial], running: Sequence[int]) -> str:
    if number in ended:
        return "finished" if ended[number].is_finished else "failed"
    return "running" if number in running else "waiting"


def _name_variants(plan: Plan, trial: PlannedTrial) -> str:
    if plan.experiment is None or not trial.variants:
        return f"{trial.rate_tps:,g} TPS scheduled" if trial.rate_tps else ""
    return " and ".join(trial.variants)


def view_trial(record: StudyRecord, trial: TrialAnalysis, *, state: str = "") -> TrialView:
    """Draw a trial."""
    planned = trial.record.planned
    shown = msgspec.structs.replace(trial, charts={kind: trial.charts[kind] for kind in _SHOWN if kind in trial.charts})
    named = " · ".join(filter(None, (planned.workload, _name_variants(record.plan, planned))))
    is_finished = trial.record.status is TrialStatus.FINISHED
    return TrialView(
        number=planned.number,
        words=named,
        state=state or ("finished" if is_finished else "failed"),
        until_s=max([planned.duration_s, *(one.t_s[-1] for of in shown.charts.values() for one in of if one.t_s)]),
        charts=tuple(_strip(chart) for chart in trial_charts(shown, points=_MOST_POINTS)),
        events=tuple(event.text for event in trial.events),
    )


def view_running(record: StudyRecord, trial: TrialAnalysis) -> TrialView:
    """Draw a trial that still runs."""
    return view_trial(record, trial, state="running")


def analyse_running(record: StudyRecord, trial: RunningTrial) -> TrialAnalysis:
    """Analyse a trial that still runs, with the seconds that pgbench has told."""
    load = record.plan.find_load(trial.data.record.planned)
    analysed = analyse_trial(record.at(trial.data.record.planned.variants), load, trial.data)
    return msgspec.structs.replace(analysed, charts={**_draw_seconds(trial), **analysed.charts})


def _draw_seconds(trial: RunningTrial) -> dict[ChartKind, tuple[Series, ...]]:
    """Draw the progress lines; each is at the middle of its second, as in the report."""
    if not trial.seconds:
        return {}
    t_s = tuple(one.elapsed_s - 0.5 for one in trial.seconds)
    unit = find_metric("latency_mean_ms").unit
    means = tuple(one.latency_average_ms for one in trial.seconds)
    tps = Series(metric="tps", label="TPS", unit="tps", t_s=t_s, values=tuple(one.tps for one in trial.seconds))
    latency = Series(metric="latency_mean_ms", label="mean", unit=unit, t_s=t_s, values=means)
    drawn: dict[ChartKind, tuple[Series, ...]] = {ChartKind.TPS: (tps,)}
    if any(mean is not None for mean in means):
        drawn[ChartKind.LATENCY] = (latency,)
    return drawn


def _strip(chart: Chart) -> ChartView:
    return ChartView(
        kind=chart.kind,
        title=chart.title,
        unit=chart.unit,
        alt=chart.alt,
        is_wide=chart.is_wide,
        legend=chart.legend,
        columns=chart.columns,
        marks=chart.marks,
    )

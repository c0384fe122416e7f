"""Name a report's figures as metric families for monitoring systems: what each trial saw over time, verdicts, and events.

A name is `pgdyno_` and the metric's name in report.json, unit included. Values are those of the report to the last digit.
What was not observed is left out, because these systems have no null. The value of an event is the time at which it was,
since Grafana makes annotations of such series.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pgdyno.analyse.comparison.answers import Comparison, Question
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.record.types import TrialRecord
from pgdyno.report.exports.tables import list_figures
from pgdyno.report.input import ReportInput

# Source: OpenMetrics 1.0.0, “ABNF”: metricname; a colon is kept for rules.
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")
_EVENT = "pgdyno_event_time_s"
_EVENT_HELP = "When something happened, in seconds since the epoch."


class Point(msgspec.Struct, frozen=True):
    """A value at a time, in seconds since the epoch."""

    at_s: float
    value: float


class Line(msgspec.Struct, frozen=True):
    """What a metric was over time for one set of labels."""

    labels: dict[str, str]
    points: tuple[Point, ...]
    """By time."""


NamedLine = tuple[str, str, Line]
"""The name of a metric, what it means, and a line of it."""


class Family(msgspec.Struct, frozen=True):
    """All lines of a metric, each with labels of its own."""

    name: str
    help: str
    lines: tuple[Line, ...]


def list_families(report: ReportInput) -> list[Family]:
    """Return the metric families of a report and of the sweep over clients that followed, by name."""
    return sort_lines(_list_all(report))


def sort_lines(named: Iterable[NamedLine]) -> list[Family]:
    """Return the metric families of named lines, by name."""
    words: dict[str, str] = {}
    lines: dict[str, list[Line]] = {}
    for metric, meaning, line in named:
        if line.points:
            name = _NO_NAME.sub("_", metric)
            words.setdefault(name, meaning)
            lines.setdefault(name, []).append(line)
    return [Family(name, words[name], tuple(lines[name])) for name in sorted(lines)]


def list_studies(report: ReportInput) -> list[tuple[str, StudyAnalysis]]:
    """Return the study of a report and the sweep that followed it, each with the name of its record."""
    scaling, record = report.analysis.scaling, name_record(Path(report.record_dir))
    # The sweep is a record of its own, whose trials count from 1 again.
    return [(record, report.analysis), *([] if scaling is None else [(name_sweep(record), scaling.analysis)])]


def name_record(folder: Path) -> str:
    """Return the name of a record's folder, also where its path is "." or ".."; a link keeps its own name."""
    absolute = folder.absolute()
    return absolute.resolve().name if absolute.name == ".." else absolute.name


def name_sweep(record: str) -> str:
    """Return the name of the sweep that follows a record."""
    return f"{record}/clients"


def _list_all(report: ReportInput) -> Iterator[NamedLine]:
    for name, study in list_studies(report):
        for trial in study.trials:
            labels = label_trial(name, trial)
            yield from list_seconds(trial, labels)
            yield from list_trial(trial, labels)
        yield from list_verdicts(study, name)


def label_trial(record: str, trial: TrialAnalysis) -> dict[str, str]:
    """Return the labels of a trial; of a search, its rate is one of them."""
    planned = trial.record.planned
    rate = {} if planned.rate_tps is None else {"rate_tps": f"{planned.rate_tps:.15g}"}
    # As in a verdict: the analysis names a load by its variant, too.
    names = {"workload": planned.workload, "variants": ", ".join(planned.variants), "trial": str(planned.number)}
    return {"record": record, **names, **rate}


def list_seconds(trial: TrialAnalysis, labels: dict[str, str]) -> Iterator[NamedLine]:
    """Yield what a trial saw over the time of its load."""
    start_s = _start_s(trial)
    if start_s is None:
        return
    for kind, lines in trial.charts.items():
        for line in lines:
            pairs = zip(line.t_s, line.values, strict=True)
            points = (point for t_s, value in pairs if (point := _point(start_s + t_s, value)) is not None)
            of_line = {**labels, "chart": kind.value, "series": line.label}
            yield f"pgdyno_{line.metric}", f"Over the load of a trial, in {line.unit}.", Line(of_line, tuple(points))


def list_trial(trial: TrialAnalysis, labels: dict[str, str], *, began_s: float | None = None) -> Iterator[NamedLine]:
    """Yield when a trial began, and its figures if it ended.

    Args:
        trial: The trial.
        labels: Its labels.
        began_s: When its load began, in seconds since the epoch; None: as its record says.
    """
    begun = _point(*(began_s or _start_s(trial) or math.nan,) * 2)
    if begun is not None:
        yield _EVENT, _EVENT_HELP, Line({**labels, "event": "trial begins"}, (begun,))
    end_s = _end_s(trial)
    if end_s is None or _start_s(trial) is None:
        return
    for name, figure in list_figures(trial).items():
        point = _point(end_s, figure)
        if point is not None:
            yield f"pgdyno_trial_{name}", "A figure of a whole trial, at the end of its load.", Line(labels, (point,))


def list_verdicts(study: StudyAnalysis, record: str) -> Iterator[NamedLine]:
    """Yield the verdicts of a study at the end of its last trial, and those that are decided as events."""
    ends = [(end_s, trial.record) for trial in study.trials if (end_s := _end_s(trial)) is not None]
    if not ends:
        return
    of_parts = {one.comparison.workload: one.workload for one in study.part_comparisons}
    for comparison in study.list_judged():
        workload = of_parts.get(comparison.workload, comparison.workload)
        yield from _list_questions(comparison, record, max(end_s for end_s, _ in ends))
        own = [(end_s, one) for end_s, one in ends if one.planned.workload == workload]
        for question in comparison.questions:
            verdict = question.verdict
            if question.metric == comparison.primary and verdict.is_decided and own:
                at_s = _find_last_pair_s(question, (one for _, one in own)) or max(end_s for end_s, _ in own)
                of_variant = {"workload": comparison.workload, "variants": question.variant}
                decided = {"record": record, **of_variant, "event": "verdict", "verdict": verdict.kind.value}
                yield _EVENT, _EVENT_HELP, Line(decided, (Point(at_s, at_s),))


def _find_last_pair_s(question: Question, trials: Iterable[TrialRecord]) -> float | None:
    """Return the end of a question's last pair, in seconds since the epoch: other variants may go on after it."""
    for trial in trials if question.at_s else ():
        # After a reboot, the monotonic clock shows times again that earlier trials had.
        if trial.planned.number < (question.last_trial or 0):
            continue
        start_s, end_s = trial.load_start_monotonic_s, trial.load_end_monotonic_s
        if start_s is not None and end_s is not None and start_s <= question.at_s[-1] <= end_s:
            return question.at_s[-1] + trial.clock_offset_s
    return None


def _list_questions(comparison: Comparison, record: str, at_s: float) -> Iterator[NamedLine]:
    for question in (*comparison.questions, *comparison.noise):
        verdict = question.verdict
        labels = {
            "record": record,
            "workload": comparison.workload,
            "variant": question.variant,
            "reference": comparison.reference,
            "metric": question.metric,
        }
        decided = {**labels, "verdict": verdict.kind.value}
        yield (
            "pgdyno_verdict",
            "1 for the verdict on a variant against the reference.",
            Line(decided, (Point(at_s, 1),)),
        )
        for name, ratio in (
            ("pgdyno_effect_ratio", verdict.effect_ratio),
            ("pgdyno_effect_low_ratio", verdict.low_ratio),
            ("pgdyno_effect_high_ratio", verdict.high_ratio),
        ):
            point = _point(at_s, ratio)
            if point is not None:
                yield (
                    name,
                    "Change of a metric by a variant; its interval ends at low and high.",
                    Line(labels, (point,)),
                )


def _start_s(trial: TrialAnalysis) -> float | None:
    start_s = trial.record.load_start_monotonic_s
    return None if start_s is None else start_s + trial.record.clock_offset_s


def _end_s(trial: TrialAnalysis) -> float | None:
    end_s = trial.record.load_end_monotonic_s
    return None if end_s is None else end_s + trial.record.clock_offset_s


def _point(at_s: float, value: object) -> Point | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return Point(at_s, value)

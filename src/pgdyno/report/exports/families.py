"""Name a report's figures as metric families for monitoring systems: what each trial saw over time, and the verdicts.

A name is `pgdyno_` and the metric's name in report.json, unit included. Values are those of the report to the last digit.
What was not observed is left out, because these systems have no null.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pgdyno.analyse.comparison.answers import Comparison
from pgdyno.analyse.types import TrialAnalysis, WorkloadAnalysis
from pgdyno.report.exports.tables import list_figures
from pgdyno.report.input import ReportInput

# Source: OpenMetrics 1.0.0, “ABNF”: metricname; a colon is kept for rules.
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")


class Point(msgspec.Struct, frozen=True):
    """A value at a time, in seconds since the epoch."""

    at_s: float
    value: float


class Line(msgspec.Struct, frozen=True):
    """What a metric was over time for one set of labels."""

    labels: dict[str, str]
    points: tuple[Point, ...]
    """By time."""


class Family(msgspec.Struct, frozen=True):
    """All lines of a metric, each with labels of its own."""

    name: str
    help: str
    lines: tuple[Line, ...]


def list_families(report: ReportInput) -> list[Family]:
    """Return the metric families of a report and of the sweep over clients that followed, by name."""
    words: dict[str, str] = {}
    lines: dict[str, list[Line]] = {}
    for metric, meaning, line in _list_all(report):
        if line.points:
            name = _NO_NAME.sub("_", metric)
            words.setdefault(name, meaning)
            lines.setdefault(name, []).append(line)
    return [Family(name, words[name], tuple(lines[name])) for name in sorted(lines)]


def _list_all(report: ReportInput) -> Iterator[tuple[str, str, Line]]:
    scaling, record = report.analysis.scaling, Path(report.record_dir).name
    # The sweep is a record of its own, whose trials count from 1 again.
    studies = [(record, report.analysis), *([] if scaling is None else [(f"{record}/clients", scaling.analysis)])]
    for name, study in studies:
        for workload in study.workloads:
            for trial in workload.trials:
                yield from _list_trial(trial, {"record": name, **_label(workload, trial)})
        ends = [_end_s(trial) for workload in study.workloads for trial in workload.trials]
        known_s = [end for end in ends if end is not None]
        for comparison in study.comparisons if known_s else ():
            yield from _list_verdicts(comparison, name, max(known_s))


def _label(workload: WorkloadAnalysis, trial: TrialAnalysis) -> dict[str, str]:
    planned = trial.record.planned
    return {"workload": workload.name, "variants": ", ".join(planned.variants), "trial": str(planned.number)}


def _list_trial(trial: TrialAnalysis, labels: dict[str, str]) -> Iterator[tuple[str, str, Line]]:
    record = trial.record
    if record.load_start_monotonic_s is None or (end_s := _end_s(trial)) is None:
        return
    start_s = record.load_start_monotonic_s + record.clock_offset_s
    for kind, lines in trial.charts.items():
        for line in lines:
            pairs = zip(line.t_s, line.values, strict=True)
            points = (point for t_s, value in pairs if (point := _point(start_s + t_s, value)) is not None)
            of_line = {**labels, "chart": kind.value, "series": line.label}
            yield f"pgdyno_{line.metric}", f"Over the load of a trial, in {line.unit}.", Line(of_line, tuple(points))
    for name, figure in list_figures(trial).items():
        point = _point(end_s, figure)
        if point is not None:
            yield f"pgdyno_trial_{name}", "A figure of a whole trial, at the end of its load.", Line(labels, (point,))


def _list_verdicts(comparison: Comparison, record: str, at_s: float) -> Iterator[tuple[str, str, Line]]:
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


def _end_s(trial: TrialAnalysis) -> float | None:
    end_s = trial.record.load_end_monotonic_s
    return None if end_s is None else end_s + trial.record.clock_offset_s


def _point(at_s: float, value: object) -> Point | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return Point(at_s, value)

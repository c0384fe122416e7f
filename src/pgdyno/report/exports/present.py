"""Return the present metrics of a record that is being measured, for a monitoring system that asks again and again.

Names, labels and values are those of `families.py`, each line with its last value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from pgdyno.analyse.types import TrialAnalysis
from pgdyno.report.exports.families import (
    Family,
    Line,
    NamedLine,
    Point,
    label_trial,
    list_seconds,
    list_studies,
    list_trial,
    list_verdicts,
    sort_lines,
)
from pgdyno.report.input import ReportInput

MOST_TRIALS = 50
"""How many ended trials are told. A system that does not ask while that many trials run misses some."""


class PresentTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial that runs."""

    record: str
    """The name of its record."""
    trial: TrialAnalysis


class PresentCourse(msgspec.Struct, frozen=True, kw_only=True):
    """How far a record has come."""

    finished_count: int
    planned_count: int
    left_s: float
    """By the plan, at most."""
    is_measured: bool


def list_present_families(
    report: ReportInput,
    *,
    course: PresentCourse,
    running: PresentTrial | None = None,
    began_s: Mapping[tuple[str, int], float] | None = None,
) -> list[Family]:
    """Return the metric families of a record with the present value of each line.

    Args:
        report: The trials that ended, and their verdicts.
        course: How far the record has come.
        running: The trial that runs; None where there is none, or its seconds cannot be shown.
        began_s: By record and trial, when the load began as it was first reported, so that the time does not change.
    """
    lines = _list_all(report, course, running, began_s or {})
    return sort_lines((name, meaning, Line(line.labels, line.points[-1:])) for name, meaning, line in lines)


def _list_all(
    report: ReportInput, course: PresentCourse, running: PresentTrial | None, began_s: Mapping[tuple[str, int], float]
) -> Iterator[NamedLine]:
    studies = list_studies(report)
    yield from _list_course(course, studies[0][0])
    ended = [(name, trial) for name, study in studies for trial in study.trials]
    ended.sort(key=lambda one: (one[0], one[1].record.planned.number))
    for name, trial in ended[-MOST_TRIALS:]:
        known_s = began_s.get((name, trial.record.planned.number))
        yield from list_trial(trial, label_trial(name, trial), began_s=known_s)
    if running is not None:
        trial = running.trial
        labels = label_trial(running.record, trial)
        yield from list_seconds(trial, labels)
        known_s = began_s.get((running.record, trial.record.planned.number))
        begins = list_trial(trial, labels, began_s=known_s)
        # It has no figures before its end.
        yield from (one for one in begins if "event" in one[2].labels)
    for name, study in studies:
        yield from list_verdicts(study, name)


def _list_course(course: PresentCourse, record: str) -> Iterator[NamedLine]:
    for name, meaning, value in (
        ("finished_trials_count", "Trials that finished.", course.finished_count),
        ("planned_trials_count", "Trials that are planned; fewer may be enough.", course.planned_count),
        ("left_s", "What is left by the plan, at most, in s.", course.left_s),
        ("is_measured", "1 while the record is being measured.", int(course.is_measured)),
    ):
        yield f"pgdyno_{name}", meaning, Line({"record": record}, (Point(0.0, value),))

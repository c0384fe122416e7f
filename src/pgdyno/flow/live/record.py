"""Read a record again and again while it is being measured, as JSON for the live page and as metrics for a monitoring system.

Only the record's own files are read, and of them only what is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import ScalingStudy, StudyAnalysis
from pgdyno.analyse.trial.memory import TrialMemory
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.conduct.progress import Stage, find_waiting_sweep, read_progress
from pgdyno.explain.doubts.comparison import EARLY_END
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.flow.live.earlier import EarlierResults
from pgdyno.flow.records.results import list_results
from pgdyno.plan.types import PlannedTrial
from pgdyno.record.running_trial import RunningTrialReader, read_planned
from pgdyno.record.store import RecordStore, read_trial
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import StudyRecord, TrialStatus
from pgdyno.report.exports.families import Family, name_record, name_sweep
from pgdyno.report.exports.present import PresentCourse, PresentTrial, list_present_families
from pgdyno.report.input import ReportInput
from pgdyno.report.live.answers import view_answers
from pgdyno.report.live.course import (
    CourseView,
    EndedTrial,
    TrialView,
    analyse_running,
    view_course,
    view_running,
    view_trial,
)
from pgdyno.report.live.history import view_histories
from pgdyno.spec.variant import DesignKind


class _Part:
    """One of the two records of a study, with what is known of its trials.

    Args:
        store: The record, which may not exist yet.
        name: Its name in metrics.
    """

    def __init__(self, store: RecordStore, name: str) -> None:
        self.store, self.name = store, name
        self.data: dict[int, TrialData] = {}
        self.began_s: dict[int, float] = {}
        """When the load of each trial began, as it was first seen."""
        self.memory = TrialMemory()
        self._stamps: dict[int, tuple[int, int]] = {}

    def read_ended(self) -> bool:
        """Read the trials that ended since the last time, and drop those that were set aside; return whether there were any."""
        paths = self.store.list_trial_files()
        # A trial that is set aside is run again under its number.
        stamps = {number: stamp for number, path in paths.items() if (stamp := _stamp(path)) is not None}
        gone = [number for number, stamp in self._stamps.items() if stamps.get(number) != stamp]
        for number in gone:
            del self.data[number], self._stamps[number]
            self.began_s.pop(number, None)
            self.memory.forget(number)
        news = stamps.keys() - self._stamps.keys()
        for number in news:
            self.data[number] = read_trial_data(self.store.trial_dir(number), read_trial(paths[number]))
            self._stamps[number] = stamps[number]
        return bool(gone or news)

    def analyse_trial(self, record: StudyRecord, data: TrialData) -> TrialAnalysis:
        """Analyse a trial that ended."""
        planned = data.record.planned
        return self.memory.analyse(record.at(planned.variants), record.plan.find_load(planned), data)

    def list_trials(self, record: StudyRecord) -> dict[int, PlannedTrial]:
        """Return all trials by number, those that began as they run: a search chooses the rate of each just before."""
        planned = {trial.number: trial for trial in record.plan.trials}
        ended = {number: data.record.planned for number, data in self.data.items()}
        begun = {number: read_planned(self.store.trial_dir(number)) for number in self.store.interrupted_numbers()}
        return {**planned, **ended, **{number: trial for number, trial in begun.items() if trial is not None}}

    def list_ends(self, record: StudyRecord) -> dict[int, EndedTrial]:
        """Return how each trial ended, with its TPS as in the report, by number."""
        return {number: self._tell_end(record, data) for number, data in self.data.items()}

    def _tell_end(self, record: StudyRecord, data: TrialData) -> EndedTrial:
        if data.record.status is not TrialStatus.FINISHED:
            return EndedTrial(is_finished=False, tps=None)
        seen = self.analyse_trial(record, data)
        # A trial too short for a whole second has only pgbench's own TPS.
        return EndedTrial(is_finished=True, tps=seen.pgbench_tps if seen.tps is None else seen.tps)

    def analyse(self, record: StudyRecord) -> StudyAnalysis:
        """Analyse the trials that ended."""
        return analyse_study(record, [self.data[number] for number in sorted(self.data)], each=self.memory.analyse)


class LiveRecord:
    """Reads a record again and again, and only what is new.

    Args:
        store: The record.
        has_read: Whether the record was read before, so that its absence is an error.
    """

    def __init__(self, store: RecordStore, *, has_read: bool = False) -> None:
        self.store, self.has_read = store, has_read
        own = name_record(store.path)
        self._own, self._after = _Part(store, own), _Part(store.scaling, name_sweep(own))
        self._plan: tuple[_Part, StudyRecord] | None = None
        self._answers: bytes | None = None
        self._looks: object = None
        self._report: ReportInput | None = None
        self._earlier, self._histories = EarlierResults(store), b""
        self._course: tuple[CourseView, ...] = ()
        self._reader: RunningTrialReader | None = None
        self._reads: tuple[Path, int, PlannedTrial] | None = None
        """The folder of the reader's trial, its inode, and what the trial runs."""
        self._running: PresentTrial | None = None

    def read(self) -> Iterator[tuple[str, bytes]]:
        """Yield the parts of the page as JSON by name, the quickest first.

        Raises:
            PgdynoError: The record is gone, or damaged.
        """
        store = self.store
        record = store.read_record()
        self.has_read = True
        part = self._after if self._after.store.exists else self._own
        of = part.store.read_record()
        self._plan = (part, of)
        has_news = [one.read_ended() for one in (self._own, self._after)]
        stage = read_progress(store).stage
        yield "course", self._encode_course(record, stage)
        trials = tuple(self._list_trials(part, of, is_running=stage is Stage.BEING_MEASURED))
        yield "trials", msgspec.json.encode(trials)
        # The place of the final look changes the verdicts, too.
        looks = (record.final_looks, of.final_looks, stage)
        if any(has_news) or self._answers is None or looks != self._looks:
            self._looks = looks
            self._answers = self._encode_answers(record, is_running=stage is Stage.BEING_MEASURED)
            self._histories = b""
        yield "answers", self._answers
        if not self._histories:
            self._earlier.read_kept()
            self._histories = self._encode_histories()
        yield "history", self._histories

    @property
    def may_read_earlier(self) -> bool:
        """True if there is an earlier record to read, and no measurement beside it that this would disturb."""
        return self._earlier.is_free

    def read_earlier(self) -> None:
        """Read another of the earlier records that nobody has read yet, which takes as long as its report; none while a trial runs."""
        if self._earlier.read_next():
            self._histories = b""

    def read_seconds(self) -> Iterator[tuple[str, bytes]]:
        """Yield TPS and latency of the trial that runs, which takes a hundredth of the time of `read`."""
        known, reader, view = self._running, self._reader, None
        self._running = None
        if self._plan is not None and self.store.is_locked:
            part, record = self._plan
            trial = self._read_running(part, record, has_samples=False)
            if trial is not None:
                view = view_running(record, trial)
                if known is not None and reader is self._reader:
                    # What takes longer to read is as old as the last full reading.
                    trial = msgspec.structs.replace(trial, charts={**known.trial.charts, **trial.charts})
                self._note_running(part, trial)
        yield "seconds", msgspec.json.encode(view)

    def list_metrics(self) -> list[Family]:
        """Return the metrics as they were read last; none before the record is there."""
        if self._report is None:
            return []
        course = PresentCourse(
            finished_count=sum(part.finished_count for part in self._course),
            planned_count=sum(part.planned_count for part in self._course),
            left_s=sum(part.left_s for part in self._course),
            is_measured=self.store.is_locked,
        )
        parts = (self._own, self._after)
        began_s = {(part.name, number): began_s for part in parts for number, began_s in part.began_s.items()}
        return list_present_families(self._report, course=course, running=self._running, began_s=began_s)

    def _note_running(self, part: _Part, trial: TrialAnalysis) -> None:
        self._running = PresentTrial(record=part.name, trial=_keep_last(trial))
        if trial.record.load_start_monotonic_s is not None:
            # Each reading sees the load begin some milliseconds earlier or later.
            began_s = trial.record.load_start_monotonic_s + trial.record.clock_offset_s
            part.began_s.setdefault(trial.record.planned.number, began_s)

    def _read_running(self, part: _Part, record: StudyRecord, *, has_samples: bool) -> TrialAnalysis | None:
        """Read the trial whose seconds can be shown, if there is one."""
        for trial in self._find_running(part, record):
            folder = part.store.trial_dir(trial.number)
            if (stamp := _stamp(folder)) is None:
                continue
            reads = (folder, stamp[0], trial)
            if self._reader is None or self._reads != reads:
                self._reader, self._reads = RunningTrialReader(folder, trial), reads
                part.began_s.pop(trial.number, None)
            running = self._reader.read(has_samples=has_samples)
            if running is not None:
                return analyse_running(record, running)
        return None

    def _find_running(self, part: _Part, record: StudyRecord) -> list[PlannedTrial]:
        """Return the trial whose seconds can be shown, if there is one."""
        planned = part.list_trials(record)
        is_live = record.plan.experiment is not None and record.plan.experiment.design is DesignKind.LIVE
        begun = [planned[number] for number in part.store.interrupted_numbers() if number in planned]
        # The load of a live round pauses now and then: its seconds show the pauses, not the server.
        return [one for one in begun if not is_live or one.is_observed][-1:]

    def _encode_course(self, record: StudyRecord, stage: Stage) -> bytes:
        views = []
        for part in (self._own, self._after):
            if part.store.exists:
                of = record if part is self._own else part.store.read_record()
                running = [number for number in part.store.interrupted_numbers() if stage is Stage.BEING_MEASURED]
                views.append(
                    view_course(
                        of,
                        place=str(self._own.store.path),
                        state=stage.value,
                        trials=tuple(part.list_trials(of).values()),
                        ended=part.list_ends(of),
                        running=running,
                        sweep=find_waiting_sweep(part.store, of),
                    )
                )
        self._course = tuple(views)
        return msgspec.json.encode(views)

    def _list_trials(self, part: _Part, record: StudyRecord, *, is_running: bool) -> Iterator[TrialView]:
        """Yield the trial of the moment, and the last that samplers saw where it has no samples."""
        trial = self._read_running(part, record, has_samples=True) if is_running else None
        if trial is not None:
            self._note_running(part, trial)
            yield view_running(record, trial)
            return
        ended = [part.data[number] for number in sorted(part.data)]
        shown = ended[-1:]
        if shown and shown[0].os is None:
            shown += [data for data in ended if data.os is not None][-1:]
        for data in shown:
            yield view_trial(record, part.analyse_trial(record, data))

    def _encode_answers(self, record: StudyRecord, *, is_running: bool) -> bytes:
        analysis = self._own.analyse(record)
        if self._after.data:
            after = self._after.store.read_record()
            variant = after.study.variant[0].title if after.study.variant else None
            scaling = ScalingStudy(record=after, analysis=self._after.analyse(after), variant=variant)
            analysis = msgspec.structs.replace(analysis, scaling=scaling)
        found = find_doubts(record, analysis) if self._own.data else ()
        findings = tuple(one for one in found if not (is_running and one.rule == EARLY_END))
        self._report = ReportInput(
            record=record, analysis=analysis, findings=findings, record_dir=str(self._own.store.path)
        )
        return msgspec.json.encode(view_answers(self._report))

    def _encode_histories(self) -> bytes:
        report = self._report
        assert report is not None  # noqa: S101 - the answers come first
        present = list(list_results(self.store, report.record, report.analysis))
        after = report.analysis.scaling
        if after is not None:
            present += list_results(self._after.store, after.record, after.analysis)
        histories = self._earlier.collect(present)
        return msgspec.json.encode(view_histories(histories, unread_count=self._earlier.unread_count))


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return the inode of a file or folder and when it was changed, which tell it from one in its place; None if it is gone."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_ino, seen.st_mtime_ns


def _keep_last(trial: TrialAnalysis) -> TrialAnalysis:
    """Return a trial with the last point of each line: the memory of a page must not grow with its trial."""
    charts = {
        kind: tuple(msgspec.structs.replace(line, t_s=line.t_s[-1:], values=line.values[-1:]) for line in lines)
        for kind, lines in trial.charts.items()
    }
    return msgspec.structs.replace(trial, charts=charts)

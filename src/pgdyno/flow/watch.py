"""`pgdyno watch`: serve a page that shows a record while it is being measured, or as it ended.

Only the record's own files are read, so that the page shows a record of any process and cannot disturb what it shows.
Reading takes at most a small share of one CPU, and none while no browser looks.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import ScalingStudy, StudyAnalysis
from pgdyno.analyse.trial.memory import TrialMemory
from pgdyno.conduct.progress import Stage, read_progress
from pgdyno.conduct.ui import Ui
from pgdyno.errors import PgdynoError, why
from pgdyno.explain.doubts.comparison import OPEN_QUESTIONS
from pgdyno.explain.doubts.study import find_doubts
from pgdyno.plan.types import PlannedTrial
from pgdyno.record.running_trial import read_running_trial
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import TrialData, read_trial_data
from pgdyno.record.types import StudyRecord, TrialRecord, TrialStatus
from pgdyno.report.input import ReportInput
from pgdyno.report.live.answers import view_answers
from pgdyno.report.live.course import EndedTrial, TrialView, view_course, view_running, view_trial
from pgdyno.report.live.page import make_live_page
from pgdyno.run.host.clock import cpu_seconds, monotonic_s, wait
from pgdyno.run.page_server import Listener, Updates, describe_address, listen, make_token, serving
from pgdyno.spec.variant import DesignKind

_TICK_S = 1.0
# Of all CPUs, for reading all that is new: a long trial is read less often than a short one.
_CPU_SHARE = 0.002
# A busy machine makes a reading dearer for a while.
_LONGEST_PAUSE_S = 20.0
_NICEST = 19


class _Part:
    """One of the two records of a study, with what is known of its trials.

    Args:
        store: The record, which may not exist yet.
    """

    def __init__(self, store: RecordStore) -> None:
        self.store = store
        self.data: dict[int, TrialData] = {}
        self.memory = TrialMemory()

    def read_ended(self) -> bool:
        """Read the trials that ended since the last time; return whether there were any."""
        news = [trial for trial in self._list_ended() if trial.planned.number not in self.data]
        for trial in news:
            self.data[trial.planned.number] = read_trial_data(self.store.trial_dir(trial.planned.number), trial)
        return bool(news)

    def _list_ended(self) -> tuple[TrialRecord, ...]:
        return self.store.read_trials() if self.store.exists else ()

    def analyse(self, record: StudyRecord) -> StudyAnalysis:
        """Analyse the trials that ended."""
        return analyse_study(record, [self.data[number] for number in sorted(self.data)], each=self.memory.analyse)


class LiveRecord:
    """Reads a record again and again, and only what is new.

    Args:
        store: The record.
        has_read: Whether it was read before: it is no record that is still to come.
    """

    def __init__(self, store: RecordStore, *, has_read: bool = False) -> None:
        self.store, self.has_read = store, has_read
        self._own, self._after = _Part(store), _Part(store.scaling)
        self._plan: tuple[_Part, StudyRecord] | None = None
        self._answers: bytes | None = None
        self._looks: object = None

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
        yield "answers", self._answers

    def read_seconds(self) -> Iterator[tuple[str, bytes]]:
        """Yield TPS and latency of the trial that runs, which takes a hundredth of the time of `read`."""
        view = None
        if self._plan is not None and self.store.is_locked:
            part, record = self._plan
            for trial in self._find_running(part, record):
                running = read_running_trial(part.store.trial_dir(trial.number), trial, has_samples=False)
                view = None if running is None else view_running(record, running)
        yield "seconds", msgspec.json.encode(view)

    def _find_running(self, part: _Part, record: StudyRecord) -> list[PlannedTrial]:
        """Return the trial whose seconds can be shown, if there is one."""
        planned = {trial.number: trial for trial in record.plan.trials}
        is_live = record.plan.experiment is not None and record.plan.experiment.design is DesignKind.LIVE
        begun = [planned[number] for number in part.store.interrupted_numbers() if number in planned]
        # The load of a live round is frozen now and then: its seconds show the freezer, not the server.
        return [one for one in begun if not is_live or one.is_observed][-1:]

    def _encode_course(self, record: StudyRecord, stage: Stage) -> bytes:
        views = []
        for part in (self._own, self._after):
            if part.store.exists:
                ended = {number: _tell_end(data) for number, data in part.data.items()}
                of = record if part is self._own else part.store.read_record()
                running = [number for number in part.store.interrupted_numbers() if stage is Stage.BEING_MEASURED]
                views.append(
                    view_course(of, place=str(self._own.store.path), state=stage.value, ended=ended, running=running)
                )
        return msgspec.json.encode(views)

    def _list_trials(self, part: _Part, record: StudyRecord, *, is_running: bool) -> Iterator[TrialView]:
        """Yield the trial of the moment, and the last that samplers saw where it has no samples."""
        for trial in self._find_running(part, record) if is_running else ():
            running = read_running_trial(part.store.trial_dir(trial.number), trial)
            if running is not None:
                yield view_running(record, running)
                return
        ended = [part.data[number] for number in sorted(part.data)]
        shown = ended[-1:]
        if shown and shown[0].os is None:
            shown += [data for data in ended if data.os is not None][-1:]
        for data in shown:
            load = record.plan.find_load(data.record.planned)
            at = record.at(data.record.planned.variants)
            yield view_trial(record, part.memory.analyse(at, load, data))

    def _encode_answers(self, record: StudyRecord, *, is_running: bool) -> bytes:
        analysis = self._own.analyse(record)
        if self._after.data:
            after = self._after.store.read_record()
            variant = after.study.variant[0].title if after.study.variant else None
            scaling = ScalingStudy(record=after, analysis=self._after.analyse(after), variant=variant)
            analysis = msgspec.structs.replace(analysis, scaling=scaling)
        found = find_doubts(record, analysis) if self._own.data else ()
        findings = tuple(one for one in found if not (is_running and one.claim == OPEN_QUESTIONS))
        report = ReportInput(record=record, analysis=analysis, findings=findings, record_dir=str(self._own.store.path))
        return msgspec.json.encode(view_answers(report))


def _tell_end(data: TrialData) -> EndedTrial:
    is_finished = data.record.status is TrialStatus.FINISHED
    return EndedTrial(is_finished, data.pgbench.tps if is_finished and data.pgbench is not None else None)


def watch(store: RecordStore, *, port: int, ui: Ui) -> NoReturn:
    """Serve the page of a record until the user stops it.

    Raises:
        SpecError: Another program has the port.
    """
    opened, token = listen(port), make_token()
    ui.say(f"{store.path} is shown at {describe_address(opened, token)}; Ctrl-C ends it")
    serve_record(store, opened, token)


def serve_record(store: RecordStore, opened: Listener, token: str) -> NoReturn:
    """Serve the page of a record, which need not exist yet, until the user stops it."""
    # What the measurement leaves is enough.
    os.nice(_NICEST)
    page, updates = make_live_page(), Updates()
    with serving(opened, token=token, html=page.html, policy=page.policy, updates=updates):
        live, due_s, share = LiveRecord(store), 0.0, _CPU_SHARE * (os.cpu_count() or 1)
        try:
            while True:
                if not updates.wait_for_watcher(_TICK_S):
                    continue
                is_due = monotonic_s() >= due_s
                began_s = cpu_seconds()
                live = _update(live, updates, is_full=is_due)
                if is_due:
                    due_s = monotonic_s() + min((cpu_seconds() - began_s) / share, _LONGEST_PAUSE_S)
                wait(_TICK_S)
        finally:
            if updates.watchers:
                _update(live, updates, is_full=True)


def _update(live: LiveRecord, updates: Updates, *, is_full: bool) -> LiveRecord:
    """Show what is new, all of it or only the last second, and return the reader for the next time."""
    try:
        for name, content in itertools.chain(live.read() if is_full else (), live.read_seconds()):
            updates.put({name: content, "problem": b'""'})
    except (PgdynoError, OSError) as exc:
        if not live.has_read:
            return live
        updates.put({"problem": msgspec.json.encode(exc.reason if isinstance(exc, PgdynoError) else why(exc))})
        # What was read of a record that is gone may not pass for one that is made in its place.
        return LiveRecord(live.store, has_read=True)
    return live

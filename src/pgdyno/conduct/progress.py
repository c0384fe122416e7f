"""Tell how far a record has come: it is being measured, was interrupted, or has ended. Nothing of it is analysed."""

from __future__ import annotations

import enum

import msgspec

from pgdyno.plan.plan import PlannedSweep
from pgdyno.record.store import JSON_FILE, RecordStore
from pgdyno.record.types import StudyRecord


class Stage(enum.Enum):
    """How far a record has come."""

    BEING_MEASURED = "being measured"
    UNFINISHED = "unfinished"
    ENDED = "ended"
    """All trials are run, all questions are settled, or the time is over."""


class RecordProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a record has come, counting the trials of the sweep that follows it."""

    stage: Stage
    finished_count: int
    planned_count: int
    is_adaptive: bool
    """True if fewer than the planned trials may be enough."""

    @property
    def counted(self) -> str:
        """Return `12 of at most 72 trials are finished`."""
        most = "at most " if self.is_adaptive else ""
        return f"{self.finished_count} of {most}{self.planned_count} trials are finished"

    def describe(self, path: object) -> str:
        """Describe a record that has not ended; return an empty text for one that has."""
        if self.stage is Stage.ENDED:
            return ""
        goes_on = "" if self.stage is Stage.BEING_MEASURED else f"; `pgdyno resume {path}` continues"
        return f"{self.stage.value}: {self.counted}{goes_on}"


def read_progress(store: RecordStore) -> RecordProgress:
    """Read how far a record has come.

    Raises:
        SpecError: It cannot be read.
    """
    record = store.read_record()
    finished_count, planned_count = count_trials(store)
    plan, has_sweep = record.plan, record.plan.sweep is not None or store.scaling.exists
    is_adaptive = plan.experiment is not None or plan.search is not None or has_sweep
    has_all = finished_count == planned_count and (record.study.scaling is None or store.scaling.exists)
    # Records of before `is_ended` do not say whether fewer trials were to do; those that ended have a report.
    has_ended = is_adaptive and (store.path / JSON_FILE).exists() if record.is_ended is None else record.is_ended
    stage = Stage.ENDED if has_all or has_ended else Stage.UNFINISHED
    return RecordProgress(
        stage=Stage.BEING_MEASURED if store.is_locked else stage,
        finished_count=finished_count,
        planned_count=planned_count,
        is_adaptive=is_adaptive,
    )


def count_trials(store: RecordStore) -> tuple[int, int]:
    """Count a record's finished and planned trials, with those of the sweep that follows."""
    parts = [part for part in (store, store.scaling) if part.exists]
    records = [part.read_record() for part in parts]
    sweep = find_waiting_sweep(store, records[0])
    return (
        sum(len(part.finished_numbers()) for part in parts),
        sum(len(record.plan.trials) for record in records) + (0 if sweep is None else sweep.trial_count),
    )


def find_waiting_sweep(store: RecordStore, record: StudyRecord) -> PlannedSweep | None:
    """Return the sweep that follows a record; None where none does, or once it has begun."""
    return None if store.scaling.exists else record.plan.sweep


def note_end(store: RecordStore, *, is_ended: bool) -> None:
    """Note in a record and in the sweep that follows it whether they ran to their end.

    Raises:
        StepFailedError: It cannot be written.
    """
    for part in (store, store.scaling):
        if part.exists:
            part.write_record(msgspec.structs.replace(part.read_record(), is_ended=is_ended))

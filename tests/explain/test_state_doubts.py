from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.series import Event
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.explain.doubts.state import find_state_doubts
from pgdyno.record.types import StudyRecord, TableState
from tests.explain.test_doubts import analysis_of, make_trial_analysis
from tests.record.test_store import make_record


@pytest.fixture
def record() -> StudyRecord:
    return make_record()


def claims(record: StudyRecord, trials: list[TrialAnalysis]) -> list[str]:
    analysis = analysis_of(record)
    workload = msgspec.structs.replace(analysis.workloads[0], trials=tuple(trials))
    return [finding.claim for finding in find_state_doubts(record, StudyAnalysis(workloads=(workload,)))]


def tables(megabytes: int, *, live: int, dead: int) -> tuple[TableState, ...]:
    return (
        TableState(name="pgbench_accounts", bytes=megabytes * 1_000_000, live_rows=live, dead_rows=dead),
        TableState(name="pgbench_history", bytes=0, live_rows=0, dead_rows=0),
    )


def trial_with(study: StudyRecord, before: tuple[TableState, ...], after: tuple[TableState, ...]) -> TrialAnalysis:
    trial = make_trial_analysis(study, 1)
    seen = msgspec.structs.replace(trial.record, tables_before=before, tables_after=after)
    return msgspec.structs.replace(trial, record=seen)


def trial_with_checkpoints(study: StudyRecord, number: int, count: int) -> TrialAnalysis:
    events = tuple(Event(kind="checkpoint", t_s=float(at), until_s=None, text="") for at in range(count))
    return make_trial_analysis(study, number, events=events)


@pytest.mark.parametrize(("after_mb", "is_told"), [(100, False), (109, False), (112, True), (300, True)])
def test_data_that_grow_by_more_than_a_tenth_are_told(record: StudyRecord, after_mb: int, is_told: bool) -> None:
    trial = trial_with(record, tables(100, live=1000, dead=0), tables(after_mb, live=1000, dead=0))

    assert claims(record, [trial]) == ["The data grew while they were measured."] * is_told


@pytest.mark.parametrize(("dead", "is_told"), [(0, False), (90, False), (150, True)])
def test_dead_rows_above_a_tenth_are_told(record: StudyRecord, dead: int, is_told: bool) -> None:
    trial = trial_with(record, tables(100, live=1000, dead=0), tables(100, live=1000, dead=dead))

    assert claims(record, [trial]) == ["Dead rows piled up while trials ran."] * is_told


@pytest.mark.parametrize(
    ("counts", "is_told"), [((0, 0, 0), False), ((1, 1), False), ((0, 1), True), ((2, 3), True), ((3, 4, 5), False)]
)
def test_trials_that_saw_more_of_the_checkpoint_cycle_than_others_are_told(
    record: StudyRecord, counts: tuple[int, ...], is_told: bool
) -> None:
    trials = [trial_with_checkpoints(record, number, count) for number, count in enumerate(counts, start=1)]

    assert claims(record, trials) == ["Trials saw different parts of the checkpoint cycle."] * is_told


def test_records_that_hold_no_tables_are_not_accused(record: StudyRecord) -> None:
    assert claims(record, [trial_with(record, (), ())]) == []

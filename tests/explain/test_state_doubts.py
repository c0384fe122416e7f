from __future__ import annotations

import msgspec
import pytest

from pgdyno.analyse.series import OUT_OF_MEMORY, SWAPPING, Event
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import TrialAnalysis
from pgdyno.explain.doubts.state import find_state_doubts
from pgdyno.explain.finding import Severity
from pgdyno.record.types import StudyRecord, TableState
from pgdyno.spec.study import RestorePolicy
from tests.explain.test_doubts import analysis_of, make_trial_analysis
from tests.record.test_store import make_record


@pytest.fixture
def record() -> StudyRecord:
    return make_record()


def claims(record: StudyRecord, trials: list[TrialAnalysis]) -> list[str]:
    return [finding.claim for finding in find_state_doubts(record, analysis_with(record, trials))]


def analysis_with(record: StudyRecord, trials: list[TrialAnalysis]) -> StudyAnalysis:
    workload = msgspec.structs.replace(analysis_of(record).workloads[0], trials=tuple(trials))
    return StudyAnalysis(workloads=(workload,))


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


def test_data_that_are_not_restored_by_a_copy_are_told(record: StudyRecord) -> None:
    def with_data(**values: object) -> StudyRecord:
        data = msgspec.structs.replace(record.study.data, **values)
        return msgspec.structs.replace(record, study=msgspec.structs.replace(record.study, data=data))

    trial = trial_with(record, tables(100, live=1000, dead=0), tables(105, live=1000, dead=50))
    aged = with_data(restore=RestorePolicy.NONE)
    (finding,) = find_state_doubts(aged, analysis_with(record, [trial]))
    assert finding.severity is Severity.WARNING
    assert finding.claim == "The load changed the data, and nothing was restored between trials."
    assert finding.evidence == (
        "95.4 MB before trial 1, 100 MB after trial 1; 5 % of all row versions are dead at the end"
    )
    reading = msgspec.structs.replace(trial, counts_per_transaction={"wal_bytes": 3.0})
    (finding,) = find_state_doubts(aged, analysis_with(record, [reading]))
    assert finding.severity is Severity.NOTE
    assert list(find_state_doubts(aged, StudyAnalysis(workloads=()))) == []
    cloned = with_data(restore=RestorePolicy.COMMAND, restore_command="/opt/clone.sh now")
    (finding,) = find_state_doubts(cloned, analysis_with(record, [trial]))
    assert finding.evidence.startswith("/opt/clone.sh now; what it left was compared")


def test_records_that_hold_no_tables_are_not_accused(record: StudyRecord) -> None:
    assert claims(record, [trial_with(record, (), ())]) == []


@pytest.mark.parametrize(
    ("kind", "signal", "severity", "claim"),
    [
        (SWAPPING, 9, Severity.WARNING, "Memory was swapped"),
        (OUT_OF_MEMORY, 9, Severity.CRITICAL, "The kernel killed processes of the server"),
        # It may have been another container's.
        (OUT_OF_MEMORY, 11, Severity.WARNING, "The machine's kernel killed processes"),
        (OUT_OF_MEMORY, None, Severity.WARNING, "The machine's kernel killed processes"),
    ],
)
def test_a_lack_of_memory_under_the_load_is_told(
    record: StudyRecord, kind: str, signal: int | None, severity: Severity, claim: str
) -> None:
    event = Event(kind=kind, t_s=3.0, until_s=None, text="1 GB of memory")
    text = f"client backend (PID 71) was terminated by signal {signal}: Killed"
    crash = () if signal is None else (Event(kind="error", t_s=3.0, until_s=None, text=text),)
    trials = [
        make_trial_analysis(record, 1),
        *(make_trial_analysis(record, n, events=(event, *crash)) for n in (2, 3)),
    ]
    found = next(
        one for one in find_state_doubts(record, analysis_with(record, trials)) if one.rule == "short-of-memory"
    )
    assert found.severity is severity
    assert found.claim.startswith(claim)
    assert found.evidence == "Trial 2, 3; in trial 2, 1 GB of memory, from 3 s on"

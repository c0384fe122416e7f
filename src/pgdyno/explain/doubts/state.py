"""Check whether trials of a workload had the same state: growth of the data, dead rows, checkpoints.

The rules work as in `doubts.study`. Every trial begins with the same restored data, except in a database that the user
named, or where the study asks for no restoring. If data grow within a trial, its end is another load than its beginning; and
a checkpoint in one trial but not in the next is a difference that no setting made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgdyno.analyse.disk.demand import MIN_WRITING_WAL_BYTES
from pgdyno.analyse.series import OUT_OF_MEMORY, SWAPPING
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.types import WHOLE_CYCLES, TrialAnalysis, WorkloadAnalysis
from pgdyno.explain.finding import Finding, Severity
from pgdyno.record.types import StudyRecord, TableState
from pgdyno.spec.study import RestorePolicy
from pgdyno.units import format_bytes

# Beyond this growth, caches and indexes differ from those of the beginning.
_GROWTH_RATIO = 0.1
# Source: PostgreSQL 18 manual, section 19.10, autovacuum_vacuum_scale_factor: a table is vacuumed from a fifth on. Half
# of that is more than most loads run with.
_DEAD_RATIO = 0.1

_SHORT_OF_MEMORY = {
    SWAPPING: (
        Severity.WARNING,
        "Memory was swapped while trials ran.",
        "Whoever touches what was swapped out waits for the disk. The counters are of the whole machine, with all its containers.",
    ),
    OUT_OF_MEMORY: (
        Severity.WARNING,
        "The machine's kernel killed processes for want of memory while trials ran.",
        "No log says that one was the server's; those of all containers are counted. `journalctl -k` there says which was killed.",
    ),
}
"""Severity, claim and reason by kind of event."""
_SERVER_KILLED = (
    Severity.CRITICAL,
    "The kernel killed processes of the server for want of memory while trials ran.",
    "A server that loses a process disconnects its clients and recovers; `journalctl -k` says which was killed.",
)
# What the server logs of it. Source: PostgreSQL's LogChildExit.
_KILLED_WORDS = "was terminated by signal 9"


def find_state_doubts(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield what the trials' data and checkpoints say against comparing or extrapolating their figures."""
    yield from _not_restored(record)
    yield from _aged(record, analysis)
    for workload in analysis.workloads:
        yield from _memory(workload)
        trials = [trial for trial in workload.trials if trial.tps is not None]
        yield from _growth(workload, trials)
        yield from _dead_rows(workload, trials)
        yield from _checkpoint_phase(workload, trials)


def _not_restored(record: StudyRecord) -> Iterator[Finding]:
    name = record.study.data.database
    if name is None:
        return
    if not record.are_writes_allowed:
        yield Finding(
            rule="not-restored",
            severity=Severity.NOTE,
            claim=f"The database {name} was measured as it is, and only read.",
            evidence="No copy was made of it, and no cache was filled before a trial but by the warm-up",
            why="What others write there, and what its caches hold, is in the figures.",
        )
        return
    yield Finding(
        rule="not-restored",
        severity=Severity.WARNING,
        claim=f"The load could write to the database {name}, and nothing was restored between trials.",
        evidence="Each trial begins with what those before it have left",
        why="Data that grow and age make later trials other ones than the first.",
        advice="Trust what holds over many trials in random order; data of --init begin alike each time.",
    )


def _memory(workload: WorkloadAnalysis) -> Iterator[Finding]:
    """Yield a doubt for each way in which memory ran short under a load."""
    for kind, told in _SHORT_OF_MEMORY.items():
        seen = [(trial, event) for trial in workload.trials for event in trial.events if event.kind == kind]
        if seen:
            logged = (event.text for trial, _ in seen for event in trial.events if event.kind == "error")
            is_server_killed = kind == OUT_OF_MEMORY and any(_KILLED_WORDS in text for text in logged)
            severity, claim, why = _SERVER_KILLED if is_server_killed else told
            numbers = dict.fromkeys(str(trial.record.planned.number) for trial, _ in seen)
            first, event = seen[0]
            yield Finding(
                rule="short-of-memory",
                severity=severity,
                claim=claim,
                evidence=f"Trial {', '.join(numbers)}; in trial {first.record.planned.number}, {event.text}, from"
                f" {event.t_s:.0f} s on",
                why=why,
                advice="Find what uses the memory with `top -o RES`, give the server less of it (shared_buffers, work_mem, clients)"
                " or the machine more, and measure again.",
                workload=workload.name,
            )


def _aged(record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Finding]:
    """Yield a doubt if the study's own data were not restored by a copy, and may have been changed."""
    if record.study.data.restore is RestorePolicy.COMMAND:
        yield Finding(
            rule="restored-by-command",
            severity=Severity.NOTE,
            claim="A command restored the data before each trial.",
            evidence=f"{record.study.data.restore_command}; what it left was compared with the loaded cluster",
            why="If it shares blocks with the loaded data (snapshot, reflink), the first write to each block takes longer.",
            advice="Trust comparisons; for the figures of a server without snapshots measure again with --restore copy.",
        )
    if record.study.data.restore is not RestorePolicy.NONE:
        return
    trials = analysis.trials
    if not trials:
        return
    if not any(trial.is_writing for trial in trials):
        yield Finding(
            rule="not-restored",
            severity=Severity.NOTE,
            claim="The data were not restored between trials, as asked for; no trial changed them.",
            evidence=f"No transaction wrote more than {MIN_WRITING_WAL_BYTES:g} bytes of WAL in {len(trials)} trials",
            why="The kernel's cache may hold what the trial before has read.",
        )
        return
    ordered = sorted((trial.record for trial in trials), key=lambda one: one.planned.number)
    first, last = ordered[0], ordered[-1]
    before, after = _sum_bytes(first.tables_before), _sum_bytes(last.tables_after)
    dead = _dead_share(last.tables_after)
    dead_words = "" if dead is None else f"; {dead * 100:.0f} % of all row versions are dead at the end"
    yield Finding(
        rule="not-restored",
        severity=Severity.WARNING,
        claim="The load changed the data, and nothing was restored between trials.",
        evidence=(
            f"{format_bytes(before)} before trial {first.planned.number}, {format_bytes(after)} after trial"
            f" {last.planned.number}{dead_words}"
        ),
        why="Data that grow and age make later trials other ones than the first.",
        advice="Trust what holds over many trials in random order, or measure again with --restore copy.",
    )


def _growth(workload: WorkloadAnalysis, trials: Sequence[TrialAnalysis]) -> Iterator[Finding]:
    grown = [
        (_sum_bytes(trial.record.tables_after) / before - 1.0, before, trial)
        for trial in trials
        if (before := _sum_bytes(trial.record.tables_before))
    ]
    above = [each for each in grown if each[0] > _GROWTH_RATIO]
    if not above:
        return
    ratio, before, trial = max(above, key=lambda each: each[0])
    after = _sum_bytes(trial.record.tables_after)
    yield Finding(
        severity=Severity.WARNING,
        claim="The data grew while they were measured.",
        evidence=(
            f"By up to {ratio * 100:.0f} %, from {format_bytes(before)} to {format_bytes(after)} in trial"
            f" {trial.record.planned.number} (limit {_GROWTH_RATIO * 100:.0f} %)"
        ),
        advice="What a trial ends with is not what it began with: load more data, such as by a larger --scale, or use shorter trials.",
        workload=workload.name,
    )


def _dead_rows(workload: WorkloadAnalysis, trials: Sequence[TrialAnalysis]) -> Iterator[Finding]:
    shares = [(share, trial) for trial in trials if (share := _dead_share(trial.record.tables_after)) is not None]
    above = [each for each in shares if each[0] > _DEAD_RATIO]
    if above:
        share, trial = max(above, key=lambda each: each[0])
        yield Finding(
            severity=Severity.WARNING,
            claim="Dead rows piled up while trials ran.",
            evidence=(
                f"Up to {share * 100:.0f} % of all row versions at the end of trial {trial.record.planned.number}"
                f" (limit {_DEAD_RATIO * 100:.0f} %)"
            ),
            advice="Autovacuum did not keep up with this load, or had no turn: a longer run shows what that costs.",
            workload=workload.name,
        )


def _checkpoint_phase(workload: WorkloadAnalysis, trials: Sequence[TrialAnalysis]) -> Iterator[Finding]:
    # Variants that alternate under one load share its checkpoints.
    alone = [trial for trial in trials if len(trial.record.planned.variants) < 2]
    counts = [count for trial in alone if (count := trial.checkpoint_count) is not None]
    if not counts or min(counts) == max(counts) or min(counts) >= WHOLE_CYCLES:
        return
    with_most = sum(count == max(counts) for count in counts)
    yield Finding(
        severity=Severity.WARNING,
        claim="Trials saw different parts of the checkpoint cycle.",
        evidence=f"{min(counts)} to {max(counts)} checkpoints in a trial; {with_most} of {len(counts)} saw {max(counts)}",
        advice="Make trials shorter than the first checkpoint or several cycles long, with --duration.",
        workload=workload.name,
    )


def _sum_bytes(tables: Sequence[TableState]) -> int:
    return sum(table.bytes for table in tables)


def _dead_share(tables: Sequence[TableState]) -> float | None:
    versions = sum(table.live_rows + table.dead_rows for table in tables)
    return sum(table.dead_rows for table in tables) / versions if versions else None

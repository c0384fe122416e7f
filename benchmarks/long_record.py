"""Makes the record of a default `bench` out of a short one: 81 trials of three workloads, and a sweep over clients.

Each trial is a real one of the short record: its files as they are, and in its `trial.json` the number, round and workload
that the program's own plan gives it. What such a record says of a machine is therefore worth nothing; what it takes to read,
analyse and render it is what a real one takes.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from pgdyno.conduct.workspace import machine_of
from pgdyno.plan.plan import Plan, PlannedTrial, StepKind, plan_study
from pgdyno.record.store import RecordStore, open_record
from pgdyno.record.types import StudyRecord, TrialRecord
from pgdyno.spec.study import BUILTIN_SCRIPTS

TRIALS_COUNT = 81
# More than the trials take, so that the plan has that many.
_MINUTES = 240.0
SHORT_BENCH = ("--rounds", "5", "--workload", "tpcb-like", "--scale", "5", "--no-disk", "--yes", "--quiet")
"""Options of the `pgdyno bench` that makes a short record: stock against derived settings, and a sweep, in 5 minutes."""


def make_long_record(short: Path, folder: Path) -> RecordStore:
    """Copy a short record, with as many trials as a default bench has.

    Args:
        short: A record that SHORT_BENCH made, or any with stock and derived settings and a sweep.
        folder: Of the copy, which must not be there yet.
    """
    source, target = open_record(short), RecordStore(folder)
    kept = shutil.ignore_patterns("trials", "report.*", ".lock")
    shutil.copytree(short, folder, ignore=kept)
    shutil.copytree(source.scaling.path / "trials", target.scaling.path / "trials")
    record = _plan_all_workloads(source.read_record())
    target.write_record(record)
    (folder / "trials").mkdir()
    own = _repeat_trials(source)
    for planned in record.plan.trials:
        trial = next(own[planned.variants])
        shutil.copytree(source.trial_dir(trial.planned.number), target.trial_dir(planned.number))
        target.write_trial(msgspec.structs.replace(trial, planned=planned))
    return target


def _repeat_trials(source: RecordStore) -> dict[tuple[str, ...], Iterator[TrialRecord]]:
    """The trials of each variant, again and again."""
    by_variant: dict[tuple[str, ...], list[TrialRecord]] = {}
    for trial in source.read_trials():
        by_variant.setdefault(trial.planned.variants, []).append(trial)
    return {variants: itertools.cycle(trials) for variants, trials in by_variant.items()}


def _plan_all_workloads(record: StudyRecord) -> StudyRecord:
    """Plan the record's study for all built-in workloads, and keep as many trials as a default bench has."""
    (workload,) = record.study.workload
    study = msgspec.structs.replace(
        record.study,
        workload=tuple(
            msgspec.structs.replace(workload, name=name, scripts=(f"{name}@1",)) for name in BUILTIN_SCRIPTS
        ),
        experiment=msgspec.structs.replace(record.study.experiment, minutes=_MINUTES),
    )
    plan = plan_study(study, machine_of(record.host, version_major=record.server.major))
    return msgspec.structs.replace(record, study=study, plan=_cut(plan))


def _cut(plan: Plan) -> Plan:
    def is_kept(trial: PlannedTrial | None) -> bool:
        return trial is None or trial.number <= TRIALS_COUNT

    steps = tuple(step for step in plan.steps if step.kind is not StepKind.TRIAL or is_kept(step.trial))
    return msgspec.structs.replace(plan, steps=steps)

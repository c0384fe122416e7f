"""Read what records answered, for histories; an answer is kept until its record or the program changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pgdyno import __version__
from pgdyno.analyse.history.histories import Result
from pgdyno.analyse.records.sides import list_sides
from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.flow.records.compare import hash_scripts
from pgdyno.record.store import RecordStore
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import StudyRecord
from pgdyno.run.host.cache import find_for, fingerprint, keep_for

# What an analysis follows from beside the record.
_SOURCES = (".py", ".toml", ".csv")
# What no history asks of a trial: four fifths of its bytes.
_UNASKED: dict[str, Any] = {
    "charts": {},
    "health": (),
    "statements": (),
    "time": None,
    "waiting": (),
    "quoted": {},
    "predictions": (),
    "disk": None,
    "network": None,
    "episode_causes": (),
}


class ResultReader:
    """Reads the results of records; each record is read once, until it or the program changes."""

    def __init__(self) -> None:
        # A package may set the times of all its files to one, of each version alike.
        self._program = fingerprint(Path(__file__).parents[1], __version__, suffixes=_SOURCES)

    def find(self, store: RecordStore) -> list[Result] | None:
        """Return the results of a record that an earlier call has kept; None if it has not."""
        text = None if store.is_locked else find_for(_name(store), self._identify(store))
        return None if text is None else _decode(text)

    def read(self, store: RecordStore) -> list[Result]:
        """Return the results of a record, and keep them.

        Raises:
            PgdynoError: The record cannot be read.
        """
        if store.is_locked:
            return list(_analyse(store))
        made: list[Result] = []

        def make() -> str:
            made.extend(_analyse(store))
            text = msgspec.json.encode(made).decode()
            # JSON has no NaN: what does not come back as it was is computed each time.
            return text if _decode(text) == made else ""

        text = keep_for(_name(store), self._identify(store), make)
        if made:
            return made
        kept = _decode(text)
        return list(_analyse(store)) if kept is None else kept

    def _identify(self, store: RecordStore) -> str:
        return fingerprint(store.path, self._program)


def list_results(store: RecordStore, record: StudyRecord, analysis: StudyAnalysis) -> Iterator[Result]:
    """Yield what the trials of one record answered."""
    if record.began is None:
        return
    for side in list_sides(record, analysis, script_hashes=hash_scripts(store, record)):
        trials = tuple(msgspec.structs.replace(trial, **_UNASKED) for trial in side.workload.trials)
        workload = msgspec.structs.replace(side.workload, trials=trials)
        yield Result(path=str(store.path), began=record.began, side=msgspec.structs.replace(side, workload=workload))


def _analyse(store: RecordStore) -> Iterator[Result]:
    """Yield the results of a record, and of the sweep that followed it."""
    for part in (store, store.scaling):
        if not part.exists:
            continue
        record = part.read_record()
        trials = [read_trial_data(part.trial_dir(trial.planned.number), trial) for trial in part.read_trials()]
        if trials:
            yield from list_results(part, record, analyse_study(record, trials))


def _name(store: RecordStore) -> str:
    return f"history-{hashlib.sha256(os.fsencode(store.path)).hexdigest()[:24]}.json"


def _decode(text: str) -> list[Result] | None:
    try:
        return msgspec.json.decode(text, type=list[Result])
    except msgspec.DecodeError:
        return None

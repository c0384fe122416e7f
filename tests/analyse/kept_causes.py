"""Real records with planted causes, and quiet ones; `tests/data/causes/README.md` says how they were made."""

from __future__ import annotations

import functools
import tarfile
from pathlib import Path

from pgdyno.analyse.study import analyse_study
from pgdyno.analyse.study_types import StudyAnalysis
from pgdyno.analyse.transaction_time.shares import Resource
from pgdyno.record.store import open_record
from pgdyno.record.trial_data import read_trial_data
from pgdyno.record.types import StudyRecord
from tests.shared import shared_place

_PACKED = Path(__file__).parents[1] / "data" / "causes" / "records.tar.xz"
_RIGHT = {
    "slow-flush": {Resource.WAL_FLUSH},
    "throttled-disk": {Resource.WAL_FLUSH, Resource.DATA_WRITE},
    "CPU-quota": {Resource.CPU},
    "tiny-buffers": {Resource.DATA_READ},
    "hot-row": {Resource.LOCK},
    "scale-1": {Resource.LOCK},
    "starved-load": {Resource.LOAD_GENERATOR},
    "thinking-clients": {Resource.CLIENT},
    "checkpoint-storm": {Resource.DATA_WRITE},
}


@functools.cache
def _unpack() -> Path:
    """Unpack the records, once for all workers."""
    with shared_place("causes") as folder:
        done = folder / "unpacked"
        if not done.exists():
            with tarfile.open(_PACKED) as packed:
                # Python has the filter since 3.11.4 and warns without it since 3.12; the archive is our own.
                packed.extraction_filter = getattr(tarfile, "data_filter", None)
                packed.extractall(folder / "records")
            done.touch()
        return folder / "records"


def list_names() -> tuple[str, ...]:
    """Of all records: the cause, the version, a number."""
    return tuple(sorted(path.name for path in _unpack().iterdir()))


def right_of(name: str) -> set[Resource]:
    """What may be named; of quiet ones the machine."""
    return _RIGHT.get(name.rsplit("-", 2)[0], {Resource.CPU, Resource.WAL_FLUSH})


@functools.cache
def analyse_kept(name: str) -> tuple[StudyRecord, StudyAnalysis]:
    """A record and what analysis says of it."""
    store = open_record(_unpack() / name)
    record = store.read_record()
    trials = [read_trial_data(store.trial_dir(trial.planned.number), trial) for trial in store.read_trials()]
    return record, analyse_study(record, trials)

"""The directory of a record: what is written where, in which order, so that a crash loses at most the trial under way.

`record.json` is replaced as a whole, atomically. A trial's folder is written while it runs and becomes part of the
record with its `trial.json`, written last; a folder without one, or of a failed trial, is set aside, never deleted.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, SpecError
from pgdyno.record.types import FORMAT_VERSION, StudyRecord, TrialRecord, TrialStatus

RECORD_FILE = "record.json"
STUDY_FILE = "study.toml"
TRIAL_FILE = "trial.json"


class RecordStore:
    """A record's directory.

    Args:
        path: The directory; `create` makes it, `open_record` finds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def init_dir(self) -> Path:
        """Where the outputs of loading the data are kept."""
        return self.path / "init"

    def create(self, record: StudyRecord, *, study_toml: str) -> None:
        """Make the directory and write what is known before the first step.

        Raises:
            HostError: It exists already or cannot be made.
        """
        try:
            self.path.mkdir(parents=True)
            self.init_dir.mkdir()
            (self.path / "trials").mkdir()
        except FileExistsError as exc:
            raise HostError(
                f"{self.path} exists already", hint="a record is never overwritten: name another one with --out"
            ) from exc
        except OSError as exc:
            raise HostError(
                f"cannot write a record to {self.path}", detail=str(exc), hint="name another place with --out"
            ) from exc
        write_durably(self.path / STUDY_FILE, study_toml.encode())
        self.write_record(record)

    def write_record(self, record: StudyRecord) -> None:
        """Replace `record.json`."""
        write_durably(self.path / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record), indent=1))

    def read_record(self) -> StudyRecord:
        """Read `record.json`.

        Raises:
            SpecError: There is none, it is damaged, or a newer pgdyno wrote it.
        """
        try:
            raw = (self.path / RECORD_FILE).read_bytes()
        except OSError as exc:
            raise SpecError(
                f"{self.path} is not a record", detail=str(exc), hint="`pgdyno list` shows the records"
            ) from exc
        try:
            version = msgspec.json.decode(raw, type=_Versioned).format_version
            if version > FORMAT_VERSION:
                raise SpecError(
                    f"{self.path} has the newer format {version}",
                    detail=f"this pgdyno reads up to {FORMAT_VERSION}",
                    hint="read it with the pgdyno that wrote it, or a later one",
                )
            return msgspec.json.decode(raw, type=StudyRecord)
        except msgspec.DecodeError as exc:
            raise SpecError(f"{self.path / RECORD_FILE} is damaged", detail=str(exc)) from exc

    def trial_dir(self, number: int) -> Path:
        """The folder of a trial."""
        return self.path / "trials" / f"{number:04d}"

    def begin_trial(self, number: int) -> Path:
        """An empty folder for a trial; what an earlier try left is set aside as `NNNN.cut-K`."""
        folder = self.trial_dir(number)
        if folder.exists():
            tries = sum(1 for _ in folder.parent.glob(f"{folder.name}.cut-*"))
            folder.rename(folder.with_name(f"{folder.name}.cut-{tries + 1}"))
        folder.mkdir()
        return folder

    def write_trial(self, trial: TrialRecord) -> None:
        """Make a trial part of the record: all its files first, then its `trial.json`."""
        folder = self.trial_dir(trial.planned.number)
        for path in folder.rglob("*"):
            if path.is_file():
                _fsync(path)
        write_durably(folder / TRIAL_FILE, msgspec.json.format(msgspec.json.encode(trial), indent=1))
        _fsync(folder.parent)

    def read_trials(self) -> tuple[TrialRecord, ...]:
        """The trials that ended, by number; those under way or cut short are not among them.

        Raises:
            SpecError: A `trial.json` is damaged.
        """
        trials = []
        for path in sorted(self.path.glob(f"trials/[0-9][0-9][0-9][0-9]/{TRIAL_FILE}")):
            try:
                trials.append(msgspec.json.decode(path.read_bytes(), type=TrialRecord))
            except msgspec.DecodeError as exc:
                raise SpecError(f"{path} is damaged", detail=str(exc)) from exc
        return tuple(trials)

    def finished_numbers(self) -> frozenset[int]:
        """Numbers of the trials that need not run again."""
        return frozenset(t.planned.number for t in self.read_trials() if t.status is TrialStatus.FINISHED)


class _Versioned(msgspec.Struct):
    format_version: int


def open_record(path: Path) -> RecordStore:
    """The record in `path`, or in the folder of the file `path`.

    Raises:
        SpecError: There is none.
    """
    store = RecordStore(path.parent if path.is_file() else path)
    store.read_record()
    return store


def find_records(folder: Path) -> tuple[RecordStore, ...]:
    """The records directly below a folder, oldest name first."""
    return tuple(RecordStore(path.parent) for path in sorted(folder.glob(f"*/{RECORD_FILE}")))


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file so that after a crash it holds either its old or its new content, whole."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    _fsync(path.parent)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

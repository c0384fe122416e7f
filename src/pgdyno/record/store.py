"""Write and read a record's folder in an order in which a crash loses at most the running trial.

`record.json` is replaced atomically. A trial's folder is written while the trial runs, and becomes part of the record
with its `trial.json`, which is written last. A folder without `trial.json`, or of a failed trial, is set aside and
never deleted. Script files are copied into `scripts/` before the first trial, so that all trials run the same text.

A write error is a StepFailedError and leaves the record as it was before.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from pgdyno.errors import HostError, SpecError, StepFailedError, why
from pgdyno.plan.plan import Plan
from pgdyno.record.damage import refusing_damage
from pgdyno.record.device.disk_card import DiskCard, read_card
from pgdyno.record.durable import sync_folder, write_durably, writing
from pgdyno.record.types import FORMAT_VERSION, StudyRecord, TrialRecord, TrialStatus
from pgdyno.spec.init_file import read_init_lines
from pgdyno.spec.study import BUILTIN_SCRIPTS, DataSpec

RECORD_FILE = "record.json"
STUDY_FILE = "study.toml"
TRIAL_FILE = "trial.json"
HTML_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"
_LOCK_FILE = ".lock"


class RecordStore:
    """The folder of a record.

    Args:
        path: The folder. `create` makes it, `open_record` finds an existing one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def init_dir(self) -> Path:
        """Folder for the output of loading the data."""
        return self.path / "init"

    @property
    def card_path(self) -> Path:
        """File of the disk card of the data's disk; a record may have none."""
        return self.card_paths(0)[0]

    def read_card(self) -> DiskCard | None:
        """Read the disk card of the data's disk; return None if the record has none.

        Raises:
            SpecError: The card is damaged, or a newer pgdyno wrote it.
        """
        return _read_kept(self.card_path)

    def card_paths(self, place: int) -> tuple[Path, Path]:
        """Return the files of the cards of a place's disks of data and of pg_wal; the reference's place is 0."""
        end = "" if place == 0 else f"-{place + 1}"
        return self.path / f"disk{end}.json", self.path / f"wal-disk{end}.json"

    def read_cards(self, place: int) -> tuple[DiskCard | None, DiskCard | None]:
        """Read the cards of a place's disks of data and of pg_wal; None for one that the record lacks.

        Raises:
            SpecError: A card is damaged, or a newer pgdyno wrote it.
        """
        disk, wal = self.card_paths(place)
        return _read_kept(disk), _read_kept(wal)

    @property
    def scaling(self) -> RecordStore:
        """Record of the client sweep that follows a comparison, inside this record; it may not exist."""
        return RecordStore(self.path / "clients")

    @property
    def exists(self) -> bool:
        """True if the folder holds a record."""
        return (self.path / RECORD_FILE).exists()

    @property
    def has_trials(self) -> bool:
        """True if a trial has begun, however it ended."""
        return any((self.path / "trials").iterdir())

    def remove(self) -> None:
        """Remove the record.

        Raises:
            StepFailedError: It cannot be removed.
        """
        with writing(self.path):
            shutil.rmtree(self.path)

    def remove_incomplete(self) -> None:
        """Remove a folder that a crash left before its `record.json` was written.

        Raises:
            StepFailedError: It cannot be removed.
        """
        if self.path.is_dir() and not self.exists:
            self.remove()

    def check_new(self) -> None:
        """Check that `create` would not overwrite anything.

        Raises:
            SpecError: Its name is not UTF-8, which JSON cannot hold.
            HostError: The path exists already.
        """
        self._check_name()
        if os.path.lexists(self.path):
            raise HostError(
                f"{self.path} exists already", hint="a record is never overwritten: name another one with --out"
            )

    def create(self, record: StudyRecord, *, study_toml: str) -> None:
        """Make the folder and write what is known before the first step.

        Raises:
            HostError: The folder exists already or cannot be made.
            StepFailedError: The record cannot be written; nothing of it remains.
        """
        self.check_new()
        # Each new folder is an entry in the folder above it, which must be flushed too.
        parents = list(self.path.absolute().parents)
        made_count = sum(1 for parent in parents if not parent.exists())
        try:
            self.path.mkdir(parents=True)
            self.init_dir.mkdir()
            (self.path / "trials").mkdir()
        except OSError as exc:
            raise HostError(
                f"cannot write a record to {self.path}", detail=why(exc), hint="name another folder with --out"
            ) from exc
        try:
            self.write_study(study_toml)
            self.write_record(record)
        except StepFailedError:
            # An incomplete record would block the next attempt.
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        with writing(self.path):
            for parent in parents[: made_count + 1]:
                sync_folder(parent)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent any other pgdyno from writing into this record.

        Raises:
            HostError: Another pgdyno is writing into it.
            StepFailedError: The lock file cannot be written.
        """
        with writing(self.path):
            lock = (self.path / _LOCK_FILE).open("w", encoding="utf-8")
        with lock:
            try:
                _take(lock)
            except BlockingIOError as exc:
                raise HostError(
                    "another pgdyno is at work on this record", detail=str(self.path), hint="wait for it"
                ) from exc
            yield

    @property
    def is_locked(self) -> bool:
        """True if a pgdyno is currently writing into the record."""
        try:
            with (self.path / _LOCK_FILE).open(encoding="utf-8") as lock:
                # A shared lock lets several readers check at once, and `_take` waits for this moment.
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            # No pgdyno has written into it, or this account has no permission to read the lock.
            return False
        return False

    def keep_scripts(self, plan: Plan) -> dict[str, Path]:
        """Copy the script files of a plan into the record, unless they are already there.

        Returns:
            The copy that trials run, by the script's name in the plan.

        Raises:
            SpecError: A script file cannot be read.
            StepFailedError: The record cannot be written.
        """
        return {
            name: self._keep_script(Path(name), self.path / place) for name, place in self.name_scripts(plan).items()
        }

    def keep_init(self, data: DataSpec) -> DataSpec:
        """Copy the SQL file that makes the data into the record, unless it is already there.

        Returns:
            What is to be loaded, from the copy; other data as they are.

        Raises:
            SpecError: The file cannot be read, or is empty.
            StepFailedError: The record cannot be written.
        """
        if data.init is None:
            return data
        copy = self.path / self.name_init(data.init)
        if not copy.exists():
            with writing(copy):
                copy.parent.mkdir(exist_ok=True)
                write_durably(copy, read_init_lines(Path(data.init)))
        return msgspec.structs.replace(data, init=str(copy.absolute()))

    def name_init(self, init: str) -> str:
        """Return the path of the copy of the SQL file that makes the data, relative to the record's folder."""
        return f"{self.init_dir.name}/{Path(init).name}"

    def name_scripts(self, plan: Plan) -> dict[str, str]:
        """Return the path of each script's copy relative to the record's folder, by the script's name in the plan."""
        names = {name for load in plan.script_loads for name, _ in load.scripts}
        # Two scripts may have the same file name; a folder for each lets reports use that name.
        return {
            name: f"scripts/{hashlib.sha256(name.encode()).hexdigest()[:12]}/{Path(name).name}"
            for name in sorted(names.difference(BUILTIN_SCRIPTS))
        }

    def locate_scripts(self, plan: Plan) -> dict[str, str]:
        """Return the absolute path of each script's copy, by the script's name in the plan."""
        return {name: str((self.path / place).absolute()) for name, place in self.name_scripts(plan).items()}

    def name_copies(self, record: StudyRecord) -> dict[str, str]:
        """Return the paths of the copies of all files that a study names, relative to the record's folder, by their names."""
        init = record.study.data.init
        return self.name_scripts(record.plan) | ({} if init is None else {init: self.name_init(init)})

    def _keep_script(self, source: Path, copy: Path) -> Path:
        if copy.exists():
            return copy
        try:
            content = source.read_bytes()
        except OSError as exc:
            raise SpecError(
                f"cannot read script file {source}", detail=why(exc), hint="correct `scripts` in the study"
            ) from exc
        with writing(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(copy.parent.parent)
            sync_folder(self.path)
            write_durably(copy, content)
        return copy

    def write_record(self, record: StudyRecord) -> None:
        """Replace `record.json`.

        Raises:
            StepFailedError: The file cannot be written; the old one stays.
        """
        with writing(self.path / RECORD_FILE):
            write_durably(self.path / RECORD_FILE, msgspec.json.format(msgspec.json.encode(record), indent=1))

    def write_study(self, study_toml: str) -> None:
        """Replace `study.toml`.

        Raises:
            StepFailedError: The file cannot be written; the old one stays.
        """
        with writing(self.path / STUDY_FILE):
            write_durably(self.path / STUDY_FILE, study_toml.encode())

    def _check_name(self) -> None:
        shown = describe_path(self.path)
        if shown != str(self.path):
            raise SpecError(f"{shown} has a name that is not UTF-8", hint="give the folder another name")

    def read_record(self) -> StudyRecord:
        """Read `record.json`.

        Raises:
            SpecError: The file is missing or damaged, or a newer pgdyno wrote it, or JSON cannot hold the folder's path.
        """
        self._check_name()
        try:
            raw = (self.path / RECORD_FILE).read_bytes()
        except OSError as exc:
            raise _no_record(self.path, exc) from exc
        return self.decode_record(raw)

    def decode_record(self, raw: bytes) -> StudyRecord:
        """Decode what `record.json` has, or will have.

        Raises:
            SpecError: It is damaged, or a newer pgdyno wrote it.
        """
        with refusing_damage(f"{self.path / RECORD_FILE} is damaged", hint="put it back from a copy of the record"):
            version = msgspec.json.decode(raw, type=_Versioned).format_version
            if version > FORMAT_VERSION:
                raise SpecError(
                    f"{self.path} has the newer format {version}",
                    detail=f"this pgdyno reads up to {FORMAT_VERSION}",
                    hint="read it with the pgdyno that wrote it, or a later one",
                )
            return msgspec.json.decode(raw, type=StudyRecord)

    def trial_dir(self, number: int) -> Path:
        """Return the folder of a trial."""
        return self.path / "trials" / f"{number:04d}"

    def begin_trial(self, number: int) -> Path:
        """Make an empty folder for a trial; an earlier attempt's folder is set aside as `NNNN.cut-K`.

        Raises:
            StepFailedError: The folder cannot be made.
        """
        folder = self.trial_dir(number)
        if folder.exists():
            self.set_aside(number)
        with writing(folder):
            folder.mkdir()
        return folder

    def set_aside(self, number: int) -> None:
        """Take a trial out of the record; its folder stays beside the others as `NNNN.cut-K`.

        Raises:
            StepFailedError: The folder cannot be renamed.
        """
        folder = self.trial_dir(number)
        tries = [path.name.rpartition("-")[2] for path in folder.parent.glob(f"{folder.name}.cut-*")]
        last = max((int(number) for number in tries if number.isdecimal()), default=0)
        with writing(folder):
            folder.rename(folder.with_name(f"{folder.name}.cut-{last + 1}"))

    def write_trial(self, trial: TrialRecord) -> None:
        """Make a trial part of the record: flush all its files and folders, then write its `trial.json`.

        Raises:
            StepFailedError: The trial cannot be written, and is not part of the record.
        """
        folder = self.trial_dir(trial.planned.number)
        with writing(folder / TRIAL_FILE):
            for path in folder.rglob("*"):
                sync_folder(path)
            write_durably(folder / TRIAL_FILE, msgspec.json.format(msgspec.json.encode(trial), indent=1))
            sync_folder(folder.parent)

    def read_trials(self) -> tuple[TrialRecord, ...]:
        """Return the trials that ended, by number, without running or interrupted ones.

        Raises:
            SpecError: A `trial.json` is damaged.
        """
        return tuple(read_trial(path) for path in self.list_trial_files().values())

    def list_trial_files(self) -> dict[int, Path]:
        """Return the `trial.json` of each trial that ended, by number."""
        paths = [path for path in self.path.glob(f"trials/*/{TRIAL_FILE}") if path.parent.name.isdecimal()]
        return dict(sorted((int(path.parent.name), path) for path in paths))

    def interrupted_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the trials that began and did not end."""
        folders = [path for path in self.path.glob("trials/*") if path.name.isdecimal()]
        return tuple(sorted(int(path.name) for path in folders if not (path / TRIAL_FILE).exists()))

    def finished_numbers(self) -> frozenset[int]:
        """Return the numbers of the trials that need not run again."""
        return frozenset(t.planned.number for t in self.read_trials() if t.status is TrialStatus.FINISHED)


def read_trial(path: Path) -> TrialRecord:
    """Read a `trial.json`.

    Raises:
        SpecError: It is damaged.
    """
    with refusing_damage(f"{path} is damaged", hint=f"move {path.parent} out of the record; the rest can then be read"):
        return msgspec.json.decode(path.read_bytes(), type=TrialRecord)


def _no_record(path: Path, exc: OSError) -> SpecError:
    reason = f"{path / RECORD_FILE}: {exc.strerror or exc}" if path.exists() else "no such folder"
    hint = "`pgdyno list` shows the records"
    if found := find_records(path):
        reason, hint = "it is a folder of records", f"name one of them, such as {describe_path(found[-1].path)}"
    return SpecError(f"{path} is not a record", detail=reason, hint=hint)


def no_records_in(folders: Sequence[Path]) -> SpecError:
    """Return the error for folders without records, one of which may be a record itself."""
    fact = f"no records in {', '.join(map(describe_path, folders))}"
    if any(os.path.lexists(folder / RECORD_FILE) for folder in folders):
        return SpecError(
            fact, detail="a record lies there itself", hint="name the folder above it, which holds records"
        )
    return SpecError(fact, hint="`pgdyno bench --quick` makes one")


class _Versioned(msgspec.Struct):
    format_version: int


def open_record(path: Path) -> RecordStore:
    """Open the record in the folder `path`, or in the folder of the file `path`.

    Raises:
        SpecError: There is no readable record.
    """
    store = RecordStore(path.parent if path.is_file() else path)
    if path.is_file() and not (store.path / RECORD_FILE).exists():
        raise SpecError(
            f"{path} is not a record",
            detail=f"a record is a folder with a {RECORD_FILE}",
            hint="`pgdyno list` shows the records",
        )
    store.read_record()
    return store


def describe_path(path: Path) -> str:
    """Return a path as text; bytes of it that are not UTF-8 as escapes."""
    return os.fsencode(path).decode(errors="backslashreplace")


def find_records(folder: Path) -> tuple[RecordStore, ...]:
    """Return the records directly below a folder, sorted by name."""
    return tuple(RecordStore(path.parent) for path in sorted(folder.glob(f"*/{RECORD_FILE}")))


def _take(lock: IO[str]) -> None:
    """Lock an open file until it is closed.

    Raises:
        BlockingIOError: A pgdyno that writes holds it.
    """
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # One that only looks, as `is_locked` does, shares it for a moment. With `watch` that may be at any time. Two that
            # begin in that moment must not wait for each other: the second would wait until the first has ended its study.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        else:
            return


def _read_kept(path: Path) -> DiskCard | None:
    if not path.exists():
        return None
    # The hint must not be to measure again: a new card would not belong to this record.
    return read_card(path, remedy="put it back from a copy of the record, or move it out and read the rest")

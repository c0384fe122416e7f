"""Record each change to this host on disk before it is made, so that it can be undone.

A machine has one journal, whichever home a pgdyno works in, because kernel settings belong to the machine: two pgdynos
must not undo each other's changes, and the next pgdyno undoes what a killed one left. The journal outlives a reboot,
which undoes some changes and not others. The journal knows who changed what; the module that made a change knows how to
undo it. It refuses to read an unknown format, and it never drops an entry by itself. A container with its own /var/lib
has its own journal; `kernel_lock.py` protects pgdynos with different journals from each other.

A measurement holds its changes while it runs; a tuning stays when its pgdyno has ended. A measurement may temporarily
change what a tuning has set. An account other than root has its own journal, for tunings of its own servers and for settings
of servers that it reaches by a connection string: it cannot change anything else on the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.record.damage import NOT_JSON
from pgdyno.record.durable import write_durably
from pgdyno.run.change.changes import AnyChange, AppliedTuning, Change, SavedFile, SettingChange
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process import make_reachable

# The journal does not lie in a pgdyno home: there are many homes, some are closed to other accounts, and users remove
# them to free space.
HOST_FOLDER = Path("/var/lib/pgdyno-journal")
HOME_FOLDER = Path(".local/state/pgdyno-journal")
"""The journal's path below the home directory of an account other than root."""
CHANGES = "changes.json"
# Format 1 had no tuning, format 2 no settings of given servers, format 3 no tuning of them, format 4 no commands, format 5 no dependent units. Every added field makes a new
# format, and unknown formats are refused: an older pgdyno would otherwise drop the field when it writes the file.
_FORMAT = 6
# Another process holds the lock for milliseconds.
_RETRY_S = 0.02
_KNOWN_FORMATS = (1, 2, 3, 4, 5, 6)


class _Content(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    changes: tuple[Change, ...]
    tuning: AppliedTuning | None = None
    settings: tuple[SettingChange, ...] = ()


class Journal:
    """A journal in a folder, which any account can read and one process at a time can change."""

    def __init__(self, folder: Path = HOST_FOLDER) -> None:
        self.folder = folder
        self._path = folder / CHANGES
        self._saved = folder / "saved"

    def read(self) -> tuple[Change, ...]:
        """Return the changes that measurements hold, or left behind when they were killed, oldest first.

        Raises:
            HostError: The journal cannot be read or decoded.
        """
        return self._read().changes

    def read_tuning(self) -> AppliedTuning | None:
        """Return the changes of the tunings that are in force or unfinished.

        Raises:
            HostError: As for `read`.
        """
        return self._read().tuning

    def read_settings(self) -> tuple[SettingChange, ...]:
        """Return the settings of given servers that studies or tunings have changed.

        Raises:
            HostError: As for `read`.
        """
        return self._read().settings

    def read_saved(self, saved: SavedFile) -> bytes:
        """Return the saved content of a file.

        Raises:
            HostError: The content cannot be read, or has changed since it was saved.
        """
        path = self._saved / saved.sha256
        try:
            content = path.read_bytes()
        except OSError as exc:
            raise HostError("cannot read the saved copy of a file", detail=str(exc)) from exc
        if hashlib.sha256(content).hexdigest() != saved.sha256:
            raise HostError("the saved copy of a file is damaged", detail=str(path))
        return content

    def tidy(self) -> None:
        """Remove the saved files of a tuning that was killed before its first change.

        Raises:
            HostError: The journal cannot be read or written.
        """
        if self._saved.exists() and any(self._saved.iterdir()):
            with self.open() as page:
                page.write_tuning(page.tuning)

    def _read(self) -> _Content:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return _Content(format=_FORMAT, changes=())
        except OSError as exc:
            raise HostError("cannot read the journal of changes to this host", detail=str(exc)) from exc
        try:
            version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"absent"))
            if bytes(version) not in {str(known).encode() for known in _KNOWN_FORMATS}:
                raise HostError(
                    "the journal of changes to this host has another format",
                    detail=f"{self._path}: format {bytes(version).decode()}, known here is {_FORMAT}",
                    hint="undo the changes with the pgdyno that made them: `pgdyno restore`",
                )
            return msgspec.json.decode(content, type=_Content)
        except NOT_JSON as exc:
            raise HostError(
                "the journal of changes to this host is damaged",
                detail=f"{self._path}: {exc}",
                hint="put back by hand each old_value that is still readable in it, then remove it",
            ) from exc

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenJournal]:
        """Lock the journal against other processes for the length of the block.

        Ctrl-C and SIGTERM take effect after the block.

        Raises:
            HostError: The journal cannot be read or written; nothing was changed.
        """
        while True:
            # In this order: interrupted between lock and block, this process would keep the lock, and wait for itself as it
            # undoes its changes. Only the wait for another process can be interrupted.
            with uninterrupted(), self._lock() as is_locked:
                if is_locked:
                    yield OpenJournal(self._path, self._saved, self._read())
                    return
            time.sleep(_RETRY_S)

    def drop(self, changes: Iterable[AnyChange]) -> None:
        """Remove undone changes from the journal.

        Raises:
            HostError: The journal cannot be read or written.
        """
        gone = set(changes)
        with self.open() as page:
            page.write(change for change in page.changes if change not in gone)

    def drop_settings(self, changes: Iterable[AnyChange]) -> None:
        """Remove settings of given servers that are put back.

        Raises:
            HostError: As for `drop`.
        """
        gone = set(changes)
        with self.open() as page:
            page.write_settings(change for change in page.settings if change not in gone)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        """Lock the journal unless another process holds it, and tell whether it is locked."""
        try:
            make_reachable(self.folder)
            # The lock file is closed to other accounts: any process that could open it for reading could hold the lock
            # for ever.
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, mode=0o600)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(lock)


class OpenJournal:
    """A journal that this process has locked with `Journal.open`."""

    def __init__(self, path: Path, saved: Path, content: _Content) -> None:
        self._path = path
        self._saved = saved
        self._content = content

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of measurements."""
        return self._content.changes

    @property
    def tuning(self) -> AppliedTuning | None:
        """The changes of tunings."""
        return self._content.tuning

    @property
    def settings(self) -> tuple[SettingChange, ...]:
        """The settings of given servers."""
        return self._content.settings

    def write(self, changes: Iterable[Change]) -> None:
        """Replace the changes of measurements; the file is on disk when this returns.

        Raises:
            HostError: The journal cannot be written; it is as it was.
        """
        self._write(msgspec.structs.replace(self._content, changes=tuple(changes)))

    def write_settings(self, settings: Iterable[SettingChange]) -> None:
        """Replace the settings of given servers; the file is on disk when this returns.

        Raises:
            HostError: As for `write`.
        """
        self._write(msgspec.structs.replace(self._content, settings=tuple(settings)))

    def write_tuning(self, tuning: AppliedTuning | None) -> None:
        """Replace the changes of tunings and remove saved files that they do not need.

        The journal is on disk when this returns.

        Raises:
            HostError: As for `write`.
        """
        self._write(msgspec.structs.replace(self._content, tuning=tuning))
        kept = tuning.saved if tuning is not None else frozenset()
        try:
            for path in self._saved.iterdir() if self._saved.exists() else ():
                if path.name not in kept:
                    path.unlink()
        except OSError as exc:
            raise _cannot_write(exc) from exc

    def save(self, content: bytes) -> str:
        """Save a file's content before a tuning that needs it is written.

        Returns:
            The SHA-256 of the content.

        Raises:
            HostError: The content cannot be written.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            self._saved.mkdir(mode=0o700, exist_ok=True)
            write_durably(self._saved / sha256, content)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        return sha256

    def _write(self, content: _Content) -> None:
        content = msgspec.structs.replace(content, format=_FORMAT)
        try:
            if content.changes or content.tuning is not None or content.settings:
                write_durably(self._path, msgspec.json.format(msgspec.json.encode(content), indent=1))
                self._path.chmod(0o644)
            else:
                # An older pgdyno refuses an unknown format even if the journal is empty. If a crash brings the file
                # back, its changes are undone already.
                self._path.unlink(missing_ok=True)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        self._content = content


def own_journal() -> Journal:
    """Return the machine's journal for root, or the account's own journal, which holds no kernel settings of measurements.

    Raises:
        HostError: There is no home directory to put it in.
    """
    if os.geteuid() == 0:
        return Journal()
    state_home = os.environ.get("XDG_STATE_HOME")
    try:
        return Journal(Path(state_home) / HOME_FOLDER.name if state_home else Path.home() / HOME_FOLDER)
    except RuntimeError as exc:
        raise HostError("there is no home directory for the journal", hint="set XDG_STATE_HOME to a folder") from exc


def _cannot_write(exc: OSError) -> HostError:
    hint = "" if os.geteuid() == 0 else "run pgdyno as root to change the machine's own settings"
    return HostError("cannot write the journal of changes to this host", detail=str(exc), hint=hint)

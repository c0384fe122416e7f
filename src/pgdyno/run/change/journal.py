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
import enum
import fcntl
import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

from pgdyno.errors import HostError
from pgdyno.record.durable import write_durably
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process_id import ProcessId, this_process

# The journal does not lie in a pgdyno home: there are many homes, some are closed to other accounts, and users remove
# them to free space.
HOST_FOLDER = Path("/var/lib/pgdyno-journal")
HOME_FOLDER = Path(".local/state/pgdyno-journal")
"""The journal's path below the home directory of an account other than root."""
CHANGES = "changes.json"
# Format 1 had no tuning, format 2 no settings of given servers, format 3 no tuning of them, format 4 no commands. Every added field makes a new
# format, and unknown formats are refused: an older pgdyno would otherwise drop the field when it writes the file.
_FORMAT = 5
# Another process holds the lock for milliseconds.
_RETRY_S = 0.02
_KNOWN_FORMATS = (1, 2, 3, 4, 5)
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChangeKind(enum.Enum):
    """The kind of setting that is changed."""

    SYSCTL = "sysctl"
    SYSFS = "sysfs"
    """A file below /sys."""
    MOUNT = "mount"
    """An option of a mounted file system."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kernel setting that a pgdyno changes, with every value that it gives to the setting."""

    kind: ChangeKind
    what: str
    namespace: str | None = None
    """The kernel namespace of the setting, such as `net:[4026531833]`; None if the setting is global."""
    old_value: str
    new_values: tuple[str, ...]
    at: str
    owner: ProcessId

    def is_same_thing(self, other: Change) -> bool:
        """Return whether both changes concern the same setting in the same namespace."""
        return (self.kind, self.what, self.namespace) == (other.kind, other.what, other.namespace)


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file's owner, mode and hash before a change.

    The journal keeps the content under its hash, readable by its owner alone, because it may hold a password.
    """

    sha256: str
    uid: int
    gid: int
    mode: int


class FileChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="file"):
    """The replacement of a whole file."""

    what: str
    """The file's path."""
    old: SavedFile | None
    """The file before; None if it did not exist."""
    new_sha256s: tuple[str, ...]


class Starter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The way to start a server as it was started before."""

    unit: str | None = None
    """The systemd unit; None: pg_ctl starts the server with the options in its data directory's postmaster.opts."""
    log: str | None = None
    """The log file that pg_ctl gives the server; None if the server's own log collector writes the log."""


class ServerChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="server"
):
    """Settings that a tuning writes to a server's postgresql.auto.conf."""

    what: str
    """The data directory."""
    uid: int
    """The owner of the data directory; a directory of another owner at this path is left alone."""
    mount_point: str
    """The mount point of the data directory's volume: while it is not mounted, the directory is not considered gone."""
    old: SavedFile | None
    """The file before; None if there was none."""
    settings: dict[str, tuple[str, ...]]
    """Every value that each setting was given, by name in lower case; empty values once the file is restored."""
    bindir: str
    postmaster: ProcessId | None
    """The server process that ran before; None if the server was stopped."""
    starter: Starter | None
    """The way to restart the server; None if pgdyno must not restart it."""

    @property
    def is_put_back(self) -> bool:
        """True if the file is restored and the change only waits for the server's restart."""
        return bool(self.settings) and not any(self.settings.values())


class TuningState(enum.Enum):
    """The progress of a tuning."""

    APPLYING = "applying"
    APPLIED = "applied"
    """All changes are made and stay."""


class ApplyCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command of the user's that puts settings of a server in force; it gets them as NAME=VALUE lines."""

    argv: tuple[str, ...]
    folder: str
    """Where it is run."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One setting of a whole server that is reached by a connection string, with all texts that pgdyno gives it."""

    what: str
    """Its name in lower case."""
    server: str
    """Where it listens, as people write it."""
    dsn: str
    """The connection string, without a secret."""
    system_identifier: str
    """Tells the server from all others, wherever it listens by then."""
    old_text: str | None
    """As postgresql.auto.conf had it; None if it had none, and where a command changes the setting."""
    old_value: str
    """As the server showed it; where a command changes the setting, in the server's own unit, as are `new_texts`."""
    new_texts: tuple[str, ...]
    at: str
    owner: ProcessId
    tuning: TuningState | None = None
    """None if a study changes it until its end."""
    command: ApplyCommand | None = None
    """What changes it and puts it back; None for ALTER SYSTEM."""


class EmulationChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An emulated machine; `emulation/note.py` keeps it in a file of its own, beside the journal."""

    what: str
    """The folder of its disks."""
    at: str
    owner: ProcessId


AnyChange = Change | FileChange | ServerChange | SettingChange | EmulationChange


class AppliedTuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of one or more tunings, with the state before the first of them."""

    state: TuningState
    owner: ProcessId
    """The process that made the latest change."""
    at: str
    may_restart: bool = False
    """True if servers may be restarted to undo an unfinished tuning."""
    kernel: tuple[Change, ...] = ()
    files: tuple[FileChange, ...] = ()
    servers: tuple[ServerChange, ...] = ()

    @property
    def changes(self) -> tuple[AnyChange, ...]:
        """Return the changes of servers, files and the kernel, in this order."""
        return (*self.servers, *self.files, *self.kernel)

    @property
    def saved(self) -> frozenset[str]:
        """Return the hashes of the saved files that this tuning needs."""
        olds = (*(change.old for change in self.files), *(change.old for change in self.servers))
        return frozenset(old.sha256 for old in olds if old is not None)


class UndoOutcome(enum.Enum):
    """The result of an attempt to undo a change."""

    UNDONE = "undone"
    UNNEEDED = "unneeded"
    """The value was already the old one."""
    GONE = "gone"
    """The changed setting, file or server no longer exists, or something else has undone the change."""
    LEFT = "left"
    """Another program has changed the value since, and pgdyno left that value in place."""
    FAILED = "failed"
    """The change has yet to be undone."""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """The result of undoing one change.

    `found_value` is None if it was not read, or cannot be shown in a few words. `reason` explains every outcome but
    UNDONE; for UNDONE it says what is still missing. `waiting` names the settings that a server is known to keep until
    its restart; the journal keeps them until then.
    """

    change: AnyChange
    outcome: UndoOutcome
    found_value: str | None = None
    reason: str = ""
    waiting: tuple[str, ...] = ()


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
        except msgspec.DecodeError as exc:
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
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                # Other accounts may read what is changed, even if root's umask denies it.
                self.folder.chmod(0o755)
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


def begin_change(*, kind: ChangeKind, what: str, namespace: str | None, old_value: str) -> Change:
    """Return a change that this process is about to make now."""
    return Change(
        kind=kind,
        what=what,
        namespace=namespace,
        old_value=old_value,
        new_values=(),
        at=local_now().isoformat(timespec="seconds"),
        owner=this_process(),
    )


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block has ended.

    Python handles signals in its main thread only, so in other threads this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {}
    try:
        for number in _STOPPING:
            handler = signal.getsignal(number)
            # None means that C code outside Python set the handler; an ignored signal stays ignored.
            if handler not in {None, signal.SIG_IGN}:
                before[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for waiting in dict.fromkeys(came):
            signal.raise_signal(waiting)


def _cannot_write(exc: OSError) -> HostError:
    hint = "" if os.geteuid() == 0 else "run pgdyno as root to change the machine's own settings"
    return HostError("cannot write the journal of changes to this host", detail=str(exc), hint=hint)

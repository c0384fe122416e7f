"""The journal of changes to this host: what is about to be changed is on disk before it is, so that it can be undone.

There is one journal to a machine, whichever home a pgdyno works in, because the kernel's settings are the machine's too:
two at once must not undo each other's changes, and a killed one's are undone by the next. It outlives a reboot, which
undoes some changes and not others. The journal knows who changed what; how to undo it is for the module that did it.
It refuses to be read in a form that it does not know, and it never drops an entry by itself. Containers with a /var/lib
of their own have a journal of their own.

What a measurement changes it holds while it runs; a tuning stays when its pgdyno has ended. A measurement may change for
a while what a tuning has set. Who is not root has a journal of their own, for their own servers' tuning: nothing else of
a machine can be theirs to change.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import hashlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

from pgdyno.errors import HostError
from pgdyno.record.durable import write_durably
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process_id import ProcessId, this_process

# Not in a home: homes are many, closed to others at times, and removed to free space.
HOST_FOLDER = Path("/var/lib/pgdyno-journal")
HOME_FOLDER = Path(".local/state/pgdyno-journal")
"""In the home of who is not root."""
CHANGES = "changes.json"
# 1 had no tuning. Every field that is added makes a new format, and what is not known is refused: an older pgdyno that
# measures would write the file without it.
_FORMAT = 2
_KNOWN_FORMATS = (1, 2)
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChangeKind(enum.Enum):
    """What sort of thing is changed."""

    SYSCTL = "sysctl"
    SYSFS = "sysfs"
    """A file below /sys."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing of the host that a pgdyno changes, with all values that it gives it meanwhile."""

    kind: ChangeKind
    what: str
    namespace: str | None = None
    """The kernel namespace that the thing belongs to, such as `net:[4026531833]`; None where the machine has one."""
    old_value: str
    new_values: tuple[str, ...]
    at: str
    owner: ProcessId

    def is_same_thing(self, other: Change) -> bool:
        """Whether both change the very same thing."""
        return (self.kind, self.what, self.namespace) == (other.kind, other.what, other.namespace)


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file as it was; the journal keeps what it held under its hash, closed to others, for it may hold a password."""

    sha256: str
    uid: int
    gid: int
    mode: int


class FileChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="file"):
    """A file that is replaced as a whole."""

    what: str
    """Its path."""
    old: SavedFile | None
    """None where there was none."""
    new_sha256s: tuple[str, ...]


class Starter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What starts a server again as it was started before."""

    unit: str | None = None
    """Of systemd; None: pg_ctl does, with the options that the server has left in its data directory."""
    log: str | None = None
    """Where pg_ctl has the server write its log; None where the server collects that by itself."""


class ServerChange(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="server"
):
    """Settings that a server gets from its postgresql.auto.conf."""

    what: str
    """The data directory."""
    uid: int
    """Its owner's: another's in its place is not to be touched."""
    mount_point: str
    """Of the volume that it lies on: what is missing while that is away is not gone."""
    old: SavedFile | None
    """The file before; None where there was none."""
    settings: dict[str, tuple[str, ...]]
    """Every value that each setting was given, by its name in lower case; none once it is put back in the file."""
    bindir: str
    postmaster: ProcessId | None
    """That ran before; None where none did."""
    starter: Starter | None
    """None where nothing here may restart it."""

    @property
    def is_put_back(self) -> bool:
        """Whether nothing of it is left but a server that runs with it until it is restarted."""
        return bool(self.settings) and not any(self.settings.values())


AnyChange = Change | FileChange | ServerChange


class TuningState(enum.Enum):
    """How far a tuning is."""

    APPLYING = "applying"
    APPLIED = "applied"
    """Done, and to stay."""


class AppliedTuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tuning has changed, or several one after the other have, with what was there before the first of them."""

    state: TuningState
    owner: ProcessId
    """The last that changed any of it."""
    at: str
    may_restart: bool = False
    """Whether servers may be restarted to undo what was not finished."""
    kernel: tuple[Change, ...] = ()
    files: tuple[FileChange, ...] = ()
    servers: tuple[ServerChange, ...] = ()

    @property
    def changes(self) -> tuple[AnyChange, ...]:
        """All of them."""
        return (*self.servers, *self.files, *self.kernel)

    @property
    def saved(self) -> frozenset[str]:
        """Hashes of the files that are to be kept for it."""
        olds = (*(change.old for change in self.files), *(change.old for change in self.servers))
        return frozenset(old.sha256 for old in olds if old is not None)


class UndoOutcome(enum.Enum):
    """What became of the wish to undo a change."""

    UNDONE = "undone"
    UNNEEDED = "unneeded"
    """It was as before already."""
    GONE = "gone"
    """What was changed is no longer there, or something else has undone it."""
    LEFT = "left"
    """Somebody else has changed it since: it was left so."""
    FAILED = "failed"
    """It is still to be undone."""


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a change. `found_value` is None where it was not looked at, or is no value in a few words.

    `reason` explains all but UNDONE, and of that what is still missing. `waiting` are settings that a server runs with
    until it is restarted, as far as can be seen: until then the journal keeps that.
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


class Journal:
    """The journal in a folder: read by anyone, changed by one process at a time."""

    def __init__(self, folder: Path = HOST_FOLDER) -> None:
        self.folder = folder
        self._path = folder / CHANGES
        self._saved = folder / "saved"

    def read(self) -> tuple[Change, ...]:
        """What measurements hold, or have left changed when they were killed; oldest first.

        Raises:
            HostError: The journal cannot be read, or not understood.
        """
        return self._read().changes

    def read_tuning(self) -> AppliedTuning | None:
        """What tunings have changed.

        Raises:
            HostError: As `read`.
        """
        return self._read().tuning

    def read_saved(self, saved: SavedFile) -> bytes:
        """What a file held.

        Raises:
            HostError: It cannot be read, or is no longer what was saved.
        """
        path = self._saved / saved.sha256
        try:
            content = path.read_bytes()
        except OSError as exc:
            raise HostError("cannot read what pgdyno has saved of a file", detail=str(exc)) from exc
        if hashlib.sha256(content).hexdigest() != saved.sha256:
            raise HostError("what pgdyno has saved of a file is damaged", detail=str(path))
        return content

    def tidy(self) -> None:
        """Remove what was saved for a tuning that was killed before it had begun.

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
                hint="undo by hand what it still tells (old_value), then remove it",
            ) from exc

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenJournal]:
        """Keep all other processes out while something is looked up, journalled and perhaps undone.

        Ctrl-C and SIGTERM wait meanwhile.

        Raises:
            HostError: The journal cannot be read or written here; nothing was changed.
        """
        with self._lock(), uninterrupted():
            content = self._read()
            yield OpenJournal(self._path, self._saved, content.changes, content.tuning)

    def drop(self, changes: Iterable[AnyChange]) -> None:
        """Forget changes that are undone.

        Raises:
            HostError: The journal cannot be read or written.
        """
        gone = set(changes)
        with self.open() as page:
            page.write(change for change in page.changes if change not in gone)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            if not self.folder.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                # Others may look what is changed, also where root's umask says no.
                self.folder.chmod(0o755)
            # Closed to others: whoever can open it for reading could hold the lock for ever.
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, mode=0o600)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class OpenJournal:
    """A journal that this process alone may change for now; made by `Journal.open`."""

    def __init__(self, path: Path, saved: Path, changes: tuple[Change, ...], tuning: AppliedTuning | None) -> None:
        self._path = path
        self._saved = saved
        self.changes = changes
        self.tuning = tuning

    def write(self, changes: Iterable[Change]) -> None:
        """Replace what measurements hold; it is on disk when this returns.

        Raises:
            HostError: It cannot be written; the journal is as it was.
        """
        self._write(tuple(changes), self.tuning)

    def write_tuning(self, tuning: AppliedTuning | None) -> None:
        """Replace what tunings have changed; it is on disk when this returns. What was saved for nothing else goes.

        Raises:
            HostError: As `write`.
        """
        self._write(self.changes, tuning)
        kept = tuning.saved if tuning is not None else frozenset()
        try:
            for path in self._saved.iterdir() if self._saved.exists() else ():
                if path.name not in kept:
                    path.unlink()
        except OSError as exc:
            raise _cannot_write(exc) from exc

    def save(self, content: bytes) -> str:
        """Keep what a file holds, before a tuning that needs it is written.

        Returns:
            Its hash.

        Raises:
            HostError: It cannot be written.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        try:
            self._saved.mkdir(mode=0o700, exist_ok=True)
            write_durably(self._saved / sha256, content)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        return sha256

    def _write(self, changes: tuple[Change, ...], tuning: AppliedTuning | None) -> None:
        try:
            if changes or tuning is not None:
                content = _Content(format=_FORMAT, changes=changes, tuning=tuning)
                write_durably(self._path, msgspec.json.format(msgspec.json.encode(content), indent=1))
                self._path.chmod(0o644)
            else:
                # An older pgdyno refuses a format that it does not know, also where nothing is held. Should a crash bring
                # it back, what it tells is undone already.
                self._path.unlink(missing_ok=True)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        self.changes, self.tuning = changes, tuning


def own_journal() -> Journal:
    """The machine's for root; for others one of their own, which holds tunings of their own servers only.

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
    """A change that this process is about to make, now."""
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
    """Let Ctrl-C, SIGTERM and SIGHUP wait until the block has ended; then they come as if they had just been sent.

    Signals interrupt Python's main thread only: elsewhere there is nothing to do.
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
            # None was set by somebody else's C code; what is ignored stays ignored.
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

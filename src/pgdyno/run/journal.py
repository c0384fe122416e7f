"""The journal of changes to this host: what is about to be changed is on disk before it is, so that it can be undone.

There is one journal to a machine, whichever home a pgdyno works in, because the kernel's settings are the machine's too:
two at once must not undo each other's changes, and a killed one's are undone by the next. It outlives a reboot, which
undoes some changes and not others. The journal knows who changed what; how to undo it is for the module that did it.
It refuses to be read in a form that it does not know, and it never drops an entry by itself. Containers with a /var/lib
of their own have a journal of their own.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

from pgdyno.errors import HostError
from pgdyno.record.store import write_durably
from pgdyno.run.clock import local_now

# Not in a home: homes are many, closed to others at times, and removed to free space.
HOST_FOLDER = Path("/var/lib/pgdyno-journal")
_FORMAT = 1
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChangeKind(enum.Enum):
    """What sort of thing is changed."""

    SYSCTL = "sysctl"


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """A process that no other can be mistaken for: pids are used again, and so they are after a reboot."""

    pid: int
    start_ticks: int
    """Clock ticks from boot to the process's start. Source: proc_pid_stat(5), starttime."""
    boot_id: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
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
    """The end of a change. `found_value` is None where it was not looked at; `reason` explains all but UNDONE."""

    change: Change
    outcome: UndoOutcome
    found_value: str | None = None
    reason: str = ""


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    changes: tuple[Change, ...]


class Journal:
    """The journal in a folder: read by anyone, changed by one process at a time."""

    def __init__(self, folder: Path = HOST_FOLDER) -> None:
        self.folder = folder
        self._path = folder / "changes.json"

    def read(self) -> tuple[Change, ...]:
        """All changes that are not undone yet, oldest first.

        Raises:
            HostError: The journal cannot be read, or not understood.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as exc:
            raise HostError("cannot read the journal of changes to this host", detail=str(exc)) from exc
        try:
            version = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"absent"))
            if bytes(version) != str(_FORMAT).encode():
                raise HostError(
                    "the journal of changes to this host has another format",
                    detail=f"{self._path}: format {bytes(version).decode()}, known here is {_FORMAT}",
                    hint="undo the changes with the pgdyno that made them: `pgdyno restore`",
                )
            return msgspec.json.decode(content, type=_Content).changes
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
            yield OpenJournal(self._path, self.read())

    def drop(self, changes: Iterable[Change]) -> None:
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

    def __init__(self, path: Path, changes: tuple[Change, ...]) -> None:
        self._path = path
        self.changes = changes

    def write(self, changes: Iterable[Change]) -> None:
        """Replace all changes; they are on disk when this returns.

        Raises:
            HostError: They cannot be written; the journal is as it was.
        """
        kept = tuple(changes)
        content = msgspec.json.encode(_Content(format=_FORMAT, changes=kept))
        try:
            write_durably(self._path, msgspec.json.format(content, indent=1))
            self._path.chmod(0o644)
        except OSError as exc:
            raise _cannot_write(exc) from exc
        self.changes = kept


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


def this_process() -> ProcessId:
    """Ourselves."""
    start_ticks = _read_start_ticks(os.getpid())
    if start_ticks is None:
        raise HostError("/proc is not readable", hint="pgdyno runs on Linux, with /proc mounted")
    return ProcessId(pid=os.getpid(), start_ticks=start_ticks, boot_id=read_boot_id())


def is_running(process: ProcessId) -> bool:
    """Whether that very process still runs; one that is dead and not yet reaped does not."""
    return process.boot_id == read_boot_id() and _read_start_ticks(process.pid) == process.start_ticks


def read_boot_id() -> str:
    """What names this boot of the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


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


def _read_start_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Source: proc_pid_stat(5): the fields after the name begin with the 3rd, state; starttime is the 22nd.
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _cannot_write(exc: OSError) -> HostError:
    hint = "" if os.geteuid() == 0 else "run pgdyno as root to change the machine's own settings"
    return HostError("cannot write the journal of changes to this host", detail=str(exc), hint=hint)

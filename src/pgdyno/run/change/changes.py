"""Define what the journal holds: each change to a machine or a server, what it was before, and the result of undoing it.

A change is written into the journal before it is made. The module that makes changes of a kind knows how to undo them.
"""

from __future__ import annotations

import enum

import msgspec

from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process_id import ProcessId, this_process


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
    dependents: tuple[str, ...] = ()
    """The units that systemd stops with the unit and does not start with it."""


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
    FORGOTTEN = "forgotten"
    """The user has said that the change will never be undone."""


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

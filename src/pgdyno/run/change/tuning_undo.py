"""Undo the changes of a tuning: servers' configuration, files and the kernel.

What other programs have changed since is left in place and reported. From a postgresql.auto.conf that another program
has written since, only pgdyno's settings are removed: restoring the whole file would also undo that program's ALTER
SYSTEM. Otherwise the file is restored byte for byte.

Servers are restarted only if that was allowed. They are stopped before the kernel settings change: the huge pages that
a server holds are free for other uses only after it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError, StepFailedError, describe_failure
from pgdyno.run.change.changes import (
    AnyChange,
    AppliedTuning,
    FileChange,
    SavedFile,
    ServerChange,
    Starter,
    TuningState,
    Undo,
    UndoOutcome,
)
from pgdyno.run.change.kept_file import FileCopy, discard_partial, read_copy, write_copy
from pgdyno.run.change.kernel_undo import undo_changes
from pgdyno.run.change.named_server import NamedServer, open_server
from pgdyno.run.change.server_conf import NAME, take_back
from pgdyno.run.change.settings_state import reload_server
from pgdyno.run.change.starter import find_origin
from pgdyno.run.host.process_id import read_boot_id

Load = Callable[[SavedFile], FileCopy]
"""A function that returns the content of a saved file."""


def undo_tuning(
    tuning: AppliedTuning,
    load: Load,
    *,
    environment: Mapping[str, str] | None = None,
    on_activity: Callable[[str], None],
) -> tuple[Undo, ...]:
    """Undo a tuning in an order that lets servers start again, and return the result of each change.

    Args:
        tuning: The tuning to undo.
        load: Returns the content of a saved file.
        environment: The environment for a server that ran before and is stopped now; None: a clean one.
        on_activity: Called with a description of each step as it begins.
    """
    servers = [_UndoneServer(change, tuning, load, environment) for change in tuning.servers]
    for server in servers:
        on_activity(f"{server.change.what}: settings")
        server.attempt(server.put_back)
        server.attempt(server.stop)
    on_activity("kernel settings")
    files = [_undo_file(change, load) for change in tuning.files]
    kernel = undo_changes(tuning.kernel, is_lasting=bool(tuning.files))
    for server in servers:
        if server.starts_with is not None:
            on_activity(f"{server.change.what}: start")
        server.attempt(server.start)
    return (*(server.undo for server in servers), *files, *kernel)


def open_changed(change: ServerChange) -> NamedServer:
    """Open the server that a tuning has changed.

    Raises:
        HostError: As for `open_server`.
    """
    return open_server(Path(change.what), bindir=Path(change.bindir), uid=change.uid)


class _UndoneServer:
    """A server whose changes are being undone."""

    def __init__(
        self, change: ServerChange, tuning: AppliedTuning, load: Load, environment: Mapping[str, str] | None
    ) -> None:
        self.change = change
        self.starts_with: Starter | None = None
        self.undo = Undo(change=change, outcome=UndoOutcome.UNNEEDED)
        self._tuning = tuning
        self._load = load
        self._environment = environment

    def attempt(self, step: Callable[[NamedServer], None]) -> None:
        """Run one step and record its failure as the change's result, so that the other changes are still undone."""
        if self.undo.outcome is UndoOutcome.GONE:
            return
        if not Path(self.change.what).exists() and Path(self.change.mount_point).is_mount():
            where = "" if self.change.is_put_back else "; wherever it is now, its settings are as tuned"
            self._end(UndoOutcome.GONE, f"its data directory is gone{where}")
            return
        try:
            step(open_changed(self.change))
        except (PgdynoError, OSError) as error:
            self._end(UndoOutcome.FAILED, describe_failure(error))

    def put_back(self, server: NamedServer) -> None:
        """Restore the server's postgresql.auto.conf."""
        if self.change.is_put_back:
            return
        path = server.path / NAME
        discard_partial(path, uid=server.uid)
        old = self._load(self.change.old) if self.change.old is not None else None
        found = read_copy(path, uid=server.uid)
        if found == old:
            return
        if found is None:
            self.undo = _ended(
                self.change, UndoOutcome.LEFT, "another program has removed it since, so pgdyno put nothing back"
            )
            return
        back = take_back(found.content, old.content if old else None, self.change.settings)
        new = old if back.is_as_before else msgspec.structs.replace(found, content=back.content)
        write_copy(path, new, instead_of=found, uid=server.uid)
        self.undo = _ended(self.change, UndoOutcome.UNDONE, _words_of_left(back.left))

    def stop(self, server: NamedServer) -> None:
        """Stop the server if it needs a restart to be as before."""
        running = server.postmaster()
        if self.change.is_put_back and running is not None and running.id != self.change.postmaster:
            # Only the restart was missing, and the server has been restarted since.
            return
        was_ours = self._tuning.state is TuningState.APPLYING and _is_of_this_boot(self.change)
        try:
            waiting = self._reload(server)
        except StepFailedError:
            # systemd may restart the server again and again with the settings that make it fail.
            is_of_unit = self.change.starter is not None and self.change.starter.unit is not None
            if server.postmaster() is not None and not (was_ours and is_of_unit):
                raise
            # The server was stopped, or ended by itself, while settings were applied to it.
            self.starts_with = self.change.starter if was_ours else None
            return
        except HostError as error:
            server.reload()
            why = f"whether it takes a restart, too, cannot be seen: {error.detail or error.fact}"
            self._tell(why, waiting=tuple(self.change.settings))
            return
        # If the settings could not be put back, a restart would change nothing.
        if not waiting or self.undo.outcome is UndoOutcome.FAILED:
            return
        running = server.postmaster()
        origin = find_origin(server, running.id.pid) if running else None
        if origin is None or origin.starter is None or not self._tuning.may_restart:
            how = (
                f"is left to you: {origin.obstacle}"
                if origin and origin.obstacle
                else "`pgdyno restore --restart` does"
            )
            self._tell(
                f"it runs with {', '.join(waiting)} as tuned until it is restarted, which {how}", waiting=waiting
            )
            return
        self._environment = origin.environment
        self.starts_with = origin.starter
        server.stop(origin.starter)

    def start(self, server: NamedServer) -> None:
        """Start the server if `stop` stopped it."""
        if self.starts_with is not None:
            server.start(self.starts_with, self._environment)
            # A server that was already starting may have read the file before it was restored.
            if self._reload(server):
                server.stop(self.starts_with)
                server.start(self.starts_with, self._environment)
            if self.change.is_put_back:
                self.undo = _ended(self.change, UndoOutcome.UNDONE, "by a restart")

    def _reload(self, server: NamedServer) -> tuple[str, ...]:
        """Reload the server's files and return the changed settings that wait for a restart."""
        state = reload_server(server, tuple(self.change.settings))
        return tuple(name for name, shown in state.settings.items() if shown.is_waiting)

    def _tell(self, words: str, *, waiting: tuple[str, ...] = ()) -> None:
        was_needed = self.undo.outcome is not UndoOutcome.UNNEEDED or (self.change.is_put_back and waiting)
        outcome = self.undo.outcome if was_needed else UndoOutcome.UNDONE
        reason = "; ".join(filter(None, (self.undo.reason, words)))
        self.undo = Undo(change=self.change, outcome=outcome, reason=reason, waiting=waiting)

    def _end(self, outcome: UndoOutcome, words: str) -> None:
        before = [self.undo.reason] if self.undo.reason not in {"", words} else []
        self.undo = _ended(self.change, outcome, "; ".join((*before, words)))


def _undo_file(change: FileChange, load: Load) -> Undo:
    path = Path(change.what)
    try:
        if not path.parent.exists():
            return _ended(change, UndoOutcome.GONE, "its folder is gone")
        discard_partial(path, uid=0)
        old = load(change.old) if change.old is not None else None
        found = read_copy(path, uid=0)
        if found == old:
            return Undo(change=change, outcome=UndoOutcome.UNNEEDED)
        if found is None or found.sha256 not in change.new_sha256s:
            return _ended(change, UndoOutcome.LEFT, "another program has changed it since, so pgdyno left it as it is")
        write_copy(path, old, instead_of=found, uid=0)
    except PgdynoError as error:
        return _ended(change, UndoOutcome.FAILED, error.reason)
    return Undo(change=change, outcome=UndoOutcome.UNDONE)


def _ended(change: AnyChange, outcome: UndoOutcome, reason: str) -> Undo:
    return Undo(change=change, outcome=outcome, reason=reason)


def _words_of_left(names: Sequence[str]) -> str:
    return f"another program has changed {', '.join(names)} since, so pgdyno left that as it is" if names else ""


def _is_of_this_boot(change: ServerChange) -> bool:
    return change.postmaster is not None and change.postmaster.boot_id == read_boot_id()

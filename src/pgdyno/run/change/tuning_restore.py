"""Undo tunings at any later time, from the journal.

The journal keeps what the next pgdyno or a restart has still to do.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import HostError, PgdynoError
from pgdyno.run.change.changes import AppliedTuning, Change, FileChange, ServerChange, TuningState, Undo, UndoOutcome
from pgdyno.run.change.journal import CHANGES, HOME_FOLDER, Journal
from pgdyno.run.change.kept_file import load_copy
from pgdyno.run.change.starter import find_origin
from pgdyno.run.change.tuning_undo import open_changed, undo_tuning
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process_id import is_running, this_process


def restore_tuning(
    journal: Journal, *, may_restart: bool, on_activity: Callable[[str], None] = lambda _: None
) -> tuple[Undo, ...]:
    """Undo all changes of tunings, finished or not, and keep in the journal what cannot be undone.

    Args:
        journal: The journal that holds the tunings.
        may_restart: Whether to restart servers that need it to be as before. A server that an unfinished tuning has
            stopped is started in any case.
        on_activity: Called with a description of each step as it begins.

    Raises:
        HostError: The journal cannot be read or written, or another pgdyno is changing or undoing the same.
    """
    tuning = journal.read_tuning()
    if tuning is None:
        journal.tidy()
        return ()
    with uninterrupted():
        tuning = _claim(journal, may_restart=may_restart)
        undone = undo_tuning(tuning, lambda saved: load_copy(saved, journal), on_activity=on_activity)
        with journal.open() as page:
            page.write_tuning(_remaining(tuning, undone))
    return undone


def find_other_journals() -> dict[str, Path]:
    """Find the non-empty journals of other accounts in their usual folders, by account.

    They are not opened: root does not read files in other accounts' homes.
    """
    found = {}
    for account in pwd.getpwall():
        folder = account.pw_dir / HOME_FOLDER
        try:
            is_theirs = (folder / CHANGES).stat().st_uid == account.pw_uid != os.geteuid()
        except OSError:
            continue
        if is_theirs:
            found[account.pw_name] = folder
    return found


def _claim(journal: Journal, *, may_restart: bool) -> AppliedTuning:
    """Take over a tuning in order to undo it, so that the next pgdyno continues if this one is killed."""
    with journal.open() as page:
        tuning = page.tuning
        if tuning is None:
            raise HostError("another pgdyno has just undone the tuning of this host")
        is_ours = tuning.owner == this_process()
        if tuning.state is TuningState.APPLYING and is_running(tuning.owner) and not is_ours:
            raise HostError(
                "another pgdyno is tuning this host, or undoing a tuning of it",
                detail=f"pid {tuning.owner.pid}, since {tuning.at}",
                hint="wait for it",
            )
        held = next((held for held in page.changes for change in tuning.kernel if held.is_same_thing(change)), None)
        if held is not None:
            raise HostError(
                f"a measurement holds {held.what}", detail=f"pid {held.owner.pid}, since {held.at}", hint="wait for it"
            )
        is_finished = tuning.state is TuningState.APPLIED
        tuning = msgspec.structs.replace(
            tuning,
            state=TuningState.APPLYING,
            owner=this_process(),
            may_restart=may_restart or (tuning.may_restart and not is_finished),
            servers=tuple(_as_it_runs(change, is_finished=is_finished) for change in tuning.servers),
        )
        page.write_tuning(tuning)
        return tuning


def _as_it_runs(change: ServerChange, *, is_finished: bool) -> ServerChange:
    """Return the change with the server process that runs now, so that one runs afterwards as well."""
    try:
        server = open_changed(change)
        running = server.postmaster()
        if change.is_put_back and (running is None or running.id != change.postmaster):
            return change
        if running is not None:
            starter = find_origin(server, running.id.pid).starter
            return msgspec.structs.replace(change, postmaster=running.id, starter=starter)
    except PgdynoError:
        # The server is gone, which undoing it will report, or it is just ending, or a program that was asked hangs.
        return change
    return msgspec.structs.replace(change, postmaster=None) if is_finished else change


def _remaining(tuning: AppliedTuning, undone: Sequence[Undo]) -> AppliedTuning | None:
    failed = [undo.change for undo in undone if undo.outcome is UndoOutcome.FAILED]
    # A server that ends from now on need not be started again, so it has no starter.
    waiting = [
        msgspec.structs.replace(undo.change, old=None, settings=dict.fromkeys(undo.waiting, ()), starter=None)
        for undo in undone
        if isinstance(undo.change, ServerChange) and undo.waiting and undo.outcome is not UndoOutcome.FAILED
    ]
    if not failed and not waiting:
        return None
    return msgspec.structs.replace(
        tuning,
        state=TuningState.APPLYING if failed else TuningState.APPLIED,
        kernel=tuple(change for change in failed if isinstance(change, Change)),
        files=tuple(change for change in failed if isinstance(change, FileChange)),
        servers=(*(change for change in failed if isinstance(change, ServerChange)), *waiting),
    )

"""Undoes tunings at any later time, by their journal, which keeps what is still to be done: by whoever is next, or a restart."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pgdyno.errors import HostError
from pgdyno.run.change.journal import (
    CHANGES,
    HOME_FOLDER,
    AppliedTuning,
    Change,
    FileChange,
    Journal,
    ServerChange,
    TuningState,
    Undo,
    UndoOutcome,
    uninterrupted,
)
from pgdyno.run.change.kept_file import load_copy
from pgdyno.run.change.starter import find_origin
from pgdyno.run.change.tuning_undo import open_changed, undo_tuning
from pgdyno.run.host.process_id import is_running, this_process


def restore_tuning(
    journal: Journal, *, may_restart: bool, on_activity: Callable[[str], None] = lambda _: None
) -> tuple[Undo, ...]:
    """Undo all that tunings have changed, finished or not. What cannot be undone stays in the journal.

    Args:
        journal: That they were written to.
        may_restart: Whether to restart servers for which it takes that to be as before. One that a tuning which was not
            finished has stopped is started in any case.
        on_activity: Told what is done now.

    Raises:
        HostError: The journal cannot be read or written, or another pgdyno is at work on the same.
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
    """Folders of the journals of other accounts that hold something, by account; as far as they lie where they usually do.

    They are not read: what lies in somebody's home is not for root to open.
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
    """Make a tuning ours to undo: if we are killed at that, the next one goes on."""
    with journal.open() as page:
        tuning = page.tuning
        if tuning is None:
            raise HostError("another pgdyno has just undone the tuning of this host")
        is_ours = tuning.owner == this_process()
        if tuning.state is TuningState.APPLYING and is_running(tuning.owner) and not is_ours:
            raise HostError(
                "another pgdyno is tuning this host, or undoing that",
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
    """With the postmaster that runs now, which is to run afterwards, too."""
    try:
        server = open_changed(change)
        running = server.postmaster()
        if change.is_put_back and (running is None or running.id != change.postmaster):
            return change
        if running is not None:
            starter = find_origin(server, running.id.pid).starter
            return msgspec.structs.replace(change, postmaster=running.id, starter=starter)
    except HostError:
        # It is gone, which undoing it will tell, or ends at this moment.
        return change
    return msgspec.structs.replace(change, postmaster=None) if is_finished else change


def _remaining(tuning: AppliedTuning, undone: Sequence[Undo]) -> AppliedTuning | None:
    failed = [undo.change for undo in undone if undo.outcome is UndoOutcome.FAILED]
    # Nobody has to start again what ends from now on: no starter.
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

"""`pgdyno restore`: put back what pgdyno has changed on this host: what `tune --apply` did, and what a killed one has left."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pgdyno.errors import HostError
from pgdyno.run.journal import Change, FileChange, Journal, Undo, UndoOutcome, is_running, own_journal
from pgdyno.run.kernel import undo_left_overs
from pgdyno.run.tuning_undo import restore_tuning


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was undone, and what was not touched."""

    undone: tuple[Undo, ...]
    in_use: tuple[Change, ...]
    """What a running pgdyno will undo by itself."""
    others: tuple[str, ...] = ()
    """What another account has tuned, by name."""

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """As a table, or in a line when nothing was to be undone."""
        if not self.undone and not self.in_use and not self.others:
            return Text("nothing to undo: pgdyno has left nothing changed on this host")
        table = Table(box=None, pad_edge=False)
        for heading in ("setting", "was found at", "what was done"):
            table.add_column(heading, overflow="fold")
        for undo in self.undone:
            table.add_row(undo.change.what, undo.found_value or "–", describe_undo(undo))
        for change in self.in_use:
            table.add_row(change.what, "–", f"in use by the pgdyno with pid {change.owner.pid}, which puts it back")
        for name in self.others:
            table.add_row(name, "–", "nothing: root has tuned it, and root can undo it")
        return table


def restore_host(
    journal: Journal | None = None,
    *,
    may_restart: bool = False,
    on_activity: Callable[[str], None] = lambda _: None,
) -> Restored:
    """Undo what tunings have changed and what is left over; what a running pgdyno uses is not touched.

    Args:
        journal: The only one to look at; else the machine's own, and this account's.
        may_restart: Whether to restart servers whose settings take that to be as before.
        on_activity: Told what is done now.

    Raises:
        HostError: Something could not be undone, another pgdyno is at work on it, or the journal not be read.
    """
    host, own = (journal, journal) if journal else (Journal(), own_journal())
    left_overs = undo_left_overs(host)
    undone = (*left_overs, *restore_tuning(own, may_restart=may_restart, on_activity=on_activity))
    failed = [undo for undo in undone if undo.outcome is UndoOutcome.FAILED]
    if failed:
        # Root looks into no journal but the machine's.
        needs_root = any(undo in left_overs for undo in failed)
        raise HostError(
            f"{len(failed)} of {len(undone)} changes to this host could not be undone",
            detail="\n".join(f"{undo.change.what}: {describe_undo(undo)}" for undo in undone),
            hint=f"run `pgdyno restore` {'as root of this host' if needs_root else 'again when that is mended'}",
        )
    in_use = tuple(change for change in host.read() if is_running(change.owner))
    return Restored(undone=undone, in_use=in_use, others=() if host.folder == own.folder else _tuned_in(host))


def describe_undo(undo: Undo) -> str:
    """What became of a change, in a few words."""
    change = undo.change
    old = change.old_value if isinstance(change, Change) else None
    match undo.outcome:
        case UndoOutcome.UNDONE:
            is_removed = isinstance(change, FileChange) and change.old is None
            done = "removed" if is_removed else f"put back to {old}" if old is not None else "put back as it was"
            return "; ".join(filter(None, (done, undo.reason)))
        case UndoOutcome.UNNEEDED:
            return f"nothing: it is {old}, as before" if old is not None else "nothing: it is as before"
        case UndoOutcome.LEFT:
            return f"nothing: {undo.reason}" + (f"; before pgdyno it was {old}" if old is not None else "")
        case UndoOutcome.GONE:
            return f"nothing: {undo.reason}"
        case UndoOutcome.FAILED:
            return f"not put back to {old}: {undo.reason}" if old is not None else f"not put back: {undo.reason}"


def _tuned_in(journal: Journal) -> tuple[str, ...]:
    tuning = journal.read_tuning()
    return tuple(change.what for change in tuning.changes) if tuning is not None else ()

"""`pgdyno restore`: put back what a killed pgdyno has left changed on this host."""

from __future__ import annotations

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pgdyno.errors import HostError
from pgdyno.run.journal import Change, Journal, Undo, UndoOutcome, is_running
from pgdyno.run.kernel import restore_left_overs


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was undone, and what a running pgdyno will undo by itself."""

    undone: tuple[Undo, ...]
    in_use: tuple[Change, ...]

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """As a table, or in a line when nothing was to be undone."""
        if not self.undone and not self.in_use:
            return Text("nothing to undo: pgdyno has left nothing changed on this host")
        table = Table(box=None, pad_edge=False)
        for heading in ("setting", "was found at", "what was done"):
            table.add_column(heading, overflow="fold")
        for undo in self.undone:
            table.add_row(undo.change.what, undo.found_value or "–", describe_undo(undo))
        for change in self.in_use:
            table.add_row(change.what, "–", f"in use by the pgdyno with pid {change.owner.pid}, which puts it back")
        return table


def restore_host(journal: Journal | None = None) -> Restored:
    """Undo what is left over; what a running pgdyno uses is not touched.

    Args:
        journal: The machine's own where none is given.

    Raises:
        HostError: Something could not be undone, or the journal not be read.
    """
    journal = journal or Journal()
    undone = restore_left_overs(journal)
    failed = [undo for undo in undone if undo.outcome is UndoOutcome.FAILED]
    if failed:
        raise HostError(
            f"{len(failed)} of {len(undone)} changes to this host could not be undone",
            detail="\n".join(f"{undo.change.what}: {describe_undo(undo)}" for undo in undone),
            hint="run `pgdyno restore` as root of this host",
        )
    return Restored(undone=undone, in_use=tuple(change for change in journal.read() if is_running(change.owner)))


def describe_undo(undo: Undo) -> str:
    """What became of a left-over, in a few words."""
    old = undo.change.old_value
    match undo.outcome:
        case UndoOutcome.UNDONE:
            return f"put back to {old}"
        case UndoOutcome.UNNEEDED:
            return f"nothing: it is {old}, as before"
        case UndoOutcome.LEFT:
            return f"nothing: {undo.reason}; before pgdyno it was {old}"
        case UndoOutcome.GONE:
            return f"nothing: {undo.reason}"
        case UndoOutcome.FAILED:
            return f"not put back to {old}: {undo.reason}"

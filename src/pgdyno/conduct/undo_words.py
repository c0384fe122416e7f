"""Say what became of a change to this host that pgdyno has put back, or could not."""

from __future__ import annotations

from pgdyno.run.change.changes import Change, FileChange, SettingChange, Undo, UndoOutcome


def describe_undo(undo: Undo) -> str:
    """Say what became of a change, in a few words."""
    change = undo.change
    old = change.old_value if isinstance(change, Change | SettingChange) else None
    match undo.outcome:
        case UndoOutcome.UNDONE:
            is_removed = isinstance(change, FileChange) and change.old is None
            done = "removed" if is_removed else f"put back to {old}" if old is not None else "put back as it was"
            return "; ".join(filter(None, (done, undo.reason)))
        case UndoOutcome.UNNEEDED:
            return f"nothing: {undo.reason or (f'it is {old}, as before' if old is not None else 'it is as before')}"
        case UndoOutcome.LEFT:
            return f"nothing: {undo.reason}" + (f"; before pgdyno it was {old}" if old is not None else "")
        case UndoOutcome.GONE:
            return f"nothing: {undo.reason}"
        case UndoOutcome.FAILED:
            return f"not put back to {old}: {undo.reason}" if old is not None else f"not put back: {undo.reason}"
        case UndoOutcome.FORGOTTEN:
            return f"forgotten: {undo.reason}"

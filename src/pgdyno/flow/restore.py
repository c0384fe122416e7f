"""`pgdyno restore`: put back what pgdyno has changed on this host: what `tune --apply` did, and what a killed one has left."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from pgdyno.conduct.undo_words import describe_undo
from pgdyno.errors import HostError, with_program
from pgdyno.run.change.journal import Change, Journal, Undo, UndoOutcome, is_running, own_journal
from pgdyno.run.change.kernel import undo_left_overs
from pgdyno.run.change.tuning_restore import find_other_journals, restore_tuning
from pgdyno.run.host.program import program_name


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """What an account has tuned that is not this one's to undo."""

    account: str
    what: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was undone, and what was not touched."""

    undone: tuple[Undo, ...]
    in_use: tuple[Change, ...]
    """What a running pgdyno will undo by itself."""
    others: tuple[Foreign, ...] = ()
    """As far as it can be seen."""

    def to_json(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """As a table, or in a line when nothing was to be undone."""
        if not self.undone and not self.in_use and not self.others:
            return Text("nothing to undo: this account's pgdyno has left nothing changed on this host")
        table = Table(box=None, pad_edge=False)
        for heading in ("setting", "was found at", "what was done"):
            table.add_column(heading, overflow="fold")
        for undo in self.undone:
            done = with_program(describe_undo(undo), program_name())
            table.add_row(undo.change.what, undo.found_value or "–", done)
        for change in self.in_use:
            table.add_row(change.what, "–", f"in use by the pgdyno with pid {change.owner.pid}, which puts it back")
        for other in self.others:
            table.add_row(other.what, "–", f"nothing: {other.account} has tuned it, and {other.account} can undo it")
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
    return Restored(undone=undone, in_use=in_use, others=() if journal else _find_foreign(host, own))


def _find_foreign(host: Journal, own: Journal) -> tuple[Foreign, ...]:
    tuning = host.read_tuning() if host.folder != own.folder else None
    roots = [Foreign(account="root", what=change.what) for change in (tuning.changes if tuning else ())]
    others = [Foreign(account=name, what=f"what {folder} tells") for name, folder in find_other_journals().items()]
    return (*roots, *others)

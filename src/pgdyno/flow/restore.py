"""`pgdyno restore`: put back what pgdyno has changed on this host or in a given server, by `tune --apply` or when it was killed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.ui import Ui
from pgdyno.conduct.undo_words import describe_undo
from pgdyno.errors import ExitCode, HostError, SpecError, StepFailedError, with_program
from pgdyno.report.forms.plain import Heading, render_line, render_rows
from pgdyno.run.change.changes import Change, SettingChange, Undo, UndoOutcome
from pgdyno.run.change.emulation.note import undo_left_emulations
from pgdyno.run.change.given.command import restore_by_command
from pgdyno.run.change.given.target import forget_words, restore_words
from pgdyno.run.change.given.undo import is_held, refuse_held, restore_settings
from pgdyno.run.change.journal import Journal, own_journal
from pgdyno.run.change.kernel import undo_left_overs
from pgdyno.run.change.tuning_restore import find_other_journals, restore_tuning
from pgdyno.run.given import conninfo
from pgdyno.run.given.access import open_access
from pgdyno.run.given.same_server import is_same_server
from pgdyno.run.host.process_id import is_running
from pgdyno.run.host.program import program_name
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.lost import NoConnectionError
from pgdyno.units import count_things


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """A change that another account has made, and that only that account can undo."""

    account: str
    what: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that were undone, and those that were not touched."""

    undone: tuple[Undo, ...]
    in_use: tuple[Change, ...]
    """Changes that a running pgdyno will undo by itself."""
    others: tuple[Foreign, ...] = ()
    """As far as this account may see them."""
    waiting: tuple[SettingChange, ...] = ()
    """Settings of servers that only a connection string names; `restore_given` puts them back."""

    @property
    def exit_code(self) -> ExitCode:
        """Return PROBLEM_FOUND if settings of a server wait for another command: a script must not take them for put back."""
        return ExitCode.PROBLEM_FOUND if any(not is_held(change) for change in self.waiting) else ExitCode.OK

    def to_json(self) -> bytes:
        """Return the changes as JSON."""
        return msgspec.json.encode(self)

    def to_terminal(self) -> RenderableType:
        """Return a table of the changes; a line where there are none."""
        if not self.undone and not self.in_use and not self.others and not self.waiting:
            return render_line("nothing to undo: this account's pgdyno has left nothing changed here")
        undone = [
            (undo.change.what, undo.found_value or "–", with_program(describe_undo(undo), program_name()))
            for undo in self.undone
        ]
        in_use = [
            (change.what, "–", f"in use by the pgdyno with pid {change.owner.pid}, which puts it back")
            for change in self.in_use
        ]
        others = [
            (other.what, "–", f"nothing: {other.account} has tuned it, and {other.account} can undo it")
            for other in self.others
        ]
        waiting = [(what, "–", with_program(words, program_name())) for what, words in _list_waiting(self.waiting)]
        headings = (Heading("what"), Heading("found"), Heading("what was done"))
        return render_rows(headings, [*undone, *in_use, *others, *waiting])


def restore_host(
    journal: Journal | None = None,
    *,
    may_restart: bool = False,
    on_activity: Callable[[str], None] = lambda _: None,
) -> Restored:
    """Undo what tunings have changed and what killed runs have left; do not touch what a running pgdyno uses.

    Args:
        journal: The only journal to read; None: the machine's and this account's.
        may_restart: Whether to restart servers whose settings take that to be as before.
        on_activity: Receives what is done now.

    Raises:
        HostError: Something could not be undone, another pgdyno is at work on it, or the journal not be read.
    """
    host, own = (journal, journal) if journal else (Journal(), own_journal())
    left_overs = (*undo_left_emulations(), *undo_left_overs(host))
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
    others = () if journal else _find_foreign(host, own)
    return Restored(undone=undone, in_use=in_use, others=others, waiting=own.read_settings())


def restore_given(dsn: str, *, ui: Ui) -> Restored:
    """Put back what tunings or a killed pgdyno of this account have changed in a server that a connection string names.

    Args:
        dsn: The connection string.
        ui: Asks whether a server has moved, where the journal has its identifier at another address that does not answer any
            more: a clone has it, too.

    Raises:
        SpecError: It is no connection string.
        HostError: It is a standby, a running pgdyno changes it, or the journal cannot be read.
        StepFailedError: There is no connection, or the server refuses; the journal keeps what is left.
    """
    journal = own_journal()
    known = journal.read_settings()
    copied: set[str] = set()

    @functools.cache
    def is_moved(there: str, here: str) -> bool:
        of_there = [one for one in known if one.server == there]
        count = len({one.what for one in of_there})
        changed = f"{count_things(count, 'setting')} {'was' if count == 1 else 'were'} changed in {there}"
        is_same = is_same_server(dsn, of_there[-1].dsn, address=there)
        if is_same is not None:
            if not is_same:
                copied.add(there)
                ui.say(
                    f"{changed}: another server, of which {here} is a copy; {restore_words(of_there[-1].dsn)} is for that one"
                )
            return is_same
        ui.say(f"{changed}; this is {here}, with the same system identifier")
        if ui.confirm(f"is {here} the server that was {there}, and no copy of it?", default=False):
            return True
        ui.say(f"what was changed in {there} waits; if that server is now {here}, add --yes")
        return False

    with _telling_of_forgetting(_find_named(known, dsn)):
        # First: it may have left the server down.
        undone = restore_by_command(
            lambda: conninfo.connect(dsn),
            journal,
            dsn=conninfo.hide_secrets(dsn),
            on_activity=ui.show_activity,
            is_moved=is_moved,
        )
        with open_access(dsn) as address, sql.connect(address) as connection:
            undone = (*undone, *restore_settings(connection, journal, is_moved=is_moved))
            identifier = str(sql.read_system_identifier(connection))
    waiting = tuple(
        one for one in journal.read_settings() if one.system_identifier == identifier and one.server not in copied
    )
    return Restored(undone=undone, in_use=(), waiting=waiting)


def forget_given(dsn: str, *, ui: Ui) -> Restored:
    """Drop from the journal of this account what would be put back in a server that is gone; connect to nothing.

    Args:
        dsn: The connection string, as the journal has it, or another one of the same host and port.
        ui: Asks.

    Raises:
        SpecError: It is no connection string, the journal has nothing of that server, or the user said no.
        HostError: A running pgdyno changes it, or the journal cannot be read or written.
    """
    journal = own_journal()
    known = journal.read_settings()
    named = _find_named(known, dsn)
    if not named:
        commands = dict.fromkeys(f"{one.server}: {forget_words(one.dsn)}" for one in known)
        raise SpecError(
            "the journal has no settings of this server",
            hint=f"it has some of {'; '.join(commands)}" if commands else "it has none of any server",
        )
    refuse_held(named)
    question = f"forget the old values of {'; '.join(what for what, _ in _list_waiting(named))}, so that nothing puts them back?"
    if not ui.confirm(question, default=False):
        raise SpecError("nothing was forgotten", detail=question, hint="say yes, or add --yes")
    journal.drop_settings(named)
    undone = tuple(
        Undo(
            change=one,
            outcome=UndoOutcome.FORGOTTEN,
            reason=f"it would have been put back to {one.old_value} in {one.server}",
        )
        for one in named
    )
    return Restored(undone=undone, in_use=())


def _find_named(changes: Sequence[SettingChange], dsn: str) -> tuple[SettingChange, ...]:
    """Return the changes of servers that a connection string names, as far as it tells without a connection."""
    shown, address = conninfo.hide_secrets(dsn), conninfo.find_address(dsn)
    return tuple(one for one in changes if one.dsn == shown or one.server == address)


@contextlib.contextmanager
def _telling_of_forgetting(changes: Sequence[SettingChange]) -> Iterator[None]:
    """Add to the error of a server that cannot be reached how to forget what waits there."""
    try:
        yield
    except StepFailedError as error:
        # Where there is no server, a command may fail before anything is connected to.
        if changes and (isinstance(error, NoConnectionError) or any(one.command for one in changes)):
            words = f"if that server is gone, {forget_words(changes[-1].dsn)}"
            error.hint = f"{error.hint}; or, {words}" if error.hint else words
        raise


def _list_waiting(changes: Sequence[SettingChange]) -> Iterator[tuple[str, str]]:
    """Yield the settings that wait in each server, and what puts them back."""
    groups: dict[tuple[str, str, int | None], list[SettingChange]] = {}
    for change in changes:
        pid = change.owner.pid if is_held(change) else None
        groups.setdefault((change.server, change.system_identifier, pid), []).append(change)
    for (server, _, pid), group in groups.items():
        names = list(dict.fromkeys(change.what for change in group))
        them = "it" if len(names) == 1 else "them"
        words = (
            f"nothing: {restore_words(group[-1].dsn)} puts {them} back or, if that server is gone, {forget_words(group[-1].dsn)}"
            if pid is None
            else f"in use by the pgdyno with pid {pid}, which puts {them} back"
        )
        yield f"{', '.join(names)} of {server}", words


def _find_foreign(host: Journal, own: Journal) -> tuple[Foreign, ...]:
    tuning = host.read_tuning() if host.folder != own.folder else None
    roots = [Foreign(account="root", what=change.what) for change in (tuning.changes if tuning else ())]
    others = [Foreign(account=name, what=f"what {folder} tells") for name, folder in find_other_journals().items()]
    return (*roots, *others)

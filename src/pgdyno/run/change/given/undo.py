"""Put settings of a given server back as the journal has them, and find what a killed pgdyno has left.

What somebody else has set in the meantime is left in place and told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pgdyno.errors import HostError, StepFailedError
from pgdyno.record.machine.given_server import write_address
from pgdyno.run.change.changes import SettingChange, TuningState, Undo, UndoOutcome
from pgdyno.run.change.given.reload import await_reload
from pgdyno.run.change.given.target import restore_words
from pgdyno.run.change.given.writer import await_writers
from pgdyno.run.change.journal import Journal
from pgdyno.run.host.process_id import is_running
from pgdyno.run.postgres import sql


def undo_settings(connection: sql.Connection, changes: Sequence[SettingChange]) -> tuple[Undo, ...]:
    """Put settings back as they were, unless somebody else has set them since.

    Raises:
        StepFailedError: The server refuses, or does not show them; the journal is to keep the changes.
    """
    names = [change.what for change in changes]
    texts = sql.read_auto_conf(connection, names)
    outcomes = {change.what: _judge(change, texts.get(change.what)) for change in changes}
    loaded = sql.read_loaded(connection, names)
    if UndoOutcome.UNDONE in outcomes.values():
        # ALTER SYSTEM puts a line last: all are written, so that they stand in their old order.
        for change in changes:
            if outcomes[change.what] is not UndoOutcome.LEFT:
                sql.alter_system(connection, change.what, change.old_text)
    # Also where the file is as before: a pgdyno may be killed before it has the server read it.
    sql.reload_settings(connection)
    shown = dict(zip(names, await_reload(connection, names, loaded).shown, strict=True))
    now = sql.read_auto_conf(connection, names)
    lost = [
        one.what for one in changes if outcomes[one.what] is UndoOutcome.UNDONE and now.get(one.what) != one.old_text
    ]
    if lost:
        raise StepFailedError(f"{', '.join(lost)} cannot be put back", detail="postgresql.auto.conf has another value")
    return tuple(
        _describe(change, outcomes[change.what], texts.get(change.what), shown[change.what]) for change in changes
    )


def find_left(changes: Sequence[SettingChange], system_identifier: str | None) -> tuple[SettingChange, ...]:
    """Return the changes of one server that a pgdyno makes now, or left behind when it was killed; no finished tuning."""
    return tuple(
        one for one in changes if one.system_identifier == system_identifier and one.tuning is not TuningState.APPLIED
    )


def refuse_left(changes: Sequence[SettingChange], system_identifier: str) -> None:
    """Raise a HostError if a pgdyno changes settings of a server, or left them changed."""
    left = find_left(changes, system_identifier)
    if left:
        raise HostError(
            f"another pgdyno changes {', '.join(one.what for one in left)} of this server, or left it changed",
            hint=f"wait for it; after a kill {restore_words(left[0].dsn)} puts it back",
        )


IsMoved = Callable[[str, str], bool]
"""Says whether the server that was at the first address is now the one at the second: copies have the same identifier."""


def stay(_there: str, _here: str) -> bool:
    """Say that no server has moved."""
    return False


def find_places(
    connection: sql.Connection, changes: Sequence[SettingChange], is_moved: IsMoved
) -> frozenset[tuple[str, str]]:
    """Return the system identifier and addresses under which the journal has the server of a connection.

    A standby, and a clone, has the identifier of the server whose changes are in the journal, and is another one.

    Args:
        connection: To the server.
        changes: What the journal has.
        is_moved: Is asked for each other address.

    Raises:
        HostError: It is a standby.
    """
    here = write_address(connection.info.host or connection.info.hostaddr, connection.info.port)
    if sql.read_given_server(connection)["is_in_recovery"]:
        raise HostError(
            f"{here} is a standby: nothing was put back, and the journal is as it was",
            detail="pg_is_in_recovery() is true",
            hint="connect to the server whose settings were changed; plain `pgdyno restore` names it",
        )
    identifier = str(sql.read_system_identifier(connection))
    others = dict.fromkeys(one.server for one in changes if one.system_identifier == identifier and one.server != here)
    return frozenset((identifier, one) for one in (here, *(other for other in others if is_moved(other, here))))


def restore_settings(connection: sql.Connection, journal: Journal, *, is_moved: IsMoved = stay) -> tuple[Undo, ...]:
    """Put back what tunings, or a killed pgdyno, have changed in the server of a connection.

    Args:
        connection: To the server.
        journal: The journal of this account.
        is_moved: Is asked for each other address that the journal has of such a server; what waits there stays without a yes.

    Raises:
        HostError: It is a standby, a running pgdyno changes it, or the journal cannot be read or written.
        StepFailedError: The server refuses, or a session of the killed pgdyno does not end; the journal keeps the changes.
    """
    places = find_places(connection, journal.read_settings(), is_moved)
    undone: list[Undo] = []
    with journal.open() as page:
        own = [one for one in page.settings if (one.system_identifier, one.server) in places]
        refuse_held(own)
        changes = [one for one in own if one.command is None]
        await_writers(connection, (one.owner for one in changes))
        # A study may have begun on a tuned server, never the other way round; the last address was tuned last.
        for of_study in (True, False):
            for server in dict.fromkeys(one.server for one in reversed(changes)):
                layer = [one for one in changes if (one.tuning is None) is of_study and one.server == server]
                undone += undo_settings(connection, layer) if layer else ()
        page.write_settings(one for one in page.settings if one not in changes)
    return tuple(undone)


def is_held(change: SettingChange) -> bool:
    """Return whether a running pgdyno is at work on a change; with a finished tuning it is not."""
    return change.tuning is not TuningState.APPLIED and is_running(change.owner)


def refuse_held(changes: Iterable[SettingChange]) -> None:
    """Raise a HostError if a running pgdyno is at work on one of the changes."""
    held = next(filter(is_held, changes), None)
    if held is not None:
        who = "a measurement" if held.tuning is None else "a tuning"
        raise HostError(f"{who} holds {held.what}", detail=f"pid {held.owner.pid}, since {held.at}", hint="wait for it")


def _judge(change: SettingChange, found: str | None) -> UndoOutcome:
    if found == change.old_text:
        return UndoOutcome.UNNEEDED
    return UndoOutcome.UNDONE if found in change.new_texts else UndoOutcome.LEFT


def _describe(change: SettingChange, outcome: UndoOutcome, found: str | None, shown: str) -> Undo:
    reason = ""
    if outcome is UndoOutcome.LEFT:
        what = "taken it out of postgresql.auto.conf" if found is None else f"set it to {found}"
        reason = f"somebody else has {what} since, so pgdyno left it as it is"
    elif shown != change.old_value:
        reason = f"its place in postgresql.auto.conf is as before, and the server shows {shown}"
    return Undo(change=change, outcome=outcome, found_value=found, reason=reason)

"""Have a command of the user's change settings of a given server for a study, and have it put them back.

For servers whose settings change neither by ALTER SYSTEM nor without a restart: managed services, Patroni, operators. What the
server showed before is in the journal first. The server may be down when settings are put back.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pgdyno.errors import SpecError, StepFailedError
from pgdyno.facts.gucs import Guc, as_shown, read_value
from pgdyno.plan.experiment import Variant
from pgdyno.run.change.changes import SettingChange, Undo, UndoOutcome
from pgdyno.run.change.given.check import (
    describe_guc,
    hidden_setting,
    refuse_secret,
    refuse_unidentified,
    unseen_setting,
)
from pgdyno.run.change.given.command_run import SHOWN_WITHIN_S, Connect, Tell, await_end, await_shown, run_command
from pgdyno.run.change.given.settings import HeldSettings, holding
from pgdyno.run.change.given.target import GivenSwitch, find_text
from pgdyno.run.change.given.undo import IsMoved, find_places, refuse_held, stay
from pgdyno.run.change.journal import Journal, own_journal
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process_id import this_process
from pgdyno.run.postgres import sql
from pgdyno.spec.table import SettingValue

# What a session of this role has instead of the server's value. Source: PostgreSQL 18 src/include/utils/guc.h, GucSource.
_HIDING = frozenset({"global", "database", "user", "database user", "client", "session"})


def check_command_switch(switch: GivenSwitch) -> tuple[SettingChange, ...]:
    """Return the changes that the command would make; change nothing.

    Raises:
        SpecError: A setting cannot be changed, something hides it from sessions, or a value cannot be; or the server does not tell
            which it is.
        StepFailedError: The server does not answer.
    """
    with sql.connect(switch.address) as connection:
        found = sql.read_server_settings(connection, switch.names)
    for name in switch.names:
        _refuse(name, found.get(name))
    refuse_unidentified(switch)
    return tuple(
        SettingChange(
            what=name,
            server=switch.server,
            dsn=switch.dsn,
            system_identifier=switch.system_identifier,
            old_text=None,
            old_value=found[name]["setting"],
            new_texts=tuple(
                _in_own_unit(describe_guc(found[name], switch.major), text) for text in switch.texts_of(name)
            ),
            at=local_now().isoformat(timespec="seconds"),
            owner=this_process(),
            command=switch.command,
        )
        for name in switch.names
    )


@contextlib.contextmanager
def changing_by_command(
    switch: GivenSwitch,
    *,
    journal: Journal | None = None,
    say: Tell = lambda _: None,
    on_activity: Tell = lambda _: None,
    shown_within_s: float = SHOWN_WITHIN_S,
) -> Iterator[HeldSettings]:
    """Hold settings of a server that a command changes, and have it put them back at the end of the block.

    Args:
        switch: The server, the variants and the command.
        journal: The journal to write; None: the journal of this account.
        say: Receives what is not as it was.
        on_activity: Receives what is waited for.
        shown_within_s: How long the server may take to show what the command has set.

    Raises:
        SpecError: As for `check_command_switch`; nothing is changed.
        HostError: The settings are held or left changed by another pgdyno, or the journal cannot be written.
        StepFailedError: The command failed, or the server does not show the values; what is not put back stays in the journal.
    """
    held = CommandSettings(switch, journal or own_journal(), say, on_activity, shown_within_s)
    with holding(held, say):
        yield held


class CommandSettings(HeldSettings):
    """Settings of a server that a command changes, and that this process holds; implements `ServerSettings`."""

    def __init__(
        self, switch: GivenSwitch, journal: Journal, say: Tell, on_activity: Tell, shown_within_s: float
    ) -> None:
        super().__init__(switch, journal, say)
        self._on_activity = on_activity
        self._shown_within_s = shown_within_s
        self._is_ended = threading.Event()
        self._session = _session_file(journal, switch.system_identifier)

    def open(self, connection: sql.Connection) -> _CommandChanger:  # noqa: ARG002 - each look takes a new connection
        """Return what changes the settings."""
        return _CommandChanger(self)

    def apply(self, settings: Mapping[str, SettingValue]) -> None:
        """Have the command put settings in force, and those that are not among them as they were.

        Raises:
            StepFailedError: The command fails, or the server does not show them.
        """
        with self._guard:
            if not self._changes or self._switch.command is None:
                raise StepFailedError("the settings of the server are put back already")
            values = {change.what: self._find_value(change, settings) for change in self._changes}
            run_command(self._switch.command, values, session=self._session, on_activity=self._tell)
            await_shown(
                self._connect,
                values,
                within_s=self._shown_within_s,
                on_activity=self._tell,
                is_ended=self._is_ended,
            )

    def put_back(self) -> None:
        """Have the command put everything back, and remove it from the journal once the server shows it.

        Raises:
            HostError: The journal cannot be written.
            StepFailedError: The command fails, or the server does not show the old values.
        """
        # A thread that nobody waits for any more is not to wait for the server.
        self._is_ended.set()
        super().put_back()

    def _tell(self, words: str) -> None:
        # In a switchback another thread changes settings, while this one shows the load.
        if threading.current_thread() is threading.main_thread():
            self._on_activity(words)

    def _plan(self) -> tuple[SettingChange, ...]:
        return check_command_switch(self._switch)

    def _undo(self) -> tuple[Undo, ...]:
        return undo_by_command(
            self._connect,
            self._changes,
            session=self._session,
            within_s=self._shown_within_s,
            on_activity=self._on_activity,
        )

    def _find_value(self, change: SettingChange, settings: Mapping[str, SettingValue]) -> str:
        text = find_text(change.what, settings)
        texts = dict(zip(self._switch.texts_of(change.what), change.new_texts, strict=True))
        return change.old_value if text is None else texts[text]

    def _connect(self) -> sql.Connection:
        return sql.connect(self._switch.address)


class _CommandChanger:
    def __init__(self, held: CommandSettings) -> None:
        self._held = held

    def change(self, variant: Variant) -> None:
        """Have the command put a variant's settings in force."""
        self._held.apply(variant.server.settings)


def undo_by_command(
    connect: Connect,
    changes: Sequence[SettingChange],
    *,
    session: Path,
    within_s: float = SHOWN_WITHIN_S,
    on_activity: Tell = lambda _: None,
) -> tuple[Undo, ...]:
    """Have a command put settings back as they were, but those that somebody else has set since.

    Also what shows its old value is set: a command that was killed may have left another one to come with a restart.

    Raises:
        StepFailedError: The command fails, or the server does not show the old values; the journal is to keep the changes.
    """
    try:
        with connect() as connection:
            shown = sql.read_server_settings(connection, [change.what for change in changes])
        found = {name: row["setting"] for name, row in shown.items()}
    except StepFailedError as error:
        # A value that is too large may keep the server from starting.
        on_activity(f"the server does not answer: {error.reason}")
        found = {}
    foreign = {
        change.what
        for change in changes
        if change.what in found and found[change.what] not in (change.old_value, *change.new_texts)
    }
    values = {change.what: change.old_value for change in changes if change.what not in foreign}
    command = next((change.command for change in changes if change.command is not None), None)
    if values and command is not None:
        run_command(command, values, session=session, on_activity=on_activity)
        await_shown(connect, values, within_s=within_s, on_activity=on_activity)
    return tuple(_describe(change, found.get(change.what), is_foreign=change.what in foreign) for change in changes)


def restore_by_command(
    connect: Connect, journal: Journal, *, dsn: str, on_activity: Tell, is_moved: IsMoved = stay
) -> tuple[Undo, ...]:
    """Put back what the command of a killed study has changed in a server.

    Args:
        connect: Connects to it.
        journal: The journal of this account.
        dsn: The connection string without a secret: of a server that does not answer, nothing else tells which it is.
        on_activity: Receives what is waited for.
        is_moved: As for `restore_settings`.

    Raises:
        HostError: It is a standby, a running pgdyno changes it, or the journal cannot be read or written.
        StepFailedError: The command of the killed study does not end, the command fails, or the server does not show the old
            values; the journal keeps the changes.
    """
    commanded = [one for one in journal.read_settings() if one.command is not None]
    if not commanded:
        return ()
    try:
        with connect() as connection:
            places = find_places(connection, commanded, is_moved)
        changes = [one for one in commanded if (one.system_identifier, one.server) in places]
    except StepFailedError:
        changes = [one for one in commanded if one.dsn == dsn]
        if not changes:
            raise
    refuse_held(changes)
    if not changes:
        return ()
    session = _session_file(journal, changes[0].system_identifier)
    await_end(session, on_activity)
    undone = undo_by_command(connect, changes, session=session, on_activity=on_activity)
    journal.drop_settings(changes)
    return undone


def _session_file(journal: Journal, system_identifier: str) -> Path:
    return journal.folder / f"command-{system_identifier}"


def _in_own_unit(guc: Guc, text: str) -> str:
    """Return a value as pg_settings.setting shows it: a number without a unit, on or off.

    Raises:
        SpecError: The server would refuse it, or it does not fit into a line.
    """
    try:
        value = read_value(guc, text)
    except ValueError as exc:
        raise SpecError(f"{guc.name}: {exc}") from exc
    shown = as_shown(int(value) if isinstance(value, float) and value.is_integer() else value)
    if "\n" in shown:
        raise SpecError(f"{guc.name}: a value with a line end cannot be handed to a command")
    return shown


def _refuse(name: str, found: Mapping[str, object] | None) -> None:
    if found is None:
        raise unseen_setting(name)
    refuse_secret(name)
    if found["context"] == "internal":
        raise SpecError(f"{name} cannot be changed")
    if found["is_waiting"]:
        raise SpecError(
            f"{name} waits for a restart",
            detail=f"the server shows {found['value']}, and its files have another value",
            hint="restart it or take the value back first, so that pgdyno can tell what to put back",
        )
    if found["source"] in _HIDING:
        raise hidden_setting(name, found, by="ALTER ROLE … SET, ALTER DATABASE … SET and the connection's options")


def _describe(change: SettingChange, found: str | None, *, is_foreign: bool) -> Undo:
    if is_foreign:
        reason = f"somebody else has set it to {found} since, so pgdyno left it as it is"
        return Undo(change=change, outcome=UndoOutcome.LEFT, found_value=found, reason=reason)
    return Undo(change=change, outcome=UndoOutcome.UNDONE, found_value=found)

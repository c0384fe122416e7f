"""Change settings of a whole server of the user's for a study, by ALTER SYSTEM and reload, and put them back.

What postgresql.auto.conf has of each setting is in the journal before anything is changed. It is put back at the end of the
block, also after Ctrl-C and errors; after kill -9 `pgdyno restore --dsn` does it. What somebody else has set in the meantime is
left in place and told. What could not be put back is not changed: the text in postgresql.auto.conf must be readable, and nothing
may hide it.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pgdyno.errors import HostError, PgdynoError, SpecError, StepFailedError
from pgdyno.facts.gucs import same_value
from pgdyno.plan.experiment import Variant
from pgdyno.record.machine.given_server import write_address
from pgdyno.run.change.journal import (
    ApplyCommand,
    Journal,
    SettingChange,
    TuningState,
    Undo,
    UndoOutcome,
    own_journal,
    uninterrupted,
)
from pgdyno.run.host.clock import local_now, monotonic_s
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process_id import is_running, this_process
from pgdyno.run.postgres import sql
from pgdyno.run.postgres.address import Address
from pgdyno.run.under_test import SettingsChanger
from pgdyno.spec.table import SettingValue
from pgdyno.spec.variant import show_value

_CONFIRM_WITHIN_S = 10.0
_CONFIRM_EVERY_S = 0.001
# All others stand for a value that hides that of the files. Source: PostgreSQL 18 src/backend/utils/misc/guc_tables.c.
_OF_FILES = frozenset({"default", "environment variable", "configuration file"})
_BY_RELOAD = frozenset({"user", "superuser", "sighup"})
# ALTER SYSTEM writes what it is given as one element of a list. Source: the same, GUC_LIST_QUOTE.
_QUOTED_LISTS = frozenset({"search_path", "temp_tablespaces"})


class GivenTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server whose settings are to change."""

    address: Address
    server: str
    """Where it listens, as people write it."""
    dsn: str
    """The connection string, without a secret."""
    system_identifier: str
    major: int


class GivenSwitch(GivenTarget, frozen=True, kw_only=True):
    """The server whose settings are to change, and the variants."""

    names: tuple[str, ...]
    """The settings that change in the server itself, in lower case."""
    variants: tuple[Variant, ...]
    command: ApplyCommand | None = None
    """What changes them; None for ALTER SYSTEM."""

    def texts_of(self, name: str) -> tuple[str, ...]:
        """Return all that variants ask for."""
        asked = [find_text(name, variant.server.settings) for variant in self.variants]
        return tuple(dict.fromkeys(text for text in asked if text is not None))


def restore_words(dsn: str) -> str:
    """Return the command that puts settings back, by a connection string without a secret."""
    return f"`pgdyno restore --dsn {shlex.quote(dsn)}`"


def find_text(name: str, settings: Mapping[str, SettingValue]) -> str | None:
    """Return what settings ask for, by a name in lower case; None if they leave it as it is."""
    return next((show_value(value) for key, value in settings.items() if key.lower() == name), None)


def check_switch(switch: GivenSwitch, *, lacking: Sequence[str] = ()) -> tuple[SettingChange, ...]:
    """Return the changes that would be made; change nothing.

    Args:
        switch: The server and the variants.
        lacking: GRANTs that are known to be needed, too.

    Raises:
        SpecError: A setting cannot be changed by a reload, or not be put back, or not by this role.
        StepFailedError: The server does not answer.
    """
    with sql.connect(switch.address) as connection:
        found = sql.read_server_settings(connection, switch.names)
        for name in switch.names:
            check_setting(name, found.get(name))
        _refuse_rights(switch.names, found, lacking)
        texts = sql.read_auto_conf(connection, switch.names)
    return tuple(
        plan_change(switch, found[name], texts.get(name), new_texts=switch.texts_of(name)) for name in switch.names
    )


def plan_change(
    target: GivenTarget,
    found: Mapping[str, Any],
    old_text: str | None,
    *,
    new_texts: tuple[str, ...],
    tuning: TuningState | None = None,
) -> SettingChange:
    """Return the change of a setting that the server has as `found` says, and postgresql.auto.conf as `old_text`.

    Raises:
        SpecError: The text is not in force.
    """
    name, old_value = found["name"], found["value"]
    if old_text is not None and not same_value(name, old_text, old_value, target.major):
        raise SpecError(
            f"{name} waits for a reload",
            detail=f"postgresql.auto.conf has {old_text}, and {old_value} is in force",
            hint="put it in force or take it back first, so that pgdyno can tell what to put back",
        )
    return SettingChange(
        what=name,
        server=target.server,
        dsn=target.dsn,
        system_identifier=target.system_identifier,
        old_text=old_text,
        old_value=old_value,
        new_texts=new_texts,
        at=local_now().isoformat(timespec="seconds"),
        owner=this_process(),
        tuning=tuning,
    )


@contextlib.contextmanager
def changing_settings(
    switch: GivenSwitch, *, journal: Journal | None = None, say: Callable[[str], None] = lambda _: None
) -> Iterator[HeldSettings]:
    """Hold settings of a server for the length of a block, and put them back at its end.

    Args:
        switch: The server and the variants.
        journal: The journal to write; None: the journal of this account.
        say: Receives what is not as it was.

    Raises:
        SpecError: As for `check_switch`; nothing is changed.
        HostError: The settings are held or left changed by another pgdyno, or the journal cannot be written; or, at the end, a
            setting could not be put back.
        StepFailedError: The server does not answer; what is not put back stays in the journal.
    """
    with holding(HeldSettings(switch, journal or own_journal(), say), say) as held:
        yield held


@contextlib.contextmanager
def holding(held: HeldSettings, say: Callable[[str], None]) -> Iterator[HeldSettings]:
    """Hold settings for the length of a block; see `changing_settings`."""
    try:
        held.begin()
        yield held
        # Within the block: Ctrl-C may come just before it.
        held.put_back()
    except BaseException:
        # The user sees this error.
        try:
            held.put_back()
        except PgdynoError as error:
            say(f"settings of {held.server} are not put back: {error.reason}; {restore_words(held.dsn)} tries again")
        raise


class HeldSettings:
    """Settings of a server that this process holds; implements `ServerSettings`."""

    def __init__(self, switch: GivenSwitch, journal: Journal, say: Callable[[str], None]) -> None:
        self._switch = switch
        self._journal = journal
        self._say = say
        self._changes: tuple[SettingChange, ...] = ()
        self._writer: sql.Connection | None = None
        # A thread that the end of a load did not wait for changes nothing after they are put back.
        self._guard = threading.Lock()

    def begin(self) -> None:
        """Write to the journal what is there now."""
        changes = self._plan()
        with self._journal.open() as page:
            refuse_left(page.settings, self._switch.system_identifier)
            page.write_settings((*page.settings, *changes))
            self._changes = changes

    def common(self, settings: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
        """Return those of the settings that no variant changes: what sessions ask for."""
        return {name: value for name, value in settings.items() if name.lower() not in self._switch.names}

    def open(self, connection: sql.Connection) -> SettingsChanger:
        """Return what changes the settings, and looks over a connection that it keeps for itself whether they are in force."""
        return self._open(connection)

    def _open(self, connection: sql.Connection) -> _Changer:
        with self._guard:
            self._hang_up()
            # Rights on functions are those in the database that the user named.
            self._writer = sql.connect(self._switch.address)
        return _Changer(connection, self)

    def apply(self, settings: Mapping[str, SettingValue]) -> None:
        """Put settings in force, and those that are not among them as they were.

        Raises:
            StepFailedError: The server refuses, or does not show them.
        """
        with sql.connect(self._switch.address) as connection:
            self._open(connection).put(settings)

    def write(self, settings: Mapping[str, SettingValue]) -> None:
        """Have the server write settings into its file and read them, without waiting for that."""
        with self._guard:
            if self._writer is None:
                raise StepFailedError("the settings of the server are put back already")
            for change in self._changes:
                text = find_text(change.what, settings)
                sql.alter_system(self._writer, change.what, change.old_text if text is None else text)
            sql.reload_settings(self._writer)

    def is_in_force(self, settings: Mapping[str, SettingValue], shown: Sequence[str]) -> bool:
        """Return whether a session that shows these values has settings."""
        for change, value in zip(self._changes, shown, strict=True):
            text = find_text(change.what, settings)
            asked = change.old_value if text is None else text
            if not same_value(change.what, asked, value, self._switch.major):
                return False
        return True

    @property
    def names(self) -> tuple[str, ...]:
        """The settings that change."""
        return self._switch.names

    @property
    def dsn(self) -> str:
        """The connection string, without a secret."""
        return self._switch.dsn

    @property
    def server(self) -> str:
        """Where the server listens, as people write it."""
        return self._switch.server

    def put_back(self) -> None:
        """Put everything back, and remove it from the journal once the server shows it.

        Raises:
            HostError: A setting could not be put back.
            StepFailedError: The server does not answer.
        """
        with uninterrupted(), self._guard:
            self._hang_up()
            if not self._changes:
                return
            undone = self._undo()
            self._changes = ()
            for undo in undone:
                LOG.info("setting %s: %s %s", undo.change.what, undo.outcome.value, undo.reason)
                if undo.reason:
                    self._say(f"{undo.change.what} of {self._switch.server}: {undo.reason}")
            self._journal.drop_settings(undo.change for undo in undone)

    def _plan(self) -> tuple[SettingChange, ...]:
        return check_switch(self._switch)

    def _undo(self) -> tuple[Undo, ...]:
        with sql.connect(self._switch.address) as connection:
            return undo_settings(connection, self._changes)

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


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
        StepFailedError: The server refuses; the journal keeps the changes.
    """
    places = find_places(connection, journal.read_settings(), is_moved)
    undone: list[Undo] = []
    with journal.open() as page:
        own = [one for one in page.settings if (one.system_identifier, one.server) in places]
        refuse_held(one for one in own if one.tuning is not TuningState.APPLIED)
        changes = [one for one in own if one.command is None]
        # A study may have begun on a tuned server, never the other way round; the last address was tuned last.
        for of_study in (True, False):
            for server in dict.fromkeys(one.server for one in reversed(changes)):
                layer = [one for one in changes if (one.tuning is None) is of_study and one.server == server]
                undone += undo_settings(connection, layer) if layer else ()
        page.write_settings(one for one in page.settings if one not in changes)
    return tuple(undone)


def refuse_held(changes: Iterable[SettingChange]) -> None:
    """Raise a HostError if a running pgdyno is at work on one of the changes."""
    held = next((one for one in changes if is_running(one.owner)), None)
    if held is not None:
        who = "a measurement" if held.tuning is None else "a tuning"
        raise HostError(f"{who} holds {held.what}", detail=f"pid {held.owner.pid}, since {held.at}", hint="wait for it")


class _Changer:
    """Changes the settings of a server, and waits until a session sees them."""

    def __init__(self, connection: sql.Connection, held: HeldSettings) -> None:
        self._connection = connection
        self._held = held
        self._loaded = sql.read_loaded(connection, held.names)

    def change(self, variant: Variant) -> None:
        """Put a variant's settings in force."""
        self.put(variant.server.settings)

    def put(self, settings: Mapping[str, SettingValue]) -> None:
        """Put settings in force."""
        self._held.write(settings)
        self._loaded = await_reload(
            self._connection,
            self._held.names,
            self._loaded,
            lambda loaded: self._held.is_in_force(settings, loaded.shown),
        )


def await_reload(
    connection: sql.Connection,
    names: Sequence[str],
    before: sql.LoadedSettings,
    is_there: Callable[[sql.LoadedSettings], bool] = lambda _: True,
) -> sql.LoadedSettings:
    """Wait until this session has read the files, and shows what is expected: a reload of somebody else may come before.

    Args:
        connection: The session.
        names: The settings to read.
        before: What the session had before the request.
        is_there: Whether it shows what is expected.

    Raises:
        StepFailedError: It did not read the files, or shows something else.
    """
    deadline_s = monotonic_s() + _CONFIRM_WITHIN_S
    while True:
        loaded = sql.read_loaded(connection, names)
        is_new = loaded.loaded_at != before.loaded_at
        if is_new and is_there(loaded):
            return loaded
        if monotonic_s() > deadline_s:
            break
        time.sleep(_CONFIRM_EVERY_S)
    if not is_new:
        raise StepFailedError(
            f"the server did not reload its settings within {_CONFIRM_WITHIN_S:g} s",
            hint="it is too busy, or has an error in its configuration files: see its log",
        )
    raise StepFailedError(
        "a setting is not in force after a reload",
        detail=", ".join(f"{name}: {value}" for name, value in zip(names, loaded.shown, strict=True)),
        hint="somebody else changes it, too, or the server's log says what is wrong",
    )


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


def check_setting(name: str, found: Mapping[str, object] | None) -> None:
    """Raise a SpecError if a setting cannot be changed by a reload and put back, whatever this role may do."""
    if found is None:
        raise unseen_setting(name)
    if not acts_by_reload(found):
        raise SpecError(f"{name} takes a restart, which pgdyno does not do to a given server")
    if name in _QUOTED_LISTS:
        raise SpecError(f"{name} is a list that ALTER SYSTEM does not write as it was", hint="use --design paired")
    if not found["is_allowed"]:
        raise SpecError("the server takes no ALTER SYSTEM", detail="allow_alter_system is off")
    if found["source"] not in _OF_FILES:
        raise hidden_setting(
            name,
            found,
            by="ALTER ROLE … SET, ALTER DATABASE … SET, the connection's options and the server's command line",
        )


def unseen_setting(name: str) -> SpecError:
    """Return the error for a setting that the role does not see."""
    return SpecError(f"{name} cannot be changed: this role does not see it", hint="GRANT pg_read_all_settings gives it")


def hidden_setting(name: str, found: Mapping[str, object], *, by: str) -> SpecError:
    """Return the error for a setting whose value sessions do not get from the server's files.

    Args:
        name: The setting.
        found: What the server tells of it.
        by: Where to look for what hides it.
    """
    return SpecError(
        f"{name} cannot be changed: something hides the server's own value from sessions",
        detail=f"its source is: {found['source']}",
        hint=f"see {by}",
    )


def acts_by_reload(found: Mapping[str, object]) -> bool:
    """Return whether a reload puts a setting in force."""
    return found["context"] in _BY_RELOAD


def find_grants(names: Sequence[str], found: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Return the GRANT that lets the role change those of the settings that it may not; nothing if it may change all."""
    denied = [name for name in names if not found[name]["is_alterable"]]
    return (f"GRANT ALTER SYSTEM ON PARAMETER {', '.join(denied)} TO {found[denied[0]]['role']}",) if denied else ()


def _refuse_rights(names: Sequence[str], found: Mapping[str, Mapping[str, object]], lacking: Sequence[str]) -> None:
    """Raise an error with all GRANTs at once, if one is lacking."""
    own = find_grants(names, found)
    if not own and not lacking:
        return
    them = ", ".join(names)
    hint = f"a superuser gives it by: {'; '.join([*own, *lacking])}"
    if all(found[name]["context"] == "superuser" for name in names):
        role = found[names[0]]["role"]
        hint += f"; or, so that each session chooses for itself, by: GRANT SET ON PARAMETER {them} TO {role}"
    raise SpecError(f"this role may not change {them} of the server and put it back", hint=hint)

"""Change settings of a whole server of the user's for a study, by ALTER SYSTEM and reload, and put them back.

What postgresql.auto.conf has of each setting is in the journal before anything is changed. It is put back at the end of the
block, also after Ctrl-C and errors; after kill -9 `pgdyno restore --dsn` does it. What somebody else has set in the meantime is
left in place and told. What could not be put back is not changed: the text in postgresql.auto.conf must be readable, and nothing
may hide it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from pgdyno.errors import PgdynoError, StepFailedError
from pgdyno.facts.gucs import Guc, means_same
from pgdyno.plan.experiment import Variant
from pgdyno.run.change.changes import SettingChange, Undo
from pgdyno.run.change.given.check import check_switch, read_gucs
from pgdyno.run.change.given.reload import await_reload
from pgdyno.run.change.given.target import GivenSwitch, find_text, restore_words
from pgdyno.run.change.given.undo import refuse_left, undo_settings
from pgdyno.run.change.given.writer import await_writers, connect_writer
from pgdyno.run.change.journal import Journal, own_journal
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.log import LOG
from pgdyno.run.host.process_id import this_process
from pgdyno.run.postgres import sql
from pgdyno.run.under_test import SettingsChanger
from pgdyno.spec.table import SettingValue


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
        self._gucs: dict[str, Guc] = {}
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
            self._writer = connect_writer(self._switch.address)
            self._gucs = read_gucs(self._writer, self.names, self._switch.major)
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
            if not means_same(self._gucs[change.what], asked, value):
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
            StepFailedError: The server does not answer, or a session of this process does not end.
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
            # Ctrl-C leaves a statement behind that the server still executes.
            await_writers(connection, [this_process()])
            return undo_settings(connection, self._changes)

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


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

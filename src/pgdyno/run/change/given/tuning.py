"""Apply settings to a given server by ALTER SYSTEM and reload, to stay until `pgdyno restore --dsn`, or leave it as it was.

The journal has the old text of each setting first, as for a study (`settings.py`). What a reload does not put in force,
what could not be put back, and what the role may not change is left out with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from pgdyno.errors import HostError, PgdynoError, SpecError
from pgdyno.facts.gucs import means_same
from pgdyno.run.change.changes import SettingChange, TuningState
from pgdyno.run.change.given.check import (
    acts_by_reload,
    advise_grants,
    check_setting,
    find_grants,
    plan_change,
    read_gucs,
    refuse_unidentified,
)
from pgdyno.run.change.given.reload import await_reload
from pgdyno.run.change.given.target import GivenTarget, restore_words
from pgdyno.run.change.given.undo import refuse_left, undo_settings
from pgdyno.run.change.given.writer import await_writers, connect_writer
from pgdyno.run.change.journal import Journal, own_journal
from pgdyno.run.change.prepare_apply import LeftOut
from pgdyno.run.host.ctrl_c import uninterrupted
from pgdyno.run.host.process_id import this_process
from pgdyno.run.postgres import sql


class PreparedTuning(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a tuning would make, and the settings that it leaves out."""

    target: GivenTarget
    changes: tuple[SettingChange, ...]
    """In the order in which postgresql.auto.conf has them, then those that it has not."""
    left_out: tuple[LeftOut, ...]

    @property
    def settings(self) -> dict[str, str]:
        """Return what the settings will be, by name."""
        return {change.what: change.new_texts[-1] for change in self.changes}


def prepare_tuning(target: GivenTarget, settings: Mapping[str, str], *, lacking: Sequence[str] = ()) -> PreparedTuning:
    """Find out which settings can be changed and put back; change nothing.

    Args:
        target: The server.
        settings: Texts by name.
        lacking: GRANTs that are known to be needed, too.

    Raises:
        SpecError: The role may not change any of them, or the server does not tell which it is.
        StepFailedError: The server does not answer.
    """
    names = [name.lower() for name in settings]
    with sql.connect(target.address) as connection:
        found = sql.read_server_settings(connection, names)
        left_out, possible = _leave_out(names, found)
        grants = find_grants(possible, found)
        allowed = [name for name in possible if found[name]["is_alterable"]]
        if lacking or (possible and not allowed):
            raise SpecError(
                "this role may not change settings of the server and put them back",
                hint=advise_grants([*grants, *lacking], dbname=target.address.dbname),
            )
        texts = sql.read_auto_conf(connection, allowed)
    refuse_unidentified(target)
    if grants:
        denied = tuple(name for name in possible if name not in allowed)
        left_out.append(
            LeftOut(what="for want of a right", names=denied, reason=f"a superuser gives it by: {grants[0]}")
        )
    asked = {name.lower(): text for name, text in settings.items()}
    places = list(texts)
    changes = []
    for name in sorted(allowed, key=lambda name: places.index(name) if name in texts else len(places)):
        try:
            change = plan_change(
                target, found[name], texts.get(name), new_texts=(asked[name],), tuning=TuningState.APPLYING
            )
        except SpecError as error:
            left_out.append(LeftOut(what="cannot be put back", names=(name,), reason=error.reason))
        else:
            changes.append(change)
    return PreparedTuning(target=target, changes=tuple(changes), left_out=tuple(left_out))


def apply_given_tuning(
    prepared: PreparedTuning, *, journal: Journal | None = None, say: Callable[[str], None] = lambda _: None
) -> None:
    """Put settings in force to stay, and read them back, or put everything back.

    Args:
        prepared: The result of a recent `prepare_tuning`, to which the user has agreed.
        journal: The journal to write; None: the journal of this account.
        say: Receives, before an error or Ctrl-C leaves this function, whether everything is as it was.

    Raises:
        HostError: The server has changed since the preparation, or another pgdyno changes it or left it changed.
        StepFailedError: The server refuses a setting or does not show it.
    """
    journal, target = journal or own_journal(), prepared.target
    changes: tuple[SettingChange, ...] = ()
    before: tuple[SettingChange, ...] = ()
    try:
        with journal.open() as page:
            refuse_left(page.settings, target.system_identifier)
            _check_unchanged(prepared)
            before = page.settings
            page.write_settings(_merge(before, prepared.changes))
            changes = prepared.changes
        _carry_out(prepared)
        with journal.open() as page:
            page.write_settings(_finish(one, target) for one in page.settings)
    except BaseException:
        if changes:
            say(_roll_back(prepared, before, journal))
        raise


def _leave_out(names: Sequence[str], found: Mapping[str, Mapping[str, object]]) -> tuple[list[LeftOut], list[str]]:
    """Return what no role can change and put back, and the names of the other settings."""
    restarting = tuple(name for name in names if name in found and not acts_by_reload(found[name]))
    left_out = [LeftOut(what="takes a restart", names=restarting, reason="pgdyno does not restart a given server")]
    possible = []
    for name in names:
        if name in restarting:
            continue
        try:
            check_setting(name, found.get(name))
        except SpecError as error:
            left_out.append(LeftOut(what="cannot be put back", names=(name,), reason=error.reason))
        else:
            possible.append(name)
    return left_out[0 if restarting else 1 :], possible


def _check_unchanged(prepared: PreparedTuning) -> None:
    """Raise a HostError unless the server has what the user saw."""
    now = prepare_tuning(prepared.target, prepared.settings)
    if [(one.what, one.old_text, one.old_value) for one in now.changes] != [
        (one.what, one.old_text, one.old_value) for one in prepared.changes
    ]:
        raise HostError(
            "the settings of the server have changed since you were asked",
            detail="nothing was changed by pgdyno",
            hint="try again",
        )


def _carry_out(prepared: PreparedTuning) -> None:
    target, names = prepared.target, [change.what for change in prepared.changes]
    texts = prepared.settings
    with connect_writer(target.address) as connection:
        gucs = read_gucs(connection, names, target.major)

        def is_there(loaded: sql.LoadedSettings) -> bool:
            shown = zip(names, loaded.shown, strict=True)
            return all(means_same(gucs[name], texts[name], value) for name, value in shown)

        loaded = sql.read_loaded(connection, names)
        for name in names:
            sql.alter_system(connection, name, texts[name])
        sql.reload_settings(connection)
        await_reload(connection, names, loaded, is_there)


def _roll_back(prepared: PreparedTuning, before: Sequence[SettingChange], journal: Journal) -> str:
    """Put everything back, and say whether it is."""
    with uninterrupted():
        try:
            with sql.connect(prepared.target.address) as connection:
                # Ctrl-C leaves a statement behind that the server still executes.
                await_writers(connection, [this_process()])
                undone = undo_settings(connection, prepared.changes)
            with journal.open() as page:
                of_server = [one for one in before if _is_tuning_of(one, prepared.target)]
                others = [one for one in page.settings if not _is_tuning_of(one, prepared.target)]
                page.write_settings([*others, *of_server])
        except PgdynoError as error:
            return f"it is not put back: {error.reason}; {restore_words(prepared.target.dsn)} tries again"
    said = [f"{undo.change.what}: {undo.reason}" for undo in undone if undo.reason]
    return "; ".join(["everything else is as it was before" if said else "everything is as it was before", *said])


def _merge(known: Sequence[SettingChange], changes: Sequence[SettingChange]) -> list[SettingChange]:
    """Add changes to the journal's; what an earlier tuning has set goes back to what was there before that."""
    merged = {(one.system_identifier, one.server, one.tuning is None, one.what): one for one in known}
    place = changes[0].system_identifier, changes[0].server
    for key, one in merged.items():
        if key[:2] == place:
            merged[key] = msgspec.structs.replace(one, tuning=TuningState.APPLYING, owner=changes[0].owner)
    for change in changes:
        key = (*place, False, change.what)
        earlier = merged.get(key)
        if earlier is None or change.old_text not in earlier.new_texts:
            merged.pop(key, None)
            merged[key] = change
        else:
            texts = tuple(dict.fromkeys((*earlier.new_texts, *change.new_texts)))
            merged[key] = msgspec.structs.replace(earlier, new_texts=texts)
    return list(merged.values())


def _finish(change: SettingChange, target: GivenTarget) -> SettingChange:
    is_own = _is_tuning_of(change, target)
    return msgspec.structs.replace(change, tuning=TuningState.APPLIED) if is_own else change


def _is_tuning_of(change: SettingChange, target: GivenTarget) -> bool:
    # A clone elsewhere has the same identifier.
    is_there = (change.system_identifier, change.server) == (target.system_identifier, target.server)
    return change.tuning is not None and is_there

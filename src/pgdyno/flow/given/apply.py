"""`pgdyno tune --apply --dsn`: put derived settings in force in a given server to stay, after asking, and verify them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import msgspec
from rich.console import RenderableType

from pgdyno.conduct.given.server import name_left_settings
from pgdyno.conduct.given.switch import find_lacking, refuse_pooler
from pgdyno.conduct.ui import Ui
from pgdyno.errors import HostError, InterruptedStudyError, SpecError, with_program
from pgdyno.explain.preflight.given import find_given_obstacles
from pgdyno.facts.gucs import ChangeCost
from pgdyno.flow.given.tune import tune_given
from pgdyno.flow.tune import Form, TuneRequest, TuneResult
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.report.forms.plain import render_headed, render_line
from pgdyno.report.sections.tuning.view import TuningView
from pgdyno.run.change.given.target import GivenTarget, restore_words
from pgdyno.run.change.given.tuning import PreparedTuning, apply_given_tuning, prepare_tuning
from pgdyno.run.change.prepare_apply import LeftOut
from pgdyno.run.given.access import open_access
from pgdyno.run.given.conninfo import hide_secrets
from pgdyno.run.given.lock import StudyLock
from pgdyno.run.given.probe import watch_server
from pgdyno.run.host.program import program_name
from pgdyno.tune.differences import find_differences
from pgdyno.tune.slots import refuse_lost_slots
from pgdyno.tune.types import Derived, Target

# Of what is in the way of a load, that which is in the way of a change of settings, too; None: its advice is the same.
_REFUSED = {
    "standby": "Connect to the primary: of several hosts in the string, target_session_attrs=read-write takes it.",
    "settings-left": None,
    "sessions-at-work": "Change it when no one else uses it. `--allow busy` changes it all the same.",
}
_BUSY = "sessions-at-work"
_RESTARTS = frozenset({ChangeCost.RESTART, ChangeCost.INITDB, ChangeCost.FIXED})
_WHY_KEPT = "pgdyno does not restart a given server; the other settings are derived to fit the values that these have"


class GivenTuned(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that are in force in a given server."""

    server: str
    dsn: str
    """The connection string, without a secret."""
    settings: dict[str, str]
    left_out: tuple[LeftOut, ...]

    def to_json(self) -> bytes:
        """Return the result as JSON."""
        return msgspec.json.encode({"format": "pgdyno-apply-given", "version": 1, **msgspec.structs.asdict(self)})

    def to_terminal(self) -> RenderableType:
        """Return the result as a person reads it."""
        if not self.settings and not self.left_out:
            return render_line("nothing to change: all of it is in force")
        return render_headed((title, with_program(words, program_name())) for title, words in self._describe())

    def _describe(self) -> Iterator[tuple[str, str]]:
        yield (
            f"in force in {self.server}, as it shows",
            ", ".join(f"{name} = {text}" for name, text in self.settings.items()),
        )
        for one in self.left_out:
            yield f"not applied, {one.what}: {one.reason}", ", ".join(one.names)
        if self.settings:
            yield "to undo all of it, at any later time", restore_words(self.dsn)


def apply_given(
    question: TuneRequest, *, dsn: str, is_busy_allowed: bool, ui: Ui, show: Callable[[TuneResult], None]
) -> GivenTuned:
    """Derive settings, show what changes, ask, and apply what a reload puts in force; without a yes, change nothing.

    Args:
        question: What to derive; `host` is the machine of the server.
        dsn: The connection string.
        is_busy_allowed: Whether to change a server that others use.
        ui: Asks, and says what changes.
        show: Shows what would change, before the question.

    Raises:
        SpecError: No machine is named, the role may change nothing, or the user says no; nothing is changed.
        HostError: The server must not be changed, a standby's slot would be given up, or another pgdyno is at work there.
        StepFailedError: There is no connection, or a setting is not in force afterwards; everything is as it was, or what is
            said names the rest.
        InterruptedStudyError: Ctrl-C; likewise.
    """
    seen = watch_server(dsn)
    _refuse(seen, is_busy_allowed=is_busy_allowed)
    tuned, kept = _tune_without_restart(question, dsn=dsn, seen=seen)
    wanted = {one.name: one.value for one in _find_changing(tuned.view) if one.name not in kept}
    left_out = (LeftOut(what="takes a restart", names=kept, reason=_WHY_KEPT),) if kept else ()
    show(tuned)
    refuse_lost_slots(tuned.view.tuning, wanted)
    if not wanted:
        return GivenTuned(server=seen.address, dsn=hide_secrets(dsn), settings={}, left_out=left_out)
    with open_access(dsn) as address, closing(StudyLock(address)):
        target = GivenTarget(
            address=address,
            server=seen.address,
            dsn=hide_secrets(dsn),
            system_identifier=seen.system_identifier or "",
            major=seen.major,
        )
        prepared = prepare_tuning(target, wanted, lacking=find_lacking(seen))
        prepared = msgspec.structs.replace(prepared, left_out=(*left_out, *prepared.left_out))
        if prepared.changes:
            _ask(prepared, ui)
            _apply(prepared, ui)
    return GivenTuned(
        server=seen.address, dsn=hide_secrets(dsn), settings=prepared.settings, left_out=prepared.left_out
    )


def _tune_without_restart(question: TuneRequest, *, dsn: str, seen: GivenServer) -> tuple[TuneResult, tuple[str, ...]]:
    """Derive a set that fits the memory as long as nobody restarts the server; return it, and the settings that it keeps."""
    tuned = tune_given(question, dsn=dsn, form=Form.DIFF, seen=seen)
    kept = tuple(one.name for one in _find_changing(tuned.view) if one.change in _RESTARTS)
    if not kept:
        return tuned, ()
    now = tuned.view.now
    names = [one.name for one in tuned.view.tuning.of(Target.POSTGRESQL) if one.change in _RESTARTS]
    fixed = {**question.fixed, **{name: now[name] for name in names}}
    tuned = tune_given(msgspec.structs.replace(question, fixed=fixed), dsn=dsn, form=Form.DIFF, seen=seen)
    tuning = tuned.view.tuning
    note = f"{', '.join(kept)}: each takes a restart, so that it keeps its value, and all others are derived to fit it."
    settings = tuple(
        msgspec.structs.replace(one, reason=one.reason.replace("you set it", "it takes a restart, and stays", 1))
        if one.name in names
        else one
        for one in tuning.settings
    )
    tuning = msgspec.structs.replace(tuning, settings=settings, notes=(note, *tuning.notes))
    return msgspec.structs.replace(tuned, view=msgspec.structs.replace(tuned.view, tuning=tuning)), kept


def _find_changing(view: TuningView) -> list[Derived]:
    """Return the settings of the server that differ from those in force."""
    differing = find_differences(view.tuning, view.now, waiting=view.waiting)
    return [one.derived for one in differing if not one.is_same and one.derived.target is Target.POSTGRESQL]


def _refuse(seen: GivenServer, *, is_busy_allowed: bool) -> None:
    refuse_pooler(seen)
    for found in find_given_obstacles(seen, clients=1, has_password=False, left=name_left_settings(seen)):
        if found.rule in _REFUSED and not (found.rule == _BUSY and is_busy_allowed):
            raise HostError(
                found.claim.rstrip("."),
                detail=found.evidence,
                hint=_REFUSED[found.rule] or found.advice,
            )


def _ask(prepared: PreparedTuning, ui: Ui) -> None:
    for change in prepared.changes:
        ui.say(f"{change.what} of the whole server changes to {change.new_texts[-1]}; now {change.old_value}")
    for one in prepared.left_out:
        ui.say(f"left out, {one.what}: {', '.join(one.names)} ({one.reason})")
    ui.say(
        f"they are set by ALTER SYSTEM and reload, for everybody there, and stay until {restore_words(prepared.target.dsn)}; a reload also puts in"
        " force what others have left in the server's configuration files"
    )
    question = f"change {len(prepared.changes)} settings of {prepared.target.server}?"
    if not ui.confirm(question, default=False):
        raise SpecError("nothing was changed", detail=question, hint="say yes, or add --yes")


def _apply(prepared: PreparedTuning, ui: Ui) -> None:
    try:
        apply_given_tuning(prepared, say=ui.say)
    except KeyboardInterrupt as exc:
        raise InterruptedStudyError("stopped") from exc

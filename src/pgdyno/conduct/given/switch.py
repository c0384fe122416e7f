"""Find out which settings of a whole given server a study changes, ask the user, and hold them while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from pgdyno.conduct.given.server import ReadyServer
from pgdyno.conduct.ui import Ui
from pgdyno.errors import SpecError
from pgdyno.plan.experiment import Experiment, changed_settings
from pgdyno.record.machine.given_server import GivenServer
from pgdyno.run.change.given.check import advise_grants, check_switch, unidentified_server
from pgdyno.run.change.given.command import changing_by_command, check_command_switch
from pgdyno.run.change.given.command_run import SHOWN_WITHIN_S, read_command
from pgdyno.run.change.given.settings import HeldSettings, changing_settings
from pgdyno.run.change.given.target import GivenSwitch
from pgdyno.spec.pooler import REPLICAS
from pgdyno.spec.study import Study
from pgdyno.spec.variant import DesignKind

_IDENTIFIER = "pg_control_system()"
# What it takes to change settings of the whole server and put them back, beside ALTER SYSTEM on each.
_NEEDED = frozenset({"pg_conf_load_time()", _IDENTIFIER, "pg_file_settings", "pg_reload_conf()"})


def find_switch(study: Study, experiment: Experiment | None, ready: ReadyServer) -> GivenSwitch | None:
    """Return what is to change in the server itself; None if nothing of it does.

    Raises:
        SpecError: A command is to apply settings, and the variants differ in none.
    """
    names = () if experiment is None else tuple(name.lower() for name in changed_settings(experiment.variants))
    command = study.server.apply
    if command is not None and not names:
        raise SpecError(
            "there is nothing for the command to apply",
            detail=command,
            hint="it applies settings in which variants differ; leave it out",
        )
    if experiment is not None and experiment.design is not DesignKind.SWITCHBACK and command is None:
        # Sessions ask for the others.
        withheld = ready.under_test.find_withheld()
        names = tuple(name for name in names if name in withheld)
    if experiment is None or not names:
        return None
    if REPLICAS in study.endpoints:
        raise SpecError(
            f"{', '.join(names)} would change at the primary only, and loads read from its replicas",
            hint="compare what sessions may choose, or without the endpoint replicas",
        )
    return GivenSwitch(
        address=ready.address,
        server=ready.seen.address,
        dsn=study.server.dsn or "",
        system_identifier=ready.seen.system_identifier or "",
        major=ready.seen.major,
        names=names,
        variants=experiment.variants,
        command=None if command is None else read_command(command, Path.cwd()),
    )


def ask_for_switch(switch: GivenSwitch, seen: GivenServer, ui: Ui) -> None:
    """Say what will change in the server for everybody there, and ask.

    Raises:
        SpecError: It cannot be changed and put back, or the user says no; nothing is changed.
    """
    refuse_pooler(seen)
    if switch.command is None:
        changes = check_switch(switch, lacking=find_lacking(seen))
        how = (
            "it is set by ALTER SYSTEM and reload, for everybody there, and put back at the end; a reload also puts in force"
            " what others have left in the server's configuration files"
        )
    else:
        _refuse_without_identifier(seen)
        changes = check_command_switch(switch)
        how = (
            f"`{' '.join(switch.command.argv)}` sets it before each trial, for everybody there, and puts it back at the end;"
            f" it may restart the server, which is to show the values within {SHOWN_WITHIN_S / 60:g} min afterwards"
        )
    for change in changes:
        ui.say(
            f"{change.what} of the whole server changes in turn: {', '.join(change.new_texts)}; now {change.old_value}"
        )
    ui.say(how)
    question = f"change {', '.join(switch.names)} of {seen.address} while the study runs?"
    if not ui.confirm(question, default=False):
        raise SpecError("nothing was changed", detail=question, hint="say yes, or add --yes")


def hold_settings(switch: GivenSwitch, ui: Ui) -> AbstractContextManager[HeldSettings]:
    """Return the context in which the settings may be changed, and at whose end they are put back."""
    if switch.command is None:
        return changing_settings(switch, say=ui.say)
    return changing_by_command(switch, say=ui.say, on_activity=ui.show_activity)


def refuse_pooler(seen: GivenServer) -> None:
    """Raise a SpecError where a pooler would have each statement run in another session."""
    if seen.has_pooled_transactions:
        raise SpecError(
            "settings of the whole server are not changed through a pooler in transaction mode",
            hint="connect to the server itself",
        )


def find_lacking(seen: GivenServer, needed: frozenset[str] = _NEEDED) -> tuple[str, ...]:
    """Return the GRANTs without which no setting of the server can be changed and put back.

    Raises:
        SpecError: The server refuses something that this needs and that no GRANT gives.
    """
    refused = [one for one in seen.capabilities if one.name in needed and one.refusal is not None]
    for one in refused:
        if not one.grants:
            raise SpecError(
                "settings of this server cannot be changed and put back",
                detail=f"{one.name}: {one.refusal}",
                hint="no GRANT is known to give it: ask who runs the server",
            )
    return tuple(grant for one in refused for grant in one.grants)


def _refuse_without_identifier(seen: GivenServer) -> None:
    grants = find_lacking(seen, frozenset({_IDENTIFIER}))
    if grants:
        raise unidentified_server(hint=advise_grants(grants, dbname=seen.dbname))

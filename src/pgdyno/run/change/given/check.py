"""Check whether settings of a given server can be changed and put back by this role, before anything is changed.

The text in postgresql.auto.conf must be readable, and nothing may hide the value of the files from sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pgdyno.errors import SpecError
from pgdyno.facts.gucs import Guc, VarType, find_guc, is_quoted_list, means_same, unknown_guc
from pgdyno.run.change.changes import SettingChange, TuningState
from pgdyno.run.change.given.target import GivenSwitch, GivenTarget
from pgdyno.run.host.clock import local_now
from pgdyno.run.host.process_id import this_process
from pgdyno.run.postgres import sql
from pgdyno.spec.table import ARCHIVE_SETTINGS

# All others stand for a value that hides that of the files. Source: PostgreSQL 18 src/backend/utils/misc/guc_tables.c.
_OF_FILES = frozenset({"default", "environment variable", "configuration file"})
_BY_RELOAD = frozenset({"user", "superuser", "sighup"})


def check_switch(switch: GivenSwitch, *, lacking: Sequence[str] = ()) -> tuple[SettingChange, ...]:
    """Return the changes that would be made; change nothing.

    Args:
        switch: The server and the variants.
        lacking: GRANTs that are known to be needed, too.

    Raises:
        SpecError: A setting cannot be changed by a reload, or not be put back, or not by this role; or the server does not
            tell which it is.
        StepFailedError: The server does not answer.
    """
    with sql.connect(switch.address) as connection:
        found = sql.read_server_settings(connection, switch.names)
        for name in switch.names:
            check_setting(name, found.get(name))
        _refuse_rights(switch.names, found, lacking, dbname=switch.address.dbname)
        texts = sql.read_auto_conf(connection, switch.names)
    refuse_unidentified(switch)
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
    if old_text is not None and not means_same(describe_guc(found, target.major), old_text, old_value):
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


def read_gucs(connection: sql.Connection, names: Sequence[str], major: int) -> dict[str, Guc]:
    """Read what is known of settings, by name; see `describe_guc`."""
    return {name: describe_guc(found, major) for name, found in sql.read_server_settings(connection, names).items()}


def describe_guc(found: Mapping[str, Any], major: int) -> Guc:
    """Return what the catalogue knows of a setting; of one that it lacks, such as an extension's, what the server says."""
    guc = find_guc(found["name"], major)
    if guc is not None:
        return guc
    vartype = VarType(found["vartype"])
    # The words of an enum that mean the same are not shown.
    vartype = VarType.STRING if vartype is VarType.ENUM else vartype
    return msgspec.structs.replace(unknown_guc(found["name"], major), vartype=vartype, unit=found["unit"])


def check_setting(name: str, found: Mapping[str, object] | None) -> None:
    """Raise a SpecError if a setting cannot be changed by a reload and put back, whatever this role may do."""
    if found is None:
        raise unseen_setting(name)
    refuse_secret(name)
    if not acts_by_reload(found):
        raise SpecError(f"{name} takes a restart, which pgdyno does not do to a given server")
    if is_quoted_list(name):
        raise SpecError(
            f"{name} is a list that ALTER SYSTEM does not write as it was",
            hint="with --design paired sessions ask for it, if their role may SET it; --apply-with changes it in another way",
        )
    if not found["is_allowed"]:
        raise SpecError("the server takes no ALTER SYSTEM", detail="allow_alter_system is off")
    if found["source"] not in _OF_FILES:
        raise hidden_setting(
            name,
            found,
            by="ALTER ROLE … SET, ALTER DATABASE … SET, the connection's options and the server's command line",
        )


def refuse_secret(name: str) -> None:
    """Raise a SpecError if what a server has of a setting must not be kept in the journal, which every account may read."""
    if name in ARCHIVE_SETTINGS:
        raise SpecError(
            f"{name} of a given server is not changed: it may hold a password",
            hint="pgdyno would keep its old value in the journal, which every account of this machine may read",
        )


def refuse_unidentified(target: GivenTarget) -> None:
    """Raise a SpecError unless it is known which server it is."""
    if not target.system_identifier:
        raise unidentified_server(hint="pg_control_system() tells it: try it by hand, as this role")


def unidentified_server(*, hint: str) -> SpecError:
    """Return the error for a server that does not tell a role which one it is."""
    return SpecError(
        "this role does not see which server it is, so that nothing could be put back after a kill", hint=hint
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


def advise_grants(grants: Sequence[str], *, dbname: str) -> str:
    """Return the hint on GRANTs, with the database that those on functions and views are for."""
    return f"in database {dbname}, a superuser gives it by: {'; '.join(grants)}"


def _refuse_rights(
    names: Sequence[str], found: Mapping[str, Mapping[str, object]], lacking: Sequence[str], *, dbname: str
) -> None:
    """Raise an error with all GRANTs at once, if one is lacking."""
    own = find_grants(names, found)
    if not own and not lacking:
        return
    them = ", ".join(names)
    hint = advise_grants([*own, *lacking], dbname=dbname)
    if all(found[name]["context"] == "superuser" for name in names):
        role = found[names[0]]["role"]
        hint += f"; or, so that each session chooses for itself, by: GRANT SET ON PARAMETER {them} TO {role}"
    raise SpecError(f"this role may not change {them} of the server and put it back", hint=hint)

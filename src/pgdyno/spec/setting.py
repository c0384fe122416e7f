"""Settings of PostgreSQL that a user names, checked against what the version has before a server is asked."""

from __future__ import annotations

import difflib

from pgdyno.errors import SpecError
from pgdyno.facts.gucs import Guc, find_guc, majors_with, nearest_gucs, read_value, unknown_guc
from pgdyno.facts.versions import is_untried
from pgdyno.spec.table import PLACE_SETTINGS, SECRET_SETTINGS
from pgdyno.spec.variant import OF_LOAD

_WAYS_IN = PLACE_SETTINGS | {"allow_alter_system"}


def find_setting(name: str, major: int) -> Guc:
    """The setting of that name; of a version that pgdyno was not tried with, a name unknown here is the server's to judge.

    Raises:
        SpecError: The version has none; the hint says what is near, and which version has it.
    """
    guc = find_guc(name, major) or (unknown_guc(name, major) if is_untried(major) else None)
    if guc is not None:
        return guc
    nearest, others = nearest_gucs(name, major), majors_with(name)
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else "`SELECT name FROM pg_settings` lists them"
    of_load = difflib.get_close_matches(name.lower(), OF_LOAD, n=1, cutoff=0.8)
    if of_load:
        hint = f"{of_load[0]} is no setting of the server: `--{of_load[0]}`, or in a sweep `{of_load[0]}=`, varies it"
    if others:
        hint = f"PostgreSQL {', '.join(map(str, others))} has it: choose the server with --server"
    raise SpecError(f"PostgreSQL {major} has no setting {name}", hint=hint)


def read_setting(guc: Guc, name: str, value: str) -> bool | float | str:
    """What a server makes of a value, as `read_value` has it.

    Args:
        guc: The setting.
        name: As the user wrote it.
        value: As the user wrote it.

    Raises:
        SpecError: It would be refused.
    """
    try:
        return read_value(guc, value)
    except ValueError as exc:
        raise SpecError(f"{name} cannot be {value}", detail=str(exc)) from exc


def check_tunable(name: str) -> None:
    """Refuse what is not pgdyno's to set on somebody's server.

    Raises:
        SpecError: It would not be found again with that, or it may be a secret.
    """
    if name.lower() in _WAYS_IN | SECRET_SETTINGS:
        why = (
            "may hold a password"
            if name.lower() in SECRET_SETTINGS
            else "decides where the server is and who may enter"
        )
        raise SpecError(f"{name} is not for pgdyno to change", detail=f"it {why}")

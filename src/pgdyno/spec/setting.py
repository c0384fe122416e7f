"""Check settings that a user names against the catalogue of the PostgreSQL version, before a server starts."""

from __future__ import annotations

import difflib

from pgdyno.errors import SpecError, did_you_mean
from pgdyno.facts.gucs import Guc, VarType, find_guc, majors_with, nearest_gucs, read_value, unknown_guc
from pgdyno.facts.versions import is_untried
from pgdyno.spec.initdb import INITDB_KEYS
from pgdyno.spec.table import PLACE_SETTINGS, SECRET_SETTINGS
from pgdyno.spec.variant import LOAD_HOSTS, OF_LOAD
from pgdyno.units import format_bytes, is_time_unit, unit_size

_WHERE_LISTED = "`SELECT name FROM pg_settings` lists them; `pgdyno sweep --help` lists what else an axis may be"
_WAYS_IN = PLACE_SETTINGS | {"allow_alter_system"}


def find_setting(name: str, major: int) -> Guc:
    """Find a setting by name; a name that pgdyno does not know in an untried version is left to the server.

    Raises:
        SpecError: The version lacks it; the hint suggests similar names, or a version that has it.
    """
    guc = find_guc(name, major) or (unknown_guc(name, major) if is_untried(major) else None)
    if guc is not None:
        return guc
    nearest, others = nearest_gucs(name, major), majors_with(name)
    hint = did_you_mean(nearest) if nearest else _WHERE_LISTED
    of_load = difflib.get_close_matches(name.lower(), OF_LOAD, n=1, cutoff=0.8)
    if of_load:
        hint = (
            f"{of_load[0]} is not a server setting: vary it {_name_option(of_load[0])}in a sweep with `{of_load[0]}=`"
        )
    if others:
        hint = f"PostgreSQL {', '.join(map(str, others))} has it: choose the server with --server"
    raise SpecError(f"PostgreSQL {major} has no setting {name}", hint=hint)


def _name_option(key: str) -> str:
    if key == LOAD_HOSTS:
        return ""
    option = f"--initdb {key}=" if key in INITDB_KEYS else f"--{key.replace('_', '-')}"
    return f"with `{option}`, or "


def read_setting(guc: Guc, name: str, value: str) -> bool | float | str:
    """Parse a value as the server would.

    Args:
        guc: The setting.
        name: As the user wrote it.
        value: As the user wrote it.

    Raises:
        SpecError: The server would refuse the value.
    """
    try:
        return read_value(guc, value)
    except ValueError as exc:
        raise SpecError(f"{name} cannot be {value}", detail=str(exc), hint=_suggest(guc, name)) from exc


def _suggest(guc: Guc, name: str) -> str:
    """Return a number that the setting takes; nothing for words, of which the reason lists those that are valid."""
    if guc.boot is None or guc.vartype not in {VarType.INTEGER, VarType.REAL}:
        return ""
    shown = guc.boot
    if guc.unit is not None and float(guc.boot) > 0:
        size = float(guc.boot) * unit_size(guc.unit)
        shown = f"{guc.boot}{guc.unit}" if is_time_unit(guc.unit) else format_bytes(size).replace(" ", "")
    return f"for example {name}={shown}, its default"


def check_tunable(name: str) -> None:
    """Refuse a setting that pgdyno must not change on a user's server.

    Raises:
        SpecError: The setting would make the server unreachable, or may contain a secret.
    """
    if name.lower() in _WAYS_IN | SECRET_SETTINGS:
        why = (
            "may hold a password"
            if name.lower() in SECRET_SETTINGS
            else "decides where the server is and who may connect"
        )
        raise SpecError(f"{name} is not for pgdyno to change", detail=f"it {why}")

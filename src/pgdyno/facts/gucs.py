"""Look up settings of each PostgreSQL version: their values, the cost of a change, and how soon a change takes effect.

Settings are checked here before a server starts with them: whether the version has the setting, whether the value is
valid, and which design can compare it.

A running server takes precedence over the catalogue: a minor release may add a setting, a distribution may patch one
in, and a build may lack a value. The catalogue does not contain settings of extensions, nor the few that pg_settings
hides (role, session_authorization, seed, is_superuser, default_with_oids, ssl_renegotiation_limit), which are not worth
measuring.
"""

from __future__ import annotations

import difflib
import enum
import functools
import re
from collections.abc import Iterable

from pgdyno.facts.guc_catalogue import Context, Effect, EffectRule, Guc, VarType, catalogue, knowledge
from pgdyno.facts.versions import CATALOGUED_MAJORS, TRIED_MAJORS, is_untried
from pgdyno.units import parse_in_unit

__all__ = [
    "ChangeCost",
    "Context",
    "Effect",
    "EffectRule",
    "Guc",
    "VarType",
    "all_gucs",
    "change_cost",
    "cost_of_context",
    "costliest",
    "effect_of",
    "explain_effect",
    "find_guc",
    "is_custom_name",
    "is_quoted_list",
    "majors_with",
    "means_same",
    "nearest_gucs",
    "read_value",
    "same_value",
    "show_mode",
    "unknown_guc",
]

# Former names that the server still accepts for current settings.
# Source: PostgreSQL 18 src/backend/utils/misc/guc.c, map_old_guc_names.
_OLD_NAMES = {"sort_mem": "work_mem", "vacuum_mem": "maintenance_work_mem", "ssl_ecdh_curve": "ssl_groups"}
# Source: PostgreSQL 18 src/backend/utils/misc/guc_tables.c: settings whose show hook prints octal digits.
_MODES = frozenset({"data_directory_mode", "log_file_mode", "unix_socket_permissions"})
# Source: PostgreSQL 18 src/backend/utils/misc/guc_tables.c, GUC_LIST_QUOTE; further lists of libraries come with minor releases.
_QUOTED_LISTS = frozenset({"search_path", "temp_tablespaces", "unix_socket_directories"})
# Source: PostgreSQL 18 src/backend/utils/misc/guc.c, valid_custom_variable_name().
_CUSTOM_NAME = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w$]*(?:\.[A-Za-z_\x80-\U0010ffff][\w$]*)+")


class ChangeCost(enum.Enum):
    """Least effort that puts a change in force; each member costs more than the one before it."""

    SESSION = "session"
    """SET or a reload."""
    RELOAD = "reload"
    KERNEL = "kernel"
    """A sysctl, which root writes; no PostgreSQL setting costs this."""
    NEW_SESSIONS = "new sessions"
    """A reload, and sessions that begin after it: running sessions keep their value."""
    RESTART = "restart"
    INITDB = "initdb"
    """Fixed when a cluster is initialized; a server refuses to start with another value."""
    FIXED = "fixed"
    """Computed by the server or fixed when it was compiled: the setting cannot be changed."""


_COST_OF_CONTEXT = {
    Context.USER: ChangeCost.SESSION,
    Context.SUPERUSER: ChangeCost.SESSION,
    Context.SIGHUP: ChangeCost.RELOAD,
    Context.BACKEND: ChangeCost.NEW_SESSIONS,
    Context.SUPERUSER_BACKEND: ChangeCost.NEW_SESSIONS,
    Context.POSTMASTER: ChangeCost.RESTART,
    Context.INTERNAL: ChangeCost.FIXED,
}
_AT_ONCE = EffectRule(
    effect=Effect.AT_ONCE,
    why="sessions take it with their next statement, and the server's own processes when the reload wakes them",
    source="PostgreSQL 18, src/backend/tcop/postgres.c, PostgresMain(); src/backend/postmaster/interrupt.c",
)
_NEW_SESSIONS = EffectRule(
    effect=Effect.NEW_SESSIONS,
    why="a running session keeps what it began with",
    source='PostgreSQL 18 manual, "pg_settings": backend, superuser-backend',
)
_NOT_WHILE_RUNNING = EffectRule(
    effect=Effect.NOT_WHILE_RUNNING,
    why="it is in force from the start of the server to its end",
    source='PostgreSQL 18 manual, "pg_settings": postmaster, internal',
)
_UNKNOWN = EffectRule(
    effect=Effect.SLOW, why="it is not known how soon it acts, so nothing quick is promised", source=""
)


@functools.lru_cache(maxsize=4096)
def find_guc(name: str, major: int) -> Guc | None:
    """Find a setting by its name in any case, or by its former name; return None if the version lacks it."""
    key = name.lower()
    gucs = catalogue(major)
    return gucs.get(key) or gucs.get(_OLD_NAMES.get(key, ""))


def unknown_guc(name: str, major: int) -> Guc:
    """Describe a setting of which nothing is known: it takes a restart, and its value stays the text that it is."""
    return Guc(
        name=name,
        major=major,
        context=Context.POSTMASTER,
        vartype=VarType.STRING,
        unit=None,
        min_value=None,
        max_value=None,
        values=(),
        build_values=(),
        aliases={},
        boot=None,
        category="",
        about="",
        not_everywhere="pgdyno does not know it",
    )


def all_gucs(major: int) -> tuple[Guc, ...]:
    """Return all settings of a version, sorted by name; empty for a version older than all that pgdyno knows."""
    return tuple(catalogue(major).values())


def nearest_gucs(name: str, major: int) -> tuple[str, ...]:
    """Return up to three names of settings that resemble `name`, the most similar first."""
    gucs = catalogue(major)
    return tuple(gucs[key].name for key in difflib.get_close_matches(name.lower(), gucs, n=3))


def majors_with(name: str) -> tuple[int, ...]:
    """Return the major versions that have a setting: the tried ones, or else the known newer ones."""
    tried, read = (
        tuple(major for major in majors if find_guc(name, major) is not None)
        for majors in (TRIED_MAJORS, CATALOGUED_MAJORS)
    )
    return tried or read


def is_custom_name(name: str) -> bool:
    """Return whether a name may belong to an extension (`a.b`); a server accepts any value until it is loaded."""
    return _CUSTOM_NAME.fullmatch(name) is not None


def is_quoted_list(name: str) -> bool:
    """Return whether ALTER SYSTEM takes the elements of a list one by one: a whole list in one literal becomes one element."""
    key = name.lower()
    return key in _QUOTED_LISTS or key.endswith("_libraries")


def change_cost(name: str, major: int) -> ChangeCost:
    """Return the cost of changing a setting.

    A custom name (`a.b`) costs a restart: only its extension knows its context, and any change is in force after a
    restart. If the extension is loaded, query the server and use `cost_of_context`. A name that pgdyno does not know
    costs a restart as well, in a version that pgdyno was not tried with.

    Raises:
        LookupError: That version has no such setting.
    """
    guc = find_guc(name, major)
    if guc is None:
        if is_custom_name(name) or is_untried(major):
            return ChangeCost.RESTART
        raise LookupError(f"PostgreSQL {major} has no setting {name}")
    if guc.name in knowledge().initdb:
        return ChangeCost.INITDB
    cost = cost_of_context(guc.context)
    # Sessions read some of the settings that a reload changes only when they begin.
    return costliest([cost, ChangeCost.NEW_SESSIONS]) if effect_of(guc.name) is Effect.NEW_SESSIONS else cost


def cost_of_context(context: Context) -> ChangeCost:
    """Return the cost of a change from the context in a server's pg_settings."""
    return _COST_OF_CONTEXT[context]


def costliest(costs: Iterable[ChangeCost]) -> ChangeCost:
    """Return the cost of making several changes together; SESSION for none."""
    order = list(ChangeCost)
    return max(costs, key=order.index, default=ChangeCost.SESSION)


def effect_of(name: str) -> Effect:
    """Return how soon a change of a setting or a sysctl affects a running load."""
    return explain_effect(name).effect


@functools.lru_cache(maxsize=1024)
def explain_effect(name: str) -> EffectRule:
    """Explain how soon a change of a setting or a sysctl affects a running load, with the reason and the source.

    Versions differ only in the context, which `change_cost` reports; here the newest version counts. Unknown settings
    count as slow, which is safe for every comparison.
    """
    guc = next((one for major in reversed((*TRIED_MAJORS, *CATALOGUED_MAJORS)) if (one := find_guc(name, major))), None)
    if guc and guc.context in {Context.POSTMASTER, Context.INTERNAL}:
        return _NOT_WHILE_RUNNING
    if guc and guc.context in {Context.BACKEND, Context.SUPERUSER_BACKEND}:
        return _NEW_SESSIONS
    rules = knowledge().effect
    key, category = (guc.name, guc.category) if guc else (name, name)
    for rule in rules:
        if key in rule.settings:
            return rule
    for rule in rules:
        if category.startswith(rule.categories):
            return rule
    return _AT_ONCE if guc else _UNKNOWN


def read_value(guc: Guc, text: str) -> bool | float | str:
    """Parse a value as a server of that version would: a bool, a number in `guc.unit`, an enum's value, or the text.

    A server may adjust the value afterwards (wal_buffers is at least 4 pages), which is not done here. A version that was not
    tried may take more numbers and more words than is known: those are left to the server.

    Raises:
        ValueError: The server would refuse the value; the message says which values are valid.
    """
    if guc.vartype is VarType.STRING:
        return text
    if guc.vartype is VarType.BOOL:
        return _read_bool(text)
    if guc.vartype is VarType.ENUM:
        return _read_enum(guc, text)
    number = parse_in_unit(text, guc.unit, is_integer=guc.vartype is VarType.INTEGER)
    if guc.min_value is None or guc.max_value is None or is_untried(guc.major):
        return number
    if not guc.min_value <= number <= guc.max_value:
        unit = f" {guc.unit}" if guc.unit else ""
        raise ValueError(f"{text!r} is not within {guc.min_value} to {guc.max_value}{unit}")
    return number


def as_shown(value: str | float) -> str:
    """Format a value as a server shows it, with booleans as on and off."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def show_mode(name: str, value: str) -> str:
    """Show the mode of a file as a server does, 0640 for 416; values of other settings, and no numbers, stay as they are.

    pg_settings has the default of such a setting as a decimal number.
    """
    if name.lower() not in _MODES:
        return value
    try:
        return f"{round(parse_in_unit(value, None, is_integer=True)):04o}"
    except ValueError:
        return value


def same_value(name: str, one: str, other: str, major: int) -> bool:
    """Return whether a server of that version treats two values as equal (`1GB` and `1024MB`, `on` and `true`).

    For unknown names and invalid values, only identical texts are equal.
    """
    guc = find_guc(name, major)
    return one == other if guc is None else means_same(guc, one, other)


def means_same(guc: Guc, one: str, other: str) -> bool:
    """Return whether two values of a setting are equal, as `same_value` does by its name."""
    try:
        return read_value(guc, one) == read_value(guc, other)
    except ValueError:
        return one == other


def _read_bool(text: str) -> bool:
    """Parse 1, 0, or an unambiguous prefix of true, false, yes, no, on, off in any case.

    Source: PostgreSQL 18 src/backend/utils/adt/bool.c, parse_bool_with_len().
    """
    word = text.lower()
    if word and word != "o":
        if word == "1" or any(full.startswith(word) for full in ("true", "yes", "on")):
            return True
        if word == "0" or any(full.startswith(word) for full in ("false", "no", "off")):
            return False
    raise ValueError(f"{text!r} is not on or off")


def _read_enum(guc: Guc, text: str) -> str:
    """Parse the value of an enum, in any case and without abbreviations.

    Source: PostgreSQL 18 src/backend/utils/misc/guc.c, config_enum_lookup_by_name().
    """
    meanings = {**{value.lower(): value for value in guc.values}, **guc.aliases}
    try:
        return meanings[text.lower()]
    except KeyError:
        if is_untried(guc.major):
            return text.lower()
        raise ValueError(f"{text!r} is not one of {', '.join(guc.values)}") from None

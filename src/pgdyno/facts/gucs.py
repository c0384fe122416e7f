"""What a setting of PostgreSQL is in each major version, what its change costs, and how soon it acts.

What one wants to set is looked up here before a server is asked to start with it: whether the version has it, whether
the value is one, and which design can compare it.

It refuses to overrule a server: a minor release may bring a setting, a distribution may patch one in, and a build may
lack a value; where the running server says otherwise, it is right. It does not know what extensions define, nor
the few that pg_settings hides (role, session_authorization, seed, is_superuser, default_with_oids,
ssl_renegotiation_limit), which are no settings to measure.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable

from pgdyno.facts.guc_catalogue import Context, Effect, EffectRule, Guc, VarType, catalogue, knowledge
from pgdyno.facts.versions import READ_MAJORS, TRIED_MAJORS, is_untried
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
    "majors_with",
    "nearest_gucs",
    "read_value",
    "same_value",
    "unknown_guc",
]

# Names that the server still takes for the new ones, where it has those.
# Source: PostgreSQL 18 src/backend/utils/misc/guc.c, map_old_guc_names.
_OLD_NAMES = {"sort_mem": "work_mem", "vacuum_mem": "maintenance_work_mem", "ssl_ecdh_curve": "ssl_groups"}
# Source: PostgreSQL 18 src/backend/utils/misc/guc.c, valid_custom_variable_name().
_CUSTOM_NAME = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w$]*(?:\.[A-Za-z_\x80-\U0010ffff][\w$]*)+")


class ChangeCost(enum.Enum):
    """The least that a change takes before it is in force; each member costs more than the one before it."""

    SESSION = "session"
    """SET does, and so does a reload."""
    RELOAD = "reload"
    KERNEL = "kernel"
    """A sysctl: root writes it; no setting of PostgreSQL costs this."""
    NEW_SESSIONS = "new sessions"
    """A reload, and sessions that begin after it: those that run keep what they began with."""
    RESTART = "restart"
    INITDB = "initdb"
    """It is chosen when a cluster is made; a server refuses to be started with it."""
    FIXED = "fixed"
    """The server computes it, or whoever compiled it chose it: nothing sets it."""


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


def find_guc(name: str, major: int) -> Guc | None:
    """The setting of that name, in any case, or of the former name it still answers to; None if that version has none."""
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
    """The settings of that version, by name; none of a version older than all that pgdyno knows."""
    return tuple(catalogue(major).values())


def nearest_gucs(name: str, major: int) -> tuple[str, ...]:
    """Up to three names of that version that look like `name`, the likest first."""
    gucs = catalogue(major)
    return tuple(gucs[key].name for key in difflib.get_close_matches(name.lower(), gucs, n=3))


def majors_with(name: str) -> tuple[int, ...]:
    """The tried major versions that have a setting of that name; of one that only newer versions have, the known of these."""
    tried, read = (
        tuple(major for major in majors if find_guc(name, major) is not None) for majors in (TRIED_MAJORS, READ_MAJORS)
    )
    return tried or read


def is_custom_name(name: str) -> bool:
    """Whether an extension could have it (`a.b`): a server takes any value for such a name until the extension is loaded."""
    return _CUSTOM_NAME.fullmatch(name) is not None


def change_cost(name: str, major: int) -> ChangeCost:
    """What a change takes.

    A custom name (`a.b`) costs a restart: only its extension knows its context, and after a restart it is in force
    whatever that is. Where the extension is loaded, ask its server and use `cost_of_context`. So does a name that pgdyno
    does not know in a version that it was not tried with.

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
    # Some settings that a reload brings to all sessions are looked at only when one begins.
    return costliest([cost, ChangeCost.NEW_SESSIONS]) if effect_of(guc.name) is Effect.NEW_SESSIONS else cost


def cost_of_context(context: Context) -> ChangeCost:
    """What a change takes by what a server's pg_settings says of it."""
    return _COST_OF_CONTEXT[context]


def costliest(costs: Iterable[ChangeCost]) -> ChangeCost:
    """What it takes to make all of these changes; SESSION for none."""
    order = list(ChangeCost)
    return max(costs, key=order.index, default=ChangeCost.SESSION)


def effect_of(name: str) -> Effect:
    """How soon a change of a setting, or of a sysctl, acts on a load under way."""
    return explain_effect(name).effect


def explain_effect(name: str) -> EffectRule:
    """How soon a change of a setting, or of a sysctl, acts on a load under way, why, and how that is known.

    The versions differ only in what the context decides, and `change_cost` tells that; here the newest counts. What
    pgdyno does not know is slow, which no comparison takes amiss.
    """
    guc = next((one for major in reversed((*TRIED_MAJORS, *READ_MAJORS)) if (one := find_guc(name, major))), None)
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
    """The value that a server of that version makes of `text`: a bool, a number in `guc.unit`, an enum's value, or the text.

    What a server's own checks may do after that (wal_buffers is at least 4 pages) is not done here. A version that was not
    tried may take more numbers and more words than is known: those are left to the server.

    Raises:
        ValueError: The server would refuse it; the message says what it takes.
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
    """A value as a server shows it, booleans as on and off."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def same_value(name: str, one: str, other: str, major: int) -> bool:
    """Whether a server of that version makes the same of both (`1GB` and `1024MB`, `on` and `true`).

    Of names that it does not have, and of values that it would refuse, only equal texts are the same.
    """
    guc = find_guc(name, major)
    if guc is None:
        return one == other
    try:
        return read_value(guc, one) == read_value(guc, other)
    except ValueError:
        return one == other


def _read_bool(text: str) -> bool:
    """Any beginning of true, false, yes, no, on, off that is not ambiguous, in any case; 1 and 0.

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
    """Source: PostgreSQL 18 src/backend/utils/misc/guc.c, config_enum_lookup_by_name(): any case, no beginnings."""
    meanings = {**{value.lower(): value for value in guc.values}, **guc.aliases}
    try:
        return meanings[text.lower()]
    except KeyError:
        if is_untried(guc.major):
            return text.lower()
        raise ValueError(f"{text!r} is not one of {', '.join(guc.values)}") from None

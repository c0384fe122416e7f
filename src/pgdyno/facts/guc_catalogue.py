"""Read the catalogue of PostgreSQL's settings: `gucs.json`, generated from servers, and `gucs.toml`, added by hand.

`gucs.py` answers questions from it. Both files are read only on first use, so that `--help` does not wait for them.
"""

from __future__ import annotations

import enum
import functools
from typing import TypeAlias, TypeVar

import msgspec

from pgdyno.facts.data_file import read_data, read_toml
from pgdyno.facts.versions import NEWEST_TRIED_MAJOR, OLDEST_MAJOR, covers, find_range, stand_ins

_T = TypeVar("_T")
Varying: TypeAlias = _T | dict[str, _T]
"""One value for all versions, or a value for each range of versions, such as `15-17` or `16, 18`."""


class Context(enum.Enum):
    """When and by whom a setting can be changed, in PostgreSQL's terms."""

    INTERNAL = "internal"
    POSTMASTER = "postmaster"
    SIGHUP = "sighup"
    SUPERUSER_BACKEND = "superuser-backend"
    BACKEND = "backend"
    SUPERUSER = "superuser"
    USER = "user"


class VarType(enum.Enum):
    """Type of a setting's values, in PostgreSQL's terms."""

    BOOL = "bool"
    ENUM = "enum"
    INTEGER = "integer"
    REAL = "real"
    STRING = "string"


class Guc(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of one major version."""

    name: str
    """Name as spelled in pg_settings; the server accepts any case."""
    major: int
    context: Context
    vartype: VarType
    unit: str | None
    """Unit of `boot`, `min_value`, `max_value` and plain numbers: B, kB, 8kB, MB, ms, s, min; None without a unit."""
    min_value: int | float | None
    max_value: int | float | None
    """None for non-numeric and internal settings."""
    values: tuple[str, ...]
    """Values of an enum, including those that only some builds accept."""
    build_values: tuple[str, ...]
    """The `values` that only some builds accept; only the server itself can tell whether it does."""
    aliases: dict[str, str]
    """Alternative spellings of an enum's values, with the value that each one means."""
    boot: str | None
    """Built-in default from pg_settings.boot_val; None if there is none or it depends on the build."""
    category: str
    about: str
    not_everywhere: str | None
    """Why a server of this version may lack the setting; None if every server has it."""


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of `gucs.json`."""

    name: str
    context: Varying[Context]
    vartype: Varying[VarType]
    category: str
    about: str
    versions: str = f"{OLDEST_MAJOR}-{NEWEST_TRIED_MAJOR}"
    unit: str | None = None
    min: Varying[int | float | None] = None
    max: Varying[int | float | None] = None
    values: Varying[tuple[str, ...]] = ()
    aliases: dict[str, str] = {}
    boot: Varying[str | None] = None


class _Raw(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    servers: dict[str, str]
    settings: tuple[_Row, ...]


class Effect(enum.Enum):
    """Delay until a change affects a running load."""

    AT_ONCE = "at once"
    SLOW = "slow"
    """The effect outlasts a slice, or takes a whole cycle (a checkpoint, a vacuum) to appear."""
    NEW_PLANS = "new plans"
    """When a statement is next planned: at once if each execution is planned (pgbench -M simple and extended), else,
    under prepared statements with generic plans, in new sessions."""
    NEW_SESSIONS = "new sessions"
    NOT_WHILE_RUNNING = "not while running"


class EffectRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The delay until some settings take effect, with the source."""

    effect: Effect
    why: str
    """Reason as a clause, in which "it" stands for the setting."""
    source: str
    settings: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _BuildValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    values: tuple[str, ...]
    source: str


class _NotEverywhere(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    versions: str
    why: str
    source: str


class _Later(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a version that was not tried changed of a setting; what is None is as it was."""

    name: str
    since: int
    source: str
    is_gone: bool = False
    is_boot_of_build: bool = False
    boot: str | None = None
    context: Context | None = None
    vartype: VarType | None = None


class _Added(_Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that came with a version that was not tried."""

    source: str


class Knowledge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of `gucs.toml`."""

    initdb: frozenset[str]
    boot_of_build: frozenset[str]
    build_values: tuple[_BuildValues, ...]
    not_everywhere: tuple[_NotEverywhere, ...]
    effect: tuple[EffectRule, ...]
    added: tuple[_Added, ...] = ()
    later: tuple[_Later, ...] = ()


@functools.cache
def knowledge() -> Knowledge:
    """Read `gucs.toml`."""
    return read_toml("gucs.toml", Knowledge)


@functools.cache
def _raw() -> _Raw:
    return msgspec.json.decode(read_data("gucs.json"), type=_Raw)


@functools.cache
def catalogue(major: int) -> dict[str, Guc]:
    """Return the settings of a version by their names in lower case; empty for a version older than all that pgdyno knows.

    A version that was not tried has those of the newest one before it, with the changes that are known.
    """
    known = knowledge()
    not_everywhere = {one.name: one for one in known.not_everywhere}
    build_values = {one.name: one.values for one in known.build_values}
    gucs = {}
    for row in (*_raw().settings, *known.added):
        partial = not_everywhere.get(row.name)
        versions = partial.versions if partial else row.versions
        if any(covers(versions, one) for one in stand_ins(major)):
            gucs[row.name.lower()] = _guc(row, major, build_values.get(row.name, ()), partial, known)
    for change in known.later:
        if change.since <= major:
            _change(gucs, change)
    return gucs


def _change(gucs: dict[str, Guc], change: _Later) -> None:
    guc = gucs.pop(change.name)
    if not change.is_gone:
        vartype = change.vartype or guc.vartype
        gucs[change.name] = msgspec.structs.replace(
            guc,
            boot=None if change.is_boot_of_build else change.boot or guc.boot,
            context=change.context or guc.context,
            vartype=vartype,
            values=() if vartype is VarType.STRING else guc.values,
        )


def _guc(row: _Row, major: int, build_values: tuple[str, ...], partial: _NotEverywhere | None, known: Knowledge) -> Guc:
    values = _pick(row.values, major)
    return Guc(
        name=row.name,
        major=major,
        context=_pick(row.context, major),
        vartype=_pick(row.vartype, major),
        unit=row.unit,
        min_value=_pick(row.min, major),
        max_value=_pick(row.max, major),
        values=(*values, *(value for value in build_values if value not in values)),
        build_values=build_values,
        aliases=row.aliases,
        boot=None if row.name in known.boot_of_build else _pick(row.boot, major),
        category=row.category,
        about=row.about,
        not_everywhere=partial.why if partial else None,
    )


def _pick(value: Varying[_T], major: int) -> _T:
    """Return the value for a version.

    Raises:
        LookupError: No range covers the version.
    """
    if not isinstance(value, dict):
        return value
    versions = find_range(value, major)
    if versions is None:
        raise LookupError(f"{value} has nothing for version {major}")
    return value[versions]

"""Find what settings give up for speed, from `durability.toml`.

A result obtained by risking committed transactions must be labelled next to a result of a durable server. The labels
are defined here once, so that every table, chart and verdict uses the same words. Only single settings of one server
are judged; unlogged tables, disks that ignore flushes and absent standbys are not detected.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Mapping

import msgspec

from pgdyno.facts.data_file import read_toml
from pgdyno.facts.gucs import as_shown, find_guc, read_value


class Loss(enum.Enum):
    """Kind of property that is given up."""

    DURABILITY = "durability"
    DOUBT = "doubt"
    """Durable only if hardware and kernel behave as specified."""
    DETECTION = "detection"
    RECOVERY = "recovery"
    INTEGRITY = "integrity"
    UPKEEP = "upkeep"


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that gives something up."""

    setting: str
    value: str
    """Value as the server shows it."""
    kind: Loss
    label: str
    """Label to print next to a result; lower case, without a full stop."""
    source: str

    @property
    def assignment(self) -> str:
        """The setting as in postgresql.conf, such as `fsync = off`."""
        return f"{self.setting} = {self.value}"

    @property
    def gist(self) -> str:
        """The label without its consequence."""
        return self.label.partition(":")[0]

    @property
    def consequence(self) -> str:
        """What the label says may happen."""
        return self.label.partition(": ")[2]

    @property
    def is_durability(self) -> bool:
        """True if committed transactions are or may be at risk; where they surely are, `kind` is Loss.DURABILITY."""
        return self.kind in {Loss.DURABILITY, Loss.DOUBT}


class _GivesUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: str
    values: tuple[str, ...]
    kind: Loss
    label: str
    source: str
    needs: str | None = None


class _Alike(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    setting: str
    values: tuple[str, ...]
    unless: str
    why: str
    source: str


class _Rules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gives_up: tuple[_GivesUp, ...]
    alike: tuple[_Alike, ...]


def find_given_up(settings: Mapping[str, str | float], major: int) -> tuple[GivenUp, ...]:
    """Find everything that settings give up, the gravest first.

    Args:
        settings: Settings in force or set by a variant, with values that the server accepts. Absent ones give up
            nothing.
        major: Major version of the server; settings and values that it would refuse give up nothing.
    """
    shown = _show_values(settings, major)
    return tuple(
        GivenUp(setting=rule.setting, value=shown[rule.setting], kind=rule.kind, label=rule.label, source=rule.source)
        for rule in _rules().gives_up
        if shown.get(rule.setting) in rule.values and (rule.needs is None or shown.get(rule.needs))
    )


def names_wal_file(archive_command: str) -> bool:
    """Return whether an archive_command is given the WAL file to archive; without it, it can archive nothing.

    Source: PostgreSQL 18 manual, section 25.3.1: %p is the path of the file, %f its name.
    """
    return any(place in archive_command.replace("%%", "") for place in ("%p", "%f"))


def durability_given_up(settings: Mapping[str, str | float], major: int) -> tuple[GivenUp, ...]:
    """Find what settings certainly or possibly give up of durability; see `find_given_up` for the arguments."""
    return tuple(one for one in find_given_up(settings, major) if one.is_durability)


def judged_settings() -> tuple[str, ...]:
    """Return the names of all settings that `find_given_up` needs."""
    names = [name for rule in _rules().gives_up for name in (rule.setting, rule.needs)]
    return tuple(dict.fromkeys(name for name in names if name is not None))


def explain_alike(name: str, one: str, other: str, settings: Mapping[str, str], major: int) -> str | None:
    """Explain why two different values of a setting are equivalent on a server; return None if they are not.

    Args:
        name: Name of the setting.
        one: One value.
        other: The other value.
        settings: The other settings in force; absent ones have their built-in defaults.
        major: Major version of the server.
    """
    around = _show_values(settings, major)
    values = {_show_values({name: value}, major).get(name.lower()) for value in (one, other)}
    for rule in _rules().alike:
        if rule.setting == name.lower() and values <= set(rule.values) and not around.get(rule.unless):
            return rule.why
    return None


def _show_values(settings: Mapping[str, str | float], major: int) -> dict[str, str]:
    """Return the settings that the server has, with valid values, as the server shows them."""
    shown = {}
    for name, value in settings.items():
        guc = find_guc(name, major)
        if guc is None:
            continue
        with contextlib.suppress(ValueError):
            shown[guc.name] = as_shown(read_value(guc, as_shown(value)))
    return shown


@functools.cache
def _rules() -> _Rules:
    return read_toml("durability.toml", _Rules)
